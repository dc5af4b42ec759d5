"""What the window is to a page, and which pages there are.

A :class:`~ui.context.page.Page` is built from a :class:`PageContext`, the first time it is shown.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from engine.engine import Engine
from ui.bridge import Bridge
from ui.context.demo_install import DemoInstall
from ui.context.hand_steering import LiveHand
from ui.context.page import Page
from ui.context.services import AppServices

HOME = "home"
CHAT = "chat"
RECORDS = "records"
STEERING = "steering"
PROFILES = "profiles"
CLUSTERS = "clusters"
CIRCUITS = "circuits"
SWEEP = "sweep"
FEATURES = "features"
MONITOR = "monitor"
MODELS = "models"
SAES = "saes"
SERVER = "server"
SETTINGS = "settings"


class Go(Protocol):
    """Brings a page to the front; ``what`` is handed to its ``arrive``."""

    def __call__(self, key: str, **what: Any) -> None:
        """Show the page called ``key``."""


@dataclass(frozen=True)
class PageContext:
    """What a page may ask of the window around it.

    Attributes:
        demo: The one installation of the demo model.
        go: Shows another page.
        say: Shows a message in the bar (``lasting=True``: until something else is said).
        say_error: Shows an error in the bar.
        show_around: Begins the tour.
        show_keys: Lists the keyboard shortcuts.
    """

    services: AppServices
    bridge: Bridge
    hand: LiveHand
    demo: DemoInstall
    go: Go
    say: Callable[..., None]
    say_error: Callable[[BaseException], None]
    show_around: Callable[[], None]
    show_keys: Callable[[], None]

    @property
    def engine(self) -> Engine:
        """The engine behind the window."""
        return self.services.engine


@dataclass(frozen=True)
class PageSpec:
    """A page of the navigation. ``factory`` is ``module:class``, imported by the first who asks for it."""

    key: str
    title: str
    icon: str
    factory: str

    def build(self, frame: PageContext) -> Page:
        """The page itself."""
        return self.load()(frame)

    def load(self) -> Callable[[PageContext], Page]:
        """Its class."""
        module, _, name = self.factory.partition(":")
        page: Callable[[PageContext], Page] = getattr(importlib.import_module(module), name)
        return page


GROUPS: tuple[tuple[str, tuple[PageSpec, ...]], ...] = (
    (
        "Talk",
        (
            PageSpec(HOME, "Home", "home", "ui.talk.home:HomePage"),
            PageSpec(CHAT, "Chat", "chat", "ui.talk.chat:ChatPage"),
            PageSpec(RECORDS, "Records", "book", "ui.talk.records:RecordsPage"),
        ),
    ),
    (
        "Steer",
        (
            PageSpec(STEERING, "Steering", "dials", "ui.steer.steering:SteeringPage"),
            PageSpec(PROFILES, "Profiles", "profile", "ui.steer.profiles:ProfilesPage"),
            PageSpec(CLUSTERS, "Clusters", "cluster", "ui.steer.clusters:ClustersPage"),
            PageSpec(CIRCUITS, "Circuits", "circuit", "ui.steer.circuits:CircuitsPage"),
            PageSpec(SWEEP, "Sweep", "sweep", "ui.steer.sweep:SweepPage"),
        ),
    ),
    (
        "Look",
        (
            PageSpec(FEATURES, "Features", "features", "ui.look.features:FeaturesPage"),
            PageSpec(MONITOR, "Monitor", "pulse", "ui.look.monitor:MonitorPage"),
        ),
    ),
    (
        "Shelf",
        (
            PageSpec(MODELS, "Models", "chip", "ui.shelf.models:ModelsPage"),
            PageSpec(SAES, "SAEs", "layers", "ui.shelf.saes:SaesPage"),
        ),
    ),
    (
        "Serve",
        (PageSpec(SERVER, "Server", "server", "ui.serve.server:ServerPage"),),
    ),
    (
        "Program",
        (PageSpec(SETTINGS, "Settings", "gear", "ui.program.settings:SettingsPage"),),
    ),
)
"""The navigation: groups of pages, in order."""


def import_pages() -> None:
    """Import the code of every page, so that the first look at one only has to build it. For a background thread."""
    for _, specs in GROUPS:
        for spec in specs:
            spec.load()
