"""Names of models: the list, the lock, loading on demand, and every way a name can fail."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from engine.events import ModelLoadProgress
from engine.library.records import EngineKind, ModelRecord, ModelSource, ModelStatus
from engine.models.backends.llamacpp import availability
from tests.conftest import CheckpointMaker
from tests.contract.conftest import MODEL, Live


@pytest.fixture
def two(own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker) -> Live:
    """A server with ``tiny-llama`` loaded and ``tiny-qwen2`` in the library."""
    engine = own_engine(checkpoint("llama"))
    import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    return serve(engine)


def test_the_list(two: Live) -> None:
    with two.http() as client:
        body = client.get("/v1/models").json()
    assert body["object"] == "list"  # A176
    assert [item["id"] for item in body["data"]] == ["tiny-llama", "tiny-qwen2"]
    for item in body["data"]:
        assert item["object"] == item["type"] == "model"
        assert item["owned_by"] == "miLLM"
        assert item["created"] > 1_700_000_000


def test_one_model(two: Live) -> None:
    with two.sdk() as client:
        assert client.models.retrieve("tiny-qwen2").id == "tiny-qwen2"
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve("nope")
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"


def test_a_name_with_a_slash(two: Live, checkpoint: CheckpointMaker) -> None:
    engine = two.engine
    record = engine.shelf.resolve("tiny-qwen2")
    engine.library.models.update(record.id, name="qwen/tiny")
    with two.http() as client:
        assert client.get("/v1/models/qwen/tiny").json()["id"] == "qwen/tiny"


def test_unknown_names(two: Live) -> None:
    response = two.chat(model="nope")
    assert response.status_code == 404  # A179
    assert response.json()["error"]["code"] == "model_not_found"
    assert response.json()["error"]["param"] == "model"
    assert two.chat(model="TINY-LLAMA").status_code == 404
    assert two.chat(model="").status_code == 404
    assert two.chat(model="x" * 1_000_000).status_code == 404
    # The name comes before the strict header.
    assert two.chat(model="nope", headers={"X-miLLM-Strict": "yes"}).status_code == 404
    assert two.engine.shelf.resident is not None
    assert two.engine.shelf.resident.record.name == MODEL


def test_naming_another_model_loads_it(two: Live) -> None:
    response = two.chat(model="tiny-qwen2")
    assert response.status_code == 200
    assert response.json()["model"] == "tiny-qwen2"
    assert response.json()["system_fingerprint"].startswith("millm:tiny-qwen2@")
    with two.http() as client:
        assert [item["id"] for item in client.get("/v1/models").json()["data"]] == ["tiny-qwen2", "tiny-llama"]
        assert client.get("/api/health/detailed").json()["model_name"] == "tiny-qwen2"


def test_the_resident_model_is_not_loaded_again(two: Live) -> None:
    loads: list[object] = []
    with_loads = two.engine.events.subscribe(loads.append, ModelLoadProgress)
    assert two.chat().status_code == 200
    with_loads.close()
    assert loads == []  # A181


def test_two_clients_with_two_models_are_both_served_in_the_end(two: Live) -> None:
    def ask(model: str) -> str:
        for _ in range(200):
            response = two.chat(model=model)
            if response.status_code == 200:
                return str(response.json()["model"])
            assert response.status_code == 503
            assert int(response.headers["Retry-After"]) >= 1
        raise AssertionError("refused two hundred times")

    with ThreadPoolExecutor(4) as pool:
        names = ["tiny-llama", "tiny-qwen2"] * 4
        assert list(pool.map(ask, names)) == names


def test_a_locked_model_is_the_only_one(two: Live) -> None:
    resident = two.engine.shelf.resolve(MODEL)
    two.engine.library.models.update(resident.id, locked=True)
    with two.http() as client:
        assert [item["id"] for item in client.get("/v1/models").json()["data"]] == ["tiny-llama"]  # A178
        other = client.get("/v1/models/tiny-qwen2")
    assert other.status_code == 404
    assert other.json()["error"]["code"] == "model_not_found"
    refused = two.chat(model="tiny-qwen2")  # A182
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "model_locked"
    assert refused.json()["error"]["param"] == "model"
    assert "tiny-llama" in refused.json()["error"]["message"]


def test_a_lock_left_on_a_model_that_is_not_loaded_hides_nothing(two: Live) -> None:
    two.engine.library.models.update(two.engine.shelf.resolve("tiny-qwen2").id, locked=True)
    with two.http() as client:
        assert len(client.get("/v1/models").json()["data"]) == 2


def test_models_that_cannot_write(two: Live) -> None:
    two.engine.library.models.update(two.engine.shelf.resolve("tiny-qwen2").id, pipeline_tag="feature-extraction")
    response = two.chat(model="tiny-qwen2")  # A187
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "model_not_generative"
    assert response.json()["error"]["param"] == "model"
    assert two.engine.shelf.loading is None


def test_a_gguf_row_without_its_engine(two: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "is_installed", lambda: False)
    two.engine.library.models.add(
        ModelRecord(
            "smol:Q4_1", ModelSource.LOCAL, EngineKind.LLAMACPP, local_path=str(tmp_path / "x.gguf"), gguf_label="Q4_1"
        )
    )
    with two.http() as client:
        assert "smol:Q4_1" not in client.get("/v1/models").text
    response = two.chat(model="smol")
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "engine_unsupported"


def test_an_ambiguous_name(two: Live, tmp_path: Path) -> None:
    for label in ("Q4_1", "Q8_0"):
        two.engine.library.models.add(
            ModelRecord(
                f"smol:{label}",
                ModelSource.LOCAL,
                EngineKind.LLAMACPP,
                local_path=str(tmp_path / label),
                gguf_label=label,
            )
        )
    response = two.chat(model="smol")
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "ambiguous_model_name"
    assert "smol:Q4_1" in response.json()["error"]["message"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_model_whose_files_are_gone(two: Live, tmp_path: Path, checkpoint: CheckpointMaker, stream: bool) -> None:
    folder = tmp_path / "tiny-gone"
    shutil.copytree(checkpoint("qwen2"), folder)
    import_local_model(two.engine.library, two.engine.events, folder)
    shutil.rmtree(folder)
    response = two.chat(model="tiny-gone", stream=stream)
    error = response.json()["error"]
    assert error["code"] != "server_error"  # A200
    assert error["message"].startswith("Could not load 'tiny-gone': ")
    assert response.status_code in (400, 500)
    # A failure is over: whoever asks again hears of it again, and not of a load under way.
    assert two.chat(model="tiny-gone", stream=stream).json()["error"]["code"] == error["code"]
    # What was loaded still answers.
    assert two.chat().status_code == 200
    assert two.engine.shelf.resolve("tiny-gone").status is ModelStatus.ERROR


def test_with_nothing_loaded(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(None)
    live = serve(engine)
    assert live.chat(model="nope").status_code == 404  # A200
    with live.http() as client:
        empty = {"object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None}
        assert client.get("/v1/models").json() == empty
    import_local_model(engine.library, engine.events, checkpoint("llama"))
    assert live.chat().status_code == 200
