"""Loading, cancelling, swapping and unloading on real checkpoints; every way out leaves rows and memory right."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.actions.models.importing import import_local_model
from engine.actions.models.loading import LAST_MODEL
from engine.engine import Engine
from engine.errors import (
    CheckpointInvalid,
    EngineUnsupported,
    InsufficientMemory,
    LibraryUnusable,
    LoadCancelled,
    MillmError,
    ModelBusy,
    ModelLoadFailed,
    ModelLocked,
    ModelNotFound,
    ModelNotLoaded,
)
from engine.events import Event, ModelLoadComplete, ModelLoadError, ModelLoadProgress, ModelUnloadComplete
from engine.generation.consume import collect
from engine.generation.request import Delta, GenerationRequest, TextDelta, TextInput
from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus
from engine.models.backends import transformers_backend
from engine.models.backends.llamacpp import availability
from engine.models.hardware import devices
from engine.models.registry import LoadedModel
from engine.sampling import Sampling
from tests.conftest import CheckpointMaker, EngineMaker
from tests.waiting import wait_until


def demanded(engine: Engine, name: str) -> LoadedModel:
    """The model, loaded as a request has it loaded."""
    return engine.loader.demand(name).model(120)


def text_of(engine: Engine, name: str, prompt: str = "the sea", tokens: int = 8) -> str:
    request = GenerationRequest(
        name, TextInput((prompt,)), Sampling(temperature=0.0, ignore_eos=True), max_tokens=tokens
    )
    deltas = collect(engine.generation, engine.generation.prepare(request))
    return "".join(d.content for d in deltas if isinstance(d, TextDelta))


def long_request(name: str) -> GenerationRequest:
    return GenerationRequest(name, TextInput(("the sea",)), Sampling(ignore_eos=True), max_tokens=2000)


class Gate:
    """Holds a load at its first weight until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        load = transformers_backend.TransformersBackend.load.__func__  # type: ignore[attr-defined]

        def held(cls: type, folder: Path, placement: object, report: Callable[..., None], **options: object) -> object:
            self.reached.set()
            assert self.open.wait(60)
            return load(cls, folder, placement, report, **options)

        monkeypatch.setattr(transformers_backend.TransformersBackend, "load", classmethod(held))


@pytest.mark.parametrize(("again", "checked", "started"), [(True, 2.0, 10.0), (False, 40.0, 52.0)])
def test_the_first_load_gives_the_libraries_their_share(
    make_engine: EngineMaker, tiny_checkpoint: Path, again: bool, checked: float, started: float
) -> None:
    """They come in while the files are looked at: for a small model that is most of the time."""
    engine = make_engine(tiny_checkpoint, load=again)
    if again:
        engine.loader.unload().result(60)
    heard: list[ModelLoadProgress] = []
    engine.events.subscribe(heard.append, ModelLoadProgress)  # type: ignore[arg-type]
    (record,) = engine.shelf.list()
    engine.loader.load(record.id).result(60)
    shares = [each.progress for each in heard]
    assert shares == sorted(shares) and shares[0] == 0.0
    assert all(each.progress <= checked for each in heard if each.stage == "Checking the files")
    assert next(each.progress for each in heard if each.stage == "Starting the engine") == checked
    read = [each.progress for each in heard if each.stage not in ("Checking the files", "Starting the engine")]
    assert read[0] >= started and max(shares) <= 100.0


def test_a_load_reports_progress_and_ends_resident(make_engine: EngineMaker, tiny_checkpoint: Path) -> None:
    engine = make_engine(tiny_checkpoint, load=False)
    heard: list[Event] = []
    engine.events.subscribe(heard.append)
    (record,) = engine.shelf.list()
    loaded = engine.loader.load(record.id).result(60)
    wait_until(lambda: any(isinstance(e, ModelLoadComplete) for e in heard), "the completion event")
    shares = [e.progress for e in heard if isinstance(e, ModelLoadProgress)]
    assert shares == sorted(shares)
    assert len(shares) > 5
    assert engine.shelf.resident is loaded
    assert engine.shelf.loading is None
    assert engine.shelf.get(record.id).status is ModelStatus.LOADED
    assert engine.library.state.get(LAST_MODEL) == "tiny-llama"
    assert loaded.info.architecture == "LlamaForCausalLM"
    assert (loaded.info.n_layers, loaded.info.d_model, loaded.info.dtype) == (4, 32, "float32")
    assert text_of(engine, "tiny-llama")


def test_a_row_of_an_earlier_version_learns_of_the_template_when_it_is_loaded(make_engine: EngineMaker) -> None:
    engine = make_engine(load=False)
    (record,) = engine.shelf.list()
    engine.library.models.update(record.id, has_chat_template=None)
    assert engine.models.get(record.id).has_chat_template is None
    engine.loader.load(record.id).result(60)
    assert engine.shelf.get(record.id).has_chat_template is True


def test_loading_the_resident_model_again_gives_it_back(make_engine: EngineMaker) -> None:
    engine = make_engine()
    resident = engine.shelf.resident
    assert resident is not None
    assert engine.loader.load(resident.record.id).result(5) is resident
    assert demanded(engine, "tiny-llama") is resident


def test_another_model_takes_the_place_of_the_first(make_engine: EngineMaker, checkpoint: CheckpointMaker) -> None:
    engine = make_engine()
    first = text_of(engine, "tiny-llama")
    import_local_model(engine.library, engine.events, checkpoint("gpt2"))
    demanded(engine, "tiny-gpt2")
    assert {r.name: r.status for r in engine.shelf.list()} == {
        "tiny-gpt2": ModelStatus.LOADED,
        "tiny-llama": ModelStatus.READY,
    }
    with pytest.raises(ModelNotLoaded):
        text_of(engine, "tiny-llama")
    demanded(engine, "tiny-llama")
    assert text_of(engine, "tiny-llama") == first


def test_two_loads_at_once_are_one_load_and_a_refusal(
    make_engine: EngineMaker, checkpoint: CheckpointMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(load=False)
    other = import_local_model(engine.library, engine.events, checkpoint("gpt2"))
    (record,) = [r for r in engine.shelf.list() if r.id != other.id]
    gate = Gate(monkeypatch)
    future = engine.loader.load(record.id)
    assert gate.reached.wait(60)
    assert engine.loader.load(record.id) is future
    with pytest.raises(ModelBusy) as refusal:
        engine.loader.load(other.id)
    assert refusal.value.retry_after == 15
    with pytest.raises(ModelBusy):
        demanded(engine, "tiny-gpt2")
    gate.open.set()
    assert future.result(60).record.id == record.id


def test_a_cancelled_load_leaves_the_row_ready_and_nothing_resident(
    make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(load=False)
    (record,) = engine.shelf.list()
    heard: list[Event] = []
    engine.events.subscribe(heard.append, ModelLoadError)
    assert engine.loader.cancel() is False
    gate = Gate(monkeypatch)
    future = engine.loader.load(record.id)
    assert gate.reached.wait(60)
    assert engine.shelf.get(record.id).status is ModelStatus.LOADING
    assert engine.loader.cancel() is True
    gate.open.set()
    with pytest.raises(LoadCancelled):
        future.result(60)
    assert engine.shelf.get(record.id).status is ModelStatus.READY
    assert engine.shelf.resident is None
    wait_until(lambda: heard, "the error event")
    assert [e.code for e in heard if isinstance(e, ModelLoadError)] == ["load_cancelled"]
    monkeypatch.undo()
    assert engine.loader.load(record.id).result(60).record.id == record.id


def test_a_corrupt_checkpoint_is_named_and_the_resident_model_stays(
    make_engine: EngineMaker, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    engine = make_engine()
    expected = text_of(engine, "tiny-llama")
    folder = tmp_path / "cut"
    shutil.copytree(tiny_checkpoint, folder)
    record = import_local_model(engine.library, engine.events, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(CheckpointInvalid) as refusal:
        engine.loader.load(record.id).result(60)
    assert "model.safetensors" in refusal.value.message
    row = engine.shelf.get(record.id)
    assert row.status is ModelStatus.ERROR
    assert "model.safetensors" in (row.error_message or "")
    assert text_of(engine, "tiny-llama") == expected
    with pytest.raises(CheckpointInvalid, match=r"^Could not load 'cut': "):
        demanded(engine, "cut")


@pytest.mark.parametrize(
    ("changes", "tensor"),
    [
        ({"intermediate_size": 96}, "model.layers.0.mlp.down_proj.weight"),
        ({"num_hidden_layers": 5}, "model.layers.4.input_layernorm.weight"),
        ({"vocab_size": 500}, "lm_head.weight"),
    ],
)
def test_weights_that_do_not_fit_the_config_are_found_before_the_old_model_goes(
    make_engine: EngineMaker, tiny_checkpoint: Path, tmp_path: Path, changes: dict[str, int], tensor: str
) -> None:
    engine = make_engine()
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    record = import_local_model(engine.library, engine.events, folder)
    with pytest.raises(CheckpointInvalid, match=re.escape(tensor)):
        engine.loader.load(record.id).result(60)
    assert engine.shelf.resident is not None and engine.shelf.resident.record.name == "tiny-llama"
    assert engine.shelf.get(record.id).status is ModelStatus.ERROR
    assert text_of(engine, "tiny-llama")


@pytest.mark.parametrize(
    "changes",
    [
        {"head_dim": 0},
        {"hidden_act": "no_such_function"},
        {"num_attention_heads": 0},
        {"num_hidden_layers": -1},
        {"rms_norm_eps": "small"},
        {"rope_parameters": {"rope_type": "no_such_rope", "rope_theta": 10000.0}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_config_of_no_model_is_refused_before_anything_is_unloaded(
    make_engine: EngineMaker, tiny_checkpoint: Path, tmp_path: Path, changes: dict[str, object]
) -> None:
    engine = make_engine()
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))

    def import_and_load() -> None:
        engine.loader.load(import_local_model(engine.library, engine.events, folder).id).result(60)

    with pytest.raises(CheckpointInvalid) as caught:
        import_and_load()
    assert caught.value.remedy and caught.value.details.get("problems")
    assert engine.shelf.resident is not None and engine.shelf.resident.record.name == "tiny-llama"
    assert text_of(engine, "tiny-llama")


def test_words_of_a_config_that_are_no_unicode_end_the_load_and_no_other(
    make_engine: EngineMaker, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """The library repeats what it cannot read, and the row keeps its words."""
    engine = make_engine()
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "\ud800"}))
    record = import_local_model(engine.library, engine.events, folder)
    with pytest.raises(CheckpointInvalid):
        engine.loader.load(record.id).result(60)
    refused = engine.shelf.get(record.id)
    assert refused.status is ModelStatus.ERROR and refused.error_message
    assert text_of(engine, "tiny-llama")
    engine.loader.unload().result(60)


def test_what_fails_once_the_old_model_has_gone_is_a_failed_load(
    make_engine: EngineMaker, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """A tokenizer that only its library finds fault with, as it is read."""
    engine = make_engine()
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "other")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["pre_tokenizer"] = {"type": "NoSuchThing"}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    record = import_local_model(engine.library, engine.events, folder)
    with pytest.raises(ModelLoadFailed) as caught:
        engine.loader.load(record.id).result(60)
    assert caught.value.code == "model_load_failed" and caught.value.remedy
    assert engine.shelf.resident is None
    assert engine.shelf.get(record.id).status is ModelStatus.ERROR


def test_too_little_memory_is_refused_before_anything_is_unloaded(
    make_engine: EngineMaker, checkpoint: CheckpointMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine()
    import_local_model(engine.library, engine.events, checkpoint("gpt2"))
    monkeypatch.setattr(devices, "available_memory", lambda device: 1000)
    # What the resident model would give back counts as available, so make the other one larger than both.
    resident = engine.shelf.resident
    assert resident is not None
    object.__setattr__(resident.info, "memory_bytes", 0)
    with pytest.raises(InsufficientMemory, match=r"^Could not load 'tiny-gpt2': ") as refusal:
        demanded(engine, "tiny-gpt2")
    assert refusal.value.details["before_loading"] is True
    assert engine.shelf.resident is resident
    assert text_of(engine, "tiny-llama")


def test_an_unload_lets_requests_finish_and_refuses_new_ones(make_engine: EngineMaker) -> None:
    engine = make_engine()
    heard: list[Event] = []
    engine.events.subscribe(heard.append, ModelUnloadComplete)
    prepared = engine.generation.prepare(
        GenerationRequest("tiny-llama", TextInput(("the sea",)), Sampling(ignore_eos=True), max_tokens=200)
    )
    deltas: list[Delta] = []
    handle = engine.generation.submit(prepared, deltas.append)
    unloading = engine.loader.unload()
    # Begun again meanwhile, from the other face, it is the same one.
    assert engine.loader.unload() is unloading
    with pytest.raises(MillmError) as refusal:
        engine.generation.submit(prepared, deltas.append)
    assert refusal.value.code == "model_busy"
    unloading.result(60)
    assert handle.done
    assert type(deltas[-1]).__name__ == "RequestFinished"
    assert engine.shelf.resident is None
    assert len(heard) == 1
    with pytest.raises(ModelNotLoaded):
        engine.loader.unload()


def test_an_unload_does_not_wait_for_ever(make_engine: EngineMaker) -> None:
    engine = make_engine(GRACEFUL_UNLOAD_TIMEOUT=0.0)
    deltas: list[Delta] = []
    handle = engine.generation.submit(engine.generation.prepare(long_request("tiny-llama")), deltas.append)
    engine.loader.unload().result(60)
    assert handle.done
    assert getattr(deltas[-1], "error", None) is not None
    assert deltas[-1].error.code == "model_busy"  # type: ignore[attr-defined]


def test_a_locked_model_is_not_pushed_out_by_a_request(make_engine: EngineMaker, checkpoint: CheckpointMaker) -> None:
    engine = make_engine()
    import_local_model(engine.library, engine.events, checkpoint("gpt2"))
    resident = engine.shelf.resident
    assert resident is not None
    engine.library.models.update(resident.record.id, locked=True)
    with pytest.raises(ModelLocked, match="tiny-llama"):
        demanded(engine, "tiny-gpt2")
    assert engine.shelf.resident is resident


def test_a_lock_that_comes_late_leaves_the_other_row_sound(
    make_engine: EngineMaker, checkpoint: CheckpointMaker
) -> None:
    engine = make_engine()
    other = import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    resident = engine.shelf.resident
    assert resident is not None
    engine.library.models.update(resident.record.id, locked=True)
    with pytest.raises(ModelLocked):
        # Past the check that a request goes through first.
        engine.loader.load(other.id, on_demand=True).result(60)
    row = engine.shelf.get(other.id)
    assert (row.status, row.error_message) == (ModelStatus.READY, None)
    assert engine.shelf.resident is resident


def test_unknown_and_unsupported_models(make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(None)
    with pytest.raises(ModelNotFound):
        demanded(engine, "nobody")
    with pytest.raises(ModelNotFound):
        engine.loader.load(99)
    gguf = engine.library.models.add(
        ModelRecord("demo:Q4_1", ModelSource.DEMO, EngineKind.LLAMACPP, local_path="/nowhere", gguf_label="Q4_1")
    )
    monkeypatch.setattr(availability, "is_installed", lambda: False)
    with pytest.raises(EngineUnsupported):
        engine.loader.load(gguf.id)
    assert engine.shelf.get(gguf.id).status is ModelStatus.READY


def test_stopping_ends_what_is_being_written(make_engine: EngineMaker) -> None:
    engine = make_engine()
    deltas: list[Delta] = []
    handle = engine.generation.submit(engine.generation.prepare(long_request("tiny-llama")), deltas.append)
    assert engine.stop(30) is True
    assert handle.done
    assert deltas[-1].error.code == "request_cancelled"  # type: ignore[attr-defined]
    assert engine.stop(1) is True


def test_a_library_that_fails_after_the_load_jams_nothing(
    make_engine: EngineMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(load=False)
    (record,) = engine.shelf.list()

    def full(key: str, value: object) -> None:
        raise LibraryUnusable("the disk is full")

    monkeypatch.setattr(engine.library.state, "set", full)
    assert engine.loader.load(record.id).result(60).record.id == record.id
    assert text_of(engine, "tiny-llama")
    engine.loader.unload().result(60)
    assert engine.shelf.resident is None


def test_a_load_cancelled_while_the_old_model_still_writes_leaves_it_in_place(
    make_engine: EngineMaker, checkpoint: CheckpointMaker
) -> None:
    engine = make_engine()
    other = import_local_model(engine.library, engine.events, checkpoint("gpt2"))
    waiting = threading.Event()
    engine.events.subscribe(
        lambda e: waiting.set() if isinstance(e, ModelLoadProgress) and e.stage.startswith("Unloading") else None
    )
    deltas: list[Delta] = []
    handle = engine.generation.submit(engine.generation.prepare(long_request("tiny-llama")), deltas.append)
    future = engine.loader.load(other.id)
    assert waiting.wait(60)
    assert engine.loader.cancel()
    with pytest.raises(LoadCancelled):
        future.result(60)
    handle.cancel()
    assert handle.wait(60)
    assert text_of(engine, "tiny-llama")
