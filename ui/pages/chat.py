"""The chat page: conversations on the left, messages and composer in the middle, how to answer on the right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import Slot

from engine.errors import InvalidParameter, MillmError
from engine.events import ConversationsChanged, Event
from engine.library.records import ConversationRecord
from ui.chat_session import ChatSession, TurnState
from ui.chat_state import ChatOptions
from ui.frame import HOME, Frame
from ui.pages.conversations import ConversationDesk
from ui.pages.gate import ModelGate
from ui.pages.options import OptionsKeeper
from ui.pages.prompts import PromptDesk
from ui.widgets.chat_frame import ChatFrame
from ui.words import describe_error

_STATES = {
    TurnState.WAITING: "Waiting for its turn…",
    TurnState.READING: "Reading the prompt…",
    TurnState.WRITING: "",
    TurnState.IDLE: "",
}


class ChatPage(ChatFrame):
    """Joins one :class:`ChatSession` at a time to the widgets; one left while writing goes on and saves itself."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self._frame = frame
        self._engine = engine = frame.engine
        self._bridge = bridge = frame.bridge
        self._sessions: list[ChatSession] = []
        """The one on screen, and those left behind that are still writing or saving."""
        self._session = self._make_session()
        self.desk = ConversationDesk(engine, bridge, self.conversations, self)
        self.prompts = PromptDesk(engine, bridge, self)
        self.gate = ModelGate(engine, bridge, self.composer, self._say_error, self)
        self._keeper = OptionsKeeper(engine.library, bridge, self.settings, self)
        self._wire()
        self._bind(self._session)
        self._refresh_title()
        self.desk.refresh()
        self.gate.refresh()

    def _wire(self) -> None:
        self.rename_button.clicked.connect(lambda: self._rename_current())
        self.delete_button.clicked.connect(lambda: self._delete_current())
        self.composer.send.connect(self._send)
        self.composer.stop.connect(self.stop)
        self.composer.changed.connect(self._count)
        self.messages.again.connect(self._again)
        self.messages.suggested.connect(self._suggest)
        self.messages.inspect.connect(self._inspect_answer)
        self.settings.inspect.connect(self._inspect_draft)
        self.settings.changed.connect(self._count)
        self.conversations.new_wanted.connect(self.new_chat)
        self.desk.opened.connect(self.open_record)
        self.desk.deleted.connect(self.on_deleted)
        self.desk.listed.connect(self._refresh_title)
        self.desk.failed.connect(self._say_error)
        self.gate.opened.connect(self._count)
        self.gate.closed.connect(lambda: self._on_counted(None, None, ""))
        self.gate.home_wanted.connect(partial(self._frame.go, HOME))
        self.prompts.counted.connect(self._on_counted)

    # --- what the window calls --------------------------------------------------------------------------------------

    @property
    def session(self) -> ChatSession:
        """The conversation on screen."""
        return self._session

    @property
    def busy(self) -> bool:
        """Whether the conversation on screen is being answered."""
        return self._session.busy

    def arrive(self, conversation: int | None = None) -> None:
        """Come to the front, with a kept conversation open where one is named."""
        if conversation is not None:
            self.desk.open(conversation)
        self.focus_input()

    def new_chat(self) -> None:
        """Start an empty conversation; the one on screen is kept as it is."""
        self._switch(self._make_session())
        self.settings.set_system_prompt("")
        self.focus_input()

    def stop(self) -> None:
        """End the answer on screen."""
        self._session.stop()

    def focus_input(self) -> None:
        """Put the cursor where the person writes."""
        self.composer.field.setFocus()

    def prepare_to_close(self) -> None:
        """The window closes: end every answer and keep what was written."""
        for session in self._sessions:
            session.close()

    # --- events -----------------------------------------------------------------------------------------------------

    @Slot(object)
    def on_event(self, event: Event) -> None:
        """Follow the engine."""
        if isinstance(event, ConversationsChanged):
            self.desk.refresh()
        else:
            self.gate.on_event(event)

    def _suggest(self, text: str) -> None:
        self.composer.set_draft(text)
        self.focus_input()

    # --- turns ------------------------------------------------------------------------------------------------------

    def _options(self) -> ChatOptions | None:
        try:
            return self.settings.options()
        except InvalidParameter as error:
            self._say_error(error)
            return None

    def _model(self) -> str | None:
        resident = self._engine.shelf.resident
        return resident.record.name if resident is not None else None

    def _send(self, text: str) -> None:
        options, model = self._options(), self._model()
        if options is None or model is None:
            self.composer.set_draft(text)
            self.gate.refresh()
            return
        self._start(lambda: self._session.send(text, options, model))

    def _again(self) -> None:
        options, model = self._options(), self._model()
        if options is None or model is None:
            self.gate.refresh()
            return
        self._start(lambda: self._session.regenerate(options, model))

    def _start(self, begin: Callable[[], None]) -> None:
        self.composer.notice.hide()
        begin()
        self._refresh_title()
        self.messages.scroll_to_end()

    def _on_state(self, session: ChatSession) -> None:
        self._mark_writing()
        if session is self._session:
            self.composer.set_busy(session.busy)
            self.messages.set_locked(session.busy)
            self.messages.set_state(_STATES[session.state])
            if not session.busy:
                self._count()
        else:
            self._forget_if_done(session)

    def _on_withdrawn(self, session: ChatSession, error: Exception | None, question: str | None) -> None:
        if question is not None:
            self.composer.set_draft(question)
        if session is self._session:
            if error is not None:
                self._say_error(error)
            self._refresh_title()
        elif error is not None:
            # Its conversation is not on screen, so the bar has to say it.
            self._bridge.failed.emit(error)

    def _mark_writing(self) -> None:
        busy = {s.conversation_id for s in self._sessions if s.busy}
        self.conversations.set_writing({number for number in busy if number is not None})

    def _say_error(self, error: Exception) -> None:
        self.composer.notice.show_words(describe_error(error), "bad" if isinstance(error, MillmError) else "warn")

    def _on_save_failed(self, error: Exception) -> None:
        self.composer.notice.show_words(f"This conversation could not be saved: {describe_error(error)}")

    # --- which conversation -----------------------------------------------------------------------------------------

    def open_record(self, record: ConversationRecord) -> None:
        """Show a saved conversation; one that is being answered is shown as it stands."""
        for session in self._sessions:
            if session.conversation_id == record.id:
                self._switch(session)
                return
        self._switch(self._make_session(record), record.title)

    def on_deleted(self, conversation_id: int) -> None:
        """A conversation is gone: end what is written to it."""
        for session in list(self._sessions):
            if session.conversation_id == conversation_id:
                session.discard()
                if session is self._session:
                    self.new_chat()

    def _switch(self, session: ChatSession, title: str | None = None) -> None:
        if session is self._session:
            return
        left = self._session
        left.message_added.disconnect(self._on_added)
        left.message_removed.disconnect(self._on_removed)
        left.message_changed.disconnect(self.messages.refresh)
        self._bind(session)
        self._forget_if_done(left)
        self.settings.set_system_prompt(session.system_prompt)
        self.composer.notice.hide()
        self.title.set_text(title or self.desk.title_of(session.conversation_id) or "New chat")
        self._refresh_title()

    def _make_session(self, record: ConversationRecord | None = None) -> ChatSession:
        session = ChatSession(self._engine, self._bridge, record)
        session.setParent(self)
        self._sessions.append(session)
        session.state_changed.connect(lambda: self._on_state(session))
        session.saved.connect(lambda _id: self._on_saved(session))
        session.save_failed.connect(self._on_save_failed)
        session.withdrawn.connect(lambda error, question: self._on_withdrawn(session, error, question))
        return session

    def _forget_if_done(self, session: ChatSession) -> None:
        if session is not self._session and session.settled and session in self._sessions:
            self._sessions.remove(session)
            session.deleteLater()

    def _bind(self, session: ChatSession) -> None:
        self._session = session
        session.message_added.connect(self._on_added)
        session.message_removed.connect(self._on_removed)
        session.message_changed.connect(self.messages.refresh)
        self.messages.show_all(session.messages)
        self.conversations.set_current(session.conversation_id)
        self._on_state(session)

    @Slot(int)
    def _on_added(self, index: int) -> None:
        self.messages.add(self._session.messages[index])

    @Slot(int)
    def _on_removed(self, _index: int) -> None:
        self.messages.remove_last()

    def _on_saved(self, session: ChatSession) -> None:
        if session is self._session:
            self.conversations.set_current(session.conversation_id)
            self._refresh_title()
        self._mark_writing()
        self._forget_if_done(session)

    def _refresh_title(self) -> None:
        saved = self._session.conversation_id is not None
        self.rename_button.setVisible(saved)
        self.delete_button.setVisible(saved)
        title = self.desk.title_of(self._session.conversation_id)
        if title is not None:
            self.title.set_text(title)
        elif not saved:
            self.title.set_text("New chat")

    def _rename_current(self) -> None:
        if self._session.conversation_id is not None:
            self.show_list()
            self.conversations.edit_title(self._session.conversation_id)

    def _delete_current(self) -> None:
        if self._session.conversation_id is not None:
            self.desk.delete(self._session.conversation_id)

    # --- prompts ----------------------------------------------------------------------------------------------------

    def _count(self) -> None:
        options, model = self._options_quietly(), self._model()
        if options is not None and model is not None and not self._session.busy:
            self.prompts.count_soon(lambda: self._session.draft_request(self.composer.draft(), options, model))

    def _options_quietly(self) -> ChatOptions | None:
        try:
            return self.settings.options()
        except InvalidParameter:
            return None

    def _inspect_draft(self) -> None:
        options, model = self._options(), self._model()
        if options is not None:
            draft = self.composer.draft()
            heading = "What would be sent now" if draft.strip() else "What the last answer is written from"
            self.prompts.inspect(heading, lambda: self._session.draft_request(draft, options, model or ""))

    def _inspect_answer(self, index: int) -> None:
        model = self._model() or ""
        written_by = self._session.messages[index].details.get("model")
        same = not model or written_by in (None, model)
        self.prompts.inspect(
            "What this answer is written from" if same else f"What {model} would write this answer from",
            lambda: self._session.request_behind(index, model),
        )

    def _on_counted(self, tokens: int | None, window: int | None, problem: str) -> None:
        self.settings.show_usage(tokens, window)
        self.composer.show_count(tokens, window, problem)
