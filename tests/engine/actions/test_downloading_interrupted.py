"""The program ends or is killed during a download: what is found at the next start, and how it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.database import Library
from engine.library.records import ModelStatus
from tests.conftest import EngineMaker
from tests.engine.actions.fetching import REPO, WEIGHTS, ask, ended
from tests.hub import StandInHub
from tests.waiting import wait_until

DOWNLOADER = """
import sys
from pathlib import Path
from engine.actions.downloading.models import DownloadRequest
from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.database import Library

engine = Engine(EngineSettings(), Library.open(Path(sys.argv[1])))
engine.start()
engine.models.download(DownloadRequest(sys.argv[2]))
print("started", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_killed_process_is_gone_on_with(hub: StandInHub, tmp_path: Path, tiny_checkpoint: Path) -> None:
    hub.add_folder(REPO, tiny_checkpoint)
    hub.held[WEIGHTS] = 0.5
    database = tmp_path / "millm.db"
    environment = {**os.environ, "HF_HUB_OFFLINE": "0"}
    process = subprocess.Popen(
        [sys.executable, "-c", DOWNLOADER, str(database), REPO],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    part = tmp_path / "models" / ".downloading" / "made--tiny-llama@0123456789ab" / f"{WEIGHTS}.part"
    try:
        assert hub.hanging.wait(60)
        wait_until(lambda: part.exists() and part.stat().st_size, "bytes on the disk", 60)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
    hub.held.clear()
    hub.let_go.set()
    kept = part.stat().st_size
    library = Library.open(database)
    engine = Engine(EngineSettings(), library)
    engine.start()
    try:
        (row,) = library.models.list()
        assert (row.status, row.error_message) == (
            ModelStatus.ERROR,
            "The download was interrupted when the program ended.",
        )
        assert part.stat().st_size == kept
        assert engine.models.download(ask()).id == row.id
        assert ended(engine, row.id) is ModelStatus.READY
        assert hub.fetched(WEIGHTS)[-1].range == f"bytes={kept}-"
    finally:
        assert engine.stop(30)
        library.close()


def test_the_program_ends_during_a_download(hub: StandInHub, tmp_path: Path, tiny_checkpoint: Path) -> None:
    hub.add_folder(REPO, tiny_checkpoint)
    hub.held[WEIGHTS] = 0.5
    library = Library.open(tmp_path / "millm.db")
    engine = Engine(EngineSettings(), library)
    engine.start()
    row = engine.models.download(ask())
    assert hub.hanging.wait(30)
    assert engine.stop(30)
    library.close()
    hub.held.clear()
    hub.let_go.set()
    assert engine.models.downloads.wait_ended(row.id, 30)
    with Library.open(tmp_path / "millm.db") as reopened:
        reopened.reset_after_restart()
        assert reopened.models.list()[0].status is ModelStatus.ERROR


def test_leftovers_nobody_wants_are_swept(make_engine: EngineMaker, tmp_path: Path) -> None:
    library = Library.open(tmp_path / "millm.db")
    models = tmp_path / "models"
    for name in (".downloading/gone@1", ".importing-x", ".removed-y", "half"):
        (models / name).mkdir(parents=True)
        (models / name / "file").write_bytes(b"x")
    (models / "half" / ".unsettled").touch()
    (models / "mine").mkdir()
    (models / "demo" / ".unfinished").mkdir(parents=True)
    engine = Engine(EngineSettings(), library)
    engine.start()
    assert engine.stop(30)
    library.close()
    assert sorted(path.name for path in models.iterdir()) == [".downloading", "demo", "mine"]
    assert list((models / ".downloading").iterdir()) == []
