"""Sweeps over HTTP: begun, followed by events, ended, exported, forgotten; what steers live stays as it is."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from engine.actions.sweeping.runs import MOST_KEPT
from engine.library.records import FeatureLabel
from tests.engine.actions.steering.stage import cluster, member
from tests.server.management.conftest import House
from tests.server.management.test_steering import generate

SWEEPS = "/api/sweeps"


@pytest.fixture
def ready(steered: House) -> House:
    """As ``steered``, with a labelled feature and a profile of it."""
    steered.engine.saes.import_labels("a", [FeatureLabel(3, "ships and the sea", top_tokens=(" harbour",))])
    steered.engine.profiles.create("Ships", steering={3: 30.0}, sae_id="a", layer=1)
    return steered


def body(house: House, **changes: Any) -> dict[str, Any]:
    found = next(each for each in house.engine.profiles.list().profiles if each.record.name == "Ships")
    return {
        "base": {"kind": "profile", "id": found.record.id},
        "prompts": ["the sea", "a smile"],
        "intensities": [0.5, 1.5],
        "max_tokens": 4,
        **changes,
    }


def endless(house: House, **changes: Any) -> dict[str, Any]:
    return body(
        house,
        prompts=[f"the sea {number}" for number in range(100)],
        max_tokens=1024,
        temperature=1.5,
        ignore_eos=True,
        **changes,
    )


def test_a_sweep_from_its_beginning_to_its_file(ready: House) -> None:
    api = ready.api
    with ready.socket() as events:
        begun = api.ok("POST", SWEEPS, body(ready), status=202)
        events.wait_for("sweeps:changed")
        place = {"sweep_id": begun["id"], "base": "Ships", "total": 6}
        assert events.wait_for("sweep:progress") == {**place, "done": 0}
        assert events.wait_for("sweep:progress", done=6) == {**place, "done": 6}
        ended = events.wait_for("sweep:complete")
        assert ended == {**place, "done": 6, "state": "complete", "error": None}
    assert (begun["state"], begun["total"], begun["kind"], begun["error"]) == ("running", 6, "profile", None)
    assert begun["turned"]["places"] == [{"sae_id": "a", "layer": 1, "strengths": {"3": 30.0}}]
    assert begun["settings"] == {
        "prompts": ["the sea", "a smile"],
        "intensities": [0.0, 0.5, 1.5],
        "max_tokens": 4,
        "temperature": 0.0,
        "top_p": 1.0,
        "repetition_penalty": 1.0,
        "seed": 0,
        "topic": ["harbour", "sea", "ships"],
        "system": "",
    }
    found = api.ok("GET", f"{SWEEPS}/{begun['id']}")
    assert (found["state"], found["done"], found["failed"]) == ("complete", 6, 0)
    assert found["started_at"] <= found["ended_at"]
    assert found["facts"]["Model"] == "tiny-llama" and found["facts"]["SAEs"] == "a @ layer 1"
    cells = {(cell["prompt"], cell["intensity"]): cell for cell in found["cells"]}
    assert set(cells) == {(prompt, intensity) for prompt in (0, 1) for intensity in (0.0, 0.5, 1.5)}
    assert [mean["intensity"] for mean in found["means"]] == [0.0, 0.5, 1.5]
    assert all(mean["answers"] == 2 and mean["perplexity"] > 1 for mean in found["means"])
    listed = api.ok("GET", SWEEPS)
    assert listed["total"] == 1
    assert listed["sweeps"][0] == {name: found[name] for name in listed["sweeps"][0]}
    assert "cells" not in listed["sweeps"][0]

    table = api.call("GET", f"{SWEEPS}/{begun['id']}/export")
    assert table.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert len(rows) == 6 and not table.text.startswith("#")
    assert (rows[0]["prompt"], rows[0]["side"], rows[0]["intensity"]) == ("the sea", "plain", "")
    text = api.call("GET", f"{SWEEPS}/{begun['id']}/export?format=markdown")
    assert text.headers["content-type"] == "text/markdown; charset=utf-8"
    assert text.text.startswith("# Sweep of Ships\n") and "## a smile" in text.text
    assert "- Dial: Ships (profile)" in text.text and "miLLM Desktop" in text.text

    # Kept as a record it outlives the session, is exported alike, and its export can be sent back.
    with ready.socket() as events:
        kept = api.ok("POST", f"{SWEEPS}/{begun['id']}/keep", status=201)
        events.wait_for("experiments:changed")
    assert (kept["kind"], kept["title"], kept["model"]) == ("sweep", "Sweep of Ships", "tiny-llama")
    path = f"/api/experiments/{kept['id']}/export"
    assert api.call("GET", f"{path}?format=csv").text == table.text
    assert api.call("GET", path).text == text.text
    whole = json.loads(api.call("GET", f"{path}?format=json").text)
    assert whole["kind"] == "millm.sweep"
    again = api.ok("POST", "/api/experiments", whole, status=201)
    assert again["content"] == kept["content"] and again["settings"] == kept["settings"]
    whole["content"]["cells"][0]["prompt"] = 9
    error = api.refused(422, "VALIDATION_ERROR", "POST", "/api/experiments", whole)
    assert "no prompt 9" in error["message"]

    api.refused(409, "NOTHING_TO_CANCEL", "POST", f"{SWEEPS}/{begun['id']}/cancel")
    with ready.socket() as events:
        assert api.ok("DELETE", f"{SWEEPS}/{begun['id']}") == {"id": begun["id"], "deleted": True}
        events.wait_for("sweeps:changed")
    api.refused(404, "NOT_FOUND", "GET", f"{SWEEPS}/{begun['id']}")
    assert api.ok("GET", SWEEPS) == {"sweeps": [], "total": 0}


def test_a_sweep_takes_and_tells_all_of_the_sampling(ready: House) -> None:
    """A biased token is all that greedy answers have, and what was asked is in every place the sweep is told."""
    api = ready.api
    asked: dict[str, Any] = {
        "top_k": 3,
        "min_p": 0.01,
        "frequency_penalty": 0.5,
        "presence_penalty": -0.5,
        "logit_bias": {"70": 100},
        "min_tokens": 4,
        "ignore_eos": True,
    }
    with ready.socket() as events:
        begun = api.ok("POST", SWEEPS, body(ready, **asked), status=202)
        assert {name: begun["settings"][name] for name in asked} == asked
        events.wait_for("sweep:complete", state="complete")
    found = api.ok("GET", f"{SWEEPS}/{begun['id']}")
    assert all(cell["tokens"] == 4 and cell["trigrams"] > 0 for cell in found["cells"])
    kept = api.ok("POST", f"{SWEEPS}/{begun['id']}/keep", status=201)
    assert {name: kept["settings"][name] for name in asked} == asked
    text = api.call("GET", f"/api/experiments/{kept['id']}/export").text
    assert "- Logit bias: 70: 100.0\n" in text and "- End tokens ignored: yes\n" in text and "- Top-k: 3\n" in text
    # What asks for nothing is not told.
    with ready.socket() as events:
        begun = api.ok("POST", SWEEPS, body(ready, top_k=-1, logit_bias=None), status=202)
        events.wait_for("sweep:complete", state="complete")
    assert "top_k" not in begun["settings"] and "logit_bias" not in begun["settings"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_k", -2),
        ("min_p", 1.1),
        ("min_p", "0.1"),
        ("frequency_penalty", 2.1),
        ("presence_penalty", -2.1),
        ("repetition_penalty", 0),
        ("logit_bias", {"1": 101}),
        ("min_tokens", -1),
        ("min_tokens", 5),
        ("ignore_eos", 1),
    ],
)
def test_sampling_a_sweep_cannot_have(ready: House, name: str, value: object) -> None:
    error = ready.api.refused(422, "VALIDATION_ERROR", "POST", SWEEPS, body(ready, **{name: value}))
    assert name in error["message"]
    assert ready.api.ok("GET", SWEEPS)["total"] == 0


def test_a_bias_of_a_token_the_model_lacks_begins_no_sweep(ready: House) -> None:
    error = ready.api.refused(422, "VALIDATION_ERROR", "POST", SWEEPS, body(ready, logit_bias={"999999": 1}))
    assert "999999 is outside the vocabulary" in error["message"]
    assert ready.api.ok("GET", SWEEPS)["total"] == 0


@pytest.mark.parametrize("seed", [2**63 - 1, -(2**63), -2])
def test_seeds_of_64_bits(ready: House, seed: int) -> None:
    """Each prompt draws from the seed behind the one before it; behind the last one comes the first."""
    api = ready.api
    with ready.socket() as events:
        begun = api.ok("POST", SWEEPS, body(ready, seed=seed, temperature=1.0, intensities=[0.5]), status=202)
        assert begun["settings"]["seed"] == seed
        events.wait_for("sweep:complete", state="complete")
    kept = api.ok("POST", f"{SWEEPS}/{begun['id']}/keep", status=201)
    whole = json.loads(api.call("GET", f"/api/experiments/{kept['id']}/export?format=json").text)
    assert api.ok("POST", "/api/experiments", whole, status=201)["settings"]["seed"] == seed


@pytest.mark.parametrize("none", [-1, None])
def test_without_a_seed_one_is_drawn_and_told(ready: House, none: int | None) -> None:
    with ready.socket() as events:
        begun = ready.api.ok("POST", SWEEPS, body(ready, seed=none, intensities=[0.5]), status=202)
        assert 0 <= begun["settings"]["seed"] < 2**32
        events.wait_for("sweep:complete", state="complete")


def test_what_steers_live_stays_and_can_be_swept(ready: House) -> None:
    api = ready.api
    api.refused(422, "VALIDATION_ERROR", "POST", SWEEPS, body(ready, base={"kind": "live"}))
    api.ok("POST", "/api/saes/steering", {"feature_idx": 5, "value": 20, "sae_id": "b"})
    before = generate(ready)
    with ready.socket() as events:
        asked = body(ready, base={"kind": "live"}, plain=False, topic=["Sea, harbour"], intensities=[1.0])
        begun = api.ok("POST", SWEEPS, asked, status=202)
        events.wait_for("sweep:complete", state="complete")
    assert begun["turned"]["places"] == [{"sae_id": "b", "layer": 2, "strengths": {"5": 20.0}}]
    assert (begun["settings"]["topic"], begun["settings"]["intensities"]) == (["harbour", "sea"], [1.0])
    assert generate(ready) == before


def test_one_runs_at_a_time_and_can_be_ended(ready: House) -> None:
    api = ready.api
    with ready.socket() as events:
        first = api.ok("POST", SWEEPS, endless(ready), status=202)
        error = api.refused(409, "SWEEP_RUNNING", "POST", SWEEPS, body(ready))
        assert (error["details"]["sweep_id"], error["details"]["total"]) == (first["id"], 300)
        assert api.ok("GET", f"{SWEEPS}/{first['id']}")["state"] == "running"
        assert api.ok("POST", f"{SWEEPS}/{first['id']}/cancel")["id"] == first["id"]
        # The next one begins as soon as the lanes are free.
        second = api.ok("POST", SWEEPS, body(ready), status=202)
        assert events.wait_for("sweep:complete")["state"] == "cancelled"
        assert events.wait_for("sweep:complete", sweep_id=second["id"])["state"] == "complete"
    found = api.ok("GET", f"{SWEEPS}/{first['id']}")
    assert (found["state"], found["error"]) == ("cancelled", None) and found["done"] < 300
    told = api.call("GET", f"{SWEEPS}/{first['id']}/export?format=markdown").text
    assert "ended before it was complete" in told
    assert [each["id"] for each in api.ok("GET", SWEEPS)["sweeps"]] == [second["id"], first["id"]]


def test_deleting_one_that_runs_ends_it(ready: House) -> None:
    begun = ready.api.ok("POST", SWEEPS, endless(ready), status=202)
    ready.api.ok("DELETE", f"{SWEEPS}/{begun['id']}")
    assert ready.engine.sweeps.runs.wait(0)
    assert ready.api.ok("GET", SWEEPS)["total"] == 0
    assert generate(ready)[1] == "none"


def test_the_last_ones_are_kept(ready: House) -> None:
    begun = []
    with ready.socket() as events:
        for _ in range(MOST_KEPT + 1):
            asked = body(ready, prompts=["the sea"], intensities=[1], plain=False, max_tokens=1)
            begun.append(ready.api.ok("POST", SWEEPS, asked, status=202)["id"])
            events.wait_for("sweep:complete", sweep_id=begun[-1])
    assert [each["id"] for each in ready.api.ok("GET", SWEEPS)["sweeps"]] == begun[:0:-1]
    ready.api.refused(404, "NOT_FOUND", "GET", f"{SWEEPS}/{begun[0]}")


def test_a_sweep_whose_model_goes_says_why(ready: House) -> None:
    with ready.socket() as events:
        begun = ready.api.ok("POST", SWEEPS, endless(ready), status=202)
        ready.engine.settings.GRACEFUL_UNLOAD_TIMEOUT = 0
        ready.engine.loader.unload().result(60)
        ended = events.wait_for("sweep:complete")
    assert ended["state"] == "failed" and ended["error"]
    error = ready.api.ok("GET", f"{SWEEPS}/{begun['id']}")["error"]
    assert (error["code"], error["message"]) == ("MODEL_BUSY", ended["error"])
    asked = body(ready)
    ready.api.refused(400, "SAE_NOT_ATTACHED", "POST", SWEEPS, asked)


def test_what_can_be_swept(ready: House) -> None:
    ready.engine.clusters.import_document(
        json.dumps(
            cluster("Harbour", member(3, 8.0), sae={"mistudio_sae_id": "a", "layer": 1, "n_features": 64})
        ).encode()
    )
    found = ready.api.ok("GET", f"{SWEEPS}/choices")["choices"]
    assert [(each["kind"], each["name"]) for each in found] == [
        ("cluster", "Harbour"),
        ("profile", "Ships"),
        ("live", "What steers now"),
    ]
    asked = body(ready, base={"kind": found[0]["kind"], "id": found[0]["id"]}, max_tokens=1)
    with ready.socket() as events:
        assert ready.api.ok("POST", SWEEPS, asked, status=202)["base"] == "Harbour"
        events.wait_for("sweep:complete", state="complete")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"base": {"kind": "dial", "id": "x"}}, "base.kind"),
        ({"base": {"kind": "profile"}}, "base.id"),
        ({"base": {"kind": "live", "id": "x"}}, "base.id"),
        ({"prompts": []}, "prompts"),
        ({"prompts": ["x", " "]}, "prompts"),
        ({"prompts": ["x"] * 101}, "prompts"),
        ({"intensities": []}, "intensities"),
        ({"intensities": [2.5]}, "intensities.0"),
        ({"intensities": "0..2"}, "intensities"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2000}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"seed": 2**63}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"topic": "sea"}, "topic"),
        ({"lambda": 1}, "lambda"),
    ],
)
def test_sweeps_that_are_not_well_formed(shared: House, change: dict[str, Any], param: str) -> None:
    asked = {"base": {"kind": "profile", "id": "nobody"}, "prompts": ["x"], "intensities": [1], **change}
    error = shared.api.refused(422, "VALIDATION_ERROR", "POST", SWEEPS, asked)
    assert [each["param"] for each in error["details"]["errors"]] == [param]
    assert shared.api.ok("GET", SWEEPS)["total"] == 0


def test_sweeps_of_what_is_not_there(shared: House) -> None:
    asked: dict[str, Any] = {"prompts": ["x"], "intensities": [1]}
    for kind, code in (
        ("profile", "PROFILE_NOT_FOUND"),
        ("cluster", "CLUSTER_NOT_FOUND"),
        ("circuit", "CIRCUIT_NOT_FOUND"),
    ):
        shared.api.refused(404, code, "POST", SWEEPS, {**asked, "base": {"kind": kind, "id": "nobody"}})
    for method, path in (
        ("GET", f"{SWEEPS}/nobody"),
        ("GET", f"{SWEEPS}/nobody/export"),
        ("POST", f"{SWEEPS}/nobody/cancel"),
        ("DELETE", f"{SWEEPS}/nobody"),
    ):
        shared.api.refused(404, "NOT_FOUND", method, path)
    shared.api.refused(422, "VALIDATION_ERROR", "GET", f"{SWEEPS}/nobody/export?format=xlsx")
