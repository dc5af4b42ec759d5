"""``doctor`` in a process of its own: it finds what is there and changes nothing."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from app import doctor
from app.instance import Instance
from app.options import Options
from app.paths import Paths
from engine.models.hardware.unused_gpus import SeenGpus
from tests.app.processes import app


def test_it_says_what_is_there_and_makes_nothing(tmp_path: Path) -> None:
    ended = app("doctor", "--data-dir", str(tmp_path / "new"), "--port", "0")
    assert ended.returncode == 0, ended.stdout
    for word in (
        "miLLM Desktop:",
        "torch:",
        "Devices:",
        "cpu",
        "Memory:",
        "Build:               from its source",
        "Engine (GGUF):",
        "SAE formats:         SAELens",
        "jumprelu",
        "Structured output:   llguidance 1.",
        "it will use offscreen",
        "Window:",
        "not installed",
    ):
        assert word in ended.stdout
    assert f"{tmp_path / 'new'} (not in use" in ended.stdout
    assert not (tmp_path / "new").exists()


def test_what_is_wrong_is_marked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
        ended = app("doctor", "--data-dir", str(tmp_path / "file" / "data"), "--port", str(port))
    assert ended.returncode == 1
    marked = [line for line in ended.stdout.splitlines() if line.startswith("!")]
    assert len(marked) == 2
    assert "is a file" in marked[0]
    assert f"{port} on 127.0.0.1: another program" in marked[1]


def test_the_port_of_a_running_program_is_its_own(tmp_path: Path) -> None:
    instance = Instance.claim(Paths(tmp_path), role="gui", port=8931)
    try:
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            port = listener.getsockname()[1]
            ended = app("doctor", "--data-dir", str(tmp_path), "--port", str(port))
    finally:
        instance.release()
    assert ended.returncode == 0, ended.stdout
    held = f"8931 on 127.0.0.1: held by this program (pid {os.getpid()}); the settings say {port}"
    assert held in ended.stdout
    assert f"in use by pid {os.getpid()}, gui, port 8931" in ended.stdout


def test_a_bad_setting_is_a_finding(tmp_path: Path) -> None:
    ended = app("doctor", "--data-dir", str(tmp_path), MILLM_MAX_LANES="many")
    assert ended.returncode == 1
    assert "MILLM_MAX_LANES" in ended.stdout


def test_crash_reports_are_counted(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for day in ("01", "02"):
        (tmp_path / "logs" / f"crash-202603{day}-120000-7-1.txt").write_text("", encoding="utf-8")
    ended = app("doctor", "--data-dir", str(tmp_path), "--port", "0")
    assert f"Crash reports:       2, the newest {tmp_path / 'logs' / 'crash-20260302-120000-7-1.txt'}" in ended.stdout


def test_a_card_that_lies_idle_is_told_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = SeenGpus(("NVIDIA H200",), "2.13.0+cpu", None, False, False)
    monkeypatch.setattr(doctor, "look", lambda: seen)
    told = [each for each in doctor.examine(Options(data_dir=str(tmp_path))) if each.topic == "Graphics card"]
    assert len(told) == 1 and not told[0].bad
    assert "NVIDIA H200" in told[0].text and "TORCH_INDEX_URL" in told[0].text
    monkeypatch.setattr(doctor, "look", SeenGpus)
    assert not [each for each in doctor.examine(Options(data_dir=str(tmp_path))) if each.topic == "Graphics card"]
