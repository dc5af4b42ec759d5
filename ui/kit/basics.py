"""Labels, buttons, cards and notices: the few shapes every page is made of."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QSize, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QFontMetrics, QGuiApplication, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QBoxLayout,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLayout,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from ui.kit import icons, theme
from ui.kit.plain_text import as_letters, on_button

LEAST_WORDS = 300
"""Room for the words of a notice, its icons included, before its buttons go under them."""
COPIED_MS = 1600
"""How long a copy button shows its tick."""


def label(text: str = "", look: str = "body", *, wrap: bool = False, selectable: bool = False) -> QLabel:
    """A plain-text label in one of the looks of the style sheet."""
    made = QLabel(text)
    made.setTextFormat(Qt.TextFormat.PlainText)
    made.setProperty("look", look)
    made.setWordWrap(wrap)
    if selectable:
        made.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    return made


def set_property(widget: QWidget, name: str, value: object) -> None:
    """Set a property the style sheet selects on, and let the style see it."""
    if widget.property(name) != value:
        widget.setProperty(name, value)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def pill(text: str = "", tone: str = "quiet") -> QLabel:
    """A short state word on a tinted ground; tones: good, bad, warn, info, quiet."""
    made = label(text, "pill")
    made.setProperty("tone", tone)
    made.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Maximum)
    return made


def set_pill(widget: QLabel, text: str, tone: str) -> None:
    """Change a pill's word and tone."""
    widget.setText(text)
    set_property(widget, "tone", tone)


def column(*, spacing: int = theme.S, margins: tuple[int, int, int, int] = (0, 0, 0, 0)) -> QVBoxLayout:
    """A vertical layout with our spacing and no margins of its own."""
    layout = QVBoxLayout()
    layout.setSpacing(spacing)
    layout.setContentsMargins(*margins)
    return layout


def line(*items: QWidget | QLayout | int | None, spacing: int = theme.S) -> QHBoxLayout:
    """A horizontal layout of widgets, layouts and gaps; None is a stretch."""
    layout = QHBoxLayout()
    layout.setSpacing(spacing)
    layout.setContentsMargins(0, 0, 0, 0)
    add_all(layout, *items)
    return layout


def add_all(layout: QBoxLayout, *items: QWidget | QLayout | int | None) -> None:
    """Append widgets, layouts, fixed gaps (int) and stretches (None)."""
    for item in items:
        if item is None:
            layout.addStretch(1)
        elif isinstance(item, int):
            layout.addSpacing(item)
        elif isinstance(item, QWidget):
            layout.addWidget(item)
        else:
            layout.addLayout(item)


def inset_text(field: QAbstractSpinBox) -> None:
    """Set a spin box's text in as far as other fields'; the style sheet's padding does not reach its inner field."""
    field.lineEdit().setTextMargins(theme.S, 0, 0, 0)


def rule() -> QFrame:
    """A hairline between groups."""
    made = QFrame()
    made.setObjectName("rule")
    return made


def keep_place(widget: QWidget, keep: bool) -> None:
    """Whether a hidden widget's place stays empty: else what lies beside it slides under a second click."""
    policy = widget.sizePolicy()
    if policy.retainSizeWhenHidden() != keep:
        policy.setRetainSizeWhenHidden(keep)
        widget.setSizePolicy(policy)


class _ThemedIcon:
    """Redraws a button's icon when the palette changes. Mixed into Qt buttons."""

    def _dress(self, name: str, colour: str) -> None:
        self._icon_name, self._icon_colour = name, colour
        theme.current().changed.connect(self.redraw_icon)
        self.redraw_icon()

    def set_icon(self, name: str, colour: str | None = None) -> None:
        """Show another icon, in another colour of the palette where one is given."""
        self._icon_name, self._icon_colour = name, colour or self._icon_colour
        self.redraw_icon()

    @property
    def icon_name(self) -> str:
        """Which icon is shown."""
        return self._icon_name

    def redraw_icon(self) -> None:
        """Draw the icon in the palette in force."""
        self.setIcon(theme.current().icon(self._icon_name, self._icon_colour))  # type: ignore[attr-defined]
        self.setIconSize(icons.ICON_SIZE)  # type: ignore[attr-defined]


class Button(QPushButton, _ThemedIcon):
    """A push button; looks: primary (one per card at most), plain, quiet."""

    def __init__(
        self, text: str, look: str = "plain", icon: str | None = None, on_click: Callable[[], object] | None = None
    ) -> None:
        # Qt sets the words close to the icon; a space keeps them apart.
        super().__init__(on_button(f" {text}" if icon is not None else text))
        self.setAccessibleName(text.strip())
        self.setProperty("look", look)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        if icon is not None:
            self._dress(icon, "on_accent" if look == "primary" else "text")
        if on_click is not None:
            self.clicked.connect(lambda: on_click())

    def set_look(self, look: str) -> None:
        """Change between primary, plain and quiet; for a button with an icon."""
        set_property(self, "look", look)
        self.set_icon(self.icon_name, "on_accent" if look == "primary" else "text")


class IconButton(QToolButton, _ThemedIcon):
    """A button with only an icon; ``tip`` is its tooltip and its name for screen readers."""

    def __init__(
        self, icon: str, tip: str, on_click: Callable[[], object] | None = None, *, colour: str = "muted"
    ) -> None:
        super().__init__()
        self.setToolTip(as_letters(tip))
        self.setAccessibleName(tip)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self._dress(icon, colour)
        if on_click is not None:
            self.clicked.connect(lambda: on_click())


class CopyButton(IconButton):
    """Copies what ``text`` returns at the moment of the click and shows a tick for a while."""

    copied = Signal()

    def __init__(self, text: Callable[[], str], tip: str = "Copy") -> None:
        super().__init__("copy", tip, self._copy)
        self._text = text
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(COPIED_MS)
        self._timer.timeout.connect(self._back)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self._text())
        self.set_icon("check", "good")
        self._timer.start()
        self.copied.emit()

    @Slot()
    def _back(self) -> None:
        self.set_icon("copy", "muted")


class Card(QFrame):
    """A rounded surface with a title, an optional state pill, and a body that callers fill."""

    def __init__(self, title: str = "", *, with_pill: bool = False) -> None:
        super().__init__()
        self.setObjectName("card")
        self.body = column(spacing=theme.M, margins=(theme.L, theme.L - 2, theme.L, theme.L))
        self.setLayout(self.body)
        self.pill = pill() if with_pill else None
        if title:
            self.body.addLayout(line(label(title, "lead"), None, *([self.pill] if self.pill else [])))


class ElidedLabel(QLabel):
    """One line of text cut with an ellipsis where it does not fit; the whole text then is in the tooltip."""

    def __init__(
        self, text: str = "", look: str = "body", mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight
    ) -> None:
        super().__init__()
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("look", look)
        self._full = self._shorter = self._told = ""
        self._mode = mode
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)
        self.set_text(text)

    def set_text(self, text: str, shorter: str = "") -> None:
        """Show ``text``, or ``shorter`` where there is too little room for it; newlines become spaces."""
        self._full, self._shorter = " ".join(text.split()), shorter
        self.updateGeometry()
        self._elide()

    def full_text(self) -> str:
        """The text before it was cut."""
        return self._full

    def setToolTip(self, text: str) -> None:
        """What is told beside the text, under the whole of it where that is cut; it stays when the line is cut anew."""
        self._told = text
        self._elide()

    def sizeHint(self) -> QSize:
        """Room for the whole text."""
        self.ensurePolished()
        metrics = QFontMetrics(self.font())
        return QSize(metrics.horizontalAdvance(self._full) + 4, metrics.height())

    def minimumSizeHint(self) -> QSize:
        """Room for the ellipsis."""
        return QSize(24, self.sizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Cut anew."""
        super().resizeEvent(event)
        self._elide()

    def changeEvent(self, event: QEvent) -> None:
        """Cut anew in another font."""
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._elide()

    def _elide(self) -> None:
        metrics, room = QFontMetrics(self.font()), max(0, self.width())
        cut = self._shorter and metrics.horizontalAdvance(self._full) > room
        shown = metrics.elidedText(self._shorter if cut else self._full, self._mode, room)
        if shown != self.text():
            self.setText(shown)
        whole = self._full if shown != self._full else ""
        super().setToolTip(as_letters("\n".join(filter(None, (whole, self._told)))))


class Notice(QFrame):
    """A message in place, with an icon, words that can be selected, and optional actions. Hidden until shown."""

    def __init__(self, *, closable: bool = True) -> None:
        super().__init__()
        self.setObjectName("notice")
        self._icon = QLabel()
        self._icon.setFixedSize(20, 20)
        self._words = label("", wrap=True, selectable=True)
        self._words.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._actions = line()
        self._close = IconButton("close", "Dismiss", self.hide, colour="text")
        self._middle = line(self._words, self._actions, spacing=theme.M - 2)
        layout = line(self._icon, self._middle, self._close, spacing=theme.M - 2)
        layout.setStretchFactor(self._middle, 1)
        layout.setContentsMargins(theme.M, theme.S, theme.S, theme.S)
        self.setLayout(layout)
        # Only now that it has a parent: a widget shown without one is a window of its own and takes the keys.
        self._close.setVisible(closable)
        self._tone = "bad"
        theme.current().changed.connect(self._redraw)
        self.hide()

    def show_words(self, words: str, tone: str = "bad", *actions: QWidget) -> None:
        """Say ``words``; tones: bad, warn, info. ``actions`` replace the former ones and belong to the notice."""
        while (item := self._actions.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for action in actions:
            self._actions.addWidget(action)
        self._words.setText(words)
        self._fit()
        self._tone = tone
        set_property(self, "tone", tone)
        self._redraw()
        self.show()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """What can be done stands under the words where there is no room beside them."""
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        wanted = self._actions.sizeHint().width()
        beside = not wanted or self.width() - wanted >= LEAST_WORDS
        way = QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom
        self._middle.setDirection(way)
        self._middle.setAlignment(self._actions, Qt.AlignmentFlag(0) if beside else Qt.AlignmentFlag.AlignLeft)

    def words(self) -> str:
        """What is said now; empty while hidden."""
        return "" if self.isHidden() else self._words.text()

    @Slot()
    def _redraw(self) -> None:
        name = {"bad": "warn", "warn": "warn", "info": "info"}[self._tone]
        colour = {"bad": "bad", "warn": "warn", "info": "on_accent_soft"}[self._tone]
        self._icon.setPixmap(theme.current().icon(name, colour, 20).pixmap(QSize(20, 20), self.devicePixelRatioF()))


class Dot(QWidget):
    """A small round state light; tones: good, warn, bad, quiet."""

    SIDE = 10

    def __init__(self, tone: str = "quiet") -> None:
        super().__init__()
        self.setFixedSize(self.SIDE, self.SIDE)
        self._tone = tone

    def set_tone(self, tone: str) -> None:
        """Change the light."""
        self._tone = tone
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the light."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.current().colour({"quiet": "disabled"}.get(self._tone, self._tone)))
        painter.drawEllipse(self.rect().adjusted(1, 1, -1, -1))
        painter.end()


class Surface(QWidget):
    """A plain widget that paints the ground the style sheet gives to its object name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setObjectName(name)
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground, True)
