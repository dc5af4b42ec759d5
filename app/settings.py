"""All settings as one frozen, typed object, and where each value came from.

Read order: command line, environment, settings file, defaults. In the environment a setting is ``MILLM_<NAME>`` or its
bare name; names that shells and other programs export for themselves count only with the prefix.
"""

from __future__ import annotations

import difflib
import json
import os
import types
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from app.network import is_proxy
from engine.config import EngineSettings
from engine.errors import SettingsInvalid
from server.config import ServerSettings

PREFIX = "MILLM_"
PREFIX_ONLY = frozenset({"HOST", "PORT", "DEBUG", "LOG_LEVEL"})
SECRET = frozenset({"API_KEY"})


class Settings(BaseSettings, EngineSettings, ServerSettings):
    """Every setting of the program. Made by :func:`load_settings`; the file is the JSON object in ``settings.json``."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, case_sensitive=True)

    DEBUG: bool = Field(False, description="Log everything, to the terminal too.")
    LOG_LEVEL: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least severity that is logged."
    )
    LOG_FORMAT: Literal["console", "json"] = Field("console", description="How log lines are written.")
    RESTORE_LAST: bool = Field(
        True,
        description="Load the model used last when the window opens, and put back its SAEs, what steered (switched "
        "off) and the chat. `serve` loads it either way.",
    )
    PROXY: str | None = Field(
        None,
        description="Proxy for the hub and for the demo model, such as http://proxy.example.org:3128. Without one the "
        "environment's HTTPS_PROXY counts.",
    )
    CLOSE_TO_TRAY: bool = Field(
        False, description="Closing the window leaves the program running in the tray, where the desktop has one."
    )
    THEME: Literal["system", "light", "dark"] = Field(
        "system", description="Colours of the window: as the system's, or always light or dark."
    )

    @field_validator("PROXY")
    @classmethod
    def _is_proxy(cls, value: str | None) -> str | None:
        if value and not is_proxy(value):
            raise ValueError("an address like http://host:port")
        return value or None

    @field_validator("LOG_LEVEL", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what :func:`load_settings` gathered: it knows each value's origin, which the messages need."""
        return (init_settings,)


def load_settings(
    command_line: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    """Gather, check and freeze the settings.

    Args:
        command_line: Values given as options, by setting name; None means "not given".
        environ: The environment to read; the process's own when None.
        file: The settings file; a missing one is an empty one.

    Raises:
        SettingsInvalid: naming the setting, its value, where it came from and what is allowed.
    """
    return Layers.read(command_line, environ=environ, file=file).compose()


Layer = dict[str, tuple[Any, str]]
"""Setting → value, and where it came from in words."""


@dataclass(frozen=True)
class Layers:
    """Where settings come from; each layer wins over the one before it, and all over the defaults."""

    file: Layer
    environment: Layer
    command_line: Layer

    @classmethod
    def read(
        cls,
        command_line: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        file: Path | None = None,
    ) -> Layers:
        """Gather them; arguments and errors as of :func:`load_settings`."""
        return cls(
            _from_file(file),
            _from_environment(os.environ if environ is None else environ),
            {name: (value, "the command line") for name, value in (command_line or {}).items() if value is not None},
        )

    def compose(self) -> Settings:
        """The settings they amount to. Raises :class:`SettingsInvalid`."""
        return _compose(self.file, self.environment, self.command_line)


def _compose(*layers: Layer) -> Settings:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        for name, (value, origin) in layer.items():
            values[name], origins[name] = value, origin
    try:
        return Settings(**values)
    except ValidationError as error:
        raise _explain(error, values, origins) from None


def unknown_names(environ: Mapping[str, str] | None = None, *, also_known: frozenset[str] = frozenset()) -> list[str]:
    """Variables with our prefix that no setting answers to: most likely misspelt."""
    env = os.environ if environ is None else environ
    known = {PREFIX + name for name in Settings.model_fields} | also_known
    return sorted(name for name in env if name.startswith(PREFIX) and name not in known)


# --- the layers -------------------------------------------------------------------------------------------------------


def _from_environment(environ: Mapping[str, str]) -> Layer:
    found: Layer = {}
    for name, field in Settings.model_fields.items():
        for variable in (PREFIX + name,) if name in PREFIX_ONLY else (PREFIX + name, name):
            if variable not in environ:
                continue
            text = environ[variable].strip()
            origin = f"the environment variable {variable}"
            if is_object(field) and text:
                found[name] = (read_object(name, text, origin), origin)
            elif is_list(field):
                found[name] = (split_list(name, text, origin), origin)
            elif text:  # an empty variable is a shell's way to say "not set"
                found[name] = (text, origin)
            break
    return found


def _from_file(file: Path | None) -> Layer:
    if file is None:
        return {}
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid(
            f"The settings file {file} cannot be read: {error}.", remedy="Correct or delete it."
        ) from None
    try:
        content = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise SettingsInvalid(
            f"The settings file {file} is not valid JSON: {error}.", remedy="Correct it, or delete it to start afresh."
        ) from None
    if not isinstance(content, dict):
        raise SettingsInvalid(
            f"The settings file {file} holds no JSON object.", remedy='It should look like {"PORT": 8000}.'
        )
    origin = f"the settings file {file}"
    found: Layer = {}
    for name, value in content.items():
        field = Settings.model_fields.get(name)
        if field is None:
            close = difflib.get_close_matches(name.upper(), Settings.model_fields, n=1)
            raise SettingsInvalid(
                f"{origin[0].upper()}{origin[1:]} sets {name!r}, which is no setting.",
                param=name,
                remedy=f"Did you mean {close[0]}?" if close else "Remove it.",
            )
        if isinstance(value, bool) and bool not in alternatives(field):
            raise invalid(name, value, origin, allowed(name))
        found[name] = (split_list(name, value, origin) if is_list(field) and isinstance(value, str) else value, origin)
    return found


def alternatives(field: FieldInfo) -> tuple[Any, ...]:
    """The types a field accepts, a union taken apart."""
    annotation = field.annotation
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def is_list(field: FieldInfo) -> bool:
    """Whether a field holds several texts."""
    return any(get_origin(kind) is list for kind in alternatives(field))


def is_object(field: FieldInfo) -> bool:
    """Whether a field holds values by name."""
    return any(get_origin(kind) is dict for kind in alternatives(field))


def read_object(name: str, text: str, origin: str) -> dict[str, Any]:
    """An object written as JSON; nothing is an empty one."""
    try:
        value = json.loads(text) if text.strip() else {}
    except (json.JSONDecodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise invalid(name, text, origin, allowed(name))
    return value


def split_list(name: str, text: str, origin: str) -> list[str]:
    """A list written as JSON or with commas. ``[::1]`` is an address, not the start of a JSON list."""
    if text.startswith(('["', "['", "[]", "[ ")):
        try:
            items = json.loads(text)
        except json.JSONDecodeError:
            items = None
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise invalid(name, text, origin, 'names with commas between them, or a JSON list like ["a", "b"]')
        return items
    return [item.strip() for item in text.split(",") if item.strip()]


# --- messages ---------------------------------------------------------------------------------------------------------


def invalid(name: str, value: object, origin: str, what_is: str) -> SettingsInvalid:
    """The refusal of a setting's value; a secret one is not repeated."""
    shown = "(not shown)" if name in SECRET else repr(value)
    if len(shown) > 100:
        shown = shown[:97] + "..."
    return SettingsInvalid(
        f"The setting {name} = {shown} from {origin} cannot be used; allowed: {what_is}.",
        param=name,
        details={"setting": name, "origin": origin},
        remedy="Correct it or leave it out.",
    )


def _explain(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> SettingsInvalid:
    first = error.errors(include_url=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "?"
    said = first["msg"].removeprefix("Input should be ").removeprefix("a valid ")
    field = Settings.model_fields.get(name)
    if field is not None and is_object(field) and first["type"] == "value_error":
        # What is wrong inside says more than what the whole is.
        return _invalid_inside(name, origins.get(name, "the defaults"), said.removeprefix("Value error, "))
    return invalid(name, values.get(name), origins.get(name, "the defaults"), allowed(name) or said)


def _invalid_inside(name: str, origin: str, words: str) -> SettingsInvalid:
    return SettingsInvalid(
        f"The setting {name} from {origin} cannot be used: {words}.",
        param=name,
        details={"setting": name, "origin": origin},
        remedy="Correct it or leave it out.",
    )


def allowed(name: str) -> str:
    """What a setting takes, in words, from its type and bounds."""
    field = Settings.model_fields.get(name)
    if field is None:
        return ""
    kinds = [kind for kind in alternatives(field) if kind is not type(None)]
    if get_origin(kinds[0]) is Literal:
        return ", ".join(str(choice) for choice in get_args(kinds[0]))
    if bool in kinds:
        return "true or false"
    if is_object(field):
        return 'a JSON object like {"name": …}'
    low = high = ""
    for rule in field.metadata:
        for bound, words in (("ge", "from {}"), ("gt", "above {}")):
            if (value := getattr(rule, bound, None)) is not None:
                low = words.format(value)
        for bound, words in (("le", "to {}"), ("lt", "below {}")):
            if (value := getattr(rule, bound, None)) is not None:
                high = words.format(value)
    word = {int: "a whole number", float: "a number", str: "a text"}.get(kinds[0], "a list of texts")
    return " ".join(part for part in (word, low, high) if part)
