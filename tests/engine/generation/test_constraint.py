"""Structured output on lanes: in batches, with seeds, steering and streams; and the compiling behind it."""

from __future__ import annotations

import json
import threading
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import ModelNotLoaded
from engine.generation.constraint import CompiledConstraint
from engine.generation.constraints.compiler import AT_ONCE, ConstraintCompiler
from engine.generation.constraints.grammar import Vocabulary
from engine.generation.constraints.validation import DocumentCheck
from engine.generation.errors import ConstrainedOutputInvalid, ResponseFormatUnsupported
from engine.generation.request import (
    ChatInput,
    ChoiceFinished,
    Delta,
    FinishReason,
    GenerationRequest,
    Message,
    TextInput,
)
from engine.generation.response_format import ResponseFormat
from engine.library.database import Library
from engine.models.backends.tokenizer import CheckpointTokenizer
from engine.sampling import Sampling
from tests.conftest import CheckpointMaker, EngineMaker
from tests.engine.generation.driving import Answer, Driver
from tests.engine.generation.test_steered_lanes import attach, inline
from tests.tiny import IM_END, PAD, build_tokenizer

JUDGE = {
    "type": "object",
    "properties": {"label": {"enum": ["humor", "not_humor"]}, "score": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["label", "score"],
    "additionalProperties": False,
}
COLOURS = {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 2, "maxItems": 3}
WORD = {"type": "string", "pattern": "^[a-z]{3,8}$"}
GREEDY, WARM = Sampling(temperature=0.0), Sampling(temperature=1.0)


@pytest.fixture
def driver(tiny_checkpoint: Path, library: Library) -> Driver:
    return Driver(tiny_checkpoint, library, MAX_LANES=10)


def constrained(driver: Driver, schema: Any = JUDGE, *prompts: str, **fields: Any) -> Answer:
    return driver.send(
        *(prompts or ("the sea",)),
        response_format=ResponseFormat(schema, "n") if schema is not None else ResponseFormat(),
        **{"sampling": WARM, "max_tokens": 120, **fields},
    )


def check(schema: Any, text: str) -> Any:
    DocumentCheck(schema).check(text)
    return json.loads(text)


def test_a_complete_document_ends_with_stop_and_validates(driver: Driver) -> None:
    # A160
    for sampling in (GREEDY, WARM):
        answer = constrained(driver, sampling=sampling)
        driver.finish()
        assert answer.ends[0].reason is FinishReason.STOP
        found = check(JUDGE, answer.text())
        assert found["label"] in ("humor", "not_humor")
        assert 1 <= found["score"] <= 9
        assert answer.text() == json.dumps(found, separators=(",", ":"))  # compact


def test_n_choices_are_constrained_one_by_one(driver: Driver) -> None:
    # A163
    answer = constrained(driver, n=4)
    driver.finish()
    texts = [answer.text(i) for i in range(4)]
    for text in texts:
        check(JUDGE, text)
    assert len(set(texts)) > 1


def test_best_of_and_several_prompts(driver: Driver) -> None:
    answer = constrained(driver, JUDGE, "the sea", "a smile", n=1, best_of=3)
    driver.finish()
    assert sorted(answer.ends) == [0, 1]
    for index in (0, 1):
        check(JUDGE, answer.text(index))


def test_different_constraints_in_one_batch_with_free_lanes(driver: Driver) -> None:
    free = driver.alone("the sea was calm", max_tokens=30).ids()
    alone = []
    for schema in (JUDGE, COLOURS, WORD):
        alone.append(constrained(driver, schema, sampling=GREEDY))
        driver.finish()
    driver.passes.clear()
    together: list[Answer] = []
    company = driver.send("the sea was calm", max_tokens=30)
    for schema in (JUDGE, COLOURS, WORD):
        together.append(constrained(driver, schema, sampling=GREEDY))
    driver.finish()
    assert [answer.text() for answer in together] == [answer.text() for answer in alone]
    for schema, answer in zip((JUDGE, COLOURS, WORD), together, strict=True):
        check(schema, answer.text())
    assert company.ids() == free
    assert max(rows for kind, rows in driver.passes if kind == "decode") == 4


def test_a_stream_adds_up_to_the_document(driver: Driver) -> None:
    # A161: pieces as they come, and the whole validates
    answer = constrained(driver)
    seen = 0
    while not answer.finished:
        driver.tick()
        pieces = [delta for delta in answer.deltas if hasattr(delta, "pieces")]
        assert len(pieces) >= seen
        seen = len(pieces)
    assert seen > 5
    check(JUDGE, answer.text())


def test_any_json_object(driver: Driver) -> None:
    biased = Sampling(
        temperature=1.0, seed=3, logit_bias=dict.fromkeys(driver.backend.tokenizer.encode("}", False), 100.0)
    )
    answer = constrained(driver, None, sampling=biased)
    driver.finish()
    assert answer.ends[0].reason is FinishReason.STOP
    assert isinstance(json.loads(answer.text()), dict)


def test_the_cap_ends_it_with_length_even_where_the_text_parses(driver: Driver) -> None:
    short = constrained(driver, max_tokens=4)
    driver.finish()
    assert short.ends[0].reason is FinishReason.LENGTH
    assert short.text().startswith('{"')
    seeded = Sampling(temperature=1.0, seed=7)
    whole = constrained(driver, sampling=seeded)
    driver.finish()
    cut = constrained(driver, sampling=seeded, max_tokens=whole.ends[0].completion_tokens - 1)
    driver.finish()
    assert cut.text() == whole.text()
    assert whole.ends[0].reason is FinishReason.STOP
    assert cut.ends[0].reason is FinishReason.LENGTH


def test_a_seed_repeats_alone_and_in_company(driver: Driver) -> None:
    # A167, A173 and A175 with a constraint
    seeded = Sampling(temperature=1.0, seed=7)
    first = constrained(driver, sampling=seeded, n=3)
    driver.finish()
    company = [constrained(driver, COLOURS), driver.send("the sea", max_tokens=40)]
    again = constrained(driver, sampling=seeded, n=3)
    driver.finish()
    assert all(other.finished for other in company)
    for index in range(3):
        assert again.text(index) == first.text(index)
        assert again.ids(index) == first.ids(index)
        assert again.ends[index].reason is first.ends[index].reason
    assert len({first.text(i) for i in range(3)}) > 1


def test_constraint_and_steering_together(driver: Driver) -> None:
    # A166
    attach(driver, 1)
    texts = set()
    for strength in (0.0, 20.0, 150.0):
        seeded = Sampling(temperature=1.0, seed=1)
        answer = constrained(driver, steering=inline("sae-1", f3=strength), sampling=seeded)
        driver.finish()
        assert answer.finished is not None
        assert answer.ends[0].reason is FinishReason.STOP
        check(JUDGE, answer.text())
        texts.add(answer.text())
    assert len(texts) > 1


def test_logprobs_are_of_what_was_possible(driver: Driver) -> None:
    answer = constrained(driver, logprobs=5)
    driver.finish()
    tokens = [token for delta in answer.deltas for token in getattr(delta, "tokens", ())]
    assert tokens[0].text in ("{", '{"')
    for token in tokens:
        assert token.logprob is not None
        assert token.logprob <= 1e-6
        assert all(each.text != "\n" for each in token.top)


def test_a_bias_cannot_break_it_and_min_tokens_cannot_hold_the_end(driver: Driver) -> None:
    newline = driver.backend.tokenizer.encode("\n", False)[0]
    sampling = Sampling(temperature=1.0, logit_bias={newline: 100.0}, min_tokens=100)
    answer = constrained(driver, COLOURS, sampling=sampling)
    driver.finish()
    assert answer.ends[0].reason is FinishReason.STOP
    check(COLOURS, answer.text())


def test_the_turn_end_of_a_model_without_a_template_is_no_stop_here(
    checkpoint: CheckpointMaker, library: Library
) -> None:
    driver = Driver(checkpoint("llama", chat_template=None), library)
    chat = ChatInput((Message("user", "hello"),))
    schema = {"const": "a <end_of_turn> b"}
    prepared = driver.service.prepare(
        GenerationRequest(driver.name, chat, GREEDY, max_tokens=60, response_format=ResponseFormat(schema, "n"))
    )
    deltas: list[Delta] = []
    answer = Answer(driver.service.submit(prepared, deltas.append), deltas)
    driver.finish()
    assert answer.text() == '"a <end_of_turn> b"'
    assert answer.ends[0].reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("fields", "named"), [({"stop": ("x",)}, "'stop'"), ({"sampling": Sampling(ignore_eos=True)}, "'ignore_eos'")]
)
def test_combinations_that_are_refused(fields: dict[str, Any], named: str) -> None:
    # A161: response_format with stop
    with pytest.raises(ResponseFormatUnsupported, match=named) as refusal:
        GenerationRequest("m", TextInput(("x",)), response_format=ResponseFormat(), **fields)
    assert refusal.value.param == "response_format"


def with_other_check(driver: Driver, schema: Any) -> tuple[Answer, Any]:
    """A request whose finished document is checked against ``schema``, whatever constrained it."""
    request = GenerationRequest(
        driver.name, TextInput(("the sea",)), WARM, max_tokens=120, response_format=ResponseFormat(JUDGE, "n")
    )
    prepared = driver.service.prepare(request)
    constraint = CompiledConstraint(
        Vocabulary(driver.backend.tokenizer), ResponseFormat(JUDGE, "n"), driver.backend.tokenizer.eos_ids
    )
    constraint._check = DocumentCheck(schema)
    deltas: list[Delta] = []
    return Answer(driver.service.submit(replace(prepared, constraint=constraint), deltas.append), deltas), prepared


def test_a_complete_document_that_does_not_validate_is_an_error(driver: Driver) -> None:
    answer, _ = with_other_check(driver, {"required": ["missing"]})
    neighbour = constrained(driver)
    driver.finish()
    assert isinstance(answer.error, ConstrainedOutputInvalid)
    assert not any(isinstance(delta, ChoiceFinished) for delta in answer.deltas)
    check(JUDGE, neighbour.text())
    assert driver.service.stats().queue_pending == 0
    good, _ = with_other_check(driver, {"required": ["label"]})
    driver.finish()
    assert good.error is None


# --- masks ------------------------------------------------------------------------------------------------------------


def test_every_end_token_may_end_it_and_padding_may_not_be_written() -> None:
    inner = build_tokenizer()
    end, other = inner.convert_tokens_to_ids(IM_END), inner.convert_tokens_to_ids(PAD)
    tokenizer = CheckpointTokenizer(inner, extra_eos=[other])
    compiled = CompiledConstraint(Vocabulary(tokenizer), ResponseFormat({"const": 1}, "n"), tokenizer.eos_ids)
    lane = compiled.for_lane(512, "cpu")
    one = tokenizer.encode("1", False)[0]
    assert lane.mask().shape == (512,)
    assert lane.mask().dtype is torch.bool
    assert lane.mask().nonzero().flatten().tolist() == [one]
    lane.take(one)
    assert lane.mask().nonzero().flatten().tolist() == sorted([end, other])
    narrow = compiled.for_lane(one + 1, "cpu")
    assert narrow.mask().nonzero().flatten().tolist() == [one]


def test_lanes_do_not_share_their_place() -> None:
    tokenizer = CheckpointTokenizer(build_tokenizer())
    compiled = CompiledConstraint(Vocabulary(tokenizer), ResponseFormat({"enum": [12, 34]}, "n"), tokenizer.eos_ids)
    first, second = compiled.for_lane(400, "cpu"), compiled.for_lane(400, "cpu")
    three = tokenizer.encode("3", False)[0]
    first.take(three)
    assert first.mask().nonzero().flatten().tolist() == tokenizer.encode("4", False)
    assert three in second.mask().nonzero().flatten().tolist()
    with pytest.raises(ConstrainedOutputInvalid):
        first.take(three)


# --- compiling --------------------------------------------------------------------------------------------------------


def asked(number: int) -> ResponseFormat:
    return ResponseFormat({"const": number}, "n")


@pytest.fixture
def tokenizer() -> CheckpointTokenizer:
    return CheckpointTokenizer(build_tokenizer())


def test_compiled_once_for_a_schema_and_the_unused_longest_goes_first(tokenizer: CheckpointTokenizer) -> None:
    compiler = ConstraintCompiler(2, 30)
    first = compiler.get(tokenizer, asked(1))
    assert compiler.get(tokenizer, ResponseFormat({"const": 1}, "other_name")) is first
    compiler.get(tokenizer, asked(2))
    assert compiler.get(tokenizer, asked(1)) is first
    compiler.get(tokenizer, asked(3))
    assert compiler.kept == ('{"const":1}', '{"const":3}')
    assert compiler.get(tokenizer, asked(1)) is first


def test_another_tokenizer_shares_nothing(tokenizer: CheckpointTokenizer) -> None:
    compiler = ConstraintCompiler(8, 30)
    first = compiler.get(tokenizer, asked(1))
    assert compiler.get(CheckpointTokenizer(build_tokenizer()), asked(1)) is not first
    compiler.drop()
    assert compiler.kept == ()


class Held:
    """Holds every turn to compile, so that what is asked for waits."""

    def __init__(self, compiler: ConstraintCompiler) -> None:
        self._turns = compiler._turns

    def __enter__(self) -> None:
        for _ in range(AT_ONCE):
            assert self._turns.acquire(timeout=30)

    def __exit__(self, *error: object) -> None:
        for _ in range(AT_ONCE):
            self._turns.release()


def test_leaving_before_it_has_begun(tokenizer: CheckpointTokenizer) -> None:
    compiler = ConstraintCompiler(8, 30)
    with Held(compiler):
        left, stays = compiler.begin(tokenizer, asked(1)), compiler.begin(tokenizer, asked(2))
        also = compiler.begin(tokenizer, asked(2))
        assert left.cancel()
        assert also.cancel()
    assert stays.result(30) is compiler.get(tokenizer, asked(2))
    with pytest.raises(CancelledError):
        left.result(0)
    compiler.get(tokenizer, asked(3))
    assert '{"const":1}' not in compiler.kept


def test_nobody_waits_longer_than_the_timeout(tokenizer: CheckpointTokenizer) -> None:
    compiler = ConstraintCompiler(8, 0.01)
    with Held(compiler), pytest.raises(ResponseFormatUnsupported, match=r"more than 0\.01 seconds"):
        compiler.get(tokenizer, asked(1))


def test_a_refusal_reaches_everyone_who_waits_and_is_not_kept(tokenizer: CheckpointTokenizer) -> None:
    compiler = ConstraintCompiler(8, 30)
    impossible = ResponseFormat({"type": "integer", "minimum": 5, "maximum": 3}, "n")
    with Held(compiler):
        both = [compiler.begin(tokenizer, impossible), compiler.begin(tokenizer, impossible)]
    for future in both:
        with pytest.raises(ResponseFormatUnsupported, match="compiled"):
            future.result(30)
    assert compiler.kept == ()


def test_compiling_never_holds_the_engine_thread(make_engine: EngineMaker) -> None:
    engine = make_engine()
    service = engine.generation
    names: list[str] = []
    future: Future[CompiledConstraint] = Future()

    def compiled(done: Future[CompiledConstraint]) -> None:
        names.append(threading.current_thread().name)
        future.set_result(done.result())

    with Held(service._constraints):
        begun = service.compile_constraint("tiny-llama", asked(1))
        begun.add_done_callback(compiled)
    future.result(30)
    assert names == ["constraint-compiler"]
    request = GenerationRequest("tiny-llama", TextInput(("x",)), GREEDY, max_tokens=9, response_format=asked(1))
    assert service.prepare(request).constraint is future.result(0)


def test_dropped_when_the_model_is_unloaded(make_engine: EngineMaker) -> None:
    engine = make_engine()
    service = engine.generation
    service.compile_constraint("tiny-llama", asked(1)).result(30)
    assert service._constraints.kept == ('{"const":1}',)
    engine.loader.unload().result(60)
    assert service._constraints.kept == ()
    with pytest.raises(ModelNotLoaded):
        service.compile_constraint("tiny-llama", asked(1))
