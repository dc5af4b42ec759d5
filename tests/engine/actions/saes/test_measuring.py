"""The check of an SAE on the resident model: exact on SAEs whose figures are known, out of the way of answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.actions.saes import SaeActions, measuring
from engine.engine import Engine
from engine.errors import InsufficientMemory, InvalidParameter, ModelBusy, ModelNotLoaded
from engine.events import SaesChanged
from engine.generation.request import Delta, GenerationRequest, TextDelta, TextInput
from engine.library.errors import SaeNotFound
from engine.models.hardware import devices
from engine.saes.errors import SaeIncompatible, SaeLoadFailed
from engine.sampling import Sampling
from tests.engine.actions.saes.driving import attached, hearing, hooked
from tests.made_saes import make_mirror_sae, make_sae
from tests.waiting import wait_until

EngineMaker = Callable[..., Engine]
CheckpointMaker = Callable[..., Path]


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    return make_engine()


@pytest.fixture
def saes(engine: Engine) -> SaeActions:
    return engine.saes


def unmeasured(saes: SaeActions, folder: Path, **how: Any) -> str:
    record, _ = saes.import_local(make_mirror_sae(folder, model_name="acme/other", **how))
    assert record.measured_l0 is None
    return record.id


@pytest.mark.parametrize("layer", [0, 3])
def test_what_loses_nothing_measures_as_such(engine: Engine, saes: SaeActions, tmp_path: Path, layer: int) -> None:
    sae_id = unmeasured(saes, tmp_path / "m", layer=layer, l0=32.0)
    heard = hearing(engine, SaesChanged)
    record = engine.measurer.measure(sae_id)
    assert (record.measured_l0, record.dead_share) == (32.0, 0.0)
    assert record.measured_variance_explained == pytest.approx(1.0, abs=1e-9)
    assert record.measured_at is not None and heard == [SaesChanged()]
    quality = record.config[measuring.QUALITY]
    assert quality["n_tokens"] + quality["n_left_out"] == 2048
    assert quality["model_name"] == "tiny-llama" and quality["layer"] == layer
    assert quality["median_norm"] > 0
    assert quality["verdicts"][1] == (
        "On average 32.0 features are active per token; the source states 32, which fits."
    )
    assert record.config["d_in"] == 32, "the description is still there"
    assert saes.get(sae_id) == record
    assert hooked(engine) == set(), "the hook of the passes is gone"


def test_the_figures_do_not_hang_on_how_the_text_is_cut(make_engine: EngineMaker, tmp_path: Path) -> None:
    found = []
    for chunk in (7, 512):
        engine = make_engine(PREFILL_CHUNK=chunk)
        saes = engine.saes
        record, _ = saes.import_local(make_sae(tmp_path / f"cut {chunk}", architecture="jumprelu", context_size=100))
        assert record.measured_l0 is not None and record.measured_variance_explained is not None
        found.append((record.measured_l0, record.measured_variance_explained))
    assert found[0] == pytest.approx(found[1], abs=0.01)


def test_a_top_k_sae_has_its_k_features_on(saes: SaeActions, tmp_path: Path) -> None:
    record, _ = saes.import_local(make_sae(tmp_path / "topk", architecture="topk", k=8, layer=2))
    assert record.measured_l0 == pytest.approx(8.0, abs=0.05)


def test_a_tokenizer_with_a_bos_and_training_without(
    make_engine: EngineMaker, checkpoint: CheckpointMaker, tmp_path: Path
) -> None:
    engine = make_engine(checkpoint("llama", add_bos=True))
    saes = engine.saes
    counts = {}
    for prepend in (True, False):
        record, _ = saes.import_local(
            make_mirror_sae(
                tmp_path / f"bos {prepend}",
                metadata={"hook_name": "blocks.1.hook_resid_post"},
                prepend_bos=prepend,
                context_size=100,
            )
        )
        quality = record.config[measuring.QUALITY]
        counts[prepend] = quality["n_tokens"] + quality["n_left_out"]
    # 2048 tokens in texts of 100: 20 of 99 and one of 68, each after a BOS; or 20 of 100 and one of 48.
    assert counts == {True: 2048 + 21, False: 2048}


def test_refusals(engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SaeNotFound):
        engine.measurer.measure("unknown")
    nowhere, _ = saes.import_local(make_sae(tmp_path / "nowhere", layer=None))
    with pytest.raises(InvalidParameter):
        engine.measurer.measure(nowhere.id)
    wide, _ = saes.import_local(make_sae(tmp_path / "wide", d_in=16))
    with pytest.raises(SaeIncompatible):
        engine.measurer.measure(wide.id)
    gone = unmeasured(saes, tmp_path / "gone")
    (tmp_path / "gone" / "sae_weights.safetensors").rename(tmp_path / "away")
    with pytest.raises(SaeLoadFailed):
        engine.measurer.measure(gone)
    big = unmeasured(saes, tmp_path / "big", layer=2)
    monkeypatch.setattr(devices, "available_memory", lambda device: 0)
    with pytest.raises(InsufficientMemory):
        engine.measurer.measure(big)
    assert all(each.measured_l0 is None for each in saes.list())
    engine.loader.unload().result(60)
    with pytest.raises(ModelNotLoaded):
        engine.measurer.measure(big)


def test_pending_measurements_after_a_load(make_engine: EngineMaker, tmp_path: Path) -> None:
    engine = make_engine(load=False)
    saes = engine.saes
    fits, _ = saes.import_local(make_mirror_sae(tmp_path / "fits"))
    saes.import_local(make_sae(tmp_path / "wide", d_in=16))
    broken, _ = saes.import_local(make_sae(tmp_path / "broken", seed=7))
    (tmp_path / "broken" / "cfg.json").unlink()
    assert engine.measurer.measure_pending() == []
    engine.loader.load(1).result(60)
    assert [each.id for each in engine.measurer.measure_pending()] == [fits.id]
    assert engine.measurer.measure_pending() == []
    assert saes.get(fits.id).measured_l0 == 32.0 and saes.get(broken.id).measured_l0 is None


def test_an_answer_goes_on_while_an_sae_is_measured(make_engine: EngineMaker, tmp_path: Path) -> None:
    engine = make_engine(PREFILL_CHUNK=8)
    saes = engine.saes
    other, _ = saes.import_local(make_sae(tmp_path / "attached", layer=3, model_name="acme/other"))
    engine.attachments.attach(other.id)
    engine.hand_steering.set_value(1, 30.0)
    sae_id = unmeasured(saes, tmp_path / "m", layer=1)
    deltas: list[Delta] = []
    prepared = engine.generation.prepare(
        GenerationRequest("tiny-llama", TextInput(("the sea",)), Sampling(ignore_eos=True), max_tokens=2000)
    )
    handle = engine.generation.submit(prepared, deltas.append)
    wait_until(lambda: any(isinstance(each, TextDelta) for each in deltas), "the first token")
    before = written(deltas)
    record = engine.measurer.measure(sae_id)
    # 2048 tokens in chunks of 8 are 256 jobs, and after each the lanes have their turn.
    # A few tokens may be held back: they are parts of a character.
    assert written(deltas) - before >= 240
    handle.cancel()
    assert handle.wait(60)
    assert record.measured_l0 == 32.0, "the passes of the check are not steered"
    assert hooked(engine) == {3} and attached(engine) == [(other.id, 3)]


def written(deltas: list[Delta]) -> int:
    return max(each.completion_tokens for each in deltas if isinstance(each, TextDelta))


def test_the_attached_weights_themselves_are_measured(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sae_id = unmeasured(saes, tmp_path / "m")
    engine.attachments.attach(sae_id)
    monkeypatch.setattr(devices, "available_memory", lambda device: 0)
    assert engine.measurer.measure(sae_id).measured_l0 == 32.0
    assert saes.get(sae_id).status.value == "attached" and hooked(engine) == {1}


def test_a_model_that_leaves_meanwhile(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sae_id = unmeasured(saes, tmp_path / "m")
    run = measuring.Measurer._pass
    left: list[bool] = []

    def leaving(self: measuring.Measurer, *arguments: Any) -> None:
        if not left:
            left.append(True)
            engine.loader.unload().result(60)
        run(self, *arguments)

    monkeypatch.setattr(measuring.Measurer, "_pass", leaving)
    with pytest.raises(ModelBusy, match="unloaded meanwhile"):
        engine.measurer.measure(sae_id)
    assert saes.get(sae_id).measured_l0 is None
