"""What became of imported documents: one part for each, with every remark, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QFrame, QLabel, QScrollArea, QVBoxLayout, QWidget

from ui.kit import theme
from ui.kit.basics import Button, IconButton, column, label, line
from ui.kit.scroll_page import reveal
from ui.steer.document_import import Outcome

MOST_HEIGHT = 240
_ICONS = {"good": "check", "warn": "warn", "bad": "warn"}


class ImportPanel(QFrame):
    """Hidden until there is something to say."""

    show_wanted = Signal(str, str)
    """(page, key)."""
    again_wanted = Signal(object)
    """An :class:`Outcome` whose document is to be imported under another name."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self.outcomes: tuple[Outcome, ...] = ()
        self.title = label("", "strong")
        self.close_button = IconButton("close", "Dismiss", self.hide)
        self._icons: list[tuple[QLabel, str]] = []
        self._rows: QVBoxLayout = column(spacing=theme.M)
        self._inside = QWidget()
        self._inside.setObjectName("scrollBody")
        self._inside.setLayout(self._rows)
        self.area = QScrollArea()
        self.area.setWidgetResizable(True)
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setWidget(self._inside)
        layout = column(spacing=theme.S, margins=(theme.L, theme.M, theme.M, theme.M))
        layout.addLayout(line(self.title, None, self.close_button))
        layout.addWidget(self.area)
        self.setLayout(layout)
        theme.current().changed.connect(self._redraw)
        self.hide()

    def show_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Say what became of these, in place of what was said before."""
        self.outcomes = tuple(outcomes)
        self._icons.clear()
        while (item := self._rows.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        good = sum(each.page is not None for each in outcomes)
        self.title.setText(
            f"Imported {good} of {len(outcomes)}" if len(outcomes) > 1 else "Imported" if good else "Not imported"
        )
        for each in outcomes:
            self._rows.addWidget(self._row(each))
        self._rows.addStretch(1)
        self._redraw()
        self.show()
        self._fit()
        reveal(self)

    def words(self) -> str:
        """Everything that is said; empty while hidden."""
        if self.isHidden():
            return ""
        return "\n".join(" ".join((each.title, *each.words)) for each in self.outcomes)

    def button(self, place: int) -> Button | None:
        """The button of the outcome at ``place``, where it has one."""
        item = self._rows.itemAt(place)
        widget = None if item is None else item.widget()
        found = None if widget is None else widget.findChild(Button)
        return found if isinstance(found, Button) else None

    def _row(self, each: Outcome) -> QWidget:
        row = QWidget()
        icon = QLabel()
        icon.setFixedSize(20, 20)
        self._icons.append((icon, each.tone))
        told = column(spacing=1)
        told.addWidget(label(each.title, "strong", wrap=True))
        for words in each.words:
            told.addWidget(label(words, "muted", wrap=True, selectable=True))
        layout = line(spacing=theme.M - 2)
        layout.addWidget(icon, 0, Qt.AlignmentFlag.AlignTop)
        layout.addLayout(told, 1)
        if each.again is not None:
            act = Button("Import under another name", on_click=partial(self.again_wanted.emit, each))
            layout.addWidget(act, 0, Qt.AlignmentFlag.AlignTop)
        elif each.page is not None and each.key is not None:
            act = Button("Show", on_click=partial(self.show_wanted.emit, each.page, each.key))
            act.setAccessibleName(f"Show {each.title}")
            layout.addWidget(act, 0, Qt.AlignmentFlag.AlignTop)
        row.setLayout(layout)
        return row

    def _fit(self) -> None:
        """As high as its words, up to a limit; then it scrolls."""
        inside = self._inside
        wide = max(320, self.area.viewport().width() or self.width() - 2 * theme.L)
        high = inside.heightForWidth(wide) if inside.hasHeightForWidth() else inside.sizeHint().height()
        self.area.setFixedHeight(min(MOST_HEIGHT, max(high, inside.minimumSizeHint().height())))

    def resizeEvent(self, event: object) -> None:
        """Fit the words anew."""
        super().resizeEvent(event)  # type: ignore[arg-type]
        if not self.isHidden():
            self._fit()

    def _redraw(self) -> None:
        for icon, tone in self._icons:
            drawn = theme.current().icon(_ICONS[tone], tone, 20)
            icon.setPixmap(drawn.pixmap(QSize(20, 20), self.devicePixelRatioF()))
