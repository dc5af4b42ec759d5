"""One process per data directory, shown with real processes."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from pathlib import Path

import pytest

from app.instance import Holder, Instance, ask_to_show, current_holder, in_use
from app.paths import Paths
from engine.errors import DataDirectoryInUse
from tests.app.processes import Running, started

HOLD = """
import sys
from pathlib import Path
from app.instance import Instance
from app.paths import Paths

instance = Instance.claim(Paths(Path(sys.argv[1])), role="serve", port=8123)
print("held", flush=True)
while True:
    print(sys.stdin.readline() or __import__("signal").pause())
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(tmp_path)
    found.prepare()
    return found


def hold(running: Running) -> int:
    assert running.line() == "held"
    return running.process.pid


def test_a_second_process_is_refused_with_pid_and_port(paths: Paths) -> None:
    with started("-c", HOLD, str(paths.data_dir)) as first:
        pid = hold(first)
        with pytest.raises(DataDirectoryInUse) as caught:
            Instance.claim(paths, role="serve", port=9000)
        assert caught.value.details == {"pid": pid, "port": 8123, "role": "serve"}
        line = caught.value.one_line()
        assert f"pid {pid}" in line
        assert "port 8123" in line
        assert current_holder(paths) == Holder(pid, "serve", 8123)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_process_gives_its_claim_back(paths: Paths) -> None:
    with started("-c", HOLD, str(paths.data_dir)) as first:
        hold(first)
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait(30)
        assert current_holder(paths) is None
        instance = Instance.claim(paths, role="gui")
        assert current_holder(paths) == Holder(os.getpid(), "gui", None)
        instance.release()
    assert current_holder(paths) is None


def test_release_may_be_repeated_and_frees_the_directory(paths: Paths) -> None:
    instance = Instance.claim(paths, role="gui", port=1)
    instance.set_port(2)
    assert current_holder(paths) == Holder(os.getpid(), "gui", 2)
    instance.release()
    instance.release()
    Instance.claim(paths, role="gui").release()


def test_a_second_start_can_show_the_first_window(paths: Paths) -> None:
    shown = threading.Event()
    instance = Instance.claim(paths, role="gui")
    try:
        asked: list[tuple[Path, ...]] = []

        def show(files: tuple[Path, ...]) -> None:
            asked.append(files)
            shown.set()

        instance.listen(show)
        holder = current_holder(paths)
        assert holder is not None
        assert ask_to_show(Holder(holder.pid, "gui", None, holder.raise_port, "guessed")) is False
        assert not shown.is_set()
        assert ask_to_show(holder) is True
        assert shown.is_set()
        wanted = (Path("/docs/a b [1].cluster.json"), Path("/docs/é.circuit.json"))
        assert ask_to_show(holder, wanted) is True
        assert asked == [(), wanted]
    finally:
        instance.release()
    assert ask_to_show(holder) is False


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are lists there")
def test_the_note_with_the_token_is_the_owners_alone(paths: Paths) -> None:
    instance = Instance.claim(paths, role="gui")
    assert stat.S_IMODE(paths.instance_file.stat().st_mode) == 0o600
    instance.release()


def test_a_holder_without_a_note_is_still_refused(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.instance.NOTE_SECONDS", 0.0)
    instance = Instance.claim(paths, role="gui")
    paths.instance_file.write_text("{", encoding="utf-8")
    holder = current_holder(paths)
    assert "in use by another process" in in_use(paths, holder).message
    instance.release()
