"""Text completions that repeat their prompt, as evaluation harnesses ask for it, and prompts of token ids, on both
engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from engine.steering import transitions
from tests.contract.conftest import Live
from tests.contract.stage import INTENSITY, STEERING, TEXT, Stage, inline

PROMPT = "the sea was calm and the ship went slowly"
HARNESS: dict[str, Any] = {"temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
"""What lm-evaluation-harness sends with every prompt."""


@pytest.fixture(params=["transformers", "gguf"])
def either(request: pytest.FixtureRequest) -> Stage:
    """A server with nothing attached, of each engine."""
    made: Stage = request.getfixturevalue("stage" if request.param == "transformers" else "gguf_stage")
    return made


def answer(live: Live, **body: Any) -> Any:
    response = live.text(**{"echo": True, **body})
    assert response.status_code == 200, response.text
    return response.json()


def figures(whole: Any, index: int = 0) -> list[float]:
    """The prompt's token_logprobs of a choice that wrote nothing or one token, but for the first, which has none."""
    logprobs = whole["choices"][index]["logprobs"]
    written = whole["usage"]["completion_tokens"] > 0
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    return [float(each) for each in logprobs["token_logprobs"][1 : -1 if written else None]]


def ids_of(stage: Stage, text: str) -> list[int]:
    resident = stage.engine.shelf.resident
    assert resident is not None
    return resident.backend.tokenizer.encode(text, True)


def own(folder: Path, ids: Sequence[int]) -> list[float]:
    """The log-likelihoods of transformers' own forward."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([list(ids)])).logits[0].double().log_softmax(-1)
    return [float(logits[place, token]) for place, token in enumerate(ids[1:])]


def test_the_text_begins_with_the_prompt(either: Stage) -> None:
    whole = answer(either.live, prompt=PROMPT)  # T181
    plain = answer(either.live, prompt=PROMPT, echo=False)
    assert whole["choices"][0]["text"] == PROMPT + plain["choices"][0]["text"]
    assert whole["choices"][0]["logprobs"] is None
    assert whole["usage"]["total_tokens"] == plain["usage"]["total_tokens"]


def test_a_prompt_alone(either: Stage) -> None:
    response = either.live.text(prompt=PROMPT, echo=True, logprobs=1, max_tokens=0)  # T182
    whole = response.json()
    (choice,) = whole["choices"]
    assert response.headers["X-miLLM-Mode"] == "generation"
    assert (choice["text"], choice["finish_reason"]) == (PROMPT, "length")
    assert whole["usage"]["completion_tokens"] == 0
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == PROMPT
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    places = [len("".join(logprobs["tokens"][:number])) for number in range(len(logprobs["tokens"]))]
    assert logprobs["text_offset"] == places
    assert all(len(each) in (1, 2) and max(each.values()) <= 0 for each in logprobs["top_logprobs"][1:])


@pytest.mark.parametrize("kept", ["transformers", "gguf"])
def test_the_figures_are_those_of_transformers(
    kept: str, request: pytest.FixtureRequest, tiny_checkpoint: Path
) -> None:
    stage: Stage = request.getfixturevalue("stage" if kept == "transformers" else "gguf_stage")
    texts = [PROMPT, f"{PROMPT} along the coast", "naïve café, 東京 and a smile 🙂", PROMPT + " and never looks back"]
    whole = answer(stage.live, **HARNESS, prompt=texts)
    for place, text in enumerate(texts):
        expected = own(tiny_checkpoint, ids_of(stage, text))
        close = {"abs": 1e-4} if kept == "transformers" else {"rel": 1e-3}
        assert figures(whole, place) == pytest.approx(expected, **close)


def test_what_a_harness_sends(either: Stage) -> None:
    ids = [ids_of(either, PROMPT), ids_of(either, f"{PROMPT} along")]
    response = either.live.text(**HARNESS, prompt=ids)
    whole = response.json()
    assert response.headers["X-miLLM-Mode"] == "generation"
    assert response.headers["X-miLLM-Seed"] == '1234;scope="request"'
    # Not a lane of its own.
    backend = {"transformers": "cbm", "llamacpp": "llamacpp"}
    record = either.engine.shelf.resident.record  # type: ignore[union-attr]
    assert response.headers["X-miLLM-Backend"] == backend[record.engine.value]
    assert [len(choice["logprobs"]["tokens"]) for choice in whole["choices"]] == [len(each) + 1 for each in ids]
    texts = either.live.text(**HARNESS, prompt=[PROMPT, f"{PROMPT} along"]).json()
    assert whole["choices"] == texts["choices"]
    single = [either.live.text(**HARNESS, prompt=each).json()["choices"][0] for each in ids]
    assert [each["text"] for each in single] == [each["text"] for each in whole["choices"]]
    for place in range(2):
        assert figures({"choices": [single[place]], "usage": {"completion_tokens": 1}}) == pytest.approx(
            figures(whole, place), abs=1e-4
        )


def test_an_end_token_is_reported_behind_the_prompt(either: Stage) -> None:
    # A harness leaves out as many figures at the end as it let tokens be written.
    resident = either.engine.shelf.resident
    assert resident is not None
    end = next(iter(resident.backend.tokenizer.eos_ids))
    body: dict[str, Any] = {**HARNESS, "prompt": PROMPT, "logit_bias": {str(end): 100}}
    whole = answer(either.live, **body)
    (choice,) = whole["choices"]
    assert (choice["text"], choice["finish_reason"]) == (PROMPT, "stop")
    assert whole["usage"]["completion_tokens"] == 1
    assert choice["logprobs"]["tokens"][-1] == "<|im_end|>"
    assert choice["logprobs"]["text_offset"][-1] == len(PROMPT)
    assert figures(whole) == figures(answer(either.live, prompt=PROMPT, **HARNESS))
    assert {len(each) for each in choice["logprobs"].values()} == {len(ids_of(either, PROMPT)) + 1}
    _, events = either.stream(TEXT, **body)
    assert [each["choices"][0]["text"] for each in events if each["choices"]] == [PROMPT, "", ""]


def test_steered_and_by_nothing(either: Stage) -> None:
    either.attach()
    either.profile("loud", {3: 20.0, 7: -15.0})
    body: dict[str, Any] = {"prompt": [PROMPT, f"{PROMPT} along"], **HARNESS}
    plain = answer(either.live, **body)
    steered = either.live.text(**body, profile="loud")
    off = either.live.text(**body, profile="loud", steering_intensity=0)
    half = answer(either.live, **body, profile="loud", steering_intensity=0.5)
    assert steered.headers[STEERING].startswith("profile") and off.headers[INTENSITY] == "0"
    assert off.json()["choices"] == plain["choices"]
    found = [figures(each) for each in (plain, half, steered.json())]
    assert found[0] != found[1] != found[2] != found[0]
    assert figures(answer(either.live, **body, steering=inline((3, 20.0), (7, -15.0)))) == found[2]
    # The live steering counts for who brings none.
    either.engine.desk.apply(transitions.set_values(("sae-1", 1), {3: 20.0, 7: -15.0}))
    assert figures(answer(either.live, **body)) == found[2]
    assert figures(answer(either.live, **body, steering={"features": []})) == found[0]


def test_both_engines_agree_under_steering(stage: Stage, gguf_stage: Stage) -> None:
    found = []
    for each in (stage, gguf_stage):
        each.attach()
        found.append(figures(answer(each.live, prompt=PROMPT, **HARNESS, steering=inline((3, 9.0)))))
    assert found[1] == pytest.approx(found[0], rel=1e-3)


def test_many_at_once_have_the_figures_of_one_alone(either: Stage) -> None:
    prompts = [f"{PROMPT} along the coast {number}" for number in range(6)]
    alone = [figures(answer(either.live, **HARNESS, prompt=each)) for each in prompts]
    with ThreadPoolExecutor(7) as pool:
        long = pool.submit(either.ask, prompt="the quick brown fox", max_tokens=120)
        asked = [pool.submit(answer, either.live, **HARNESS, prompt=each) for each in prompts]
        together = [figures(each.result()) for each in asked]
        long.result()
    assert together == alone


def test_several_choices(either: Stage) -> None:
    whole = answer(either.live, prompt=[PROMPT, "a b"], n=2, logprobs=0, max_tokens=3, temperature=1)
    assert [
        choice["text"].startswith(text)
        for choice, text in zip(whole["choices"], (PROMPT, PROMPT, "a b", "a b"), strict=True)
    ] == [True] * 4
    for choice in whole["choices"]:
        offsets = choice["logprobs"]["text_offset"]
        assert offsets[0] == 0 and offsets == sorted(offsets) and offsets[-1] <= len(choice["text"])
    best = answer(either.live, prompt=PROMPT, n=2, best_of=4, max_tokens=3, temperature=1)
    assert all(choice["text"].startswith(PROMPT) for choice in best["choices"])


def test_streamed(either: Stage) -> None:
    body: dict[str, Any] = {"prompt": [PROMPT, "a b"], "echo": True, "max_tokens": 4, "temperature": 0}
    _, events = either.stream(TEXT, **body, logprobs=1)  # T184
    whole = answer(either.live, **body, logprobs=1)
    for index, text in enumerate((PROMPT, "a b")):
        choices = [each["choices"][0] for each in events if each["choices"] and each["choices"][0]["index"] == index]
        assert choices[0]["text"] == text
        assert "".join(each["text"] for each in choices) == whole["choices"][index]["text"]
        pieces = [each["logprobs"] for each in choices if each["logprobs"]]
        told = whole["choices"][index]["logprobs"]
        for key in ("tokens", "text_offset"):
            assert [each for piece in pieces for each in piece[key]] == told[key]
        # The prompt's are the same to the bit; behind it, who else is in a pass rounds its figures.
        read = len(ids_of(either, text))
        for key in ("token_logprobs", "top_logprobs"):
            sent = [each for piece in pieces for each in piece[key]]
            assert sent[:read] == told[key][:read]
            assert len(sent) == len(told[key])
            for one, other in zip(sent[read:], told[key][read:], strict=True):
                assert one == pytest.approx(other, abs=1e-4)
    _, alone = either.stream(TEXT, **{**body, "prompt": PROMPT, "max_tokens": 0})
    assert [each["choices"][0]["text"] for each in alone if each["choices"]] == [PROMPT, ""]
    assert alone[-1]["choices"][0]["finish_reason"] == "length"


def test_token_ids_are_tokens_of_the_prompt(either: Stage) -> None:
    ids = ids_of(either, PROMPT)
    one, many = (answer(either.live, prompt=each, echo=False) for each in (ids, [ids, ids[:3]]))
    assert one["choices"][0]["text"] == answer(either.live, prompt=PROMPT, echo=False)["choices"][0]["text"]
    assert many["choices"][0]["text"] == one["choices"][0]["text"]
    assert many["usage"]["prompt_tokens"] == len(ids) + 3
    scored = either.live.text(prompt=[ids, ids[:3]], max_tokens=1, logprobs=2)
    assert scored.headers["X-miLLM-Mode"] == "scoring"
    assert len(scored.json()["choices"]) == 2
    reported = either.live.text(prompt=ids, add_special_tokens=True)
    assert reported.headers["X-miLLM-Ignored-Fields"] == '"add_special_tokens"'


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"max_tokens": 0}, "invalid_parameter", "max_tokens"),  # T185
        ({"max_completion_tokens": 0, "max_tokens": ...}, "invalid_parameter", "max_completion_tokens"),
        ({"echo": True, "max_tokens": 0, "min_tokens": 1}, "invalid_parameter", "min_tokens"),
        ({"echo": "yes"}, "invalid_parameter", "echo"),
        ({"echo": True, "suffix": "x"}, "field_not_honoured", "echo"),
        ({"echo": True, "allowed_token_ids": [5]}, "field_not_honoured", "allowed_token_ids"),
        ({"echo": True, "best_of": 2, "stream": True}, "field_not_honoured", "best_of"),
        ({"prompt": [5, 10**6]}, "invalid_parameter", "prompt"),
        ({"prompt": [[5], [-1]]}, "invalid_parameter", "prompt"),
        ({"prompt": [[5], []]}, "invalid_parameter", "prompt"),
        ({"prompt": [5, 10**6], "max_tokens": 1, "logprobs": 1}, "invalid_parameter", "prompt"),
        ({"prompt": [5] * 3000}, "context_length_exceeded", "messages"),
    ],
)
def test_what_cannot_be(either: Stage, body: dict[str, Any], code: str, param: str) -> None:
    response: httpx.Response = either.live.text(**body)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, code)
    assert error["param"] == param or code == "context_length_exceeded"


def test_a_conversation_is_not_repeated(either: Stage) -> None:
    response = either.live.chat(echo=True)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "echo")
    assert either.live.chat(echo=False).status_code == 200
