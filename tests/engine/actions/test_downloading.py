"""Models from a hub that breaks off, lies, refuses, dawdles: what is here afterwards, and what the row says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.actions.downloading.transfer import Cancellation, backoff_seconds
from engine.engine import Engine
from engine.errors import (
    CheckpointInvalid,
    GatedRepo,
    HubOffline,
    HubUnavailable,
    InsufficientDisk,
    InvalidHfToken,
    InvalidParameter,
    MillmError,
    ModelAlreadyExists,
    ModelBusy,
    RepoNotFound,
)
from engine.events import (
    Event,
    ModelDownloadComplete,
    ModelDownloadError,
    ModelDownloadProgress,
)
from engine.library.records import EngineKind, ModelSource, ModelStatus
from tests.conftest import EngineMaker
from tests.engine.actions.fetching import REPO, WEIGHTS, ask, ended
from tests.gguf_files import build_gguf
from tests.hub import COMMIT, StandInHub
from tests.waiting import wait_until


@pytest.fixture
def engine(make_engine: EngineMaker, hub: StandInHub, tiny_checkpoint: Path) -> Engine:
    """An engine without a model, and a hub that has one."""
    hub.add_folder(REPO, tiny_checkpoint)
    running = make_engine(None)
    running.models.downloads.wait = lambda cancellation, seconds: cancellation.check()
    return running


def test_a_checkpoint_comes_in_and_runs(engine: Engine, hub: StandInHub, tiny_checkpoint: Path) -> None:
    heard: list[Event] = []
    engine.events.subscribe(heard.append, ModelDownloadProgress, ModelDownloadComplete, ModelDownloadError)
    row = engine.models.download(ask())
    assert (row.status, row.name, row.source, row.repo_id) == ("downloading", "tiny-llama", "huggingface", REPO)
    assert ended(engine, row.id) is ModelStatus.READY
    record = engine.shelf.get(row.id)
    assert (record.revision, record.params, record.context_length) == (COMMIT, 62_752, 2048)
    assert record.architecture == "LlamaForCausalLM"
    folder = Path(record.local_path or "")
    assert folder == engine.library.path.parent / "models" / "made--tiny-llama@0123456789ab"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in tiny_checkpoint.iterdir()
    }
    assert not (folder.parent / ".downloading" / folder.name).exists()
    last = [event for event in heard if isinstance(event, ModelDownloadProgress)][-1]
    size = sum(path.stat().st_size for path in tiny_checkpoint.iterdir())
    assert (last.progress, last.downloaded_bytes, last.total_bytes) == (100.0, size, size)
    assert heard[-1] == ModelDownloadComplete(row.id, "tiny-llama")
    loaded = engine.loader.load(row.id).result(60)
    assert loaded.info.n_layers == 4
    engine.loader.unload().result(60)


def test_a_cut_is_gone_on_with_where_it_was(engine: Engine, hub: StandInHub) -> None:
    hub.cuts[WEIGHTS] = [0.6]
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.READY
    first, second = hub.fetched(WEIGHTS)
    length = len(hub.repos[REPO].files[WEIGHTS])
    assert (first.range, second.range) == (None, f"bytes={int(length * 0.6)}-")


def test_a_hub_that_knows_no_ranges(engine: Engine, hub: StandInHub) -> None:
    hub.cuts[WEIGHTS] = [0.6]
    hub.ignore_ranges = True
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.READY


def test_three_cuts_are_an_error_and_the_next_try_goes_on(engine: Engine, hub: StandInHub) -> None:
    hub.cuts[WEIGHTS] = [0.2, 0.4, 0.6]
    waits: list[float] = []
    engine.models.downloads.wait = lambda cancellation, seconds: waits.append(seconds)
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.ERROR
    failed = engine.shelf.get(row.id)
    assert "3 attempts" in (failed.error_message or "") and WEIGHTS in (failed.error_message or "")
    assert waits == [2.0, 4.0]
    # Nothing of it is under its final name.
    assert not Path(failed.local_path or "").exists()
    with pytest.raises(MillmError):
        engine.loader.load(row.id).result(30)
    again = engine.models.download(ask())
    assert again.id == row.id
    assert ended(engine, row.id) is ModelStatus.READY
    length = len(hub.repos[REPO].files[WEIGHTS])
    assert hub.fetched(WEIGHTS)[-1].range == f"bytes={int(length * 0.6)}-"
    # Small files were whole already and were not fetched again.
    assert len(hub.fetched("config.json")) == 1


def test_waits_grow_to_half_a_minute() -> None:
    assert [backoff_seconds(n) for n in (1, 2, 3, 4, 5, 9)] == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_another_hash_is_never_a_model(engine: Engine, hub: StandInHub) -> None:
    true = hub.repos[REPO].files[WEIGHTS]
    hub.served[WEIGHTS] = [true[:-1] + bytes([true[-1] ^ 1])]
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.ERROR
    failed = engine.shelf.get(row.id)
    assert "checksum" in (failed.error_message or "")
    assert not Path(failed.local_path or "").exists()
    assert len(hub.fetched(WEIGHTS)) == 3
    del hub.served[WEIGHTS]
    assert ended(engine, engine.models.download(ask()).id) is ModelStatus.READY


def test_one_damaged_answer_is_mended_by_the_next(engine: Engine, hub: StandInHub) -> None:
    true = hub.repos[REPO].files["tokenizer.json"]
    hub.served["tokenizer.json"] = [b" " + true[1:], true]
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.READY


@pytest.mark.parametrize("way", ["longer", "shorter"])
def test_another_size_is_an_error(engine: Engine, hub: StandInHub, way: str) -> None:
    true = hub.repos[REPO].files[WEIGHTS]
    hub.served[WEIGHTS] = [true + b"x" if way == "longer" else true[:-7]]
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.ERROR
    message = engine.shelf.get(row.id).error_message or ""
    assert f"{len(true)} bytes" in message


def test_a_server_that_fails_twice(engine: Engine, hub: StandInHub) -> None:
    hub.statuses[WEIGHTS] = [503, 500]
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.READY


def test_cancelling_a_slow_download(engine: Engine, hub: StandInHub) -> None:
    heard: list[Event] = []
    engine.events.subscribe(heard.append, ModelDownloadError)
    hub.held[WEIGHTS] = 0.5
    row = engine.models.download(ask())
    assert hub.hanging.wait(30)
    growing = engine.library.path.parent / "models" / ".downloading" / "made--tiny-llama@0123456789ab"
    wait_until(lambda: (part := growing / f"{WEIGHTS}.part").exists() and part.stat().st_size, "bytes on the disk")
    view = engine.models.get(row.id)
    assert view.status == "downloading" and view.download_progress is not None and 0 < view.download_progress < 100
    with pytest.raises(ModelBusy):
        engine.models.load(row.id)
    cancelled = engine.models.cancel(row.id)  # A190
    assert (cancelled.status, cancelled.error_message) == ("error", "Download cancelled by user")
    assert heard == [ModelDownloadError(row.id, "tiny-llama", "download_cancelled", "Download cancelled by user")]
    hub.let_go.set()
    assert ended(engine, row.id) is ModelStatus.ERROR
    hub.held.clear()
    assert ended(engine, engine.models.download(ask()).id) is ModelStatus.READY
    assert hub.fetched(WEIGHTS)[-1].range is not None


def test_cancelling_during_a_wait_between_attempts(engine: Engine, hub: StandInHub) -> None:
    waiting = threading.Event()

    def wait(cancellation: Cancellation, seconds: float) -> None:
        waiting.set()
        cancellation.wait(3600)

    engine.models.downloads.wait = wait
    hub.statuses["config.json"] = [503] * 9
    row = engine.models.download(ask())
    assert waiting.wait(30)
    engine.models.cancel(row.id)
    assert ended(engine, row.id) is ModelStatus.ERROR


def test_a_download_in_line_can_be_cancelled_and_the_others_go_on(
    make_engine: EngineMaker, hub: StandInHub, tiny_checkpoint: Path
) -> None:
    engine = make_engine(None, MAX_DOWNLOAD_WORKERS=1)
    for name in ("a", "b", "c"):
        hub.add_folder(f"made/{name}", tiny_checkpoint)
    hub.held[WEIGHTS] = 0.5
    a, b, c = (engine.models.download(ask(f"made/{name}")) for name in ("a", "b", "c"))
    assert hub.hanging.wait(30)
    assert not [each for each in hub.asked if "/made/b/resolve" in each.path]
    assert engine.models.cancel(b.id).status == "error"
    hub.held.clear()
    hub.let_go.set()
    assert [ended(engine, row.id) for row in (a, b, c)] == [ModelStatus.READY, ModelStatus.ERROR, ModelStatus.READY]


def test_removing_a_download_under_way(engine: Engine, hub: StandInHub) -> None:
    hub.held[WEIGHTS] = 0.5
    row = engine.models.download(ask())
    assert hub.hanging.wait(30)
    hub.let_go.set()
    engine.models.delete(row.id)
    assert engine.library.models.list() == []
    folder = engine.library.path.parent / "models"
    assert [path for path in folder.rglob("*") if path.is_file()] == []


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_repositories_that_are_not_there(engine: Engine, hub: StandInHub) -> None:
    with pytest.raises(RepoNotFound, match="made/nothing"):
        engine.models.download(ask("made/nothing"))
    with pytest.raises(RepoNotFound, match="revision 'v9'"):
        engine.models.download(ask(revision="v9"))
    for bad in ("tiny", "a/b/c", "../x", "a/..", "a b/c"):
        with pytest.raises(InvalidParameter):
            engine.models.download(ask(bad))
    assert engine.library.models.list() == []


def test_a_gated_repository_wants_a_token(engine: Engine, hub: StandInHub, caplog: pytest.LogCaptureFixture) -> None:
    hub.repos[REPO].gated = True
    row = engine.models.download(ask())
    assert ended(engine, row.id) is ModelStatus.ERROR
    assert "gated" in (engine.shelf.get(row.id).error_message or "")
    caplog.set_level("DEBUG")
    again = engine.models.download(ask(token="hf_good"))
    assert again.id == row.id and ended(engine, row.id) is ModelStatus.READY
    assert hub.fetched(WEIGHTS)[-1].authorization == "Bearer hf_good"
    # The token is nowhere afterwards.
    assert "hf_good" not in caplog.text
    for file in engine.library.path.parent.glob("millm.db*"):
        assert b"hf_good" not in file.read_bytes()
    assert "hf_good" not in repr(engine.shelf.get(row.id))


def test_a_gated_preview_says_so(engine: Engine, hub: StandInHub) -> None:
    hub.repos[REPO].gated = True
    with pytest.raises(GatedRepo, match="gated"):
        engine.models.preview(REPO)
    with pytest.raises((GatedRepo, InvalidHfToken)):
        engine.models.preview(REPO, token="hf_bad")


def test_offline(make_engine: EngineMaker, hub: StandInHub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HubOffline, match="HF_HUB_OFFLINE"):
        make_engine(None, HF_HUB_OFFLINE=True).models.preview(REPO)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubOffline):
        make_engine(None).models.preview(REPO)
    assert hub.asked == []


def test_a_hub_that_is_not_there_is_left_alone_after_five_failures(
    make_engine: EngineMaker, hub: StandInHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(None)
    hub.statuses["api"] = [500] * 5
    for _ in range(5):
        with pytest.raises(HubUnavailable, match="500"):
            engine.models.preview(REPO)
    asked = len(hub.asked)
    with pytest.raises(HubUnavailable, match="left alone") as caught:
        engine.models.preview(REPO)
    assert caught.value.retry_after is not None and len(hub.asked) == asked


def test_what_is_no_checkpoint_is_refused_before_a_row_is_made(engine: Engine, hub: StandInHub) -> None:
    hub.add("made/pickles", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    with pytest.raises(CheckpointInvalid, match="pickle"):
        engine.models.download(ask("made/pickles"))
    hub.add("made/adapter", {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"})
    with pytest.raises(CheckpointInvalid, match="LoRA"):
        engine.models.download(ask("made/adapter"))
    assert engine.library.models.list() == []


def test_no_room_on_the_disk_is_said_before_a_row_is_made(engine: Engine, hub: StandInHub) -> None:
    hub.repos[REPO].announced[WEIGHTS] = 10**18
    with pytest.raises(InsufficientDisk, match="1000000000000 MB more") as caught:
        engine.models.download(ask())
    assert caught.value.details["needed_mb"] > caught.value.details["free_mb"]
    assert engine.library.models.list() == [] and hub.fetched(WEIGHTS) == []


def test_two_levels_of_one_checkpoint_never_write_the_same_files(engine: Engine, hub: StandInHub) -> None:
    hub.statuses[WEIGHTS] = [500] * 6
    first = engine.models.download(ask(quantization="FP16"))
    assert ended(engine, first.id) is ModelStatus.ERROR
    second = engine.models.download(ask(quantization="Q8"))
    assert ended(engine, second.id) is ModelStatus.ERROR
    hub.held[WEIGHTS] = 0.5
    engine.models.download(ask(quantization="FP16"))
    with pytest.raises(ModelBusy, match="for 'tiny-llama:FP16'"):
        engine.models.download(ask(quantization="Q8"))
    hub.let_go.set()
    assert ended(engine, first.id) is ModelStatus.READY
    assert ended(engine, engine.models.download(ask(quantization="Q8")).id) is ModelStatus.READY
    assert len([each for each in hub.fetched(WEIGHTS) if each.range is None]) == 7


def test_a_newer_commit_takes_nothing_from_a_row_at_another_level(engine: Engine, hub: StandInHub) -> None:
    hub.statuses[WEIGHTS] = [500] * 3
    failed = engine.models.download(ask())
    assert ended(engine, failed.id) is ModelStatus.ERROR
    kept = engine.models.download(ask(quantization="FP16"))
    assert ended(engine, kept.id) is ModelStatus.READY
    hub.repos[REPO].commit = "fedcba9876543210fedcba9876543210fedcba98"
    again = engine.models.download(ask())
    assert (again.id, ended(engine, again.id)) == (failed.id, ModelStatus.READY)
    folder = Path(engine.shelf.get(kept.id).local_path or "")
    assert folder.name == "made--tiny-llama@0123456789ab" and (folder / WEIGHTS).is_file()


def test_the_same_again(engine: Engine, hub: StandInHub) -> None:
    hub.held[WEIGHTS] = 0.5
    row = engine.models.download(ask())
    with pytest.raises(ModelAlreadyExists, match="is being downloaded") as caught:
        engine.models.download(ask())
    assert caught.value.details["existing_model_id"] == row.id
    with pytest.raises(ModelBusy):
        engine.models.download(ask(quantization="Q8"))
    hub.let_go.set()
    assert ended(engine, row.id) is ModelStatus.READY
    with pytest.raises(ModelAlreadyExists, match="in the library"):
        engine.models.download(ask())
    # At another level it is another model on the same files, which are not fetched twice.
    fetched = len(hub.fetched(WEIGHTS))
    other = engine.models.download(ask(quantization="FP16"))
    assert other.name == "tiny-llama:FP16" and ended(engine, other.id) is ModelStatus.READY
    assert len(hub.fetched(WEIGHTS)) == fetched
    assert engine.models.delete(row.id) == 0
    assert Path(engine.shelf.get(other.id).local_path or "").is_dir()
    assert engine.models.delete(other.id) > 200_000


# --- GGUF -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def gguf_hub(engine: Engine, hub: StandInHub, gguf_bytes: Callable[[str], bytes]) -> StandInHub:
    """Two quantisations and a companion; the larger one in two parts that are no set."""
    hub.add(
        "made/tiny-GGUF",
        {
            "README.md": b"# tiny",
            "tiny-F32.gguf": gguf_bytes("F32"),
            "tiny-Q8_0.gguf": gguf_bytes("Q8_0"),
            "mmproj-tiny-F16.gguf": b"GGUF",
        },
        parameters=None,
    )
    return hub


def test_one_of_several_quantisations(engine: Engine, gguf_hub: StandInHub) -> None:
    with pytest.raises(InvalidParameter, match="Q8_0, F32") as caught:
        engine.models.download(ask("made/tiny-GGUF"))
    assert [choice["label"] for choice in caught.value.details["choices"]] == ["Q8_0", "F32"]
    row = engine.models.download(ask("made/tiny-GGUF", gguf_label="Q8_0"))
    assert (row.name, row.engine, row.quantization, row.gguf_label) == ("tiny-GGUF:Q8_0", "llamacpp", "Q8", "Q8_0")
    other = engine.models.download(ask("made/tiny-GGUF", gguf_files=["tiny-F32.gguf"]))
    assert (other.name, other.quantization) == ("tiny-GGUF:F32", "FP32")
    assert [ended(engine, each.id) for each in (row, other)] == [ModelStatus.READY, ModelStatus.READY]
    first, second = (Path(engine.shelf.get(each.id).local_path or "") for each in (row, other))
    assert first.parent != second.parent and first.name == "tiny-Q8_0.gguf"
    record = engine.shelf.get(row.id)
    assert (record.engine, record.source, record.context_length) == (
        EngineKind.LLAMACPP,
        ModelSource.HUGGINGFACE,
        2048,
    )
    assert engine.shelf.resolve("tiny-GGUF:Q8_0").id == row.id
    with pytest.raises(MillmError) as ambiguous:
        engine.shelf.resolve("tiny-GGUF")  # A188
    assert ambiguous.value.code == "ambiguous_model_name" and "Q8_0" in ambiguous.value.message
    engine.models.delete(other.id)
    assert engine.shelf.resolve("tiny-GGUF").id == row.id
    assert first.exists() and not second.exists()


def test_a_set_in_parts(engine: Engine, hub: StandInHub, tiny_checkpoint: Path, tmp_path: Path) -> None:
    first = build_gguf(tiny_checkpoint, tmp_path / "tiny-F32.gguf", max_tensors=15)
    parts = sorted(path.name for path in tmp_path.glob("tiny-F32-0*.gguf"))
    hub.add("made/parts", {f"F32/{name}": (tmp_path / name).read_bytes() for name in parts})
    hub.cuts[f"F32/{parts[1]}"] = [0.6]
    row = engine.models.download(ask("made/parts"))  # the only one there is
    assert ended(engine, row.id) is ModelStatus.READY
    record = engine.shelf.get(row.id)
    assert (record.name, record.params) == ("parts:F32", 62_752)
    assert Path(record.local_path or "").name == first.name
    assert sorted(path.name for path in Path(record.local_path or "").parent.iterdir()) == parts


def test_files_that_are_no_quantisation(engine: Engine, gguf_hub: StandInHub) -> None:
    with pytest.raises(InvalidParameter, match="no file"):
        engine.models.download(ask("made/tiny-GGUF", gguf_files=["tiny-Q4_0.gguf"]))
    with pytest.raises(InvalidParameter, match="several quantisations"):
        engine.models.download(ask("made/tiny-GGUF", gguf_files=["tiny-F32.gguf", "tiny-Q8_0.gguf"]))
    with pytest.raises(InvalidParameter, match="no quantisation Q2_K"):
        engine.models.download(ask("made/tiny-GGUF", gguf_label="Q2_K"))


def test_preview(engine: Engine, gguf_hub: StandInHub) -> None:
    found = engine.models.preview("made/tiny-GGUF")
    assert [(quant.label, quant.is_split) for quant in found.gguf_quants] == [("Q8_0", False), ("F32", False)]
    assert [each.path for each in found.companions] == ["mmproj-tiny-F16.gguf"]
    assert found.has_checkpoint is False and found.download_bytes is None and found.problem is None
    assert found.gguf_quants[0].memory.kv_mb is None  # nothing there says how wide its keys are
    assert (found.architecture, found.context_length, found.has_chat_template) == (None, None, None)
    # What the hub itself has read in the header of one of the files.
    said = {"total": 62_752, "architecture": "llama", "context_length": 2048, "chat_template": "{{ messages }}"}
    gguf_hub.repos["made/tiny-GGUF"].gguf = said
    found = engine.models.preview("made/tiny-GGUF")
    assert (found.params, found.architecture, found.context_length) == (62_752, "llama", 2048)
    assert found.has_chat_template is True
    gguf_hub.repos["made/tiny-GGUF"].gguf = {"architecture": 7, "context_length": -1}
    found = engine.models.preview("made/tiny-GGUF")
    assert (found.architecture, found.context_length, found.has_chat_template) == (None, None, False)
    gguf_hub.repos[REPO].parameters = 62_752
    whole = engine.models.preview(REPO)
    assert whole.has_chat_template is True  # by its chat_template.jinja
    assert (whole.architecture, whole.params, whole.context_length) == ("LlamaForCausalLM", 62_752, 2048)
    assert whole.has_checkpoint and whole.problem is None and whole.commit == COMMIT
    assert [each.quantization for each in whole.estimates] == ["FP32", "FP16", "Q8", "Q4", "Q2"]
    terms = whole.estimates[0].memory
    # 62,752 × 4 bytes; 2 × 4 layers × 16 wide × 4 bytes × 2,048 tokens.
    assert (terms.weights_mb, terms.kv_mb, terms.kv_tokens) == (0.3, 1.0, 2048)


@pytest.mark.parametrize("label", [None, "smol", "Mine"])
def test_a_gguf_is_called_after_its_quantisation_and_never_after_its_file(
    engine: Engine, hub: StandInHub, gguf_bytes: Callable[[str], bytes], label: str | None
) -> None:
    """``smol`` is what a preview lists such a file under, and so what the window asks for."""
    hub.add("made/tiny", {"smol.gguf": gguf_bytes("Q8_0"), "README.md": b"-"})
    assert [quant.label for quant in engine.models.preview("made/tiny").gguf_quants] == ["smol"]
    row = engine.models.download(ask("made/tiny", gguf_files=["smol.gguf"], gguf_label=label))
    name = "tiny:Mine" if label == "Mine" else "tiny"
    assert (row.name, row.gguf_label) == (name, "Mine" if label == "Mine" else None)
    assert ended(engine, row.id) is ModelStatus.READY
    # What it is, is known once its header is here; its name stays as it was told.
    found = engine.models.get(row.id)
    assert (found.name, found.gguf_label) == (name, "Mine" if label == "Mine" else "Q8_0")
    assert engine.shelf.resolve("tiny").id == row.id
    with pytest.raises(ModelAlreadyExists) as caught:
        engine.models.download(ask("made/tiny", gguf_files=["smol.gguf"], gguf_label=label))
    assert caught.value.details["existing_model_id"] == row.id


def test_two_untagged_files_of_a_repository_are_two_models(
    engine: Engine, hub: StandInHub, gguf_bytes: Callable[[str], bytes]
) -> None:
    hub.add("made/tiny", {"a.gguf": gguf_bytes("Q8_0"), "b.gguf": gguf_bytes("Q4_0")})
    first = engine.models.download(ask("made/tiny", gguf_files=["a.gguf"]))
    with pytest.raises(ModelAlreadyExists, match="named 'tiny' already"):
        engine.models.download(ask("made/tiny", gguf_files=["b.gguf"]))
    second = engine.models.download(ask("made/tiny", gguf_files=["b.gguf"], custom_name="other"))
    for row, label in ((first, "Q8_0"), (second, "Q4_0")):
        assert ended(engine, row.id) is ModelStatus.READY
        assert engine.shelf.get(row.id).gguf_label == label
