"""How the window looks: Fusion, our palette in the system's light or dark, one scale of type and one of space.

The app calls :func:`set_high_dpi_policy` before it makes the QApplication and :func:`install` after. Widgets ask
:func:`current` for colours and fonts and listen to :attr:`Theme.changed`, since the system's scheme can change at any
time.
"""

from __future__ import annotations

from collections.abc import Callable

import shiboken6
from PySide6.QtCore import QObject, QPointF, QRectF, Qt, Signal, Slot
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontInfo, QGuiApplication, QIcon, QPainter, QPalette, QPen
from PySide6.QtWidgets import QApplication, QProxyStyle, QStyle, QStyleOption, QToolTip, QWidget

from ui.kit import icons
from ui.kit.colours import DARK, LIGHT, Colours
from ui.kit.stylesheet import build_stylesheet

# Space, in device-independent pixels. Inside a group XS/S, between groups M, around a card L, around a page XL.
XS, S, M, L, XL = 4, 8, 12, 20, 28
RADIUS = 10

MIN_BODY_PX = 14
"""Body text is never smaller than this, whatever the desktop's font says."""

SCALE = {"caption": 0.86, "small": 0.93, "body": 1.0, "lead": 1.14, "title": 1.36, "display": 1.72}
"""Type sizes as multiples of the body size."""


def set_high_dpi_policy() -> None:
    """Use the screen's exact scale (125 %, 150 % …). Must run before the QApplication is made."""
    QGuiApplication.setHighDpiScaleFactorRoundingPolicy(Qt.HighDpiScaleFactorRoundingPolicy.PassThrough)


class Theme(QObject):
    """The palette in force; one per application. ``forced`` pins a scheme instead of following the system."""

    changed = Signal()

    def __init__(self, app: QApplication, forced: Qt.ColorScheme | None = None) -> None:
        super().__init__(app)
        self._app = app
        self._forced = forced
        self._system_is_dark = app.palette().color(QPalette.ColorRole.Window).lightness() < 128
        self._base = QFont(app.font())
        self._body_px = max(MIN_BODY_PX, QFontInfo(self._base).pixelSize())
        self._icons: dict[tuple[str, str, int], QIcon] = {}
        self.colours: Colours = self._wanted()
        self._style = TickStyle(lambda: self.colours)
        app.setStyle(self._style)
        self._apply()
        app.styleHints().colorSchemeChanged.connect(self._on_system_scheme)

    def force(self, scheme: Qt.ColorScheme | None) -> None:
        """Pin light or dark, or follow the system again (None)."""
        self._forced = scheme
        self._refresh()

    def font(self, role: str = "body", *, bold: bool = False) -> QFont:
        """A font of the type scale: caption, small, body, lead, title or display."""
        font = QFont(self._base)
        font.setPixelSize(self.pixels(role))
        if bold:
            font.setWeight(QFont.Weight.DemiBold)
        return font

    def mono(self, role: str = "body") -> QFont:
        """The system's fixed-width font at a size of the type scale."""
        font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        font.setPixelSize(self.pixels(role) - 1)
        font.setStyleHint(QFont.StyleHint.Monospace)
        return font

    def pixels(self, role: str) -> int:
        """Size of a type role in device-independent pixels."""
        return round(self._body_px * SCALE[role])

    def colour(self, name: str) -> QColor:
        """A colour of the palette in force by its use, as in :class:`ui.kit.colours.Colours`."""
        return QColor(getattr(self.colours, name))

    def icon(self, name: str, colour: str = "text", size: int = 18) -> QIcon:
        """One of our icons in a colour of the palette, as in :class:`ui.kit.colours.Colours`."""
        key = (name, colour, size)
        if key not in self._icons:
            self._icons[key] = icons.icon(name, getattr(self.colours, colour), size, self.colours.disabled)
        return self._icons[key]

    def _wanted(self) -> Colours:
        scheme = self._forced or self._app.styleHints().colorScheme()
        if scheme == Qt.ColorScheme.Unknown:
            return DARK if self._system_is_dark else LIGHT
        return DARK if scheme == Qt.ColorScheme.Dark else LIGHT

    @Slot(Qt.ColorScheme)
    def _on_system_scheme(self, _scheme: Qt.ColorScheme) -> None:
        self._refresh()

    def _refresh(self) -> None:
        wanted = self._wanted()
        if wanted != self.colours:
            self.colours = wanted
            self._icons.clear()
            self._apply()
            self.changed.emit()

    def _apply(self) -> None:
        self._app.setFont(self.font())
        palette = build_palette(self.colours)
        self._app.setPalette(palette)
        QToolTip.setPalette(palette)
        sizes = {role: self.pixels(role) for role in SCALE}
        self._app.setStyleSheet(build_stylesheet(self.colours, sizes, RADIUS, self.mono("small").family()))


def build_palette(colours: Colours) -> QPalette:
    """A QPalette for Fusion from our colours, so that what no style rule touches matches too."""
    role = QPalette.ColorRole
    palette = QPalette()
    for colour_role, value in {
        role.Window: colours.ground,
        role.WindowText: colours.text,
        role.Base: colours.card,
        role.AlternateBase: colours.raised,
        role.Text: colours.text,
        role.Button: colours.raised,
        role.ButtonText: colours.text,
        role.BrightText: colours.bad,
        role.PlaceholderText: colours.muted,
        role.ToolTipBase: colours.raised,
        role.ToolTipText: colours.text,
        role.Highlight: colours.accent,
        role.HighlightedText: colours.on_accent,
        role.Accent: colours.accent,
        role.Link: colours.accent,
        role.LinkVisited: colours.accent,
        role.Light: colours.card,
        role.Midlight: colours.raised,
        role.Mid: colours.line,
        role.Dark: colours.line_strong,
        role.Shadow: colours.line_strong,
    }.items():
        palette.setColor(colour_role, QColor(value))
    for colour_role in (role.WindowText, role.Text, role.ButtonText, role.HighlightedText):
        palette.setColor(QPalette.ColorGroup.Disabled, colour_role, QColor(colours.disabled))
    return palette


_installed: Theme | None = None


def install(app: QApplication, forced: Qt.ColorScheme | None = None) -> Theme:
    """Dress ``app``; a second call pins or frees the scheme of the theme that is there."""
    global _installed
    if _installed is None or not shiboken6.isValid(_installed):
        _installed = Theme(app, forced)
    else:
        _installed.force(forced)
    return _installed


def current() -> Theme:
    """The installed theme. Widgets are made after :func:`install`, so there is one."""
    if _installed is None:
        raise RuntimeError("ui.kit.theme.install(app) must run before widgets are made")
    return _installed


BOXES = (QStyle.PrimitiveElement.PE_IndicatorCheckBox, QStyle.PrimitiveElement.PE_IndicatorItemViewItemCheck)
TICK = ((0.24, 0.54), (0.43, 0.72), (0.78, 0.30))
"""Its corners, as shares of the box."""


class TickStyle(QProxyStyle):
    """Fusion with our tick boxes, in lists and trees too: a style sheet can colour them but draw no tick. ``colours``
    gives the palette in force.
    """

    def __init__(self, colours: Callable[[], Colours]) -> None:
        super().__init__("Fusion")
        self._colours = colours

    def drawPrimitive(
        self,
        element: QStyle.PrimitiveElement,
        option: QStyleOption,
        painter: QPainter,
        widget: QWidget | None = None,
    ) -> None:
        """Qt's name for it."""
        if element in BOXES:
            draw_box(painter, QRectF(option.rect), option.state, self._colours())
        else:
            super().drawPrimitive(element, option, painter, widget)


def draw_box(painter: QPainter, rect: QRectF, state: QStyle.StateFlag, colours: Colours) -> None:
    """A box with a tick where it is on, a dash where only some of what it stands for is."""
    flags = QStyle.StateFlag
    able, some = bool(state & flags.State_Enabled), bool(state & flags.State_NoChange)
    full = some or bool(state & flags.State_On)
    ink = colours.accent if able else colours.disabled
    edge = ink if full or (able and state & flags.State_MouseOver) else colours.muted
    if able and state & flags.State_HasFocus:
        edge = colours.text if full else colours.accent
    side = min(rect.width(), rect.height()) - 1
    box = QRectF(rect.center().x() - side / 2, rect.center().y() - side / 2, side, side)
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(QColor(edge if able else colours.disabled), 1))
    painter.setBrush(QColor(ink if full else colours.card))
    painter.drawRoundedRect(box, 3, 3)
    if full:
        pen = QPen(QColor(colours.on_accent if able else colours.card), max(1.6, side / 8))
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
        painter.setPen(pen)
        corners = ((0.27, 0.5), (0.73, 0.5)) if some else TICK
        painter.drawPolyline([QPointF(box.x() + x * side, box.y() + y * side) for x, y in corners])
    painter.restore()
