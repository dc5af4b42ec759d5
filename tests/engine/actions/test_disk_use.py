"""What models and SAEs take on the disk: where the files lie, each counted once, and the same in every place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.engine import Engine
from engine.library.records import EngineKind, ModelRecord, ModelSource
from tests.conftest import EngineMaker
from tests.made_saes import make_sae


@pytest.fixture
def engine(make_engine: EngineMaker) -> Engine:
    return make_engine(None)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_where_files_lie_is_not_whether_they_go_with_the_row(
    engine: Engine, tiny_checkpoint: Path, gguf_file: Callable[[str], Path], tmp_path: Path
) -> None:
    data = engine.library.path.parent
    demo = shutil.copytree(tiny_checkpoint, data / "models" / "demo" / "tiny" / "checkpoint")
    engine.library.models.add(
        ModelRecord("demo", ModelSource.DEMO, EngineKind.TRANSFORMERS, local_path=str(demo), disk_size_mb=1.5)
    )
    engine.models.import_local(
        Path(shutil.copy(gguf_file("F32"), data / "models" / "tiny-F32.gguf")), name="by reference"
    )
    engine.models.import_local(tiny_checkpoint, name="copied", copy=True)
    engine.models.import_local(tiny_checkpoint, name="elsewhere")
    engine.saes.import_local(make_sae(tmp_path / "sea"), copy=True)
    whole, gguf = size_of(tiny_checkpoint), gguf_file("F32").stat().st_size
    sae = engine.saes.list()[0].file_size_bytes
    use = engine.models.disk_use()
    assert {each.name: (each.bytes, each.here, each.ours) for each in use.items} == {
        "demo": (whole, True, False),
        "elsewhere": (whole, False, False),
        "by reference": (gguf, True, False),
        "copied": (whole, True, True),
        "sea--layer_1": (sae, True, True),
    }
    assert (use.models_bytes, use.saes_bytes, use.elsewhere_bytes) == (2 * whole + gguf, sae, whole)
    assert use.ours_bytes == whole + (sae or 0)
    # A row says what its files take now, whatever was noted once.
    assert {view.name: view.disk_size_mb for view in engine.models.list()} == {
        "demo": round(whole / 1e6, 2),
        "elsewhere": round(whole / 1e6, 2),
        "by reference": round(gguf / 1e6, 2),
        "copied": round(whole / 1e6, 2),
    }


def test_files_of_two_rows_are_counted_once(engine: Engine, tiny_checkpoint: Path, tmp_path: Path) -> None:
    first = engine.models.import_local(tiny_checkpoint, copy=True)
    engine.models.import_local(Path(first.local_path or ""), name="half", quantization="FP16")
    # And under another name in another folder.
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in tiny_checkpoint.iterdir():
        os.link(path, linked / path.name)
    engine.models.import_local(tiny_checkpoint, name="one")
    engine.models.import_local(linked, name="two")
    whole = size_of(tiny_checkpoint)
    use = engine.models.disk_use()
    assert [each.bytes for each in use.items] == [whole] * 4
    assert (use.models_bytes, use.ours_bytes, use.elsewhere_bytes) == (whole, whole, whole)


def test_files_that_are_gone_take_nothing(engine: Engine, tiny_checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "away")
    view = engine.models.import_local(folder)
    shutil.rmtree(folder)
    use = engine.models.disk_use()
    assert (use.items, use.elsewhere_bytes) == ((), 0)
    # The row still says how large it was.
    assert engine.models.get(view.id).disk_size_mb == view.disk_size_mb
