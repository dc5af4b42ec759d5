"""The requests of late, for a person who wants to see who asks and what was done: kept in memory, a bounded number.

No text of a prompt or an answer and no value of a field is kept, only where fields stand and what was measured.
``server/in_flight.py`` begins and ends each entry; routes add what they learn to its :class:`RequestNotes`.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from engine.checked import there
from engine.events import RequestRecorded
from engine.public.generation import ChoiceFinished, Delta, FinishReason, RequestFailed, RequestFinished, TextDelta
from engine.public.steering import SteeringPath
from server.dialects import owner_of

LIMIT = 500
"""Requests that are remembered."""

MAX_TEXT = 120
_UNWANTED = re.compile(r"[^\x20-\x7e]")
_PRODUCT = re.compile(r"([A-Za-z][\w.+-]*(?: [A-Za-z][\w.+-]*)?)(?:/([\w.+-]+))?")
_KNOWN = {"OpenAI": "openai", "AsyncOpenAI": "openai (async)"}


@dataclass
class RequestNotes:
    """What is learnt about one request on its way. Written on the server's loop, the times on the engine's thread.

    Attributes:
        model: The name the library has it under.
        steering_path: Of choices whose steering changed while they were written, each steering with the token it began
            at (0: the prompt): ``{choice, token, steering}``.
        first_token_at, last_at: ``time.monotonic()`` of the first text and of the end.
    """

    model: str | None = None
    stream: bool = False
    side_call: str | None = None
    backend: str | None = None
    mode: str | None = None
    steering: str | None = None
    steering_path: tuple[dict[str, Any], ...] = ()
    rung: int | None = None
    only_persistence: bool | None = None
    ignored_fields: tuple[str, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    seconds_queued: float | None = None
    seconds_to_first_token: float | None = None
    error: str | None = None
    param: str | None = None
    first_token_at: float | None = None
    tokens_at_first: int = 0
    last_at: float | None = None
    calls: int = 0
    constrained: str | None = None
    capped: bool = False
    entry: RequestRecorded | None = field(default=None, repr=False)

    def heard(self, delta: Delta) -> None:
        """Note what ``delta`` says; called on the engine's thread as it comes, so that a slow client does not count."""
        if isinstance(delta, TextDelta):
            if self.first_token_at is None:
                self.first_token_at, self.tokens_at_first = time.monotonic(), delta.completion_tokens
            self.calls += sum(piece.opens for piece in delta.pieces)
        elif isinstance(delta, RequestFinished):
            self.last_at = time.monotonic()
            self.prompt_tokens = delta.usage.prompt_tokens
            self.completion_tokens = delta.usage.completion_tokens
            self.seconds_queued = delta.seconds_queued
            self.seconds_to_first_token = delta.seconds_to_first_token
            self.steering, self.rung = delta.steering.text(), delta.rung
            self.only_persistence = None if delta.rung is None else delta.steering.only_persistence
        elif isinstance(delta, ChoiceFinished):
            self._walked(delta.index, delta.path)
            self.capped = self.capped or delta.reason is FinishReason.LENGTH
        elif isinstance(delta, RequestFailed):
            self.error, self.param = delta.error.code, delta.error.param
            if delta.paths:
                # What was written before the end was written under it.
                self.steering, self.rung = delta.steering.text(), delta.rung
            done = {step["choice"] for step in self.steering_path}
            for index, path in delta.paths.items():
                if index not in done:
                    self._walked(index, path)

    def _walked(self, choice: int, path: SteeringPath) -> None:
        """Note each steering of a choice that was turned on its way."""
        if path.turns:
            steps = ({"choice": choice, "token": step.token, "steering": step.report.text()} for step in path.steps)
            self.steering_path = (*self.steering_path, *steps)

    @property
    def tokens_per_second(self) -> float | None:
        """How fast tokens came after the first; None for fewer than two."""
        if self.first_token_at is None or self.last_at is None or self.completion_tokens is None:
            return None
        more, seconds = self.completion_tokens - self.tokens_at_first, self.last_at - self.first_token_at
        return round(more / seconds, 2) if more > 0 and seconds > 0 else None


class RequestLog:
    """Remembers the last :data:`LIMIT` requests and tells of each. All methods may be called from any thread.

    Args:
        publish: Takes each new state of an entry; runs on the server's thread and must return at once.
    """

    def __init__(self, publish: Callable[[RequestRecorded], None], limit: int = LIMIT) -> None:
        self._publish = publish
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, RequestRecorded] = OrderedDict()
        self._next = 1

    def entries(self) -> tuple[RequestRecorded, ...]:
        """What is remembered, the oldest first."""
        with self._lock:
            return tuple(self._entries.values())

    def clear(self) -> None:
        """Forget everything that has ended."""
        with self._lock:
            for number in [number for number, entry in self._entries.items() if entry.status is not None]:
                del self._entries[number]

    def begin(self, scope: Mapping[str, Any]) -> RequestNotes:
        """A request has arrived; ``scope`` is its ASGI scope."""
        notes = RequestNotes()
        with self._lock:
            number, self._next = self._next, self._next + 1
        client = scope.get("client") or ("?",)
        notes.entry = RequestRecorded(
            number=number,
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            method=str(scope.get("method", "WEBSOCKET")),
            path=_path(scope),
            client=client_name(_header(scope, b"user-agent")),
            remote=str(client[0]),
        )
        if _is_work(notes.entry):
            self._keep(notes.entry)
        return notes

    def finish(self, notes: RequestNotes, status: int, seconds: float, *, cut_short: bool) -> None:
        """The request has ended; ``status`` 0 where none was sent."""
        ended = replace(
            there(notes.entry),
            status=status,
            seconds=round(seconds, 3),
            cut_short=cut_short,
            tokens_per_second=notes.tokens_per_second,
            **{name: getattr(notes, name) for name in _FROM_NOTES},
        )
        if _is_work(ended) or (status >= 400 and ended.method != "WEBSOCKET"):
            self._keep(ended)

    def _keep(self, entry: RequestRecorded) -> None:
        with self._lock:
            if entry.status is not None and entry.number not in self._entries and _is_work(entry):
                # It arrived so long ago that newer ones have pushed it out.
                return
            self._entries[entry.number] = entry
            while len(self._entries) > self._limit:
                self._entries.popitem(last=False)
        self._publish(entry)


_FROM_NOTES = (
    "model",
    "stream",
    "side_call",
    "backend",
    "mode",
    "steering",
    "steering_path",
    "rung",
    "only_persistence",
    "ignored_fields",
    "prompt_tokens",
    "completion_tokens",
    "seconds_queued",
    "seconds_to_first_token",
    "error",
    "param",
    "calls",
    "constrained",
    "capped",
)


def client_name(agent: str) -> str:
    """A User-Agent as a person would name the program: its first product with version, printable and short."""
    match = _PRODUCT.match(agent.strip())
    if match is None:
        return "unknown"
    name, version = match.group(1), match.group(2) or ""
    if name.split("/")[0] in _KNOWN:
        # "OpenAI/Python 3.51.0": the version stands in the second word.
        rest = re.search(r"/\w+ ([\d.]+)", agent)
        return f"{_KNOWN[name]} {rest.group(1) if rest else version}".strip()
    return f"{name} {version}".strip()[:MAX_TEXT]


def _is_work(entry: RequestRecorded) -> bool:
    """Whether it is listed however it ends: what asks a model, and what changes something. Reading state is not."""
    if entry.method in ("WEBSOCKET", "OPTIONS", "HEAD"):
        return False
    dialect = owner_of(entry.path)
    if dialect is None or entry.path in dialect.roots:
        return False
    return dialect.lists_reading or entry.method != "GET"


def _path(scope: Mapping[str, Any]) -> str:
    """Without the query, which may hold what a person wrote."""
    return _UNWANTED.sub("?", bytes(scope.get("raw_path", b"")).decode("ascii", "replace"))[:MAX_TEXT]


def _header(scope: Mapping[str, Any], name: bytes) -> str:
    value = next((value for key, value in scope.get("headers", ()) if key.lower() == name), b"")
    return _UNWANTED.sub("", value.decode("latin-1"))[:MAX_TEXT]
