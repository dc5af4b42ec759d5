"""Other names of models: what they stand for, what wins, where they are listed, and how they change under a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from server.config import ServerSettings
from tests.contract.conftest import MODEL, Live
from tests.contract.stage import INTENSITY, STEERING, Stage, inline

NOTES = "X-miLLM-Notes"


@pytest.fixture
def aliased(stage: Stage, serve: Callable[..., Live]) -> Callable[[dict[str, Any]], Live]:
    """A function that serves the steered engine under other names, with the profiles *calm* and *storm*."""
    stage.attach()
    stage.profile("calm", {3: 40.0}, intensity=0.5)
    stage.profile("storm", {5: 40.0})

    def start(names: dict[str, Any]) -> Live:
        return serve(stage.engine, MODEL_ALIASES=names)

    return start


def report(live: Live, model: str, **body: Any) -> str:
    response = live.text(model=model, **body)
    assert response.status_code == 200, response.text
    assert response.json()["model"] == MODEL
    return response.headers[STEERING]


def test_an_alias_is_its_model_with_its_steering(stage: Stage, aliased: Callable[[dict[str, Any]], Live]) -> None:
    names = {"pirate": {"model": MODEL, "profile": "calm", "steering_intensity": 1}, "plain": MODEL}
    live = aliased(names)
    wanted = stage.report(profile="calm", steering_intensity=1)
    for ask in (live.chat, live.text):
        response = ask(model="pirate")
        assert response.json()["model"] == MODEL  # T191
        assert response.headers[STEERING] == wanted  # T191
        assert response.headers[INTENSITY]
        assert f"'pirate' is an alias of the model '{MODEL}'" in response.headers[NOTES]  # T191
    assert report(live, "plain") == "none"
    unknown = live.chat(model="nobody")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


def test_what_a_request_brings_wins(stage: Stage, aliased: Callable[[dict[str, Any]], Live]) -> None:
    live = aliased({"pirate": {"model": MODEL, "profile": "calm", "steering_intensity": 1}})
    assert report(live, "pirate", steering={"features": []}) == "none"  # T191
    assert report(live, "pirate", steering=inline((3, 20.0))).startswith("inline")
    # Its own profile replaces the dial, too: the profile's own intensity counts.
    assert report(live, "pirate", profile="storm") == stage.report(profile="storm")
    assert report(live, "pirate", steering_intensity=0.25) == stage.report(profile="calm", steering_intensity=0.25)
    assert live.text(model="pirate", headers={"X-miLLM-Profile": "storm"}).headers[STEERING] == stage.report(
        profile="storm"
    )
    assert live.text(model="pirate", headers={INTENSITY: "off"}).headers[STEERING] == "none"


def test_which_name_wins(stage: Stage, aliased: Callable[[dict[str, Any]], Live]) -> None:
    steering = {"model": MODEL, "profile": "calm"}
    live = aliased({MODEL: steering, "c*": MODEL, "claude-*": steering, "claude-1": MODEL, "*": "gone", "claude-": "x"})
    calm = stage.report(profile="calm")
    assert report(live, MODEL) == "none"  # a model's own name
    assert report(live, "claude-1") == "none"  # an exact one before a beginning
    assert report(live, "claude-2") == calm  # the longer beginning
    assert report(live, "cat") == "none"
    assert "(by 'c*')" in live.text(model="cat").headers[NOTES]
    assert live.text(model="dog").status_code == 404
    assert live.text(model="claude-").status_code == 404


def test_an_alias_never_names_an_alias(aliased: Callable[[dict[str, Any]], Live]) -> None:
    live = aliased({"a": "b", "b": MODEL, "self": "self"})
    for name in ("a", "self"):
        error = live.chat(model=name).json()["error"]
        assert (error["code"], error["param"]) == ("model_not_found", "model")
        assert "MODEL_ALIASES" in error["message"]


def test_a_profile_that_is_gone_names_the_alias(aliased: Callable[[dict[str, Any]], Live]) -> None:
    response = aliased({"lost": {"model": MODEL, "profile": "nobody"}}).chat(model="lost")
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (404, "profile_not_found", "model")
    assert "'lost'" in error["message"]


def test_lists(aliased: Callable[[dict[str, Any]], Live]) -> None:
    live = aliased({"pirate": MODEL, "any-*": MODEL, "gone": "nobody", MODEL: MODEL})
    with live.http() as client:
        items = client.get("/v1/models").json()["data"]
        assert [each["id"] for each in items] == [MODEL, "pirate"]
        assert items[1] == {**items[0], "id": "pirate", "owned_by": f"alias:{MODEL}"}
        assert client.get("/v1/models/pirate").json() == items[1]
        assert client.get("/v1/models/any-one").json()["id"] == "any-one"
        assert client.get("/v1/models/gone").status_code == 404
    with live.sdk() as sdk:
        assert [each.id for each in sdk.models.list()] == [MODEL, "pirate"]


def test_vectors_and_scores_are_never_steered(aliased: Callable[[dict[str, Any]], Live]) -> None:
    live = aliased({"pirate": {"model": MODEL, "profile": "nobody", "chat_template_kwargs": {}}, "plain": MODEL})
    with live.http() as client:
        vectors = client.post("/v1/embeddings", json={"model": "pirate", "input": "a"})
        assert (vectors.status_code, vectors.json()["model"]) == (200, MODEL)
        assert "had no effect" in vectors.headers[NOTES]
        plain = client.post("/v1/embeddings", json={"model": "plain", "input": "a"})
        assert "had no effect" not in plain.headers[NOTES]
        assert plain.json()["data"] == vectors.json()["data"]
    scored = live.text(model="pirate", max_tokens=1, logprobs=1)
    assert (scored.headers["X-miLLM-Mode"], scored.headers[STEERING]) == ("scoring", "none")
    assert "had no effect" in scored.headers[NOTES]


def test_template_variables_lie_under_the_requests_own(
    serve: Callable[..., Live], own_engine: Callable[..., Any], checkpoint: Callable[..., Any]
) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ mood }}{{ place }}"
    engine = own_engine(checkpoint("llama", chat_template=template))
    name = engine.shelf.resident.record.name
    variables = {"mood": "calm weather is here ", "unread": 1}
    live = serve(engine, MODEL_ALIASES={"x": {"model": name, "chat_template_kwargs": variables}})

    def tokens(**body: Any) -> int:
        response = live.chat(**body)
        assert response.status_code == 200, response.text
        return int(response.json()["usage"]["prompt_tokens"])

    assert tokens(model="x") == tokens(model=name, chat_template_kwargs={"mood": variables["mood"]})
    assert tokens(model="x", chat_template_kwargs={"mood": ""}) == tokens(model=name)
    assert tokens(model="x", chat_template_kwargs={"mood": "", "place": "a b c d"}) > tokens(model=name)
    assert tokens(model="x", max_tokens=1, logprobs=True) == tokens(model="x")
    # What the alias brings and the template does not read is no field of the request.
    response = live.chat(model="x", headers={"X-miLLM-Strict": "true"})
    assert response.status_code == 200, response.text
    assert "does not read 'unread'" in response.headers[NOTES]
    assert "X-miLLM-Ignored-Fields" not in response.headers
    own = live.chat(model="x", chat_template_kwargs={"unread": 2})
    assert own.headers["X-miLLM-Ignored-Fields"] == '"chat_template_kwargs.unread"'


def test_a_running_server_takes_them_over(steered: Live, serve: Callable[..., Live]) -> None:
    live = serve(steered.engine)
    assert live.chat(model="pirate").status_code == 404
    live.thread.configure(ServerSettings(PORT=0, MODEL_ALIASES={"pirate": MODEL}))
    assert live.chat(model="pirate").status_code == 200
    assert not live.thread.outdated
    live.thread.configure(ServerSettings(PORT=0))
    assert live.chat(model="pirate").status_code == 404
