"""The whole window on a real engine and a real server, for tests and for screenshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from engine.engine import Engine
from server.config import ServerSettings
from server.thread import ServerThread
from ui.bridge import Bridge
from ui.main_window import MainWindow
from ui.services import AppServices, Progress


@dataclass
class Stage:
    """What a test may look at. ``quits`` grows by one each time the window asks the program to end."""

    engine: Engine
    server: ServerThread
    services: AppServices
    bridge: Bridge
    window: MainWindow
    quits: list[str] = field(default_factory=list)


def no_demo(_progress: Progress) -> None:
    raise AssertionError("this test does not install the demo model")


def open_stage(
    engine: Engine,
    data_dir: Path,
    *,
    install_demo: Callable[[Progress], None] = no_demo,
    port: int = 0,
    size: tuple[int, int] | None = (1280, 800),
) -> Stage:
    """Show the window, at the size it remembers where ``size`` is None. The server is not started."""
    quits: list[str] = []
    server = ServerThread(engine, ServerSettings(PORT=port))
    services = AppServices(
        engine=engine,
        server=server,
        data_dir=data_dir,
        quit=lambda: quits.append("quit"),
        install_demo=install_demo,
        versions={"miLLM Desktop": "0.1.0"},
        configured_port=port or 8000,
    )
    bridge = Bridge(engine.events)
    window = MainWindow(services, bridge)
    if size is not None:
        window.resize(*size)
    window.show()
    return Stage(engine, server, services, bridge, window, quits)
