"""The icon in the desktop's tray, where there is one: the window, the server's address, steering on or off, the end.

Where the desktop has no tray nothing is made, and closing the window ends the program. With one, closing still ends it
unless the setting ``CLOSE_TO_TRAY`` says otherwise.
"""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject, Slot
from PySide6.QtGui import QAction, QGuiApplication
from PySide6.QtWidgets import QMenu, QSystemTrayIcon

from engine.events import (
    CircuitsChanged,
    ClustersChanged,
    Event,
    ProfilesChanged,
    SaeAttached,
    SaeDetached,
    ServerStateChanged,
    SteeringUpdated,
)
from ui.context.services import AppServices
from ui.kit import icons, theme
from ui.kit.plain_text import as_letters
from ui.kit.steering_text import any_on, can_steer, live_words
from ui.window.main_window import PROGRAM, MainWindow

SETTING = "CLOSE_TO_TRAY"

HEARD = (
    ServerStateChanged,
    SteeringUpdated,
    SaeAttached,
    SaeDetached,
    ProfilesChanged,
    ClustersChanged,
    CircuitsChanged,
)
"""After these the menu is read anew."""


class Tray(QObject):
    """The icon and its menu. Belongs to the window; :meth:`remove` takes it away when the program ends."""

    @classmethod
    def where_there_is_one(cls, window: MainWindow, services: AppServices) -> Tray | None:
        """The icon, or None on a desktop without a tray."""
        return cls(window, services) if QSystemTrayIcon.isSystemTrayAvailable() else None

    def __init__(self, window: MainWindow, services: AppServices) -> None:
        super().__init__(window)
        self._window = window
        self._services = services
        self._stays = bool(services.settings.get(SETTING).value)
        self.menu = QMenu()
        self.window_action = QAction("Hide the window", self)
        self.server_action = QAction("", self)
        self.steering_action = QAction("", self)
        self.quit_action = QAction("Quit", self)
        for action in (self.window_action, self.server_action, self.steering_action):
            self.menu.addAction(action)
        self.menu.addSeparator()
        self.menu.addAction(self.quit_action)
        self.window_action.triggered.connect(self._toggle_window)
        self.server_action.triggered.connect(self._on_server)
        self.steering_action.triggered.connect(self._on_steering)
        self.quit_action.triggered.connect(window.leave)
        self.menu.aboutToShow.connect(self.refresh)
        self.icon = QSystemTrayIcon(self)
        self.icon.setContextMenu(self.menu)
        self.icon.activated.connect(self._on_activated)
        bridge = window.frame.bridge
        bridge.event_arrived.connect(self._on_event)
        self._end = services.settings.subscribe(
            lambda changed: bridge.post(partial(self._on_settings, changed), owner=self)
        )
        window.stays_in_tray = lambda: self._stays
        theme.current().changed.connect(self._redraw)
        self._redraw()
        self.refresh()
        self.icon.show()

    def remove(self) -> None:
        """Take the icon away; the window closes for good from now on."""
        self._end()
        self._window.stays_in_tray = lambda: False
        self.icon.hide()

    def refresh(self) -> None:
        """Read the window's, the server's and the steering's state anew."""
        self.window_action.setText("Hide the window" if self._window.isVisible() else "Show the window")
        server = self._services.server
        address = server.address
        running = server.state == "running" and address is not None
        self.server_action.setText(f"Copy {address}" if running else "Start the server")
        self.server_action.setEnabled(running or server.state in ("stopped", "error"))
        now = self._services.engine.desk.now
        able, on = bool(can_steer(now)), any_on(now)
        self.steering_action.setText("Switch steering off" if on else "Switch steering on")
        self.steering_action.setEnabled(able)
        what = live_words(now)
        self.icon.setToolTip(as_letters(f"{PROGRAM}\n{address if running else 'Server not running'}\nSteering: {what}"))

    @Slot(object)
    def _on_event(self, event: Event) -> None:
        if isinstance(event, HEARD):
            self.refresh()

    def _on_settings(self, changed: frozenset[str]) -> None:
        if SETTING in changed:
            self._stays = bool(self._services.settings.get(SETTING).value)

    def _on_activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        # A click with the right button opens the menu by itself.
        if reason in (QSystemTrayIcon.ActivationReason.Trigger, QSystemTrayIcon.ActivationReason.DoubleClick):
            self._toggle_window()

    @Slot()
    def _toggle_window(self) -> None:
        if self._window.isVisible() and not self._window.isMinimized():
            self._window.hide()
        else:
            self._window.raise_window()
        self.refresh()

    @Slot()
    def _on_server(self) -> None:
        server = self._services.server
        if server.state == "running" and server.address is not None:
            QGuiApplication.clipboard().setText(server.address)
        else:
            self._window.frame.bridge.run_in_background(server.start, None, self._window.say_error, owner=self._window)

    @Slot()
    def _on_steering(self) -> None:
        self._window.hand.switch_all(not any_on(self._services.engine.desk.now))
        self.refresh()

    @Slot()
    def _redraw(self) -> None:
        self.icon.setIcon(icons.window_icon(theme.current().colours.accent))
