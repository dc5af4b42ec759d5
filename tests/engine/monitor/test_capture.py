"""Activations one request asks back: positions, read points, caps, and that they are its own."""

from __future__ import annotations

import pytest
import torch

from engine.errors import SaeNotAttached
from engine.monitor.activation_spec import ActivationSpec, CaptureLimits, PositionChoice, PositionRange, ReadPoint
from engine.monitor.capture import Capture, CapturePlan, resolve
from engine.monitor.errors import SaeActivationsRefused
from engine.monitor.rows import NO_OBSERVERS
from engine.saes.attachment import Attachment
from engine.saes.config import Architecture
from engine.saes.sae import Sae
from tests.engine.monitor.made import attached, make_sae, plain_sae, ramp_sae, residual, row, show

TOY = attached(plain_sae())
RAMP = attached(ramp_sae(4), "ramp", 2)

LAST, PROMPT, COMPLETION, ALL = (
    PositionChoice.LAST,
    PositionChoice.PROMPT,
    PositionChoice.COMPLETION,
    PositionChoice.ALL,
)


def plan(
    positions: PositionChoice | PositionRange,
    *,
    attachment: Attachment = RAMP,
    top_k: int = 1,
    features: tuple[int, ...] | None = None,
    read_point: ReadPoint = ReadPoint.POST_STEERING,
    prompt_tokens: int = 3,
    max_tokens: int = 10,
    chunk: int = 512,
    scoring: bool = False,
    first_position_steered: bool = False,
) -> CapturePlan:
    spec = ActivationSpec(top_k, positions, features=features, read_point=read_point)
    return resolve(
        spec,
        [attachment],
        prompt_tokens,
        max_tokens,
        limits=CaptureLimits(encode_chunk=chunk),
        scoring=scoring,
        first_position_steered=first_position_steered,
    )


def answer(capture: Capture, owner: str, *, prompt: int, fed: int, chunk: int = 128) -> None:
    """A prompt read in chunks, then ``fed`` generated tokens fed back. Token and value at position p: 100 + p and p."""
    for first in range(0, prompt, chunk):
        places = range(first, min(first + chunk, prompt))
        observers = capture.observers([row(owner, first, *(100 + p for p in places), prompt_tokens=prompt)])
        show(observers, 2, residual([[float(p)] for p in places]))
    for place in range(prompt, prompt + fed):
        observers = capture.observers([row(owner, place, 100 + place, prompt_tokens=prompt)])
        show(observers, 2, residual([[float(place)]]))


def places(capture: Capture) -> list[int]:
    return [entry["position"] for entry in capture.result()["positions"]]


# --- positions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        (LAST, [11]),
        (PROMPT, [0, 1, 2]),
        (COMPLETION, [3, 4, 5, 6, 7, 8, 9, 10, 11]),
        (ALL, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
        (PositionRange(2, 5), [2, 3, 4]),
        (PositionRange(0, 1), [0]),
        (PositionRange(10, 99), [10, 11]),
        (PositionRange(50, 99), []),
    ],
)
@pytest.mark.parametrize("prefill_chunk", [1, 2, 128])
def test_positions_of_a_prompt_of_3_and_10_tokens_of_which_9_are_fed(
    positions: PositionChoice | PositionRange, expected: list[int], prefill_chunk: int
) -> None:
    capture = Capture(plan(positions), "a")
    answer(capture, "a", prompt=3, fed=9, chunk=prefill_chunk)
    found = capture.result()["positions"]
    assert [entry["position"] for entry in found] == expected
    assert [entry["token_id"] for entry in found] == [100 + place for place in expected]
    # The strongest of x·0, x·1, x·2, x·3 is feature 3; of x = 0 all are 0 and any may stand there.
    assert [entry["features"][0]["value"] for entry in found] == [3.0 * place for place in expected]


def test_last_without_any_answer_is_the_end_of_the_prompt() -> None:
    capture = Capture(plan(LAST), "a")
    answer(capture, "a", prompt=3, fed=0, chunk=2)
    assert places(capture) == [2]


def test_positions_nobody_asked_for_cost_nothing() -> None:
    last, prompt = Capture(plan(LAST), "a"), Capture(plan(PROMPT), "a")
    assert last.observers([row("a", 0, 1, 2, prompt_tokens=3)]) is NO_OBSERVERS
    assert set(last.observers([row("a", 2, 3, prompt_tokens=3)])) == {2}
    assert prompt.observers([row("a", 3, 4, prompt_tokens=3)]) is NO_OBSERVERS


@pytest.mark.parametrize("encode_chunk", [1, 2, 5, 512])
def test_encoding_in_chunks_changes_nothing_and_none_is_larger(encode_chunk: int) -> None:
    sizes: list[int] = []

    class Counting(Sae):
        def encode(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(x.shape[0])
            return super().encode(x)

    plain = ramp_sae(4)
    sae = attached(Counting(plain.config, plain.tensors))
    capture = Capture(plan(ALL, attachment=sae, chunk=encode_chunk, prompt_tokens=7), "a")
    answer(capture, "a", prompt=7, fed=4, chunk=3)
    found = capture.result()["positions"]
    assert [entry["features"][0]["value"] for entry in found] == [3.0 * place for place in range(11)]
    assert max(sizes) <= encode_chunk
    assert sum(sizes) == 11
    if encode_chunk == 512:
        assert sizes == [11]


# --- values ---------------------------------------------------------------------------------------------------------


def test_the_answer_in_the_shape_of_the_wire() -> None:
    capture = Capture(plan(PositionRange(1, 2), attachment=TOY, top_k=3, prompt_tokens=2), "a")
    show(capture.observers([row("a", 0, 31, 32, prompt_tokens=2)]), 2, residual([[9.0, 9.0, 9.0], [3.0, 1.0, 2.5]]))
    assert capture.result() == {
        "sae_id": "toy",
        "layer": 2,
        "read_point": "post_steering",
        "positions": [
            {
                "position": 1,
                "token_id": 32,
                # 3, 1, 2·2.5 − 1 = 4, 3 − 1 = 2
                "features": [{"index": 2, "value": 4.0}, {"index": 0, "value": 3.0}, {"index": 3, "value": 2.0}],
            }
        ],
        "note": "Read after layer 2 with that layer's own steering added: what the model computed for this request, "
        "not what it would have computed unsteered.",
    }


def test_features_are_the_candidates_and_as_many_as_there_are_come_back() -> None:
    capture = Capture(plan(PROMPT, attachment=TOY, top_k=5, features=(3, 1), prompt_tokens=1), "a")
    show(capture.observers([row("a", 0, 31, prompt_tokens=1)]), 2, residual([[3.0, 4.0, 9.0]]))
    assert capture.result()["positions"][0]["features"] == [{"index": 1, "value": 4.0}, {"index": 3, "value": 0.0}]


def test_without_features_at_most_all_come_back_and_equal_ones_in_order() -> None:
    capture = Capture(plan(PROMPT, attachment=TOY, top_k=64, prompt_tokens=1), "a")
    show(capture.observers([row("a", 0, 31, prompt_tokens=1)]), 2, residual([[2.0, 0.0, 1.5]]))
    assert capture.result()["positions"][0]["features"] == [
        {"index": 0, "value": 2.0},
        {"index": 2, "value": 2.0},
        {"index": 3, "value": 2.0},
        {"index": 1, "value": 0.0},
    ]


def test_the_candidates_of_a_top_k_sae_compete_with_all() -> None:
    sae = attached(ramp_sae(6, architecture=Architecture.TOPK, k=2), "ramp", 2)
    capture = Capture(plan(PROMPT, attachment=sae, top_k=2, features=(1, 4), prompt_tokens=1), "a")
    show(capture.observers([row("a", 0, 31, prompt_tokens=1)]), 2, residual([[1.0]]))
    assert capture.result()["positions"][0]["features"] == [{"index": 4, "value": 4.0}, {"index": 1, "value": 0.0}]


def test_an_overflow_is_a_number_still() -> None:
    sae = attached(make_sae([[1000.0, 1.0]], dtype=torch.float16), "half", 2)
    capture = Capture(plan(PROMPT, attachment=sae, top_k=2, prompt_tokens=1), "a")
    show(capture.observers([row("a", 0, 31, prompt_tokens=1)]), 2, residual([[1000.0]]))
    assert [pair["value"] for pair in capture.result()["positions"][0]["features"]] == [65504.0, 1000.0]


def test_later_changes_of_the_models_tensor_do_not_reach_it() -> None:
    capture = Capture(plan(PROMPT, prompt_tokens=1), "a")
    tensor = residual([[2.0]])
    show(capture.observers([row("a", 0, 31, prompt_tokens=1)]), 2, tensor)
    tensor.fill_(99.0)
    assert capture.result()["positions"][0]["features"] == [{"index": 3, "value": 6.0}]


# --- read points ----------------------------------------------------------------------------------------------------


def both_read_points(delta: list[float]) -> list[dict[int, float]]:
    """What the two read points give for one steered position of [5, 1, 3], before and after, by feature."""
    found = []
    before = residual([[5.0, 1.0, 3.0]])
    for point in (ReadPoint.PRE_STEERING, ReadPoint.POST_STEERING):
        chosen = plan(PositionRange(1, 2), attachment=TOY, top_k=4, read_point=point, prompt_tokens=1)
        capture = Capture(chosen, "a")
        show(capture.observers([row("a", 1, 31, prompt_tokens=1)]), 2, before, before + torch.tensor(delta))
        result = capture.result()
        assert result["read_point"] == point.value
        found.append({pair["index"]: pair["value"] for pair in result["positions"][0]["features"]})
    return found


def test_the_read_points_differ_by_what_the_delta_explains() -> None:
    pre, post = both_read_points([0.5, 0.25, -1.0])
    # All four features stay above 0, where the encoder is linear: x0, x1, 2·x2 − 1, x0 − x1.
    assert pre == {0: 5.0, 1: 1.0, 2: 5.0, 3: 4.0}
    assert post == {0: 5.5, 1: 1.25, 2: 3.0, 3: 4.25}


def test_the_read_points_agree_where_the_layer_is_not_steered() -> None:
    pre, post = both_read_points([0.0, 0.0, 0.0])
    assert pre == post == {0: 5.0, 1: 1.0, 2: 5.0, 3: 4.0}


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({}, [False, None, None]),
        ({"read_point": ReadPoint.PRE_STEERING}, [False, None, None]),
        ({"first_position_steered": True}, [None, None, None]),
        ({"scoring": True}, [None, None, None]),
    ],
)
def test_the_first_position_says_that_it_is_not_steered(options: dict[str, object], flags: list[bool | None]) -> None:
    capture = Capture(plan(PROMPT, **options), "a")  # type: ignore[arg-type]
    answer(capture, "a", prompt=3, fed=0)
    result = capture.result()
    assert [entry.get("steered") for entry in result["positions"]] == flags
    assert ("Position 0" in result["note"]) is (False in flags)


def test_scoring_reads_the_prompt_and_reports_unsteered() -> None:
    capture = Capture(plan(LAST, scoring=True, max_tokens=1), "a")
    answer(capture, "a", prompt=3, fed=0)
    result = capture.result()
    assert result["read_point"] == "unsteered"
    assert [entry["position"] for entry in result["positions"]] == [2]


def test_the_note_says_what_is_missing_at_the_end_of_an_answer() -> None:
    capture = Capture(plan(ALL, prompt_tokens=1), "a")
    answer(capture, "a", prompt=1, fed=1)
    assert capture.result()["note"].endswith(
        "Position 0 is never steered. The last token of the answer is never fed to the model and has no activations."
    )


# --- caps and refusals ----------------------------------------------------------------------------------------------


def test_at_most_64_features_per_position() -> None:
    plan(LAST, top_k=64)
    with pytest.raises(SaeActivationsRefused) as caught:
        plan(LAST, top_k=65)
    assert caught.value.param == "return_sae_activations.top_k"
    assert caught.value.details == {"top_k": 65, "max_top_k": 64}


@pytest.mark.parametrize(
    ("positions", "prompt_tokens", "max_tokens", "allowed"),
    [
        # 65,536 ÷ 64 = 1024 positions.
        (LAST, 5000, 5000, True),
        (PROMPT, 1024, 5000, True),
        (PROMPT, 1025, 1, False),
        (COMPLETION, 5000, 1024, True),
        (COMPLETION, 1, 1025, False),
        (ALL, 24, 1000, True),
        (ALL, 24, 1001, False),
        (ALL, 10, 2000, False),
        (PositionRange(10, 1034), 5000, 1, True),
        (PositionRange(10, 1035), 5000, 1, False),
        (PositionRange(10, 100_000), 34, 1000, True),
        (PositionRange(10, 100_000), 34, 1001, False),
        (PositionRange(9000, 100_000), 34, 1001, True),
    ],
)
def test_the_worst_case_is_counted_before_anything_runs(
    positions: PositionChoice | PositionRange, prompt_tokens: int, max_tokens: int, allowed: bool
) -> None:
    if allowed:
        plan(positions, top_k=64, prompt_tokens=prompt_tokens, max_tokens=max_tokens)
        return
    with pytest.raises(SaeActivationsRefused) as caught:
        plan(positions, top_k=64, prompt_tokens=prompt_tokens, max_tokens=max_tokens)
    assert caught.value.param == "return_sae_activations.positions"
    assert caught.value.details["max_entries"] == 65_536


def test_a_feature_beyond_the_width_is_refused() -> None:
    plan(LAST, features=(0, 3))
    with pytest.raises(SaeActivationsRefused) as caught:
        plan(LAST, features=(0, 4))
    assert caught.value.param == "return_sae_activations.features"
    assert caught.value.details == {"feature_idx": 4, "d_sae": 4}


@pytest.mark.parametrize(
    ("sae_id", "places", "error", "param"),
    [
        (None, [], SaeNotAttached, "return_sae_activations"),
        ("a", [], SaeNotAttached, "return_sae_activations.sae_id"),
        ("c", [("a", 1), ("b", 2)], SaeNotAttached, "return_sae_activations.sae_id"),
        (None, [("a", 1), ("b", 2)], SaeActivationsRefused, "return_sae_activations.sae_id"),
        ("a", [("a", 1), ("a", 2)], SaeActivationsRefused, "return_sae_activations.sae_id"),
        (None, [("a", 1), ("a", 2)], SaeActivationsRefused, "return_sae_activations.sae_id"),
    ],
)
def test_one_sae_must_be_meant(
    sae_id: str | None, places: list[tuple[str, int]], error: type[Exception], param: str
) -> None:
    attachments = [attached(plain_sae(), name, layer) for name, layer in places]
    with pytest.raises(error) as caught:
        resolve(ActivationSpec(1, LAST, sae_id), attachments, 3, 10)
    assert caught.value.param == param  # type: ignore[attr-defined]
    assert caught.value.details == {"attached": [{"sae_id": name, "layer": layer} for name, layer in places]}  # type: ignore[attr-defined]


def test_the_sae_that_is_meant_is_read() -> None:
    attachments = [attached(plain_sae(), "a", 1), attached(plain_sae(), "b", 2)]
    assert resolve(ActivationSpec(1, LAST, "b"), attachments, 3, 10).attachment is attachments[1]
    assert resolve(ActivationSpec(1, LAST), attachments[:1], 3, 10).attachment is attachments[0]


# --- whose it is ----------------------------------------------------------------------------------------------------


def test_interleaved_requests_each_get_their_own() -> None:
    first, second = Capture(plan(ALL), "a"), Capture(plan(ALL), "b")
    for step in range(4):
        for capture, owner, base in ((first, "a", 10), (second, "b", 20)):
            observers = capture.observers([row(owner, step, base + step, prompt_tokens=3)])
            show(observers, 2, residual([[float(base + step)]]))
    for capture, base in ((first, 10), (second, 20)):
        found = capture.result()["positions"]
        assert [entry["token_id"] for entry in found] == [base, base + 1, base + 2, base + 3]
        assert [entry["features"][0]["value"] for entry in found] == [3.0 * (base + step) for step in range(4)]


def test_rows_of_others_are_not_taken() -> None:
    capture = Capture(plan(ALL), "a")
    for rows in ([], [row("b", 0, 1)], [row("a", 0, 1), row("b", 0, 1)], [row("a", 0, 1), row("a", 0, 1)]):
        with pytest.raises(ValueError, match="the capture of a"):
            capture.observers(rows)
    assert places(capture) == []


def test_an_observer_that_outlives_its_pass_writes_nothing() -> None:
    capture, other = Capture(plan(ALL), "a"), Capture(plan(ALL), "b")
    late = capture.observers([row("a", 0, 31, prompt_tokens=1)])
    now = capture.observers([row("a", 1, 32, prompt_tokens=1)])
    # A pass of another request runs with observers someone still holds.
    show(late, 2, residual([[77.0]]))
    show(other.observers([row("b", 0, 41, prompt_tokens=1)]), 2, residual([[5.0]]))
    show(now, 2, residual([[2.0]]))
    show(now, 2, residual([[88.0]]))
    assert [(entry["token_id"], entry["features"][0]["value"]) for entry in capture.result()["positions"]] == [
        (32, 6.0)
    ]
    assert [(entry["token_id"], entry["features"][0]["value"]) for entry in other.result()["positions"]] == [(41, 15.0)]


@pytest.mark.parametrize("ended_by", ["result", "close"])
def test_nothing_is_written_once_it_has_ended(ended_by: str) -> None:
    capture = Capture(plan(ALL), "a")
    show(capture.observers([row("a", 0, 31, prompt_tokens=1)]), 2, residual([[1.0]]))
    held = capture.observers([row("a", 1, 32, prompt_tokens=1)])
    if ended_by == "result":
        result = capture.result()
        show(held, 2, residual([[2.0]]))
        assert capture.result() is result
        assert [entry["token_id"] for entry in result["positions"]] == [31]
    else:
        capture.close()
        show(held, 2, residual([[2.0]]))
        assert places(capture) == []
    assert capture.observers([row("a", 2, 33, prompt_tokens=1)]) is NO_OBSERVERS


def test_a_residual_that_is_not_the_rows_is_refused() -> None:
    capture = Capture(plan(ALL), "a")
    with pytest.raises(ValueError, match="one row of 2 tokens"):
        show(capture.observers([row("a", 0, 31, 32, prompt_tokens=2)]), 2, residual([[1.0]]))
