"""What every page of the window is, beside the Qt widget it is drawn by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from engine.events import Event

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget as _Widget
else:
    # A page says itself which widget it is (a scrolling one, a plain one); the type checker knows that it is one.
    _Widget = object


class Page(_Widget):
    """Base of the pages, named before the widget's class. Everything here is called on the GUI thread."""

    FOLLOWS: ClassVar[tuple[type[Event], ...]] = ()
    """The engine events that the page is told of, from when it is built; it reads what was before by itself."""

    def on_event(self, event: Event) -> None:
        """One of :attr:`FOLLOWS` happened, whoever brought it about."""

    def arrive(self, *args: Any, **what: Any) -> None:
        """The page came to the front; ``what`` is what the caller of ``PageContext.go`` said."""

    def prepare_to_close(self) -> None:
        """The window closes: end or keep what was begun here."""
