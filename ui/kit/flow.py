"""A layout that sets its items side by side and breaks the line where there is no more room, as text does."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QLayout, QLayoutItem, QSizePolicy, QWidget

from ui.kit import theme


class FlowLayout(QLayout):
    """Items keep their own size, at most the whole width."""

    def __init__(self, gap: int = theme.XS + 2) -> None:
        super().__init__()
        self._items: list[QLayoutItem] = []
        self._gap = gap
        self.setContentsMargins(0, 0, 0, 0)

    def addItem(self, item: QLayoutItem) -> None:
        """Called by Qt for each widget that is added."""
        self._items.append(item)

    def count(self) -> int:
        """How many items there are."""
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:
        """The item at ``index``, None beyond the last."""
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:
        """Take an item out."""
        return self._items.pop(index) if 0 <= index < len(self._items) else None

    def expandingDirections(self) -> Qt.Orientation:
        """It wants no more room than it needs."""
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:
        """The narrower, the higher."""
        return True

    def heightForWidth(self, width: int) -> int:
        """The height of all lines at ``width``."""
        return self._arrange(QRect(0, 0, width, 0), move=False)

    def setGeometry(self, rect: QRect) -> None:
        """Put the items in their places."""
        super().setGeometry(rect)
        self._arrange(rect, move=True)

    def sizeHint(self) -> QSize:
        """As small as can be; the width comes from outside."""
        return self.minimumSize()

    def minimumSize(self) -> QSize:
        """Room for the highest item in one line."""
        height = max((item.sizeHint().height() for item in self._items if not item.isEmpty()), default=0)
        return QSize(0, height)

    def clear(self) -> None:
        """Delete every widget in it."""
        while self._items:
            widget = self._items.pop().widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()
        self.invalidate()

    def _arrange(self, rect: QRect, *, move: bool) -> int:
        x, y, high = rect.x(), rect.y(), 0
        for item in self._items:
            if item.isEmpty():
                continue
            hint = item.sizeHint()
            wide = min(hint.width(), rect.width())
            if x > rect.x() and x + wide > rect.right() + 1:
                x, y, high = rect.x(), y + high + self._gap, 0
            if move:
                item.setGeometry(QRect(QPoint(x, y), QSize(wide, hint.height())))
            x += wide + self._gap
            high = max(high, hint.height())
        return y + high - rect.y()


class Flow(QWidget):
    """A widget around a :class:`FlowLayout`."""

    def __init__(self, gap: int = theme.XS + 2) -> None:
        super().__init__()
        self._flow = FlowLayout(gap)
        self.setLayout(self._flow)
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def sizeHint(self) -> QSize:
        """One line. Qt's own hint is the height at no width, each item in a line of its own; pages would scroll for it.

        How high it is at the width it gets is asked with ``heightForWidth``.
        """
        return self._flow.sizeHint()

    def add(self, widget: QWidget) -> None:
        """Put one more at the end."""
        self._flow.addWidget(widget)

    def show_all(self, widgets: list[QWidget]) -> None:
        """Show these instead of what is there."""
        self._flow.clear()
        for widget in widgets:
            self._flow.addWidget(widget)
            widget.show()
        self.setVisible(bool(widgets))
        self.updateGeometry()

    def widgets(self) -> list[QWidget]:
        """What is shown, in order."""
        found = [self._flow.itemAt(index) for index in range(self._flow.count())]
        return [widget for item in found if item is not None and (widget := item.widget()) is not None]
