"""The card about the API server: its address, whether it runs, and the way out when its port is taken."""

from __future__ import annotations

from urllib.parse import urlsplit

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame

from engine.checked import there
from ui.kit import theme
from ui.kit.basics import Button, Card, CopyButton, ElidedLabel, Notice, inset_text, label, line, set_pill
from ui.kit.facts import Facts
from ui.kit.number_field import WholeField
from ui.kit.text import count

_STATES = {
    "running": ("running", "good"),
    "starting": ("starting", "info"),
    "stopped": ("stopped", "quiet"),
    "error": ("not running", "bad"),
}


def reach_of(address: str, *, shared: bool = False) -> str:
    """Who can connect to a base URL, in words. ``shared``: its server listens on the network too."""
    host = urlsplit(address).hostname or ""
    if shared:
        return "Your network"
    return "This computer only" if host == "localhost" or host.startswith("127.") or host == "::1" else "Your network"


class ServerCard(Card):
    """Shows the server's state; says what the person wants with signals."""

    start = Signal(int)
    """The port to listen on."""
    stop = Signal()

    def __init__(self, port: int) -> None:
        super().__init__("API server", with_pill=True)
        self._state = "stopped"
        self._address: str | None = None
        self._shared = False
        self._traffic = (0, 0)
        self.explanation = label("", "muted", wrap=True)
        self.works_with = label(
            "Works with the openai package, Open WebUI, LangChain, and whatever else lets you set a base URL. "
            "Stopping it ends the answers that other programs are waiting for.",
            "small",
            wrap=True,
        )
        self.address = ElidedLabel("", "mono")
        self.copy = CopyButton(lambda: self._address or "", "Copy the address")
        self._box = QFrame()
        self._box.setObjectName("inset")
        inside = line(self.address, None, self.copy)
        inside.setContentsMargins(theme.M, theme.XS, theme.XS, theme.XS)
        self._box.setLayout(inside)
        self.facts = Facts(per_row=2)
        self.notice = Notice(closable=False)
        self.port_label = label("Port")
        self.port = WholeField()
        self.port.setRange(0, 65535)
        self.port.setToolTip("0 takes any free port")
        self.port.setValue(port)
        self.port.setGroupSeparatorShown(False)
        self.port.setAccessibleName("Port of the API server")
        self.port.setFixedWidth(80)
        inset_text(self.port)
        self.start_button = Button("Start", "primary", on_click=lambda: self.start.emit(self.port.value()))
        self.stop_button = Button("Stop", on_click=self.stop.emit)
        self.body.addWidget(self.explanation)
        self.body.addWidget(self.works_with)
        self.body.addWidget(self._box)
        self.body.addWidget(self.facts)
        self.body.addWidget(self.notice)
        self.body.addStretch(1)
        self.body.addLayout(line(self.port_label, self.port, self.start_button, self.stop_button, None))
        self.show_state("stopped", None, None)

    def show_state(self, state: str, address: str | None, error: str | None, *, shared: bool = False) -> None:
        """Show a state of :class:`ui.context.services.ServerControl`."""
        self._state, self._address, self._shared = state, address, shared
        set_pill(there(self.pill), *_STATES.get(state, (state, "quiet")))
        running, busy = state == "running", state == "starting"
        self.explanation.setText(
            "Other programs on this computer reach the model at this address, as they would reach OpenAI."
            if running or busy
            else "While it runs, other programs on this computer can use the model as they would use OpenAI's API."
        )
        self.address.set_text(address or ("Starting…" if busy else ""))
        self.copy.setEnabled(running)
        # While it starts the card has the size it will have: what lies below does not slip from under a click.
        self._box.setVisible(running or busy)
        self.works_with.setVisible(not running and not busy)
        self.facts.setVisible(running or busy)
        self._refresh_facts()
        if error and state == "error":
            self.notice.show_words(error)
        else:
            self.notice.hide()
        for part in (self.port_label, self.port, self.start_button):
            part.setVisible(not running)
        self.start_button.setEnabled(not busy)
        self.port.setEnabled(not busy)
        self.stop_button.setVisible(running)

    def show_traffic(self, writing: int, waiting: int) -> None:
        """How many answers are being written and how many wait, from the window and from other programs."""
        self._traffic = (writing, waiting)
        self._refresh_facts()

    def _refresh_facts(self) -> None:
        writing, waiting = self._traffic
        self.facts.show_facts(
            [
                ("Can be reached from", reach_of(self._address, shared=self._shared) if self._address else "…"),
                ("Speaks", "OpenAI's API"),
                ("Being written now", count(writing)),
                ("Waiting", count(waiting)),
            ]
        )

    def offer_port(self, port: int) -> None:
        """Put a port that is free into the field."""
        if self._state == "error":
            self.port.setValue(port)
