"""Settings: names, order of the layers, and messages that say what to correct."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.settings import Settings, load_settings, unknown_names
from engine.errors import SettingsInvalid


def test_defaults_are_the_documented_ones() -> None:
    settings = load_settings(environ={})
    assert (settings.HOST, settings.PORT, settings.API_KEY) == ("127.0.0.1", 8000, None)
    assert (settings.MAX_LANES, settings.MAX_PENDING_REQUESTS, settings.DEFAULT_MAX_TOKENS) == (8, 64, 1024)
    assert settings.ENABLE_CONTINUOUS_BATCHING is True
    assert settings.MAX_BODY_BYTES == 33_554_432
    assert settings.CORS_ORIGINS == []
    assert settings.ALLOWED_HOSTS == ["localhost", "127.0.0.1", "[::1]", "host.docker.internal"]


def test_each_setting_answers_to_its_prefixed_name() -> None:
    texts = {"bool": "false", "int": "7", "float": "7", "list": "a"}
    choices = {
        "DEVICE": "cpu",
        "DTYPE": "float16",
        "LOG_LEVEL": "ERROR",
        "LOG_FORMAT": "json",
        "MAX_BODY_BYTES": "4096",
    }
    choices |= {"IGNORED_FIELDS_HEADER_MAX_BYTES": "77", "DEBUG": "true", "MULTISAE_ATTACH_DTYPE": "float16"}
    choices |= {
        "STEER_FIRST_POSITION": "true",
        "CIRCUIT_ALLOW_CONCURRENT": "true",
        "CLOSE_TO_TRAY": "true",
        "HF_HUB_OFFLINE": "true",
        "IGNORE_OFFERED_TOOLS": "true",
        "REPORT_CHUNKS": "separate",
    }
    choices |= {
        "MODEL_ALIASES": '{"a": "b"}',
        "GGUF_KV_CACHE_TYPE": "f32",
        "PROXY": "http://proxy:3128",
        "THEME": "dark",
    }
    choices |= {f"{kind}_INTENSITY_{end}": "1.25" for kind in ("CLUSTER", "CIRCUIT") for end in ("MIN", "MAX")}
    for name, default in load_settings(environ={}).model_dump().items():
        text = choices.get(name) or texts.get(type(default).__name__, "b")
        changed = getattr(load_settings(environ={f"MILLM_{name}": text}), name)
        assert changed != default, name


@pytest.mark.parametrize(
    ("name", "value"), [("HOST", "0.0.0.0"), ("PORT", "1"), ("DEBUG", "true"), ("LOG_LEVEL", "ERROR")]
)
def test_names_that_shells_export_count_only_with_the_prefix(name: str, value: str) -> None:
    assert getattr(load_settings(environ={name: value}), name) == getattr(load_settings(environ={}), name)
    assert getattr(load_settings(environ={f"MILLM_{name}": value}), name) != getattr(load_settings(environ={}), name)


def test_other_names_count_bare_and_the_prefix_wins() -> None:
    assert load_settings(environ={"MAX_LANES": "3"}).MAX_LANES == 3
    assert load_settings(environ={"MAX_LANES": "3", "MILLM_MAX_LANES": "4"}).MAX_LANES == 4


def test_order_is_command_line_environment_file_defaults(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"PORT": 1111, "MAX_LANES": 2, "MAX_PENDING_REQUESTS": 5}), encoding="utf-8")
    environ = {"MILLM_PORT": "2222", "MAX_LANES": "3"}
    settings = load_settings({"PORT": 3333, "HOST": None}, environ=environ, file=file)
    assert (settings.PORT, settings.MAX_LANES, settings.MAX_PENDING_REQUESTS) == (3333, 3, 5)
    assert settings.HOST == "127.0.0.1"
    assert load_settings(environ=environ, file=file).PORT == 2222


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://a, http://b", ["http://a", "http://b"]),
        ('["http://a", "http://b"]', ["http://a", "http://b"]),
        ("[::1],localhost", ["[::1]", "localhost"]),
        ("[::1]", ["[::1]"]),
        ("[]", []),
        ("", []),
    ],
)
def test_lists_come_with_commas_or_as_json(text: str, expected: list[str]) -> None:
    assert expected == load_settings(environ={"ALLOWED_HOSTS": text}).ALLOWED_HOSTS


def test_an_empty_variable_is_not_set() -> None:
    assert (
        load_settings(environ={"API_KEY": "", "MILLM_PORT": " "}).model_dump() == load_settings(environ={}).model_dump()
    )


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"MILLM_PORT": "99999"}, ["PORT", "'99999'", "MILLM_PORT", "from 0 to 65535"]),
        ({"MAX_LANES": "0"}, ["MAX_LANES", "'0'", "variable MAX_LANES", "from 1 to 256"]),
        ({"MILLM_LOG_LEVEL": "loud"}, ["LOG_LEVEL", "'loud'", "DEBUG, INFO, WARNING, ERROR"]),
        ({"MODEL_LOAD_TIMEOUT": "nan"}, ["MODEL_LOAD_TIMEOUT", "a number above 0"]),
        ({"MODEL_LOAD_TIMEOUT": "inf"}, ["MODEL_LOAD_TIMEOUT", "a number above 0"]),
        ({"MILLM_DEBUG": "perhaps"}, ["DEBUG", "true or false"]),
        ({"CORS_ORIGINS": '["a",'}, ["CORS_ORIGINS", "JSON list"]),
        ({"DEVICE": "gpu"}, ["DEVICE", "auto, cpu, cuda, mps"]),
    ],
)
def test_a_bad_value_is_named_with_its_origin_and_what_is_allowed(environ: dict[str, str], words: list[str]) -> None:
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(environ=environ)
    line = caught.value.one_line()
    assert [word for word in words if word not in line] == []
    assert "\n" not in line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", ["not valid JSON"]),
        ("[1]", ["no JSON object"]),
        ('{"PROT": 1}', ["'PROT'", "Did you mean PORT?"]),
        ('{"zzz": 1}', ["'zzz'", "Remove it"]),
        ('{"PORT": true}', ["PORT", "True", "from 0 to 65535"]),
        ('{"PORT": null}', ["PORT", "from 0 to 65535"]),
        ('{"CORS_ORIGINS": [1]}', ["CORS_ORIGINS", "a list of texts"]),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str, words: list[str]) -> None:
    file = tmp_path / "settings.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(environ={}, file=file)
    line = caught.value.one_line()
    assert [word for word in [*words, str(file)] if word not in line] == []


def test_the_api_key_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"API_KEY": ["hush-hush"]}', encoding="utf-8")
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(environ={}, file=file)
    assert "hush" not in caught.value.one_line()


def test_settings_cannot_be_changed_behind_the_engines_back() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings(environ={}).PORT = 1  # type: ignore[misc]


def test_misspelt_variables_are_found() -> None:
    environ = {"MILLM_PROT": "1", "MILLM_PORT": "1", "MILLM_DATA_DIR": "x", "OTHER": "1"}
    assert unknown_names(environ, also_known=frozenset({"MILLM_DATA_DIR"})) == ["MILLM_PROT"]


def test_every_setting_is_described_and_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert f"| `{name}` |" in page, f"{name} is missing in docs/settings.md"


def test_an_object_is_written_as_json(tmp_path: Path) -> None:
    value = {"pirate": {"model": "demo", "steering_intensity": 1}}
    assert value == load_settings(environ={"MODEL_ALIASES": json.dumps(value)}).MODEL_ALIASES
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"MODEL_ALIASES": value}), encoding="utf-8")
    assert value == load_settings(environ={}, file=file).MODEL_ALIASES
    assert value == load_settings(environ={"MODEL_ALIASES": ""}, file=file).MODEL_ALIASES
    for text in ("demo", "[1]", '"a"', "{", "[" * 10_000):
        with pytest.raises(SettingsInvalid, match="a JSON object") as caught:
            load_settings(environ={"MODEL_ALIASES": text})
        assert caught.value.param == "MODEL_ALIASES"
    with pytest.raises(SettingsInvalid, match="'steering_intensity' of 'a' is a number from 0 to 2") as caught:
        load_settings(environ={"MODEL_ALIASES": '{"a": {"model": "m", "steering_intensity": 9}}'})
    assert "MILLM_MODEL_ALIASES" not in caught.value.message and "MODEL_ALIASES" in caught.value.message
