"""Live steering under requests: changes on the way, failures and leavers, and the evidence that may be claimed."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine.events import RequestRecorded
from engine.steering import transitions
from engine.steering.live import ServingCircuit
from tests.contract.raw import RawRequest
from tests.contract.stage import CHAT, INTENSITY, RUNG, STEERING, TEXT, Stage, inline, stream_body
from tests.contract.test_streaming import text_of
from tests.waiting import wait_until

PLACE = ("sae-1", 1)
LONG = 400
"""Tokens of an answer that is still being written when a test changes something."""

# --- live changes, failures, leavers ----------------------------------------------------------------------------------


class Stream:
    """A stream that a test reads piece by piece."""

    def __init__(self, stage: Stage, path: str = TEXT, **body: Any) -> None:
        self._raw = RawRequest(stage.live, path, stream_body(path, max_tokens=LONG, **body))
        self._head = b""

    def begin(self) -> None:
        """Wait for its first text."""
        self._head = self._raw.read_until(b'"finish_reason":null')

    def finish(self) -> tuple[str, str]:
        """(text, report) of all of it."""
        data = self._head + self._raw.read_until(b"data: [DONE]")
        self._raw.leave()
        # The body is chunked: its events lie between lines with lengths.
        chunks = [json.loads(each) for each in re.findall(rb"data: (\{.*?\})\r?\n", data)]
        return text_of(chunks), chunks[-1]["millm_steering"]


def test_a_live_change_reaches_followers_at_the_next_token_and_nobody_else(stage: Stage) -> None:
    stage.attach()
    stage.profile("calm", {3: 60.0})
    prompt = "the sea was calm and the ship"
    owners: list[dict[str, Any]] = [{"steering": inline((5, 40.0))}, {"profile": "calm"}, {"steering": inline()}]
    alone = [stage.text(prompt=prompt, max_tokens=LONG, **fields) for fields in ({}, *owners)]
    with stage.paused():
        streams = [Stream(stage, prompt=prompt, **fields) for fields in ({}, *owners)]
        stage.wait_pending(4)
    for stream in streams:
        stream.begin()
    with stage.paused():
        assert stage.engine.generation.stats().in_flight == 4
        stage.engine.desk.apply(transitions.set_values(PLACE, {30: 150.0}))
    after = stage.live_steering()
    (followed, report), *others = [stream.finish() for stream in streams]
    shared = next(i for i, pair in enumerate(zip(followed, alone[0], strict=False)) if len(set(pair)) == 2)
    assert shared > 0
    assert report.startswith('manual;sae="sae-1";layer=1;features=1;')
    assert report.endswith(";changed")  # A224
    assert [text for text, _ in others] == alone[1:]
    assert [report.split(";")[0] for _, report in others] == ["inline", "profile", "none"]
    assert not any("changed" in report for _, report in others)
    assert stage.live_steering() == after
    # A request sent now begins under the new values: nothing has changed for it.
    assert stage.report() == report.removesuffix(";changed")


def test_changed_is_in_the_header_of_a_whole_answer(stage: Stage) -> None:
    stage.attach()
    with ThreadPoolExecutor(2) as pool:
        follows = pool.submit(stage.ask, max_tokens=LONG)
        owns = pool.submit(stage.ask, max_tokens=LONG, steering=inline((3, 6.0)))
        wait_until(lambda: stage.engine.generation.stats().in_flight == 2, "both to run")
        with stage.paused():
            stage.engine.desk.apply(transitions.set_values(PLACE, {30: 50.0}))
            kept = stage.live_steering()
        assert re.fullmatch(
            r'manual;sae="sae-1";layer=1;features=1;hash="sha256:\w{64}";changed', follows.result().headers[STEERING]
        )  # A224
        assert "changed" not in owns.result().headers[STEERING]
    assert stage.live_steering() == kept
    with ThreadPoolExecutor(1) as pool:
        follows = pool.submit(stage.ask, max_tokens=LONG)
        wait_until(lambda: stage.engine.generation.stats().in_flight == 1, "it to run")
        stage.engine.desk.apply(transitions.clear(PLACE))
        assert follows.result().headers[STEERING] == "none;changed"


def test_the_log_of_requests_tells_each_steering_of_an_answer_that_was_turned(stage: Stage) -> None:
    stage.attach()
    heard: list[RequestRecorded] = []
    stage.engine.events.subscribe(lambda event: heard.append(event), RequestRecorded)  # type: ignore[arg-type]
    turned = Stream(stage)
    turned.begin()
    with stage.paused():
        stage.engine.desk.apply(transitions.set_values(PLACE, {30: 150.0}))
    _text, report = turned.finish()
    wait_until(lambda: any(each.status is not None for each in heard), "it to end")
    (entry,) = (each for each in heard if each.status is not None)
    first, second = entry.steering_path
    assert (first["choice"], first["token"], first["steering"]) == (0, 0, "none")
    assert (second["choice"], second["steering"]) == (0, report.removesuffix(";changed"))
    assert 1 < second["token"] <= LONG
    assert (entry.steering, entry.rung) == (report, None)
    whole = stage.ask(max_tokens=2)
    assert whole.status_code == 200
    wait_until(lambda: sum(each.status is not None for each in heard) == 2, "the second to end")
    assert heard[-1].steering_path == ()


def test_a_failure_leaves_live_steering_as_it_is(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.attach()
    stage.profile("calm", {3: 60.0})
    stage.engine.desk.apply(transitions.set_values(PLACE, {8: 50.0}))
    before, text = stage.live_steering(), stage.text()
    loaded = stage.engine.shelf.resident
    assert loaded is not None

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a kernel failed")

    with monkeypatch.context() as patch:
        patch.setattr(loaded.backend, "decode", fail)
        for fields in ({"profile": "calm"}, {"steering": inline((3, 90.0))}, {"steering_intensity": 2}):
            whole = stage.live.text(ignore_eos=True, **fields)
            assert (whole.status_code, whole.json()["error"]["code"]) == (500, "generation_error")
            assert STEERING not in whole.headers
            _, chunks = stage.stream(**fields)
            assert chunks[-1]["error"]["code"] == "generation_error"
            assert not any("millm_steering" in chunk for chunk in chunks)
    assert stage.live_steering() == before  # A211
    assert stage.text() == text


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_takes_its_steering_along(stage: Stage, stream: bool) -> None:
    stage.attach()
    stage.profile("calm", {3: 60.0})
    stage.engine.desk.apply(transitions.set_values(PLACE, {8: 50.0}))
    before, text = stage.live_steering(), stage.text()
    for fields in ({"profile": "calm"}, {"steering": inline((3, 90.0))}, {"steering_intensity": 2}):
        body = stream_body(TEXT, max_tokens=LONG, **{**fields, "stream": stream})
        with RawRequest(stage.live, TEXT, body) as request:
            wait_until(lambda: stage.engine.generation.stats().in_flight == 1, "a running lane")
            request.leave()
        stage.live.wait_idle()
    assert stage.live_steering() == before
    assert stage.text() == text


# --- circuits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rung", "header"),
    [
        (0, '0; language="associated"'),
        (1, '1; language="suggested (attribution-supported)"'),
        (2, '2; language="causally validated (edge)"'),
        (3, '3; language="faithfulness-tested (circuit)"'),
    ],
)
def test_the_rung_of_the_circuit_that_steers(stage: Stage, rung: int, header: str) -> None:
    stage.attach()
    assert RUNG not in stage.ask().headers  # A226
    serve_circuit(stage, rung=rung)
    whole = stage.ask()
    assert whole.headers[RUNG] == header
    assert whole.headers[STEERING] == 'circuit;id="c-1";intensity="1.0"'
    assert INTENSITY not in whole.headers
    response, chunks = stage.stream(CHAT)
    assert response.headers[RUNG] == header
    assert chunks[-1]["millm_steering"] == 'circuit;id="c-1";intensity="1.0"'


def test_a_circuit_of_persistence_alone_is_noted_beside_its_rung(stage: Stage) -> None:
    stage.attach()
    serve_circuit(stage, rung=2)
    assert "X-miLLM-Notes" not in stage.ask().headers
    stage.engine.desk.apply(transitions.stop_circuit("c-1"))
    serve_circuit(stage, rung=2, only_persistence=True)
    answer = stage.ask()
    assert answer.headers[RUNG] == '2; language="causally validated (edge)"'
    assert "Every edge of this circuit is persistence" in answer.headers["X-miLLM-Notes"]
    assert "X-miLLM-Notes" not in stage.ask(steering_intensity="off").headers


def test_the_dial_over_a_circuit(stage: Stage) -> None:
    stage.attach()
    serve_circuit(stage, rung=2)
    halved = stage.ask(steering_intensity=0.5)
    assert halved.headers[INTENSITY] == "0.5"
    assert halved.headers[STEERING] == 'circuit;id="c-1";intensity="0.5"'
    assert halved.headers[RUNG] == '2; language="causally validated (edge)"'
    assert halved.json()["choices"][0]["text"] == stage.text(steering=inline((3, 30.0)))
    off = stage.ask(steering_intensity="off")
    assert (off.headers[INTENSITY], off.headers[STEERING]) == ("0", "none")
    assert RUNG not in off.headers


def test_no_rung_where_none_may_be_claimed(stage: Stage) -> None:
    stage.attach()
    stage.attach("sae-3", 3)
    stage.profile("calm", {3: 60.0})
    serve_circuit(stage, rung=2)
    for fields in ({"profile": "calm"}, {"steering": inline((3, 60.0), sae_id="sae-1")}, {"steering": inline()}):
        assert RUNG not in stage.ask(**fields).headers
    serve_circuit(stage, rung=None)
    assert RUNG not in stage.ask().headers
    serve_circuit(stage, rung=2, composed=True)
    assert RUNG not in stage.ask().headers
    serve_circuit(stage, rung=2, intensity=0.0)
    assert RUNG not in stage.ask().headers
    serve_circuit(stage, rung=2)
    serve_circuit(stage, "c-2", place=("sae-3", 3), rung=3)
    two = stage.ask(steering_intensity=0.5)
    assert RUNG not in two.headers
    # No one dial is theirs.
    assert INTENSITY not in two.headers
    assert two.headers[STEERING] == 'circuit;id="c-1";intensity="1.0", circuit;id="c-2";intensity="1.0"'


def test_the_rung_is_that_of_the_moment_an_answer_begins(stage: Stage) -> None:
    stage.attach()
    serve_circuit(stage, rung=2)
    with ThreadPoolExecutor(2) as pool:
        with stage.paused():
            whole, streamed = pool.submit(stage.ask), pool.submit(stage.stream)
            stage.wait_pending(2)
            # Both were prepared under the circuit and wait; it stops before they begin.
            stage.engine.desk.apply(transitions.stop_circuit("c-1"))
        assert RUNG not in whole.result().headers
        assert whole.result().headers[STEERING] == "none"
        response, chunks = streamed.result()
    assert RUNG not in response.headers
    assert chunks[-1]["millm_steering"] == "none"


def test_a_circuit_that_stops_on_the_way_is_not_vouched_for(stage: Stage) -> None:
    stage.attach()
    serve_circuit(stage, rung=2)
    with ThreadPoolExecutor(1) as pool:
        follows = pool.submit(stage.ask, max_tokens=LONG)
        wait_until(lambda: stage.engine.generation.stats().in_flight == 1, "it to run")
        stage.engine.desk.apply(transitions.stop_circuit("c-1"))
        assert follows.result().headers[STEERING] == "none;changed"
        assert RUNG not in follows.result().headers


def serve_circuit(
    stage: Stage,
    circuit_id: str = "c-1",
    *,
    place: tuple[str, int] = PLACE,
    rung: int | None,
    intensity: float = 1.0,
    composed: bool = False,
    only_persistence: bool = False,
) -> None:
    """Have a circuit of one member serve in full."""
    stage.engine.desk.apply(
        transitions.serve_circuit(
            ServingCircuit(
                circuit_id,
                f"Circuit {circuit_id}",
                {place: {3: 60.0}},
                intensity,
                rung,
                composed=composed,
                only_persistence=only_persistence,
            )
        )
    )
