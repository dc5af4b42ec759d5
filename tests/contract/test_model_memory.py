"""Models into memory and out of it by ``/v1``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from tests.conftest import CheckpointMaker
from tests.contract.conftest import MODEL, Live


@pytest.fixture
def two(own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker) -> Live:
    """A server with ``tiny-llama`` loaded and ``tiny-qwen2`` in the library."""
    engine = own_engine(checkpoint("llama"))
    import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    return serve(engine)


def post(live: Live, what: str, *, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    with live.http() as client:
        return client.post(f"/v1/models/{what}", json=body, headers=headers)


def refused(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


def resident(live: Live) -> str | None:
    found = live.engine.shelf.resident
    return None if found is None else found.record.name


@pytest.mark.parametrize("name", ["id", "model", "name"])
def test_a_model_is_loaded(two: Live, name: str) -> None:
    response = post(two, "load", **{name: "tiny-qwen2", "runtime": "transformers"})
    assert response.status_code == 200
    assert response.json()["id"] == "tiny-qwen2"
    assert response.json()["loaded"] is True
    assert "X-miLLM-Ignored-Fields" not in response.headers
    assert resident(two) == "tiny-qwen2"
    with two.http() as client:
        assert client.get("/v1/models/tiny-qwen2").json() == response.json()
    # One that is there already is given back as it is.
    assert post(two, "load", id="tiny-qwen2").json() == response.json()


def test_what_load_refuses(two: Live) -> None:
    assert refused(post(two, "load", id="nope")) == (404, "model_not_found", "model")
    assert refused(post(two, "load")) == (400, "invalid_parameter", "id")
    assert refused(post(two, "load", id="")) == (400, "invalid_parameter", "id")
    assert refused(post(two, "load", model="")) == (400, "invalid_parameter", "model")
    assert refused(post(two, "load", id=3)) == (400, "invalid_parameter", "id")
    assert refused(post(two, "load", id="tiny-qwen2", name=MODEL)) == (400, "invalid_parameter", None)
    assert refused(post(two, "load", id="tiny-qwen2", runtime="x")) == (400, "unsupported_runtime", "runtime")
    assert refused(post(two, "load", id="tiny-qwen2", runtime="llamacpp")) == (400, "unsupported_runtime", "runtime")
    assert refused(post(two, "load", id="tiny-qwen2", runtime=1)) == (400, "invalid_parameter", "runtime")
    two.engine.library.models.update(two.engine.shelf.resolve("tiny-qwen2").id, pipeline_tag="feature-extraction")
    assert refused(post(two, "load", id="tiny-qwen2")) == (400, "model_not_generative", "model")
    assert resident(two) == MODEL


def test_fields_nobody_reads_are_named(two: Live) -> None:
    response = post(two, "load", id=MODEL, keep_alive="5m", quant=None)
    assert response.status_code == 200
    assert response.headers["X-miLLM-Ignored-Fields"] == '"keep_alive"'
    strict = post(two, "load", id="tiny-qwen2", keep_alive="5m", headers={"X-miLLM-Strict": "true"})
    assert refused(strict) == (400, "unused_fields_refused", "keep_alive")
    assert refused(post(two, "unload", id=MODEL, force=True, headers={"X-miLLM-Strict": "true"}))[0] == 400
    assert resident(two) == MODEL


def test_a_locked_model_is_neither_pushed_out_nor_unloaded(two: Live) -> None:
    two.engine.library.models.update(two.engine.shelf.resolve(MODEL).id, locked=True)
    assert refused(post(two, "load", id="tiny-qwen2")) == (409, "model_locked", "model")
    assert refused(post(two, "unload", id=MODEL)) == (409, "model_locked", "model")
    with two.http() as client:
        assert refused(client.delete(f"/v1/models/{MODEL}")) == (409, "model_locked", "model")
    assert post(two, "load", id=MODEL).status_code == 200
    assert resident(two) == MODEL


def test_a_model_is_unloaded_and_answers_again(two: Live) -> None:
    gone = {"id": MODEL, "object": "model", "deleted": True, "unloaded": True}
    response = post(two, "unload", id=MODEL)
    assert (response.status_code, response.json()) == (200, gone)
    assert resident(two) is None
    assert refused(post(two, "unload", id=MODEL)) == (400, "model_not_loaded", "model")
    assert refused(post(two, "unload", id="nope")) == (404, "model_not_found", "model")
    assert two.chat().status_code == 200
    with two.http() as client:
        assert client.delete("/v1/models/tiny-qwen2").status_code == 400
        assert client.delete("/v1/models/nope").status_code == 404
        assert client.delete(f"/v1/models/{MODEL}").json() == gone
        assert client.get(f"/v1/models/{MODEL}").json()["loaded"] is False
    assert two.chat().status_code == 200


def test_the_sdk_unloads(two: Live) -> None:
    with two.sdk() as client:
        assert client.models.delete(MODEL).deleted is True
    assert resident(two) is None


def test_a_name_with_a_slash(two: Live) -> None:
    record = two.engine.shelf.resolve("tiny-qwen2")
    two.engine.library.models.update(record.id, name="qwen/load")
    assert post(two, "load", id="qwen/load").json()["id"] == "qwen/load"
    with two.http() as client:
        assert client.delete("/v1/models/qwen/load").json()["id"] == "qwen/load"
        two.engine.library.models.update(record.id, name="load")
        assert client.get("/v1/models/load").json()["id"] == "load"
        assert post(two, "load", id="load").status_code == 200
        assert client.delete("/v1/models/load").json()["id"] == "load"
