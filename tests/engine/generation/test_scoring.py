"""Scoring: the arithmetic, the refusals, and that it runs beside steered lanes without being one of them."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import (
    ContextLengthExceeded,
    InvalidParameter,
    ModelBusy,
    NoChatTemplate,
    NonFiniteLogits,
    QueueFull,
    RequestCancelled,
)
from engine.generation.errors import InvalidScoringRequest
from engine.generation.request import ChatInput, Message, TextInput
from engine.generation.scoring import Scored, ScoredPrompt, ScoringRequest, rank
from engine.library.database import Library
from engine.monitor.activation_spec import ActivationSpec
from engine.monitor.errors import SaeActivationsRefused
from engine.steering import transitions
from tests.conftest import CheckpointMaker, EngineMaker
from tests.engine.generation.driving import Answer, Driver
from tests.engine.generation.test_steered_lanes import attach, inline
from tests.waiting import wait_until

NAN, INF = math.nan, math.inf


def request(driver: Driver, *prompts: str, special: bool = True, **fields: Any) -> ScoringRequest:
    return ScoringRequest(driver.name, TextInput(prompts, special), **fields)


def send(driver: Driver, *prompts: str, **fields: Any) -> Future[Scored]:
    return driver.service.score(driver.service.prepare_scoring(request(driver, *prompts, **fields)))


def score(driver: Driver, *prompts: str, **fields: Any) -> list[ScoredPrompt]:
    future = send(driver, *prompts, **fields)
    driver.finish()
    return list(future.result(0).prompts)


def table(found: ScoredPrompt) -> dict[int, float]:
    return {each.token_id: each.logprob for each in found.top}


@pytest.fixture
def driver(tiny_checkpoint: Path, library: Library) -> Driver:
    return Driver(tiny_checkpoint, library)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def test_the_whole_vocabulary() -> None:
    # softmax of ln(1, 2, 4, 1) is 1/8, 2/8, 4/8, 1/8
    ranked = rank(torch.tensor([0.0, math.log(2), math.log(4), 0.0]), None, 3, 1.0)
    assert [token for token, _ in ranked] == [2, 1, 0]
    assert [math.exp(value) for _, value in ranked] == pytest.approx([0.5, 0.25, 0.125], abs=1e-6)


def test_only_the_allowed_set_counts_and_twice_is_once() -> None:
    # A124: exp() sums to 1 over the allowed set
    ranked = rank(torch.tensor([0.0, math.log(2), math.log(4), 9.0]), (2, 1, 2, 1), 20, 1.0)
    assert [token for token, _ in ranked] == [2, 1]
    assert [math.exp(value) for _, value in ranked] == pytest.approx([2 / 3, 1 / 3], abs=1e-6)


@pytest.mark.parametrize(("k", "given"), [(0, 1), (1, 1), (2, 2), (20, 3)])
def test_at_least_one_and_at_most_all_candidates(k: int, given: int) -> None:
    assert len(rank(torch.tensor([1.0, 2.0, 3.0, 4.0]), (0, 1, 2), k, 1.0)) == given


def test_ties_go_to_the_lowest_id() -> None:
    row = torch.tensor([1.0, 5.0, 5.0, 5.0, 0.0])
    assert [token for token, _ in rank(row, None, 2, 1.0)] == [1, 2]
    assert [token for token, _ in rank(row, (3, 2), 0, 1.0)] == [2]


def test_temperature_divides_the_logits_and_0_leaves_them() -> None:
    # A137: the gap halves from temperature 1 to 2; 0 is no scaling
    row = torch.tensor([3.0, 1.0])

    def gap(temperature: float) -> float:
        (_, first), (_, second) = rank(row, None, 2, temperature)
        return first - second

    assert gap(1.0) == pytest.approx(2.0, abs=1e-6)
    assert gap(2.0) == pytest.approx(1.0, abs=1e-6)
    assert gap(0.0) == pytest.approx(2.0, abs=1e-6)


@pytest.mark.parametrize("bad", [NAN, INF])
def test_nan_and_infinity_count_where_they_reach_the_answer(bad: float) -> None:
    # A139: on an allowed id an error, outside the allowed set not; anywhere when nothing is excluded
    row = torch.tensor([1.0, bad, 2.0])
    with pytest.raises(NonFiniteLogits):
        rank(row, (0, 1), 1, 1.0)
    with pytest.raises(NonFiniteLogits):
        rank(row, None, 1, 1.0)
    assert rank(row, (0, 2), 1, 1.0)[0][0] == 2


def test_impossible_tokens_count_where_they_are_reported() -> None:
    # A140: a reported −inf is an error, one on an unlisted id is not
    row = torch.tensor([1.0, -INF, 2.0])
    assert [token for token, _ in rank(row, None, 2, 1.0)] == [2, 0]
    with pytest.raises(NonFiniteLogits):
        rank(row, None, 3, 1.0)
    with pytest.raises(NonFiniteLogits):
        rank(row, (1,), 0, 1.0)
    with pytest.raises(NonFiniteLogits):
        rank(torch.full((3,), -INF), None, 0, 1.0)


# --- on a model -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["llama", "mistral-window", "gemma2", "gpt2"])
def test_what_the_library_itself_computes(family: str, checkpoint: CheckpointMaker, library: Library) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = checkpoint(family)
    text = "the quick brown fox jumps over the lazy dog and runs"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
        expected = torch.log_softmax(model(ids).logits[0, -1].float(), 0).topk(5)
    (found,) = score(Driver(folder, library), text, logprobs=5)
    assert [each.token_id for each in found.top] == expected.indices.tolist()
    assert [each.logprob for each in found.top] == pytest.approx(expected.values.tolist(), abs=1e-4)
    assert found.chosen == found.top[0]
    assert found.text_offset == 52
    assert found.prompt_tokens == ids.shape[1]


def test_allowed_tokens_alone_without_logprobs(driver: Driver) -> None:
    # A125: the text is the likelier of the two
    (both,) = score(driver, "the sea", allowed_token_ids=(70, 71), logprobs=2)
    assert sum(math.exp(value) for value in table(both).values()) == pytest.approx(1.0, abs=1e-5)
    assert set(table(both)) == {70, 71}
    (one,) = score(driver, "the sea", allowed_token_ids=(71, 70))
    assert len(one.top) == 1
    assert one.chosen.token_id == max(table(both), key=lambda token: table(both)[token])
    # A145, A152: the bytes are the token's own, and the text is what they spell
    assert one.chosen.bytes == driver.backend.tokenizer.token_bytes(one.chosen.token_id)
    assert one.text == driver.backend.tokenizer.decode([one.chosen.token_id])


def test_half_a_character_as_text_and_as_bytes(driver: Driver) -> None:
    tokenizer = driver.backend.tokenizer
    half = next(i for i in range(400) if tokenizer.token_bytes(i) == b"\xe6")
    (found,) = score(driver, "the sea", allowed_token_ids=(half,))
    assert found.text == "�"
    assert found.chosen.bytes == b"\xe6"
    assert found.chosen.logprob == 0.0


def test_several_prompts_are_what_each_is_alone(driver: Driver) -> None:
    prompts = ("the sea", "a language model writes one token after another", "naïve café, 東京", "a")
    alone = [score(driver, prompt, logprobs=5)[0] for prompt in prompts]
    together = score(driver, *prompts, logprobs=5)
    assert together == alone  # not only within 1e-5
    future = send(driver, *prompts)
    driver.finish()
    usage = future.result(0).usage
    assert usage.prompt_tokens == sum(found.prompt_tokens for found in alone)
    assert usage.completion_tokens == 4


def test_short_prompts_share_a_pass_and_change_nothing(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, PREFILL_CHUNK=48)
    long = "the sea was calm and the ship went slowly along the coast " * 3
    prompts = ("the sea", "a", "naïve café, 東京", "a language model", long, "the", "a smile")
    alone = [score(driver, prompt, logprobs=5)[0] for prompt in prompts]
    assert alone[4].prompt_tokens > 48 and max(alone[place].prompt_tokens for place in (0, 1, 2, 3, 5, 6)) <= 16
    driver.passes.clear()
    future = send(driver, *prompts, logprobs=5)
    driver.finish()
    assert list(future.result(0).prompts) == alone  # to the last bit
    # Width 16: three fit into 48. The long one is read chunk by chunk, by itself.
    rest = alone[4].prompt_tokens % 48
    assert driver.passes == [("ends", 3), ("ends", 1), ("extend", 48), ("extend", rest), ("ends", 2)]


def test_a_fault_in_a_shared_pass_names_its_prompt(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, PREFILL_CHUNK=48)
    ends = driver.backend.logits_at_ends

    def third_is_broken(prompts: Any, work: Any = None) -> Any:
        logits = ends(prompts, work).clone()
        logits[-1, 70] = NAN
        return logits

    driver.backend.logits_at_ends = third_is_broken  # type: ignore[method-assign]
    future = send(driver, "the sea", "a", "b")
    driver.finish()
    with pytest.raises(NonFiniteLogits) as caught:
        future.result(0)
    assert (caught.value.remedy or "").endswith("(prompt 2)")
    assert score_alone_after(driver)


def score_alone_after(driver: Driver) -> bool:
    """Whether nothing of a failed reading is left in the way of the next."""
    del driver.backend.logits_at_ends  # the class's own again
    return score(driver, "the sea")[0].prompt_tokens > 0


def test_reading_along_changes_no_score(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, PREFILL_CHUNK=48)
    attach(driver, 1)
    plain = score(driver, "the sea", logprobs=5)
    wanted = ActivationSpec.from_wire({"top_k": 1, "positions": "prompt"})
    future = send(driver, "the sea", logprobs=5, activations=wanted)
    driver.finish()
    result = future.result(0)
    assert list(result.prompts) == plain
    assert result.activations is not None
    assert len(result.activations["positions"]) == plain[0].prompt_tokens


QUESTION = "the sea was calm and the ship went slowly along the coast in the evening and "
SHARING = (
    QUESTION + "the fox jumps",
    QUESTION + "the dog runs",
    QUESTION,
    "a smile",
    QUESTION,
    QUESTION + "naïve café",
)


@pytest.mark.parametrize("family", ["llama", "mistral-window", "gemma2", "gpt2"])
def test_what_two_prompts_begin_with_is_read_once(
    family: str, checkpoint: CheckpointMaker, library: Library, tmp_path: Path
) -> None:
    driver = Driver(checkpoint(family), library)
    alone = [score(driver, prompt, logprobs=5)[0] for prompt in SHARING]
    lengths = [found.prompt_tokens for found in alone]
    driver.passes.clear()
    future = send(driver, *SHARING, logprobs=5)
    driver.finish()
    result = future.result(0)
    assert list(result.prompts) == alone  # to the last bit
    # Whole chunks of 8, never the last token, and only from the prompt before: the smile breaks the row.
    assert lengths[0] > 24
    shared = sum(length // 8 * 8 for length in (lengths[2], lengths[2] - 1, lengths[4]))
    assert result.usage.cached_tokens == shared
    assert sum(tokens for _, tokens in driver.passes) == sum(lengths) - shared


def test_what_is_read_along_is_not_shared(driver: Driver) -> None:
    attach(driver, 1)
    wanted = ActivationSpec.from_wire({"top_k": 1, "positions": "prompt"})
    future = send(driver, QUESTION, activations=wanted)
    driver.finish()
    assert future.result(0).usage.cached_tokens == 0


def test_a_conversation_is_its_rendered_prompt(checkpoint: CheckpointMaker, library: Library) -> None:
    # A146: the template's own BOS is the only one
    template = (
        "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    driver = Driver(checkpoint("llama", add_bos=True, chat_template=template), library)
    chat = ScoringRequest(driver.name, (ChatInput((Message("user", "is it?"),)),), logprobs=5)
    prepared = driver.service.prepare_scoring(chat)
    assert prepared.prompts[0].text == "<|bos|>[user]is it?[assistant]"
    future = driver.service.score(prepared)
    driver.finish()
    raw = score(driver, "<|bos|>[user]is it?[assistant]", special=False, logprobs=5)
    assert list(future.result(0).prompts) == raw
    (with_more,) = score(driver, "[user]is it?[assistant]", logprobs=5)
    assert table(with_more) == table(raw[0])


def test_conversations_in_order_and_one_bad_one_fails_all(driver: Driver) -> None:
    # A149
    chats = tuple(ChatInput((Message("user", text),)) for text in ("one", "two", "three"))
    future = driver.service.score(driver.service.prepare_scoring(ScoringRequest(driver.name, chats, logprobs=2)))
    driver.finish()
    singles = []
    for chat in chats:
        single = driver.service.score(driver.service.prepare_scoring(ScoringRequest(driver.name, (chat,), logprobs=2)))
        driver.finish()
        singles.extend(single.result(0).prompts)
    assert list(future.result(0).prompts) == singles
    bad = (chats[0], ChatInput((Message("assistant", " "),)))
    with pytest.raises(InvalidParameter) as refusal:
        driver.service.prepare_scoring(ScoringRequest(driver.name, bad))
    assert refusal.value.one_line().endswith("(conversation 1)")


def test_a_model_without_a_template(checkpoint: CheckpointMaker, library: Library) -> None:
    # A148
    driver = Driver(checkpoint("llama", chat_template=None), library)
    with pytest.raises(NoChatTemplate, match="tiny-llama") as refusal:
        driver.service.prepare_scoring(ScoringRequest(driver.name, (ChatInput((Message("user", "x"),)),)))
    assert refusal.value.param == "model"
    assert len(score(driver, "the sea")) == 1


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logprobs", 21),  # A121
        ("logprobs", -1),
        ("allowed_token_ids", ()),  # A128
        ("allowed_token_ids", tuple(range(1025))),
        ("allowed_token_ids", (-1,)),
        ("temperature", 0.0005),
        ("temperature", 2.5),
        ("temperature", NAN),
    ],
)
def test_values_out_of_bounds(field: str, value: Any) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        ScoringRequest("m", TextInput(("x",)), **{field: value})
    assert refusal.value.param == field


def test_bounds_themselves(driver: Driver) -> None:
    assert len(score(driver, "the sea", logprobs=20)[0].top) == 20
    assert len(score(driver, "the sea", logprobs=0)[0].top) == 1  # A121
    score(driver, "the sea", allowed_token_ids=tuple(range(400)) * 2 + tuple(range(224)), temperature=0.001)


def test_a_token_outside_the_vocabulary(driver: Driver) -> None:
    # A127: names the id and the size of the vocabulary
    with pytest.raises(InvalidScoringRequest, match=r"token 400, .* vocabulary of 400") as refusal:
        driver.service.prepare_scoring(request(driver, "x", allowed_token_ids=(3, 400)))
    assert refusal.value.param is None


def test_an_empty_prompt(driver: Driver) -> None:
    # A131
    with pytest.raises(InvalidScoringRequest, match="empty"):
        driver.service.prepare_scoring(request(driver, "", special=False))
    with pytest.raises(InvalidScoringRequest) as refusal:
        driver.service.prepare_scoring(request(driver, "x", "", special=False))
    assert refusal.value.one_line().endswith("(prompt 1)")
    with pytest.raises(InvalidParameter, match="surrogate"):
        driver.service.prepare_scoring(request(driver, "\ud800"))


def test_one_of_two_prompts_too_long(driver: Driver) -> None:
    # A133: named, and nothing was read
    with pytest.raises(ContextLengthExceeded, match="2048 tokens") as refusal:
        driver.service.prepare_scoring(request(driver, "the sea", "calm " * 3000))
    assert refusal.value.one_line().endswith("(prompt 1)")
    assert driver.passes == []


def test_a_broken_head(driver: Driver) -> None:
    # A139 on a model whose head gives NaN for one token
    driver.backend._model.lm_head.register_forward_hook(
        lambda module, inputs, logits: logits.index_fill(-1, torch.tensor([7]), NAN)
    )
    future = send(driver, "the sea", "a smile", allowed_token_ids=(7, 8))
    good = send(driver, "the sea", allowed_token_ids=(8, 9))
    driver.finish()
    with pytest.raises(NonFiniteLogits) as failure:
        future.result(0)
    assert failure.value.one_line().endswith("(prompt 0)")
    assert good.result(0).prompts[0].chosen.token_id in (8, 9)
    assert driver.service.stats().queue_pending == 0


# --- beside other lanes -----------------------------------------------------------------------------------------------


def test_never_steered_never_monitored_while_other_lanes_are(driver: Driver) -> None:
    # A151, and both at the same moment: live steering, lanes with steerings of their own, the monitor on
    attach(driver, 1, 2)
    text = "the quick brown fox jumps over the lazy dog"
    (plain,) = score(driver, text, logprobs=20)
    alone = [
        driver.alone("the sea was calm", steering=steering, max_tokens=20).ids()
        for steering in (inline("sae-1", f3=40.0), inline("sae-2", f9=60.0))
    ]
    driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 150.0}))
    live = driver.alone("the sea was calm", max_tokens=20).ids()
    driver.monitor.configure(enabled=True, top_k=3, history_size=1000)
    lanes: list[Answer] = [
        driver.send("the sea was calm", steering=inline("sae-1", f3=40.0), max_tokens=20),
        driver.send("the sea was calm", steering=inline("sae-2", f9=60.0), max_tokens=20),
        driver.send("the sea was calm", max_tokens=20),
    ]
    driver.tick(5)
    future = send(driver, text, text, logprobs=20)
    while not future.done():
        driver.tick()
    assert not any(lane.finished for lane in lanes)  # they were all running
    assert list(future.result(0).prompts) == [plain, plain]
    driver.finish()
    assert [lane.ids() for lane in lanes] == [*alone, live]
    assert len({tuple(ids) for ids in (*alone, live)}) == 3
    assert len({record.request_id for record in driver.monitor.history(limit=1000)}) == 3


def test_activations_of_a_scoring_pass_are_unsteered(driver: Driver) -> None:
    attach(driver, 1)
    spec = ActivationSpec.from_wire({"top_k": 4, "positions": "all"})

    def read() -> Any:
        future = send(driver, "the sea was calm", activations=spec)
        driver.finish()
        return future.result(0).activations

    plain = read()
    driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 150.0}))
    assert read() == plain
    assert plain["read_point"] == "unsteered"
    prompt_tokens = driver.service.prepare_scoring(request(driver, "the sea was calm")).prompts[0].token_ids
    assert [each["position"] for each in plain["positions"]] == list(range(len(prompt_tokens)))
    with pytest.raises(SaeActivationsRefused):
        driver.service.prepare_scoring(request(driver, "a", "b", activations=spec))


def test_a_long_prompt_takes_turns_with_the_batch(driver: Driver) -> None:
    lane = driver.send("the sea", max_tokens=40)
    driver.tick(2)
    driver.passes.clear()
    future = send(driver, "the sea was calm and the ship went slowly along the coast")
    while not future.done():
        driver.tick()
    kinds = [kind for kind, _ in driver.passes]
    assert kinds[:6] == ["decode", "extend", "decode", "extend", "decode", "extend"]
    assert max(tokens for kind, tokens in driver.passes if kind == "extend") == 8
    driver.finish()
    assert lane.finished is not None


def test_leaving_in_the_middle_of_a_prompt(driver: Driver) -> None:
    future = send(driver, "the sea was calm " * 20)
    driver.tick(2)
    assert driver.service.stats().in_flight == 1
    read = len(driver.passes)
    assert future.cancel()
    driver.tick()
    assert len(driver.passes) == read
    assert driver.service.stats().queue_pending == 0
    with pytest.raises(CancelledError):
        future.result(0)


def test_a_place_in_the_queue(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library, MAX_LANES=1, MAX_PENDING_REQUESTS=2)
    lane = driver.send("the sea", max_tokens=10)
    driver.tick(2)
    waiting = [send(driver, "the sea"), send(driver, "a smile")]
    stats = driver.service.stats()
    assert (stats.in_flight, stats.queue_waiting, stats.queue_pending) == (1, 2, 3)
    with pytest.raises(QueueFull):
        send(driver, "the sea")
    waiting[0].cancel()  # queued and gone: it is never read
    while not lane.finished:
        driver.tick()
    driver.passes.clear()
    driver.finish()
    assert len(waiting[1].result(0).prompts) == 1
    assert len(driver.passes) == 1
    assert driver.service.stats().in_flight == 0


def test_ended_with_the_program(driver: Driver) -> None:
    future = send(driver, "the sea was calm " * 20)
    driver.tick()
    driver.scheduler.fail_all(RequestCancelled("The program is closing."))
    with pytest.raises(RequestCancelled):
        future.result(0)
    assert driver.service.stats().queue_pending == 0


def test_an_unload_waits_for_it(make_engine: EngineMaker) -> None:
    engine = make_engine(PREFILL_CHUNK=4)
    service = engine.generation
    prepared = service.prepare_scoring(ScoringRequest("tiny-llama", TextInput(("the sea was calm " * 60,))))
    future = service.score(prepared)
    unloaded = engine.loader.unload()
    with pytest.raises(ModelBusy):
        service.score(prepared)
    assert len(future.result(60).prompts) == 1
    unloaded.result(60)
    with pytest.raises(ModelBusy):
        service.score(prepared)


def test_an_asyncio_task_that_is_cancelled_leaves(make_engine: EngineMaker) -> None:
    service = make_engine(PREFILL_CHUNK=1).generation

    async def main() -> None:
        prepared = service.prepare_scoring(ScoringRequest("tiny-llama", TextInput(("the sea was calm " * 100,))))
        task = asyncio.ensure_future(asyncio.wrap_future(service.score(prepared)))
        while not service.stats().in_flight:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    wait_until(lambda: service.stats().queue_pending == 0, "the lane to be free")
