"""What stands before torch and Qt are imported, and what Qt needs of the system."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from app import environment, system_libraries
from app.system_libraries import Need
from tests.app.processes import ROOT, clean_environment


def test_thread_rules_are_set_and_a_persons_own_stay() -> None:
    environ = {"GOMP_SPINCOUNT": "5"}
    environment.prepare(environ)
    assert (environ["OMP_WAIT_POLICY"], environ["GOMP_SPINCOUNT"]) == ("PASSIVE", "5")


def test_the_entry_point_sets_them_before_anything_heavy() -> None:
    code = "import app.__main__, os, sys; print(os.environ['OMP_WAIT_POLICY'], sorted({'torch', 'PySide6'} & set(sys.modules)))"
    env = {k: v for k, v in clean_environment().items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert ended.stdout == "PASSIVE []\n"


def test_an_address_of_the_hub_that_is_none_keeps_no_library_from_being_imported() -> None:
    code = "import app.__main__, huggingface_hub.hf_api, os; print(os.environ['HF_ENDPOINT'])"
    env = {**clean_environment(), "HF_ENDPOINT": "http://[::bad"}
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    # Still no address, so that no hub is asked: least of all the public one instead of a person's own.
    assert ended.stdout == "no-address:http://[::bad\n"
    sound = {"HF_ENDPOINT": "https://hub.example/x"}
    environment.prepare(sound)
    assert sound["HF_ENDPOINT"] == "https://hub.example/x"


def test_what_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"libEGL.so.1", "libxcb-cursor.so.0"}
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(system_libraries, "_loads", lambda name: name not in absent)
    monkeypatch.setattr(system_libraries, "_has_font", lambda: False)
    needs = system_libraries.missing(screen=True)
    assert needs == [
        Need("libEGL.so.1", "libegl1"),
        Need("a font", "fonts-dejavu-core"),
        Need("libxcb-cursor.so.0", "libxcb-cursor0"),
    ]
    assert "apt-get install libegl1 fonts-dejavu-core libxcb-cursor0" in system_libraries.explain(needs)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert system_libraries.missing(screen=True) == []


@pytest.mark.parametrize(
    ("environ", "display", "x"),
    [
        ({}, False, False),
        ({"DISPLAY": ":0"}, True, True),
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}, True, False),
        ({"QT_QPA_PLATFORM": "offscreen"}, True, False),
        ({"QT_QPA_PLATFORM": "xcb", "WAYLAND_DISPLAY": "wayland-0"}, True, True),
    ],
)
def test_which_screen(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], display: bool, x: bool) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    assert system_libraries.has_display(environ) is display
    assert system_libraries.needs_x(environ) is x


def test_the_readme_names_every_debian_package() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    needs = [*system_libraries.OFFSCREEN, *system_libraries.SCREEN, system_libraries.FONT]
    assert [need.package for need in needs if need.package not in text] == []


def test_the_system_check_runs_on_a_bare_interpreter() -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(Path(system_libraries.__file__)), "--offscreen", "--packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_constraints_pin_every_direct_dependency() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pinned = {
        re.sub(r"[-_.]+", "-", line.split("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    names = {re.sub(r"[-_.]+", "-", re.split(r"[<>=\[ ]", entry)[0]).lower() for entry in wanted}
    assert names - pinned == set()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize(
    ("soft", "hard", "then"), [(256, 4096, 4096), (256, 20000, 8192), (1024, 1024, 1024), (10000, 20000, 10000)]
)
def test_the_limit_of_open_files_is_raised(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, then: int) -> None:
    import resource

    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert environment.allow_open_files() == then
    assert limits[-1] == (then, hard)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    def refused(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refused)
    assert environment.allow_open_files() == 256
