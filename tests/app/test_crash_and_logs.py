"""Logs and crash reports: what is kept, where, and that a failure in a thread is not lost."""

from __future__ import annotations

import gc
import json
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import crash, logs


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[logs.Logs]:
    made = logs.set_up(tmp_path)
    yield made
    made.close()


@pytest.fixture
def reporter(tmp_path: Path, kept: logs.Logs) -> Iterator[crash.CrashReporter]:
    installed = crash.install(tmp_path, kept.tail)
    yield installed
    installed.remove()


def reports(folder: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in sorted(folder.glob("crash-*.txt"))]


def test_lines_go_to_the_file_and_are_remembered(tmp_path: Path, kept: logs.Logs) -> None:
    logging.getLogger("engine.somewhere").info("naïve %s", "東京")
    logging.getLogger("engine.somewhere").debug("not this")
    text = (tmp_path / "millm.log").read_text(encoding="utf-8")
    assert "naïve 東京" in text
    assert "engine.somewhere" in text
    assert "not this" not in text
    assert "naïve 東京" in kept.tail()[-1]


def test_json_lines(tmp_path: Path) -> None:
    made = logs.set_up(tmp_path, style="json")
    try:
        logging.getLogger("a").warning("one %d", 1)
        try:
            raise ValueError("two")
        except ValueError:
            logging.getLogger("a").exception("three")
    finally:
        made.close()
    first, second = [json.loads(line) for line in (tmp_path / "millm.log").read_text(encoding="utf-8").splitlines()]
    assert (first["event"], first["level"], first["logger"]) == ("one 1", "warning", "a")
    assert "ValueError: two" in second["exception"]


def test_the_terminal_is_quiet_until_told(kept: logs.Logs, capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("a").error("before")
    kept.speak()
    logging.getLogger("a").info("too small")
    logging.getLogger("a").warning("after")
    text = capsys.readouterr().err
    assert "after" in text
    assert "before" not in text
    assert "too small" not in text


def test_an_exception_in_a_thread_becomes_a_report(tmp_path: Path, reporter: crash.CrashReporter) -> None:
    told: list[Path] = []
    reporter.tell(told.append)
    logging.getLogger("a").info("the last thing said")

    def fail() -> None:
        raise LookupError("nothing there")

    thread = threading.Thread(target=fail, name="worker-7")
    thread.start()
    thread.join()
    (text,) = reports(tmp_path)
    for word in ("LookupError: nothing there", "in fail", "thread worker-7", "miLLM Desktop: 0.1.0", "the last thing"):
        assert word in text
    assert [path.parent for path in told] == [tmp_path]


def test_an_exception_in_the_main_thread_is_one_line_and_a_report(
    tmp_path: Path, reporter: crash.CrashReporter, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise LookupError("nothing there")
    except LookupError as error:
        sys.excepthook(LookupError, error, error.__traceback__)
    assert len(reports(tmp_path)) == 1
    said = capsys.readouterr().err
    assert said.startswith("miLLM Desktop failed: LookupError: nothing there. A report is in ")
    assert said.count("\n") == 1


def test_an_exception_in_a_finalizer_becomes_a_report(tmp_path: Path, reporter: crash.CrashReporter) -> None:
    class Fails:
        def __del__(self) -> None:
            raise LookupError("while dying")

    fails = Fails()
    del fails
    gc.collect()
    (text,) = reports(tmp_path)
    assert "while dying" in text


def test_reports_are_limited_and_hooks_come_back(tmp_path: Path, kept: logs.Logs) -> None:
    former = (sys.excepthook, threading.excepthook, sys.unraisablehook)
    reporter = crash.install(tmp_path, kept.tail)
    for number in range(crash.REPORTS_PER_RUN + 5):
        reporter.report(ValueError(str(number)), "here")
    reporter.remove()
    assert len(reports(tmp_path)) == 20
    assert (sys.excepthook, threading.excepthook, sys.unraisablehook) == former


FATAL = 'Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n  File "a.py"\n'


def test_stacks_of_a_crashed_interpreter_become_a_report(tmp_path: Path, kept: logs.Logs) -> None:
    (tmp_path / "faults.txt").write_text(FATAL, encoding="utf-8")
    logging.getLogger("a").info("the last thing said")
    crash.install(tmp_path, kept.tail).remove()
    (text,) = reports(tmp_path)
    for word in ("Fatal Python error: Segmentation fault", "miLLM Desktop: 0.1.0", "the last thing said"):
        assert word in text
    assert (tmp_path / "faults.txt").read_text(encoding="utf-8") == ""
    crash.install(tmp_path, kept.tail).remove()
    assert len(reports(tmp_path)) == 1


def test_what_others_handled_is_no_crash(tmp_path: Path, kept: logs.Logs) -> None:
    (tmp_path / "faults.txt").write_text("Windows fatal exception: code 0x8001010d\n", encoding="utf-8")
    crash.install(tmp_path, kept.tail).remove()
    assert reports(tmp_path) == []


def test_the_newest_report_not_seen_yet(tmp_path: Path) -> None:
    assert crash.newest_since(tmp_path) is None
    older, newer = (tmp_path / f"crash-2026{month}01-120000-7-1.txt" for month in ("03", "04"))
    for path in (newer, older):
        path.write_text("", encoding="utf-8")
    assert crash.newest_since(tmp_path) == newer
    assert crash.newest_since(tmp_path, older.name) == newer
    assert crash.newest_since(tmp_path, newer.name) is None
