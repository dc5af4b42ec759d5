"""The window: navigation on the left, the bar that is always visible, and one page at a time.

It paints before any model is loaded and before the heavy libraries are imported. Engine events come in through the
bridge and are handed to each page; closing is handed to the program's quitter.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, Qt, QTimer, QUrl, Signal, Slot
from PySide6.QtGui import QCloseEvent, QDesktopServices, QGuiApplication, QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QMainWindow, QStackedWidget, QWidget

from engine.checked import of_kind
from engine.errors import LoadCancelled
from engine.events import (
    CircuitsChanged,
    ClustersChanged,
    Event,
    LibraryStateChanged,
    ModelLoadComplete,
    ModelLoadError,
    ModelLoadProgress,
    ModelUnloadComplete,
    ProfilesChanged,
    SaeAttached,
    SaeDetached,
    ServerStateChanged,
    SteeringUpdated,
)
from engine.public.models import KeptState, PutBack, UnusedGpu, unused_gpu
from ui.bridge import Bridge
from ui.context.demo_install import DemoInstall
from ui.context.hand_steering import LiveHand
from ui.context.page import Page
from ui.context.page_context import (
    CHAT,
    CIRCUITS,
    CLUSTERS,
    GROUPS,
    HOME,
    MODELS,
    RECORDS,
    SETTINGS,
    STEERING,
    PageContext,
    PageSpec,
)
from ui.context.services import AppServices
from ui.kit import icons, shortcuts, theme
from ui.kit.basics import Surface, column
from ui.kit.text import describe_error
from ui.steer.steering import SteeringPage
from ui.talk.chat import ChatPage
from ui.talk.home import HomePage
from ui.talk.records import RecordsPage
from ui.window.drop_target import DropTarget
from ui.window.dropped import DOCUMENT_PAGES, Sorted, sort_out
from ui.window.navigation import Navigation
from ui.window.shortcuts_dialog import ShortcutsDialog
from ui.window.toast import Toast
from ui.window.top_bar import TopBar
from ui.window.tour import Tour
from ui.window.tour_panel import TourPanel

PROGRAM = "miLLM Desktop"
GEOMETRY_KEY = "window_geometry"
DEFAULT_SIZE = (1280, 800)
BREATH_MS = 20
"""Between two pieces of work that a person has asked for together: time to draw and to hear the person."""
NOTHING_TO_SWITCH = "Nothing is set to steer yet: choose a cluster, a profile or a circuit, or turn up features."
TITLE_BAR = 36
"""About what the desktop's own frame takes of a screen's height."""
SLIM_BELOW = 1020
"""Below this window width the navigation shows icons alone."""

BAR_EVENTS = (
    ModelLoadProgress,
    ModelLoadComplete,
    ModelLoadError,
    ModelUnloadComplete,
    ServerStateChanged,
    SteeringUpdated,
    SaeAttached,
    SaeDetached,
    ProfilesChanged,
    ClustersChanged,
    CircuitsChanged,
)
"""After these the bar is read anew."""


class MainWindow(QMainWindow):
    """Owns the pages. ``bridge`` belongs to the caller, who shuts it down after the window is closed."""

    closed = Signal()

    def __init__(self, services: AppServices, bridge: Bridge) -> None:
        super().__init__()
        self._services = services
        self._engine = services.engine
        self._bridge = bridge
        self._closing = False
        self._leaving = False
        self.stays_in_tray: Callable[[], bool] = lambda: False
        """Whether closing the window only hides it, since a tray icon brings it back."""
        self.offers_standing = True
        """Offer what was attached to a model when it is loaded again; not while the start puts it back by itself."""
        self.setWindowTitle(PROGRAM)
        self.setMinimumSize(560, 360)
        foot = "\n".join(f"{name} {version}" for name, version in services.versions.items())
        self.navigation = Navigation("miLLM", foot)
        self.bar = TopBar()
        self.hand = LiveHand(services.engine, bridge, self)
        self.demo = DemoInstall(services, bridge, self)
        self.frame = PageContext(
            services, bridge, self.hand, self.demo, self.go, self.say, self.say_error, self.show_around, self.show_keys
        )
        self.stack = QStackedWidget()
        self._specs: dict[str, PageSpec] = {}
        self._pages: dict[str, Page] = {}
        self._open: str | None = None
        for group, specs in GROUPS:
            self.navigation.add_group(group)
            for spec in specs:
                self._specs[spec.key] = spec
                self.navigation.add_page(spec.key, spec.title, spec.icon)
        self._build()
        self.bar.passing = Toast(self._body)
        self.door = DropTarget(self)
        self.door.files.connect(self._sort_out)
        self.door.text.connect(self._take_text)
        self.door.lost.connect(self._refuse_drop)
        self._refused_drop = ""
        """What was said in the bar of what was dropped last."""
        self.tour = Tour(self, TourPanel(self._body))
        self._add_shortcuts()
        self.navigation.wanted.connect(self.show_page)
        self.bar.steering_wanted.connect(self.hand.switch_all)
        self.bar.open_wanted.connect(self.show_page)
        self.hand.settled.connect(self.refresh_bar)
        bridge.event_arrived.connect(self._on_event)
        bridge.failed.connect(self._on_failed)
        theme.current().changed.connect(self._redraw)
        self._redraw()
        self.refresh_bar()
        bridge.run_in_background(unused_gpu, self._on_unused_gpu, owner=self)
        self.show_page(HOME)
        self._restore_geometry()

    # --- pages and messages -----------------------------------------------------------------------------------------

    @Slot(str)
    def show_page(self, key: str) -> None:
        """Bring a page to the front."""
        self.go(key)

    def go(self, key: str, **what: Any) -> None:
        """Bring a page to the front, building it the first time; ``what`` is for its ``arrive``."""
        page = self.page(key)
        self._open = key
        self.stack.setCurrentWidget(page)
        self.navigation.mark(key)
        self.navigation.follow(key)
        self.tour.panel.follow()
        page.arrive(**what)

    def page(self, key: str) -> Page:
        """The page called ``key``, built where it was not yet."""
        page = self._pages.get(key)
        if page is None:
            page = self._specs[key].build(self.frame)
            self._pages[key] = page
            self.stack.addWidget(page)
        return page

    @property
    def open_page(self) -> str | None:
        """The key of the page in front."""
        return self._open

    @property
    def home(self) -> HomePage:
        """The first page."""
        return of_kind(HomePage, self.page(HOME))

    @property
    def chat(self) -> ChatPage:
        """The chat."""
        return of_kind(ChatPage, self.page(CHAT))

    @property
    def records(self) -> RecordsPage:
        """Saved comparisons."""
        return of_kind(RecordsPage, self.page(RECORDS))

    @property
    def steering(self) -> SteeringPage:
        """The dials of single features."""
        return of_kind(SteeringPage, self.page(STEERING))

    def say(self, words: str, *, lasting: bool = False) -> None:
        """Show a message in the bar."""
        self.bar.say(words, lasting=lasting)

    def say_error(self, error: BaseException) -> None:
        """Show an error in the bar until something else is said."""
        self.bar.say(describe_error(error), lasting=True)

    def raise_window(self) -> None:
        """Come to the front, for a second start of the program on the same data directory."""
        if self.isMinimized():
            self.showNormal()
        self.show()
        self.raise_()
        self.activateWindow()

    def open_documents(self, files: Sequence[Path]) -> None:
        """Import documents a person opened with the program, each on the page of its kind (told by its ending)."""
        circuits = [file for file in files if file.name.lower().endswith(".circuit.json")]
        others = [file for file in files if file not in circuits]
        if others:
            self.go(CLUSTERS, files=others)
        if circuits:
            # In a turn of its own, once the other page is drawn: each may have to be built first.
            QTimer.singleShot(BREATH_MS if others else 0, self, lambda: self.go(CIRCUITS, files=circuits))

    def _sort_out(self, paths: list[Path]) -> None:
        """Hand what was dropped to the pages of its kinds, or say what it is not."""

        def sorted_out(found: Sorted) -> None:
            if found.refused:
                self._refuse_drop(" ".join(found.refused))
            for place, (key, files) in enumerate(found.pages.items()):
                # Each in a turn of its own: a page may have to be built first.
                QTimer.singleShot(place * BREATH_MS, self, partial(self.go, key, files=files))

        self._forget_refusal()
        engine, here = self._engine, self._open
        self._bridge.run_in_background(lambda: sort_out(engine, paths, here), sorted_out, self.say_error, owner=self)

    def _take_text(self, text: str) -> None:
        """A document that was dropped as its words: for the page in front where it takes documents."""
        self._forget_refusal()
        self.go(self._open if self._open in DOCUMENT_PAGES else CLUSTERS, text=text)

    def _refuse_drop(self, words: str) -> None:
        """Say what is wrong with what was dropped, until the next thing is."""
        self._refused_drop = words
        self.say(words, lasting=True)

    def _forget_refusal(self) -> None:
        """Something else was dropped: what was said of the one before is over."""
        if self._refused_drop and self.bar.message.full_text() == self._refused_drop:
            self.say("")
        self._refused_drop = ""

    def show_around(self) -> None:
        """Begin the tour."""
        self.tour.begin()

    def offer_report(self, report: Path) -> None:
        """Say that the program failed and offer what it wrote down."""
        self.bar.say(
            "The program failed the last time it ran. What happened was written down.",
            lasting=True,
            action=("Open the report", lambda: self._open_report(report)),
        )

    def _offer_standing(self, kept: KeptState) -> None:
        """What the model that was loaded had when it was in memory last."""
        if not kept.saes or self._engine.desk.state.attachments or self.demo.running:
            return
        standing = self._engine.standing

        def put_back() -> None:
            self._bridge.run_in_background(standing.put_back, self.say_put_back, self.say_error, owner=self)

        self.bar.say(
            f"SAEs were attached to it on {kept.layers} when it was in memory last.",
            lasting=True,
            action=("Attach them again", put_back),
        )

    def say_put_back(self, outcome: PutBack) -> None:
        """Tell what was put back, and what could not be."""
        if words := outcome.in_words():
            self.say(words, lasting=bool(outcome.problems))

    def _open_report(self, report: Path) -> None:
        if not QDesktopServices.openUrl(QUrl.fromLocalFile(str(report))):
            self.say(f"This desktop could not open it. The report is in {report}.", lasting=True)

    def _on_unused_gpu(self, found: UnusedGpu | None) -> None:
        self.bar.show_unused_gpu(found.in_words() if found is not None else "")

    def refresh_bar(self) -> None:
        """Read the model's, the steering's and the server's state anew."""
        shelf, server = self._engine.shelf, self._services.server
        self.bar.show_model(shelf.resident, shelf.loading)
        self.bar.show_steering(self._engine.desk.now)
        self.bar.show_server(server.state, server.address)

    # --- events -----------------------------------------------------------------------------------------------------

    @Slot(object)
    def _on_event(self, event: Event) -> None:
        if self._closing:
            return
        match event:
            case ModelLoadComplete():
                self.say(f"{event.model_name} is loaded.")
                if self.offers_standing:
                    self._bridge.run_in_background(
                        self._engine.standing.to_put_back, self._offer_standing, self.say_error, owner=self
                    )
            case ModelLoadError() if event.code == LoadCancelled.code:
                self.say("Loading was cancelled.")
            case ModelLoadError() if self._open not in (HOME, MODELS):
                # Those two pages say it themselves, once and with what can be done.
                way = ("Open Models", partial(self.go, MODELS, model=event.model_id))
                self.bar.say(event.message, lasting=True, action=way)
            case ModelUnloadComplete():
                self.say(f"{event.model_name} was unloaded.")
            case LibraryStateChanged():
                self.say(event.error or "The library is where it was: changes are kept again.", lasting=True)
            case ServerStateChanged() if event.state == "error" and event.error:
                self.say(event.error, lasting=True)
        if isinstance(event, BAR_EVENTS):
            self.refresh_bar()
        self.hand_on(event)

    def hand_on(self, event: Event) -> None:
        """Tell the pages that follow ``event``."""
        for page in list(self._pages.values()):
            if isinstance(event, page.FOLLOWS):
                page.on_event(event)

    @Slot(object)
    def _on_failed(self, error: BaseException) -> None:
        self.say_error(error)

    # --- closing and geometry ---------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Close the window and end the program, whatever closing does otherwise."""
        self._leaving = True
        self.close()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Keep the window's place, end what this window began, then let the program's quitter do the rest. Once."""
        if not self._closing and not self._leaving and self.stays_in_tray():
            event.ignore()
            self.hide()
            return
        event.accept()
        if self._closing:
            return
        self._closing = True
        self._save_geometry()
        for page in self._pages.values():
            page.prepare_to_close()
        self.closed.emit()
        self._services.quit()

    def _save_geometry(self) -> None:
        packed = base64.b64encode(self.saveGeometry().data()).decode("ascii")
        state = self._engine.library.state
        # A full or slow disk must not keep the window from closing; the quitter closes the library after the bridge.
        self._bridge.run_in_background(lambda: state.set(GEOMETRY_KEY, packed), owner=self)

    def _restore_geometry(self) -> None:
        kept = self._engine.library.state.get(GEOMETRY_KEY)
        try:
            packed = base64.b64decode(kept, validate=True) if isinstance(kept, str) else b""
        except binascii.Error:
            packed = b""
        if not packed or not self.restoreGeometry(QByteArray(packed)):
            room = QGuiApplication.primaryScreen().availableGeometry().size()
            self.resize(min(DEFAULT_SIZE[0], room.width()), min(DEFAULT_SIZE[1], room.height() - TITLE_BAR))

    # --- layout and keys --------------------------------------------------------------------------------------------

    def _build(self) -> None:
        right = QWidget()
        inside = column(spacing=0)
        inside.addWidget(self.bar)
        inside.addWidget(self.bar.toast)
        inside.addWidget(self.stack, 1)
        right.setLayout(inside)
        self._body = body = Surface("page")
        layout = QHBoxLayout(body)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.navigation)
        layout.addWidget(right, 1)
        self.setCentralWidget(body)
        self._body = body

    def _add_shortcuts(self) -> None:
        for number, key in enumerate(list(self._specs)[: shortcuts.NUMBERED], start=1):
            shortcut = QShortcut(QKeySequence(f"Ctrl+{number}"), self)
            shortcut.setContext(Qt.ShortcutContext.WindowShortcut)
            shortcut.activated.connect(partial(self.go, key))
        for keys, action in (
            (shortcuts.NEW_CHAT, self._new_chat),
            (shortcuts.WRITE, self._focus_input),
            (shortcuts.COMPARE, self._toggle_compare),
            (shortcuts.STEERING, self._switch_steering),
            (shortcuts.NEXT_PAGE, partial(self._turn_page, 1)),
            (shortcuts.FORMER_PAGE, partial(self._turn_page, -1)),
            (shortcuts.SETTINGS, partial(self.go, SETTINGS)),
            (shortcuts.HELP, self.show_keys),
            (shortcuts.QUIT, self.leave),
            (shortcuts.STOP, self._escape),
        ):
            shortcut = QShortcut(QKeySequence(keys), self)
            shortcut.setContext(Qt.ShortcutContext.WindowShortcut)
            shortcut.activated.connect(action)

    def _new_chat(self) -> None:
        self.show_page(CHAT)
        self.chat.new_chat()

    def _focus_input(self) -> None:
        self.show_page(CHAT)

    def _toggle_compare(self) -> None:
        self.show_page(CHAT)
        self.chat.set_comparing(not self.chat.comparing)

    def _switch_steering(self) -> None:
        if self.bar.switch.isEnabled():
            self.bar.switch.click()
        else:
            self.say(NOTHING_TO_SWITCH)

    def _turn_page(self, steps: int) -> None:
        keys = list(self._specs)
        here = keys.index(self._open) if self._open in keys else 0
        self.go(keys[(here + steps) % len(keys)])

    def show_keys(self) -> None:
        """List the keys."""
        ShortcutsDialog([spec.title for spec in self._specs.values()], self).open()

    def _escape(self) -> None:
        if CHAT in self._pages and self.chat.busy:
            self.chat.stop()
        elif not self.tour.panel.isHidden():
            self.tour.end()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Give the pages the room they need."""
        super().resizeEvent(event)
        self.navigation.set_slim(self.width() < SLIM_BELOW)

    @Slot()
    def _redraw(self) -> None:
        self.setWindowIcon(icons.window_icon(theme.current().colours.accent))
