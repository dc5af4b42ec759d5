"""Import of GGUF files: by reference and as copies, alone, in parts, several side by side."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.actions.models.importing import import_local_model, look_at_local_model
from engine.errors import AmbiguousModelName, CheckpointInvalid, InvalidLocalPath, InvalidParameter, ModelAlreadyExists
from engine.events import EventBus
from engine.library.database import Library
from engine.library.records import EngineKind, ModelSource
from engine.models.inspection.gguf_file import inspect_gguf
from engine.models.inspection.names import resolve_name
from tests.gguf_files import build_gguf

GgufMaker = Callable[[str], Path]


@pytest.fixture
def bus() -> EventBus:
    return EventBus()


def test_a_file_becomes_a_row(library: Library, bus: EventBus, gguf_file: GgufMaker) -> None:
    record = import_local_model(library, bus, gguf_file("Q8_0"))
    assert (record.name, record.gguf_label, record.quantization) == ("tiny:Q8_0", "Q8_0", "Q8")
    assert (record.engine, record.source, record.local_path) == (
        EngineKind.LLAMACPP,
        ModelSource.LOCAL,
        str(gguf_file("Q8_0")),
    )
    assert (record.params, record.context_length, record.architecture) == (62_752, 2048, "llama")
    assert record.has_chat_template is True
    with pytest.raises(ModelAlreadyExists):
        import_local_model(library, bus, gguf_file("Q8_0"), name="other")


def test_several_quantisations_side_by_side(library: Library, bus: EventBus, gguf_file: GgufMaker) -> None:
    first = import_local_model(library, bus, gguf_file("Q8_0"))
    assert resolve_name("tiny", library.models.list()) == first  # A188
    second = import_local_model(library, bus, gguf_file("Q4_0"))
    with pytest.raises(AmbiguousModelName, match="tiny:Q4_0, tiny:Q8_0"):
        resolve_name("tiny", library.models.list())
    assert resolve_name("tiny:Q4_0", library.models.list()) == second
    assert first.local_path != second.local_path


def test_a_copy_is_ours(library: Library, bus: EventBus, gguf_file: GgufMaker, tmp_path: Path) -> None:
    source = shutil.copy(gguf_file("Q8_0"), tmp_path / "tiny-Q8_0.gguf")
    record = import_local_model(library, bus, Path(source), copy=True)
    copied = Path(record.local_path or "")
    assert copied.parent.parent == library.path.parent / "models"
    assert copied.read_bytes() == gguf_file("Q8_0").read_bytes()
    assert [path.name for path in copied.parent.iterdir()] == ["tiny-Q8_0.gguf"]


def test_a_copy_of_a_checkpoint(library: Library, bus: EventBus, tiny_checkpoint: Path) -> None:
    record = import_local_model(library, bus, tiny_checkpoint, copy=True)
    folder = Path(record.local_path or "")
    assert folder == library.path.parent / "models" / "tiny-llama"
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in tiny_checkpoint.iterdir())


def test_a_copy_that_is_cancelled_leaves_nothing(library: Library, bus: EventBus, gguf_file: GgufMaker) -> None:
    class Enough(Exception):
        pass

    def check() -> None:
        raise Enough

    with pytest.raises(Enough):
        import_local_model(library, bus, gguf_file("Q8_0"), copy=True, check=check)
    assert list((library.path.parent / "models").iterdir()) == []
    assert library.models.list() == []


def test_a_split_set_by_any_part(library: Library, bus: EventBus, tiny_checkpoint: Path, tmp_path: Path) -> None:
    first = build_gguf(tiny_checkpoint, tmp_path / "set" / "tiny-F32.gguf", max_tensors=15)
    record = import_local_model(library, bus, first.with_name(first.name.replace("00001-of", "00003-of")))
    assert (record.name, record.local_path, record.gguf_label) == ("tiny:F32", str(first), "F32")
    with pytest.raises(ModelAlreadyExists):
        import_local_model(library, bus, first)


def test_a_copy_of_a_split_set_is_whole(library: Library, bus: EventBus, tiny_checkpoint: Path, tmp_path: Path) -> None:
    first = build_gguf(tiny_checkpoint, tmp_path / "set" / "tiny-F32.gguf", max_tensors=15)
    record = import_local_model(library, bus, first, copy=True)
    copied = Path(record.local_path or "")
    assert copied.parent == library.path.parent / "models" / "tiny-F32"
    for path in first.parent.iterdir():
        assert (copied.parent / path.name).read_bytes() == path.read_bytes()
    assert len(inspect_gguf(copied).files) == 3 == len(list(copied.parent.iterdir()))


def test_what_lies_there_is_said_before_it_is_added(
    library: Library, bus: EventBus, gguf_file: GgufMaker, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    plain = build_gguf(tiny_checkpoint, tmp_path / "plain-F32.gguf", chat_template=None)
    found = look_at_local_model(library, plain)
    assert (found.row.name, found.row.architecture, found.row.context_length) == ("plain:F32", "llama", 2048)
    assert (found.row.gguf_label, found.row.has_chat_template, found.files) == ("F32", False, 1)
    assert found.known_as is None and library.models.list() == []
    import_local_model(library, bus, gguf_file("Q8_0"), name="mine")
    assert look_at_local_model(library, gguf_file("Q8_0")).known_as == "mine"
    checkpoint = look_at_local_model(library, tiny_checkpoint)
    assert (checkpoint.row.engine, checkpoint.row.has_chat_template) == (EngineKind.TRANSFORMERS, True)


def test_a_folder_with_one_gguf_and_with_several(
    library: Library, bus: EventBus, gguf_file: GgufMaker, tmp_path: Path
) -> None:
    folder = tmp_path / "models here"
    folder.mkdir()
    shutil.copy(gguf_file("Q8_0"), folder / "tiny-Q8_0.gguf")
    (folder / "mmproj-F16.gguf").write_bytes(b"GGUF")
    assert import_local_model(library, bus, folder).name == "tiny:Q8_0"
    shutil.copy(gguf_file("Q4_0"), folder / "tiny-Q4_0.gguf")
    with pytest.raises(CheckpointInvalid, match="2 GGUF models: tiny-Q4_0, tiny-Q8_0"):
        import_local_model(library, bus, folder)


def test_what_cannot_be_imported(library: Library, bus: EventBus, gguf_file: GgufMaker, tmp_path: Path) -> None:
    with pytest.raises(InvalidLocalPath):
        import_local_model(library, bus, tmp_path / "nothing.gguf")
    broken = tmp_path / "broken-Q8_0.gguf"
    broken.write_bytes(gguf_file("Q8_0").read_bytes()[:-1])
    with pytest.raises(CheckpointInvalid, match="cut short"):
        import_local_model(library, bus, broken)
    with pytest.raises(InvalidParameter, match="stays that"):
        import_local_model(library, bus, gguf_file("Q8_0"), quantization="Q4")
    assert library.models.list() == []


def test_a_checkpoint_at_two_levels(library: Library, bus: EventBus, tiny_checkpoint: Path) -> None:
    plain = import_local_model(library, bus, tiny_checkpoint)
    half = import_local_model(library, bus, tiny_checkpoint, quantization="FP16")
    assert (plain.name, half.name, half.quantization) == ("tiny-llama", "tiny-llama:FP16", "FP16")
    with pytest.raises(ModelAlreadyExists):
        import_local_model(library, bus, tiny_checkpoint, quantization="FP16")


def test_a_blob_without_a_name(library: Library, bus: EventBus, gguf_file: GgufMaker, tmp_path: Path) -> None:
    blob = tmp_path / f"sha256-{'b' * 64}"
    shutil.copy(gguf_file("Q8_0"), blob)
    record = import_local_model(library, bus, blob)
    # The file calls itself after the folder it was made from; the label is its header's.
    assert (record.name, record.gguf_label, record.local_path) == ("tiny-llama:Q8_0", "Q8_0", str(blob))


def test_a_file_whose_name_states_no_quantisation_gets_no_tag(
    library: Library, bus: EventBus, gguf_file: GgufMaker, tmp_path: Path
) -> None:
    plain = shutil.copy(gguf_file("Q8_0"), tmp_path / "smol.gguf")
    record = import_local_model(library, bus, Path(plain))
    assert (record.name, record.gguf_label, record.quantization) == ("smol", "Q8_0", "Q8")
