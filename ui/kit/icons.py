"""The window's own icons: a few strokes each on a 24 × 24 grid, drawn in whatever colour the theme asks for."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

_STROKES: dict[str, str] = {
    "home": '<path d="M4 11.5 12 4.5l8 7"/><path d="M6.5 10v9.5h11V10"/><path d="M10 19.5V14h4v5.5"/>',
    "chat": '<path d="M4.5 6.5a2 2 0 0 1 2-2h11a2 2 0 0 1 2 2v7a2 2 0 0 1-2 2H11l-4.5 4v-4a2 2 0 0 1-2-2z"/>'
    '<path d="M8.5 8.7h7M8.5 11.5h4.5"/>',
    "copy": '<rect x="8.5" y="8.5" width="11" height="11" rx="2"/><path d="M15.5 5.5v-1h-11v11h1"/>',
    "check": '<path d="m5 12.5 4.5 4.5L19 7.5"/>',
    "send": '<path d="M12 19V5.5"/><path d="m6 11 6-6 6 6"/>',
    "down": '<path d="M12 5v13.5"/><path d="m6 13 6 6 6-6"/>',
    "stop": '<rect x="7" y="7" width="10" height="10" rx="1.5" fill="COLOUR"/>',
    "again": '<path d="M19 12a7 7 0 1 1-2.2-5.1"/><path d="M19.5 3.5v4h-4"/>',
    "plus": '<path d="M12 5v14M5 12h14"/>',
    "search": '<circle cx="10.5" cy="10.5" r="5.5"/><path d="m15 15 5 5"/>',
    "folder": '<path d="M3.5 7.5v10a1.5 1.5 0 0 0 1.5 1.5h14a1.5 1.5 0 0 0 1.5-1.5V9A1.5 1.5 0 0 0 19 7.5h-7.5l-2-2.5H5'
    'A1.5 1.5 0 0 0 3.5 6.5z"/>',
    "download": '<path d="M12 4v10.5"/><path d="m7 10.5 5 5 5-5"/><path d="M5 19.5h14"/>',
    "pause": '<path d="M9 6.5v11M15 6.5v11"/>',
    "play": '<path d="M8 5.5v13l11-6.5z"/>',
    "pencil": '<path d="m5 19 .8-3.8L16 5l3 3L8.8 18.2z"/><path d="m14 7 3 3"/>',
    "bin": '<path d="M5 7h14"/><path d="M9 7V4.5h6V7"/><path d="M7 7l.8 12.5h8.4L17 7"/>'
    '<path d="M10.3 10.5v5.5M13.7 10.5v5.5"/>',
    "info": '<circle cx="12" cy="12" r="8.5"/><path d="M12 11v5"/><path d="M12 7.8v.2"/>',
    "warn": '<path d="M12 4.5 21 19.5H3z"/><path d="M12 10v4.5"/><path d="M12 17v.2"/>',
    "close": '<path d="m6 6 12 12M18 6 6 18"/>',
    "drop": '<path d="M12 4c3.5 4.2 5.5 7 5.5 9.8a5.5 5.5 0 0 1-11 0C6.5 11 8.5 8.2 12 4z"/>'
    '<path d="M9.5 14a2.5 2.5 0 0 0 2.5 2.5"/>',
    "columns": '<rect x="4" y="5" width="16" height="14" rx="2"/><path d="M12 5v14"/>',
    "book": '<path d="M5 5.5A1.5 1.5 0 0 1 6.5 4H19v13H6.5A1.5 1.5 0 0 0 5 18.5z"/>'
    '<path d="M5 18.5A1.5 1.5 0 0 0 6.5 20H19v-3"/><path d="M9 8h6"/>',
    "dials": '<path d="M4 7h9M17 7h3M4 17h3M11 17h9"/><circle cx="15" cy="7" r="2"/><circle cx="9" cy="17" r="2"/>',
    "profile": '<path d="M6.5 4.5h11v15L12 15.8l-5.5 3.7z"/>',
    "cluster": '<circle cx="8" cy="8" r="3"/><circle cx="16.5" cy="10" r="2.4"/><circle cx="10.5" cy="16.5" r="2.6"/>',
    "circuit": '<circle cx="6" cy="18" r="2"/><circle cx="18" cy="18" r="2"/><circle cx="12" cy="12" r="2"/>'
    '<circle cx="12" cy="5" r="2"/><path d="m7.4 16.6 3.2-3.2M16.6 16.6l-3.2-3.2M12 10V7"/>',
    "import": '<path d="M12 15V4.5"/><path d="m7 10 5 5 5-5"/><path d="M4.5 15v4.5h15V15"/>',
    "export": '<path d="M12 15V4.5"/><path d="m7 9.5 5-5 5 5"/><path d="M4.5 15v4.5h15V15"/>',
    "minus": '<path d="M5 12h14"/>',
    "fit": '<path d="M4.5 9V4.5H9M15 4.5h4.5V9M19.5 15v4.5H15M9 19.5H4.5V15"/>',
    "features": '<path d="M12 4v3M12 17v3M4 12h3M17 12h3M6.5 6.5l2 2M15.5 15.5l2 2M17.5 6.5l-2 2M8.5 15.5l-2 2"/>'
    '<circle cx="12" cy="12" r="2"/>',
    "pulse": '<path d="M3.5 12.5h4l2.5-7 4 13 2.5-6h4"/>',
    "sweep": '<path d="M4.5 19.5h15"/><path d="M4.5 16c4 0 4.5-9 8-9s4 5 7 5"/><circle cx="12.5" cy="7" r="1.6"/>',
    "unfold": '<path d="m9.5 6 6 6-6 6"/>',
    "fold": '<path d="m6 9.5 6 6 6-6"/>',
    "undo": '<path d="M5 9.5h9a5 5 0 0 1 0 10H9"/><path d="m9 5-4.5 4.5L9 14"/>',
    "list": '<rect x="4" y="5" width="16" height="14" rx="2"/><path d="M10 5v14"/>',
    "text": '<path d="M5 7V5h14v2"/><path d="M12 5v14"/><path d="M9.5 19h5"/>',
    "server": '<rect x="4.5" y="4.5" width="15" height="6" rx="1.5"/>'
    '<rect x="4.5" y="13.5" width="15" height="6" rx="1.5"/>'
    '<path d="M8 7.5v.1M8 16.5v.1"/>',
    "chip": '<rect x="6.5" y="6.5" width="11" height="11" rx="2"/>'
    '<path d="M10 3.5v3M14 3.5v3M10 17.5v3M14 17.5v3M3.5 10h3'
    'M3.5 14h3M17.5 10h3M17.5 14h3"/>',
    "eye": '<path d="M2.8 12S6.3 6 12 6s9.2 6 9.2 6-3.5 6-9.2 6-9.2-6-9.2-6z"/><circle cx="12" cy="12" r="2.6"/>',
    "gear": '<circle cx="12" cy="12" r="3"/><path d="M12 3.5v2.6M12 17.9v2.6M3.5 12h2.6M17.9 12h2.6M6 6l1.8 1.8'
    'M16.2 16.2 18 18M6 18l1.8-1.8M16.2 7.8 18 6"/>',
    "layers": '<path d="m12 4 8.5 4.5L12 13 3.5 8.5z"/><path d="m3.5 12.5 8.5 4.5 8.5-4.5"/>'
    '<path d="m3.5 16 8.5 4.5 8.5-4.5"/>',
    "lock": '<rect x="5.5" y="10.5" width="13" height="9" rx="2"/><path d="M8.5 10.5V8a3.5 3.5 0 0 1 7 0v2.5"/>',
    "mark": '<path d="M4.2 15.5a8 8 0 1 1 15.6 0"/><path d="M12 14l4-5.5"/>'
    '<circle cx="12" cy="14" r="1.6" fill="COLOUR"/>',
}
"""Name → strokes. ``COLOUR`` stands for the stroke colour where a shape is filled."""

_SCALES = (1.0, 1.25, 1.5, 1.75, 2.0, 3.0)


def names() -> tuple[str, ...]:
    """Every icon there is."""
    return tuple(_STROKES)


def _pixels(size: float) -> int:
    """Whole pixels, halves up, as Qt rounds: an icon of another size than asked for would be scaled and blurred."""
    return int(size + 0.5)


def _svg(name: str, colour: str) -> bytes:
    strokes = _STROKES[name].replace("COLOUR", colour)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="{colour}" stroke-width="1.7" '
        f'stroke-linecap="round" stroke-linejoin="round">{strokes}</svg>'
    ).encode()


def pixmap(name: str, colour: str, size: int, scale: float = 1.0) -> QPixmap:
    """A pixmap of ``size`` device-independent pixels for a screen of ``scale``. KeyError for an unknown name."""
    side = _pixels(size * scale)
    picture = QPixmap(side, side)
    picture.fill(Qt.GlobalColor.transparent)
    painter = QPainter(picture)
    QSvgRenderer(QByteArray(_svg(name, colour))).render(painter, QRectF(0, 0, side, side))
    painter.end()
    picture.setDevicePixelRatio(scale)
    return picture


def icon(name: str, colour: str, size: int = 18, disabled: str | None = None) -> QIcon:
    """An icon drawn sharply for every usual screen scale; ``disabled`` is its colour on a disabled button."""
    made = QIcon()
    for mode, tint in ((QIcon.Mode.Normal, colour), (QIcon.Mode.Disabled, disabled or colour)):
        for scale in _SCALES:
            drawn = pixmap(name, tint, _pixels(size * scale))
            made.addPixmap(drawn, mode)
    return made


def window_icon(colour: str) -> QIcon:
    """The program's mark, for the title bar and the task bar."""
    made = QIcon()
    for side in (16, 24, 32, 48, 64, 128, 256):
        made.addPixmap(pixmap("mark", colour, side))
    return made


ICON_SIZE = QSize(18, 18)
