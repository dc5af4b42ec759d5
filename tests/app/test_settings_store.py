"""Settings while the program runs: the file round trip, what locks a setting, and what counts when."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from app.settings import Settings, load_settings
from app.settings_store import AT_ONCE, AT_THE_NEXT_LOAD, SettingsStore
from engine.config import EngineSettings
from engine.errors import SettingsInvalid
from ui.context.services import Applies, SettingKind, SettingOrigin


def make(tmp_path: Path, content: dict[str, object] | None = None, **environ: str) -> SettingsStore:
    file = tmp_path / "settings.json"
    if content is not None:
        file.write_text(json.dumps(content), encoding="utf-8")
    return SettingsStore(load_settings(environ=environ, file=file), EngineSettings(), file=file, environ=environ)


def test_what_is_changed_is_what_the_next_start_reads(tmp_path: Path) -> None:
    store = make(tmp_path, {"MAX_LANES": 4})
    store.change({"PORT": "8123", "CORS_ORIGINS": "http://a, http://b", "THEME": "dark", "RESTORE_LAST": False})
    again = load_settings(environ={}, file=tmp_path / "settings.json")
    assert (again.PORT, again.CORS_ORIGINS, again.THEME, again.RESTORE_LAST, again.MAX_LANES) == (
        8123,
        ["http://a", "http://b"],
        "dark",
        False,
        4,
    )
    assert again == store.current
    assert json.loads((tmp_path / "settings.json").read_text(encoding="utf-8")) == {
        "CORS_ORIGINS": ["http://a", "http://b"],
        "MAX_LANES": 4,
        "PORT": 8123,
        "RESTORE_LAST": False,
        "THEME": "dark",
    }
    store.change({"PORT": None, "MAX_LANES": None})
    assert load_settings(environ={}, file=tmp_path / "settings.json").PORT == 8000
    assert [each.name for each in tmp_path.iterdir()] == ["settings.json"]


@pytest.mark.skipif(os.name != "posix", reason="permission bits")
def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    make(tmp_path, {}).change({"API_KEY": "hush"})
    assert (tmp_path / "settings.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"PORT": "99999"}, "from 0 to 65535"),
        ({"PORT": ""}, "a whole number"),
        ({"LOG_LEVEL": "LOUD"}, "DEBUG, INFO, WARNING, ERROR"),
        ({"PROXY": "nonsense"}, "PROXY"),
        ({"MAX_LANES": True}, "MAX_LANES"),
        ({"NO_SUCH": 1}, "no setting named"),
        ({"PORT": 1, "MAX_LANES": 0}, "MAX_LANES"),
    ],
)
def test_all_or_none(tmp_path: Path, values: dict[str, object], words: str) -> None:
    store = make(tmp_path, {"PORT": 8001})
    told: list[frozenset[str]] = []
    store.subscribe(told.append)
    with pytest.raises(SettingsInvalid) as caught:
        store.change(values)
    assert words in caught.value.one_line()
    assert json.loads((tmp_path / "settings.json").read_text(encoding="utf-8")) == {"PORT": 8001}
    assert store.current.PORT == 8001 and told == []


def test_secrets_are_not_in_refusals(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        make(tmp_path).change({"API_KEY": ["hush-hush"]})
    assert "hush" not in caught.value.one_line()


def test_the_environment_locks(tmp_path: Path) -> None:
    store = make(tmp_path, {"MAX_LANES": 4}, MILLM_MAX_LANES="5")
    info = store.get("MAX_LANES")
    assert (info.value, info.origin, info.locked) == (5, SettingOrigin.ENVIRONMENT, True)
    assert info.origin_words == "the environment variable MILLM_MAX_LANES"
    with pytest.raises(SettingsInvalid, match="MILLM_MAX_LANES"):
        store.change({"MAX_LANES": 6})


def test_the_command_line_locks(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    line = {"HOST": None, "PORT": 8123}
    store = SettingsStore(
        load_settings(line, environ={}, file=file), EngineSettings(), file=file, command_line=line, environ={}
    )
    assert store.get("PORT").origin is SettingOrigin.COMMAND_LINE and store.get("HOST").origin is SettingOrigin.DEFAULT
    with pytest.raises(SettingsInvalid, match="the command line"):
        store.change({"PORT": 1})


def test_what_counts_at_once_reaches_the_engine(tmp_path: Path) -> None:
    live = EngineSettings()
    file = tmp_path / "settings.json"
    store = SettingsStore(load_settings(environ={}, file=file), live, file=file, environ={})
    store.change({"MAX_LANES": 2, "DEVICE": "cpu", "QUEUE_DURATION_WINDOW": 7})
    assert (live.MAX_LANES, live.DEVICE, live.QUEUE_DURATION_WINDOW) == (2, "cpu", 50)
    assert not store.get("MAX_LANES").waiting and not store.get("DEVICE").waiting
    assert store.get("QUEUE_DURATION_WINDOW").waiting
    store.change({"QUEUE_DURATION_WINDOW": None})
    assert not store.get("QUEUE_DURATION_WINDOW").waiting


def test_listeners_hear_what_changed_and_may_leave(tmp_path: Path) -> None:
    store = make(tmp_path)
    told: list[frozenset[str]] = []
    end = store.subscribe(told.append)
    store.change({"THEME": "dark", "PORT": 8000})
    assert told == [frozenset({"THEME"})]
    end()
    store.change({"THEME": "light"})
    assert len(told) == 1


def test_each_setting_is_described(tmp_path: Path) -> None:
    infos = {info.name: info for info in make(tmp_path).describe()}
    assert set(infos) == set(Settings.model_fields)
    assert (infos["PORT"].group, infos["MAX_LANES"].group, infos["THEME"].group) == ("Server", "Engine", "Program")
    assert (infos["PORT"].kind, infos["THEME"].kind, infos["CORS_ORIGINS"].kind) == (
        SettingKind.WHOLE,
        SettingKind.CHOICE,
        SettingKind.LIST,
    )
    assert (infos["DEBUG"].kind, infos["API_KEY"].kind) == (SettingKind.SWITCH, SettingKind.TEXT)
    assert infos["GRACEFUL_UNLOAD_TIMEOUT"].kind is SettingKind.NUMBER
    assert infos["THEME"].choices == ("system", "light", "dark")
    assert infos["API_KEY"].secret and not infos["PORT"].secret
    assert infos["PORT"].applies is Applies.SERVER and infos["DEVICE"].applies is Applies.NEXT_LOAD
    assert infos["ALLOWED_HOSTS"].default == ["localhost", "127.0.0.1", "[::1]", "host.docker.internal"]


def test_the_lists_of_what_counts_when_name_settings() -> None:
    assert set(Settings.model_fields) >= AT_ONCE
    assert set(Settings.model_fields) >= AT_THE_NEXT_LOAD
    assert not AT_ONCE & AT_THE_NEXT_LOAD


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    file = tmp_path / "gone" / "settings.json"
    store = SettingsStore(load_settings(environ={}, file=file), EngineSettings(), file=file, environ={})
    with pytest.raises(SettingsInvalid, match="cannot be written"):
        store.change({"PORT": 1})
    assert store.current.PORT == 8000


def test_the_documentation_says_what_counts_when() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    told, after = page.split("- at once: ", 1)[1].split("- at the next load of a model: ", 1)
    assert set(re.findall(r"`([A-Z_]+)`", told)) == AT_ONCE
    assert set(re.findall(r"`([A-Z_]+)`", after.split(";", 1)[0])) == AT_THE_NEXT_LOAD
