"""Running a sweep: several answers at a time, each with a plan of its own, measured as they come."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from engine.actions.saes.context import SaeContext
from engine.actions.saes.pushing import pushes_now
from engine.actions.saes.reading import ReadPlace, submit
from engine.actions.sweeping.bases import choices, resolve_base
from engine.actions.sweeping.measures import repeated_trigrams, topic_share, words_of
from engine.actions.sweeping.rereading import Reread, Rereading, Steered
from engine.actions.sweeping.runs import OnCell, SweepBook, SweepRun
from engine.actions.sweeping.settings import (
    PLAIN,
    BaseChoice,
    BaseKind,
    CellResult,
    SweepBase,
    SweepOutcome,
    SweepSettings,
)
from engine.errors import MillmError, ModelBusy, QueueFull, RequestCancelled, SaeNotAttached
from engine.generation.prepared import PreparedRequest, RequestHandle
from engine.generation.request import (
    ChatInput,
    ChoiceFinished,
    Delta,
    GenerationRequest,
    Message,
    Piece,
    RequestFailed,
    RequestFinished,
    TextDelta,
    text_of,
)
from engine.generation.service import GenerationService, check_bias
from engine.generation.text.parts import Kind
from engine.library.records import FeatureLabel
from engine.saes.attachment import Attachment
from engine.sampling import MAX_SEED, MIN_SEED
from engine.steering.plan import EMPTY_PLAN, ResidualSpec, SteeringPlan, build_plan
from engine.steering.push import told
from engine.steering.report import RequestLabel, describe
from engine.steering.resolve import ResolvedSteering
from engine.steering.strengths import SteeredSet

ROOM_WAIT_S = 600.0
"""How long a sweep waits while others' requests fill the queue and nothing of its own is under way."""

LOOK_AGAIN_S = 0.1
"""Seconds after which it looks whether there is room now, and whether it was stopped: neither sends it a message."""


@dataclass
class _Cell:
    """An answer under way: the request, then its re-reading."""

    prompt: int
    intensity: float
    clamped: int = 0
    prompt_ids: tuple[int, ...] = ()
    handle: RequestHandle | None = None
    written: bool = False
    rereading: Future[Reread] | None = None
    pieces: list[Piece] = field(default_factory=list)
    finish: str = ""

    @property
    def tokens(self) -> list[tuple[int, bool]]:
        """Each token that was written, and whether it is one of the answer's; else of the reasoning before it."""
        return [(token.token_id, piece.kind is Kind.CONTENT) for piece in self.pieces for token in piece.tokens]


@dataclass(frozen=True)
class _Ended:
    """A message from the engine thread: an answer, a re-reading, or why there is none."""

    cell: _Cell
    reread: Reread | None = None
    error: Exception | None = None


class SweepActions:
    """Sweeps of the dial. Any thread but the engine's.

    Attributes:
        runs: The sweeps of this session, whoever began them.
    """

    def __init__(self, context: SaeContext, generation: GenerationService) -> None:
        self._context = context
        self._generation = generation
        self.runs = SweepBook(context.events)

    def choices(self) -> tuple[BaseChoice, ...]:
        """What a sweep can turn the dial of. Reads the library."""
        return choices(self._context)

    def resolve(self, kind: BaseKind, base_id: str = "") -> SweepBase:
        """What a choice comes to with what is attached now; see :func:`engine.actions.sweeping.bases.resolve_base`."""
        return resolve_base(self._context, kind, base_id)

    def suggested_words(self, base: SweepBase) -> tuple[str, ...]:
        """Topic words for what ``base`` amplifies, out of the labels of its features. Reads the library."""
        labels: list[FeatureLabel] = []
        for (sae_id, _), values in base.authored.items():
            amplified = [index for index, value in values.items() if value > 0]
            labels.extend(self._context.library.labels.of(sae_id, amplified).values())
        return suggested_words(labels)

    def start(self, settings: SweepSettings, base: SweepBase) -> SweepRun:
        """Begin a sweep on a thread of its own, kept in :attr:`runs`; its cells come as :meth:`run` gives them.

        Raises :class:`SweepRunning`, :class:`ModelNotLoaded`, :class:`SaeNotAttached`, and :class:`InvalidParameter`
        for a bias of a token the model does not have.
        """
        return self.runs.start(
            settings,
            base,
            lambda on_cell, stop: _Run(self._context, self._generation, settings, base, on_cell, stop),
        )

    def run(
        self, settings: SweepSettings, base: SweepBase, on_cell: OnCell, stop: threading.Event | None = None
    ) -> SweepOutcome:
        """Write and measure every cell; blocks until all are done or ``stop`` is set. Rows come prompt by prompt.

        ``on_cell`` is called on this thread for each cell as it is done. A cell that fails says why and the others go
        on; while the queue is full it waits, :data:`ROOM_WAIT_S` at most. What steers live is neither read nor changed.
        Raises :class:`ModelNotLoaded` and :class:`SaeNotAttached` before it begins, and :class:`ModelBusy` or
        :class:`RequestCancelled` when the model or the program goes.
        """
        return _Run(self._context, self._generation, settings, base, on_cell, stop or threading.Event()).outcome()


class _Run:
    """One sweep. Its own thread prepares and collects; the engine thread only puts messages into the inbox."""

    def __init__(
        self,
        context: SaeContext,
        generation: GenerationService,
        settings: SweepSettings,
        base: SweepBase,
        on_cell: OnCell,
        stop: threading.Event,
    ) -> None:
        self._context = context
        self._generation = generation
        self._settings = settings
        self._base = base
        self._on_cell = on_cell
        self._stop = stop
        self._loaded = context.resident()
        check_bias(settings.sampling.logit_bias, self._loaded.info.vocab_size)
        state = context.desk.state
        self._attachments = state.attachments
        self._stream = state.stream
        self._steered = self._find_steered()
        self.facts = self._find_facts(datetime.now(UTC))
        self._plans: dict[float, tuple[SteeringPlan, int]] = {}
        self._inbox: queue.SimpleQueue[_Ended] = queue.SimpleQueue()
        self._cells: dict[int, _Cell] = {}
        self._done: list[CellResult] = []
        self._full_since: float | None = None

    def outcome(self) -> SweepOutcome:
        waiting = [
            _Cell(prompt, intensity)
            for prompt in range(len(self._settings.prompts))
            for intensity in self._settings.intensities
        ]
        waiting.reverse()
        try:
            while (waiting or self._cells) and not self._stop.is_set():
                self._read_again()
                while waiting and len(self._cells) < self._context.settings.MAX_LANES and self._begin(waiting[-1]):
                    waiting.pop()
                if waiting or self._cells:
                    self._handle_next()
        finally:
            self._leave()
        complete = len(self._done) == self._settings.cells
        return SweepOutcome(self._settings, self._base, tuple(self._done), self.facts, complete)

    # --- one cell ---------------------------------------------------------------------------------------------------

    def _begin(self, cell: _Cell) -> bool:
        """Submit a cell; False when the queue is full, so that it waits."""
        try:
            prepared = self._prepared(cell)
            cell.prompt_ids = prepared.prompts[0].token_ids
            self._cells[id(cell)] = cell
            cell.handle = self._generation.submit(prepared, partial(self._on_delta, cell))
        except MillmError as error:
            self._cells.pop(id(cell), None)
            if isinstance(error, QueueFull) and self._may_wait():
                return False
            self._fail(cell, error)
            return True
        self._full_since = None
        return True

    def _may_wait(self) -> bool:
        """Whether what the full queue refused is to be tried again. What is under way of this sweep makes room when it
        ends; that others do is a hope, and a bounded one until something of this sweep is let in again.
        """
        if any(not each.written or each.rereading is not None for each in self._cells.values()):
            return True
        now = time.monotonic()
        if self._full_since is None:
            self._full_since = now
        return now - self._full_since < ROOM_WAIT_S

    def _prepared(self, cell: _Cell) -> PreparedRequest:
        settings = self._settings
        messages = [Message("user", settings.prompts[cell.prompt])]
        if settings.system.strip():
            messages.insert(0, Message("system", settings.system))
        request = GenerationRequest(
            self._loaded.record.name,
            ChatInput(tuple(messages)),
            sampling=replace(settings.sampling, seed=None),
            max_tokens=settings.max_tokens,
            # The same noise along a row: what differs there is the dial's doing.
            noise_seed=_behind(settings.seed, cell.prompt) if settings.sampling.temperature > 0 else None,
        )
        plan, cell.clamped = self._plan(cell.intensity)
        prepared = self._generation.prepare(request)
        return replace(prepared, steering=ResolvedSteering(plan, self._context.desk.live_plan))

    def _plan(self, intensity: float) -> tuple[SteeringPlan, int]:
        """The plan at an intensity, made once, and how many strengths were clamped."""
        if intensity not in self._plans:
            self._plans[intensity] = _plan_of(self._base, intensity, self._attachments, self._stream)
        return self._plans[intensity]

    def _on_delta(self, cell: _Cell, delta: Delta) -> None:
        """Engine thread: keep the text, and say when the answer has ended."""
        match delta:
            case TextDelta():
                cell.pieces.extend(delta.pieces)
            case ChoiceFinished():
                cell.finish = delta.reason.value
            case RequestFinished():
                self._inbox.put(_Ended(cell))
            case RequestFailed():
                self._inbox.put(_Ended(cell, error=delta.error))

    def _handle_next(self) -> None:
        try:
            ended = self._inbox.get(timeout=LOOK_AGAIN_S)
        except queue.Empty:
            return
        cell = ended.cell
        if ended.error is not None:
            self._fail(cell, ended.error)
        elif ended.reread is not None:
            del self._cells[id(cell)]
            self._finish(cell, ended.reread)
        elif not any(answer for _token, answer in cell.tokens):
            del self._cells[id(cell)]
            self._finish(cell, Reread(None, None))
        else:
            cell.written = True

    def _read_again(self) -> None:
        """Have every answer that is written read again, as far as the queue has room."""
        for cell in [each for each in self._cells.values() if each.written and each.rereading is None]:
            try:
                self._reread(cell)
            except MillmError as error:
                if isinstance(error, QueueFull) and self._may_wait():
                    return
                self._fail(cell, error)

    def _reread(self, cell: _Cell) -> None:
        """Submit the re-reading of a cell. Raises as :meth:`GenerationService.submit`."""
        tokens = cell.tokens
        ids = (*cell.prompt_ids, *(token for token, _answer in tokens))
        answer = [place for place, (_token, counts) in enumerate(tokens, len(cell.prompt_ids)) if counts]
        reading = Rereading(self._context, self._loaded, ids, answer, self._steered)
        cell.rereading = submit(self._context, reading)
        self._full_since = None

        def read(future: Future[Reread]) -> None:
            try:
                self._inbox.put(_Ended(cell, future.result()))
            except CancelledError:
                return
            except Exception as error:
                self._inbox.put(_Ended(cell, error=error))

        cell.rereading.add_done_callback(read)

    def _finish(self, cell: _Cell, reread: Reread) -> None:
        text = text_of(cell.pieces, Kind.CONTENT)
        token_ids = [token for token, answer in cell.tokens if answer]
        topic = self._settings.topic
        self._give(
            CellResult(
                cell.prompt,
                cell.intensity,
                text,
                len(token_ids),
                cell.finish,
                topic_share(text, topic) if topic else None,
                reread.features,
                reread.loss,
                repeated_trigrams(token_ids),
                cell.clamped,
                reasoning=text_of(cell.pieces, Kind.REASONING),
            )
        )

    def _fail(self, cell: _Cell, error: Exception) -> None:
        """A cell has no answer and says why; when the model or the program goes, none of them has."""
        self._cells.pop(id(cell), None)
        if isinstance(error, ModelBusy | RequestCancelled):
            raise error
        words = error.one_line() if isinstance(error, MillmError) else str(error)
        self._give(CellResult(cell.prompt, cell.intensity, clamped=cell.clamped, error=words))

    def _give(self, result: CellResult) -> None:
        self._done.append(result)
        self._on_cell(result)

    def _leave(self) -> None:
        """End what is still under way."""
        for cell in self._cells.values():
            if cell.handle is not None:
                cell.handle.cancel()
            if cell.rereading is not None:
                cell.rereading.cancel()

    # --- the whole --------------------------------------------------------------------------------------------------

    def _find_steered(self) -> list[Steered]:
        there = {(each.sae_id, each.layer): each.sae for each in self._attachments}
        missing = [place for place in self._base.authored if place not in there]
        if missing or self._stream is None:
            names = ", ".join(f"'{sae_id}' at layer {layer}" for sae_id, layer in missing) or "an SAE"
            raise SaeNotAttached(
                f"{names} is not attached, so {self._base.name} cannot steer.",
                param="base",
                remedy="Attach it, and choose the cluster, profile or circuit again.",
            )
        return [
            Steered(ReadPlace(*place, there[place]), {index: value for index, value in values.items() if value})
            for place, values in self._base.authored.items()
        ]

    def _find_facts(self, started: datetime) -> Mapping[str, str]:
        info = self._loaded.info
        sets = [SteeredSet.of(*place, values) for place, values in self._base.authored.items()]
        length = told(pushes_now(self._context, sets))
        return {
            "Model": self._loaded.record.name,
            "Runs on": f"{info.device}, {info.dtype}",
            "SAEs": ", ".join(f"{sae_id} @ layer {layer}" for sae_id, layer in self._base.authored),
            **({"Length of what is added at λ 1": length} if length else {}),
            "Date": started.isoformat(timespec="seconds"),
        }


def _plan_of(
    base: SweepBase, intensity: float, attachments: Sequence[Attachment], stream: ResidualSpec | None
) -> tuple[SteeringPlan, int]:
    sets = tuple(SteeredSet.of(*place, values, intensity) for place, values in base.authored.items())
    kept = tuple(each for each in sets if not each.is_empty)
    if intensity == PLAIN or not kept or stream is None:
        return EMPTY_PLAN, 0
    report = describe(kept, requested=RequestLabel(kept, base.name, intensity))
    return build_plan(kept, attachments, stream, report=report), sum(each.clamped for each in kept)


def _behind(seed: int, steps: int) -> int:
    """The seed ``steps`` behind ``seed``; behind the last one comes the first."""
    return (seed - MIN_SEED + steps) % (MAX_SEED - MIN_SEED + 1) + MIN_SEED


SHORTEST = 3
MOST_WORDS = 60
_EVERYWHERE = frozenset(
    words_of(
        "about after all and any are around but can for from has have how into its more not one other out over some "
        "such that the their them then there these they this through under very was were what when which who with "
        "words you your feature features related text token tokens"
    )
)


def suggested_words(labels: Iterable[FeatureLabel]) -> tuple[str, ...]:
    """Words of the labels and of the tokens the features fire at most, in order, each once; common words are left out.

    Tokens without a leading space may be the middle of a word, so only those with one count.
    """
    found: dict[str, None] = {}
    for label in labels:
        tokens = [token for token in label.top_tokens if token.startswith((" ", "Ġ", "▁"))]
        for text in (label.label, *(token.lstrip("Ġ▁") for token in tokens)):
            for word in words_of(text):
                if len(word) >= SHORTEST and word not in _EVERYWHERE:
                    found[word] = None
    return tuple(found)[:MOST_WORDS]
