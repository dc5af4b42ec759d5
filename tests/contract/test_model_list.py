"""``GET /v1/models``: what an item says, and how the list is read page by page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from importlib import metadata
from pathlib import Path

import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from tests.conftest import CheckpointMaker
from tests.contract.conftest import Live
from tests.gguf_files import build_gguf

Serve = Callable[..., Live]


@pytest.fixture
def shelf(own_engine: Callable[..., Engine], serve: Serve, checkpoint: CheckpointMaker) -> Live:
    """A server with ``tiny-llama`` loaded, and four more in the library."""
    engine = own_engine(checkpoint("llama"))
    for family in ("gpt2", "mistral", "qwen2", "qwen3"):
        import_local_model(engine.library, engine.events, checkpoint(family))
    return serve(engine)


def ids(live: Live, **query: object) -> tuple[list[str], bool, str | None, str | None]:
    with live.http() as client:
        body = client.get("/v1/models", params=query).json()
    return [item["id"] for item in body["data"]], body["has_more"], body["first_id"], body["last_id"]


ALL = ["tiny-llama", "tiny-gpt2", "tiny-mistral", "tiny-qwen2", "tiny-qwen3"]


def test_an_item(shelf: Live) -> None:
    with shelf.http() as client:
        loaded, other = client.get("/v1/models", params={"limit": 2}).json()["data"]
        assert client.get("/v1/models/tiny-llama").json() == loaded
    created, created_at = loaded.pop("created"), loaded.pop("created_at")
    assert created_at.endswith("Z")
    assert int(datetime.fromisoformat(created_at).timestamp()) == created
    assert loaded == {
        "id": "tiny-llama",
        "object": "model",
        "type": "model",
        "display_name": "tiny-llama",
        "lifecycle": "active",
        "owned_by": "miLLM",
        "loaded": True,
        "max_input_tokens": 2048,
        "meta": {"n_ctx": 2048},
        "architecture": {"input_modalities": ["text"]},
        "runtime": {"id": "transformers", "version": metadata.version("transformers")},
        "capabilities": {
            "tools": "generic",
            "thinking": False,
            "reasoning_effort": False,
            "fim": False,
            "vision": False,
            "audio": False,
            "embeddings": True,
            "steering": True,
        },
    }
    assert (other["id"], other["loaded"], other["meta"]) == ("tiny-gpt2", False, {"n_ctx": 2048})
    assert other["capabilities"]["steering"] is True


def test_a_gguf_that_is_not_loaded(shelf: Live, tiny_checkpoint: Path, tmp_path: Path) -> None:
    path = build_gguf(tiny_checkpoint, tmp_path / "small-F32.gguf")
    import_local_model(shelf.engine.library, shelf.engine.events, path)
    with shelf.http() as client:
        item = client.get("/v1/models/small:F32").json()
    assert item["runtime"] == {"id": "llamacpp", "version": metadata.version("llama-cpp-python")}
    assert item["loaded"] is False
    assert item["meta"]["n_ctx"] == 2048
    # Whether its layers can be read shows with the model at hand alone.
    assert item["capabilities"]["steering"] is None
    assert item["capabilities"]["fim"] is False


def test_pages(shelf: Live) -> None:
    assert ids(shelf) == (ALL, False, "tiny-llama", "tiny-qwen3")
    assert ids(shelf, limit=2) == (ALL[:2], True, "tiny-llama", "tiny-gpt2")
    assert ids(shelf, limit=2, after_id="tiny-gpt2") == (ALL[2:4], True, "tiny-mistral", "tiny-qwen2")
    assert ids(shelf, limit=2, after_id="tiny-qwen2") == (ALL[4:], False, "tiny-qwen3", "tiny-qwen3")
    assert ids(shelf, after_id="tiny-qwen3") == ([], False, None, None)
    # Backwards: what stands nearest before.
    assert ids(shelf, limit=2, before_id="tiny-qwen3") == (ALL[2:4], True, "tiny-mistral", "tiny-qwen2")
    assert ids(shelf, limit=3, before_id="tiny-qwen2") == (ALL[:3], False, "tiny-llama", "tiny-mistral")
    assert ids(shelf, after_id="tiny-llama", before_id="tiny-qwen2", limit=1) == (
        ["tiny-gpt2"],
        True,
        "tiny-gpt2",
        "tiny-gpt2",
    )
    assert ids(shelf, after_id="tiny-qwen2", before_id="tiny-gpt2")[0] == []
    assert ids(shelf, limit=1000)[0] == ALL


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", "1001"),
        ("limit", "many"),
        ("limit", "-1"),
        ("after_id", "nobody"),
        ("after_id", ""),
        ("before_id", "nobody"),
    ],
)
def test_wrong_queries(live: Live, name: str, value: str) -> None:
    with live.http() as client:
        refused = client.get("/v1/models", params={name: value})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_parameter"
    assert refused.json()["error"]["param"] == name


def test_what_other_clients_ask_beside(live: Live) -> None:
    with live.http() as client:
        plain = client.get("/v1/models").json()
        assert "models" not in plain
        assert client.get("/v1/models", params={"beta": "true"}).json() == plain
        assert client.get("/v1/models", params={"client_version": "0.50.0"}).json() == {**plain, "models": []}
        assert client.get("/v1/models?limit=1&limit=2").json()["error"]["param"] == "limit"


def test_the_sdk_reads_the_list(shelf: Live) -> None:
    with shelf.sdk() as client:
        assert [model.id for model in client.models.list()] == ALL
