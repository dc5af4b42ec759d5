"""One open conversation: sends turns to the engine, gathers answers, keeps the library's row up to date. No widgets.

Several sessions may write at once: leaving a conversation does not end its answer. All methods run on the GUI thread;
each answer is written by a :class:`ui.talk.answer_stream.AnswerStream`, and preparing and saving go out through the
bridge. A comparison is two answers to one question, a steered and a plain one, written at the same time from the same
noise.
"""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field, replace

from PySide6.QtCore import QObject, QTimer, Signal

from engine.engine import Engine
from engine.errors import MillmError, NotFound
from engine.events import ConversationsChanged
from engine.public.generation import GenerationRequest, PreparedRequest, RequestHandle
from engine.public.library import ConversationRecord, StoredMessage
from ui.bridge import Bridge
from ui.kit.chat_options import ChatOptions
from ui.kit.chat_state import ConversationMessage, build_request, up_to_last_question
from ui.kit.text import title_of
from ui.talk.answer_stream import AnswerStream, TurnState

__all__ = ["ChatSession", "TurnState"]

KEEP_EVERY_MS = 3000
"""How much of an answer is lost at most where the program is ended hard."""


@dataclass
class _Turn:
    """Answers under way. ``question`` is what was typed; None when an answer is written again or goes on.

    ``before`` are the messages to go back to where nothing is written.
    """

    question: str | None
    before: list[ConversationMessage]
    pens: list[AnswerStream] = field(default_factory=list)
    stop_wanted: bool = False
    kept: int = 0
    """Characters that are in the library already; 0 before the first save that holds some of the answer."""

    @property
    def written(self) -> int:
        """Characters that are there."""
        return sum(pen.message.written for pen in self.pens)

    @property
    def state(self) -> TurnState:
        """How far the one that is furthest is."""
        order = (TurnState.WRITING, TurnState.READING, TurnState.WAITING)
        found = {pen.state for pen in self.pens}
        return next((state for state in order if state in found), TurnState.WAITING)


class ChatSession(QObject):
    """The messages of one conversation and the turn under way."""

    message_added = Signal(int)
    message_removed = Signal(int)
    message_changed = Signal(int)
    replaced = Signal()
    """Several messages are others than before."""
    state_changed = Signal()
    withdrawn = Signal(object, object)
    """Nothing was written: (the error or None when stopped, the question to give back or None)."""
    saved = Signal(object)
    """The row's id, or None when nothing was left to keep."""
    save_failed = Signal(object)

    def __init__(self, engine: Engine, bridge: Bridge, record: ConversationRecord | None = None) -> None:
        super().__init__()
        self._engine = engine
        self._bridge = bridge
        self.conversation_id: int | None = record.id if record else None
        self.system_prompt = record.system_prompt if record else ""
        self.messages = [ConversationMessage.from_stored(message) for message in record.messages] if record else []
        self.state = TurnState.IDLE
        self._turn: _Turn | None = None
        self._before_edit: list[ConversationMessage] | None = None
        self._discarded = False
        self._saving = False
        self._save_again = False
        self._closed = False
        self._keeping = QTimer(self)
        self._keeping.setInterval(KEEP_EVERY_MS)
        self._keeping.timeout.connect(self.keep)
        # Held while a row is written, so that the save at closing never makes a second row.
        self._row_lock = threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether an answer is under way."""
        return self._turn is not None

    @property
    def settled(self) -> bool:
        """Whether nothing is under way, neither an answer nor a save."""
        return self._turn is None and not self._saving

    @property
    def request_ids(self) -> tuple[str, ...]:
        """What monitoring calls the answers under way, the steered one first."""
        pens = self._turn.pens if self._turn is not None else []
        return tuple(pen.request_id for pen in pens if pen.request_id is not None)

    # --- turns ------------------------------------------------------------------------------------------------------

    def send(self, text: str, options: ChatOptions, model: str, *, compare: bool = False) -> None:
        """Add the person's message and begin the answer, or the two of a comparison. Outcomes come as signals."""
        if self.busy:
            return
        before = list(self.messages)
        self._before_edit = None
        self._append(ConversationMessage("user", text))
        self._begin(_Turn(text, before), options, model, compare=compare)

    def regenerate(self, options: ChatOptions, model: str, *, compare: bool = False) -> None:
        """Write the last answer again; the former one comes back if nothing is written."""
        if self.busy or not self.messages or self.messages[-1].role != "assistant":
            return
        before = list(self.messages)
        self._before_edit = None
        self.messages.pop()
        self.message_removed.emit(len(self.messages))
        self._begin(_Turn(None, before), options, model, compare=compare)

    def go_on(self, options: ChatOptions, model: str) -> None:
        """Continue the last answer where it was cut; of a comparison, each side that was."""
        if self.busy or not self.messages:
            return
        answer = self.messages[-1]
        cut = [side for side in answer.sides if answer.role == "assistant" and side.ended_early]
        if not cut:
            return
        turn = _Turn(None, [*self.messages[:-1], answer.copied()])
        noise = _noise(options) if answer.plain is not None else None
        history = self.messages[:-1]
        jobs = [
            (side, [*history, ConversationMessage("assistant", side.content, reasoning=side.reasoning)]) for side in cut
        ]
        self._run(turn, [(side, turns, side is answer.plain) for side, turns in jobs], options, model, noise)

    def edit(self, index: int, text: str, options: ChatOptions, model: str, *, compare: bool = False) -> None:
        """Put ``text`` in the place of the person's message at ``index``, drop what follows, and answer it."""
        if self.busy or not 0 <= index < len(self.messages) or self.messages[index].role != "user":
            return
        before = list(self.messages)
        del self.messages[index:]
        self.messages.append(ConversationMessage("user", text))
        self.replaced.emit()
        self._before_edit = before
        self._begin(_Turn(None, before), options, model, compare=compare)

    @property
    def edit_dropped(self) -> int:
        """How many messages the last edit took away, beside the answer that is written anew; 0 once it cannot be taken
        back.
        """
        return 0 if self._before_edit is None else max(0, len(self._before_edit) - len(self.messages))

    def undo_edit(self) -> None:
        """Bring the messages before the last edit back."""
        if self.busy or self._before_edit is None:
            return
        self.messages, self._before_edit = self._before_edit, None
        self.replaced.emit()
        self._save()

    def stop(self) -> None:
        """End the answer under way; what was written stays."""
        if self._turn is None:
            return
        self._turn.stop_wanted = True
        for pen in self._turn.pens:
            pen.cancel()

    def discard(self) -> None:
        """The conversation was deleted: end the answer and write nothing to the library any more."""
        self._discarded = True
        self.stop()

    def close(self) -> None:
        """The window closes: end the answer and save what there is, now, before the library is closed."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self._closed = True
        self._keeping.stop()
        for pen in turn.pens:
            pen.close()
        if not any(pen.wrote for pen in turn.pens):
            self.messages = (
                turn.before if turn.question is None else [*turn.before, ConversationMessage("user", turn.question)]
            )
        if not self._discarded:
            self._write(*self._snapshot(), last=True)

    def draft_request(self, draft: str, options: ChatOptions, model: str) -> GenerationRequest | None:
        """What sending ``draft`` would ask the engine; with an empty draft, what the last answer was asked with.

        None where there is nothing to send. Raises InvalidParameter.
        """
        settled = self.messages[:-1] if self.busy else self.messages
        turns = [*settled, ConversationMessage("user", draft)] if draft.strip() else up_to_last_question(settled)
        return build_request(model, turns, options) if turns else None

    def request_behind(self, index: int, model: str, *, plain: bool = False) -> GenerationRequest:
        """What the answer at ``index`` (``plain``: the one beside it) was asked with, its own system prompt included.

        Raises InvalidParameter.
        """
        system_prompt = self.messages[index].details.get("system_prompt", self.system_prompt)
        return build_request(model, self.messages[:index], ChatOptions(system_prompt=str(system_prompt)), plain=plain)

    def _begin(self, turn: _Turn, options: ChatOptions, model: str, *, compare: bool) -> None:
        """Add an empty answer to what is there, and have it written."""
        noise = _noise(options) if compare else None
        details: dict[str, object] = {
            "model": model,
            "sampling": options.to_json(),
            "system_prompt": options.system_prompt,
        }
        if noise is not None:
            details["noise_seed"] = noise
        history = list(self.messages)
        plain = ConversationMessage("assistant", "", dict(details)) if compare else None
        answer = ConversationMessage("assistant", "", details, plain)
        self._append(answer)
        self._run(turn, [(side, history, side is plain) for side in answer.sides], options, model, noise)

    def _run(
        self,
        turn: _Turn,
        jobs: list[tuple[ConversationMessage, list[ConversationMessage], bool]],
        options: ChatOptions,
        model: str,
        noise: int | None,
    ) -> None:
        """Have each (message, messages before it, whether it is plain) written, all in one batch."""
        self.system_prompt = options.system_prompt
        self._turn = turn
        for message, _history, _plain in jobs:
            pen = AnswerStream(message, self._circuit_names, self)
            pen.grown.connect(self._on_grown)
            pen.moved.connect(self._on_moved)
            pen.ended.connect(self._on_ended)
            turn.pens.append(pen)
        self._set_state(TurnState.WAITING)
        self.message_changed.emit(len(self.messages) - 1)
        try:
            requests = [
                build_request(model, history, options, plain=plain, noise_seed=noise)
                for _message, history, plain in jobs
            ]
        except MillmError as error:
            self._withdraw(error)
            return
        pens = list(turn.pens)

        def submitted(outcome: list[tuple[PreparedRequest, RequestHandle]]) -> None:
            for pen, (prepared, handle) in zip(pens, outcome, strict=True):
                if self._turn is not turn:
                    handle.cancel()
                    continue
                pen.take(prepared, handle)
                if turn.stop_wanted:
                    handle.cancel()

        def refused(error: Exception) -> None:
            if self._turn is turn:
                self._withdraw(error)

        self._bridge.run_in_background(lambda: _submit(self._engine, requests, pens), submitted, refused, owner=self)

    def _circuit_names(self) -> dict[str, str]:
        return {one.circuit_id: one.name for one in self._engine.desk.state.circuits}

    # --- what the pens say ------------------------------------------------------------------------------------------

    def _on_grown(self) -> None:
        if self._turn is not None:
            self.message_changed.emit(len(self.messages) - 1)

    def _on_moved(self) -> None:
        if self._turn is None:
            return
        begun = self.state is TurnState.WAITING and self._turn.state is not TurnState.WAITING
        self._set_state(self._turn.state)
        if begun:
            # What is written anew stands in the library until there is something in its place.
            if self._turn.question is not None:
                self._save()
            self._keeping.start()

    def _on_ended(self) -> None:
        turn = self._turn
        if turn is None:
            return
        if not all(pen.done for pen in turn.pens):
            self.message_changed.emit(len(self.messages) - 1)
            return
        failed = next((pen.error for pen in turn.pens if pen.error is not None), None)
        cut = [pen for pen in turn.pens if pen.message.details.get("finish_reason") in ("stopped", "error")]
        if len(cut) == len(turn.pens) and not any(pen.wrote for pen in turn.pens):
            self._withdraw(failed)
            return
        self._end_turn()
        self.message_changed.emit(len(self.messages) - 1)
        self._save()

    def _withdraw(self, error: Exception | None) -> None:
        """Take the unanswered turn back, so that the conversation is as it was before."""
        turn = self._turn
        if turn is None:
            return
        self.messages = turn.before
        self._before_edit = None
        self._end_turn()
        self.replaced.emit()
        self._save()
        self.withdrawn.emit(error, turn.question)

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        self._keeping.stop()
        if turn is not None:
            for pen in turn.pens:
                pen.inbox.close()
                pen.deleteLater()
        self._set_state(TurnState.IDLE)

    # --- the library ------------------------------------------------------------------------------------------------

    def _snapshot(self) -> tuple[str, str, list[StoredMessage]]:
        kept = [m for m in self.messages if any(side.written or side.details.get("finish_reason") for side in m.sides)]
        first = next((m.content for m in kept if m.role == "user"), "")
        return title_of(first), self.system_prompt, [self._as_far(message).stored() for message in kept]

    def _as_far(self, message: ConversationMessage) -> ConversationMessage:
        """``message`` as it is to be kept: what is still being written of it as cut off there."""
        under_way = {id(pen.message): pen for pen in (self._turn.pens if self._turn else ()) if not pen.done}
        sides = [under_way[id(side)].so_far() if id(side) in under_way else side for side in message.sides]
        if not any(id(side) in under_way for side in message.sides):
            return message
        return replace(sides[0], plain=sides[1] if len(sides) > 1 else None)

    def keep(self) -> None:
        """Write what has come of the answer so far, so that it outlives the program; called every few seconds.

        Only the answer's row is written, once the rest stands in the library as it is here.
        """
        turn = self._turn
        if turn is None or self._saving or self._discarded or turn.written <= turn.kept:
            return
        first, turn.kept = not turn.kept, turn.written
        if first or self.conversation_id is None:
            self._save()
            return
        self._saving = True
        _title, _system, messages = self._snapshot()
        position, message = len(messages) - 1, messages[-1]
        self._bridge.run_in_background(
            lambda: self._write_answer(position, message), self._on_saved, self._on_save_failed, owner=self
        )

    def _write_answer(self, position: int, message: StoredMessage) -> int | None:
        """Write one growing answer. From a background thread."""
        with self._row_lock:
            # The window may have closed meanwhile, and all of it been written.
            if self.conversation_id is not None and not self._closed:
                self._engine.library.conversations.put_message(self.conversation_id, position, message)
        return self.conversation_id

    def _save(self) -> None:
        """Write the conversation in the background; saves never overtake one another."""
        if self._discarded:
            return
        if self._saving:
            self._save_again = True
            return
        self._saving = True
        snapshot = self._snapshot()
        self._bridge.run_in_background(lambda: self._write(*snapshot), self._on_saved, self._on_save_failed, owner=self)

    def _write(
        self, title: str, system_prompt: str, messages: list[StoredMessage], *, last: bool = False
    ) -> int | None:
        """Create, replace or (without messages) remove the row. From any thread; returns its id. After the ``last``
        one, nothing older is written over it.
        """
        conversations = self._engine.library.conversations
        with self._row_lock:
            if self._closed and not last:
                return self.conversation_id
            if self.conversation_id is not None and messages:
                conversations.replace(self.conversation_id, system_prompt=system_prompt, messages=messages)
            elif self.conversation_id is not None:
                conversations.remove(self.conversation_id)
                self.conversation_id = None
            elif messages:
                self.conversation_id = conversations.create(title, system_prompt, messages).id
        self._engine.events.publish(ConversationsChanged())
        return self.conversation_id

    def _on_saved(self, conversation_id: int | None) -> None:
        self._saving = False
        self.saved.emit(conversation_id)
        if self._save_again:
            self._save_again = False
            self._save()

    def _on_save_failed(self, error: Exception) -> None:
        self._saving = False
        self._save_again = False
        if isinstance(error, NotFound):
            # Deleted elsewhere while it was open: keep it as a new one rather than lose it.
            self.conversation_id = None
            self._save()
        else:
            self.save_failed.emit(error)

    # --- small things -----------------------------------------------------------------------------------------------

    def _append(self, message: ConversationMessage) -> None:
        self.messages.append(message)
        self.message_added.emit(len(self.messages) - 1)

    def _set_state(self, state: TurnState) -> None:
        if state != self.state:
            self.state = state
            self.state_changed.emit()


def _noise(options: ChatOptions) -> int:
    """What both sides of a comparison draw from: the seed that is set, else a number of its own."""
    return secrets.randbits(32) if options.sampling.seed is None else options.sampling.seed


def _submit(
    engine: Engine, requests: list[GenerationRequest], pens: list[AnswerStream]
) -> list[tuple[PreparedRequest, RequestHandle]]:
    """Prepare all, then queue all, so that they are read and written side by side; or none. For a background thread."""
    prepared = [engine.generation.prepare(request) for request in requests]
    sinks = [pen.inbox.put for pen in pens]
    handles = engine.generation.submit_together(list(zip(prepared, sinks, strict=True)))
    for pen, handle in zip(pens, handles, strict=True):
        pen.begun(handle)
    return list(zip(prepared, handles, strict=True))
