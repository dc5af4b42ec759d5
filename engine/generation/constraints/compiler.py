"""Compiled constraints, kept for the resident model: made off the engine thread, once for a schema, and bounded.

A compile runs on a daemon thread of its own. It cannot be interrupted inside the library, whose own limits bound it;
whoever waits for it can leave at any moment and is not held longer than the timeout.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from engine.errors import MillmError
from engine.generation.constraints.keywords import FIELD
from engine.generation.errors import ResponseFormatUnsupported

if TYPE_CHECKING:
    from engine.generation.constraints.grammar import Vocabulary
    from engine.models.backends.backend import Tokenizer

log = logging.getLogger(__name__)

AT_ONCE = 2
"""Compiles that run at the same time; others wait."""


T = TypeVar("T")
C = TypeVar("C", covariant=True)


class Compilable(Protocol[C]):
    """What an answer is held to, before it is compiled for a model."""

    @property
    def text(self) -> str:
        """What is enforced: its name in the cache."""
        ...

    def compile(self, vocabulary: Vocabulary, eos_ids: Collection[int]) -> C:
        """Compile it for a tokenizer. Raises :class:`ResponseFormatUnsupported`."""
        ...


class ConstraintCompiler:
    """The cache of one model's compiled constraints. All methods may be called from any thread.

    Args:
        capacity: Compiled constraints kept (``STRUCTURED_OUTPUT_GRAMMAR_CACHE``); the one unused longest goes first.
        timeout: Most seconds :meth:`get` waits (``STRUCTURED_OUTPUT_COMPILE_TIMEOUT``).
    """

    def __init__(self, capacity: int, timeout: float) -> None:
        self._capacity = capacity
        self._timeout = timeout
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._shelf: _Shelf | None = None

    def begin(self, tokenizer: Tokenizer, asked: Compilable[T]) -> Future[T]:
        """The compiled constraint, soon: at once where it is kept. Cancelling the future leaves a compile to others;
        one that has not begun and that nobody waits for is not begun.
        """
        mine: Future[T] = Future()
        with self._lock:
            if self._shelf is None or self._shelf.tokenizer is not tokenizer:
                self._shelf = _Shelf(tokenizer)
            shelf = self._shelf
            kept = shelf.compiled.get(asked.text)
            if kept is not None:
                shelf.compiled.move_to_end(asked.text)
                mine.set_result(kept)
                return mine
            waiting = shelf.waiting.get(asked.text)
            if waiting is not None:
                waiting.append(mine)
                return mine
            shelf.waiting[asked.text] = [mine]
        threading.Thread(target=self._run, args=(shelf, asked), name="constraint-compiler", daemon=True).start()
        return mine

    def get(self, tokenizer: Tokenizer, asked: Compilable[T]) -> T:
        """As :meth:`begin`, waited for. Raises :class:`ResponseFormatUnsupported`, also when the time is up."""
        future = self.begin(tokenizer, asked)
        try:
            return future.result(self._timeout)
        except FutureTimeout as error:
            future.cancel()
            raise ResponseFormatUnsupported(
                f"Compiling the schema takes more than {self._timeout:g} seconds.",
                param=FIELD,
                remedy="Simplify the schema, or raise STRUCTURED_OUTPUT_COMPILE_TIMEOUT.",
            ) from error

    def drop(self) -> None:
        """Let go of everything: the model has left memory."""
        with self._lock:
            self._shelf = None

    @property
    def kept(self) -> tuple[str, ...]:
        """The schemas whose constraints are kept, the one unused longest first."""
        with self._lock:
            return () if self._shelf is None else tuple(self._shelf.compiled)

    def _run(self, shelf: _Shelf, asked: Compilable[Any]) -> None:
        with self._turns:
            with self._lock:
                if all(each.cancelled() for each in shelf.waiting[asked.text]):
                    del shelf.waiting[asked.text]
                    return
            settle = self._compile(shelf, asked)
        with self._lock:
            waiting = shelf.waiting.pop(asked.text)
        for each in waiting:
            if each.set_running_or_notify_cancel():
                settle(each)

    def _compile(self, shelf: _Shelf, asked: Compilable[Any]) -> Callable[[Future[Any]], None]:
        """Compile, and return what to do with each future that waits for it."""
        try:
            compiled = asked.compile(shelf.vocabulary(), shelf.tokenizer.eos_ids)
        except MillmError as error:
            refusal = error
        except Exception as error:
            log.exception("a constraint could not be compiled")
            refusal = ResponseFormatUnsupported(
                f"The schema could not be compiled: {type(error).__name__}.", param=FIELD, remedy="See the log file."
            )
        else:
            with self._lock:
                shelf.compiled[asked.text] = compiled
                while len(shelf.compiled) > self._capacity:
                    shelf.compiled.popitem(last=False)
            return lambda future: future.set_result(compiled)
        return lambda future: future.set_exception(refusal)


class _Shelf:
    """What is kept for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.compiled: OrderedDict[str, Any] = OrderedDict()
        self.waiting: dict[str, list[Future[Any]]] = {}
        self._vocabulary: Vocabulary | None = None
        self._making = threading.Lock()

    def vocabulary(self) -> Vocabulary:
        """The library's view of the tokenizer, made the first time it is needed."""
        from engine.generation.constraints.grammar import Vocabulary

        with self._making:
            if self._vocabulary is None:
                self._vocabulary = Vocabulary(self.tokenizer)
            return self._vocabulary
