"""The saved conversations' errands: list, open, rename, delete and bring back, all through the background."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from engine.engine import Engine
from engine.errors import NotFound
from engine.events import ConversationsChanged
from engine.public.library import ConversationRecord, ConversationSummary
from ui.bridge import Bridge
from ui.talk.conversation_list import ConversationList


class ConversationDesk(QObject):
    """Joins the list widget to ``library.conversations``."""

    opened = Signal(object)
    """A :class:`ConversationRecord` to show."""
    deleted = Signal(int)
    listed = Signal()
    failed = Signal(object)

    def __init__(self, engine: Engine, bridge: Bridge, view: ConversationList, parent: QObject) -> None:
        super().__init__(parent)
        self._repository = engine.library.conversations
        self._events = engine.events
        self._bridge = bridge
        self._view = view
        self._titles: dict[int, str] = {}
        self._search = ""
        self._asked = 0
        self._last_deleted: ConversationRecord | None = None
        view.search_changed.connect(self._on_search)
        view.opened.connect(self.open)
        view.rename_wanted.connect(self.rename)
        view.delete_wanted.connect(self.delete)
        view.undo_wanted.connect(self.undo)

    def refresh(self) -> None:
        """Read the list anew; an answer that was overtaken by a later question is dropped."""
        self._asked += 1
        asked, search, repository = self._asked, self._search, self._repository

        def show(summaries: list[ConversationSummary]) -> None:
            if asked != self._asked:
                return
            self._titles.update({summary.id: summary.title for summary in summaries})
            self._view.show_summaries(summaries, bool(search))
            self.listed.emit()

        self._bridge.run_in_background(lambda: repository.list(search or None), show, self.failed.emit, owner=self)

    def title_of(self, conversation_id: int | None) -> str | None:
        """A saved conversation's title, where it was listed."""
        return None if conversation_id is None else self._titles.get(conversation_id)

    def rename(self, conversation_id: int, title: str) -> None:
        """Give a conversation another title."""
        repository = self._repository
        self._titles[conversation_id] = title
        self._change(lambda: repository.replace(conversation_id, title=title))

    def delete(self, conversation_id: int) -> None:
        """Delete a conversation and offer to bring it back."""
        repository = self._repository

        def take() -> ConversationRecord:
            record = repository.get(conversation_id)
            if record is None:
                raise NotFound("This conversation was deleted already.")
            repository.remove(conversation_id)
            return record

        def gone(record: ConversationRecord) -> None:
            self._last_deleted = record
            self._titles.pop(record.id, None)
            self._view.remove(record.id)
            # A list that was asked for before the deletion must not bring the row back.
            self._asked += 1
            self.deleted.emit(record.id)
            self._view.offer_undo(record.title)
            self._events.publish(ConversationsChanged())

        self._bridge.run_once(("delete conversation", conversation_id), take, gone, self.failed.emit, owner=self)

    def undo(self) -> None:
        """Bring the conversation deleted last back, with all its messages."""
        record, self._last_deleted = self._last_deleted, None
        repository = self._repository
        if record is not None:
            self._change(lambda: repository.create(record.title, record.system_prompt, list(record.messages)))

    def _change(self, task: Callable[[], object]) -> None:
        self._bridge.run_in_background(
            task, lambda _record: self._events.publish(ConversationsChanged()), self.failed.emit, owner=self
        )

    def _on_search(self, words: str) -> None:
        self._search = words
        self.refresh()

    def open(self, conversation_id: int) -> None:
        """Read a conversation and show it."""
        repository = self._repository

        def read() -> ConversationRecord:
            record = repository.get(conversation_id)
            if record is None:
                raise NotFound("This conversation is not there any more.", remedy="It was deleted elsewhere.")
            return record

        def missing(error: Exception) -> None:
            self.failed.emit(error)
            self.refresh()

        self._bridge.run_in_background(read, self.opened.emit, missing, owner=self)
