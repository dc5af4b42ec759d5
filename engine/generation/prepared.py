"""A request that is ready to be run, and its owner's side of it once it was submitted.

Values and flags: whoever prepares, submits or waits needs no lane and no torch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from engine.generation.constraint import CompiledConstraint
from engine.generation.prompts import PreparedPrompt
from engine.generation.request import GenerationRequest
from engine.generation.tools.guard import CompiledCalls
from engine.monitor.capture import CapturePlan
from engine.steering.path import SteeringPath
from engine.steering.resolve import ResolvedSteering

if TYPE_CHECKING:
    from engine.models.registry import LoadedModel


@dataclass(frozen=True)
class PreparedRequest:
    """A request rendered and tokenized for a resident model, with its caps resolved.

    Attributes:
        caps: Most tokens to write, per prompt.
        continues: Per prompt, whether the answer goes on with its own text (raw prompts, a trailing assistant message).
        solo: Runs in passes of its own: it promises the same bytes again, or rows are not batched here.
        steering: What it runs with.
        capture: Which activations are read along, where any are asked for.
        own_stops: Stop strings beside the request's: how a model without a chat template closes a turn.
        constraint: What the answer must look like, compiled.
        calls: What its calls must look like, compiled, where it may have any.
        shown_ids: Tokens that calls are made of and that otherwise show nothing.
        unused_tools: Names of offered tools that the model is not shown.
        own_ends: Tokens that end the answer and show nothing, beside the model's end tokens.
        unread_variables: Template variables of the request that the model's template never reads.
        pauses: Per prompt whose tokens are reported, where its reading pauses (:func:`where_to_part`); empty: nowhere.
        notes: What was changed to make the prompt work, in words.
    """

    request: GenerationRequest
    loaded: LoadedModel
    prompts: tuple[PreparedPrompt, ...]
    caps: tuple[int, ...]
    continues: tuple[bool, ...]
    solo: bool
    steering: ResolvedSteering
    capture: CapturePlan | None = None
    own_stops: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unread_variables: tuple[str, ...] = ()
    constraint: CompiledConstraint | None = None
    calls: CompiledCalls | None = None
    shown_ids: frozenset[int] = frozenset()
    unused_tools: tuple[str, ...] = ()
    own_ends: frozenset[int] = frozenset()
    pauses: tuple[tuple[int, ...], ...] = ()

    @property
    def model_name(self) -> str:
        """The resident model's library name."""
        return self.loaded.record.name

    @property
    def max_tokens(self) -> int:
        """The largest cap of all prompts."""
        return max(self.caps)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each counted once however many choices share it."""
        return sum(len(prompt.token_ids) for prompt in self.prompts)


class RequestHandle:
    """The owner's side of a submitted request: cancel it, ask whether it ended. Thread-safe."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._cancelled = threading.Event()
        self._done = threading.Event()
        self.paths: Mapping[int, SteeringPath] = MappingProxyType({})
        """What has steered each choice that has begun, as far as it is written: replaced, never changed."""
        self.changed = False
        """Whether somebody wrote to the live steering it follows."""

    def cancel(self) -> None:
        """End it before its next token, wherever it is: queued, in prefill or decoding. Harmless when it has ended."""
        self._cancelled.set()
        self._wake()

    @property
    def cancelled(self) -> bool:
        """Whether the owner has cancelled it."""
        return self._cancelled.is_set()

    @property
    def done(self) -> bool:
        """Whether its last delta was sent."""
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the last delta was sent; False after ``timeout`` seconds."""
        return self._done.wait(timeout)

    def mark_done(self) -> None:
        """The last delta was sent."""
        self._done.set()
