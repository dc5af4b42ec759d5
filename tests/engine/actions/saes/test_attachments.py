"""Attaching SAEs to the resident model: order of refusals, all of a set or none, lock, hooks, memory."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.actions.models.importing import import_local_model
from engine.actions.saes import SaeActions, attachments
from engine.actions.saes.errors import SaeAlreadyAttached
from engine.actions.saes.views import Viewer
from engine.engine import Engine
from engine.errors import InsufficientMemory, InvalidParameter, LibraryUnusable, ModelBusy, ModelNotLoaded, NotFound
from engine.events import MonitoringStateChanged, SaeAttached, SaesChanged, SteeringUpdated
from engine.library.errors import SaeNotFound
from engine.library.records import SaeRecord, SaeSource, SaeStatus
from engine.models.hardware import devices
from engine.saes.errors import SaeIncompatible, SaeLoadFailed
from engine.steering.errors import SteeringInvalid
from engine.wire import wire
from tests.engine.actions.saes.driving import attached, context_of, hearing, hooked, locked
from tests.made_saes import make_mirror_sae, make_sae

EngineMaker = Callable[..., Engine]
CheckpointMaker = Callable[..., Path]


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    return make_engine()


@pytest.fixture
def saes(engine: Engine) -> SaeActions:
    return engine.saes


def imported(saes: SaeActions, folder: Path, name: str, **how: Any) -> str:
    """The id of a made-up SAE in the library, not measured."""
    record, created = saes.import_local(make_sae(folder / name, **{"model_name": "acme/other", **how}), sae_id=name)
    assert created
    return record.id


def status(saes: SaeActions, sae_id: str) -> str:
    return saes.get(sae_id).status.value


# --- one -------------------------------------------------------------------------------------------------------------


def test_attached_at_the_layer_it_was_trained_for(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    sea = imported(saes, tmp_path, "sea", layer=2, model_name=None)
    heard = hearing(engine, SaeAttached, SaesChanged, SteeringUpdated, MonitoringStateChanged)
    result = engine.attachments.attach(sea)
    assert wire(result) == {
        "status": "attached",
        "sae_id": "sea",
        "layer": 2,
        "memory_usage_mb": 0.02,
        "warnings": [],
        "layer_module_path": "model.layers.2",
    }
    assert attached(engine) == [("sea", 2)] and hooked(engine) == {2}
    (here,) = engine.desk.state.attachments
    assert here.sae.dtype == torch.float32 and here.memory_bytes == 16_768
    assert status(saes, sea) == "attached" and locked(engine) == ["tiny-llama"]
    assert engine.monitor.state().saes == (("sea", 2),)
    assert [each for each in heard if isinstance(each, SaeAttached)] == [SaeAttached("sea", 2, 0.02)]
    assert {type(each) for each in heard} == {SaeAttached, SaesChanged, SteeringUpdated, MonitoringStateChanged}


def test_attached_elsewhere_with_warnings(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    sea = imported(saes, tmp_path, "sea", layer=2)
    fit = engine.attachments.compatibility(sea, 0)
    assert wire(fit) == {
        "compatible": True,
        "errors": [],
        "warnings": ["It was trained for layer 2, not 0.", "It was trained for acme/other, not tiny-llama."],
    }
    assert engine.attachments.attach(sea, 0).warnings == fit.warnings


def test_the_order_of_refusals(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    sea = imported(saes, tmp_path, "sea")
    nowhere = imported(saes, tmp_path, "nowhere", layer=None)
    wide = imported(saes, tmp_path, "wide", d_in=16)
    engine.loader.unload().result(60)
    for layer in (None, 1, 99):
        with pytest.raises(ModelNotLoaded):
            engine.attachments.attach("unknown", layer)
        with pytest.raises(ModelNotLoaded):
            engine.attachments.compatibility("unknown", layer)
    engine.loader.load(1).result(60)
    with pytest.raises(SaeNotFound):
        engine.attachments.attach("unknown", -1)
    with pytest.raises(InvalidParameter, match="do not say which layer"):
        engine.attachments.attach(nowhere)
    with pytest.raises(InvalidParameter, match="whole number"):
        engine.attachments.attach(sea, -1)
    engine.attachments.attach(sea, 1)
    with pytest.raises(SaeAlreadyAttached) as again:
        engine.attachments.attach(sea, 1)
    assert again.value.details == {"sae_id": "sea", "layers": [1]}
    with pytest.raises(SaeIncompatible) as refusal:
        engine.attachments.attach(wide, 7)
    assert refusal.value.details == {
        "errors": [
            "It reads vectors of width 16; this model's are 32 wide.",
            "There is no layer 7: this model has layers 0 to 3.",
        ],
        "warnings": ["It was trained for layer 1, not 7.", "It was trained for acme/other, not tiny-llama."],
    }
    assert attached(engine) == [("sea", 1)]


@pytest.mark.parametrize("state", [SaeStatus.DOWNLOADING, SaeStatus.ERROR])
def test_a_row_without_files(engine: Engine, saes: SaeActions, state: SaeStatus) -> None:
    engine.library.saes.add(SaeRecord("sea", "sea", SaeSource.HUGGINGFACE, status=state, trained_layer=1))
    assert not engine.attachments.compatibility("sea").compatible
    with pytest.raises(SaeIncompatible) as refusal:
        engine.attachments.attach("sea")
    assert len(refusal.value.details["errors"]) == 1


def test_files_that_are_gone_or_became_others(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    gone = imported(saes, tmp_path, "gone", seed=1)
    (tmp_path / "gone").rename(tmp_path / "away")
    with pytest.raises(SaeLoadFailed, match="are not at"):
        engine.attachments.attach(gone)
    assert engine.attachments.compatibility(gone).errors[0].startswith("The files of the SAE 'gone' are not at")
    other = imported(saes, tmp_path, "other", seed=2)
    make_sae(tmp_path / "other", architecture="topk")
    with pytest.raises(SaeLoadFailed, match="not the ones that were imported") as refusal:
        engine.attachments.attach(other)
    assert refusal.value.details["changed"] == ["architecture", "k", "file_size_bytes"]
    assert status(saes, other) == "cached"


def test_one_sae_on_two_layers_shares_its_weights(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    sea = imported(saes, tmp_path, "sea")
    engine.attachments.attach(sea, 1)
    engine.attachments.attach(sea, 3)
    first, second = engine.desk.state.attachments
    assert first.sae is second.sae and hooked(engine) == {1, 3}
    view = engine.attachments.all()
    assert (view.count, view.total_memory_usage_mb) == (2, 0.02)


def test_layers_of_the_stream_before_a_block(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    engine.attachments.attach(imported(saes, tmp_path, "pre", hook_name="blocks.3.hook_resid_pre"))
    assert attached(engine) == [("pre", 2)]


@pytest.mark.parametrize(
    ("setting", "model", "stored", "found"),
    [
        ("model", "bfloat16", "float32", torch.bfloat16),
        ("model", "float32", "float16", torch.float32),
        ("float16", "float32", "float32", torch.float16),
        ("float32", "bfloat16", "bfloat16", torch.float32),
    ],
)
def test_the_format_of_the_weights(
    make_engine: EngineMaker, tmp_path: Path, setting: str, model: str, stored: str, found: torch.dtype
) -> None:
    engine = make_engine(DTYPE=model, MULTISAE_ATTACH_DTYPE=setting)
    saes = engine.saes
    engine.attachments.attach(imported(saes, tmp_path, "sea", dtype=stored))
    assert engine.desk.state.attachments[0].sae.dtype == found


# --- a set -----------------------------------------------------------------------------------------------------------


def test_a_set_is_deduplicated_and_what_is_there_stays(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    one, two = imported(saes, tmp_path, "one", layer=1, seed=1), imported(saes, tmp_path, "two", layer=2, seed=2)
    engine.attachments.attach(one)
    before = engine.desk.state
    result = engine.attachments.attach_set([(two, 2), (one, None), (two, None), (one, 3)])
    assert [(each.sae_id, each.layer, each.status.value) for each in result.entries] == [
        ("two", 2, "attached"),
        ("one", 1, "already_attached"),
        ("one", 3, "attached"),
    ]
    assert (result.attached_count, result.total_memory_usage_mb, result.vram_warning) == (3, 0.03, False)
    assert result.vram_envelope_mb == 4096
    assert attached(engine) == [("one", 1), ("two", 2), ("one", 3)] and hooked(engine) == {1, 2, 3}
    assert engine.desk.state.version == before.version + 1
    again = engine.attachments.attach_set([(one, 1), (two, 2)])
    assert {each.status.value for each in again.entries} == {"already_attached"}
    assert engine.desk.state.version == before.version + 1


def test_an_empty_set(engine: Engine, saes: SaeActions) -> None:
    with pytest.raises(SteeringInvalid) as refusal:
        engine.attachments.attach_set([])
    assert (refusal.value.code, refusal.value.param) == ("validation_error", "saes")


def test_more_than_the_advisory_envelope(make_engine: EngineMaker, tmp_path: Path) -> None:
    engine = make_engine(MULTISAE_VRAM_ENVELOPE_MB=1)
    saes = engine.saes
    wide = imported(saes, tmp_path, "wide", d_sae=8192)
    result = engine.attachments.attach_set([(wide, 1)])
    assert (result.total_memory_usage_mb, result.vram_envelope_mb, result.vram_warning) == (2.13, 1, True)
    assert engine.attachments.all().vram_warning


def test_a_set_is_checked_whole_before_anything_is_read(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr(attachments, "load_weights", lambda detected, *rest: read.append(detected.folder.name))
    good = [(imported(saes, tmp_path, name, seed=seed), 1) for seed, name in enumerate(("a", "b"))]
    bad = imported(saes, tmp_path, "wide", d_in=16)
    for last in (("unknown", 1), (bad, 1), (good[0][0], 4)):
        with pytest.raises((SaeNotFound, SaeIncompatible)):
            engine.attachments.attach_set([*good, last])
    assert read == [] and attached(engine) == [] and locked(engine) == []


def test_a_set_that_fails_on_its_third_leaves_nothing_and_no_memory(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [imported(saes, tmp_path, name, seed=seed) for seed, name in enumerate(("a", "b", "c"))]
    spoil(tmp_path / "c" / "sae_weights.safetensors")
    tensors: list[weakref.ref[torch.Tensor]] = []
    load = attachments.load_weights

    def watched(*arguments: Any) -> Any:
        sae = load(*arguments)
        tensors.extend(weakref.ref(tensor) for tensor in sae.tensors.values())
        return sae

    monkeypatch.setattr(attachments, "load_weights", watched)
    heard = hearing(engine)
    with pytest.raises(SaeLoadFailed, match="NaN") as refusal:
        engine.attachments.attach_set([(name, 1) for name in names])
    gc.collect()
    assert len(tensors) == 8 and [each for each in tensors if each() is not None] == []
    assert refusal.value is not None and heard == []
    assert attached(engine) == [] and hooked(engine) == set() and locked(engine) == []
    assert {status(saes, name) for name in names} == {"cached"}


def spoil(file: Path) -> None:
    """Make the last value of a weight file NaN, its size unchanged."""
    content = bytearray(file.read_bytes())
    content[-4:] = b"\x00\x00\xc0\x7f"
    file.write_bytes(content)


def test_too_little_memory(engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = imported(saes, tmp_path, "one", d_sae=8192, seed=1), imported(saes, tmp_path, "two", seed=2)
    engine.attachments.attach(two)
    # 2 × 32 × 8192 values of 4 bytes and a tenth more are 2.2 MB.
    monkeypatch.setattr(devices, "available_memory", lambda device: 2 * (1 << 20))
    for refused in (
        lambda: engine.attachments.attach(one),
        lambda: engine.attachments.attach_set([(two, 1), (one, 1)]),
    ):
        with pytest.raises(InsufficientMemory) as refusal:
            refused()
        assert refusal.value.details == {"device": "cpu", "projected_mb": 2.31, "free_mb": 2.1}
    # The weights of an SAE that is attached already are there: another layer of it costs nothing.
    monkeypatch.setattr(devices, "available_memory", lambda device: 0)
    engine.attachments.attach(two, 3)
    assert attached(engine) == [("two", 1), ("two", 3)]


def test_a_large_file_counts_in_the_estimate(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In double precision the file has 4,260,096 bytes and its headers; 0.6 × 1.1 of that is above the 2.2 MB of float32.
    big = imported(saes, tmp_path, "big", d_sae=8192, dtype="float64")
    monkeypatch.setattr(devices, "available_memory", lambda device: 0)
    with pytest.raises(InsufficientMemory) as refusal:
        engine.attachments.attach(big)
    assert refusal.value.details["projected_mb"] == 2.81


def test_a_model_that_leaves_while_weights_are_read(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sea = imported(saes, tmp_path, "sea")
    load = attachments.load_weights

    def slow(*arguments: Any) -> Any:
        engine.loader.unload().result(60)
        return load(*arguments)

    monkeypatch.setattr(attachments, "load_weights", slow)
    with pytest.raises(ModelBusy, match="unloaded meanwhile"):
        engine.attachments.attach(sea)
    assert attached(engine) == [] and status(saes, sea) == "cached" and locked(engine) == []


def test_an_attached_one_that_leaves_while_the_others_are_read(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = imported(saes, tmp_path, "one", seed=1), imported(saes, tmp_path, "two", seed=2)
    engine.attachments.attach(one)
    load = attachments.load_weights

    def slow(*arguments: Any) -> Any:
        engine.attachments.detach(one)
        return load(*arguments)

    monkeypatch.setattr(attachments, "load_weights", slow)
    with pytest.raises(attachments.SaeNotAttached, match="was detached while"):
        engine.attachments.attach_set([(one, 1), (two, 1)])
    assert attached(engine) == []


def test_rows_that_cannot_be_written_leave_the_model_as_it_was(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sea = imported(saes, tmp_path, "sea")

    def full(*_: object, **__: object) -> None:
        raise LibraryUnusable("The disk is full.")

    with monkeypatch.context() as broken:
        broken.setattr(engine.library.models, "update", full)
        with pytest.raises(LibraryUnusable):
            engine.attachments.attach(sea)
    assert attached(engine) == [] and hooked(engine) == set() and status(saes, sea) == "cached"
    assert locked(engine) == []
    engine.attachments.attach(sea)
    assert attached(engine) == [("sea", 1)]


def test_the_lock_comes_to_the_resident_model(
    engine: Engine, saes: SaeActions, tmp_path: Path, checkpoint: CheckpointMaker
) -> None:
    other = import_local_model(engine.library, engine.events, checkpoint("gpt2"))
    engine.library.models.update(other.id, locked=True)
    engine.attachments.attach(imported(saes, tmp_path, "sea"))
    assert locked(engine) == ["tiny-llama"]


def test_without_the_setting_nothing_is_locked(make_engine: EngineMaker, tmp_path: Path) -> None:
    engine = make_engine(LOCK_ON_ATTACH=False)
    saes = engine.saes
    sea = imported(saes, tmp_path, "sea")
    engine.attachments.attach(sea)
    assert locked(engine) == []
    resident = engine.shelf.resident
    assert resident is not None
    engine.library.models.update(resident.record.id, locked=True)
    engine.attachments.detach(sea)
    assert locked(engine) == ["tiny-llama"], "a lock that a person set is not ours to clear"


def test_many_at_once_attach_each_place_once(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    names = [imported(saes, tmp_path, name, seed=seed) for seed, name in enumerate(("a", "b"))]
    gate = threading.Barrier(6)

    def run(number: int) -> str:
        gate.wait(60)
        try:
            return engine.attachments.attach(names[number % 2]).status.value
        except SaeAlreadyAttached as error:
            return error.code

    with ThreadPoolExecutor(6) as pool:
        found = sorted(pool.map(run, range(6)))
    assert found == ["attached"] * 2 + ["sae_already_attached"] * 4
    assert sorted(attached(engine)) == [("a", 1), ("b", 1)]


# --- saved sets and views --------------------------------------------------------------------------------------------


def test_a_saved_set_is_attached_in_one_call(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    one, two = imported(saes, tmp_path, "one", seed=1), imported(saes, tmp_path, "two", seed=2)
    engine.attachments.attach_set([(one, 1), (two, 2)])
    engine.attachments.save_set("both")
    engine.attachments.detach(one)
    engine.attachments.detach(two)
    with pytest.raises(InvalidParameter):
        engine.attachments.save_set("none")
    assert engine.attachments.attach_saved_set("both").attached_count == 2
    assert attached(engine) == [("one", 1), ("two", 2)]
    with pytest.raises(NotFound):
        engine.attachments.attach_saved_set("other")


def test_views(engine: Engine, tmp_path: Path) -> None:
    saes = engine.saes
    viewer = Viewer(context_of(engine), lambda layer: 10 * layer)
    assert wire(viewer.first()) == {
        "is_attached": False,
        "sae_id": None,
        "layer": None,
        "memory_usage_mb": None,
        "steering_enabled": False,
        "monitoring_enabled": False,
        "steering_apply_count": None,
    }
    assert wire(viewer.all()) == {
        "is_attached": False,
        "count": 0,
        "entries": [],
        "total_memory_usage_mb": 0.0,
        "vram_envelope_mb": 4096,
        "vram_warning": False,
    }
    engine.attachments.attach_set(
        [(imported(saes, tmp_path, "one", seed=1), 1), (imported(saes, tmp_path, "two", seed=2), 2)]
    )
    engine.hand_steering.set_value(3, 1.5, sae_id="two")
    engine.monitor.configure(sae_id="one")
    assert wire(viewer.first()) == {
        "is_attached": True,
        "sae_id": "one",
        "layer": 1,
        "memory_usage_mb": 0.02,
        "steering_enabled": False,
        "monitoring_enabled": True,
        "steering_apply_count": 10,
    }
    assert wire(viewer.all().entries[1]) == {
        "sae_id": "two",
        "layer": 2,
        "memory_usage_mb": 0.02,
        "steering_enabled": True,
        "monitoring_enabled": False,
        "steering_apply_count": 20,
    }


def test_mirrors_are_exact(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    record, _ = saes.import_local(make_mirror_sae(tmp_path / "mirror", scale=2.0))
    engine.attachments.attach(record.id)
    sae = engine.desk.state.attachments[0].sae
    assert sae.decoder_row(0)[:3].tolist() == [2.0, 0.0, 0.0]
    assert sae.decoder_row(32)[:3].tolist() == [-2.0, 0.0, 0.0]
