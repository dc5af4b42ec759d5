"""The live monitor over HTTP, and what it has seen of real answers."""

from __future__ import annotations

from typing import Any

import pytest

from engine.library.records import FeatureLabel
from tests.server.management.conftest import House
from tests.server.management.test_steering import generate

OFF: dict[str, Any] = {
    "enabled": False,
    "sae_attached": False,
    "sae_id": None,
    "layer": None,
    "saes": [],
    "monitored_features": None,
    "history_size": 100,
    "history_count": 0,
    "top_k": 10,
}


def test_with_nothing_attached(bare: House) -> None:
    api = bare.api
    assert api.ok("GET", "/api/monitoring") == OFF
    api.refused(400, "SAE_NOT_ATTACHED", "POST", "/api/monitoring/configure", {"enabled": True})
    api.refused(400, "SAE_NOT_ATTACHED", "POST", "/api/monitoring/enable")
    api.refused(400, "SAE_NOT_ATTACHED", "POST", "/api/saes/monitoring", {"enabled": True})
    assert api.ok("POST", "/api/monitoring/enable", {"enabled": False}) == OFF
    assert api.ok("GET", "/api/monitoring/history") == {"records": [], "total": 0, "history_size": 100}
    assert api.ok("GET", "/api/monitoring/statistics") == {"features": [], "total_activations": 0, "since": None}
    assert api.ok("POST", "/api/monitoring/statistics/top") == {"features": [], "metric": "mean", "k": 10}


def test_what_is_watched(steered: House) -> None:
    api = steered.api
    with steered.socket() as events:
        state = api.ok("POST", "/api/monitoring/configure", {"features": [5, 3], "history_size": 20, "top_k": 4})
        assert state == {
            "enabled": True,
            "sae_attached": True,
            "sae_id": "a",
            "layer": 1,
            "saes": [{"sae_id": "a", "layer": 1}, {"sae_id": "b", "layer": 2}],
            "monitored_features": [5, 3],
            "history_size": 20,
            "history_count": 0,
            "top_k": 4,
        }
        assert events.wait_for("monitoring:state") == {
            "enabled": True,
            "monitored_features": [5, 3],
            "sae_id": "a",
            "layer": 1,
        }
        assert api.ok("POST", "/api/monitoring/enable", {"enabled": False})["enabled"] is False
        assert events.wait_for("monitoring:state")["enabled"] is False
    assert api.ok("POST", "/api/monitoring/enable")["enabled"] is True
    assert api.ok("GET", "/api/saes/attachment")["monitoring_enabled"] is True
    # Beside the SAEs it is the same thing, from all defaults.
    assert api.ok("POST", "/api/saes/monitoring", {"enabled": True, "layer": 2})["saes"] == [
        {"sae_id": "b", "layer": 2}
    ]
    assert api.ok("GET", "/api/saes/attachment")["monitoring_enabled"] is False


@pytest.mark.parametrize(
    ("status", "code", "body"),
    [
        (422, "VALIDATION_ERROR", {"features": []}),
        (422, "VALIDATION_ERROR", {"features": [-1]}),
        (422, "VALIDATION_ERROR", {"features": ["3"]}),
        (422, "VALIDATION_ERROR", {"history_size": 0}),
        (422, "VALIDATION_ERROR", {"history_size": 1001}),
        (422, "VALIDATION_ERROR", {"top_k": 1001}),
        (422, "VALIDATION_ERROR", {"enabled": 1}),
        (422, "VALIDATION_ERROR", {"feature": [3]}),
        (400, "INVALID_FEATURE_INDEX", {"features": [3, 64]}),
        (400, "SAE_NOT_ATTACHED", {"sae_id": "nobody"}),
        (400, "SAE_NOT_ATTACHED", {"layer": 3}),
    ],
)
def test_configurations_that_are_refused_change_nothing(
    shared: House, status: int, code: str, body: dict[str, Any]
) -> None:
    before = shared.api.ok("GET", "/api/monitoring")
    shared.api.refused(status, code, "POST", "/api/monitoring/configure", body)
    assert shared.api.ok("GET", "/api/monitoring") == before


def test_an_answer_is_seen(steered: House) -> None:
    api = steered.api
    api.ok("POST", "/api/monitoring/configure", {"top_k": 3, "sae_id": "a"})
    with steered.socket() as events:
        generate(steered)
        heard = events.wait_for("monitoring:activation", sae_id="a", layer=1)
        assert {"timestamp", "request_id", "position", "token_id", "features"} <= heard.keys()
        assert heard["features"][0].keys() == {"idx", "value"}
    found = api.ok("GET", "/api/monitoring/history?limit=3")
    assert len(found["records"]) == 3
    assert found["total"] == api.ok("GET", "/api/monitoring")["history_count"] > 3
    newest, older, _ = found["records"]
    assert newest["token_position"] == older["token_position"] + 1
    assert (newest["sae_id"], newest["layer"], len(newest["top_k"])) == ("a", 1, 3)
    request = newest["request_id"]
    assert len(api.ok("GET", f"/api/monitoring/history?request_id={request}&limit=1000")["records"]) == found["total"]
    assert api.ok("GET", "/api/monitoring/history?request_id=other")["records"] == []

    statistics = api.ok("GET", "/api/monitoring/statistics")
    assert statistics["total_activations"] > 0
    assert statistics["since"] is not None
    top = api.ok("POST", "/api/monitoring/statistics/top", {"k": 2, "metric": "max"})
    assert (len(top["features"]), top["metric"], top["k"]) == (2, "max", 2)
    first, second = top["features"]
    assert first["max"] >= second["max"] > 0
    assert {"feature_idx", "count", "mean", "std", "min", "max", "active_ratio"} <= first.keys()
    index = first["feature_idx"]
    one = api.ok("GET", f"/api/monitoring/statistics?features={index},63&sae_id=a")["features"]
    assert [each["feature_idx"] for each in one] == [index, 63]
    assert one[0] == first

    assert api.ok("DELETE", "/api/monitoring/statistics") == {"cleared": True}
    assert api.ok("GET", "/api/monitoring/statistics")["total_activations"] == 0
    assert api.ok("DELETE", "/api/monitoring/history") == {"cleared": found["total"]}
    assert api.ok("GET", "/api/monitoring/history")["records"] == []


def test_reads_that_are_refused(steered: House) -> None:
    api = steered.api
    api.ok("POST", "/api/monitoring/configure", {"sae_id": "a"})
    for query in ("features=", "features=x", "features=1,", "features=-1", "feature=1", "features=1&features=2"):
        api.refused(422, "VALIDATION_ERROR", "GET", f"/api/monitoring/statistics?{query}")
    api.refused(400, "INVALID_FEATURE_INDEX", "GET", "/api/monitoring/statistics?features=64")
    api.refused(400, "SAE_NOT_ATTACHED", "GET", "/api/monitoring/statistics?sae_id=b")
    api.refused(400, "SAE_NOT_ATTACHED", "POST", "/api/monitoring/statistics/top", {"layer": 2})


def test_what_reading_along_costs(steered: House) -> None:
    api = steered.api
    off = {"enabled": False, "tokens": 0, "seconds": 0.0, "milliseconds_per_token": None}
    assert api.ok("GET", "/api/monitoring/cost") == off
    api.ok("POST", "/api/monitoring/enable")
    generate(steered)
    cost = api.ok("GET", "/api/monitoring/cost")
    assert cost["enabled"] is True and cost["tokens"] > 0 and cost["seconds"] > 0
    assert cost["milliseconds_per_token"] == pytest.approx(1000 * cost["seconds"] / cost["tokens"])
    api.ok("DELETE", "/api/monitoring/statistics")
    assert api.ok("GET", "/api/monitoring/cost")["tokens"] == 0


def test_where_features_fired_most(steered: House) -> None:
    api, path = steered.api, "/api/monitoring/peaks"
    assert api.ok("GET", path) == {"sae_id": "a", "layer": 1, "features": []}
    api.ok("POST", "/api/monitoring/configure", {"top_k": 3})
    generate(steered)
    found = api.ok("GET", f"{path}?sae_id=b&limit=4")
    assert (found["sae_id"], found["layer"]) == ("b", 2)
    best = [each["peaks"][0]["value"] for each in found["features"]]
    assert 1 <= len(best) <= 4 and best == sorted(best, reverse=True)
    first = found["features"][0]
    assert first["peaks"][0].keys() == {"value", "position", "request_id", "token_ids", "token", "before"}
    assert first["peaks"][0]["token"] and first["label"] is None
    steered.engine.saes.import_labels("b", [FeatureLabel(first["feature_idx"], "ships")])
    one = api.ok("GET", f"{path}?layer=2&feature={first['feature_idx']}")
    assert one["features"] == [{**first, "label": "ships"}]
    unseen = next(index for index in range(64) if index not in {each["feature_idx"] for each in found["features"]})
    assert api.ok("GET", f"{path}?feature={unseen}")["features"][0]["feature_idx"] == unseen
    api.refused(400, "INVALID_FEATURE_INDEX", "GET", f"{path}?feature=64")
    api.refused(400, "SAE_NOT_ATTACHED", "GET", f"{path}?sae_id=nobody")
    api.refused(422, "VALIDATION_ERROR", "GET", f"{path}?limit=0")
    assert api.ok("DELETE", path)["cleared"] > 0
    assert api.ok("GET", f"{path}?sae_id=b")["features"] == []
    api.refused(422, "VALIDATION_ERROR", "DELETE", f"{path}?limit=3")
