"""Import of an SAE on this machine: by reference or as a copy, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.actions.durable_files import copy_file
from engine.actions.saes import SaeActions, files
from engine.actions.saes.errors import SaeAlreadyAttached
from engine.actions.written import MARKER
from engine.engine import Engine
from engine.errors import DataDirectoryUnusable, InsufficientDisk, InsufficientMemory, InvalidParameter, MillmError
from engine.events import SaesChanged
from engine.library.errors import SaeAlreadyExists, SaeNotFound
from engine.library.records import SaeRecord, SaeSource, SaeStatus
from engine.models.hardware import devices
from engine.saes.errors import SaeFormatUnknown, SaeLoadFailed, SaeNotSteerable
from engine.wire import wire
from tests.engine.actions.saes.driving import hearing
from tests.made_saes import make_mirror_sae, make_sae, write_sae

EngineMaker = Callable[..., Engine]


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    return make_engine(None)


@pytest.fixture
def saes(engine: Engine) -> SaeActions:
    return engine.saes


def data(engine: Engine) -> Path:
    return engine.library.path.parent


def copies(engine: Engine) -> list[str]:
    root = data(engine) / "saes"
    return sorted(entry.name for entry in root.iterdir()) if root.exists() else []


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


# --- by reference ----------------------------------------------------------------------------------------------------


def test_a_folder_becomes_a_row_and_stays_as_it_was(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    heard = hearing(engine, SaesChanged)
    folder = make_sae(tmp_path / "sea saes", architecture="topk", layer=2, k=4, model_name="acme/tiny")
    before = contents(folder)
    record, created = saes.import_local(folder)
    assert created and contents(folder) == before
    assert (record.id, record.name, record.source) == ("sea-saes--layer_2", "sea-saes--layer_2", SaeSource.LOCAL)
    assert (record.format, record.architecture, record.k) == ("saelens", "topk", 4)
    assert (record.d_in, record.d_sae, record.width, record.dtype) == (32, 64, "64", "float32")
    assert (record.trained_on, record.trained_layer) == ("acme/tiny", 2)
    assert record.hook_name == "blocks.2.hook_resid_post"
    assert (record.normalize_activations, record.apply_b_dec_to_input) == ("none", True)
    assert (record.local_path, record.copied) == (str(folder / "sae_weights.safetensors"), False)
    assert record.file_size_bytes == sum(len(value) for value in before.values())
    assert (record.measured_l0, record.measured_variance_explained, record.measured_at) == (None, None, None)
    assert record.assumed == () and record.status is SaeStatus.CACHED
    assert record.config["hook"] == "resid_post" and record.config["k"] == 4
    assert saes.list() == [record] and saes.get(record.id) == record
    assert heard == [SaesChanged()] and copies(engine) == []


def test_what_was_assumed_is_stored(saes: SaeActions, tmp_path: Path) -> None:
    folder = make_sae(tmp_path / "plain", layer=None, apply_b_dec_to_input=None, l0=12.5)
    record, _ = saes.import_local(folder, sae_id="My.SAE@1", layer=3)
    assert (record.id, record.trained_layer, record.source_l0) == ("My.SAE@1", 3, 12.5)
    assert record.assumed[-1] == "Layer 3 was given by hand; the files do not say one."
    assert any("SAELens's default, yes, was assumed" in line for line in record.assumed)


def test_turned_matrices_are_transposed_and_said(saes: SaeActions, tmp_path: Path) -> None:
    rows = torch.eye(4).repeat(2, 1)[:6]
    weights = {"W_enc": rows, "W_dec": rows, "b_enc": torch.zeros(6), "b_dec": torch.zeros(4)}
    folder = write_sae(tmp_path / "turned", weights, architecture="standard", hook_name="blocks.1.hook_resid_post")
    record, _ = saes.import_local(folder)
    assert (record.d_in, record.d_sae) == (4, 6)
    assert any("was transposed" in line for line in record.assumed)


def test_square_matrices_that_do_not_tell_are_refused(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    folder = make_sae(tmp_path / "square", d_in=16, d_sae=16)
    noise = torch.randn(16, 16, generator=torch.Generator().manual_seed(3))
    weights = {"W_enc": noise, "W_dec": make_noise(4), "b_enc": torch.zeros(16), "b_dec": torch.zeros(16)}
    write_sae(folder, weights, architecture="standard", hook_name="blocks.1.hook_resid_post")
    with pytest.raises(SaeLoadFailed, match="do not tell which way"):
        saes.import_local(folder, copy=True)
    assert engine.library.saes.list() == [] and copies(engine) == []


def make_noise(seed: int) -> torch.Tensor:
    return torch.randn(16, 16, generator=torch.Generator().manual_seed(seed))


def test_the_same_files_again_are_the_same_row(saes: SaeActions, tmp_path: Path) -> None:
    folder = make_sae(tmp_path / "sea")
    first, _ = saes.import_local(folder, sae_id="one")
    elsewhere = shutil.copytree(folder, tmp_path / "elsewhere")
    again, created = saes.import_local(elsewhere, sae_id="two")
    assert (again, created) == (first, False)
    assert len(saes.list()) == 1


def test_the_same_files_with_a_layer_teach_the_row_its_layer(saes: SaeActions, tmp_path: Path) -> None:
    folder = make_sae(tmp_path / "sea", layer=None)
    first, _ = saes.import_local(folder)
    assert first.trained_layer is None
    again, created = saes.import_local(folder, layer=2)
    assert not created and again.trained_layer == 2
    assert again.assumed == (*first.assumed, "Layer 2 was given by hand.")


def test_the_same_files_replace_a_path_that_is_gone(saes: SaeActions, tmp_path: Path) -> None:
    folder = make_sae(tmp_path / "sea")
    first, _ = saes.import_local(folder)
    moved = folder.rename(tmp_path / "moved")
    again, created = saes.import_local(moved)
    assert not created and again.id == first.id
    assert again.local_path == str(moved / "sae_weights.safetensors")


def test_an_id_that_is_taken(saes: SaeActions, tmp_path: Path) -> None:
    saes.import_local(make_sae(tmp_path / "a", seed=1), sae_id="sea")
    with pytest.raises(SaeAlreadyExists) as refusal:
        saes.import_local(make_sae(tmp_path / "b", seed=2), sae_id="sea")
    assert refusal.value.details == {"existing_sae_id": "sea"}
    assert len(saes.list()) == 1


def test_a_failed_row_gives_way(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    engine.library.saes.add(SaeRecord("sea", "sea", SaeSource.HUGGINGFACE, status=SaeStatus.ERROR))
    record, created = saes.import_local(make_sae(tmp_path / "a"), sae_id="sea")
    assert created and record.status is SaeStatus.CACHED


@pytest.mark.parametrize(
    ("sae_id", "why"),
    [("", "not allowed"), ("a/b", "not allowed"), ("..", "not allowed"), ("x" * 101, "not allowed"), (".a", "a dot")],
)
def test_ids_that_no_folder_may_have(saes: SaeActions, tmp_path: Path, sae_id: str, why: str) -> None:
    with pytest.raises(InvalidParameter, match=why) as refusal:
        saes.import_local(make_sae(tmp_path / "a"), sae_id=sae_id)
    assert refusal.value.param == "sae_id"


@pytest.mark.parametrize("layer", [-1, True, 1.5, "2"])
def test_layers_that_are_none(saes: SaeActions, tmp_path: Path, layer: object) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        saes.import_local(make_sae(tmp_path / "a"), layer=layer)  # type: ignore[arg-type]
    assert refusal.value.param == "layer"


@pytest.mark.parametrize("path", ["sae", "/etc", "/proc/self", "/dev/shm/x", "/a\0b", "/a\ud800"])
def test_paths_that_cannot_be_used(saes: SaeActions, path: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        saes.import_local(Path(path))
    assert refusal.value.param == "path"


def test_a_link_into_a_system_folder(saes: SaeActions, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(InvalidParameter, match="operating system"):
        saes.import_local(tmp_path / "link")


def test_nothing_there(saes: SaeActions, tmp_path: Path) -> None:
    with pytest.raises(SaeFormatUnknown):
        saes.import_local(tmp_path / "nowhere")


def test_a_truncated_file_leaves_nothing(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    folder = make_sae(tmp_path / "cut")
    weights = folder / "sae_weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(SaeLoadFailed):
        saes.import_local(folder, copy=True)
    assert engine.library.saes.list() == [] and copies(engine) == []


def test_a_pickle_with_code_is_not_run(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return os.rename, (str(tmp_path / "before"), str(tmp_path / "after"))

    (tmp_path / "before").mkdir()
    torch.save({"W_enc": Code()}, tmp_path / "ae.pt")
    with pytest.raises(SaeLoadFailed):
        saes.import_local(tmp_path / "ae.pt")
    assert (tmp_path / "before").exists() and engine.library.saes.list() == []


def test_values_that_are_no_numbers(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    rows = torch.eye(4)
    rows[2, 2] = float("nan")
    weights = {"W_enc": rows[:, :3], "W_dec": rows[:3], "b_enc": torch.zeros(3), "b_dec": torch.zeros(4)}
    folder = write_sae(tmp_path / "nan", weights, architecture="standard", hook_name="blocks.1.hook_resid_post")
    with pytest.raises(SaeLoadFailed, match="NaN"):
        saes.import_local(folder)
    assert engine.library.saes.list() == []


@pytest.mark.parametrize("hook", ["blocks.3.hook_mlp_out", "blocks.3.attn.hook_z", "blocks.0.hook_resid_pre"])
def test_what_cannot_steer_is_refused(engine: Engine, saes: SaeActions, tmp_path: Path, hook: str) -> None:
    with pytest.raises(SaeNotSteerable):
        saes.import_local(make_sae(tmp_path / "a", hook_name=hook))
    assert engine.library.saes.list() == []


def test_resid_pre_belongs_to_the_block_whose_output_it_reads(saes: SaeActions, tmp_path: Path) -> None:
    record, _ = saes.import_local(make_sae(tmp_path / "a", hook_name="blocks.3.hook_resid_pre"))
    assert (record.trained_layer, record.hook_name) == (2, "blocks.3.hook_resid_pre")


def test_too_little_memory_to_read_it(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "available_memory", lambda device: 1000)
    with pytest.raises(InsufficientMemory) as refusal:
        saes.import_local(make_sae(tmp_path / "a"))
    assert refusal.value.details["projected_mb"] == 0.02
    assert engine.library.saes.list() == []


def test_a_snapshot_of_the_hub_is_called_by_its_repository(saes: SaeActions, tmp_path: Path) -> None:
    cache = tmp_path / "models--acme--tiny-saes"
    commit = "0123456789abcdef0123456789abcdef01234567"
    blobs, inner = cache / "blobs", cache / "snapshots" / commit / "layer_2" / "width_64"
    made = make_sae(tmp_path / "made", layer=2)
    blobs.mkdir(parents=True)
    inner.mkdir(parents=True)
    for number, file in enumerate(sorted(made.iterdir())):
        shutil.copy(file, blobs / str(number))
        (inner / file.name).symlink_to(blobs / str(number))
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    record, _ = saes.import_local(inner)
    assert (record.id, record.repository_id) == ("acme--tiny-saes--layer_2--width_64", "acme/tiny-saes")
    assert record.revision == "main"
    assert record.local_path == str(inner / "sae_weights.safetensors")


# --- as a copy -------------------------------------------------------------------------------------------------------


def test_a_copy_outlives_its_source(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    folder = make_sae(tmp_path / "sea", layer=2)
    before = contents(folder)
    record, created = saes.import_local(folder, copy=True)
    shutil.rmtree(folder)
    assert created and record.copied
    assert copies(engine) == ["sea--layer_2"]
    assert contents(data(engine) / "saes" / "sea--layer_2") == before
    assert record.local_path == str(data(engine) / "saes" / "sea--layer_2" / "sae_weights.safetensors")


def test_a_copy_keeps_the_folders_that_say_what_it_is(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    """Qwen Scope says only in a folder's name how many features stay: the copy must say so too."""
    folder = tmp_path / "SAE-Res-Qwen3-8B-Base-W64K-L0_50"
    folder.mkdir()
    rows = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
    weights = {"W_enc": rows, "W_dec": rows.T.contiguous(), "b_enc": torch.zeros(64), "b_dec": torch.zeros(32)}
    torch.save(weights, folder / "layer3.sae.pt")
    record, _ = saes.import_local(folder / "layer3.sae.pt", sae_id="qwen", copy=True)
    assert (record.k, record.trained_layer, record.source_l0) == (50, 3, 50.0)
    inner = data(engine) / "saes" / "qwen" / "SAE-Res-Qwen3-8B-Base-W64K-L0_50" / "layer3.sae.pt"
    assert record.local_path == str(inner) and inner.is_file()


def test_a_copy_of_gemma_scope(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    folder = tmp_path / "gemma-scope-2b-pt-res" / "layer_3" / "width_16k" / "average_l0_71"
    folder.mkdir(parents=True)
    rows = np.eye(4, dtype=np.float32)[[0, 1, 2, 3, 0, 1]]
    zeros = np.zeros(6, np.float32)
    np.savez(
        folder / "params.npz", W_enc=rows.T, W_dec=rows, b_enc=zeros, b_dec=np.zeros(4, np.float32), threshold=zeros
    )
    record, _ = saes.import_local(folder, copy=True)
    assert (record.trained_on, record.trained_layer) == ("google/gemma-2-2b", 3)
    assert (record.width, record.average_l0, record.source_l0) == ("16k", 71.0, 71.0)
    assert copies(engine) == ["average_l0_71--layer_3"]


def test_a_copy_of_sparsify_keeps_its_run_settings(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    from tests.engine.saes.small import write_json, write_safetensors
    from tests.engine.saes.sources import SPARSIFY, SPARSIFY_CFG

    run = tmp_path / "run"
    write_json(run / "config.json", {"model": "acme/tiny", "ctx_len": 256})
    write_safetensors(run / "layers.5" / "sae.safetensors", SPARSIFY)
    write_json(run / "layers.5" / "cfg.json", SPARSIFY_CFG)
    record, _ = saes.import_local(run / "layers.5", sae_id="sparse", copy=True)
    assert (record.format, record.trained_layer, record.trained_on) == ("sparsify", 5, "acme/tiny")
    assert sorted(contents(data(engine) / "saes" / "sparse")) == [
        "config.json",
        "layers.5/cfg.json",
        "layers.5/sae.safetensors",
    ]


def test_ids_that_differ_in_case_do_not_share_a_folder(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    saes.import_local(make_sae(tmp_path / "a", seed=1), sae_id="Sea", copy=True)
    with pytest.raises(SaeAlreadyExists) as refusal:
        saes.import_local(make_sae(tmp_path / "b", seed=2), sae_id="sEA", copy=True)
    assert refusal.value.details == {"existing_sae_id": "Sea"}
    assert copies(engine) == ["Sea"] and len(saes.list()) == 1


def test_a_reference_becomes_a_copy(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    folder = make_sae(tmp_path / "sea")
    first, _ = saes.import_local(folder)
    again, created = saes.import_local(folder, copy=True)
    assert not created and again.copied and again.id == first.id
    assert Path(str(again.local_path)).is_relative_to(data(engine) / "saes" / first.id)
    assert sorted(contents(data(engine) / "saes" / first.id)) == ["cfg.json", "sae_weights.safetensors"]


def test_a_full_disk_leaves_nothing(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(InsufficientDisk) as refusal:
        saes.import_local(make_sae(tmp_path / "a"), copy=True)
    assert refusal.value.details["free_mb"] == 0.0
    assert copies(engine) == [] and saes.list() == []


@pytest.mark.parametrize(
    ("number", "error"), [(28, InsufficientDisk), (5, DataDirectoryUnusable)], ids=["no space", "broken disk"]
)
def test_a_failed_write_leaves_nothing(
    engine: Engine,
    saes: SaeActions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    error: type[MillmError],
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(error):
        saes.import_local(make_sae(tmp_path / "a"), copy=True)
    assert copies(engine) == [] and saes.list() == []


def test_files_that_change_while_they_are_copied(
    engine: Engine, saes: SaeActions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_sae(tmp_path / "a")

    def meddle(source: Path, target: Path) -> None:
        config = json.loads((folder / "cfg.json").read_text())
        (folder / "cfg.json").write_text(json.dumps({**config, "touched": True}))
        copy_file(source, target)

    monkeypatch.setattr(files, "copy_file", meddle)
    with pytest.raises(SaeLoadFailed, match="changed while"):
        saes.import_local(folder, copy=True)
    assert copies(engine) == [] and saes.list() == []


def test_many_imports_at_once_make_one_row(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    folder = make_sae(tmp_path / "sea")
    gate = threading.Barrier(6)

    def run(number: int) -> tuple[str, bool]:
        gate.wait(60)
        record, created = saes.import_local(folder, copy=number % 2 == 0)
        return record.id, created

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(run, range(6)))
    assert {sae_id for sae_id, _ in found} == {"sea--layer_1"}
    assert [created for _, created in found].count(True) == 1
    (record,) = saes.list()
    assert record.copied and copies(engine) == ["sea--layer_1"]
    assert not (data(engine) / "saes" / "sea--layer_1" / MARKER).exists()


# --- remove ----------------------------------------------------------------------------------------------------------


def test_removing_a_reference_keeps_its_files(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    folder = make_sae(tmp_path / "sea")
    record, _ = saes.import_local(folder)
    result = saes.delete(record.id)
    assert wire(result) == {"status": "deleted", "sae_id": record.id, "freed_disk_mb": 0.0}
    assert saes.list() == [] and (folder / "sae_weights.safetensors").is_file()
    with pytest.raises(SaeNotFound):
        saes.delete(record.id)


def test_removing_a_copy_frees_the_disk(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    record, _ = saes.import_local(make_sae(tmp_path / "sea", d_sae=4096), copy=True)
    heard = hearing(engine, SaesChanged)
    assert saes.delete(record.id).freed_disk_mb == 1.07
    assert saes.list() == [] and copies(engine) == [] and heard == [SaesChanged()]


def test_a_sweep_touches_nothing_of_the_persons_own(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    assert saes.sweep() == ()
    record, _ = saes.import_local(make_sae(tmp_path / "sea"), copy=True)
    own = make_sae(data(engine) / "saes" / "put here by hand", seed=5)
    (data(engine) / "saes" / ".importing-abc").mkdir()
    assert saes.sweep() == (".importing-abc",)
    assert copies(engine) == ["put here by hand", record.id] and (own / "cfg.json").is_file()


def test_errors_carry_their_codes() -> None:
    assert SaeAlreadyAttached.code == "sae_already_attached"
    assert InsufficientDisk.code == "insufficient_disk"


# --- measured while it is imported -----------------------------------------------------------------------------------


def test_an_import_with_a_fitting_model_is_measured(make_engine: EngineMaker, tmp_path: Path) -> None:
    engine = make_engine()
    record, created = engine.saes.import_local(make_mirror_sae(tmp_path / "mirror", layer=2))
    assert created and record.measured_l0 == 32.0
    assert record.measured_variance_explained == pytest.approx(1.0, abs=1e-9)
    assert record.measured_at is not None and record.dead_share == 0.0


@pytest.mark.parametrize("how", [{"d_in": 16}, {"layer": 9}, {"model_name": "acme/other"}, {"layer": None}])
def test_an_import_for_another_model_is_not_measured(
    make_engine: EngineMaker, tmp_path: Path, how: dict[str, object]
) -> None:
    engine = make_engine()
    record, _ = engine.saes.import_local(make_sae(tmp_path / "a", **how))  # type: ignore[arg-type]
    assert record.measured_l0 is None


def test_what_a_link_beside_an_sae_leads_to_is_not_copied(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    folder = make_sae(tmp_path / "sea")
    (tmp_path / "secret").write_text("not for copying")
    (folder / "sparsity.safetensors").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidParameter, match="outside of the folder") as caught:
        saes.import_local(folder, copy=True)
    assert caught.value.param == "path"
    assert copies(engine) == [] and saes.list() == []


def test_an_sae_in_a_snapshot_of_links_is_copied_as_files(engine: Engine, saes: SaeActions, tmp_path: Path) -> None:
    made = make_sae(tmp_path / "made")
    repository = tmp_path / "hub" / "models--owner--saes"
    snapshot = repository / "snapshots" / ("a" * 40) / "layer_1"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for number, path in enumerate(sorted(made.iterdir())):
        shutil.copy(path, repository / "blobs" / f"{number:040x}")
        (snapshot / path.name).symlink_to(f"../../../blobs/{number:040x}")
    record, _ = saes.import_local(snapshot, sae_id="sea", copy=True)
    copied = Path(record.local_path or "").parent
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == {
        path.name: path.read_bytes() for path in made.iterdir()
    }
    assert not any(path.is_symlink() for path in copied.iterdir())
