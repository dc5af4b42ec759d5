"""Any value at any place of a document: it is refused in words, or read, judged and exported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.documents.binding import AttachedSae
from engine.documents.errors import DocumentRefused
from engine.documents.imports import import_circuit, import_clusters, import_profile
from engine.documents.ranges import DialBounds
from engine.documents.verdicts import judge_circuit, judge_cluster
from engine.wire import wire
from tests.hostile import LONG, spoilt
from tests.server.management.documents import bundle, circuit, cluster

ATTACHED = [AttachedSae("a", 1, 64, 32), AttachedSae("b", 2, 64, 32)]
FULL_CLUSTER = cluster(model={"hf_id": "x"}, provenance={"created_at": "x"}, sensing={"a": 1})
FULL_CIRCUIT = circuit(
    model={"hf_id": "x"},
    discovery={"mode": "seeded", "thresholds": {"a": 1}},
    faithfulness={"necessity": 1.0, "manifest_ref": "x"},
    calibration={"onset": 0.1, "sweet_spot": 0.2, "cliff": 0.3, "probe_set": [{"prompt": "a", "expected": "b"}]},
)
FLAT = {
    "version": "1.0",
    "name": "n",
    "description": "x",
    "model_id": "m",
    "sae_id": "a",
    "layer": 1,
    "steering": {"1": 1},
}
NESTED = {
    "name": "n",
    "model": {"repo_id": "x"},
    "sae": {"repo_id": "x", "layer": 1},
    "features": [{"index": 1, "strength": 1.0}],
}


def _clusters(raw: bytes) -> Any:
    found = []
    for item in import_clusters(raw):
        if item.document is not None:
            verdict = judge_cluster(item.document, ATTACHED, DialBounds())
            found.append([item.document.exported(), verdict.warnings, verdict.binding.reason])
    return found


def _circuit(raw: bytes) -> Any:
    document = import_circuit(raw)
    verdict = judge_circuit(document, ATTACHED, DialBounds())
    return [document.exported(), verdict.warnings, wire(verdict.layers), document.rung]


def _profile(raw: bytes) -> Any:
    document = import_profile(raw)
    return [document.extras, document.steering, document.name]


@pytest.mark.parametrize(
    ("read", "sound"),
    [
        (_clusters, FULL_CLUSTER),
        (_clusters, bundle({"name": "n", "members": [{"feature_idx": 1, "strength": 1.0}]})),
        (_circuit, FULL_CIRCUIT),
        (_profile, FLAT),
        (_profile, NESTED),
    ],
    ids=["cluster", "bundle", "circuit", "flat profile", "nested profile"],
)
def test_any_value_at_any_place(read: Any, sound: dict[str, Any]) -> None:
    taken, refusals = 0, []
    for what, raw in spoilt(sound):
        try:
            found = read(raw)
        except DocumentRefused as error:
            refusals.append((what, len(error.one_line())))
            continue
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")
        # What is read can be stored and sent again.
        json.dumps(found, allow_nan=False, ensure_ascii=False).encode("utf-8")
        taken += 1
    assert taken > 20
    assert [each for each in refusals if each[1] > 10_000] == []


def test_a_name_of_thousands_of_letters_is_not_repeated_whole() -> None:
    reference = {"sae_id": LONG, "layer": 1}
    (item,) = import_clusters(json.dumps(cluster(sae=reference)).encode())
    assert item.document is not None
    reason = judge_cluster(item.document, ATTACHED, DialBounds()).binding.reason
    assert reason == f"substituted: made with '{'y' * 100}'…, runs on 'a' at layer 1"
    (item,) = import_clusters(json.dumps(cluster(sae={"sae_id": LONG})).encode())
    assert item.document is not None
    reason = judge_cluster(item.document, ATTACHED, DialBounds()).binding.reason
    assert reason == f"the SAE '{'y' * 100}'… is not attached"
