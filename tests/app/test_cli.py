"""The command line as a value, and its errors as a user meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import parse
from app.options import Options
from tests.app.processes import app


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], Options(command="gui")),
        (["--model", "m"], Options(command="gui", model="m")),
        (["gui", "--port", "0"], Options(command="gui", port=0)),
        (["serve", "--host", "::1", "--port", "9000"], Options(command="serve", host="::1", port=9000)),
        (["--data-dir", "d", "serve"], Options(command="serve", data_dir="d")),
        (["serve", "--data-dir", "d", "--insecure"], Options(command="serve", data_dir="d", insecure=True)),
        (["demo", "status"], Options(command="demo", action="status")),
        (["demo", "install", "--data-dir", "d"], Options(command="demo", action="install", data_dir="d")),
        (["demo", "install", "--wheel", "w.whl"], Options(command="demo", action="install", wheel=Path("w.whl"))),
        (["doctor"], Options(command="doctor")),
        (
            ["gui", "/a/sea.cluster.json", "/b/law.circuit.json"],
            Options(command="gui", files=(Path("/a/sea.cluster.json"), Path("/b/law.circuit.json"))),
        ),
        (["gui", "sea.json"], Options(command="gui", files=(Path.cwd() / "sea.json",))),
    ],
)
def test_arguments(arguments: list[str], expected: Options) -> None:
    assert parse(arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["swim"], "swim"),
        (["serve", "--port", "70000"], "70000"),
        (["serve", "--port", "eighty"], "eighty"),
        (["serve", "--port", "-1"], "-1"),
        (["serve", "--model", ""], "empty"),
        (["demo"], "ACTION"),
        (["demo", "install", "--port", "1"], "--port"),
        (["serve", "extra"], "extra"),
    ],
)
def test_nonsense_ends_with_status_2_and_names_it(
    arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert caught.value.code == 2
    assert word in capsys.readouterr().err


def test_a_data_directory_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    for command in (["serve"], ["demo", "install"]):
        ended = app(*command, "--data-dir", str(file))
        assert ended.returncode == 1
        assert ended.stdout == ""
        assert str(file) in ended.stderr
        assert ended.stderr.count("\n") == 1


def test_a_bad_setting_is_one_line(tmp_path: Path) -> None:
    ended = app("serve", "--data-dir", str(tmp_path), MILLM_PORT="eighty")
    assert ended.returncode == 1
    assert "MILLM_PORT" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_bad_settings_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"PROT": 1}', encoding="utf-8")
    ended = app("serve", "--data-dir", str(tmp_path))
    assert ended.returncode == 1
    assert "Did you mean PORT?" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_demo_status_says_no_and_makes_nothing(tmp_path: Path) -> None:
    ended = app("demo", "status", "--data-dir", str(tmp_path / "new"))
    assert ended.returncode == 1
    assert "not installed" in ended.stdout
    assert not (tmp_path / "new").exists()


def test_demo_remove_without_anything_is_no_error(tmp_path: Path) -> None:
    ended = app("demo", "remove", "--data-dir", str(tmp_path / "new"))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_version() -> None:
    ended = app("--version")
    assert ended.stdout == "miLLM Desktop 0.1.0\n"


def test_help_names_every_command() -> None:
    ended = app("--help")
    for word in ("gui", "serve", "demo", "doctor", "--data-dir", "--host", "--port", "--model", "--insecure"):
        assert word in ended.stdout
