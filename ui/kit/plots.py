"""The plotting library, loaded when a page first draws with it: bound to PySide6 and dressed in our colours."""

from __future__ import annotations

import os
from typing import Any

from PySide6.QtCore import QEvent, QObject

from ui.kit import theme


class _WheelPasses(QObject):
    """The wheel over a plot that only shows scrolls the page around it; the library keeps it for itself."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Qt's name for it."""
        if event.type() == QEvent.Type.Wheel:
            event.ignore()
            return True
        return False


def load() -> Any:
    """The module ``pyqtgraph``. The first call takes a while; for a background thread."""
    # Without it, the library takes whichever binding it finds first.
    os.environ["PYQTGRAPH_QT_LIB"] = "PySide6"
    import pyqtgraph

    pyqtgraph.setConfigOptions(antialias=True, imageAxisOrder="row-major")
    return pyqtgraph


def plain_plot(pg: Any) -> Any:
    """A plot that only shows: no menu, no buttons, no dragging; in our colours until :func:`dress` is called again."""
    plot = pg.PlotWidget()
    item = plot.getPlotItem()
    item.setMenuEnabled(False)
    item.hideButtons()
    item.setMouseEnabled(False, False)
    item.getViewBox().setMouseEnabled(False, False)
    plot.setFocusPolicy(plot.focusPolicy().NoFocus)
    plot.viewport().installEventFilter(_WheelPasses(plot))
    dress(plot)
    return plot


def dress(plot: Any) -> None:
    """Give a plot the colours and the type of the theme in force."""
    look = theme.current()
    plot.setBackground(look.colour("card"))
    for side in ("left", "bottom", "right", "top"):
        axis = plot.getPlotItem().getAxis(side)
        axis.setPen(look.colour("line_strong"))
        axis.setTextPen(look.colour("muted"))
        axis.setTickFont(look.font("caption"))
