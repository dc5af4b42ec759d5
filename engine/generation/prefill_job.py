"""Reading texts without writing any: what scoring and embeddings have in common.

A reading takes one queue place and one lane's room, and reads its texts chunk by chunk between the tokens of other
answers. Its passes carry no plan and no monitor: that is the whole of "never steered, never monitored", and it holds
however other lanes are steered at the same moment.

Short texts of one reading go together where the backend gives each the bits it gives alone (``reads_alike``); all
others are read one after another. Either way a text's result is the same to the last bit whichever texts are sent with
it. What two neighbours have in common at their beginning is read once, in whole chunks: those come from the same passes
over the same tokens, so nothing moves.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from engine.errors import InsufficientMemory, MillmError
from engine.generation.prefix_cache import as_tokens, shared_length
from engine.models.backends.backend import KvNeed
from engine.models.backends.batch_invariance import padded_width
from engine.monitor.capture import CapturePlan

if TYPE_CHECKING:
    from engine.models.backends.backend import Backend, KVStore
    from engine.models.registry import LoadedModel

T = TypeVar("T")


@dataclass(frozen=True)
class ReadingFigures:
    """How long a reading took: seconds in the queue, and from submission to result."""

    seconds_queued: float
    seconds_total: float


class PrefillJob(ABC, Generic[T]):
    """One submitted reading. Engine thread only after submission; its future is the owner's side.

    Cancelling the future ends it before its next chunk, wherever it is.

    Args:
        loaded: The model it was prepared for.
        texts: Token ids of each text, none empty.
        capture: Which activations are read along, where any are asked for.
        label: What one text is called in an error when there are several (``prompt``, ``conversation``); None: errors
            are not numbered.
        shares: Only what is at the end of a text counts, so what it begins with may be taken over from the text before.
        reads_whole: It has :meth:`_read_whole`.

    Attributes:
        shared_tokens: Tokens taken over so far.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        texts: Sequence[tuple[int, ...]],
        *,
        capture: CapturePlan | None = None,
        label: str | None = None,
        shares: bool = False,
        reads_whole: bool = False,
    ) -> None:
        self.loaded = loaded
        self.capture_plan = capture
        self.future: Future[T] = Future()
        self.order = 0
        self.lanes = 0
        self.submitted = time.monotonic()
        self.started: float | None = None
        self._texts = texts
        self._label = label if len(texts) > 1 else None
        self._text = 0
        self._fed = 0
        self._store: KVStore | None = None
        self._shares = shares
        self._reads_whole = reads_whole
        self._past: tuple[tuple[int, ...], KVStore] | None = None
        self.shared_tokens = 0
        self._ended = False

    @property
    def cancelled(self) -> bool:
        """Whether the owner has left."""
        return self.future.cancelled()

    @property
    def need(self) -> KvNeed:
        """What it will hold at most: one text at a time."""
        return KvNeed(max(map(len, self._texts)), alone=True)

    def uses(self, sae_id: str) -> bool:
        """Whether it reads along at that SAE."""
        return self.capture_plan is not None and self.capture_plan.attachment.sae_id == sae_id

    def wake_when_cancelled(self, wake: Callable[[], None]) -> None:
        """Have ``wake`` called when the owner leaves."""
        self.future.add_done_callback(lambda future: wake() if future.cancelled() else None)

    def start(self) -> None:
        """It leaves the queue."""
        self.started = time.monotonic()

    def step(self, backend: Backend, chunk_tokens: int) -> bool:
        """Read the next chunk of at most ``chunk_tokens`` tokens; True when that was the last of the last text.

        Raises whatever the pass or its evaluation raises, numbered where there are several texts.
        """
        ids = self._texts[self._text]
        if not backend.capabilities.chunks:
            chunk_tokens = len(ids)
        together = self._together(backend, chunk_tokens) if self._fed == 0 else 0
        if together:
            self._read_whole(backend, range(self._text, self._text + together))
            self._text += together
            self._past = None
            return self._text == len(self._texts)
        if self._store is None:
            self._store = self._begun(backend, ids, chunk_tokens)
        chunk = ids[self._fed : self._fed + chunk_tokens]
        try:
            self._read(backend, self._store, chunk, self._text, self._fed, last=self._fed + len(chunk) == len(ids))
        except MillmError as error:
            raise self._numbered(error) from error
        self._fed += len(chunk)
        if self._fed < len(ids):
            return False
        self._text += 1
        more = self._text < len(self._texts)
        self._past = (ids, self._store) if self._shares and more else None
        self._store, self._fed = None, 0
        return not more

    def _together(self, backend: Backend, chunk_tokens: int) -> int:
        """How many of the next texts are read whole in one pass of at most ``chunk_tokens`` padded tokens."""
        if not (self._reads_whole and backend.capabilities.reads_alike):
            return 0
        width = count = 0
        for ids in self._texts[self._text :]:
            width = max(width, padded_width(len(ids)))
            if width * (count + 1) > chunk_tokens:
                break
            count += 1
        return count

    def _begun(self, backend: Backend, ids: tuple[int, ...], chunk_tokens: int) -> KVStore:
        """A store for ``ids``, with the whole chunks in it that the text before begins with too.

        The last token is always read, since its logits are what is asked for.
        """
        past, self._past = self._past, None
        if past is not None:
            before, store = past
            length = shared_length(as_tokens(before), as_tokens(ids[:-1])) // chunk_tokens * chunk_tokens
            try:
                fork = backend.fork(store, 0, length) if length else None
            except InsufficientMemory:
                fork = None  # no room for a copy: then it is read anew
            if fork is not None:
                self._fed = length
                self.shared_tokens += length
                return fork
        return backend.new_store(alone=True, tokens=len(ids))

    def finish(self) -> None:
        """Give the result to the owner."""
        now = time.monotonic()
        started = self.started if self.started is not None else now
        result = self._result(ReadingFigures(started - self.submitted, now - self.submitted))
        if self._end():
            self.future.set_result(result)

    def fail(self, error: MillmError) -> None:
        """Give the owner ``error`` instead."""
        if self._end():
            self.future.set_exception(error)

    @abstractmethod
    def _read(
        self, backend: Backend, store: KVStore, chunk: tuple[int, ...], text: int, position: int, *, last: bool
    ) -> None:
        """Read ``chunk``, which begins at ``position`` of text number ``text``; ``last``: it ends that text."""

    def _read_whole(self, backend: Backend, texts: range) -> None:
        """Read those texts in one pass, each from its first token to its last. Only where ``reads_whole`` was said."""
        raise NotImplementedError

    @abstractmethod
    def _result(self, figures: ReadingFigures) -> T:
        """What was found, now that all texts were read."""

    def _release(self) -> None:
        """Let go of what was read along; called once, at the end."""

    def _end(self) -> bool:
        """Whether there is still an owner to tell."""
        if self._ended:
            return False
        self._ended = True
        self._store = self._past = None
        self._release()
        return self.future.set_running_or_notify_cancel()

    def _numbered(self, error: MillmError) -> MillmError:
        return numbered(error, self._label, self._text)


def numbered(error: MillmError, label: str | None, number: int) -> MillmError:
    """``error`` with ``(label number)`` at the end of what is shown; as it is where ``label`` is None."""
    if label is None:
        return error
    place = f"({label} {number})"
    message, remedy = error.message, error.remedy
    if remedy:
        remedy = f"{remedy} {place}"
    else:
        message = f"{message} {place}"
    return type(error)(message, param=error.param, details=error.details, remedy=remedy, retry_after=error.retry_after)
