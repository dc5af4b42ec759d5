"""Texts read by an SAE over HTTP, two sets held against each other, and labels sent as files."""

from __future__ import annotations

import gzip
import json
import socket
from typing import Any

import pytest

from tests.conftest import CheckpointMaker, EngineMaker
from tests.made_saes import make_mirror_sae
from tests.server.management.conftest import House, Serve, load
from tests.server.management.test_steering import generate
from tests.waiting import wait_until

READ, CONTRAST = "/api/saes/read", "/api/saes/contrast"
SEA = ["the sea and the ship", "a ship on the sea", "the harbour and the sea"]
FOX = ["the quick brown fox", "a smile and a dog", "the lazy dog jumps"]


@pytest.fixture
def mirror(loaded: House, tmp_path: Any) -> House:
    """As ``loaded``, with an SAE of plain coordinates attached at layer 1: feature i is coordinate i, 32 + i its loss."""
    loaded.engine.saes.import_local(make_mirror_sae(tmp_path / "mirror", layer=1), sae_id="mirror")
    loaded.engine.attachments.attach("mirror")
    return loaded


# --- one text ---------------------------------------------------------------------------------------------------------


def test_a_text_is_read_token_by_token(mirror: House) -> None:
    api = mirror.api
    mirror.engine.saes.import_labels("mirror", [_label(index) for index in range(64)])
    found = api.ok("POST", READ, {"text": "the quick brown fox", "top_k": 3, "features": [5, 37, 5]})
    assert (found["sae_id"], found["layer"], found["model"]) == ("mirror", 1, "tiny-llama")
    assert found["features"] == [5, 37]
    tokens = found["tokens"]
    assert [token["position"] for token in tokens] == list(range(len(tokens))) and len(tokens) > 3
    assert tokens[0]["sink"] is True
    for token in tokens:
        # Coordinate 5 cannot be above and below zero at once.
        assert min(token["activations"]) == 0.0 and max(token["activations"]) > 0.0
        values = [value for _, value in token["top_k"]]
        assert len(values) == 3 and values == sorted(values, reverse=True) and values[-1] > 0
        for index, _ in token["top_k"]:
            assert found["labels"][str(index)] == f"coordinate {index}"
    assert found["figures"].keys() == {"seconds_queued", "seconds_total"}
    ids = [token["token_id"] for token in tokens]
    assert api.ok("POST", READ, {"token_ids": ids, "top_k": 3, "features": [5, 37]})["tokens"] == tokens
    direct = mirror.engine.reading.read("the quick brown fox", top_k=3, features=[5, 37]).result(60)
    assert [list(each.activations) for each in direct.tokens] == [token["activations"] for token in tokens]


def test_a_conversation_is_read_as_the_model_reads_it(mirror: House) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the sea"}]
    found = mirror.api.ok("POST", READ, {"messages": messages, "top_k": 0})
    assert "".join(token["text"] for token in found["tokens"]).startswith("<|im_start|>system")
    assert all(token["top_k"] == [] and token["activations"] == [] for token in found["tokens"])


def test_a_reading_is_never_steered(mirror: House) -> None:
    body = {"text": "the quick brown fox", "top_k": 5}
    before = mirror.api.ok("POST", READ, body)["tokens"]
    mirror.api.ok("POST", "/api/saes/steering", {"feature_idx": 7, "value": 150})
    assert mirror.api.ok("POST", READ, body)["tokens"] == before
    assert generate(mirror)[1] != "none"


def test_one_that_is_not_attached_reads_too(loaded: House) -> None:
    loaded.api.refused(400, "SAE_NOT_ATTACHED", "POST", READ, {"text": "the sea"})
    found = loaded.api.ok("POST", READ, {"text": "the sea", "sae_id": "b", "layer": 3})
    assert (found["sae_id"], found["layer"]) == ("b", 3)
    assert loaded.api.ok("GET", "/api/saes/attachments")["count"] == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": "a", "token_ids": [1]}, "token_ids"),
        ({"text": 7}, "text"),
        ({"text": " \n"}, "text"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"token_ids": []}, "token_ids"),
        ({"token_ids": [-1]}, "token_ids.0"),
        ({"token_ids": [2**31 - 1]}, "token_ids"),
        ({"text": "a", "top_k": -1}, "top_k"),
        ({"text": "a", "top_k": 65}, "top_k"),
        ({"text": "a", "features": ["3"]}, "features.0"),
        ({"text": "a", "steer": True}, "steer"),
    ],
)
def test_readings_that_are_not_well_formed(shared: House, body: dict[str, Any], param: str) -> None:
    error = shared.api.refused(422, "VALIDATION_ERROR", "POST", READ, body)
    assert [each["param"] for each in error["details"]["errors"]] == [param]


def test_readings_that_cannot_be_done(shared: House, bare: House) -> None:
    api = shared.api
    api.refused(400, "INVALID_FEATURE_INDEX", "POST", READ, {"text": "a", "features": [64]})
    api.refused(404, "SAE_NOT_FOUND", "POST", READ, {"text": "a", "sae_id": "nobody"})
    api.refused(400, "SAE_INCOMPATIBLE", "POST", READ, {"text": "a", "sae_id": "a", "layer": 99})
    api.refused(400, "CONTEXT_LENGTH_EXCEEDED", "POST", READ, {"token_ids": [5] * 3000, "top_k": 1})
    api.refused(422, "VALIDATION_ERROR", "POST", READ, {"token_ids": [5] * 2000, "top_k": 60})
    bare.api.refused(400, "MODEL_NOT_LOADED", "POST", READ, {"text": "a"})
    bare.api.refused(400, "MODEL_NOT_LOADED", "POST", CONTRAST, {"a": ["x"], "b": ["y"]})


# --- two sets ---------------------------------------------------------------------------------------------------------


def test_two_sets_are_held_against_each_other(mirror: House) -> None:
    mirror.engine.saes.import_labels("mirror", [_label(index) for index in range(64)])
    found = mirror.api.ok("POST", CONTRAST, {"a": SEA, "b": FOX, "limit": 4, "max_density": 1})
    assert (found["sae_id"], found["layer"], found["model"]) == ("mirror", 1, "tiny-llama")
    assert found["tokens_a"] > 8 and found["tokens_b"] > 8 and found["typical_norm"] > 0
    assert found["cluster"] is None
    for side in ("toward_a", "toward_b"):
        scores = [each["score"] for each in found[side]]
        assert 1 <= len(scores) <= 4 and scores == sorted(scores, reverse=True) and scores[-1] > 0
        for each in found[side]:
            assert each["mean"] > each["other_mean"] and each["share"] > each["other_share"]
            assert each["label"] == f"coordinate {each['feature_idx']}"
            assert each["strength"] == pytest.approx(0.3 * found["typical_norm"] / each["row_norm"], abs=0.006)
    swapped = mirror.api.ok("POST", CONTRAST, {"a": FOX, "b": SEA, "limit": 4, "max_density": 1})
    assert swapped["toward_a"] == found["toward_b"]


def test_what_was_found_becomes_a_cluster(mirror: House) -> None:
    api = mirror.api
    body: dict[str, Any] = {"a": SEA, "b": FOX, "max_density": 1, "as_cluster": {"name": "Sea", "count": 2}}
    found = api.ok("POST", CONTRAST, body)
    document = found["cluster"]["document"]
    assert found["cluster"]["stored"] is None and api.ok("GET", "/api/clusters")["clusters"] == []
    assert (document["kind"], document["name"]) == ("mistudio.cluster-definition", "Sea")
    best = [each["feature_idx"] for each in found["toward_a"]]
    assert [member["feature_idx"] for member in document["members"]] == best[:2]
    assert (document["sae"]["n_features"], document["sae"]["d_model"]) == (64, 32)
    # Two shares of 0.15 each that are not parallel make less than 0.3.
    rows = mirror.engine.desk.attachment("mirror").sae.W_dec
    length = float(sum(each["strength"] * rows[each["feature_idx"]] for each in document["members"]).norm())
    assert found["cluster"]["length"] == pytest.approx(length, abs=1e-3)
    assert found["cluster"]["share"] == pytest.approx(length / found["typical_norm"], abs=1e-4)
    assert found["cluster"]["share"] < 0.25
    other = found["toward_b"][0]["feature_idx"]
    body["as_cluster"] = {"name": "Not the sea", "side": "b", "features": [other], "save": True, "total": 0.2}
    with mirror.socket() as events:
        stored = api.ok("POST", CONTRAST, body)["cluster"]["stored"]
        events.wait_for("clusters:changed")
    assert (stored["name"], stored["status"]) == ("Not the sea", "imported")
    (cluster,) = api.ok("GET", "/api/clusters")["clusters"]
    assert (cluster["id"], cluster["members"][0][0], cluster["bound"]) == (stored["profile_id"], other, True)
    api.ok("POST", f"/api/clusters/{stored['profile_id']}/activate")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"a": []}, "a"),
        ({"b": "text"}, "b"),
        ({"a": ["x", " "]}, "text"),
        ({"limit": 0}, "limit"),
        ({"max_density": 0}, "max_density"),
        ({"as_cluster": {}}, "as_cluster.name"),
        ({"as_cluster": {"name": "x", "side": "c"}}, "as_cluster.side"),
        ({"as_cluster": {"name": "x", "features": []}}, "as_cluster.features"),
        ({"as_cluster": {"name": "x", "store": True}}, "as_cluster.store"),
        ({"as_cluster": {"name": "x", "features": [99]}}, "features"),
    ],
)
def test_contrasts_that_are_not_well_formed(shared: House, change: dict[str, Any], param: str) -> None:
    error = shared.api.refused(422, "VALIDATION_ERROR", "POST", CONTRAST, {"a": SEA, "b": FOX, **change})
    assert [each["param"] for each in error["details"]["errors"]] == [param]


# --- clients that leave -----------------------------------------------------------------------------------------------


def test_a_client_that_leaves_ends_its_reading(
    make_engine: EngineMaker, serve: Serve, checkpoint: CheckpointMaker, tmp_path: Any
) -> None:
    house = load(serve(make_engine(None, MAX_LANES=1)), checkpoint("llama", max_positions=65536))
    house.engine.saes.import_local(make_mirror_sae(tmp_path / "mirror", layer=1), sae_id="mirror")
    house.engine.attachments.attach("mirror")
    # Minutes of reading: hundreds of chunks.
    long = {"token_ids": [5] * 60_000, "top_k": 1}
    texts = {"a": ["the sea and the ship " * 40] * 900, "b": ["a"]}
    for path, body in ((READ, long), (CONTRAST, texts)):
        client = _post(house, path, body)
        wait_until(lambda: house.engine.generation.stats().in_flight == 1, "the reading to run")
        waiting = _post(house, READ, long)
        wait_until(lambda: house.engine.generation.stats().queue_waiting == 1, "another to wait")
        waiting.close()
        wait_until(lambda: house.engine.generation.stats().queue_waiting == 0, "the one that waits to leave")
        assert house.engine.generation.stats().in_flight == 1
        client.close()
        wait_until(lambda: house.engine.generation.stats().queue_pending == 0, "the reading to end")
    assert len(house.api.ok("POST", READ, {"token_ids": [5, 6, 7]})["tokens"]) == 3


def _post(house: House, path: str, body: dict[str, Any]) -> socket.socket:
    """A request whose answer nobody reads."""
    payload = json.dumps(body).encode()
    client = socket.create_connection(("127.0.0.1", house.port), 60)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(payload)}\r\n\r\n"
    client.sendall(head.encode() + payload)
    return client


# --- labels -----------------------------------------------------------------------------------------------------------

ROWS = [
    {"index": "3", "description": "words about ships", "typeName": "np_max-act", "layer": "1-res", "modelId": "tiny"},
    {"index": "9", "description": "numbers", "typeName": "np_max-act", "layer": "1-res", "modelId": "tiny"},
]


@pytest.mark.parametrize(
    ("content", "query"),
    [
        (b"feature,label\r\n3,words about ships\r\n9,numbers\r\n", ""),
        (b"feature,label\r\n3,words about ships\r\n9,numbers\r\n", "?format=csv"),
        (json.dumps(ROWS).encode(), ""),
        (json.dumps({"explanations": ROWS}).encode(), "?format=json"),
        (json.dumps({"3": "words about ships", "9": "numbers"}, indent=1).encode(), ""),
        ("\n".join(map(json.dumps, ROWS)).encode(), ""),
        (gzip.compress("\n".join(map(json.dumps, ROWS)).encode()), "?format=jsonl"),
    ],
)
def test_labels_come_as_files(stocked: House, content: bytes, query: str) -> None:
    with stocked.socket() as events:
        told = stocked.api.ok("POST", f"/api/saes/a/labels{query}", content)
        events.wait_for("saes:changed")
    assert told == {"sae_id": "a", "imported": 2, "skipped": 0}
    found = stocked.api.ok("GET", "/api/saes/a/labels?query=SHIPS")
    assert [(each["feature_idx"], each["label"]) for each in found["labels"]] == [(3, "words about ships")]
    assert found["total"] == 2


@pytest.mark.parametrize(
    ("content", "query", "words"),
    [
        (b"", "", "no column"),
        (b"a,b\r\n1,2\r\n", "", "no column for the feature"),
        (b"[]", "", "holds no labels"),
        (b'[{"index": -1, "label": "x"}]', "", "labels, row 1"),
        (b"{", "", "not JSON"),
        (b"\xff\xfe\x00", "", "neither UTF-8"),
        (b"\x1f\x8bnot gzip", "", "cannot be read"),
        (b'[{"index": 64, "label": "x"}]', "", "64"),
        (b"feature,label\r\n3,x\r\n", "?format=json", "not JSON"),
        (b"feature,label\r\n3,x\r\n", "?format=xml", "csv"),
        (b"feature,label\r\n3,x\r\n", "?kind=csv", "kind"),
    ],
)
def test_label_files_that_are_refused(shared: House, content: bytes, query: str, words: str) -> None:
    error = shared.api.refused(422, "VALIDATION_ERROR", "POST", f"/api/saes/a/labels{query}", content)
    assert words in json.dumps(error)
    assert shared.api.ok("GET", "/api/saes/a/labels")["total"] == 0


def test_labels_of_nobody_and_labels_that_are_too_long(
    shared: House, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.api.refused(404, "SAE_NOT_FOUND", "POST", "/api/saes/nobody/labels", b"feature,label\r\n3,x\r\n")
    narrow = serve(shared.engine, MAX_BODY_BYTES=1024)
    narrow.api.refused(413, "PAYLOAD_TOO_LARGE", "POST", "/api/saes/a/labels", b"x" * 2000)
    monkeypatch.setattr("engine.actions.saes.labels.MOST_UPLOADED_BYTES", 1 << 20)
    # Small on the wire, large once it is unpacked.
    packed = gzip.compress(b"feature,label\r\n" + b"3,x\r\n" * 1_000_000)
    error = shared.api.refused(422, "VALIDATION_ERROR", "POST", "/api/saes/a/labels", packed)
    assert "larger than 1 MiB" in error["message"]


def _label(index: int) -> Any:
    from engine.library.records import FeatureLabel

    return FeatureLabel(index, f"coordinate {index}")
