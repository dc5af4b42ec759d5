"""``/api/hub``: what a search tells of each repository, what it is refused with, and pairs that are fetched together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.actions.downloading import finding
from engine.actions.downloading.finding import PAIRS, KnownPair
from engine.engine import Engine
from tests.contract.conftest import Live
from tests.hub import StandInHub
from tests.made_saes import make_sae
from tests.tiny import build_checkpoint

SEARCH = "/api/hub/search"


@pytest.fixture
def own(own_engine: Callable[..., Engine], serve: Callable[..., Live]) -> Live:
    return serve(own_engine(None))


def ask(live: Live, path: str, **query: Any) -> tuple[int, dict[str, Any]]:
    with live.http() as client:
        response = client.get(path, params=query)
    envelope = response.json()
    return response.status_code, envelope["data"] or envelope["error"]


def test_a_search_tells_size_downloads_and_gates(own: Live, hub: StandInHub) -> None:
    hub.add("acme/tiny-gemma", {}, downloads=5, parameters=2_000_000)
    hub.add("google/gemma-2-2b", {}, downloads=900, gated=True, parameters=2_614_341_888)
    hub.add("google/gemma-scope-2b-pt-res", {}, downloads=70, pipeline_tag=None)
    status, found = ask(own, SEARCH, q="  GEMMA ")
    assert (status, found["total"]) == (200, 2)
    assert found["repositories"][0] == {
        "repo_id": "google/gemma-2-2b",
        "downloads": 900,
        "likes": 3,
        "gated": True,
        "parameters": 2_614_341_888,
        "last_modified": "2026-03-04",
    }
    assert found["repositories"][1]["repo_id"] == "acme/tiny-gemma"
    # SAEs have no mark of their own: anything that fits.
    status, found = ask(own, SEARCH, q="gemma scope", kind="saes", limit=1)
    assert [each["repo_id"] for each in found["repositories"]] == ["google/gemma-scope-2b-pt-res"]
    assert found["repositories"][0]["parameters"] is None
    asked = hub.searches[-1]
    assert (asked["search"], asked["limit"], asked["sort"]) == (["gemma scope"], ["1"], ["downloads"])
    assert "pipeline_tag" not in asked and hub.searches[0]["pipeline_tag"] == ["text-generation"]
    assert ask(own, SEARCH, q="nothing-like-it")[1] == {"repositories": [], "total": 0}


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"q": ""},
        {"q": "   "},
        {"q": "x" * 201},
        {"q": "x", "limit": 0},
        {"q": "x", "limit": 51},
        {"q": "x", "kind": "y"},
    ],
)
def test_what_is_no_search_is_refused_before_the_hub_is_asked(
    own: Live, hub: StandInHub, query: dict[str, Any]
) -> None:
    status, error = ask(own, SEARCH, **query)
    assert status in (400, 422) and error["message"]
    assert hub.searches == []


def test_a_hub_that_fails_is_said_in_words(own: Live, hub: StandInHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.statuses["api"] = [503]
    status, error = ask(own, SEARCH, q="gemma")
    assert (status, error["code"]) == (503, "HUB_UNAVAILABLE")
    hub.garbage = b'[{"id": 5'
    status, error = ask(own, SEARCH, q="gemma")
    assert (status, error["code"]) == (503, "HUB_UNAVAILABLE")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    status, error = ask(own, SEARCH, q="gemma")
    assert error["code"] == "HUB_OFFLINE" and "is on" in error["message"]


def test_the_pairs_name_files_that_are_read_here(own: Live) -> None:
    status, found = ask(own, "/api/hub/pairs")
    assert status == 200 and "none of them was fetched" in found["note"]
    assert [(each["key"], each["gated"]) for each in found["pairs"]] == [
        ("gpt2-small", False),
        ("gemma-2-2b", True),
        ("llama-3.1-8b", True),
    ]
    assert len({each.key for each in PAIRS}) == len(PAIRS)


def test_a_pair_is_fetched_together(
    own: Live, hub: StandInHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pair = KnownPair("made", "acme/tiny", "acme/tiny-scope", "layer_1/sae_weights.safetensors", 1, False, "64 features")
    monkeypatch.setattr(finding, "PAIRS", (pair,))
    path = "/api/hub/pairs/made/fetch"
    with own.http() as client:
        # Without the SAE nothing is begun.
        hub.add_folder("acme/tiny", build_checkpoint(tmp_path / "tiny"))
        assert client.post(path, json={}).status_code == 404
        assert own.engine.models.list() == [] and own.engine.saes.list() == []
        make_sae(tmp_path / "repo" / "layer_1", layer=1)
        hub.add_folder("acme/tiny-scope", tmp_path / "repo")
        done = client.post(path, json={})
        assert done.status_code == 202
        data = done.json()["data"]
        assert (data["pair"]["sae_repo"], data["sae"]["status"]) == ("acme/tiny-scope", "downloading")
        assert own.engine.sae_downloads.wait_ended(data["sae"]["sae_id"], 60)
        assert own.engine.models.downloads.wait_ended(data["model"]["id"], 60)
        # Once more: both are here.
        again = client.post(path, json={}).json()["data"]
        assert again["sae"]["status"] != "downloading"
        assert client.post("/api/hub/pairs/unknown/fetch", json={}).status_code == 404


@pytest.mark.parametrize("token", ["hf_é", "hf\n_x", "two words", "\x00", "東"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/models", {"source": "huggingface", "repo_id": "acme/m"}),
        ("/api/models/preview", {"repo_id": "acme/m"}),
        ("/api/saes/preview", {"repository_id": "acme/m"}),
        ("/api/saes/download", {"repository_id": "acme/m"}),
        ("/api/hub/pairs/gpt2-small/fetch", {}),
    ],
)
def test_a_token_that_no_header_holds(own: Live, hub: StandInHub, path: str, body: dict[str, Any], token: str) -> None:
    hub.add("acme/m", {"config.json": b"{}"})
    with own.http() as client:
        response = client.post(path, json={**body, "hf_token": token})
    error = response.json()["error"]
    assert response.status_code in (400, 422), error
    assert "hf_token" in str(error) and token not in response.text.replace("\\n", "\n")
