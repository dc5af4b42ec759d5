"""A steering belongs to its request: lanes of one batch with plans of their own, live changes, and nothing left
behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.errors import InvalidParameter, SaeNotAttached
from engine.library.database import Library
from engine.library.records import ProfileRecord
from engine.monitor.activation_spec import ActivationSpec
from engine.saes.attachment import Attachment
from engine.saes.config import Architecture, HookKind, SaeConfig, SourceFormat
from engine.saes.sae import Sae
from engine.sampling import Sampling
from engine.steering import transitions
from engine.steering.inline import parse_inline
from engine.steering.live import ServingCircuit
from engine.steering.plan import ResidualSpec
from engine.steering.request import SteeringRequest
from tests.conftest import CheckpointMaker
from tests.engine.generation.driving import Answer, Driver
from tests.tiny import FAMILIES

WIDTH, FEATURES = 32, 48


def made_sae(seed: int, layer: int) -> Sae:
    draw = torch.Generator().manual_seed(seed)
    config = SaeConfig(
        architecture=Architecture.STANDARD,
        d_in=WIDTH,
        d_sae=FEATURES,
        source_format=SourceFormat.SAELENS,
        layer=layer,
        hook=HookKind.RESID_POST,
        hook_name=f"blocks.{layer}.hook_resid_post",
    )
    decoder = torch.randn(FEATURES, WIDTH, generator=draw)
    return Sae(
        config,
        {
            "W_enc": decoder.T.contiguous(),
            "W_dec": decoder / decoder.norm(dim=1, keepdim=True),
            "b_enc": torch.zeros(FEATURES),
            "b_dec": torch.zeros(WIDTH),
        },
    )


def attach(driver: Driver, *layers: int) -> None:
    backend = driver.backend
    driver.desk.apply(
        transitions.open_for(
            ResidualSpec(
                driver.name,
                WIDTH,
                4,
                backend.device,
                backend.dtype,
                driver.settings.STEER_FIRST_POSITION,
                backend.info.blocks_path,
            )
        )
    )
    saes = [Attachment(f"sae-{layer}", layer, made_sae(layer, layer), f"model.layers.{layer}", 1) for layer in layers]
    driver.desk.apply(transitions.attach(saes))
    driver.monitor.set_attachments(saes)
    backend.watch_layers(layers)


def inline(sae_id: str, **features: float) -> SteeringRequest:
    wire = {"sae_id": sae_id, "features": [{"index": int(k[1:]), "strength": v} for k, v in features.items()]}
    return SteeringRequest(inline=parse_inline(wire))


UNSTEERED = SteeringRequest(inline=parse_inline({"features": []}))

STEERINGS = [
    UNSTEERED,
    inline("sae-1", f3=9.0),
    inline("sae-1", f3=-9.0),
    inline("sae-0", f7=12.0, f8=4.0),
    inline("sae-3", f1=20.0),
    UNSTEERED,
    inline("sae-1", f3=60.0),
    inline("sae-0", f40=7.5),
    inline("sae-3", f1=20.0, f2=-20.0),
    inline("sae-1", f30=15.0),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_ten_steerings_in_one_batch_write_what_each_writes_alone(
    family: str, checkpoint: CheckpointMaker, library: Library
) -> None:
    driver = Driver(checkpoint(family), library, MAX_LANES=10)
    attach(driver, 0, 1, 3)
    prompt = "the quick brown fox jumps"
    alone = [driver.alone(prompt, steering=each).ids() for each in STEERINGS]
    answers: list[Answer] = []
    for each in STEERINGS:
        answers.append(driver.send(prompt, steering=each))
        driver.tick()
    driver.finish()
    assert [answer.ids() for answer in answers] == alone
    assert max(rows for kind, rows in driver.passes if kind == "decode") == 10
    plain = Driver(checkpoint(family), library).alone(prompt).ids()
    assert alone[0] == alone[5] == plain
    assert len({tuple(ids) for ids in alone}) >= 6


def report_of(answer: Answer) -> str:
    assert answer.finished is not None
    return answer.finished.steering.text()


def test_the_report_says_what_was_added(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1)
    answer = driver.alone("the sea", steering=inline("sae-1", f3=500.0))
    assert report_of(answer).startswith('inline;sae="sae-1";layer=1;features=1;hash="sha256:')
    assert report_of(answer).endswith(";clamped=1")
    assert report_of(driver.alone("the sea")) == "none"
    assert report_of(driver.alone("the sea", steering=UNSTEERED)) == "none"


def test_a_live_change_moves_text_that_is_being_written_and_says_so(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1)
    plain = driver.alone("the sea was calm", max_tokens=20).ids()
    own = driver.alone("the sea was calm", max_tokens=20, steering=inline("sae-1", f5=8.0)).ids()
    follows = driver.send("the sea was calm", max_tokens=20)
    steered = driver.send("the sea was calm", max_tokens=20, steering=inline("sae-1", f5=8.0))
    driver.tick(8)
    written = len(follows.ids())
    assert 0 < written < 20
    driver.desk.apply(transitions.set_values(("sae-1", 1), {3: 150.0}))
    driver.tick()
    assert follows.ids()[:written] == plain[:written]
    driver.finish()
    assert follows.ids() != plain
    assert report_of(follows).startswith('manual;sae="sae-1";layer=1;features=1;')
    assert report_of(follows).endswith(";changed")
    assert steered.ids() == own
    assert not report_of(steered).endswith("changed")
    # The new live steering is what a request sent now runs with from its first token, unchanged.
    fresh = driver.alone("the sea was calm", max_tokens=20)
    assert not report_of(fresh).endswith("changed")
    assert fresh.ids() != plain


def test_nothing_is_left_after_failures_and_leavers(
    tiny_checkpoint: Path, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1)
    plain = driver.alone("the sea").ids()
    leaver = driver.send("the sea", steering=inline("sae-1", f3=90.0), max_tokens=50)
    driver.tick(4)
    leaver.handle.cancel()
    driver.finish()
    failing = driver.send("the sea", steering=inline("sae-1", f3=90.0), max_tokens=50)
    driver.tick(4)

    def fail(*args: Any, **kwargs: Any) -> torch.Tensor:
        raise RuntimeError("a kernel failed")

    with monkeypatch.context() as patch:
        patch.setattr(driver.backend, "decode", fail)
        driver.tick()
    assert failing.error is not None
    assert driver.alone("the sea").ids() == plain
    assert driver.desk.live_plan.is_empty


def test_a_named_profile_replaces_live_steering(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1, 2)
    library.profiles.add(ProfileRecord("calm", sae_id="sae-1", layer=1, steering={3: 10.0}))
    library.profiles.add(ProfileRecord("empty", sae_id="sae-1", layer=1))
    plain = driver.alone("the sea").ids()
    inline_ids = driver.alone("the sea", steering=inline("sae-1", f3=10.0)).ids()
    doubled = driver.alone("the sea", steering=inline("sae-1", f3=20.0)).ids()
    driver.desk.apply(transitions.set_values(("sae-2", 2), {9: 120.0}))
    named = driver.alone("the sea", steering=SteeringRequest(profile="calm"))
    assert named.ids() == inline_ids
    assert report_of(named).startswith('profile;name="calm";source=request;intensity="1.0";sae="sae-1";layer=1;')
    assert driver.alone("the sea", steering=SteeringRequest(profile="calm", dial=2.0)).ids() == doubled
    assert driver.alone("the sea", steering=SteeringRequest(profile="empty")).ids() == plain
    assert driver.alone("the sea", steering=SteeringRequest(dial=0.0)).ids() == plain
    assert driver.alone("the sea").ids() != plain


def test_what_cannot_be_aimed_is_refused_before_anything_runs(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    with pytest.raises(SaeNotAttached):
        driver.send("the sea", steering=inline("sae-1", f3=1.0))
    attach(driver, 1, 2)
    with pytest.raises(InvalidParameter, match="sae-2"):
        driver.send(
            "the sea", steering=SteeringRequest(inline=parse_inline({"features": [{"index": 1, "strength": 1}]}))
        )
    assert driver.passes == []


def test_a_seed_repeats_under_steering(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1)
    sampling = Sampling(temperature=1.0, seed=5, ignore_eos=True)
    first = driver.alone("the sea", sampling=sampling, steering=inline("sae-1", f3=9.0)).ids()
    assert driver.alone("the sea", sampling=sampling, steering=inline("sae-1", f3=9.0)).ids() == first
    assert driver.alone("the sea", sampling=sampling).ids() != first


def test_read_points_differ_by_exactly_the_delta(tiny_checkpoint: Path, library: Library) -> None:
    """The encoder here is linear (a huge bias keeps every unit on), so the difference is W_enc ᵀ · delta."""
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1)
    sae = driver.desk.attachment("sae-1").sae
    sae.tensors["b_enc"].fill_(1e4)
    steering = inline("sae-1", f3=9.0)
    watched = [3, 11, 40]

    def read(point: str) -> dict[int, dict[int, float]]:
        spec = ActivationSpec.from_wire({"features": watched, "top_k": 3, "positions": "all", "read_point": point})
        answer = driver.alone("the sea was calm", steering=steering, activations=spec, max_tokens=4)
        assert answer.finished is not None
        assert answer.finished.activations is not None
        return {
            each["position"]: {f["index"]: f["value"] for f in each["features"]}
            for each in answer.finished.activations["positions"]
        }

    before, after = read("pre_steering"), read("post_steering")
    expected = sae.W_enc.T @ (9.0 * sae.W_dec[3])
    assert before.keys() == after.keys()
    assert len(before) > 5
    for position, values in before.items():
        for feature in watched:
            difference = after[position][feature] - values[feature]
            assert difference == pytest.approx(0.0 if position == 0 else float(expected[feature]), abs=5e-3)


def test_activations_are_the_requests_own_in_company(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1)
    spec = ActivationSpec.from_wire({"top_k": 4, "positions": "all"})
    prompts = ["the sea was calm", "a language model writes"]
    alone = [driver.alone(p, activations=spec).finished for p in prompts]
    company = driver.send("jumps over the lazy dog", steering=inline("sae-1", f3=30.0), max_tokens=30)
    driver.tick(2)
    together = [driver.send(p, activations=spec) for p in prompts]
    driver.finish()
    assert company.finished is not None
    assert [a.finished.activations for a in together if a.finished] == [a.activations for a in alone if a]


def test_the_monitor_sees_every_lane_of_a_batch(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1)
    driver.monitor.configure(enabled=True, top_k=3, history_size=1000)
    answers = [driver.send(p, max_tokens=5) for p in ("the sea", "a smile")]
    driver.finish()
    assert all(a.finished for a in answers)
    records = driver.monitor.history(limit=1000)
    seen: dict[str, set[int]] = {}
    for record in records:
        seen.setdefault(record.request_id, set()).add(record.token_position)
    assert len(seen) == 2
    # The end of the prompt and four tokens fed back: the fifth is written and never read.
    assert sorted(len(positions) for positions in seen.values()) == [5, 5]


def test_every_choice_on_solo_lanes_is_steered(tiny_checkpoint: Path, library: Library) -> None:
    """Choices after the first begin from what the first has read; they are past the first position all the same."""
    driver = Driver(tiny_checkpoint, library, ENABLE_CONTINUOUS_BATCHING=False)
    attach(driver, 1)
    steering = inline("sae-1", f3=9.0)
    single = driver.alone("the sea", steering=steering).ids()
    assert single != driver.alone("the sea").ids()
    answer = driver.alone("the sea", steering=steering, n=3)
    assert [answer.ids(i) for i in range(3)] == [single] * 3


def test_the_monitor_sees_every_choice_of_a_prompt(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1)
    driver.monitor.configure(enabled=True, top_k=3, history_size=1000)
    tokens = len(driver.backend.tokenizer.encode("the sea", True))
    driver.alone("the sea", n=2, max_tokens=4)
    places = sorted(record.token_position for record in driver.monitor.history(limit=1000))
    # The end of the prompt once, then three tokens fed back by each of the two choices.
    assert places == [tokens - 1, *[place for place in range(tokens, tokens + 3) for _ in range(2)]]


def test_an_answer_whose_steering_changed_claims_no_evidence(tiny_checkpoint: Path, library: Library) -> None:
    driver = Driver(tiny_checkpoint, library)
    attach(driver, 1)
    circuit = ServingCircuit("circ_1", "c", {("sae-1", 1): {3: 9.0}}, 1.0, 2)
    answer = driver.send("the sea", max_tokens=20)
    driver.tick(6)
    driver.desk.apply(transitions.serve_circuit(circuit))
    driver.finish()
    assert answer.finished is not None
    assert answer.finished.rung is None
    whole = driver.alone("the sea", max_tokens=20)
    assert whole.finished is not None
    assert whole.finished.rung == 2
