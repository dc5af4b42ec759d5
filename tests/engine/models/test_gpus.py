"""Reading NVIDIA cards through ``nvidia-smi``, with a program of that name that answers as the real one does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.models.hardware import gpus
from engine.models.hardware.gpus import GpuProcess, read_gpus

UUID = "GPU-7a3ba7c5-9c1d-4f7a-8a0f-0d3a0a1b2c3d"
CARDS = f"0, {UUID}, NVIDIA H200, 143771, 521, 143250, 37, 41\n1, GPU-0, Tesla K80, 11441, 3, 11438, [N/A], 36\n"
PROCESSES = f"{UUID}, 4711, 512\n{UUID}, 4712, [N/A]\n"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")


@pytest.fixture(autouse=True)
def _no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may have a card of its own."""

    def refuse() -> None:
        raise gpus._Unavailable("No NVML here.")

    monkeypatch.setattr(gpus, "_read_nvml", refuse)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in is to be written; it is the only one on the path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "nvidia-smi"


def answer(smi: Path, cards: str, processes: str, ending: str = "") -> None:
    (smi.parent / "cards").write_text(cards)
    (smi.parent / "processes").write_text(processes)
    smi.write_text(
        "#!/bin/sh\n"
        f"folder={smi.parent}\n"
        'case "$1" in --query-gpu=*) name=cards;; *) name=processes;; esac\n'
        'while IFS= read -r line; do printf "%s\\n" "$line"; done < "$folder/$name"\n' + ending
    )
    smi.chmod(0o755)


def test_cards_and_their_processes(smi: Path) -> None:
    answer(smi, CARDS, PROCESSES)
    reading = read_gpus()
    assert (reading.reason, reading.source) == (None, "nvidia-smi")
    first, second = reading.cards
    assert (first.index, first.uuid, first.name) == (0, UUID, "NVIDIA H200")
    assert (first.total_bytes, first.used_bytes, first.free_bytes) == (150_754_820_096, 546_308_096, 150_208_512_000)
    assert (first.utilization, first.temperature) == (37.0, 41.0)
    assert first.processes == (GpuProcess(4711, 536_870_912), GpuProcess(4712, None))
    assert first.torch is None
    assert (second.utilization, second.temperature, second.processes) == (None, 36.0, ())


def test_no_program(smi: Path) -> None:
    reading = read_gpus()
    assert reading.cards == ()
    assert reading.reason == "No NVML here. There is no nvidia-smi on this machine."


def test_a_program_that_fails(smi: Path) -> None:
    answer(smi, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "", "exit 9\n")
    reading = read_gpus()
    assert reading.cards == ()
    assert reading.reason is not None
    assert "couldn't communicate with the NVIDIA driver" in reading.reason


def test_an_answer_that_cannot_be_read(smi: Path) -> None:
    answer(smi, "zero, one\n", "")
    reading = read_gpus()
    assert reading.cards == ()
    assert reading.reason is not None
    assert "unreadable" in reading.reason


def test_processes_that_cannot_be_read(smi: Path) -> None:
    answer(smi, CARDS, f"{UUID}, who, 512\n")
    card = read_gpus().cards[0]
    assert card.processes is None
    assert card.processes_reason
