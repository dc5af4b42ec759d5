"""The API server: start and stop, who may use it, how to connect a program, and who asks for what."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import psutil
from PySide6.QtCore import QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout

from engine.events import (
    ClustersChanged,
    Event,
    ModelLoadComplete,
    ModelsChanged,
    ModelUnloadComplete,
    ProfilesChanged,
    RequestRecorded,
    ServerStateChanged,
)
from ui.context.page import Page
from ui.context.page_context import PageContext
from ui.context.services import SettingInfo
from ui.kit import theme
from ui.kit.basics import Button, Card, Notice
from ui.kit.first_steps import PLACE_ADDRESS, PLACE_MODEL
from ui.kit.ports import free_port_after
from ui.kit.scroll_page import ScrollPage
from ui.kit.server_card import ServerCard
from ui.kit.snippet_panel import Snippets
from ui.kit.snippets import snippets
from ui.kit.text import describe_error
from ui.serve.access_card import AccessCard
from ui.serve.alias_card import AliasCard
from ui.serve.requests_card import RequestsCard

VIRTUAL = ("docker", "br-", "veth", "virbr", "vmnet", "vboxnet", "zt", "tailscale", "utun", "vethernet", "wsl")
"""Beginnings of the names of interfaces that lead to containers, virtual machines or private tunnels."""


def lan_addresses() -> list[str]:
    """IPv4 addresses of this machine that others may reach, the likeliest first; empty without a network."""
    states = psutil.net_if_stats()
    found = {
        name: [each.address for each in addresses if each.family == socket.AF_INET]
        for name, addresses in psutil.net_if_addrs().items()
        if name in states and states[name].isup
    }
    return choose(found)


def choose(by_interface: Mapping[str, Sequence[str]]) -> list[str]:
    """The addresses worth showing: private ones of real interfaces first, no loopback and no link-local ones."""
    ranked: list[tuple[int, str]] = []
    for name, addresses in by_interface.items():
        virtual = name.lower().startswith(VIRTUAL)
        for text in addresses:
            address = ipaddress.ip_address(text)
            if address.is_loopback or address.is_link_local or address.is_unspecified:
                continue
            ranked.append((2 * virtual + (not address.is_private), text))
    return list(dict.fromkeys(text for _rank, text in sorted(ranked, key=lambda each: each[0])))


def base_url(host: str, address: str) -> str:
    """The server's base URL as another machine writes it: ``address`` with its host replaced."""
    port = address.rsplit(":", 1)[1]
    return f"http://{host}:{port}"


TWO_COLUMNS = 900
"""From this page width on, the server and who may use it stand side by side."""

TRAFFIC_MS = 1000
EVERYWHERE = "0.0.0.0"
KEY_BYTES = 24
LOOPBACK = ("localhost", "::1", "[::1]")


def make_key() -> str:
    """A new API key, from the system's randomness."""
    return f"millm-{secrets.token_urlsafe(KEY_BYTES)}"


def is_local(host: str) -> bool:
    """Whether listening on ``host`` is for this machine alone."""
    return host in LOOPBACK or host.startswith("127.")


class ServerPage(Page, ScrollPage):
    """Joins the cards to the server and to its settings."""

    FOLLOWS = (
        RequestRecorded,
        ServerStateChanged,
        ModelLoadComplete,
        ModelUnloadComplete,
        ModelsChanged,
        ProfilesChanged,
        ClustersChanged,
    )

    def __init__(self, frame: PageContext) -> None:
        super().__init__("Server", "Other programs use the model through this server, as they would use OpenAI's API.")
        self._frame = frame
        self._engine = frame.engine
        self._bridge = frame.bridge
        self._control = frame.services.server
        self._settings = frame.services.settings
        self._infos: Mapping[str, SettingInfo] = {}
        self.outdated = Notice(closable=False)
        self.server = ServerCard(frame.services.configured_port)
        self.access = AccessCard()
        self.snippets = Snippets()
        self.aliases = AliasCard()
        self.requests = RequestsCard()
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(theme.L)
        self._columns.addWidget(self.server, 1)
        self._columns.addWidget(self.access, 1)
        self.inside.addWidget(self.outdated)
        self.inside.addLayout(self._columns)
        self.inside.addWidget(self.requests)
        connect = Card("Connect a program")
        connect.body.addWidget(self.snippets)
        self.inside.addWidget(connect)
        self.inside.addWidget(self.aliases)
        self.inside.addStretch(1)
        self.server.start.connect(self._start)
        self.server.stop.connect(self._stop)
        self.access.share.connect(self.share)
        self.access.new_key.connect(lambda: self._change({"API_KEY": make_key()}))
        self.access.key_given.connect(lambda key: self._change({"API_KEY": key or None}))
        self.access.lists_given.connect(self._save_lists)
        self.aliases.saved.connect(self._save_aliases)
        self.requests.cleared.connect(self._clear)
        self.requests.side_calls_hidden.connect(lambda _hidden: self.requests.filter(self._control.requests()))
        self._pulse = QTimer(self)
        self._pulse.setInterval(TRAFFIC_MS)
        self._pulse.timeout.connect(self._refresh_traffic)
        self._pulse.start()
        self._end = self._settings.subscribe(lambda _names: self._bridge.post(self._read_settings, owner=self))
        self.requests.show_entries(self._control.requests())
        self._read_settings()
        self._read_clusters()
        self._read_names()
        self.refresh()

    def on_event(self, event: Event) -> None:
        """Follow the server and what it is asked."""
        match event:
            case RequestRecorded():
                self.requests.put(event)
            case ServerStateChanged():
                self.refresh()
            case ModelLoadComplete() | ModelUnloadComplete():
                self._fill_snippets()
            case ModelsChanged() | ProfilesChanged():
                self._read_names()
            case ClustersChanged():
                self._read_clusters()
                self._read_names()

    def prepare_to_close(self) -> None:
        """Follow the settings no more."""
        self._end()

    # --- showing ----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Show how the server stands."""
        control = self._control
        state = control.state
        self.server.show_state(state, control.address, control.error, shared=control.shared)
        self._refresh_traffic()
        if state == "error":
            tried = self.server.port.value()
            self._bridge.run_in_background(lambda: free_port_after(tried), self.server.offer_port, owner=self)
        if control.outdated:
            self.outdated.show_words(
                "Settings of the server were changed. They count from its next start.",
                "info",
                Button("Restart it now", on_click=self.restart),
            )
        else:
            self.outdated.hide()
        self._fill_snippets()
        self._show_sharing()

    def _refresh_traffic(self) -> None:
        if self.isVisible():
            stats = self._engine.generation.stats()
            self.server.show_traffic(stats.in_flight, stats.queue_waiting)

    def _read_clusters(self) -> None:
        """Reports of steering call a cluster a profile, as the API does; the window does not."""
        clusters = self._engine.clusters
        self._bridge.run_in_background(
            lambda: [each.record.name for each in clusters.list().clusters],
            self.requests.model.know_clusters,
            self._on_error,
            owner=self,
        )

    def _read_names(self) -> None:
        """What an alias can stand for."""
        engine = self._engine

        def read() -> tuple[list[str], list[str]]:
            profiles = [each.name for each in engine.profiles.list().profiles]
            return [each.name for each in engine.shelf.list()], sorted(profiles, key=str.casefold)

        self._bridge.run_in_background(read, lambda names: self.aliases.offer(*names), self._on_error, owner=self)

    def _read_settings(self) -> None:
        def read() -> dict[str, SettingInfo]:
            return {info.name: info for info in self._settings.describe() if info.group == "Server"}

        self._bridge.run_in_background(read, self._show_settings, self._on_error, owner=self)

    def _show_settings(self, infos: Mapping[str, SettingInfo]) -> None:
        self._infos = infos
        key = infos["API_KEY"]
        self.access.show_key_state(self._key(), locked=_lock(key))
        origins, hosts = infos["CORS_ORIGINS"], infos["ALLOWED_HOSTS"]
        self.access.show_lists(origins.value, hosts.value, locked=_lock(origins) or _lock(hosts))
        aliases = infos["MODEL_ALIASES"]
        self.aliases.show_aliases(aliases.value, locked=_lock(aliases))
        if not self.server.port.hasFocus() and self._control.state != "error":
            self.server.port.setValue(infos["PORT"].value)
        self.refresh()

    def _show_sharing(self) -> None:
        host = self._infos.get("HOST")
        if host is None:
            return
        wanted = not is_local(host.value)
        self.access.show_share(wanted, locked=_lock(host), insecure=self._key() is None)
        address = self._control.address
        if not self._control.shared or address is None:
            self.access.show_addresses((), None)
            return

        def show(hosts: list[str]) -> None:
            if self._control.shared and self._control.address == address:
                self.access.show_addresses([base_url(each, address) for each in hosts], self._key())

        self._bridge.run_in_background(lan_addresses, show, self._on_error, owner=self)

    def _fill_snippets(self) -> None:
        resident = self._engine.shelf.resident
        model = resident.record.name if resident is not None else PLACE_MODEL
        self.snippets.fill(snippets(self._control.address or PLACE_ADDRESS, model, self._key()))

    def _key(self) -> str | None:
        info = self._infos.get("API_KEY")
        return (info.value or "").strip() or None if info is not None else None

    # --- doing ------------------------------------------------------------------------------------------------------

    def share(self, on: bool) -> None:
        """Listen on the local network, with a key, which is made where there is none; or on this machine alone."""
        values: dict[str, Any] = {"HOST": EVERYWHERE if on else None}
        control = self._control
        again = on or control.state in ("starting", "running")

        def task() -> None:
            # Asked now, not taken from what is shown: a key may have been set a moment ago.
            if on and not (self._settings.get("API_KEY").value or "").strip():
                values["API_KEY"] = make_key()
            self._settings.change(values)
            if again:
                control.restart()

        self.access.notice.hide()
        self._bridge.run_once(("share server", on), task, None, self._on_error, owner=self)

    def restart(self) -> None:
        """Stop and start with the settings in force."""
        self.outdated.hide()
        self.server.show_state("starting", None, None)
        self._bridge.run_once("restart server", self._control.restart, None, self._on_server_error, owner=self)

    def _start(self, port: int) -> None:
        known = self._infos.get("PORT")
        control = self._control

        def task() -> None:
            if port and known is not None and not known.locked and known.value != port:
                self._settings.change({"PORT": port})
                control.start()
            else:
                control.start(port)

        self.server.show_state("starting", None, None)
        self._bridge.run_once(("start server", port), task, None, self._on_server_error, owner=self)

    def _stop(self) -> None:
        self.server.stop_button.setEnabled(False)
        self._bridge.run_in_background(
            self._control.stop, lambda _nothing: self._after_stop(), self._on_server_error, owner=self
        )

    def _after_stop(self) -> None:
        self.server.stop_button.setEnabled(True)
        self.refresh()

    def _clear(self) -> None:
        self._control.clear_requests()
        self.requests.filter(self._control.requests())

    def _save_lists(self, origins: str, hosts: str) -> None:
        self._change({"CORS_ORIGINS": origins.split(), "ALLOWED_HOSTS": hosts.split()})

    def _save_aliases(self, value: Mapping[str, Any]) -> None:
        self._bridge.run_in_background(
            lambda: self._settings.change({"MODEL_ALIASES": value or None}),
            None,
            lambda error: self.aliases.show_error(describe_error(error)),
            owner=self,
        )

    def _change(self, values: Mapping[str, Any]) -> None:
        self.access.notice.hide()
        self._bridge.run_in_background(lambda: self._settings.change(values), None, self._on_error, owner=self)

    def _on_error(self, error: Exception) -> None:
        self.access.notice.show_words(describe_error(error))
        self._read_settings()

    def _on_server_error(self, error: Exception) -> None:
        self.server.stop_button.setEnabled(True)
        self.refresh()
        self.server.notice.show_words(describe_error(error))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side where there is room, one under the other where there is not."""
        super().resizeEvent(event)
        wide = self.width() >= TWO_COLUMNS
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)


def _lock(info: SettingInfo) -> str:
    """What sets a setting that cannot be changed here; empty where it can."""
    return info.origin_words if info.locked else ""
