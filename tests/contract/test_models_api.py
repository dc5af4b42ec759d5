"""``/api/models`` over a real socket: registering, downloading, loading, locking, removing, and every refusal."""

from __future__ import annotations

import json
import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.engine import Engine
from engine.events import Event, ModelLoadComplete, ModelLoadError, ModelLoadProgress
from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus
from server.config import ServerSettings
from server.thread import ServerThread
from tests.conftest import CheckpointMaker
from tests.contract.conftest import READY_S, Live, start_engine, stop_engine
from tests.gguf_files import build_gguf, quantise
from tests.hub import StandInHub
from tests.waiting import wait_until

REPO = "made/tiny"
WEIGHTS = "model.safetensors"


@dataclass
class House:
    """A server with ``tiny-llama`` loaded, and a client of its management API."""

    live: Live
    client: httpx.Client

    @property
    def engine(self) -> Engine:
        return self.live.engine

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """Status and envelope, whose shape is checked here."""
        response = self.client.request(method, f"/api/models{path}", json=body)
        envelope = response.json()
        assert envelope.keys() == {"success", "data", "error"}  # A292
        assert envelope["success"] is (response.status_code < 400)
        if not envelope["success"]:
            assert envelope["data"] is None
            assert envelope["error"].keys() == {"code", "message", "details"}
        return response.status_code, envelope

    def ok(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Any:
        found, envelope = self.call(method, path, body)
        assert found == status, envelope
        return envelope["data"]

    def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str, dict[str, Any]]:
        status, envelope = self.call(method, path, body)
        assert status >= 400, envelope
        return status, envelope["error"]["code"], envelope["error"]

    def id_of(self, name: str) -> int:
        return self.engine.shelf.resolve(name).id

    def ended(self, model_id: int) -> dict[str, Any]:
        """The model once its download is over."""
        assert self.engine.models.downloads.wait_ended(model_id, 60)
        view: dict[str, Any] = self.ok("GET", f"/{model_id}")
        return view


@pytest.fixture
def house(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> Iterator[House]:
    live = serve(own_engine(checkpoint("llama")))
    live.engine.models.downloads.wait = lambda cancellation, seconds: cancellation.check()
    with live.http() as client:
        yield House(live, client)


@pytest.fixture
def empty(own_engine: Callable[..., Engine], serve: Callable[..., Live]) -> Iterator[House]:
    """A server without any model; cheaper."""
    live = serve(own_engine(None))
    live.engine.models.downloads.wait = lambda cancellation, seconds: cancellation.check()
    with live.http() as client:
        yield House(live, client)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server whose library stays as it is: for what is refused."""
    engine = start_engine(None, tmp_path_factory.mktemp("bare") / "millm.db")
    engine.library.models.add(ModelRecord("x", ModelSource.LOCAL, EngineKind.TRANSFORMERS, local_path="/x"))
    thread = ServerThread(engine, ServerSettings(PORT=0))
    thread.start()
    live = Live(engine, thread, thread.wait_ready(READY_S))
    with live.http() as client:
        yield House(live, client)
    thread.stop(5)
    stop_engine(engine)


FIELDS = {
    "id", "name", "source", "repo_id", "local_path", "params", "architecture", "quantization", "gguf_label",
    "revision", "disk_size_mb", "estimated_memory_mb", "status", "error_message", "locked", "download_progress",
    "created_at", "updated_at", "num_parameters", "memory_footprint", "device", "dtype", "placement", "lease",
}  # fmt: skip


def test_the_list_and_one(house: House, checkpoint: CheckpointMaker) -> None:
    house.ok("POST", "", {"source": "local", "local_path": str(checkpoint("qwen2"))}, status=201)
    models = house.ok("GET", "")
    assert [each["name"] for each in models] == ["tiny-qwen2", "tiny-llama"]  # newest first
    for each in models:
        assert each.keys() >= FIELDS
        assert house.ok("GET", f"/{each['id']}") == each
    waiting, loaded = models
    assert (loaded["status"], loaded["device"], loaded["dtype"]) == ("loaded", "cpu", "float32")
    # 62,752 values of 4 bytes; some buffers, and what fills up the sides of weights this small to whole blocks.
    assert loaded["num_parameters"] == 62_752 and 251_008 <= loaded["memory_footprint"] < 330_000
    assert loaded["placement"]["mode"] == "cpu" and loaded["placement"]["reason"] == "no_gpu"
    assert loaded["placement"]["required_mb"] is None  # null is what nobody measured
    megabytes = round(loaded["memory_footprint"] / 1e6, 1)
    assert loaded["placement"]["memory_by_device_mb"] == {loaded["device"]: megabytes}
    assert (waiting["status"], waiting["device"], waiting["placement"], waiting["lease"]) == ("ready", None, None, None)
    assert (waiting["has_chat_template"], loaded["has_chat_template"]) == (True, True)


def test_what_a_load_would_take(house: House, checkpoint: CheckpointMaker) -> None:
    added = house.ok("POST", "", {"source": "local", "local_path": str(checkpoint("qwen2"))}, status=201)
    config = json.loads((checkpoint("qwen2") / "config.json").read_text())
    told = house.ok("GET", f"/{added['id']}/estimate")
    assert (told["model_id"], told["name"], told["device"]) == (added["id"], "tiny-qwen2", "cpu")
    assert (told["number_format"], told["weights_bytes"]) == ("float32", 4 * added["params"])
    heads, width = config["num_key_value_heads"], config["hidden_size"] // config["num_attention_heads"]
    assert told["kv_bytes"] == 2 * config["num_hidden_layers"] * heads * width * 4 * told["kv_tokens"]
    assert told["needed_bytes"] == told["weights_bytes"] + told["kv_bytes"] + told["working_bytes"]
    assert told["fits"] is True and told["available_bytes"] > told["needed_bytes"]
    # It is the very figure a load is held to, with what the model in memory gives back.
    assert house.ok("GET", "")[1]["status"] == "loaded"
    assert house.refused("GET", "/999/estimate")[:2] == (404, "MODEL_NOT_FOUND")
    house.engine.library.models.update(added["id"], local_path="/gone")
    assert house.refused("GET", f"/{added['id']}/estimate")[:2] == (400, "CHECKPOINT_INVALID")
    house.engine.library.models.update(added["id"], status=ModelStatus.DOWNLOADING)
    assert house.refused("GET", f"/{added['id']}/estimate")[:2] == (409, "MODEL_BUSY")


def test_what_the_header_of_a_gguf_says(bare: House, tiny_checkpoint: Path, tmp_path: Path) -> None:
    file = build_gguf(tiny_checkpoint, tmp_path / "plain.gguf", chat_template=None)
    file = quantise(file, tmp_path / "plain-Q4_1.gguf", "Q4_1")
    added = bare.ok("POST", "", {"source": "local", "local_path": str(file)}, status=201)
    assert (added["architecture"], added["context_length"], added["params"]) == ("llama", 2048, 62_752)
    assert (added["gguf_label"], added["quantization"], added["has_chat_template"]) == ("Q4_1", "Q4", False)
    assert added["disk_size_mb"] == round(file.stat().st_size / 1e6, 2)
    # A row that came before this was kept is completed from the file.
    bare.engine.library.models.update(added["id"], has_chat_template=None, architecture="LlamaForCausalLM")
    assert bare.ok("GET", f"/{added['id']}")["has_chat_template"] is False
    row = bare.engine.shelf.get(added["id"])
    assert (row.architecture, row.has_chat_template) == ("llama", False)
    bare.engine.library.models.update(added["id"], has_chat_template=None)
    file.unlink()
    assert bare.ok("GET", f"/{added['id']}")["has_chat_template"] is None
    bare.ok("DELETE", f"/{added['id']}")


@pytest.mark.parametrize("model_id", ["999", "0", "-1", "x", "9" * 30])
def test_ids_that_are_none(bare: House, model_id: str) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/load"), ("POST", "/cancel"), ("POST", "/lock")):
        assert bare.refused(method, f"/{model_id}{path}")[:2] == (404, "MODEL_NOT_FOUND")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "source"),
        ({"source": "ollama"}, "source"),
        ({"source": "huggingface"}, None),
        ({"source": "huggingface", "repo_id": "no-slash"}, "repo_id"),
        ({"source": "huggingface", "repo_id": "a/" + "b" * 300}, "repo_id"),
        ({"source": "huggingface", "repo_id": REPO, "local_path": "/x"}, None),
        ({"source": "huggingface", "repo_id": REPO, "quantization": "Q3"}, "quantization"),
        ({"source": "huggingface", "repo_id": REPO, "gguf_files": []}, "gguf_files"),  # A193
        ({"source": "huggingface", "repo_id": REPO, "gguf_files": ["../x.gguf"]}, "gguf_files.0"),  # A193
        ({"source": "huggingface", "repo_id": REPO, "gguf_files": ["/x.gguf"]}, "gguf_files.0"),
        ({"source": "huggingface", "repo_id": REPO, "gguf_files": ["a\\..\\x.gguf"]}, "gguf_files.0"),
        ({"source": "huggingface", "repo_id": REPO, "gguf_files": ["ok.gguf", "x.bin"]}, "gguf_files.1"),  # A193
        ({"source": "huggingface", "repo_id": REPO, "gguf_files": ["x.gguf"] * 65}, "gguf_files"),
        ({"source": "huggingface", "repo_id": REPO, "gguf_label": "x" * 65}, "gguf_label"),
        ({"source": "huggingface", "repo_id": REPO, "custom_name": "x" * 101}, "custom_name"),
        ({"source": "huggingface", "repo_id": REPO, "trust_remote_code": "yes"}, "trust_remote_code"),
        ({"source": "huggingface", "repo_id": REPO, "colour": "red"}, "colour"),
        ({"source": "local"}, None),
        ({"source": "local", "local_path": "relative/path"}, "local_path"),
        ({"source": "local", "local_path": "/etc/models"}, "local_path"),  # A194
        ({"source": "local", "local_path": "/etc/../etc/x.gguf"}, "local_path"),
        ({"source": "local", "local_path": "/proc/self"}, "local_path"),
        ({"source": "local", "local_path": "/" + "x" * 600}, "local_path"),
        ({"source": "local", "local_path": "/x", "repo_id": REPO}, None),
    ],
)
def test_bodies_that_are_refused(bare: House, body: dict[str, Any], param: str | None) -> None:
    status, code, error = bare.refused("POST", "", body)
    assert (status, code) == (422, "VALIDATION_ERROR")
    if param is not None:
        assert error["details"]["param"] == param
    assert [each["name"] for each in bare.ok("GET", "")] == ["x"]


def test_a_token_is_never_said_back(bare: House) -> None:
    body = {"source": "huggingface", "repo_id": REPO, "hf_token": "hf_secret" + "x" * 300}
    _, _, error = bare.refused("POST", "", body)
    assert "hf_secret" not in json.dumps(error)


def test_a_local_folder_that_is_not_there(bare: House, tmp_path: Path) -> None:
    body = {"source": "local", "local_path": str(tmp_path / "nothing")}
    assert bare.refused("POST", "", body)[:2] == (400, "INVALID_LOCAL_PATH")


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_files_that_were_moved(bare: House, checkpoint: CheckpointMaker, tmp_path: Path, kind: str) -> None:
    here, there = tmp_path / f"here-{kind}", tmp_path / "there"
    if kind == "gguf":
        here, there = here.with_suffix(".gguf"), there.with_suffix(".gguf")
        build_gguf(checkpoint("llama"), here)
    else:
        shutil.copytree(checkpoint("llama"), here)
    added = bare.ok("POST", "", {"source": "local", "local_path": str(here)}, status=201)
    assert added["files_missing"] is False
    here.rename(there)
    assert bare.ok("GET", f"/{added['id']}")["files_missing"] is True
    status, code, error = bare.refused("POST", f"/{added['id']}/load")
    assert (status, code) == (400, "CHECKPOINT_INVALID")
    assert f"are not at {here} any more" in error["message"] and "choose them again" in error["message"]
    place = f"/{added['id']}/locate"
    assert bare.refused("POST", place, {"local_path": str(here)})[:2] == (400, "INVALID_LOCAL_PATH")
    assert bare.refused("POST", place, {"local_path": "there"})[0] == 422
    assert bare.refused("POST", place, {})[0] in (400, 422)
    assert bare.refused("POST", "/999/locate", {"local_path": str(there)})[:2] == (404, "MODEL_NOT_FOUND")
    other = shutil.copytree(checkpoint("qwen2"), tmp_path / f"other-{kind}")
    status, code, error = bare.refused("POST", place, {"local_path": str(other)})
    assert (status, code) == (400, "CHECKPOINT_INVALID") and "another model" in error["message"]
    kept = bare.ok("POST", "", {"source": "local", "local_path": str(other)}, status=201)
    assert bare.refused("POST", place, {"local_path": str(other)})[:2] == (409, "MODEL_ALREADY_EXISTS")
    assert kept["local_path"] == str(other)
    found = bare.ok("POST", place, {"local_path": str(there)})
    assert (found["id"], found["name"], found["local_path"]) == (added["id"], added["name"], str(there))
    assert (found["files_missing"], found["status"], found["error_message"]) == (False, "ready", None)


def test_the_same_model_twice(house: House, checkpoint: CheckpointMaker) -> None:
    there = house.id_of("tiny-llama")
    status, code, error = house.refused("POST", "", {"source": "local", "local_path": str(checkpoint("llama"))})
    assert (status, code) == (409, "MODEL_ALREADY_EXISTS")  # A293
    assert error["details"]["existing_model_id"] == there


def test_a_download_from_beginning_to_end(house: House, hub: StandInHub, checkpoint: CheckpointMaker) -> None:
    hub.add_folder(REPO, checkpoint("qwen2"))
    hub.held[WEIGHTS] = 0.5
    row = house.ok("POST", "", {"source": "huggingface", "repo_id": REPO}, status=202)
    assert (row["status"], row["name"], row["quantization"]) == ("downloading", "tiny", None)
    assert hub.hanging.wait(30)
    wait_until(lambda: 0 < house.ok("GET", f"/{row['id']}")["download_progress"] < 100, "progress")
    assert house.refused("POST", f"/{row['id']}/load")[:2] == (409, "MODEL_BUSY")
    refused = house.live.chat(model="tiny")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_busy")
    assert house.ok("GET", f"/{row['id']}")["status"] == "downloading"
    status, code, error = house.refused("POST", "", {"source": "huggingface", "repo_id": REPO})
    assert (status, code, error["details"]["existing_model_id"]) == (409, "MODEL_ALREADY_EXISTS", row["id"])  # A293
    with house.live.http() as client:
        assert "tiny" not in [each["id"] for each in client.get("/v1/models").json()["data"]]
    hub.let_go.set()
    view = house.ended(row["id"])
    assert (view["status"], view["download_progress"], view["error_message"]) == ("ready", None, None)
    assert house.live.chat(model="tiny").status_code == 200
    assert house.refused("DELETE", f"/{row['id']}")[:2] == (409, "MODEL_BUSY")  # A196
    house.ok("POST", f"/{row['id']}/unload")
    assert house.ok("DELETE", f"/{row['id']}") is None
    assert not Path(view["local_path"]).exists()


def test_a_cancelled_download_can_be_tried_again(empty: House, hub: StandInHub, checkpoint: CheckpointMaker) -> None:
    hub.add_folder(REPO, checkpoint("qwen2"))
    hub.held[WEIGHTS] = 0.5
    row = empty.ok("POST", "", {"source": "huggingface", "repo_id": REPO}, status=202)
    assert hub.hanging.wait(30)
    cancelled = empty.ok("POST", f"/{row['id']}/cancel")  # A190
    assert (cancelled["status"], cancelled["error_message"]) == ("error", "Download cancelled by user")
    hub.held.clear()
    hub.let_go.set()
    assert empty.ended(row["id"])["status"] == "error"
    assert empty.refused("POST", f"/{row['id']}/cancel")[:2] == (409, "NOTHING_TO_CANCEL")
    again = empty.ok("POST", "", {"source": "huggingface", "repo_id": REPO}, status=202)
    assert again["id"] == row["id"] and empty.ended(row["id"])["status"] == "ready"


def test_what_the_hub_refuses(empty: House, hub: StandInHub, checkpoint: CheckpointMaker) -> None:
    body = {"source": "huggingface", "repo_id": "made/nothing"}
    assert empty.refused("POST", "", body)[:2] == (404, "REPO_NOT_FOUND")
    assert empty.refused("POST", "/preview", {"repo_id": "made/nothing"})[:2] == (404, "REPO_NOT_FOUND")
    hub.add_folder(REPO, checkpoint("qwen2"), gated=True)
    status, code, error = empty.refused("POST", "/preview", {"repo_id": REPO})
    assert (status, code) == (401, "GATED_MODEL_NO_TOKEN") and "gated" in error["message"]
    response = empty.client.post("/api/models/preview", json={"repo_id": REPO})
    assert "WWW-Authenticate" not in response.headers
    found = empty.ok("POST", "/preview", {"repo_id": REPO, "hf_token": "hf_good"})
    assert found["architecture"] == "Qwen2ForCausalLM" and found["gated"] is True
    hub.statuses["api"] = [500]
    response = empty.client.post("/api/models/preview", json={"repo_id": REPO})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "HUB_UNAVAILABLE")
    assert int(response.headers["Retry-After"]) >= 1


def test_offline(own_engine: Callable[..., Engine], serve: Callable[..., Live], hub: StandInHub) -> None:
    live = serve(own_engine(None, HF_HUB_OFFLINE=True))
    with live.http() as client:
        response = client.post("/api/models", json={"source": "huggingface", "repo_id": REPO})
    assert (response.status_code, response.json()["error"]["code"]) == (409, "HUB_OFFLINE")
    assert hub.asked == []


def test_loading_and_unloading(house: House, checkpoint: CheckpointMaker) -> None:
    heard: list[Event] = []
    house.engine.events.subscribe(heard.append, ModelLoadProgress, ModelLoadComplete, ModelLoadError)
    other = house.ok("POST", "", {"source": "local", "local_path": str(checkpoint("qwen2"))}, status=201)
    row = house.ok("POST", f"/{other['id']}/load", status=202)
    assert row["status"] in ("loading", "loaded")
    wait_until(lambda: house.ok("GET", f"/{other['id']}")["status"] == "loaded", "the load")
    wait_until(lambda: isinstance(heard[-1], ModelLoadComplete), "its event")
    # A296: progress first, then one end.
    assert isinstance(heard[0], ModelLoadProgress)
    assert [type(each) for each in heard if not isinstance(each, ModelLoadProgress)] == [ModelLoadComplete]
    assert house.refused("POST", f"/{other['id']}/load")[:2] == (400, "MODEL_ALREADY_LOADED")
    llama = house.id_of("tiny-llama")
    assert house.ok("GET", f"/{llama}")["status"] == "ready"
    assert house.refused("POST", f"/{llama}/unload")[:2] == (400, "MODEL_NOT_LOADED")
    assert house.ok("POST", f"/{other['id']}/lock")["locked"] is True
    assert house.ok("POST", f"/{other['id']}/unload")["status"] == "ready"
    assert house.ok("GET", f"/{other['id']}")["locked"] is False  # A295
    assert house.refused("POST", f"/{other['id']}/lock")[:2] == (400, "MODEL_NOT_LOADED")


def test_events_of_a_load_that_fails(house: House, checkpoint: CheckpointMaker, tmp_path: Path) -> None:
    heard: list[Event] = []
    house.engine.events.subscribe(heard.append, ModelLoadComplete, ModelLoadError)
    broken = tmp_path / "broken"
    broken.mkdir()
    model = house.engine.library.models.add(
        ModelRecord("broken", ModelSource.LOCAL, EngineKind.TRANSFORMERS, local_path=str(broken))
    )
    assert house.refused("POST", f"/{model.id}/load")[:2] == (400, "CHECKPOINT_INVALID")
    wait_until(lambda: heard, "the event")
    assert isinstance(heard[0], ModelLoadError) and heard[0].code == "checkpoint_invalid"  # A296
    view = house.ok("GET", f"/{model.id}")
    assert view["status"] == "error" and "config.json is missing" in view["error_message"]
    # What was loaded still is, and a model in error may be tried again.
    assert house.ok("GET", f"/{house.id_of('tiny-llama')}")["status"] == "loaded"
    for path in checkpoint("qwen2").iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    house.ok("POST", f"/{model.id}/load", status=202)
    wait_until(lambda: house.ok("GET", f"/{model.id}")["status"] == "loaded", "the load")


def test_the_lock(house: House, checkpoint: CheckpointMaker) -> None:
    llama = house.id_of("tiny-llama")
    other = house.ok("POST", "", {"source": "local", "local_path": str(checkpoint("qwen2"))}, status=201)
    assert house.ok("POST", f"/{llama}/lock")["locked"] is True
    assert house.live.chat(model="tiny-qwen2").status_code == 409
    assert house.ok("POST", f"/{llama}/unlock")["locked"] is False
    house.engine.library.models.update(other["id"], locked=True)
    assert house.refused("POST", f"/{llama}/lock")[:2] == (409, "MODEL_LOCKED")


@pytest.mark.parametrize("gpu", [True, "fast", 1.5, [0], "gpu-0", ""])
def test_words_that_name_no_gpu(bare: House, gpu: object) -> None:
    assert bare.refused("POST", f"/{bare.id_of('x')}/load", {"gpu": gpu})[:2] == (422, "VALIDATION_ERROR")


@pytest.mark.parametrize("gpu", [77, -1, "GPU-00000000-0000-0000-0000-000000000000"])
def test_a_gpu_that_is_not_there(bare: House, gpu: object) -> None:
    assert bare.refused("POST", f"/{bare.id_of('x')}/load", {"gpu": gpu})[:2] == (404, "GPU_NOT_FOUND")


def huge_checkpoint(folder: Path, source: Path) -> Path:
    """A sound checkpoint whose weights are a hole of 4 TB: nothing can hold it, and it takes no room on the disk."""
    folder.mkdir()
    for path in source.iterdir():
        if path.name != WEIGHTS:
            (folder / path.name).write_bytes(path.read_bytes())
    values = 1 << 40
    header = json.dumps({"w": {"dtype": "F32", "shape": [values], "data_offsets": [0, values * 4]}}).encode()
    with (folder / WEIGHTS).open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + values * 4)
    return folder


def test_a_model_that_does_not_fit_is_refused_before_anything_is_unloaded(
    house: House, checkpoint: CheckpointMaker, tmp_path: Path
) -> None:
    try:
        folder = huge_checkpoint(tmp_path / "huge", checkpoint("llama"))
    except OSError:
        pytest.skip("this file system has no files of that length")
    row = house.ok("POST", "", {"source": "local", "local_path": str(folder)}, status=201)
    status, code, error = house.refused("POST", f"/{row['id']}/load")
    assert (status, code) == (507, "INSUFFICIENT_MEMORY")
    assert error["details"]["needed_mb"] > error["details"]["available_mb"]
    assert error["details"]["before_loading"] is True and error["details"]["min_context_tokens"] == 2048
    # A184: on /v1 the same is a 503 that names the model and both figures, and what was loaded answers on.
    response = house.live.chat(model="huge")
    refusal = response.json()["error"]
    assert (response.status_code, refusal["code"]) == (503, "insufficient_memory")
    assert refusal["message"].startswith("Could not load 'huge': ")
    assert str(error["details"]["needed_mb"]) in refusal["message"] and "MB" in refusal["message"]
    assert int(response.headers["Retry-After"]) >= 1
    assert house.live.chat().status_code == 200


@pytest.mark.parametrize("level", ["Q2", "Q4", "Q8"])
def test_levels_this_machine_cannot_hold(house: House, checkpoint: CheckpointMaker, level: str) -> None:
    import torch

    if level != "Q2" and torch.cuda.is_available():
        pytest.skip("a GPU holds this level")
    body = {"source": "local", "local_path": str(checkpoint("qwen2")), "quantization": level}
    row = house.ok("POST", "", body, status=201)
    assert row["name"] == f"tiny-qwen2:{level}"
    status, code, error = house.refused("POST", f"/{row['id']}/load")
    assert (status, code) == (400, "UNSUPPORTED_QUANTIZATION") and level in error["message"]
    response = house.live.chat(model=row["name"])  # A185
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported_quantization")
    assert house.live.chat().status_code == 200
    assert house.engine.shelf.resident is not None and house.engine.shelf.resident.record.name == "tiny-llama"


def test_another_level_is_another_fingerprint(house: House, checkpoint: CheckpointMaker) -> None:
    before = house.live.chat().json()["system_fingerprint"]
    assert house.live.chat().json()["system_fingerprint"] == before  # A014
    for level, dtype in (("FP32", "float32"), ("FP16", "bfloat16")):
        body = {"source": "local", "local_path": str(checkpoint("llama")), "quantization": level, "custom_name": level}
        house.ok("POST", "", body, status=201)
        found = house.live.chat(model=level).json()["system_fingerprint"]
        assert found == f"millm:{level}@unrecorded:{dtype}/{level}:transformers"  # A014


def test_gguf_files(house: House, checkpoint: CheckpointMaker, tmp_path: Path) -> None:
    plain = build_gguf(checkpoint("llama"), tmp_path / "smol-F32.gguf")
    row = house.ok("POST", "", {"source": "local", "local_path": str(plain)}, status=201)
    assert (row["name"], row["gguf_label"], row["quantization"], row["engine"]) == (
        "smol:F32",
        "F32",
        "FP32",
        "llamacpp",
    )
    answer = house.live.chat(model="smol")  # A188
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "smol:F32"
    assert answer.json()["system_fingerprint"].endswith("/F32:llamacpp")
    view = house.ok("GET", f"/{row['id']}")
    assert (view["status"], view["placement"]["mode"], view["num_parameters"]) == ("loaded", "cpu", 62_752)
    smaller = quantise(plain, tmp_path / "smol-Q8_0.gguf", "Q8_0")
    body = {"source": "local", "local_path": str(smaller), "copy": True}
    house.ok("POST", "", body, status=201)
    refused = house.live.chat(model="smol").json()["error"]  # A188
    assert refused["code"] == "ambiguous_model_name" and "smol:F32, smol:Q8_0" in refused["message"]
    assert house.live.chat(model="smol:Q8_0").json()["system_fingerprint"].endswith("/Q8_0:llamacpp")  # A014


def test_a_broken_gguf_is_refused(bare: House, tmp_path: Path) -> None:
    broken = tmp_path / "broken-Q8_0.gguf"
    broken.write_bytes(b"GGUF" + bytes(40))
    status, code, error = bare.refused("POST", "", {"source": "local", "local_path": str(broken)})
    assert (status, code) == (400, "CHECKPOINT_INVALID") and "broken-Q8_0.gguf" in error["message"]


def test_a_request_during_an_unload(house: House, checkpoint: CheckpointMaker) -> None:
    house.ok("POST", "", {"source": "local", "local_path": str(checkpoint("qwen2"))}, status=201)
    standing, go_on = threading.Event(), threading.Event()

    def stand_still() -> None:
        standing.set()
        go_on.wait(60)

    ended = house.engine._thread.run(stand_still)
    assert standing.wait(30)
    unloading = house.engine.loader.unload()
    try:
        refused = house.live.chat(model="tiny-qwen2")  # A199
        same = house.live.chat()
    finally:
        go_on.set()
        ended.result(30)
        unloading.result(30)
    for response in (refused, same):
        assert (response.status_code, response.json()["error"]["code"]) == (503, "model_busy")
        assert int(response.headers["Retry-After"]) >= 1
    assert house.live.chat(model="tiny-qwen2").status_code == 200


def test_a_restart_puts_rows_right(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(checkpoint("llama"))
    other = engine.models.import_local(checkpoint("qwen2"))
    engine.library.models.update(engine.shelf.resolve("tiny-llama").id, locked=True)
    # As after a kill: nothing was written when it ended.
    engine.library.reset_after_restart()
    record = engine.library.models.by_name("tiny-llama")
    assert record is not None and (record.status, record.locked) == (ModelStatus.READY, False)  # A191
    live = serve(engine)
    with live.http() as client:
        names = {each["id"] for each in client.get("/v1/models").json()["data"]}
    assert names == {"tiny-llama", "tiny-qwen2"} and other.status == "ready"


def test_removing_keeps_the_files_of_the_person(house: House, checkpoint: CheckpointMaker) -> None:
    row = house.ok("POST", "", {"source": "local", "local_path": str(checkpoint("qwen2"))}, status=201)
    assert house.ok("DELETE", f"/{row['id']}") is None
    assert (checkpoint("qwen2") / WEIGHTS).exists()
    assert house.refused("GET", f"/{row['id']}")[:2] == (404, "MODEL_NOT_FOUND")
    llama = house.id_of("tiny-llama")
    assert house.refused("DELETE", f"/{llama}")[:2] == (409, "MODEL_BUSY")  # A196


def test_renaming(house: House, checkpoint: CheckpointMaker) -> None:
    row = house.ok("POST", "", {"source": "local", "local_path": str(checkpoint("qwen2"))}, status=201)
    assert house.ok("PATCH", f"/{row['id']}", {"name": "mine"})["name"] == "mine"
    assert house.refused("PATCH", f"/{row['id']}", {"name": "tiny-llama"})[:2] == (409, "MODEL_ALREADY_EXISTS")
    assert house.refused("PATCH", f"/{house.id_of('tiny-llama')}", {"name": "x"})[:2] == (409, "MODEL_BUSY")


def test_disk_use(house: House, checkpoint: CheckpointMaker) -> None:
    house.engine.models.import_local(checkpoint("qwen2"), copy=True)
    use = house.ok("GET", "/disk-use")
    assert {(each["name"], each["ours"]) for each in use["items"]} == {("tiny-qwen2", True), ("tiny-llama", False)}
    assert use["ours_bytes"] > 200_000 and use["free_bytes"] > 0
    sizes = {each["name"]: each["bytes"] for each in use["items"]}
    assert (use["models_bytes"], use["elsewhere_bytes"]) == (sizes["tiny-qwen2"], sizes["tiny-llama"])
    # The list of models says the same.
    for each in house.ok("GET", ""):
        assert each["disk_size_mb"] == round(sizes[each["name"]] / 1e6, 2)
