"""The whole window on a real engine, a real server and a real settings file, for tests and for screenshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from app.demo.facts import demo_facts
from app.settings import load_settings
from app.settings_store import SettingsStore
from app.token_store import TokenStore
from engine.engine import Engine
from server.thread import ServerThread
from ui.bridge import Bridge
from ui.context.services import AppServices, Progress
from ui.window.main_window import MainWindow


@dataclass
class Stage:
    """What a test may look at. ``quits`` grows by one each time the window asks the program to end."""

    engine: Engine
    server: ServerThread
    services: AppServices
    bridge: Bridge
    window: MainWindow
    settings: SettingsStore
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
    environ: Mapping[str, str] | None = None,
) -> Stage:
    """Show the window, at the size it remembers where ``size`` is None. The server is not started.

    Settings are those of ``settings.json`` in ``data_dir`` and of ``environ`` (empty when None); the port is ``port``
    where they name none. No keyring is asked: the token goes into a file.
    """
    quits: list[str] = []
    file = data_dir / "settings.json"
    if not file.exists():
        file.write_text(f'{{"PORT": {port}}}\n', encoding="utf-8")
    settings = load_settings(environ=environ or {}, file=file)
    store = SettingsStore(settings, engine.settings, file=file, environ=environ or {})
    server = ServerThread(engine, settings)
    store.subscribe(lambda _changed: server.configure(store.current))
    services = AppServices(
        engine=engine,
        server=server,
        settings=store,
        token=TokenStore(data_dir, environ=environ or {}, vault=lambda: None),
        data_dir=data_dir,
        quit=lambda: quits.append("quit"),
        install_demo=install_demo,
        versions={"miLLM Desktop": "0.1.0"},
        configured_port=port or 8000,
        demo=demo_facts(),
    )
    bridge = Bridge(engine.events)
    window = MainWindow(services, bridge)
    if size is not None:
        window.resize(*size)
    window.show()
    return Stage(engine, server, services, bridge, window, store, quits)
