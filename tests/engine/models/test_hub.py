"""What the hub answers is somebody else's: whatever it is, it is read as far as it goes, or refused in words."""

from __future__ import annotations

from typing import Any

import pytest

from engine.actions.downloading.preview import preview
from engine.errors import HubUnavailable
from engine.models.hub.breaker import CircuitBreaker
from engine.models.hub.client import HubClient, is_plain_path
from tests.hostile import LONG, spoilt
from tests.hub import COMMIT, StandInHub

LISTING: dict[str, Any] = {
    "_id": "1",
    "id": "acme/tiny",
    "sha": COMMIT,
    "private": False,
    "gated": False,
    "pipeline_tag": "text-generation",
    "siblings": [
        {"rfilename": "model.safetensors", "size": 9, "lfs": {"sha256": "0" * 64, "size": 9, "pointerSize": 1}},
        {"rfilename": "a-Q4_0.gguf", "size": 5, "blobId": "0" * 40},
    ],
    "safetensors": {"parameters": {"F32": 3}, "total": 3},
    "gguf": {"total": 3, "architecture": "llama", "context_length": 8, "chat_template": "x"},
}
FOUND = [{"id": "acme/tiny", "downloads": 1, "likes": 2, "gated": False, "lastModified": "2026", "gguf": {"total": 1}}]
LARGEST = 2**63 - 1


@pytest.fixture
def client(hub: StandInHub) -> HubClient:
    hub.add("acme/tiny", {"config.json": b"{}"})
    return HubClient(CircuitBreaker("hub"), lambda: False)


def test_any_value_at_any_place_of_a_repository(client: HubClient, hub: StandInHub) -> None:
    taken = 0
    for what, hub.garbage in spoilt(LISTING):
        try:
            found = client.repository("acme/tiny")
            preview(client, "acme/tiny")
        except HubUnavailable:
            continue
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")
        taken += 1
        assert found.parameters is None or 0 < found.parameters <= LARGEST, what
        for file in found.files:
            assert 0 <= file.size <= LARGEST and len(file.path.encode()) <= 255, what
        for text in (found.commit, found.pipeline_tag, found.gguf and found.gguf.architecture):
            assert text is None or len(text) <= 200, what
    assert taken > 100


def test_any_value_at_any_place_of_a_search(client: HubClient, hub: StandInHub) -> None:
    for what, hub.garbage in spoilt(FOUND):
        try:
            client.search("tiny", 5)
        except HubUnavailable:
            continue
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")


@pytest.mark.parametrize("answer", [b"<html>Please sign in</html>", b"\xff\xfe", b"", b"[]", b'"x"', b"[" * 100_000])
def test_an_answer_that_is_no_repository(client: HubClient, hub: StandInHub, answer: bytes) -> None:
    hub.garbage = answer or b" "
    with pytest.raises(HubUnavailable, match="cannot be read"):
        client.repository("acme/tiny")
    # It says nothing of the network, so the next request is not held back.
    hub.garbage = b""
    assert client.repository("acme/tiny").commit == COMMIT


@pytest.mark.parametrize("path", [LONG, "a/" + "ü" * 128, "a\ud800b", "a\0b", "../x", "/x", "C:/x", ""])
def test_paths_that_no_file_can_have(path: str) -> None:
    assert not is_plain_path(path)
    assert is_plain_path("a/" + "ü" * 127)


@pytest.mark.parametrize(
    "address",
    ["not a url", "ftp://x", "huggingface.co", "http://[::bad", "http://a b", "http://", "http://a:0", "http://a:x"],
)
def test_an_address_that_is_none_is_said_and_no_other_hub_is_asked(
    client: HubClient, hub: StandInHub, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    for ask in (lambda: client.repository("a/b"), lambda: client.search("tiny", 3)):
        with pytest.raises(HubUnavailable, match="HF_ENDPOINT") as caught:
            ask()
        assert caught.value.remedy
    assert hub.asked == []
