"""Strengths that a person sets: what is read back, what is refused, what requests get, what listeners hear."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.management.conftest import House


def generate(house: House, **body: Any) -> tuple[str, str]:
    """The text of a short greedy answer and its steering report."""
    response = house.api.call(
        "POST",
        "/v1/completions",
        {"model": "tiny-llama", "prompt": "the quick brown fox", "max_tokens": 8, "temperature": 0, **body},
    )
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"], response.headers["X-miLLM-Steering"]


def test_with_nothing_attached(bare: House) -> None:
    assert bare.api.ok("GET", "/api/saes/steering/added") == {"layers": []}
    assert bare.api.ok("GET", "/api/saes/steering") == {"enabled": False, "values": {}, "sae_id": None, "layer": None}
    place = "/api/saes/steering"
    bare.api.refused(400, "SAE_NOT_ATTACHED", "POST", place, {"feature_idx": 0, "value": 1})
    bare.api.refused(400, "SAE_NOT_ATTACHED", "POST", f"{place}/batch", {"steering": {"0": 1}})
    bare.api.refused(400, "SAE_NOT_ATTACHED", "POST", f"{place}/enable")
    bare.api.refused(400, "SAE_NOT_ATTACHED", "POST", f"{place}/disable")
    bare.api.refused(400, "SAE_NOT_ATTACHED", "DELETE", f"{place}/0")
    bare.api.refused(400, "SAE_NOT_ATTACHED", "DELETE", place)
    error = bare.api.refused(400, "SAE_NOT_ATTACHED", "GET", f"{place}?sae_id=a")
    assert error["details"]["attached_sae_ids"] == []


def test_the_life_of_a_few_values(steered: House) -> None:
    api, path = steered.api, "/api/saes/steering"
    before, report = generate(steered)
    assert report == "none"
    with steered.socket() as events:
        assert api.ok("POST", path, {"feature_idx": 3, "value": 120}) == {
            "enabled": True,
            "values": {"3": 120.0},
            "sae_id": "a",
            "layer": 1,
        }
        heard = events.wait_for("steering:update")
        assert (heard["enabled"], heard["values"], heard["active_count"]) == (True, {"3": 120.0}, 1)
        assert [(each["sae_id"], each["layer"]) for each in heard["entries"]] == [("a", 1), ("b", 2)]
    after, report = generate(steered)
    assert report.startswith('manual;sae="a";layer=1;features=1;hash="sha256:')
    assert after != before
    (layer,) = api.ok("GET", f"{path}/added")["layers"]
    row = float(steered.engine.desk.attachment("a").sae.decoder_row(3).norm())
    assert (layer["layer"], layer["length"]) == (1, pytest.approx(120 * row, rel=1e-5))
    assert layer["typical_norm"] is None or layer["share"] == layer["length"] / layer["typical_norm"]
    merged = api.ok("POST", f"{path}/batch", {"steering": {"10": -2.5, "3": 100, "2": 0}})
    assert merged["values"] == {"2": 0.0, "3": 100.0, "10": -2.5}
    assert list(merged["values"]) == ["2", "3", "10"]
    assert api.ok("POST", f"{path}/disable")["enabled"] is False
    assert generate(steered) == (before, "none")
    assert api.ok("GET", path)["values"] == {"2": 0.0, "3": 100.0, "10": -2.5}
    assert api.ok("POST", f"{path}/enable", {})["enabled"] is True
    assert api.ok("DELETE", f"{path}/3")["values"] == {"2": 0.0, "10": -2.5}
    api.ok("DELETE", f"{path}/2")
    assert api.ok("DELETE", f"{path}/10") == {"enabled": False, "values": {}, "sae_id": "a", "layer": 1}
    api.ok("POST", path, {"feature_idx": 3, "value": 1})
    assert api.ok("DELETE", path) == {"enabled": False, "values": {}, "sae_id": "a", "layer": 1}
    assert generate(steered) == (before, "none")


def test_an_sae_can_be_named(steered: House) -> None:
    api, path = steered.api, "/api/saes/steering"
    api.ok("POST", path, {"feature_idx": 1, "value": 2, "sae_id": "b"})
    api.ok("POST", f"{path}/batch", {"steering": {"5": 6}, "layer": 2})
    assert api.ok("GET", path)["values"] == {}
    assert api.ok("GET", f"{path}?sae_id=b")["values"] == {"1": 2.0, "5": 6.0}
    assert api.ok("GET", f"{path}?layer=2")["sae_id"] == "b"
    assert api.ok("POST", f"{path}/disable", {"sae_id": "b", "layer": 2})["enabled"] is False
    assert api.ok("POST", f"{path}/enable", {"layer": 2})["enabled"] is True
    assert api.ok("DELETE", f"{path}/1?layer=2")["values"] == {"5": 6.0}
    assert api.ok("DELETE", f"{path}?sae_id=b")["values"] == {}
    error = api.refused(400, "SAE_NOT_ATTACHED", "POST", path, {"feature_idx": 1, "value": 2, "layer": 3})
    assert error["details"]["attached_sae_ids"] == ["a", "b"]
    api.refused(400, "SAE_NOT_ATTACHED", "DELETE", f"{path}?sae_id=b&layer=1")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"feature_idx": 3, "value": 200.5}, "value"),
        ("", {"feature_idx": 3, "value": -201}, "value"),
        ("", b'{"feature_idx": 3, "value": NaN}', "value"),
        ("", b'{"feature_idx": 3, "value": Infinity}', "value"),
        ("", b'{"feature_idx": 3, "value": 1e999}', "value"),
        ("", {"feature_idx": 3, "value": True}, "value"),
        ("", {"feature_idx": 3, "value": "5"}, "value"),
        ("", {"feature_idx": 3, "value": None}, "value"),
        ("", {"feature_idx": 3}, "value"),
        ("", {"feature_idx": -1, "value": 5}, "feature_idx"),
        ("", {"feature_idx": 2.5, "value": 5}, "feature_idx"),
        ("", {"feature_idx": 3, "value": 5, "strength": 5}, "strength"),
        ("/batch", {"steering": {"3": 1, "4": 201}}, "steering.4"),
        ("/batch", {"steering": {"3": 1, "-4": 1}}, "steering.-4"),
        ("/batch", {"steering": {"3": 1, "x": 1}}, "steering.x"),
        ("/batch", {"steering": {"3": 1, "04": 1}}, "steering.04"),
        ("/batch", b'{"steering": {"3": 1, "4": NaN}}', "steering.4"),
        ("/batch", {"steering": {"3": 1, "4": False}}, "steering.4"),
        ("/batch", {"steering": [1, 2]}, "steering"),
        ("/batch", {}, "steering"),
        ("/batch", {"steering": {str(index): 1 for index in range(1001)}}, "steering"),
        ("/enable", {"enabled": True}, "enabled"),
    ],
)
def test_values_that_are_refused_change_nothing(shared: House, path: str, body: Any, param: str) -> None:
    version = shared.engine.desk.state.version
    error = shared.api.refused(422, "VALIDATION_ERROR", "POST", f"/api/saes/steering{path}", body)
    assert error["details"]["errors"][0]["param"] == param
    assert shared.api.ok("GET", "/api/saes/steering")["values"] == {}
    assert shared.engine.desk.state.version == version


def test_features_the_sae_does_not_have(shared: House) -> None:
    api, path = shared.api, "/api/saes/steering"
    error = api.refused(400, "INVALID_FEATURE_INDEX", "POST", path, {"feature_idx": 64, "value": 1})
    assert (error["details"]["feature_idx"], error["details"]["d_sae"]) == (64, 64)
    api.refused(400, "INVALID_FEATURE_INDEX", "POST", f"{path}/batch", {"steering": {"3": 1, "64": 1}})
    api.refused(400, "INVALID_FEATURE_INDEX", "DELETE", f"{path}/64")
    for odd in ("x", "-1", "1.0", "９", "99999999999"):
        api.refused(422, "VALIDATION_ERROR", "DELETE", f"{path}/{odd}")
    assert api.ok("GET", path)["values"] == {}


def test_a_request_with_steering_of_its_own_leaves_the_live_values(steered: House) -> None:
    steered.api.ok("POST", "/api/saes/steering", {"feature_idx": 3, "value": 150})
    live = generate(steered)
    assert generate(steered, steering={"features": []})[1] == "none"
    assert steered.api.ok("GET", "/api/saes/steering")["values"] == {"3": 150.0}
    assert generate(steered) == live
