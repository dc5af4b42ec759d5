"""What the composition root hands to the window: engine, server's switch, settings, and the ways in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from engine.engine import Engine
from engine.events import RequestRecorded
from engine.public.library import Library


class ServerControl(Protocol):
    """The API server as the window sees it. Changes of state come as :class:`engine.events.ServerStateChanged`,
    requests as :class:`engine.events.RequestRecorded`.
    """

    @property
    def state(self) -> str:
        """Starting | running | stopped | error."""

    @property
    def address(self) -> str | None:
        """Base URL for clients, like ``http://127.0.0.1:8000/v1``; None when nothing listens."""

    @property
    def error(self) -> str | None:
        """Why the last start failed, in words for a person."""

    @property
    def shared(self) -> bool:
        """Whether other machines can reach it while it runs."""

    @property
    def outdated(self) -> bool:
        """Whether it runs with other settings than those it would be started with now."""

    def start(self, port: int | None = None) -> None:
        """Begin to listen on ``port`` (None: the configured one). Returns at once."""

    def stop(self) -> None:
        """End open streams, then the server. May take a second."""

    def restart(self) -> None:
        """Stop, then start with the settings in force now. May take some seconds."""

    def requests(self) -> Sequence[RequestRecorded]:
        """The requests of late, the oldest first."""

    def clear_requests(self) -> None:
        """Forget the requests that have ended."""


class Applies(StrEnum):
    """When a change of a setting takes effect."""

    AT_ONCE = "at once"
    NEXT_LOAD = "at the next load of a model"
    SERVER = "when the server is started again"
    RESTART = "when the program is started again"


class SettingOrigin(StrEnum):
    """Where a setting's value comes from; the first two can be changed in the window."""

    DEFAULT = "default"
    FILE = "settings file"
    ENVIRONMENT = "environment"
    COMMAND_LINE = "command line"


class SettingKind(StrEnum):
    """What a setting's value is, and so how it is edited."""

    SWITCH = "switch"
    CHOICE = "choice"
    WHOLE = "whole number"
    NUMBER = "number"
    TEXT = "text"
    LIST = "list"
    OBJECT = "object"


@dataclass(frozen=True)
class SettingInfo:
    """One setting as it stands.

    Attributes:
        group: Server, Engine or Program.
        allowed: What it takes, in words.
        choices: The values of a choice; empty for other kinds.
        origin_words: Where the value comes from, with the variable's or the file's name.
        environment: The variable that sets it.
        secret: Its value is shown only when a person asks.
        waiting: It was changed, and the change is not in force yet.
    """

    name: str
    group: str
    description: str
    kind: SettingKind
    allowed: str
    choices: tuple[str, ...]
    default: Any
    value: Any
    origin: SettingOrigin
    origin_words: str
    environment: str
    applies: Applies
    secret: bool
    waiting: bool

    @property
    def locked(self) -> bool:
        """Whether something that wins over the settings file sets it."""
        return self.origin in (SettingOrigin.ENVIRONMENT, SettingOrigin.COMMAND_LINE)


class SettingsControl(Protocol):
    """The settings as the window sees them. Reads and writes a small file: changes are for a background thread."""

    def describe(self) -> Sequence[SettingInfo]:
        """Every setting, in the order of the documentation."""

    def get(self, name: str) -> SettingInfo:
        """One setting. KeyError for a name that is none."""

    def change(self, values: Mapping[str, Any]) -> None:
        """Check ``values`` (text, or of the setting's type; None: back to the default), write them to the settings file
        and put in force what can be. All of them, or none. Raises ``SettingsInvalid`` naming the setting, what is
        allowed, or what locks it.
        """

    def subscribe(self, listener: Callable[[frozenset[str]], None]) -> Callable[[], None]:
        """Call ``listener`` with the names that changed, on the thread that changed them; the result ends that."""


@dataclass(frozen=True)
class TokenState:
    """Whether a Hugging Face token is kept, and where. ``locked``: an environment variable sets it."""

    known: bool
    locked: bool
    words: str


class TokenControl(Protocol):
    """The Hugging Face token. Its value never comes back to the window. All methods may block for a moment."""

    def state(self) -> TokenState:
        """Whether there is one and where it is kept, in words."""

    def save(self, token: str) -> TokenState:
        """Keep ``token``. Raises ``InvalidParameter`` for what cannot be one."""

    def forget(self) -> TokenState:
        """Keep none."""


Progress = Callable[[float, str], None]
"""Called with 0–100 and a short phrase, from any thread."""


@dataclass(frozen=True)
class DemoFacts:
    """What the first steps need to know of the demo pack.

    Attributes:
        model: Name of its model. attach_set: name of its saved set of SAEs.
        cluster: Name of the cluster that shows the dial, ``topic`` what it leans to, ``intensity`` where it works best
            by the pack's measurement, ``prompt`` a question it was measured with.
        repetition_penalty: The mildest under which its answers do not repeat themselves.
        report: The Markdown file with what was measured, its plots beside it.
        bundled: The model's file came with the program, so that nothing has to be fetched.
        is_older: Whether a library holds an earlier version of the pack; reads one row.
    """

    model: str
    attach_set: str
    cluster: str
    intensity: float
    prompt: str
    topic: str = ""
    repetition_penalty: float = 1.0
    report: Path | None = None
    bundled: bool = False
    is_older: Callable[[Library], bool] | None = None


@dataclass(frozen=True)
class AppServices:
    """Everything the window needs from the program around it.

    Attributes:
        configured_port: The port the server is set to; where it is taken, the window offers another.
        versions: Name → version, for the foot of the navigation (``{"miLLM Desktop": "0.1.0", …}``).
        quit: Ends the program; called once, from the GUI thread, when the window closes or Ctrl+Q is pressed.
        install_demo: Fetches and converts the demo model and puts it on the shelf, with its pack; what is there already
            is left alone, an older pack replaced. Blocking (runs on a background thread); raises typed errors; reports
            through its argument.
        demo: What the pack holds; None where the program comes without one.
    """

    engine: Engine
    server: ServerControl
    settings: SettingsControl
    token: TokenControl
    data_dir: Path
    quit: Callable[[], None]
    install_demo: Callable[[Progress], None]
    versions: Mapping[str, str] = field(default_factory=dict)
    configured_port: int = 8000
    demo: DemoFacts | None = None
