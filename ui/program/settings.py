"""Every setting with its default, its value and where it comes from; the hub's token, colours, the data folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from PySide6.QtCore import QUrl, Signal
from PySide6.QtGui import QDesktopServices, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QLineEdit, QSystemTrayIcon, QVBoxLayout

from engine.events import Event, ServerStateChanged
from ui.context.page import Page
from ui.context.page_context import PageContext
from ui.context.services import SettingInfo, TokenState
from ui.kit import shortcuts, theme
from ui.kit.basics import Button, Card, ElidedLabel, Notice, column, label, line, pill, rule, set_pill
from ui.kit.flow import Flow
from ui.kit.scroll_page import ScrollPage
from ui.kit.text import describe_error
from ui.program.setting_row import SettingRow

FIELD_WIDTH = 260
BESIDE = 640
"""From this width of the card on the field stands beside its words."""


class TokenCard(Card):
    """Takes a token and says where it is kept; never shows it again."""

    saved = Signal(str)
    forgotten = Signal()

    def __init__(self) -> None:
        super().__init__("Hugging Face")
        self.state = pill()
        self.words = label("", "caption", wrap=True)
        self.field = QLineEdit()
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setPlaceholderText("hf_…")
        self.field.setAccessibleName("Hugging Face token")
        self.field.setFixedWidth(FIELD_WIDTH)
        self.field.returnPressed.connect(self._save)
        self.save_button = Button("Save", on_click=self._save)
        self.forget_button = Button("Forget it", "quiet", on_click=self.forgotten.emit)
        self.notice = Notice()
        self.rows = column(spacing=0)
        texts = column(spacing=2)
        texts.addLayout(line(label("Token", "strong"), self.state, None, spacing=theme.M))
        texts.addWidget(
            label("Wanted for gated and private models. Any token with the right to read will do.", "muted", wrap=True)
        )
        texts.addWidget(self.words)
        across = self._across = line(spacing=theme.M)
        across.addLayout(texts, 1)
        field = line(self.field, self.save_button, self.forget_button, spacing=theme.M)
        # Under the words the room is left at the end, beside them there is none.
        field.addStretch(0)
        across.addLayout(field)
        self.body.addLayout(across)
        self.body.addWidget(self.notice)
        self.body.addWidget(rule())
        self.body.addLayout(self.rows)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The field beside the words where there is room, else under them."""
        super().resizeEvent(event)
        wide = self.width() >= BESIDE
        self._across.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)

    def show_state(self, state: TokenState) -> None:
        """Whether there is a token, and where."""
        set_pill(self.state, "kept" if state.known else "none", "good" if state.known else "quiet")
        self.words.setText(state.words)
        self.field.setEnabled(not state.locked)
        self.save_button.setEnabled(not state.locked)
        self.forget_button.setVisible(state.known and not state.locked)

    def _save(self) -> None:
        if text := self.field.text().strip():
            self.notice.hide()
            self.saved.emit(text)


HUB = {"HF_HUB_OFFLINE": "Offline", "PROXY": "Proxy"}
WINDOW = {
    "THEME": "Colours",
    "RESTORE_LAST": "Go on where I left off",
    "AUTO_LOAD_MODEL": "Model to load on start",
    "CLOSE_TO_TRAY": "Stay in the tray",
}
"""Settings that stand in a card of their own, under a title a person knows them by."""

NO_TRAY = "This desktop has no tray, so closing the window ends the program."
SEARCH_WIDTH = 260


class SettingsPage(Page, ScrollPage):
    """Shows what the settings service says and hands changes to it."""

    FOLLOWS = (ServerStateChanged,)

    def __init__(self, frame: PageContext) -> None:
        self.search = QLineEdit()
        self.search.setPlaceholderText("Find a setting")
        self.search.setAccessibleName("Find a setting")
        self.search.setClearButtonEnabled(True)
        self.search.setFixedWidth(SEARCH_WIDTH)
        super().__init__(
            "Settings",
            "Changes are kept in settings.json in the data folder. What the environment or the command line sets wins.",
            self.search,
        )
        self._frame = frame
        self._bridge = frame.bridge
        self._settings = frame.services.settings
        self._token = frame.services.token
        self.rows: dict[str, SettingRow] = {}
        self.notice = Notice()
        self.waiting = Notice(closable=False)
        self.hub = TokenCard()
        self.window_card = Card("Window and start")
        self.data = Card("Data, tour and keys")
        self.folder = ElidedLabel(str(frame.services.data_dir), "mono")
        self.open_button = Button("Open the folder", "plain", "folder", self.open_folder)
        self.tour_button = Button("Show me around", "plain", "info", frame.show_around)
        self.keys_button = Button("Keyboard shortcuts", "plain", "list", frame.show_keys)
        self.keys_button.setToolTip(f"Every key and what it does ({shortcuts.HELP})")
        self.groups: dict[str, Card] = {}
        self.nothing = label("No setting has these words.", "muted")
        self._window_rows = column(spacing=0)
        self._build()
        self.search.textChanged.connect(self._filter)
        self.hub.saved.connect(self._save_token)
        self.hub.forgotten.connect(self._forget_token)
        self._end = self._settings.subscribe(lambda _names: self._bridge.post(self.refresh, owner=self))
        self.refresh()
        self._bridge.run_in_background(self._token.state, self.hub.show_state, self._on_token_error, owner=self)

    def on_event(self, event: Event) -> None:
        """The server may have taken over what was changed."""
        if isinstance(event, ServerStateChanged):
            self._show_waiting([row.info for row in self.rows.values()])

    def arrive(self, *, find: str = "") -> None:
        """Another page may lead to a setting."""
        if find:
            self.search.setText(find)

    def prepare_to_close(self) -> None:
        """Follow the settings no more."""
        self._end()

    def refresh(self) -> None:
        """Read the settings anew."""
        self._bridge.run_in_background(self._settings.describe, self._show, self._on_error, owner=self)

    def open_folder(self) -> None:
        """Show the data folder in the desktop's file manager."""
        if not QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._frame.services.data_dir))):
            self.notice.show_words(
                f"This desktop could not open the folder. It is {self._frame.services.data_dir}.", "warn"
            )

    # --- showing ----------------------------------------------------------------------------------------------------

    def _show(self, infos: Sequence[SettingInfo]) -> None:
        for info in sorted(infos, key=_place):
            row = self.rows.get(info.name)
            if row is None:
                self._add_row(info)
            else:
                row.show_info(info)
        self._show_waiting(infos)
        self._filter(self.search.text())

    def _add_row(self, info: SettingInfo) -> None:
        row = SettingRow(info, HUB.get(info.name) or WINDOW.get(info.name))
        row.changed.connect(lambda name, value: self.change({name: value}))
        row.reset.connect(lambda name: self.change({name: None}))
        self.rows[info.name] = row
        if info.name == "CLOSE_TO_TRAY" and not QSystemTrayIcon.isSystemTrayAvailable():
            row.description.setText(NO_TRAY)
        if info.name in HUB:
            target: QVBoxLayout = self.hub.rows
        elif info.name in WINDOW:
            target = self._window_rows
        else:
            card = self.groups.get(info.group)
            if card is None:
                card = self.groups[info.group] = Card(info.group)
                card.body.setSpacing(0)
                self.inside.insertWidget(self.inside.count() - 1, card)
            target = card.body
        if target.count():
            target.addWidget(rule())
        target.addWidget(row)

    def _show_waiting(self, infos: Sequence[SettingInfo]) -> None:
        names = [info.name for info in infos if info.waiting]
        if self._frame.services.server.outdated:
            self.waiting.show_words(
                "Settings of the server were changed. They count from its next start.",
                "info",
                Button("Restart the server", on_click=self._restart_server),
            )
        elif names:
            self.waiting.show_words(f"From the next start of the program on: {', '.join(names)}.", "info")
        else:
            self.waiting.hide()

    def _filter(self, words: str) -> None:
        for row in self.rows.values():
            row.setVisible(row.matches(words))
        searching = bool(words.strip())
        for layout in (self.hub.rows, self._window_rows, *(card.body for card in self.groups.values())):
            _show_rules(layout, not searching)
        self.window_card.setVisible(any(self.rows[name].matches(words) for name in WINDOW if name in self.rows))
        self.hub.setVisible(
            not searching
            or "token" in words.lower()
            or any(self.rows[name].matches(words) for name in HUB if name in self.rows)
        )
        self.data.setVisible(not searching)
        for group, card in self.groups.items():
            card.setVisible(any(row.matches(words) for row in self._rows_of(group)))
        cards = (self.hub, self.window_card, *self.groups.values())
        self.nothing.setVisible(searching and all(card.isHidden() for card in cards))

    def _rows_of(self, group: str) -> list[SettingRow]:
        apart = {**HUB, **WINDOW}
        return [row for name, row in self.rows.items() if row.info.group == group and name not in apart]

    # --- changing ---------------------------------------------------------------------------------------------------

    def change(self, values: Mapping[str, object]) -> None:
        """Write settings; what is refused is said beside the setting."""

        def done(_nothing: None) -> None:
            for name in values:
                self.rows[name].settle()
            self.refresh()

        self._bridge.run_in_background(
            lambda: self._settings.change(values), done, partial(self._on_refused, tuple(values)), owner=self
        )

    def _on_refused(self, names: Sequence[str], error: Exception) -> None:
        for name in names:
            self.rows[name].show_error(describe_error(error))
            # A switch or a choice shows what holds, not what was refused.
            self.rows[name].show_info(self.rows[name].info)

    def _restart_server(self) -> None:
        self.waiting.hide()
        self._bridge.run_once("restart server", self._frame.services.server.restart, None, self._on_error, owner=self)

    def _save_token(self, token: str) -> None:
        def done(state: TokenState) -> None:
            self.hub.field.clear()
            self.hub.show_state(state)

        self._bridge.run_in_background(lambda: self._token.save(token), done, self._on_token_error, owner=self)

    def _forget_token(self) -> None:
        self._bridge.run_in_background(self._token.forget, self.hub.show_state, self._on_token_error, owner=self)

    def _on_token_error(self, error: Exception) -> None:
        self.hub.notice.show_words(describe_error(error))

    def _on_error(self, error: Exception) -> None:
        self.notice.show_words(describe_error(error))

    # --- layout -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        self.window_card.body.setSpacing(0)
        self.window_card.body.addLayout(self._window_rows)
        self.data.body.addWidget(
            label("Models, SAEs, conversations, settings and logs are kept here and nowhere else.", "muted", wrap=True)
        )
        across = line(spacing=theme.M)
        across.addWidget(self.folder, 1)
        across.addWidget(self.open_button)
        self.data.body.addLayout(across)
        self.data.body.addWidget(rule())
        tour = label(
            "A tour of a minute: the dial, comparing, the server's address. And everything the keyboard does.",
            "muted",
            wrap=True,
        )
        ways = Flow(theme.M)
        ways.add(self.tour_button)
        ways.add(self.keys_button)
        self.data.body.addWidget(tour)
        self.data.body.addWidget(ways)
        for part in (self.notice, self.waiting, self.hub, self.window_card, self.data, self.nothing):
            self.inside.addWidget(part)
        self.inside.addStretch(1)
        self.nothing.hide()


def _place(info: SettingInfo) -> int:
    """Where a setting stands in the card it is in; the others keep their order."""
    apart = [*HUB, *WINDOW]
    return apart.index(info.name) if info.name in apart else len(apart)


def _show_rules(layout: QVBoxLayout, shown: bool) -> None:
    for place in range(layout.count()):
        item = layout.itemAt(place)
        widget = item.widget() if item is not None else None
        if widget is not None and widget.objectName() == "rule":
            widget.setVisible(shown)
