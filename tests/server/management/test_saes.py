"""SAEs over HTTP: from a folder into the library, onto the model, and away again."""

from __future__ import annotations

import json
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.library.records import FeatureLabel
from tests.made_saes import make_sae
from tests.server.management.conftest import House

STANDING: dict[str, Any] = {
    "is_attached": False,
    "sae_id": None,
    "layer": None,
    "memory_usage_mb": None,
    "steering_enabled": False,
    "monitoring_enabled": False,
    "steering_apply_count": None,
}


# --- library ----------------------------------------------------------------------------------------------------------


def test_an_empty_library(bare: House) -> None:
    assert bare.api.ok("GET", "/api/saes") == {"saes": [], "total": 0, "attachment": STANDING}
    assert bare.api.ok("GET", "/api/saes/attachment") == STANDING
    found = bare.api.ok("GET", "/api/saes/attachments")
    assert (found["is_attached"], found["count"], found["entries"]) == (False, 0, [])
    assert (found["vram_envelope_mb"], found["vram_warning"]) == (4096, False)


def test_an_import(bare: House, sae_folders: dict[str, Path]) -> None:
    with bare.socket() as events:
        row = bare.api.ok("POST", "/api/saes/import", {"path": str(sae_folders["a"]), "sae_id": "a"}, status=201)
        events.wait_for("saes:changed")
    assert row["id"] == "a"
    assert (row["format"], row["architecture"]) == ("saelens", "standard")
    assert (row["d_in"], row["d_sae"], row["trained_layer"], row["status"]) == (32, 64, 1, "cached")
    assert (row["measured_l0"], row["measured_variance_explained"]) == (None, None)
    assert row["assumed"] == []
    assert row["attached_layers"] == []
    assert bare.api.ok("GET", "/api/saes/a") == row
    assert bare.api.ok("GET", "/api/saes")["saes"] == [row]
    again = bare.api.ok("POST", "/api/saes/import", {"path": str(sae_folders["a"]), "sae_id": "other"}, status=200)
    assert again == row
    taken = bare.api.refused(
        409, "SAE_ALREADY_EXISTS", "POST", "/api/saes/import", {"path": str(sae_folders["b"]), "sae_id": "a"}
    )
    assert taken["details"]["existing_sae_id"] == "a"
    assert bare.api.ok("GET", "/api/saes")["total"] == 1


def test_an_import_as_a_copy_for_another_layer(bare: House, sae_folders: dict[str, Path]) -> None:
    row = bare.api.ok("POST", "/api/saes/import", {"path": str(sae_folders["a"]), "layer": 3, "copy": True}, status=201)
    assert (row["trained_layer"], row["copied"]) == (3, True)
    assert not row["local_path"].startswith(str(sae_folders["a"]))
    gone = bare.api.ok("DELETE", f"/api/saes/{row['id']}")
    assert (gone["status"], gone["sae_id"]) == ("deleted", row["id"])
    assert gone["freed_disk_mb"] > 0
    assert not Path(row["local_path"]).exists()
    bare.api.refused(404, "SAE_NOT_FOUND", "GET", f"/api/saes/{row['id']}")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "path"),
        ({"path": ""}, "path"),
        ({"path": 7}, "path"),
        ({"path": "relative/folder"}, "path"),
        ({"path": "/etc"}, "path"),
        ({"path": "/x\u0000y"}, "path"),
        ({"path": "/tmp/x", "sae_id": "a/b"}, "sae_id"),
        ({"path": "/tmp/x", "sae_id": ".hidden"}, "sae_id"),
        ({"path": "/tmp/x", "layer": -1}, "layer"),
        ({"path": "/tmp/x", "layer": True}, "layer"),
        ({"path": "/tmp/x", "copy": 1}, "copy"),
        ({"path": "/tmp/x", "move": True}, "move"),
    ],
)
def test_imports_that_are_not_well_formed(shared: House, body: dict[str, Any], param: str) -> None:
    error = shared.api.refused(422, "VALIDATION_ERROR", "POST", "/api/saes/import", body)
    assert [each["param"] for each in error["details"]["errors"]] == [param]
    assert shared.api.ok("GET", "/api/saes")["total"] == 2


def test_files_that_are_refused_leave_nothing(bare: House, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    bare.api.refused(400, "SAE_FORMAT_UNKNOWN", "POST", "/api/saes/import", {"path": str(tmp_path / "empty")})
    cut = make_sae(tmp_path / "cut", layer=1)
    weights = cut / "sae_weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    bare.api.refused(400, "SAE_LOAD_FAILED", "POST", "/api/saes/import", {"path": str(cut)})
    transcoder = make_sae(tmp_path / "transcoder", layer=1)
    config = json.loads((transcoder / "cfg.json").read_text())
    (transcoder / "cfg.json").write_text(json.dumps({**config, "architecture": "transcoder", "d_out": 32}))
    bare.api.refused(400, "SAE_NOT_STEERABLE", "POST", "/api/saes/import", {"path": str(transcoder)})
    assert bare.api.ok("GET", "/api/saes")["total"] == 0


class Trap:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


def test_a_pickle_with_code_in_it_is_not_run(bare: House, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "config.json").write_text('{"trainer": {"dict_class": "AutoEncoder", "activation_dim": 32}}')
    (folder / "ae.pt").write_bytes(pickle.dumps({"encoder.weight": Trap(tmp_path / "sprung")}, protocol=2))
    bare.api.refused(400, "SAE_LOAD_FAILED", "POST", "/api/saes/import", {"path": str(folder)})
    assert not (tmp_path / "sprung").exists()
    assert bare.api.ok("GET", "/api/saes")["total"] == 0


def test_unknown_saes(shared: House) -> None:
    for method, path in (
        ("GET", "/api/saes/nobody"),
        ("DELETE", "/api/saes/nobody"),
        ("POST", "/api/saes/nobody/detach"),
        ("GET", "/api/saes/nobody/labels"),
        ("GET", "/api/saes/%00"),
        ("GET", "/api/saes/%FF"),
    ):
        shared.api.refused(404, "SAE_NOT_FOUND", method, path)


def test_labels(stocked: House) -> None:
    stocked.engine.saes.import_labels(
        "a",
        [
            FeatureLabel(7, "words about ships", source="auto", confidence=0.5, top_tokens=("quay", "boat")),
            FeatureLabel(3, "Ships at sea"),
            FeatureLabel(9, "numbers"),
        ],
    )
    found = stocked.api.ok("GET", "/api/saes/a/labels?query=SHIPS&limit=5")
    assert [label["feature_idx"] for label in found["labels"]] == [3, 7]
    assert found["total"] == 3
    assert found["labels"][1]["label"] == "words about ships"
    assert found["labels"][1]["top_tokens"] == ["quay", "boat"]
    assert len(stocked.api.ok("GET", "/api/saes/a/labels?limit=2")["labels"]) == 2
    assert stocked.api.ok("GET", "/api/saes/b/labels?query=ships") == {"sae_id": "b", "labels": [], "total": 0}
    stocked.api.refused(422, "VALIDATION_ERROR", "GET", "/api/saes/a/labels?limit=0")
    stocked.api.refused(422, "VALIDATION_ERROR", "GET", "/api/saes/a/labels?q=ships")


# --- attachments ------------------------------------------------------------------------------------------------------


def test_nothing_can_be_attached_without_a_model(stocked: House) -> None:
    stocked.api.refused(400, "MODEL_NOT_LOADED", "POST", "/api/saes/a/attach", {"layer": 1})
    stocked.api.refused(400, "MODEL_NOT_LOADED", "GET", "/api/saes/a/compatibility?layer=1")
    stocked.api.refused(400, "MODEL_NOT_LOADED", "POST", "/api/saes/a/measure")
    stocked.api.refused(400, "MODEL_NOT_LOADED", "POST", "/api/saes/attach-set", {"saes": [{"sae_id": "a"}]})


def test_attach_and_detach(loaded: House) -> None:
    with loaded.socket() as events:
        attached = loaded.api.ok("POST", "/api/saes/a/attach", {"layer": 1})
        assert events.wait_for("sae:attached") == {"sae_id": "a", "layer": 1, "memory_mb": attached["memory_usage_mb"]}
        assert attached == {
            "status": "attached",
            "sae_id": "a",
            "layer": 1,
            "memory_usage_mb": 0.02,
            "warnings": [],
            "layer_module_path": "model.layers.1",
        }
        assert loaded.api.ok("GET", "/api/saes/attachment")["sae_id"] == "a"
        assert loaded.api.ok("GET", "/api/saes/a")["attached_layers"] == [1]
        assert loaded.api.ok("GET", "/api/saes/a")["status"] == "attached"
        assert loaded.engine.library.models.list()[0].locked
        loaded.api.refused(409, "SAE_ALREADY_ATTACHED", "POST", "/api/saes/a/attach", {"layer": 1})
        loaded.api.refused(409, "SAE_ALREADY_ATTACHED", "DELETE", "/api/saes/a")
        detached = loaded.api.ok("POST", "/api/saes/a/detach")
        assert events.wait_for("sae:detached") == {"sae_id": "a"}
    assert (detached["status"], detached["sae_id"], detached["memory_freed_mb"]) == ("detached", "a", 0.02)
    assert not loaded.engine.library.models.list()[0].locked
    error = loaded.api.refused(400, "SAE_NOT_ATTACHED", "POST", "/api/saes/a/detach")
    assert error["details"]["attached_sae_ids"] == []
    assert loaded.api.ok("GET", "/api/saes/attachment") == STANDING


def test_an_attach_without_a_body_takes_the_trained_layer(steered: House) -> None:
    steered.api.ok("POST", "/api/saes/b/detach", {})
    assert steered.api.ok("POST", "/api/saes/b/attach")["layer"] == 2


@pytest.mark.parametrize("body", [{"layer": -1}, {"layer": "1"}, {"layer": 1.5}, {"layers": 1}])
def test_attaches_that_are_not_well_formed(shared: House, body: dict[str, Any]) -> None:
    shared.api.refused(422, "VALIDATION_ERROR", "POST", "/api/saes/a/attach", body)


def test_an_sae_that_does_not_fit(loaded: House, tmp_path: Path) -> None:
    wide = make_sae(tmp_path / "wide", layer=1, d_in=48)
    loaded.api.ok("POST", "/api/saes/import", {"path": str(wide), "sae_id": "wide"}, status=201)
    judged = loaded.api.ok("GET", "/api/saes/wide/compatibility")
    assert judged["compatible"] is False
    assert judged["errors"] == ["It reads vectors of width 48; this model's are 32 wide."]
    error = loaded.api.refused(400, "SAE_INCOMPATIBLE", "POST", "/api/saes/wide/attach", {"layer": 9})
    assert len(error["details"]["errors"]) == 2
    assert loaded.api.ok("GET", "/api/saes/attachments")["count"] == 0
    assert not loaded.engine.library.models.list()[0].locked


def test_compatibility_says_what_to_know(shared: House) -> None:
    assert shared.api.ok("GET", "/api/saes/a/compatibility?layer=3") == {
        "compatible": True,
        "errors": [],
        "warnings": ["It was trained for layer 1, not 3."],
    }
    shared.api.refused(422, "VALIDATION_ERROR", "GET", "/api/saes/a/compatibility?layer=x")


def test_measuring(steered: House) -> None:
    row = steered.api.ok("POST", "/api/saes/a/measure")
    assert row["id"] == "a"
    assert row["measured_l0"] > 0
    assert row["measured_variance_explained"] is not None
    assert row["measured_at"] is not None
    steered.api.refused(404, "SAE_NOT_FOUND", "POST", "/api/saes/nobody/measure")


def test_a_set_is_attached_whole_or_not_at_all(loaded: House, tmp_path: Path) -> None:
    wide = make_sae(tmp_path / "wide", layer=1, d_in=48)
    loaded.engine.saes.import_local(wide, sae_id="wide")
    body = {"saes": [{"sae_id": "a", "layer": 1}, {"sae_id": "wide", "layer": 2}]}
    loaded.api.refused(400, "SAE_INCOMPATIBLE", "POST", "/api/saes/attach-set", body)
    assert loaded.api.ok("GET", "/api/saes/attachments")["count"] == 0
    loaded.api.refused(
        404, "SAE_NOT_FOUND", "POST", "/api/saes/attach-set", {"saes": [{"sae_id": "a"}, {"sae_id": "nobody"}]}
    )
    assert loaded.api.ok("GET", "/api/saes/attachments")["count"] == 0
    done = loaded.api.ok(
        "POST", "/api/saes/attach-set", {"saes": [{"sae_id": "a", "layer": 1}, {"sae_id": "b"}, {"sae_id": "b"}]}
    )
    assert [(each["sae_id"], each["layer"], each["status"]) for each in done["entries"]] == [
        ("a", 1, "attached"),
        ("b", 2, "attached"),
    ]
    assert (done["status"], done["attached_count"], done["vram_warning"]) == ("attached", 2, False)
    again = loaded.api.ok("POST", "/api/saes/attach-set", {"saes": [{"sae_id": "b", "layer": 2}]})
    assert again["entries"][0]["status"] == "already_attached"
    assert [each["sae_id"] for each in loaded.api.ok("GET", "/api/saes/attachments")["entries"]] == ["a", "b"]


@pytest.mark.parametrize(
    "body",
    [
        {"saes": []},
        {},
        {"saes": [{"layer": 1}]},
        {"saes": [{"sae_id": "a", "layer": -1}]},
        {"saes": {"sae_id": "a"}},
        {"sae_layers": [{"sae_id": "a", "layer": 1}]},
        {"saes": [{"sae_id": "a"}], "name": "both"},
        {"saes": [{"sae_id": "a"}] * 65},
    ],
)
def test_sets_that_are_not_well_formed(shared: House, body: dict[str, Any]) -> None:
    shared.api.refused(422, "VALIDATION_ERROR", "POST", "/api/saes/attach-set", body)


def test_a_set_that_does_not_fit_the_memory(steered: House, monkeypatch: pytest.MonkeyPatch) -> None:
    steered.api.ok("POST", "/api/saes/b/detach")
    monkeypatch.setattr("engine.models.hardware.devices.available_memory", lambda device: 1000)
    error = steered.api.refused(507, "INSUFFICIENT_MEMORY", "POST", "/api/saes/attach-set", {"saes": [{"sae_id": "b"}]})
    assert {"projected_mb", "free_mb"} <= error["details"].keys()
    assert steered.api.ok("GET", "/api/saes/attachments")["count"] == 1


def test_two_clients_that_attach_the_same(steered: House) -> None:
    steered.api.ok("POST", "/api/saes/b/detach")
    answers: list[int] = []

    def attach() -> None:
        answers.append(steered.api.call("POST", "/api/saes/b/attach", {"layer": 2}).status_code)

    threads = [threading.Thread(target=attach) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == [200, 409, 409, 409]
    assert steered.api.ok("GET", "/api/saes/attachments")["count"] == 2


def test_saved_sets(steered: House) -> None:
    api = steered.api
    assert api.ok("GET", "/api/saes/attach-sets") == {"sets": [], "total": 0}
    saved = api.ok("POST", "/api/saes/attach-sets", {"name": "both"}, status=201)
    assert saved["saes"] == [{"sae_id": "a", "layer": 1}, {"sae_id": "b", "layer": 2}]
    api.ok("POST", "/api/saes/attach-sets", {"name": "one / two", "saes": [{"sae_id": "b", "layer": 2}]}, status=201)
    assert [each["name"] for each in api.ok("GET", "/api/saes/attach-sets")["sets"]] == ["both", "one / two"]
    api.ok("POST", "/api/saes/a/detach")
    api.ok("POST", "/api/saes/b/detach")
    api.refused(422, "VALIDATION_ERROR", "POST", "/api/saes/attach-sets", {"name": "none"})
    assert api.ok("POST", "/api/saes/attach-set", {"name": "both"})["attached_count"] == 2
    api.refused(404, "NOT_FOUND", "POST", "/api/saes/attach-set", {"name": "nobody's"})
    assert api.ok("DELETE", "/api/saes/attach-sets?name=one%20%2F%20two") == {"name": "one / two", "deleted": True}
    api.refused(404, "NOT_FOUND", "DELETE", "/api/saes/attach-sets?name=one%20%2F%20two")
    api.refused(422, "VALIDATION_ERROR", "DELETE", "/api/saes/attach-sets")


def test_an_unload_takes_everything_away(steered: House) -> None:
    with steered.socket() as events:
        steered.engine.loader.unload().result(60)
        events.wait_for("model:unload:complete")
    assert steered.api.ok("GET", "/api/saes/attachment") == STANDING
    assert [row["status"] for row in steered.api.ok("GET", "/api/saes")["saes"]] == ["cached", "cached"]
    assert not steered.engine.library.models.list()[0].locked
