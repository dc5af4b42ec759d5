"""SAEs from the hub by ``/api/saes/download``: one weight file with its configuration, described like an import."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.engine import Engine
from engine.events import Event, SaeDownloadComplete, SaeDownloadError, SaeDownloadProgress
from engine.library.records import SaeStatus
from tests.contract.conftest import Live
from tests.hub import StandInHub
from tests.made_saes import make_sae
from tests.waiting import wait_until

REPO = "made/tiny-scope"
ID = "made--tiny-scope--layer_1--width_64"
WEIGHTS = "sae_weights.safetensors"
FILE = f"layer_1/width_64/{WEIGHTS}"


@dataclass
class House:
    live: Live
    client: httpx.Client

    @property
    def engine(self) -> Engine:
        return self.live.engine

    def post(self, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        response = self.client.post(f"/api/saes{path}", json=body)
        envelope = response.json()
        assert envelope.keys() == {"success", "data", "error"}
        return response.status_code, envelope["data"] or envelope["error"]

    def row(self, sae_id: str = ID) -> dict[str, Any]:
        data: dict[str, Any] = self.client.get(f"/api/saes/{sae_id}").json()["data"]
        return data

    def ended(self, sae_id: str = ID) -> dict[str, Any]:
        assert self.engine.sae_downloads.wait_ended(sae_id, 60)
        return self.row(sae_id)


@pytest.fixture
def house(own_engine: Callable[..., Engine], serve: Callable[..., Live]) -> Iterator[House]:
    live = serve(own_engine(None))
    live.engine.sae_downloads.wait = lambda cancellation, seconds: cancellation.check()
    with live.http() as client:
        yield House(live, client)


@pytest.fixture
def repo(hub: StandInHub, tmp_path: Path) -> StandInHub:
    """A repository with an SAE on each of two layers, and a model card."""
    for layer in (1, 2):
        make_sae(tmp_path / "repo" / f"layer_{layer}" / "width_64", layer=layer, d_sae=64, seed=layer)
    (tmp_path / "repo" / "README.md").write_text("# tiny scope")
    hub.add_folder(REPO, tmp_path / "repo", pipeline_tag=None)
    return hub


def test_preview(house: House, repo: StandInHub) -> None:
    status, found = house.post("/preview", {"repository_id": REPO})
    assert status == 200
    assert (found["repository_id"], found["revision"], found["total_files"]) == (REPO, "main", 2)
    assert [(each["path"], each["layer"], each["width"]) for each in found["files"]] == [
        (f"layer_1/width_64/{WEIGHTS}", 1, "64"),
        (f"layer_2/width_64/{WEIGHTS}", 2, "64"),
    ]
    assert all(each["size_bytes"] > 10_000 for each in found["files"])


def test_an_sae_comes_in(house: House, repo: StandInHub) -> None:
    heard: list[Event] = []
    house.engine.events.subscribe(heard.append, SaeDownloadProgress, SaeDownloadComplete, SaeDownloadError)
    status, started = house.post("/download", {"repository_id": REPO, "file_path": f"layer_1/width_64/{WEIGHTS}"})
    assert (status, started["sae_id"], started["status"]) == (202, ID, "downloading")
    row = house.ended()
    assert (row["status"], row["source"], row["repository_id"], row["revision"]) == (
        "cached",
        "huggingface",
        REPO,
        "main",
    )
    assert (row["d_in"], row["d_sae"], row["trained_layer"], row["width"]) == (32, 64, 1, "64")
    assert row["format"] is not None and row["copied"] is True and row["download_progress"] is None
    home = house.engine.library.path.parent / "saes" / ID
    assert Path(row["local_path"]) == home / "layer_1" / "width_64" / WEIGHTS
    # The other layer's files stayed where they were.
    assert not [each for each in repo.asked if "layer_2" in each.path]
    assert not (home / ".unsettled").exists()
    last = [event for event in heard if isinstance(event, SaeDownloadProgress)][-1]
    assert last.progress == 100.0 and last.total_bytes == last.downloaded_bytes == row["file_size_bytes"]
    assert isinstance(heard[-1], SaeDownloadComplete)
    # The same again is here already.
    status, again = house.post("/download", {"repository_id": REPO, "file_path": "layer_1/width_64"})
    assert (status, again["status"]) == (200, "cached")
    # It goes with its files.
    assert house.client.delete(f"/api/saes/{ID}").json()["data"]["freed_disk_mb"] > 0
    assert not home.exists()


def test_a_cut_is_gone_on_with(house: House, repo: StandInHub) -> None:
    repo.cuts[FILE] = [0.6]
    house.post("/download", {"repository_id": REPO, "file_path": "layer_1/width_64"})
    assert house.ended()["status"] == "cached"
    first, second = repo.fetched(FILE)
    assert first.range is None and second.range is not None


def test_cancelling_and_trying_again(house: House, repo: StandInHub) -> None:
    repo.held[FILE] = 0.5
    body = {"repository_id": REPO, "file_path": "layer_1/width_64"}
    house.post("/download", body)
    assert repo.hanging.wait(30)
    part = house.engine.library.path.parent / "saes" / ".downloading" / ID / f"{FILE}.part"
    wait_until(lambda: part.exists() and part.stat().st_size, "bytes on the disk")
    assert house.row()["download_progress"] > 0
    status, again = house.post("/download", body)
    assert (status, again["status"]) == (200, "already_downloading")
    status, row = house.post(f"/{ID}/cancel")
    assert (status, row["status"], row["error_message"]) == (200, "error", "Download cancelled by user")
    repo.held.clear()
    repo.let_go.set()
    assert house.ended()["status"] == "error"
    assert house.post(f"/{ID}/cancel")[0] == 409
    assert house.post("/nothing/cancel")[0] == 404
    kept = os.stat(part).st_size
    assert house.post("/download", body)[0] == 202
    assert house.ended()["status"] == "cached"
    # What was here already was not fetched again; it may have been all of it.
    assert all(each.range == f"bytes={kept}-" for each in repo.fetched(FILE)[1:])


def test_removing_while_it_comes(house: House, repo: StandInHub) -> None:
    repo.held[FILE] = 0.5
    house.post("/download", {"repository_id": REPO, "file_path": "layer_1/width_64"})
    assert repo.hanging.wait(30)
    repo.let_go.set()
    assert house.client.delete(f"/api/saes/{ID}").status_code == 200
    assert house.client.get(f"/api/saes/{ID}").status_code == 404
    assert not (house.engine.library.path.parent / "saes" / ".downloading" / ID).exists()


def test_another_hash(house: House, repo: StandInHub) -> None:
    true = repo.repos[REPO].files[f"layer_1/width_64/{WEIGHTS}"]
    repo.served[f"layer_1/width_64/{WEIGHTS}"] = [true[:-1] + bytes([true[-1] ^ 1])]
    house.post("/download", {"repository_id": REPO, "file_path": "layer_1/width_64"})
    row = house.ended()
    assert row["status"] == "error" and "checksum" in row["error_message"]


def test_files_that_are_no_sae(house: House, hub: StandInHub, tiny_checkpoint: Path) -> None:
    hub.add_folder("made/no-sae", tiny_checkpoint)
    status, started = house.post("/download", {"repository_id": "made/no-sae"})
    assert status == 202
    row = house.ended(started["sae_id"])
    assert row["status"] == "error" and "no" in row["error_message"]
    assert not (house.engine.library.path.parent / "saes" / started["sae_id"]).exists()


def test_refusals(house: House, repo: StandInHub) -> None:
    status, error = house.post("/download", {"repository_id": REPO})
    assert (status, error["code"]) == (400, "SAE_FORMAT_UNKNOWN") and "2 SAEs" in error["message"]
    assert len(error["details"]["choices"]) == 2
    for body, param in (
        ({"repository_id": "x"}, "repository_id"),
        ({"repository_id": REPO, "file_path": "layer_9"}, "file_path"),
        ({"repository_id": REPO, "file_path": "x" * 501}, "file_path"),
        ({"repository_id": REPO, "revision": "x" * 101}, "revision"),
        ({}, "repository_id"),
    ):
        status, error = house.post("/download", body)
        assert (status, error["code"], error["details"]["param"]) == (422, "VALIDATION_ERROR", param)
    status, error = house.post("/preview", {"repository_id": "made/nothing"})
    assert (status, error["code"]) == (404, "REPO_NOT_FOUND")
    assert house.engine.saes.list() == []


def test_several_in_one_folder_have_ids_of_their_own(house: House, hub: StandInHub, tmp_path: Path) -> None:
    files = {}
    for name in ("a", "b"):
        make_sae(tmp_path / name, layer=1, d_sae=64, seed=ord(name))
        files[f"{name}.safetensors"] = (tmp_path / name / WEIGHTS).read_bytes()
    files["cfg.json"] = (tmp_path / "a" / "cfg.json").read_bytes()
    hub.add("made/flat", files)
    ids = [house.post("/download", {"repository_id": "made/flat", "file_path": f"{n}.safetensors"})[1] for n in "ab"]
    assert [each["sae_id"] for each in ids] == ["made--flat--a", "made--flat--b"]
    assert [house.ended(each["sae_id"])["status"] for each in ids] == ["cached", "cached"]


def test_a_restart(house: House, repo: StandInHub) -> None:
    repo.held[FILE] = 0.5
    house.post("/download", {"repository_id": REPO, "file_path": "layer_1/width_64"})
    assert repo.hanging.wait(30)
    part = house.engine.library.path.parent / "saes" / ".downloading" / ID / "layer_1" / "width_64" / f"{WEIGHTS}.part"
    wait_until(lambda: part.exists() and part.stat().st_size, "bytes on the disk")
    # As after a kill: nothing was written when it ended.
    house.engine._workers.stop(0)
    repo.held.clear()
    repo.let_go.set()
    assert house.engine.sae_downloads.wait_ended(ID, 30)
    house.engine.library.saes.reset_after_restart()
    house.engine.saes.sweep()
    (part.parents[3] / "gone").mkdir()
    assert house.engine.sae_downloads.sweep() == ["gone"]
    record = house.engine.saes.get(ID)
    assert (record.status, record.error_message) == (
        SaeStatus.ERROR,
        "The download was interrupted when the program ended.",
    )
    kept = os.stat(part).st_size
    house.engine._workers._stopping = False
    assert house.post("/download", {"repository_id": REPO, "file_path": "layer_1/width_64"})[0] == 202
    assert house.ended()["status"] == "cached"
    assert all(each.range == f"bytes={kept}-" for each in repo.fetched(FILE)[1:])
