"""Reading a text on the Features page: which features fire at which token, and one feature over the whole text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QCheckBox, QFrame, QPlainTextEdit, QScrollArea, QSplitter, QWidget

from engine.engine import Engine
from engine.public.generation import ChatInput, Message
from engine.public.library import FeatureLabel
from engine.public.saes import Attachment, TextReading, TokenReading
from ui.bridge import Bridge
from ui.kit import theme
from ui.kit.basics import Button, Notice, column, label, line
from ui.kit.rows_table import Column, RowsTable
from ui.kit.text import counted, describe_error
from ui.look.feature_facts import label_words, visible
from ui.look.token_chips import TokenChip, TokenChips

TOP = 10
"""Features read at each token."""
IN_TIP = 5
LISTED = 60
MOST_TEXT = 0.6
"""Of the height under the field: what the coloured text takes at most."""
FIELD_HEIGHT = 92
NOT_READ = "Each word shows here how strongly features fire at it; a click on a word lists which ones."


@dataclass(frozen=True)
class Strong:
    """A feature of the text: its strongest activation, and at how many of its tokens it is among the strongest."""

    index: int
    words: str
    value: float
    tokens: int


_COLUMNS: tuple[Column[Strong], ...] = (
    Column("#", lambda row: str(row.index), 66, right=True, muted=True),
    Column("Label", lambda row: row.words),
    Column("Activation", lambda row: f"{row.value:.2f}", 92, right=True),
    Column(
        "Tokens", lambda row: str(row.tokens), 64, right=True, muted=True, tip="Tokens at which it is among the top ten"
    ),
)


class ReadingTab(QWidget):
    """Takes a text, shows its tokens and the features that fire in it."""

    feature_picked = Signal(int)

    def __init__(self, engine: Engine, bridge: Bridge) -> None:
        super().__init__()
        self._engine = engine
        self._bridge = bridge
        self._place: Attachment | None = None
        self._reading: TextReading | None = None
        self._labels: dict[int, FeatureLabel] = {}
        self._colour: tuple[int, tuple[float, ...]] | None = None
        self._future: Future[TextReading] | None = None
        self._asked = 0
        self._shared_by_hand = False
        # Heights are shared once the widths are known.
        self._soon = QTimer(self)
        self._soon.setSingleShot(True)
        self._soon.timeout.connect(self._share_height)
        self.field = QPlainTextEdit()
        self.field.setObjectName("field")
        self.field.setPlaceholderText("Paste a text here to see what fires in it. Ctrl+Enter reads it.")
        self.field.setAccessibleName("Text to read")
        self.field.setTabChangesFocus(True)
        self.field.setFixedHeight(FIELD_HEIGHT)
        self.as_message = QCheckBox("As a chat message")
        self.as_message.setToolTip("Put the text through the model's chat template, as Chat does")
        self.read_button = Button("Read", "primary", on_click=self.read)
        self.cancel_button = Button("Cancel", "quiet", on_click=self.cancel)
        for keys in ("Ctrl+Return", "Ctrl+Enter"):
            # Both Enter keys; heard wherever the keyboard is while this tab is in front.
            QShortcut(QKeySequence(keys), self).activated.connect(self.read_button.click)
        self.notice = Notice()
        self.words = label("", "small", wrap=True)
        self.clear_colour = Button("Show the strongest again", "quiet", on_click=self._clear_colour)
        self.chips = TokenChips("Tokens of the text")
        self.chips.picked.connect(lambda _place: self._show_features())
        self.heading = label("", "group")
        self.all_button = Button("Whole text", "quiet", on_click=self._show_all)
        self.table: RowsTable[Strong] = RowsTable(_COLUMNS, "Features in the text")
        self.table.chosen.connect(self._pick)
        self._build()
        self._show_busy(False)
        self._show_reading()

    def set_place(self, place: Attachment | None) -> None:
        """Read with this SAE from now on; what was read with another is dropped."""
        if place is self._place:
            return
        self.cancel()
        self._place, self._reading, self._colour = place, None, None
        self._show_reading()

    def read(self) -> None:
        """Read the text in the field."""
        text = self.field.toPlainText()
        place = self._place
        if place is None:
            return
        self.cancel()
        source = ChatInput((Message("user", text),)) if self.as_message.isChecked() and text.strip() else text
        reader = self._engine.reading
        self._run(lambda: reader.read(source, sae_id=place.sae_id, layer=place.layer, top_k=TOP), self._on_read)

    def colour(self, index: int) -> None:
        """Colour every token by one feature."""
        reading = self._reading
        if reading is None:
            self.notice.show_words("Read a text first; then a feature can colour it.", "info")
            return
        reader = self._engine.reading
        ids = [token.token_id for token in reading.tokens]
        self._run(
            lambda: reader.read(ids, sae_id=reading.sae_id, layer=reading.layer, top_k=0, features=[index]),
            lambda found: self._on_coloured(index, found),
        )

    def cancel(self) -> None:
        """End what is being read."""
        self._asked += 1
        if self._future is not None:
            self._future.cancel()
            self._future = None
        self._show_busy(False)

    @property
    def reading(self) -> TextReading | None:
        """What was read last."""
        return self._reading

    # --- inside -----------------------------------------------------------------------------------------------------

    def _run(self, begin: Callable[[], Future[TextReading]], done: Callable[[TextReading], None]) -> None:
        """Prepare in the background, wait for the engine, then call ``done``, unless something newer was begun."""
        self._asked += 1
        asked = self._asked
        self.notice.hide()
        self._show_busy(True)

        def begun(future: Future[TextReading]) -> None:
            if asked != self._asked:
                future.cancel()
                return
            self._future = future
            self._bridge.when_done(future, finished, failed, owner=self)

        def finished(found: TextReading) -> None:
            if asked == self._asked:
                self._future = None
                self._show_busy(False)
                done(found)

        def failed(error: Exception) -> None:
            if asked == self._asked:
                self._future = None
                self._show_busy(False)
                self.notice.show_words(describe_error(error))

        self._bridge.run_in_background(begin, begun, failed, owner=self)

    def _on_read(self, reading: TextReading) -> None:
        engine = self._engine
        wanted = {index for token in reading.tokens for index, _ in token.top_k}

        def shown(labels: dict[int, FeatureLabel]) -> None:
            self._reading, self._labels, self._colour = reading, labels, None
            self._show_reading()

        self._bridge.run_in_background(
            lambda: engine.library.labels.of(reading.sae_id, wanted),
            shown,
            lambda error: self.notice.show_words(describe_error(error)),
            owner=self,
        )

    def _on_coloured(self, index: int, found: TextReading) -> None:
        self._colour = (index, found.values(index))
        self._show_chips()

    def _clear_colour(self) -> None:
        self._colour = None
        self._show_chips()

    def _show_reading(self) -> None:
        self.chips.choose(None)
        self._show_chips()
        self._show_features()

    def _show_chips(self) -> None:
        reading = self._reading
        self.clear_colour.setVisible(self._colour is not None)
        if reading is None:
            self.chips.show_chips((), 0.0)
            self.words.setText(NOT_READ)
            return
        if self._colour is None:
            values: Sequence[float] = [token.top_k[0][1] if token.top_k else 0.0 for token in reading.tokens]
            told = "The deeper the colour, the stronger the strongest feature of the token."
        else:
            index, values = self._colour
            told = f"Coloured by {label_words(self._labels.get(index), index)}."
        usual = [value for value, token in zip(values, reading.tokens, strict=True) if not token.sink]
        top = max(usual, default=0.0)
        self.words.setText(
            f"{counted(len(reading.tokens), 'token')}, read unsteered. {told} Full colour: {top:.2f}. "
            "Pale tokens are attention sinks: what they show says little."
        )
        chips = [
            TokenChip(token.text, 0.0 if token.sink else value, self._tip(token, value), token.sink)
            for token, value in zip(reading.tokens, values, strict=True)
        ]
        self.chips.show_chips(chips, top)
        self._soon.start()

    def _tip(self, token: TokenReading, value: float) -> str:
        lines = [f"{token.position} · {visible(token.text)} · id {token.token_id}"]
        if self._colour is not None:
            lines.append(f"#{self._colour[0]}: {value:.2f}")
        lines += [f"{v:.2f}  {label_words(self._labels.get(i), i)}" for i, v in token.top_k[:IN_TIP]]
        if token.sink:
            lines.append("An attention sink")
        return "\n".join(lines)

    def _show_all(self) -> None:
        self.chips.choose(None)
        self._show_features()

    def _show_features(self) -> None:
        reading, place = self._reading, self.chips.chosen
        self.all_button.setVisible(reading is not None and place is not None)
        self.table.setVisible(reading is not None)
        if reading is None:
            self.heading.setText("")
            self.table.set_rows(())
            return
        if place is None:
            self.heading.setText("Strongest features of the text")
        else:
            self.heading.setText(f"Strongest features at “{visible(reading.tokens[place].text).strip()}”")
        tokens = [token for token in reading.tokens if not token.sink]
        often: dict[int, int] = {}
        best: dict[int, float] = {}
        for token in tokens:
            for index, value in token.top_k:
                often[index] = often.get(index, 0) + 1
                best[index] = max(best.get(index, 0.0), value)
        pairs = sorted(best.items(), key=lambda pair: -pair[1]) if place is None else reading.tokens[place].top_k
        self.table.set_rows(
            [
                Strong(
                    index,
                    self._labels[index].label if index in self._labels else "no label",
                    value,
                    often.get(index, 0),
                )
                for index, value in list(pairs)[:LISTED]
            ]
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Share the height anew, unless a person shared it."""
        super().resizeEvent(event)
        self._soon.start()

    def _on_moved(self) -> None:
        self._shared_by_hand = True

    def _share_height(self) -> None:
        """The text as high as it is, up to :data:`MOST_TEXT` of the height; the table has the rest."""
        if self._shared_by_hand:
            return
        height = self._splitter.height()
        above = self._upper.height() - self._text.height()
        text = self.chips.heightForWidth(self._text.viewport().width()) + theme.S
        wanted = min(above + text, round(height * MOST_TEXT)) if self.reading is not None else height // 2
        self._splitter.setSizes([wanted, height - wanted])

    def _pick(self, row: Strong) -> None:
        self.feature_picked.emit(row.index)
        self.colour(row.index)

    def _show_busy(self, busy: bool) -> None:
        self.read_button.setEnabled(not busy)
        self.cancel_button.setVisible(busy)

    def _build(self) -> None:
        inside = column(spacing=theme.S)
        inside.addWidget(self.field)
        inside.addLayout(line(self.read_button, self.cancel_button, self.as_message, None))
        inside.addWidget(self.notice)
        text = QScrollArea()
        text.setWidgetResizable(True)
        text.setFrameShape(QFrame.Shape.NoFrame)
        text.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        holder = QWidget()
        holder.setObjectName("scrollBody")
        held = column(spacing=0)
        held.addWidget(self.chips)
        held.addStretch(1)
        holder.setLayout(held)
        text.setWidget(holder)
        upper = QWidget()
        above = column(spacing=theme.S)
        told = line()
        told.addWidget(self.words, 1)
        told.addWidget(self.clear_colour)
        above.addLayout(told)
        above.addWidget(text, 1)
        upper.setLayout(above)
        lower = QWidget()
        below = column(spacing=theme.XS)
        below.addLayout(line(self.heading, None, self.all_button))
        below.addWidget(self.table, 1)
        lower.setLayout(below)
        splitter = QSplitter(Qt.Orientation.Vertical)
        splitter.setChildrenCollapsible(False)
        splitter.setHandleWidth(theme.S)
        splitter.addWidget(upper)
        splitter.addWidget(lower)
        splitter.splitterMoved.connect(self._on_moved)
        self._splitter, self._upper, self._text = splitter, upper, text
        inside.addWidget(splitter, 1)
        self.setLayout(inside)
