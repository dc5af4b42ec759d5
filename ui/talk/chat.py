"""The chat page: conversations on the left, messages and composer in the middle, how to answer on the right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import Slot

from engine.errors import InvalidParameter, MillmError
from engine.events import ConversationsChanged, Event, ModelLoadComplete
from engine.public.library import ConversationRecord, ExperimentRecord
from ui.context.page_context import HOME, PageContext
from ui.context.record_keeping import RecordKeeper
from ui.kit.basics import Button
from ui.kit.chat_options import ChatOptions
from ui.kit.chat_state import ConversationMessage
from ui.kit.steer_targets import TargetKind
from ui.kit.text import describe_error
from ui.kit.token_text import Coloured
from ui.talk.chat_frame import ChatFrame
from ui.talk.chat_session import ChatSession, TurnState
from ui.talk.chat_side import FEATURES
from ui.talk.compare_message import CompareMessage
from ui.talk.conversation_saving import ConversationExport
from ui.talk.conversations import ConversationDesk
from ui.talk.dial_desk import DialDesk
from ui.talk.first_steps import COMPARED_KEY
from ui.talk.gate import ModelGate
from ui.talk.left_off import LeftOff
from ui.talk.lens import Lens, prompt_ids
from ui.talk.message_view import AnswerMessage
from ui.talk.options import OptionsKeeper
from ui.talk.prompts import PromptDesk

_STATES = {
    TurnState.WAITING: "Waiting for its turn…",
    TurnState.READING: "Reading the prompt…",
    TurnState.WRITING: "",
    TurnState.IDLE: "",
}


class ChatPage(ChatFrame):
    """Joins one :class:`ChatSession` at a time to the widgets; one left while writing goes on and saves itself."""

    FOLLOWS = (ConversationsChanged, *ModelGate.FOLLOWS, *DialDesk.FOLLOWS, *Lens.FOLLOWS)

    def __init__(self, frame: PageContext) -> None:
        super().__init__()
        self._frame = frame
        self._engine = engine = frame.engine
        self._bridge = bridge = frame.bridge
        self._sessions: list[ChatSession] = []
        """The one on screen, and those left behind that are still writing or saving."""
        self._session = self._make_session()
        self.desk = ConversationDesk(engine, bridge, self.conversations, self)
        self.prompts = PromptDesk(engine, bridge, self)
        self.gate = ModelGate(engine, bridge, self.composer, frame.demo, self._say_error, self)
        self.dial = DialDesk(frame, self.strip, self)
        self.lens = Lens(frame, self.side.lens, self)
        self.records = RecordKeeper(frame, self._say_error, self)
        self.exporting = ConversationExport(frame, self.composer.notice, self)
        self._keeper = OptionsKeeper(engine.library, bridge, self.settings, self)
        self._left_off = LeftOff(frame, self)
        self._taken: tuple[int | None, int] | None = None
        """The conversation that was taken up again, and how many messages it had."""
        self._has_compared = False
        self._coloured: list[ConversationMessage] = []
        """Answers a person wants in colour."""
        self._held = False
        """The draft is to be sent as soon as what was chosen steers."""
        self._wire()
        self._bind(self._session)
        self._refresh_title()
        self.desk.refresh()
        self.gate.refresh()
        self.dial.refresh()

    def _wire(self) -> None:
        self.rename_button.clicked.connect(lambda: self._rename_current())
        self.delete_button.clicked.connect(lambda: self._delete_current())
        self.export_button.clicked.connect(lambda: self._export())
        self.composer.send.connect(self._send)
        self.composer.stop.connect(self.stop)
        self.composer.changed.connect(self._count)
        self.composer.changed.connect(self._let_go)
        self.dial.changed.connect(self._send_held)
        self.messages.again.connect(self._again)
        self.messages.go_on.connect(self._go_on)
        self.messages.edited.connect(self._edit)
        self.messages.colour.connect(self._toggle_colours)
        self.messages.keep.connect(self._keep_record)
        self.compare_button.clicked.connect(self.set_comparing)
        self.strip.released.connect(self.focus_input)
        self.compare_button.toggled.connect(self._note_left)
        self._left_off.found.connect(self._take_up)
        self.lens.feature_changed.connect(self._recolour)
        self.lens.coloured.connect(self._show_colours)
        self.records.kept.connect(self._on_kept)
        self.records.not_kept.connect(self._on_not_kept)
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
        self.gate.opened.connect(lambda: self._keeper.follow(self._engine.shelf.resident, self._frame.services.demo))
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

    def _note_left(self) -> None:
        self._left_off.note(self._session.conversation_id, self.comparing)

    def _take_up(self, conversation: ConversationRecord | None, comparing: bool) -> None:
        """Go on where the person left off, unless something else was begun meanwhile."""
        begun = self._session.messages and (self._session.conversation_id, len(self._session.messages)) != self._taken
        if begun or self.composer.draft().strip():
            return
        if conversation is not None:
            self.open_record(conversation)
            self._taken = (conversation.id, len(self._session.messages))
        self.set_comparing(comparing)

    def arrive(
        self,
        conversation: int | None = None,
        *,
        compare: bool | None = None,
        steer: tuple[str, str] | None = None,
        intensity: float | None = None,
        prompt: str | None = None,
    ) -> None:
        """Come to the front, with a kept conversation open where one is named.

        Args:
            compare: Write plain and steered answers side by side, or not.
            steer: Kind (cluster, profile, circuit) and id of what the steered side is steered with, its dial at
                ``intensity``.
            prompt: A message to begin with, in an empty conversation; it is not sent.
        """
        if conversation is not None:
            self.desk.open(conversation)
        if prompt is not None:
            if self._session.messages:
                self.new_chat()
            self.composer.field.clear()
            self.composer.set_draft(prompt)
        if compare is not None:
            self.set_comparing(compare)
        if steer is not None:
            self.dial.choose_soon(TargetKind(steer[0]), steer[1], intensity)
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
        self._left_off.write()
        for session in self._sessions:
            session.close()

    # --- events -----------------------------------------------------------------------------------------------------

    @Slot(object)
    def on_event(self, event: Event) -> None:
        """Follow the engine."""
        if isinstance(event, ConversationsChanged):
            self.desk.refresh()
        else:
            if isinstance(event, ModelLoadComplete):
                self._left_off.on_loaded(event.model_name)
            self.gate.on_event(event)
            self.dial.on_event(event)
            self.lens.on_event(event, self._session.request_ids)

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

    def _send_held(self) -> None:
        if self._held and not self.dial.busy:
            self._held = False
            self.composer.submit()

    def _let_go(self) -> None:
        # What is written on is not what was to be sent.
        self._held = False

    def _send(self, text: str) -> None:
        if self.dial.choosing:
            # The answer is to be steered by what was just chosen, however quickly Enter follows.
            self.composer.set_draft(text)
            self._held = True
            return
        options, model = self._options(), self._model()
        if options is None or model is None:
            self.composer.set_draft(text)
            self.gate.refresh()
            return
        self._start(lambda: self._session.send(text, options, model, compare=self.comparing))

    def _again(self) -> None:
        options, model = self._options(), self._model()
        if options is None or model is None:
            self.gate.refresh()
            return
        self._start(lambda: self._session.regenerate(options, model, compare=self.comparing))

    def _go_on(self) -> None:
        options, model = self._options(), self._model()
        if options is None or model is None:
            self.gate.refresh()
            return
        self._start(lambda: self._session.go_on(options, model))

    def _edit(self, index: int, text: str) -> None:
        options, model = self._options(), self._model()
        if options is None or model is None:
            self.gate.refresh()
            return
        self._start(lambda: self._session.edit(index, text, options, model, compare=self.comparing))
        if dropped := self._session.edit_dropped:
            words = "1 later message was" if dropped == 1 else f"{dropped} later messages were"
            undo = Button("Undo", "plain", "undo", self._undo_edit)
            self.composer.notice.show_words(f"{words} taken away by the edit.", "info", undo)

    def _undo_edit(self) -> None:
        if self._session.busy:
            self._session.stop()
            return
        self._session.undo_edit()
        self.composer.notice.hide()

    def _start(self, begin: Callable[[], None]) -> None:
        self.composer.notice.hide()
        self.lens.begin()
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
        session = self._make_session(record)
        self._switch(session, record.title)
        if session.messages and session.messages[-1].plain is not None:
            self.set_comparing(True)

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
        left.message_changed.disconnect(self._on_changed)
        left.replaced.disconnect(self._on_replaced)
        self._bind(session)
        self._forget_if_done(left)
        self.settings.set_system_prompt(session.system_prompt)
        self.composer.notice.hide()
        self.title.set_text(title or self.desk.title_of(session.conversation_id) or "New chat")
        self._refresh_title()
        self._note_left()

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
        session.message_changed.connect(self._on_changed)
        session.replaced.connect(self._on_replaced)
        self._coloured.clear()
        self.messages.show_all(session.messages)
        self.conversations.set_current(session.conversation_id)
        self._on_state(session)

    @Slot(int)
    def _on_added(self, index: int) -> None:
        self.messages.add(self._session.messages[index])

    @Slot(int)
    def _on_removed(self, _index: int) -> None:
        self.messages.remove_last()

    @Slot()
    def _on_replaced(self) -> None:
        self._coloured.clear()
        self.messages.show_all(self._session.messages)
        self.messages.set_locked(self._session.busy)

    @Slot(int)
    def _on_changed(self, index: int) -> None:
        self.messages.refresh(index)
        message = self._session.messages[index]
        if message.plain is not None and not self._session.busy:
            self._note_compared()
        if not self._session.busy and self.lens.feature is not None and message not in self._coloured:
            self._coloured.append(message)
            self._read(index)

    def _on_saved(self, session: ChatSession) -> None:
        if session is self._session:
            self.conversations.set_current(session.conversation_id)
            self._refresh_title()
            self._note_left()
        self._mark_writing()
        self._forget_if_done(session)

    def _refresh_title(self) -> None:
        saved = self._session.conversation_id is not None
        self.rename_button.setVisible(saved)
        self.delete_button.setVisible(saved)
        self.export_button.setVisible(bool(self._session.messages))
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

    def _export(self) -> None:
        messages = [message.copied() for message in self._session.messages]
        self.exporting.ask(self.title.full_text(), self._session.system_prompt, messages)

    # --- comparing and colours --------------------------------------------------------------------------------------

    @property
    def comparing(self) -> bool:
        """Whether the next answer is written twice, plain and steered."""
        return self.compare_button.isChecked()

    def _note_compared(self) -> None:
        """The first steps show that this was done."""
        if not self._has_compared:
            self._has_compared = True
            state = self._engine.library.state
            self._bridge.run_in_background(lambda: state.set(COMPARED_KEY, True), owner=self)

    def _keep_record(self, index: int) -> None:
        view = self.messages.view(index)
        if isinstance(view, CompareMessage):
            view.mark_kept(True)
        self.records.keep(self._session.messages, index)

    def _on_kept(self, record: ExperimentRecord) -> None:
        self.records.tell(self.composer.notice, record)

    def _on_not_kept(self, message: object) -> None:
        for index, each in enumerate(self._session.messages):
            view = self.messages.view(index)
            if each is message and isinstance(view, CompareMessage):
                view.mark_kept(False)

    def _toggle_colours(self, index: int) -> None:
        message = self._session.messages[index]
        if self.lens.feature is None:
            self.show_side()
            self.side.show_panel(FEATURES)
            self._coloured.append(message)
            self.lens.choose()
        elif message in self._coloured:
            self._coloured.remove(message)
            for view in self._views(message):
                view.clear_colours()
        else:
            self._coloured.append(message)
            self._read(index)

    def _recolour(self) -> None:
        """Another feature, or none: what is in colour is read anew; with nothing in colour, the last answer is."""
        messages = self._session.messages
        if self.lens.feature is not None and not self._coloured and messages and messages[-1].role == "assistant":
            self._coloured.append(messages[-1])
        for index, message in enumerate(messages):
            if message not in self._coloured:
                continue
            if self.lens.feature is not None:
                self._read(index)
            else:
                for view in self._views(message):
                    view.clear_colours()
        if self.lens.feature is None:
            self._coloured.clear()

    def _read(self, index: int) -> None:
        model, message = self._model(), self._session.messages[index]
        if model is None:
            return
        for side in message.sides:
            request = self._session.request_behind(index, model, plain=side is message.plain)
            self.lens.read(side, partial(prompt_ids, self._engine, request))

    def _views(self, message: ConversationMessage) -> list[AnswerMessage]:
        found = []
        for index, each in enumerate(self._session.messages):
            view = self.messages.view(index)
            if message not in each.sides:
                continue
            if isinstance(view, CompareMessage):
                found += [view.steered, view.plain] if message is each else [view.plain]
            elif isinstance(view, AnswerMessage):
                found.append(view)
        return found

    def _show_colours(self, message: ConversationMessage, coloured: Coloured) -> None:
        if not any(message in each.sides for each in self._coloured):
            return  # they were switched off while it was read
        for view in self._views(message):
            if view.message is message:
                view.show_colours(coloured)

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

    def _inspect_answer(self, index: int, plain: bool = False) -> None:
        model = self._model() or ""
        message = self._session.messages[index]
        details = message.plain.details if plain and message.plain is not None else message.details
        written_by = details.get("model")
        same = not model or written_by in (None, model)
        self.prompts.inspect(
            "What this answer is written from" if same else f"What {model} would write this answer from",
            lambda: self._session.request_behind(index, model, plain=plain),
            details,
        )

    def _on_counted(self, tokens: int | None, window: int | None, problem: str) -> None:
        self.settings.show_usage(tokens, window)
        self.composer.show_count(tokens, window, problem)
