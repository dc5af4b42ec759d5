"""SAEs on a GGUF model: steered per request in one batch, watched live, and read back, as on a transformers model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine.steering import transitions
from tests.contract.conftest import Live
from tests.contract.stage import INTENSITY, STEERING, Stage

PROMPT = "the sea was calm and the ship"
NAME = "tiny-llama:F32"


def inline(*features: tuple[int, float], sae_id: str = "sae-1") -> dict[str, Any]:
    return {"sae_id": sae_id, "features": [{"index": index, "strength": strength} for index, strength in features]}


def test_the_same_steered_text_as_the_transformers_engine(gguf_stage: Stage, stage: Stage) -> None:
    for each in (gguf_stage, stage):
        each.attach("sae-0", 0)
        each.attach("sae-1", 1)
        each.attach("sae-3", 3)
    asked: list[dict[str, Any]] = [
        {"steering": inline((3, 6.0), sae_id=sae_id), "prompt": PROMPT, "max_tokens": 24, "repetition_penalty": 1.5}
        for sae_id in ("sae-0", "sae-1", "sae-3")
    ]
    found = [gguf_stage.ask(**body) for body in asked]
    expected = [stage.ask(**body) for body in asked]
    texts = [answer.json()["choices"] for answer in found]
    assert texts == [answer.json()["choices"] for answer in expected]
    assert len({str(text) for text in texts}) == 3
    assert [answer.headers[STEERING] for answer in found] == [answer.headers[STEERING] for answer in expected]
    passes = gguf_stage.engine._passes_steered(3)
    assert passes >= 24


def test_clients_with_other_dials_get_what_each_gets_alone(gguf_stage: Stage) -> None:
    gguf_stage.attach()
    gguf_stage.profile("loud", {3: 20.0, 7: -15.0})
    same: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 24, "repetition_penalty": 1.5}
    bodies: list[dict[str, Any]] = [
        {**same},
        {**same, "steering": inline((5, 12.0))},
        {**same, "profile": "loud"},
        {**same, "profile": "loud", "steering_intensity": 0.5},
        {**same, "profile": "loud", "steering_intensity": 0},
    ]
    alone = [gguf_stage.ask(**body) for body in bodies]
    with ThreadPoolExecutor(5) as pool:
        with gguf_stage.paused():
            asked = [pool.submit(gguf_stage.ask, **body) for body in bodies]
            gguf_stage.wait_pending(5)
        together = [each.result() for each in asked]
    assert {answer.headers["X-miLLM-Backend"] for answer in together} == {"llamacpp"}
    texts = [answer.json()["choices"][0]["text"] for answer in together]
    assert texts == [answer.json()["choices"][0]["text"] for answer in alone]
    assert [answer.headers[STEERING] for answer in together] == [answer.headers[STEERING] for answer in alone]
    assert texts[0] == texts[4] and len(set(texts)) == 4
    assert together[3].headers[INTENSITY] == "0.5"


def test_turning_the_dial_changes_text_that_is_being_written(gguf_stage: Stage) -> None:
    gguf_stage.attach()
    body: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 64, "repetition_penalty": 1.5}
    plain = gguf_stage.ask(**body)
    gguf_stage.engine.desk.apply(transitions.set_values(("sae-1", 1), {3: 30.0}))
    steered = gguf_stage.ask(**body)
    assert steered.headers[STEERING].startswith("manual;")
    assert steered.json()["choices"][0]["text"] != plain.json()["choices"][0]["text"]
    gguf_stage.engine.desk.apply(transitions.clear(("sae-1", 1)))
    again = gguf_stage.ask(**body)
    assert again.headers[STEERING] == "none"
    assert again.json()["choices"] == plain.json()["choices"]


@pytest.mark.parametrize("layer", [0, 3])
def test_activations_agree_with_the_transformers_engine(gguf_stage: Stage, stage: Stage, layer: int) -> None:
    body: dict[str, Any] = {
        "prompt": PROMPT,
        "max_tokens": 4,
        "return_sae_activations": {"top_k": 3, "positions": "all", "read_point": "post_steering"},
        "steering": inline((3, 4.0)),
    }
    found: list[dict[str, Any]] = []
    for each in (gguf_stage, stage):
        each.attach(layer=layer)
        found.append(each.ask(**body).json()["millm"]["sae_activations"])
    mine, theirs = found
    assert {key: mine[key] for key in ("sae_id", "layer", "read_point", "note")} == {
        key: theirs[key] for key in ("sae_id", "layer", "read_point", "note")
    }
    assert len(mine["positions"]) == len(theirs["positions"]) > 8
    for one, other in zip(mine["positions"], theirs["positions"], strict=True):
        assert (one["position"], one["token_id"]) == (other["position"], other["token_id"])
        assert [each["index"] for each in one["features"]] == [each["index"] for each in other["features"]]
        assert [each["value"] for each in one["features"]] == pytest.approx(
            [each["value"] for each in other["features"]], abs=5e-3
        )


def test_the_live_monitor_reads_the_same_values(gguf_stage: Stage, stage: Stage) -> None:
    records = []
    for each in (gguf_stage, stage):
        each.attach("sae-1", 1)
        each.attach("sae-3", 3)
        each.engine.monitor.configure(enabled=True, top_k=3)
        each.engine.monitor.clear_history()
        try:
            each.ask(prompt=PROMPT, max_tokens=6)
        finally:
            each.engine.monitor.set_enabled(False)
        records.append(each.engine.monitor.history(50))
        each.engine.monitor.clear_history()
    assert len(records[0]) == len(records[1]) == 12
    for mine, theirs in zip(*records, strict=True):
        assert (mine.sae_id, mine.layer, mine.token_position, mine.token_id) == (
            theirs.sae_id,
            theirs.layer,
            theirs.token_position,
            theirs.token_id,
        )
        assert [index for index, _ in mine.top_k] == [index for index, _ in theirs.top_k]
        assert [value for _, value in mine.top_k] == pytest.approx([value for _, value in theirs.top_k], abs=5e-3)


def test_scoring_and_embeddings_are_never_steered(gguf_stage: Stage) -> None:
    score: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 1, "logprobs": 5, "ignore_eos": ...}
    gguf_stage.attach()

    def figures() -> tuple[Any, Any]:
        with gguf_stage.live.http() as client:
            vector = client.post("/v1/embeddings", json={"model": NAME, "input": PROMPT}).json()["data"]
        return gguf_stage.live.text(**score).json()["choices"], vector

    before = figures()
    gguf_stage.engine.desk.apply(transitions.set_values(("sae-1", 1), {3: 50.0}))
    assert figures() == before


def test_an_sae_that_does_not_fit_is_refused(gguf_stage: Stage) -> None:
    from engine.saes.errors import SaeIncompatible
    from tests.made_saes import make_sae

    folder = make_sae(gguf_stage.folder / "deep", layer=9)
    gguf_stage.engine.saes.import_local(folder, sae_id="deep")
    with pytest.raises(SaeIncompatible):
        gguf_stage.engine.attachments.attach("deep")
    assert gguf_stage.engine.desk.state.attachments == ()


def test_an_sae_attached_while_an_answer_is_written(gguf_stage: Stage, gguf: Live) -> None:
    body: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 400, "repetition_penalty": 1.2}
    plain = gguf_stage.text(**body)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(gguf_stage.text, **body)
        gguf_stage.wait_pending(1)
        gguf_stage.attach()
        assert asked.result() == plain
