"""What can be held of the installers without building one: recipes are well-formed and name what exists."""

from __future__ import annotations

import ast
import configparser
import importlib.util
import os
import plistlib
import re
import shutil
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from app.about import VERSION

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
SPEC = PACKAGING / "millm.spec"
OWN = ("app", "engine", "server", "ui")
SHELL = sorted(path for path in PACKAGING.rglob("*.sh"))


def name(path: Path) -> str:
    return str(path.relative_to(PACKAGING))


# --- the spec ---------------------------------------------------------------------------------------------------------


def spec() -> ast.Module:
    return ast.parse(SPEC.read_text(encoding="utf-8"), filename=str(SPEC))


def called(function: str) -> list[str]:
    """The first arguments, where they are written out, of each call of ``function``."""
    found = []
    for node in ast.walk(spec()):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            found += [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    return found


def listed(variable: str) -> list[str]:
    """The strings a variable of the spec is made of."""
    found: list[str] = []
    for node in ast.walk(spec()):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == variable for target in targets):
            found += [
                part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
    return found


def test_modules_named_in_the_spec_exist() -> None:
    names = {*called("collect_submodules"), *called("collect_data_files"), *called("collect_dynamic_libs")}
    names |= {word for word in listed("hidden") if re.fullmatch(r"[a-z_]+(\.[A-Za-z_]+)*", word)}
    assert {"llguidance", "keyring.backends", "pyqtgraph", "engine.library.migrations", "gguf", "outlines"} <= names
    # "raise" is what PyInstaller shall do when one of ours cannot be imported, and no module.
    missing = [each for each in sorted(names - {"llama_cpp", "raise"}) if importlib.util.find_spec(each) is None]
    assert missing == []


def test_distributions_named_in_the_spec_are_installed() -> None:
    names = set(called("copy_metadata"))
    for node in ast.walk(spec()):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and node.target.id == "distribution":
            names |= {part.value for part in ast.walk(node.iter) if isinstance(part, ast.Constant)}
    assert {"transformers", "keyring", "quart", "torch", "accelerate", "millm-desktop"} <= names
    for each in sorted(names - {"llama-cpp-python"}):
        assert metadata.version(each)


def test_files_named_in_the_spec_exist() -> None:
    for file in ("app/__main__.py", "assets/icon.svg", "LICENSE", "assets/demo/pack.json"):
        assert (ROOT / file).is_file()
    migrations = ROOT / "engine" / "library" / "migrations"
    assert (migrations / "env.py").is_file()
    assert list((migrations / "versions").glob("*.py"))
    text = SPEC.read_text(encoding="utf-8")
    for word in ('"app" / "__main__.py"', '"assets" / "icon.svg"', 'ROOT / "LICENSE"', '"assets" / "demo"'):
        assert word in text


def test_nothing_that_is_left_out_is_imported() -> None:
    left_out = set(listed("UNUSED"))
    assert {"pytest", "PySide6.QtQml", "tkinter"} <= left_out
    wrong = []
    for package in OWN:
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names: list[str] = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                wrong += [f"{file.relative_to(ROOT)}: {each}" for each in names if each in left_out]
    assert wrong == []


def test_worker_processes_start_before_anything_else() -> None:
    main = ast.parse((ROOT / "app" / "__main__.py").read_text(encoding="utf-8"))
    (function,) = [node for node in main.body if isinstance(node, ast.FunctionDef) and node.name == "main"]
    calls = [
        ast.unparse(node) for node in function.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]
    assert calls[0] == "multiprocessing.freeze_support()"


def test_packaging_is_no_package() -> None:
    # It would shadow the library of that name.
    assert not (PACKAGING / "__init__.py").exists()


# --- scripts ----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32" or not shutil.which("bash"), reason="there is no such shell")
@pytest.mark.parametrize("script", SHELL, ids=name)
def test_shell_scripts_are_well_formed(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such shell")
def test_the_launcher_is_plain_sh_and_hands_arguments_on(tmp_path: Path) -> None:
    launcher = PACKAGING / "linux" / "launcher"
    subprocess.run(["sh", "-n", str(launcher)], check=True)
    shutil.copy(launcher, tmp_path / "millm-desktop")
    program = tmp_path / "program" / "millm-desktop"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "$OMP_WAIT_POLICY $GOMP_SPINCOUNT" "$@"\n', encoding="utf-8")
    for file in (program, tmp_path / "millm-desktop"):
        file.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "millm-desktop").symlink_to("../millm-desktop")
    environment = {
        name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    said = subprocess.run(
        [str(tmp_path / "bin" / "millm-desktop"), "gui", "a b"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "PASSIVE 0 gui a b\n"


def test_every_script_that_is_called_exists() -> None:
    files = [*SHELL, *PACKAGING.rglob("*.ps1"), ROOT / "Makefile", ROOT / ".github" / "workflows" / "package.yml"]
    named = set()
    for file in files:
        text = file.read_text(encoding="utf-8").replace("\\", "/")
        named |= set(re.findall(r"packaging/(?!out)[\w./-]+\.(?:sh|py|ps1|iss|spec|cmake)", text))
    assert {"packaging/build.sh", "packaging/linux/try.sh", "packaging/windows/build.ps1"} <= named
    assert [each for each in sorted(named) if not (ROOT / each).is_file()] == []


def test_scripts_find_the_version() -> None:
    about = (ROOT / "app" / "about.py").read_text(encoding="utf-8")
    assert re.findall(r'^VERSION = "(.*)"$', about, re.MULTILINE) == [VERSION]


def test_the_builder_is_pinned() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert [each.split(">")[0] for each in extra["package"]] == ["pyinstaller"]
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert re.search(r"^pyinstaller==", pins, re.MULTILINE)
    assert re.search(r"^pyinstaller-hooks-contrib==", pins, re.MULTILINE)


# --- Linux ------------------------------------------------------------------------------------------------------------


def test_menu_entry_and_file_types_belong_together() -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(PACKAGING / "linux" / "millm-desktop.desktop", encoding="utf-8")
    entry = parser["Desktop Entry"]
    assert (entry["Type"], entry["Exec"], entry["Icon"]) == ("Application", "millm-desktop gui %F", "millm-desktop")
    assert all(value.endswith(";") for value in (entry["Categories"], entry["MimeType"], entry["Keywords"]))
    space = "{http://www.freedesktop.org/standards/shared-mime-info}"
    types = ElementTree.parse(PACKAGING / "linux" / "millm-desktop.xml").getroot().findall(f"{space}mime-type")
    assert [kind.get("type") for kind in types] == entry["MimeType"].rstrip(";").split(";")
    globs = [found.get("pattern") for kind in types for found in kind.findall(f"{space}glob")]
    assert globs == ["*.cluster.json", "*.circuit.json"]
    # The window is told by the name that Qt gives it, which is the entry's file name.
    assert 'setDesktopFileName("millm-desktop")' in (ROOT / "app" / "gui.py").read_text(encoding="utf-8")


def test_the_debian_package_asks_for_what_qt_needs() -> None:
    from app.system_libraries import FONT, OFFSCREEN, SCREEN

    text = (PACKAGING / "linux" / "deb.sh").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("Depends: ")]
    depends = re.findall(r"[a-z0-9][a-z0-9.+-]+", line.removeprefix("Depends: "))
    wanted = {need.package for need in (*OFFSCREEN, *SCREEN, FONT)}
    assert wanted <= set(depends)


# --- Windows and macOS ------------------------------------------------------------------------------------------------


def test_the_windows_script_names_what_exists() -> None:
    text = (PACKAGING / "windows" / "millm.iss").read_text(encoding="utf-8")
    for section in ("Setup", "Files", "Icons", "Tasks", "Registry", "Run"):
        assert f"\n[{section}]\n" in text
    assert re.search(r"^AppId=\{\{[0-9A-F-]{36}\}$", text, re.MULTILINE)
    assert (PACKAGING / "windows" / "..\\..\\LICENSE".replace("\\", "/")).is_file()
    assert text.count("\n#ifdef") + text.count("\n#ifndef") == text.count("#endif")
    for line in text.splitlines():
        assert line.count('"') % 2 == 0, line


def test_the_mac_entitlements_can_be_read() -> None:
    with (PACKAGING / "macos" / "entitlements.plist").open("rb") as file:
        rights = plistlib.load(file)
    assert rights["com.apple.security.cs.disable-library-validation"] is True
    assert all(value is True for value in rights.values())


# --- the workflow -----------------------------------------------------------------------------------------------------


def test_the_workflow_builds_on_three_systems_and_keeps_the_installers() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "package.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["build"]
    systems = [entry["system"] for entry in job["strategy"]["matrix"]["include"]]
    assert [system.split("-")[0] for system in systems] == ["ubuntu", "windows", "macos"]
    assert workflow["permissions"] == {"contents": "read"}
    runs = [step.get("run", "") for step in job["steps"]]
    assert "make package" in runs
    assert any("build.ps1" in run for run in runs)
    (kept,) = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    for ending in (".deb", ".tar.zst", ".exe", ".dmg"):
        assert f"packaging/out/*{ending}" in kept["with"]["path"]
