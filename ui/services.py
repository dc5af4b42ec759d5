"""What the composition root hands to the window: the engine, the server's switch, and the ways in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from engine.engine import Engine


class ServerControl(Protocol):
    """The API server as the window sees it. Changes of state come as :class:`engine.events.ServerStateChanged`."""

    @property
    def state(self) -> str:
        """Starting | running | stopped | error."""

    @property
    def address(self) -> str | None:
        """Base URL for clients, like ``http://127.0.0.1:8000/v1``; None when nothing listens."""

    @property
    def error(self) -> str | None:
        """Why the last start failed, in words for a person."""

    def start(self, port: int | None = None) -> None:
        """Begin to listen on ``port`` (None: the configured one). Returns at once."""

    def stop(self) -> None:
        """End open streams, then the server. May take a second."""


Progress = Callable[[float, str], None]
"""Called with 0–100 and a short phrase, from any thread."""


@dataclass(frozen=True)
class AppServices:
    """Everything the window needs from the program around it.

    Attributes:
        configured_port: The port the server is set to; where it is taken, the window offers another.
        versions: Name → version, for the foot of the navigation (``{"miLLM Desktop": "0.1.0", …}``).
        quit: Ends the program; called once, from the GUI thread, when the window closes or Ctrl+Q is pressed.
        install_demo: Fetches and converts the demo model and puts it on the shelf. Blocking (runs on a background
            thread); raises typed errors; reports through its argument.
    """

    engine: Engine
    server: ServerControl
    data_dir: Path
    quit: Callable[[], None]
    install_demo: Callable[[Progress], None]
    versions: Mapping[str, str] = field(default_factory=dict)
    configured_port: int = 8000
