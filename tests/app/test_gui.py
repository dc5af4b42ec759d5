"""``gui`` as a process, offscreen: opened, raised by a second start, ended by a signal with everything behind it."""

from __future__ import annotations

import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from app.instance import Holder, current_holder
from app.paths import Paths
from engine.actions.models.importing import import_local_model
from engine.events import EventBus
from engine.library.database import Library
from engine.library.records import ModelStatus
from tests.app.processes import Running, app, started
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent differently there")


def gui(data: Path, *arguments: str) -> tuple[str, ...]:
    return ("-m", "app", "gui", "--data-dir", str(data), "--port", "0", *arguments)


def serving(running: Running, data: Path) -> Holder:
    """Who holds the directory, once its server runs."""
    paths = Paths(data)
    found: list[Holder] = []

    def has_port() -> bool:
        assert running.process.poll() is None, running.errors()
        holder = current_holder(paths)
        if holder is not None and holder.port and holder.raise_port:
            found.append(holder)
        return bool(found)

    wait_until(has_port, "the server of the window", 120)
    return found[0]


def test_window_server_and_second_start(tmp_path: Path) -> None:
    with started(*gui(tmp_path)) as running:
        holder = serving(running, tmp_path)
        assert holder.pid == running.process.pid
        assert httpx.get(f"http://127.0.0.1:{holder.port}/api/health", timeout=30).status_code == 200
        second = app("gui", "--data-dir", str(tmp_path))
        assert second.returncode == 0
        assert f"pid {holder.pid}" in second.stdout
        refused = app("serve", "--data-dir", str(tmp_path))
        assert refused.returncode == 1
        assert f"pid {holder.pid}" in refused.stderr
        assert f"port {holder.port}" in refused.stderr
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0
    assert current_holder(Paths(tmp_path)) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the environment does not move the folders")
def test_without_a_screen_nobody_is_asked_and_a_crash_report_is_offered_once(tmp_path: Path) -> None:
    places = {
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "share"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    data = tmp_path / "share" / "miLLM Desktop"
    (data / "logs").mkdir(parents=True)
    report = data / "logs" / "crash-20260301-120000-7-1.txt"
    report.write_text("", encoding="utf-8")
    with started("-m", "app", "gui", "--port", "0", **places) as running:
        serving(running, data)

        def offered() -> object:
            with closing(sqlite3.connect(data / "millm.db")) as connection:
                return connection.execute("SELECT value FROM state WHERE key = 'crash_report_seen'").fetchone()

        wait_until(lambda: offered() == (f'"{report.name}"',), "the offer of the report", 120)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0
    assert not (tmp_path / "config" / "miLLM Desktop").exists()


def test_a_signal_ends_it_while_an_answer_is_streamed(tmp_path: Path, tiny_checkpoint: Path) -> None:
    paths = Paths(tmp_path)
    paths.prepare()
    with Library.open(paths.database) as library:
        record = import_local_model(library, EventBus(), tiny_checkpoint)
    with started(*gui(tmp_path, "--model", "tiny-llama")) as running:
        holder = serving(running, tmp_path)
        address = f"http://127.0.0.1:{holder.port}/v1"
        body = {"model": "tiny-llama", "prompt": "the", "stream": True, "max_tokens": 1900, "ignore_eos": True}
        with httpx.stream("POST", f"{address}/completions", json=body, timeout=120) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            running.process.send_signal(signal.SIGINT)
            list(lines)
        assert running.process.wait(60) == 0
    with Library.open(paths.database) as library:
        kept = library.models.get(record.id)
        assert kept is not None
        assert kept.last_used_at is not None
        library.models.reset_after_restart()
        assert library.models.list()[0].status is ModelStatus.READY


def test_a_data_directory_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    ended = app("gui", "--data-dir", str(tmp_path / "file"))
    assert ended.returncode == 1
    assert str(tmp_path / "file") in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is always a screen")
def test_without_a_screen_it_says_so_instead_of_crashing(tmp_path: Path) -> None:
    ended = app("gui", "--data-dir", str(tmp_path), QT_QPA_PLATFORM="", DISPLAY="", WAYLAND_DISPLAY="")
    assert ended.returncode == 1
    assert "no screen" in ended.stderr
    assert "serve" in ended.stderr
    assert ended.stderr.count("\n") == 1
