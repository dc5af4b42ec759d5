"""A lane writes one choice; a running request owns the lanes of one admitted request.

Lanes hold no model state but their store: they take logits and give deltas. They live on the engine thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engine.counting import so_many
from engine.errors import InsufficientMemory, MillmError
from engine.generation.best_of import BestOf
from engine.generation.constraint import LaneConstraint
from engine.generation.prefill_job import numbered
from engine.generation.prepared import PreparedRequest, RequestHandle
from engine.generation.prompt_scores import PromptScores, repeated
from engine.generation.request import (
    Alternative,
    ChoiceFinished,
    Delta,
    FinishReason,
    Piece,
    RequestFailed,
    RequestFinished,
    Started,
    TextDelta,
    TokenInfo,
    Usage,
)
from engine.generation.text.stream import Emitted, text_of_choice
from engine.generation.tools.guard import CallGuard
from engine.models.backends.backend import KvNeed
from engine.monitor.capture import Capture
from engine.steering.path import NO_PATH, SteeringPath, SteeringStep
from engine.steering.plan import EMPTY_PLAN, SteeringPlan
from engine.steering.report import SteeringReport

if TYPE_CHECKING:
    from torch import Tensor

    from engine.generation.sampler import Picked
    from engine.models.backends.backend import KVStore, Tokenizer

log = logging.getLogger(__name__)


@dataclass
class PrefilledPrompt:
    """A prompt read once and shared by its choices: the store after the last prompt token and the logits there.

    ``read_under`` is the digest of the plan all of it was read under; None where the plan changed midway, and ``path``
    what it was read under then. ``repeated`` is what each answer begins with, where the prompt is repeated.
    """

    store: KVStore
    logits: Tensor
    users_left: int
    read_under: str | None
    path: SteeringPath
    repeated: Piece | None = None


@dataclass(eq=False)
class RunningRequest:
    """A submitted request: its choices not yet begun, its lanes, what it has sent. Engine thread only after
    submission.
    """

    prepared: PreparedRequest
    sink: Callable[[Delta], None]
    handle: RequestHandle
    order: int
    submitted: float = field(default_factory=time.monotonic)
    started: float | None = None
    first_token: float | None = None
    completion_tokens: int = 0
    lanes: int = 0
    todo: deque[tuple[int, int]] = field(default_factory=deque)
    pasts: dict[int, PrefilledPrompt] = field(default_factory=dict)
    reading: set[int] = field(default_factory=set)
    last_plan: SteeringPlan = EMPTY_PLAN
    changed: bool = False
    cached_tokens: int = 0
    activations: Mapping[str, Any] | None = None
    left: tuple[Lane, KVStore] | None = None
    """The lane whose prompt was read last and the store it is in, for another prompt that begins like it."""

    def __post_init__(self) -> None:
        written = self.prepared.request.choices_written
        for prompt in range(len(self.prepared.prompts)):
            self.todo.extend((prompt, choice) for choice in range(written))
        self._unfinished = len(self.todo)
        self._admitted = 0
        self._best_of = BestOf(self.prepared.request.n) if self.prepared.request.best_of is not None else None

    @property
    def cancelled(self) -> bool:
        """Whether the owner has left."""
        return self.handle.cancelled

    def uses(self, sae_id: str) -> bool:
        """Whether it has a plan or a capture of its own on that SAE."""
        own, capture = self.prepared.steering.plan, self.prepared.capture
        return (own is not None and own.uses(sae_id)) or (capture is not None and capture.attachment.sae_id == sae_id)

    def next_choice(self) -> tuple[int, int] | None:
        """(prompt, choice) of a lane that may begin now, or None.

        Solo choices run one after another. Choices of a prompt that is being read wait until they can share what was
        read.
        """
        if self.prepared.solo and self.lanes:
            return None
        return next((item for item in self.todo if item[0] not in self.reading), None)

    def need(self, prompt: int) -> KvNeed:
        """What a lane of ``prompt`` will hold at most. ``alone`` where it may share nothing with others: a seeded
        request promises the same bytes whatever ran before, and so does one side of a comparison that has its passes
        to itself; one that asks for activations has to read.
        """
        prepared = self.prepared
        request = prepared.request
        alone = request.seed_binds or prepared.capture is not None
        alone = alone or (prepared.solo and request.noise_seed is not None)
        tokens = len(prepared.prompts[prompt].token_ids) + prepared.caps[prompt]
        return KvNeed(tokens, batched=not prepared.solo, alone=alone)

    def needs_to_begin(self, prompt: int) -> list[KvNeed]:
        """What comes to be held when a lane of ``prompt`` begins: its own, and where nobody has read the prompt yet
        the store it is read into.
        """
        read = prompt in self.pasts or not self._is_copied(prompt)
        return [self.need(prompt)] if read else [self.need(prompt), self._prompt_need(prompt)]

    def prompts_held(self) -> list[KvNeed]:
        """Prompts that lie in stores of their own now, beside their lanes: being read, or read and waiting for choices
        that have no lane yet.
        """
        being_read = [prompt for prompt in self.reading if self._is_copied(prompt)]
        return [self._prompt_need(prompt) for prompt in (*being_read, *self.pasts)]

    def _is_copied(self, prompt: int) -> bool:
        """Whether its lanes take copies of what is read. A lone solo lane goes on in the store it was read into."""
        return not self.prepared.solo or self.prepared.request.choices_written > 1

    def _prompt_need(self, prompt: int) -> KvNeed:
        need = self.need(prompt)
        return replace(need, tokens=need.tokens - self.prepared.caps[prompt], batched=False, copied=True)

    @property
    def longest(self) -> int:
        """Tokens of its longest prompt and the most that may be written behind it."""
        prepared = self.prepared
        return max(len(prompt.token_ids) + cap for prompt, cap in zip(prepared.prompts, prepared.caps, strict=True))

    def choices_left(self, prompt: int) -> int:
        """Choices of ``prompt`` that have no lane yet."""
        return sum(1 for other, _ in self.todo if other == prompt)

    def start(self, live: SteeringPlan) -> None:
        """The request leaves the queue. What the live steering is now is what ``changed`` is measured against."""
        self.started = time.monotonic()
        self._admitted = live.version
        own = self.prepared.steering.plan
        word = self.prepared.loaded.info.word(solo=self.prepared.solo)
        self._send(Started(word, (live if own is None else own).rung))

    def use_plan(self, live: SteeringPlan) -> SteeringPlan:
        """The plan of the next pass: the request's own, or the live one of this moment."""
        own = self.prepared.steering.plan
        if own is None and live.version != self._admitted:
            self.changed = self.handle.changed = True
        self.last_plan = live if own is None else own
        return self.last_plan

    def note_path(self, lane: Lane) -> None:
        """What steers a choice is another than before: whoever asks meanwhile is told."""
        self.handle.paths = MappingProxyType({**self.handle.paths, lane.index: lane.path})

    def emit(self, lane: Lane, emitted: Emitted) -> None:
        """Send text of a choice, where there is any."""
        if not emitted.pieces:
            return
        if self.first_token is None:
            self.first_token = time.monotonic()
        self._deliver(lane.prompt, TextDelta(lane.index, emitted.pieces, lane.count))

    def repeat(self, lane: Lane, prompt: Piece) -> None:
        """Send the prompt as the beginning of a choice."""
        self._deliver(lane.prompt, TextDelta(lane.index, (prompt,), 0))

    def finish_choice(self, lane: Lane, reason: FinishReason) -> bool:
        """A choice ended; True when it was the request's last, whose final delta is then sent too."""
        self.completion_tokens += lane.count
        logprob, reasoned = lane.cumulative_logprob, lane.text.reasoned
        self._deliver(lane.prompt, ChoiceFinished(lane.index, reason, lane.count, logprob, lane.path, reasoned))
        self._unfinished -= 1
        if self._best_of is not None and self._unfinished % self.prepared.request.choices_written == 0:
            for delta in self._best_of.take_finished(self.prepared.request.choices_written):
                self._send(delta)
        if self._unfinished:
            return False
        now = time.monotonic()
        started = self.started if self.started is not None else now
        report, rung = self._steered()
        self._end(
            RequestFinished(
                Usage(self.prepared.prompt_tokens, self.completion_tokens, self.cached_tokens),
                seconds_queued=started - self.submitted,
                seconds_to_first_token=(self.first_token or now) - self.submitted,
                seconds_total=now - self.submitted,
                steering=report,
                rung=rung,
                activations=self.activations,
            )
        )
        return True

    def fail(self, error: MillmError, prompt: int | None = None) -> None:
        """End with ``error``, which prompt number ``prompt`` met where that is known; text already sent stays sent, and
        what it was written under is told with the error.
        """
        if self.handle.done:
            return
        if isinstance(error, InsufficientMemory):
            error = self._sized(error)
        if prompt is not None:
            error = numbered(error, self.prepared.request.label, prompt)
        self._end(RequestFailed(error, *self._steered(), self.handle.paths))

    def _sized(self, error: InsufficientMemory) -> InsufficientMemory:
        """``error`` with the size of this request: what a person can make smaller."""
        read, most = self.prepared.prompt_tokens, self.prepared.max_tokens
        choices = len(self.prepared.prompts) * self.prepared.request.choices_written
        each = "" if choices == 1 else f" for each of {choices} answers"
        return InsufficientMemory(
            f"{error.message} The request has {so_many(read, 'prompt token')} and asks for up to {most} more{each}.",
            param=error.param,
            details={**error.details, "prompt_tokens": read, "max_tokens": most, "answers": choices},
            remedy=error.remedy,
            retry_after=error.retry_after,
        )

    def _steered(self) -> tuple[SteeringReport, int | None]:
        """What was really added so far, and the rung that may be claimed for it."""
        report = replace(self.last_plan.report, changed=self.changed)
        return report, None if self.changed else self.last_plan.rung

    def _deliver(self, prompt: int, delta: TextDelta | ChoiceFinished) -> None:
        if self._best_of is None:
            self._send(delta)
        else:
            self._best_of.keep(prompt, delta)

    def _send(self, delta: Delta) -> None:
        try:
            self.sink(delta)
        except Exception:
            # A reader that cannot be reached is a reader that has left.
            log.exception("a reader of an answer failed; the request is cancelled")
            self.handle.cancel()

    def _end(self, delta: Delta) -> None:
        self.pasts.clear()
        self.left = None
        self._send(delta)
        self.handle.mark_done()


class Lane:
    """One choice being written.

    Args:
        running: The request it belongs to.
        prompt: Which of the request's prompts.
        choice: Which choice of that prompt; with the seed (and the row, of several conversations) it fixes the draws.
    """

    def __init__(self, running: RunningRequest, prompt: int, choice: int) -> None:
        # Imported here: this module is loaded before the window is painted, and torch takes seconds.
        from engine.generation.sampler import LaneSampler

        prepared = running.prepared
        request = prepared.request
        info = prepared.loaded.info
        self.running = running
        self.prompt = prompt
        self.index = prompt * request.choices_written + choice
        self.prompt_ids = prepared.prompts[prompt].token_ids
        self.cap = prepared.caps[prompt]
        self.need = running.need(prompt)
        self.solo = prepared.solo
        self.tokenizer: Tokenizer = prepared.loaded.backend.tokenizer
        # best_of ranks by likelihood, so it needs each token's logprob whether or not they are reported.
        self._logprobs = request.logprobs if request.logprobs is not None else (0 if request.best_of else None)
        self._report_logprobs = request.logprobs is not None
        noise = request.noise_seed
        self._ends = self.tokenizer.eos_ids | prepared.own_ends
        self.sampler = LaneSampler(
            request.sampling if noise is None else replace(request.sampling, seed=noise),
            vocab_size=info.vocab_size,
            eos_ids=self._ends,
            prompt_ids=self.prompt_ids,
            # Conversations of one batch draw apart, also where two are the same; raw prompts are each seeded anew.
            choice_index=self.index if request.conversations > 1 else choice,
            device=prepared.loaded.backend.device,
        )
        self._ignore_eos = request.sampling.ignore_eos
        width, device = info.vocab_size, prepared.loaded.backend.device
        self._constraint: LaneConstraint | CallGuard | None = None
        self._guard: CallGuard | None = None
        if prepared.calls is not None and request.tools is not None:
            self._constraint = self._guard = prepared.calls.guard(request.tools, width, device)
        elif prepared.constraint is not None:
            self._constraint = prepared.constraint.for_lane(width, device)
        self.text = text_of_choice(prepared, prompt, None if self._guard is None else self._guard.reader)
        if self._guard is not None:
            self._guard.follow(answering=self.text.answering)
        reported = request.prompt_logprobs
        self.scores = None if reported is None else PromptScores(self.prompt_ids, reported)
        """How likely the prompt's tokens are, as far as it is read; None where nobody asks."""
        self.pauses = prepared.pauses[prompt] if prepared.pauses else ()
        self.capture = None if prepared.capture is None else Capture(prepared.capture, request.request_id)
        self.store: KVStore | None = None
        self.fed = 0
        self.next_token = -1
        self.written: list[int] = []
        self.read_under: str | None = ""
        """Digest of the plan of everything in the lane's KV; None once two plans have shared in it."""
        self.follows: Lane | None = None
        """The lane whose logits it chooses from while both add the same (:mod:`engine.generation.comparing`)."""
        self.path = NO_PATH
        self.count = 0
        self.cumulative_logprob = 0.0

    @property
    def plain_greedy(self) -> bool:
        """The next token is the plain argmax with nothing to report: one pass may choose for many rows."""
        free = self._constraint is None or not self._constraint.holds
        return self._logprobs is None and free and self.sampler.is_plain_greedy

    @property
    def position(self) -> int:
        """Position of the next token fed, 0-based over prompt then answer."""
        return self.fed if self.fed < len(self.prompt_ids) else len(self.prompt_ids) + self.count - 1

    def use_plan(self, live: SteeringPlan) -> SteeringPlan:
        """The plan of this lane's next pass."""
        plan = self.running.use_plan(live)
        if self.position == 0:
            self.read_under = plan.digest
        elif self.read_under != plan.digest:
            self.read_under = None
        # The prompt's last pass gives the first token; a pass after it the one after those there are.
        token = 0 if self.fed < len(self.prompt_ids) else self.count + 1
        self.follow(self.path.then(SteeringStep(token, plan.report, plan.digest, plan.rung)))
        return plan

    def follow(self, path: SteeringPath) -> None:
        """This is what has steered it so far."""
        if path is not self.path:
            self.path = path
            self.running.note_path(self)

    def plan_now(self, live: SteeringPlan) -> SteeringPlan:
        """The plan its next pass would have."""
        own = self.running.prepared.steering.plan
        return live if own is None else own

    @property
    def may_share_past(self) -> bool:
        """Whether it may start from what others have read, and leave what it has read to others."""
        return not self.need.alone

    def take_past(self, store: KVStore, length: int, digest: str) -> None:
        """Go on from ``store``, which holds the prompt's first ``length`` tokens read under the plan of ``digest``."""
        self.running.cached_tokens += length - self.fed
        self.store, self.fed, self.read_under = store, length, digest

    def prompt_repeated(self) -> Piece | None:
        """What the answer begins with, now that the prompt is read; None where that is not asked."""
        prepared = self.running.prepared
        if not prepared.request.echo:
            return None
        known = None if self.scores is None else self.scores.so_far
        return repeated(self.tokenizer, prepared.prompts[self.prompt], known)

    def pick(self, logits: Tensor) -> FinishReason | None:
        """Choose the next token from ``[vocab]`` logits, send its text, and say whether the choice has ended.

        Raises :class:`ConstrainedOutputInvalid` for a complete document that is not what was asked for.
        """
        mask = None if self._constraint is None else self._constraint.mask()
        picked = self.sampler.pick(logits, self._logprobs, mask)
        if picked.logprob is not None:
            self.cumulative_logprob += picked.logprob
        return self._accept(picked.token_id, self._token_info(picked))

    def accept_greedy(self, token_id: int) -> FinishReason | None:
        """As :meth:`pick`, for a lane with ``plain_greedy`` whose argmax is known."""
        self.sampler.record(token_id)
        return self._accept(token_id, TokenInfo(token_id))

    def _accept(self, token_id: int, info: TokenInfo) -> FinishReason | None:
        """Take a chosen token: count it, send its text, end at an end token, a stop string or the cap."""
        self.count += 1
        self.written.append(token_id)
        if token_id in self._ends and not self._ignore_eos:
            # Behind a prompt whose tokens are reported it counts too, though it shows nothing: evaluation harnesses
            # find the prompt's end by how many tokens they let be written.
            self._emit(self.text.finish() if self.scores is None else self.text.feed(info, last=True))
            if self._constraint is not None:
                self._constraint.complete()
            return self._ended
        if self._constraint is not None:
            self._constraint.take(token_id)
        last = self.count >= self.cap
        emitted = self.text.feed(info, last=last)
        self._emit(emitted)
        if emitted.stopped:
            return self._ended
        if self._guard is not None:
            if self._guard.done:
                self._emit(self.text.finish())
                return self._ended
            self._guard.follow(answering=self.text.answering)
        self.next_token = token_id
        return FinishReason.LENGTH if last else None

    @property
    def _ended(self) -> FinishReason:
        """Why an answer is over that ended by itself."""
        called = self._guard is not None and self._guard.called
        return FinishReason.TOOL_CALLS if called else FinishReason.STOP

    def _emit(self, emitted: Emitted) -> None:
        if self._constraint is not None:
            self._constraint.show(emitted.pieces)
        self.running.emit(self, emitted)

    def _token_info(self, picked: Picked) -> TokenInfo:
        if not self._report_logprobs:
            return TokenInfo(picked.token_id)
        name, raw = self.tokenizer.token_text, self.tokenizer.token_bytes
        return TokenInfo(
            picked.token_id,
            logprob=picked.logprob,
            top=tuple(Alternative(i, name(i), raw(i), logprob) for i, logprob in picked.top),
        )
