"""Writes one answer into a message: gathers the engine's deltas on the GUI thread until the last one. No widgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from engine.errors import MillmError, RequestCancelled
from engine.public.generation import (
    ChoiceFinished,
    Delta,
    PreparedRequest,
    RequestFailed,
    RequestFinished,
    RequestHandle,
    Started,
    TextDelta,
    answer_headers,
)
from engine.public.library import CUT_OFF
from engine.public.steering import NO_PATH, SteeringPath, SteeringReport
from engine.wire import wire
from ui.bridge import Inbox
from ui.kit.chat_state import ConversationMessage, kept_piece
from ui.talk.steering_path import former_steps, going_on

MOST_PIECES = 8192
"""Pieces of an answer kept with their tokens; what is longer is kept as text alone."""


class TurnState(StrEnum):
    """Where an answer that is being written stands."""

    IDLE = "idle"
    WAITING = "waiting"  # rendered, queued
    READING = "reading"  # the model reads the prompt
    WRITING = "writing"


class AnswerStream(QObject):
    """One answer under way. Where it goes on with what is there already, counts and pieces are added to the former.

    Args:
        names: The names of the circuits that serve, by id.
    """

    grown = Signal()
    moved = Signal()
    ended = Signal()

    def __init__(
        self,
        message: ConversationMessage,
        names: Callable[[], dict[str, str]],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self.message = message
        self.state = TurnState.WAITING
        self.error: MillmError | None = None
        """Why it ended without having been finished; None for a person's stop."""
        self.inbox = Inbox(parent=self)
        self.inbox.arrived.connect(self._on_deltas)
        self._names = names
        self._known: dict[str, str] = {}
        self._prepared: PreparedRequest | None = None
        self._warm: int | None = None
        self._early: tuple[SteeringReport, int | None] | None = None
        """What steered it, where the end came before the word that the request was submitted."""
        self._handle: RequestHandle | None = None
        self._path = NO_PATH
        self._begun_with = message.written
        self._former = former_steps(message.details) if message.written else []
        """The path of what was there before, which this goes on from."""
        tokens = message.details.pop("completion_tokens", 0)
        self._tokens = tokens if isinstance(tokens, int) else 0
        pieces = message.details.get("pieces")
        whole = bool(message.written) and not isinstance(pieces, list)
        self._pieces: list[list[object]] | None = None if whole else list(pieces) if isinstance(pieces, list) else []
        for key in ("finish_reason", "error"):
            message.details.pop(key, None)

    @property
    def done(self) -> bool:
        """Whether the last delta has come."""
        return self.state is TurnState.IDLE

    @property
    def wrote(self) -> bool:
        """Whether anything was added to the message."""
        return self.message.written > self._begun_with

    @property
    def request_id(self) -> str | None:
        """What monitoring calls the request; None before it is submitted."""
        return None if self._prepared is None else self._prepared.request.request_id

    def begun(self, handle: RequestHandle) -> None:
        """It runs. From the thread that submitted it: its first words may be here before :meth:`take` is called, and
        whoever closes the window then asks what steered them.
        """
        self._handle = handle

    def take(self, prepared: PreparedRequest, handle: RequestHandle) -> None:
        """The request was submitted."""
        self._prepared, self._handle = prepared, handle
        if self._early is not None:
            self.message.details["headers"] = self._headers(prepared, *self._early)
        if prepared.notes:
            self.message.details["notes"] = list(prepared.notes)

    def cancel(self) -> None:
        """End it before its next token."""
        if self._handle is not None:
            self._handle.cancel()

    def close(self) -> None:
        """Take nothing more; an answer that was not finished counts as stopped."""
        self.inbox.close()
        if not self.done:
            self.cancel()
            self._end({"finish_reason": "stopped", **self._steered_so_far()})

    @Slot(list)
    def _on_deltas(self, deltas: list[Delta]) -> None:
        grown = False
        self._known.update(self._names())
        for delta in deltas:
            if self.done:
                break
            match delta:
                case Started():
                    self.message.details["backend"] = delta.backend
                    self._move(TurnState.READING)
                case TextDelta():
                    self._write(delta)
                    grown = True
                case ChoiceFinished():
                    self.message.details["finish_reason"] = delta.reason.value
                    self._path = delta.path
                    self._count(delta.completion_tokens)
                case RequestFinished():
                    self._finish(delta)
                case RequestFailed():
                    self._fail(delta)
        if grown and not self.done:
            self.grown.emit()

    def _write(self, delta: TextDelta) -> None:
        self.message.content += delta.content
        self.message.reasoning += delta.reasoning
        self._count(delta.completion_tokens)
        if self._pieces is not None:
            self._pieces += [kept_piece(piece) for piece in delta.pieces]
            if len(self._pieces) > MOST_PIECES:
                self._pieces = None
        self._move(TurnState.WRITING)

    def _count(self, tokens: int) -> None:
        self.message.details["completion_tokens"] = self._tokens + tokens

    def _finish(self, delta: RequestFinished) -> None:
        self._warm = delta.usage.cached_tokens
        self._end(
            {
                "prompt_tokens": delta.usage.prompt_tokens,
                "cached_tokens": delta.usage.cached_tokens,
                "seconds_queued": delta.seconds_queued,
                "seconds_to_first_token": delta.seconds_to_first_token,
                "seconds_total": delta.seconds_total,
                **self._steering_of(delta),
            }
        )

    def _fail(self, delta: RequestFailed) -> None:
        self._path = delta.paths.get(0, self._path)
        stopped = isinstance(delta.error, RequestCancelled)
        self.error = None if stopped else delta.error
        ending: dict[str, object] = {"finish_reason": "stopped"}
        if not stopped:
            ending = {"finish_reason": "error", "error": delta.error.one_line()}
        self._end({**ending, **self._steering_of(delta)})

    def so_far(self) -> ConversationMessage:
        """The answer as far as it is written, to be kept in case the program ends before it does."""
        details = {**self.message.details, "finish_reason": CUT_OFF, **self._steered_so_far()}
        if self._pieces is not None:
            details["pieces"] = list(self._pieces)
        return ConversationMessage(self.message.role, self.message.content, details, reasoning=self.message.reasoning)

    def _steered_so_far(self) -> dict[str, object]:
        """What an answer was written under whose last word is not there yet, or is not waited for."""
        if self._handle is None or not self.wrote:
            return {}
        # The engine may be some tokens further than what is here.
        tokens = self.message.details.get("completion_tokens")
        path = self._handle.paths.get(0, NO_PATH).until((tokens if isinstance(tokens, int) else 0) - self._tokens)
        if not path.steps:
            return {}
        changed = path.turns or self._handle.changed
        last = path.steps[-1]
        return self._told(replace(last.report, changed=changed), None if changed else last.rung, path)

    def _steering_of(self, delta: RequestFinished | RequestFailed) -> dict[str, object]:
        return self._told(delta.steering, delta.rung, self._path)

    def _told(self, report: SteeringReport, rung: int | None, path: SteeringPath) -> dict[str, object]:
        """What steered an answer, as plain values, a circuit's name beside its id; and the headers a client gets.

        Where what is written goes on from a text that was steered otherwise, the path is that of both, and no evidence
        is claimed for the whole.
        """
        steps = wire(path.told())
        for step in steps:
            self._name(step["items"])
        steps = going_on(self._former, steps, self._tokens)
        if len(steps) > 1:
            report, rung = replace(report, changed=True), None
        told = wire(report.told())
        if steps:
            told["path"] = steps
        if path.left_out:
            told["path_left_out"] = path.left_out
        self._name(told["items"])
        kept: dict[str, object] = {"steering": told, "rung": rung}
        if self._prepared is not None:
            kept["headers"] = self._headers(self._prepared, report, rung)
        else:
            self._early = (report, rung)
        return kept

    def _name(self, items: list[dict[str, Any]]) -> None:
        """Give circuits their names; one that steered earlier may serve no more by now."""
        for item in items:
            if item["kind"] == "circuit" and item["id"] in self._known:
                item["name"] = self._known[item["id"]]

    def _headers(self, prepared: PreparedRequest, report: SteeringReport, rung: int | None) -> dict[str, str]:
        backend = str(self.message.details.get("backend", ""))
        return answer_headers(prepared, backend, report, rung, warm=self._warm)

    def _end(self, details: dict[str, object]) -> None:
        self.message.details.update(details)
        if self._pieces is not None:
            self.message.details["pieces"] = self._pieces
        else:
            self.message.details.pop("pieces", None)
        self.inbox.close()
        self._move(TurnState.IDLE)
        self.ended.emit()

    def _move(self, state: TurnState) -> None:
        if state is not self.state:
            self.state = state
            self.moved.emit()
