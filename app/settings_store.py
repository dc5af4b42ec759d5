"""The settings while the program runs: what each is, where it comes from, and changes to the settings file.

A change is checked as a start would check it, written under a temporary name and moved into place, and then told to
whoever follows. What reads a setting each time it needs it gets the new value at once (:data:`AT_ONCE`); the rest waits
for the next load, the next start of the server, or the next start of the program.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from app.settings import (
    PREFIX,
    SECRET,
    Layers,
    Settings,
    allowed,
    alternatives,
    invalid,
    is_list,
    is_object,
    read_object,
    split_list,
)
from engine.config import EngineSettings
from engine.errors import SettingsInvalid
from server.config import LIVE, ServerSettings
from ui.context.services import Applies, SettingInfo, SettingKind, SettingOrigin

AT_ONCE = frozenset(
    {
        "ENABLE_CONTINUOUS_BATCHING",
        "MAX_LANES",
        "MAX_PENDING_REQUESTS",
        "RETRY_AFTER_QUEUE_DEFAULT_S",
        "RETRY_AFTER_MAX_S",
        "PREFILL_CHUNK",
        "DEFAULT_MAX_TOKENS",
        "GRACEFUL_UNLOAD_TIMEOUT",
        "MODEL_LOAD_TIMEOUT",
        "CIRCUIT_ALLOW_CONCURRENT",
        "LOCK_ON_ATTACH",
        "MULTISAE_VRAM_ENVELOPE_MB",
        "MULTISAE_ATTACH_DTYPE",
        "SAE_ACTIVATIONS_MAX_TOP_K",
        "SAE_ACTIVATIONS_MAX_ENTRIES",
        "SAE_ACTIVATIONS_ENCODE_CHUNK",
        "EMBEDDINGS_MAX_INPUTS",
        "HF_HUB_OFFLINE",
        "PROXY",
        "THEME",
        "CLOSE_TO_TRAY",
        "LOG_LEVEL",
        *LIVE,
    }
)
"""Settings that are read each time they count, or that are followed while the program runs."""

AT_THE_NEXT_LOAD = frozenset({"DEVICE", "DTYPE", "CPU_THREADS", "KV_MEMORY_MB"})
PROGRAM = "Program"

Listener = Callable[[frozenset[str]], None]


class SettingsStore:
    """Owns the settings of a running program; implements :class:`ui.context.services.SettingsControl`. Thread-safe.

    Args:
        settings: What the program was started with.
        live: The object the engine reads; what applies at once is set on it.
        file: The settings file.
        command_line: Options given at the start, by setting name.
        environ: The environment; the process's own when None.
    """

    def __init__(
        self,
        settings: Settings,
        live: EngineSettings,
        *,
        file: Path,
        command_line: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._file = file
        self._live = live
        self._command_line = dict(command_line or {})
        self._environ = environ
        self._lock = threading.Lock()
        self._current = settings
        self._in_force = settings.model_dump()
        self._listeners: list[Listener] = []

    @property
    def current(self) -> Settings:
        """The settings as a start would find them now."""
        with self._lock:
            return self._current

    def describe(self) -> list[SettingInfo]:
        """Every setting, in the order of the documentation."""
        layers = self._layers()
        names = [*ServerSettings.model_fields, *EngineSettings.model_fields]
        names += [name for name in Settings.model_fields if name not in names]
        return [self._info(name, layers) for name in names]

    def get(self, name: str) -> SettingInfo:
        """One setting. KeyError for a name that is none."""
        return self._info(name, self._layers())

    def change(self, values: Mapping[str, Any]) -> None:
        """Check, write and put in force; as :meth:`ui.context.services.SettingsControl.change` says."""
        with self._lock:
            before = self._current
            layers = self._layers()
            content = {name: value for name, (value, _origin) in layers.file.items()}
            for name, value in values.items():
                self._require_open(name, layers)
                if value is None:
                    content.pop(name, None)
                else:
                    content[name] = self._read(name, value)
            origin = f"the settings file {self._file}"
            wanted = Layers(
                {name: (value, origin) for name, value in content.items()}, layers.environment, layers.command_line
            ).compose()
            for name in values:
                if name in content:
                    # As its type, not as the text that was typed.
                    content[name] = getattr(wanted, name)
            self._write(content)
            self._current = wanted
            changed = frozenset(
                name for name in Settings.model_fields if getattr(before, name) != getattr(wanted, name)
            )
            for name in changed & AT_ONCE:
                self._in_force[name] = getattr(wanted, name)
                if name in EngineSettings.model_fields:
                    setattr(self._live, name, getattr(wanted, name))
            for name in changed & AT_THE_NEXT_LOAD:
                setattr(self._live, name, getattr(wanted, name))
            listeners = list(self._listeners)
        if changed:
            for listener in listeners:
                listener(changed)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with the names that changed, on the thread that changed them; the result ends that."""
        with self._lock:
            self._listeners.append(listener)

        def end() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return end

    # --- inside -----------------------------------------------------------------------------------------------------

    def _layers(self) -> Layers:
        return Layers.read(self._command_line, environ=self._environ, file=self._file)

    @staticmethod
    def _read(name: str, value: Any) -> Any:
        if isinstance(value, str) and is_list(Settings.model_fields[name]):
            return split_list(name, value, "the window")
        if isinstance(value, str) and is_object(Settings.model_fields[name]):
            return read_object(name, value, "the window")
        if isinstance(value, bool) and bool not in alternatives(Settings.model_fields[name]):
            raise invalid(name, value, "the window", allowed(name))
        return value.strip() if isinstance(value, str) else value

    @staticmethod
    def _require_open(name: str, layers: Layers) -> None:
        if name not in Settings.model_fields:
            raise SettingsInvalid(f"There is no setting named {name!r}.", param=name, remedy="Correct the name.")
        for layer in (layers.command_line, layers.environment):
            if name in layer:
                raise SettingsInvalid(
                    f"{name} is set by {layer[name][1]}, which wins over the settings file.",
                    param=name,
                    remedy="Leave it out there to change it here.",
                )

    def _write(self, content: Mapping[str, Any]) -> None:
        text = json.dumps(dict(sorted(content.items())), indent=2, ensure_ascii=False) + "\n"
        try:
            # mkstemp makes it readable by its owner alone: an API key may be in it.
            handle, name = tempfile.mkstemp(prefix=".settings-", suffix=".json", dir=self._file.parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as out:
                    out.write(text)
                    out.flush()
                    os.fsync(out.fileno())
                os.replace(name, self._file)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise SettingsInvalid(
                f"The settings file {self._file} cannot be written: {error.strerror or error}.",
                remedy="Free some space or correct its permissions; nothing was changed.",
            ) from error

    def _info(self, name: str, layers: Layers) -> SettingInfo:
        field = Settings.model_fields[name]
        origin, words = _origin(name, layers)
        value = getattr(self._current, name)
        kind, choices = _kind(name)
        applies = applies_of(name)
        return SettingInfo(
            name=name,
            group=group_of(name),
            description=field.description or "",
            kind=kind,
            allowed=allowed(name),
            choices=choices,
            default=field.get_default(call_default_factory=True),
            value=value,
            origin=origin,
            origin_words=words,
            environment=PREFIX + name,
            applies=applies,
            secret=name in SECRET,
            waiting=applies is Applies.RESTART and value != self._in_force[name],
        )


def group_of(name: str) -> str:
    """The part of the program a setting belongs to."""
    if name in ServerSettings.model_fields:
        return "Server"
    return "Engine" if name in EngineSettings.model_fields else PROGRAM


def applies_of(name: str) -> Applies:
    """When a change of it takes effect."""
    if name in AT_ONCE:
        return Applies.AT_ONCE
    if name in AT_THE_NEXT_LOAD:
        return Applies.NEXT_LOAD
    return Applies.SERVER if name in ServerSettings.model_fields else Applies.RESTART


def _origin(name: str, layers: Layers) -> tuple[SettingOrigin, str]:
    for origin, layer in (
        (SettingOrigin.COMMAND_LINE, layers.command_line),
        (SettingOrigin.ENVIRONMENT, layers.environment),
        (SettingOrigin.FILE, layers.file),
    ):
        if name in layer:
            return origin, layer[name][1]
    return SettingOrigin.DEFAULT, "the default"


def _kind(name: str) -> tuple[SettingKind, tuple[str, ...]]:
    field = Settings.model_fields[name]
    kinds = [kind for kind in alternatives(field) if kind is not type(None)]
    if get_origin(kinds[0]) is Literal:
        return SettingKind.CHOICE, tuple(str(choice) for choice in get_args(kinds[0]))
    if is_list(field):
        return SettingKind.LIST, ()
    if is_object(field):
        return SettingKind.OBJECT, ()
    return {bool: SettingKind.SWITCH, int: SettingKind.WHOLE, float: SettingKind.NUMBER}.get(
        kinds[0], SettingKind.TEXT
    ), ()
