"""The card about who may use the server: the network switch, the API key, origins and host names."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QLineEdit, QPlainTextEdit, QVBoxLayout, QWidget

from ui.kit import theme
from ui.kit.basics import Button, Card, CopyButton, ElidedLabel, IconButton, Notice, column, label, line, rule
from ui.kit.scroll_page import reveal
from ui.kit.switch import Switch

LINES_HEIGHT = 78


DOTS = "●" * 12


class AddressLine(QFrame):
    """A caption, a text in fixed width and a button that copies it; a secret is shown as dots until it is asked for."""

    def __init__(self, caption: str, text: str, *, secret: bool = False) -> None:
        super().__init__()
        self.secret = secret
        self.setObjectName("inset")
        self.text = text
        self.copy = CopyButton(lambda: text, f"Copy the {caption.lower()}")
        self.shown = ElidedLabel(DOTS if secret else text, "mono")
        layout = line(label(caption, "caption"), self.shown, None, self.copy)
        layout.setContentsMargins(theme.M, theme.XS, theme.XS, theme.XS)
        self.setLayout(layout)


class AccessCard(Card):
    """Shows who may connect; says what the person wants with signals."""

    share = Signal(bool)
    """Listen on the local network, or on this machine alone."""
    new_key = Signal()
    key_given = Signal(str)
    """A key of the person's own; empty for none."""
    lists_given = Signal(str, str)
    """Origins and host names, one to a line."""

    def __init__(self) -> None:
        super().__init__("Who may use it")
        self._key: str | None = None
        self.switch = Switch("Share on the local network")
        self.switch.clicked.connect(self.share)
        self.share_words = label("", "small", wrap=True)
        self._addresses: QVBoxLayout = column(spacing=theme.XS)
        self.lines: list[AddressLine] = []
        self.key_words = label("", "small", wrap=True)
        self.key = QLineEdit()
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.key.setPlaceholderText("None: whoever reaches it may use it")
        self.key.setAccessibleName("API key")
        self.key.editingFinished.connect(self._on_key)
        self.show_key = IconButton("eye", "Show or hide the key", self._toggle_key)
        self.copy_key = CopyButton(lambda: self._key or "", "Copy the key")
        self.make_key = Button("Make a key", on_click=self.new_key.emit)
        self.origins = _lines("Allowed origins, one to a line", "https://chat.example.org")
        self.hosts = _lines("Host names answered on this machine, one to a line", "localhost")
        self.save_lists = Button("Save", on_click=self._on_lists)
        self.more = Button("Origins and host names…", on_click=self._toggle_more)
        self.more_panel = QWidget()
        self.notice = Notice()
        self._build()

    def show_share(self, shared: bool, *, locked: str, insecure: bool) -> None:
        """Whether it listens beyond this machine; ``locked`` says what sets the address where something does."""
        self.switch.setChecked(shared)
        self.switch.setEnabled(not locked)
        if locked:
            self.share_words.setText(f"The address to listen on is set by {locked}.")
        elif shared:
            warning = " It asks for no key, so everybody there can use it." if insecure else ""
            self.share_words.setText(f"Other machines of your network can use it at the addresses below.{warning}")
        else:
            self.share_words.setText(
                "Off: this computer alone can use it. On: other machines of your network can too, with a key."
            )

    def show_addresses(self, addresses: Sequence[str], key: str | None) -> None:
        """The addresses for other machines with the key beside them; none while it is not shared or not running."""
        for each in self.lines:
            self._addresses.removeWidget(each)
            each.hide()
            each.deleteLater()
        self.lines = [AddressLine("Address", address) for address in addresses]
        if addresses and key:
            self.lines.append(AddressLine("Key", key, secret=True))
            self._show_secrets()
        for each in self.lines:
            self._addresses.addWidget(each)

    def show_key_state(self, key: str | None, *, locked: str) -> None:
        """The key that is asked for; ``locked`` as above."""
        self._key = key
        if not self.key.hasFocus() or locked:
            self.key.setText(key or "")
            self.key.setCursorPosition(0)
        self.key.setReadOnly(bool(locked))
        for part in (self.show_key, self.copy_key):
            part.setVisible(key is not None)
        self.make_key.setText("Make a new key" if key else "Make a key")
        self.make_key.setEnabled(not locked)
        self.key_words.setText(
            f"The key is set by {locked}."
            if locked
            else "Programs send it as their API key. Requests without it are refused."
            if key
            else "With a key set, requests without it are refused."
        )

    def show_lists(self, origins: Sequence[str], hosts: Sequence[str], *, locked: str) -> None:
        """The web origins and host names that are let in."""
        for field, values in ((self.origins, origins), (self.hosts, hosts)):
            text = "\n".join(values)
            if not field.hasFocus() and field.toPlainText() != text:
                field.setPlainText(text)
            field.setReadOnly(bool(locked))
        self.save_lists.setEnabled(not locked)

    def _toggle_key(self) -> None:
        hidden = self.key.echoMode() is QLineEdit.EchoMode.Password
        self.key.setEchoMode(QLineEdit.EchoMode.Normal if hidden else QLineEdit.EchoMode.Password)
        self._show_secrets()

    def _show_secrets(self) -> None:
        """The key beside the addresses is as open as the one in its field."""
        hidden = self.key.echoMode() is QLineEdit.EchoMode.Password
        for each in self.lines:
            each.shown.set_text(DOTS if each.secret and hidden else each.text)

    def _toggle_more(self) -> None:
        self.more_panel.setVisible(self.more_panel.isHidden())
        reveal(self.more_panel)

    def _on_key(self) -> None:
        text = self.key.text().strip()
        if text != (self._key or "") and not self.key.isReadOnly():
            self.key_given.emit(text)

    def _on_lists(self) -> None:
        self.lists_given.emit(self.origins.toPlainText(), self.hosts.toPlainText())

    def _build(self) -> None:
        texts = column(spacing=1)
        texts.addWidget(label("Share on the local network", "strong"))
        texts.addWidget(self.share_words)
        across = line(spacing=theme.M)
        across.addLayout(texts, 1)
        across.addWidget(self.switch)
        self.body.addLayout(across)
        self.body.addLayout(self._addresses)
        self.body.addWidget(rule())
        self.body.addWidget(label("API key", "strong"))
        field = line(spacing=theme.XS)
        field.addWidget(self.key, 1)
        for part in (self.show_key, self.copy_key, self.make_key):
            field.addWidget(part)
        self.body.addLayout(field)
        self.body.addWidget(self.key_words)
        lists = line(spacing=theme.L)
        for head, words, box in (
            ("Allowed origins", "Web pages that may call the server. Empty: none.", self.origins),
            ("Host names", "Names by which this machine may be called.", self.hosts),
        ):
            texts_above = column(spacing=theme.XS)
            texts_above.addWidget(label(head, "strong"))
            texts_above.addWidget(label(words, "small", wrap=True))
            texts_above.addWidget(box)
            holder = QWidget()
            holder.setLayout(texts_above)
            lists.addWidget(holder, 1)
        inside = column()
        inside.addLayout(lists)
        inside.addLayout(line(self.save_lists, None))
        self.more_panel.setLayout(inside)
        self.body.addLayout(line(self.more, None))
        self.body.addWidget(self.more_panel)
        self.more_panel.hide()
        self.body.addWidget(self.notice)
        self.body.addStretch(1)


def _lines(name: str, example: str) -> QPlainTextEdit:
    made = QPlainTextEdit()
    made.setObjectName("field")
    made.setAccessibleName(name)
    made.setPlaceholderText(example)
    made.setTabChangesFocus(True)
    made.setFixedHeight(LINES_HEIGHT)
    return made
