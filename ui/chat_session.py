"""One open conversation: sends turns to the engine, gathers answers, keeps the library's row up to date. No widgets.

Several sessions may write at once: leaving a conversation does not end its answer. All methods run on the GUI thread;
the engine's deltas come in through an :class:`ui.bridge.Inbox`, and preparing and saving go out through the bridge.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum

from PySide6.QtCore import QObject, Signal, Slot

from engine.engine import Engine
from engine.errors import MillmError, NotFound, RequestCancelled
from engine.events import ConversationsChanged
from engine.generation.request import (
    ChoiceFinished,
    Delta,
    GenerationRequest,
    RequestFailed,
    RequestFinished,
    Started,
    TextDelta,
)
from engine.generation.service import PreparedRequest, RequestHandle
from engine.library.records import ConversationRecord, StoredMessage
from ui.bridge import Bridge, Inbox
from ui.chat_state import ChatMessage, ChatOptions, build_request, up_to_last_question
from ui.words import title_of


class TurnState(StrEnum):
    """Where the answer being written stands."""

    IDLE = "idle"
    WAITING = "waiting"  # rendered, queued
    READING = "reading"  # the model reads the prompt
    WRITING = "writing"


@dataclass
class _Turn:
    """One answer under way. ``question`` is what was typed; None when an answer is written again."""

    inbox: Inbox
    question: str | None
    former: ChatMessage | None
    handle: RequestHandle | None = None
    stop_wanted: bool = False


class ChatSession(QObject):
    """The messages of one conversation and the turn under way."""

    message_added = Signal(int)
    message_removed = Signal(int)
    message_changed = Signal(int)
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
        self.messages = [ChatMessage.from_stored(message) for message in record.messages] if record else []
        self.state = TurnState.IDLE
        self._turn: _Turn | None = None
        self._discarded = False
        self._saving = False
        self._save_again = False
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

    # --- turns ------------------------------------------------------------------------------------------------------

    def send(self, text: str, options: ChatOptions, model: str) -> None:
        """Add the person's message and begin the answer. Outcomes come as signals."""
        if self.busy:
            return
        self._append(ChatMessage("user", text))
        self._begin(text, None, options, model)

    def regenerate(self, options: ChatOptions, model: str) -> None:
        """Write the last answer again; the former one comes back if nothing is written."""
        if self.busy or not self.messages or self.messages[-1].role != "assistant":
            return
        former = self.messages.pop()
        self.message_removed.emit(len(self.messages))
        self._begin(None, former, options, model)

    def stop(self) -> None:
        """End the answer under way; what was written stays."""
        if self._turn is None:
            return
        self._turn.stop_wanted = True
        if self._turn.handle is not None:
            self._turn.handle.cancel()

    def discard(self) -> None:
        """The conversation was deleted: end the answer and write nothing to the library any more."""
        self._discarded = True
        self.stop()

    def close(self) -> None:
        """The window closes: end the answer and save what there is, now, before the library is closed."""
        if self._turn is None:
            return
        turn = self._turn
        turn.inbox.close()
        self.stop()
        self._settle({"finish_reason": "stopped"})
        self._turn = None
        if not self._discarded:
            self._write(*self._snapshot())

    def draft_request(self, draft: str, options: ChatOptions, model: str) -> GenerationRequest | None:
        """What sending ``draft`` would ask the engine; with an empty draft, what the last answer was asked with.

        None where there is nothing to send. Raises InvalidParameter.
        """
        settled = self.messages[:-1] if self.busy else self.messages
        turns = [*settled, ChatMessage("user", draft)] if draft.strip() else up_to_last_question(settled)
        return build_request(model, turns, options) if turns else None

    def request_behind(self, index: int, model: str) -> GenerationRequest:
        """What the answer at ``index`` was asked with, its own system prompt included. Raises InvalidParameter."""
        system_prompt = self.messages[index].details.get("system_prompt", self.system_prompt)
        return build_request(model, self.messages[:index], ChatOptions(system_prompt=str(system_prompt)))

    def _begin(self, question: str | None, former: ChatMessage | None, options: ChatOptions, model: str) -> None:
        inbox = Inbox(parent=self)
        turn = _Turn(inbox, question, former)
        self._turn = turn
        self.system_prompt = options.system_prompt
        details: dict[str, object] = {
            "model": model,
            "sampling": options.to_json(),
            "system_prompt": options.system_prompt,
        }
        self._append(ChatMessage("assistant", "", details))
        self._set_state(TurnState.WAITING)
        inbox.arrived.connect(self._on_deltas)
        try:
            request = build_request(model, self.messages[:-1], options)
        except MillmError as error:
            self._withdraw(error)
            return
        generation = self._engine.generation

        def submit() -> tuple[PreparedRequest, RequestHandle]:
            prepared = generation.prepare(request)
            return prepared, generation.submit(prepared, inbox.put)

        def submitted(outcome: tuple[PreparedRequest, RequestHandle]) -> None:
            prepared, handle = outcome
            if self._turn is not turn:
                handle.cancel()
                return
            turn.handle = handle
            if prepared.notes:
                self.messages[-1].details["notes"] = list(prepared.notes)
            if turn.stop_wanted:
                handle.cancel()

        def refused(error: Exception) -> None:
            if self._turn is turn:
                self._withdraw(error)

        self._bridge.run_in_background(submit, submitted, refused, owner=self)

    @Slot(list)
    def _on_deltas(self, deltas: list[Delta]) -> None:
        if self._turn is None:
            return
        answer = self.messages[-1]
        grown = False
        for delta in deltas:
            match delta:
                case Started():
                    answer.details["backend"] = delta.backend
                    self._set_state(TurnState.READING)
                    self._save()
                case TextDelta():
                    answer.content += delta.text
                    answer.details["completion_tokens"] = delta.completion_tokens
                    grown = True
                    self._set_state(TurnState.WRITING)
                case ChoiceFinished():
                    answer.details["finish_reason"] = delta.reason.value
                    answer.details["completion_tokens"] = delta.completion_tokens
                case RequestFinished():
                    self._finish(
                        {
                            "prompt_tokens": delta.usage.prompt_tokens,
                            "completion_tokens": delta.usage.completion_tokens,
                            "cached_tokens": delta.usage.cached_tokens,
                            "seconds_queued": delta.seconds_queued,
                            "seconds_to_first_token": delta.seconds_to_first_token,
                            "seconds_total": delta.seconds_total,
                            **self._steering_of(delta),
                        }
                    )
                    return
                case RequestFailed():
                    self._fail(delta.error)
                    return
        if grown:
            self.message_changed.emit(len(self.messages) - 1)

    def _steering_of(self, finished: RequestFinished) -> dict[str, object]:
        """What steered an answer, as plain values, a circuit's name beside its id."""
        report = finished.steering.as_dict()
        names = {one.circuit_id: one.name for one in self._engine.desk.state.circuits}
        for item in report["items"]:
            if item["kind"] == "circuit" and item["id"] in names:
                item["name"] = names[item["id"]]
        return {"steering": report, "rung": finished.rung}

    # --- endings ----------------------------------------------------------------------------------------------------

    def _fail(self, error: MillmError) -> None:
        stopped = isinstance(error, RequestCancelled)
        if not self.messages[-1].content:
            self._withdraw(None if stopped else error)
        elif stopped:
            self._finish({"finish_reason": "stopped"})
        else:
            self._finish({"finish_reason": "error", "error": error.one_line()})

    def _finish(self, details: dict[str, object]) -> None:
        self._settle(details)
        self._end_turn()
        self.message_changed.emit(len(self.messages) - 1)
        self._save()

    def _settle(self, details: dict[str, object]) -> None:
        answer = self.messages[-1]
        answer.details.update(details)
        if not answer.content and answer.details.get("finish_reason") == "stopped":
            self.messages.pop()
            self.message_removed.emit(len(self.messages))

    def _withdraw(self, error: Exception | None) -> None:
        """Take the unanswered turn back, so that the conversation is as it was before."""
        turn = self._turn
        if turn is None:
            return
        self._pop()
        if turn.former is not None:
            self._append(turn.former)
        elif turn.question is not None:
            self._pop()
        self._end_turn()
        self._save()
        self.withdrawn.emit(error, turn.question)

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.inbox.close()
            self._turn.inbox.deleteLater()
            self._turn = None
        self._set_state(TurnState.IDLE)

    # --- the library ------------------------------------------------------------------------------------------------

    def _snapshot(self) -> tuple[str, str, list[StoredMessage]]:
        kept = [m for m in self.messages if m.content or m.details.get("finish_reason")]
        first = next((m.content for m in kept if m.role == "user"), "")
        return title_of(first), self.system_prompt, [message.stored() for message in kept]

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

    def _write(self, title: str, system_prompt: str, messages: list[StoredMessage]) -> int | None:
        """Create, replace or (without messages) remove the row. From any thread; returns its id."""
        conversations = self._engine.library.conversations
        with self._row_lock:
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

    def _append(self, message: ChatMessage) -> None:
        self.messages.append(message)
        self.message_added.emit(len(self.messages) - 1)

    def _pop(self) -> None:
        self.messages.pop()
        self.message_removed.emit(len(self.messages))

    def _set_state(self, state: TurnState) -> None:
        if state != self.state:
            self.state = state
            self.state_changed.emit()
