"""The scheduler: which request gets a lane, and what the engine thread does next.

A bounded queue feeds lanes. Lanes decode together in one batch (continuous batching); *solo* lanes, which promise the
same bytes again, take passes of their own and turns with the batch. *Readings* (scoring, embeddings) write nothing;
each takes the room of one lane. A tick is: end what was cancelled, start lanes, one pass over prompts, one token for
the batch, one token for each solo lane, one chunk of one reading. Cancelled requests are looked for before every pass,
so a leaver costs at most one token or one chunk.

``submit`` may be called from any thread; all else runs on the engine thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine.checked import there
from engine.config import EngineSettings
from engine.errors import GenerationFailed, InsufficientMemory, MillmError, ModelBusy, RequestCancelled
from engine.generation.admission import Admission, QueueStats
from engine.generation.comparing import Comparing
from engine.generation.errors import as_failure
from engine.generation.interventions import PassComposer, decode_apart
from engine.generation.lane import Lane, PrefilledPrompt, RunningRequest
from engine.generation.pace import Pace, PaceKeeper
from engine.generation.prefill import Prefill
from engine.generation.prefill_job import PrefillJob
from engine.generation.prefix_reuse import PastReuse
from engine.generation.prepared import PreparedRequest, RequestHandle
from engine.generation.request import Delta, FinishReason
from engine.models.backends.backend import RowsRefused
from engine.monitor.live import LiveMonitor
from engine.steering.desk import SteeringDesk

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.backends.backend import Backend, KVStore

log = logging.getLogger(__name__)


class Scheduler:
    """Queue, lanes and ticks for one resident model at a time."""

    def __init__(self, settings: EngineSettings, desk: SteeringDesk, monitor: LiveMonitor) -> None:
        self._settings = settings
        self._desk = desk
        self._passes = PassComposer(desk, monitor, steer_first=settings.STEER_FIRST_POSITION)
        self._reuse = PastReuse(settings)
        self._lock = threading.Lock()
        self._waiting: deque[RunningRequest | PrefillJob[Any]] = deque()
        self._running: list[RunningRequest | PrefillJob[Any]] = []
        self._next_order = 0
        self._admission = Admission(settings)
        self._idle = threading.Condition(self._lock)
        self._backend: Backend | None = None
        self._batch: KVStore | None = None
        self._lanes: list[Lane] = []
        self._pace = PaceKeeper()
        self._prefill = Prefill(settings, self._passes, self._reuse, self._pace)
        self._comparing = Comparing(desk)
        self._rows: list[Lane] = []
        self._solo: list[Lane] = []
        self._readings: deque[PrefillJob[Any]] = deque()
        self._backend_listeners: list[Callable[[], None]] = []

    # --- any thread -------------------------------------------------------------------------------------------------

    def submit(
        self, prepared: PreparedRequest, sink: Callable[[Delta], None], wake: Callable[[], None]
    ) -> RequestHandle:
        """Queue a request. Raises :class:`QueueFull`, or the error under which the queue is closed."""
        return self.submit_all([(prepared, sink)], wake)[0]

    def submit_all(
        self, asked: Sequence[tuple[PreparedRequest, Callable[[Delta], None]]], wake: Callable[[], None]
    ) -> list[RequestHandle]:
        """Queue several requests, one right behind another, or none of them. Raises as :meth:`submit`."""
        queued = []
        with self._lock:
            for place, (prepared, sink) in enumerate(asked):
                self._admission.check_open(len(self._waiting) + place, self._in_flight)
                queued.append(RunningRequest(prepared, sink, RequestHandle(wake), self._next_order + place))
            self._waiting.extend(queued)
            self._next_order += len(queued)
        wake()
        return [running.handle for running in queued]

    def submit_reading(self, reading: PrefillJob[Any], wake: Callable[[], None]) -> None:
        """Queue a reading; its future tells the rest. Raises as :meth:`submit`."""
        reading.wake_when_cancelled(wake)
        with self._lock:
            self._admission.check_open(len(self._waiting), self._in_flight)
            reading.order = self._next_order
            self._waiting.append(reading)
            self._next_order += 1
        wake()

    @contextmanager
    def waiting_for_load(self) -> Iterator[None]:
        """The queue place of a request whose model is being loaded: it counts as waiting. Raises :class:`QueueFull`."""
        with self._lock:
            self._admission.check_places(len(self._waiting), self._in_flight)
            self._admission.loading += 1
        try:
            yield
        finally:
            with self._lock:
                self._admission.loading -= 1

    @property
    def _in_flight(self) -> int:
        return len(self._lanes) + len(self._readings)

    def stats(self) -> QueueStats:
        """The figures now."""
        with self._lock:
            waiting = len(self._waiting) + self._admission.loading
            return QueueStats(
                in_flight=self._in_flight,
                queue_waiting=waiting,
                queue_pending=waiting + len(self._running),
                max_lanes=self._settings.MAX_LANES,
                max_pending=self._settings.MAX_PENDING_REQUESTS,
                estimated_wait_seconds=self._admission.estimate(len(self._waiting), self._in_flight),
            )

    def pace(self) -> Pace:
        """How fast it goes."""
        with self._lock:
            there_is = self._backend is not None
            held = sum(max(lane.fed, lane.position) for lane in self._lanes)
        return self._pace.now(held if there_is else None, self._admission.most_tokens if there_is else None)

    def close_queue(self, reason: MillmError) -> None:
        """Refuse new requests with ``reason``; those accepted go on."""
        with self._lock:
            self._admission.closed = reason

    def open_queue(self) -> None:
        """Accept requests again."""
        with self._lock:
            self._admission.closed = None

    def wait_unused(self, sae_id: str, timeout: float) -> bool:
        """Block until no request has a plan or a capture of its own on that SAE; False after ``timeout`` seconds."""
        with self._idle:
            return self._idle.wait_for(
                lambda: not any(each.uses(sae_id) for each in (*self._waiting, *self._running)), timeout
            )

    def wait_idle(self, timeout: float) -> bool:
        """Block until no request waits or runs; False after ``timeout`` seconds."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._waiting and not self._running, timeout)

    # --- engine thread ----------------------------------------------------------------------------------------------

    def set_backend(self, backend: Backend | None) -> None:
        """Change the resident model. No request may be under way."""
        if self._waiting or self._running:
            raise ModelBusy("Requests are still running on the model that was to be replaced.", retry_after=5)
        self._backend = backend
        self._batch = None
        self._reuse.clear()
        self._pace.forget()
        self._admission.measure(backend)
        for changed in self._backend_listeners:
            changed()

    def on_backend_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` on the engine thread whenever the resident model changes or leaves."""
        self._backend_listeners.append(listener)

    def fail_all(self, error: MillmError) -> None:
        """End every waiting and running request with ``error``."""
        with self._lock:
            ended = [*self._waiting, *self._running]
            self._waiting.clear()
        for running in ended:
            self._end_request(running, error)

    def tick(self) -> bool:
        """One round of work; True while there is more to do.

        What fails outside one request's own steps leaves rows nobody can vouch for: then every request ends, told so.
        """
        try:
            with self._pace.round():
                return self._round()
        except Exception as error:
            log.exception("a round of the scheduler failed; every request is ended")
            self._batch = None
            self._rows.clear()
            self.fail_all(
                GenerationFailed(
                    f"Writing the answer failed: {type(error).__name__}: {error}",
                    remedy="The log file has the full report.",
                )
            )
            return False

    def _round(self) -> bool:
        self._reap()
        self._admit()
        if self._prefill:
            self._read_prompts()
            self._reap()
        for lane, past in self._comparing.ready(self._lanes):
            self._begin_decoding(lane, past)
        if self._rows:
            self._decode_batch()
        for lane in list(self._solo):
            self._reap()
            if lane in self._solo:
                self._decode_solo(lane)
        if self._readings:
            self._reap()
            self._read_chunk()
        with self._lock:
            return bool(self._in_flight or self._waiting or self._running)

    # --- admission --------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        with self._lock:
            left = [r for r in (*self._waiting, *self._running) if r.cancelled]
            for running in left:
                if running in self._waiting:
                    self._waiting.remove(running)
        for running in left:
            self._end_request(running, RequestCancelled("The request was cancelled before it was finished."))

    def _admit(self) -> None:
        """Give free lanes to whoever has fewest, the earlier request first."""
        while True:
            with self._lock:
                if self._in_flight >= self._settings.MAX_LANES:
                    return
                candidates: list[RunningRequest | PrefillJob[Any]] = [
                    r for r in self._running if isinstance(r, RunningRequest) and r.next_choice() is not None
                ]
                if self._waiting:
                    candidates.append(self._waiting[0])
                if not candidates:
                    return
                running = min(candidates, key=lambda r: (r.lanes, r.order))
                others = self._begin_with(running)
                if self._in_flight + len(others) >= self._settings.MAX_LANES or not self._has_room(running, others):
                    # Nobody overtakes: who needs much would never come in.
                    return
                if self._waiting and running is self._waiting[0]:
                    self._waiting.popleft()
                    self._running.append(running)
                if isinstance(running, PrefillJob):
                    running.lanes = 1
                    running.start()
                    self._readings.append(running)
                    continue
            if running.started is None:
                running.start(self._desk.live_plan)
            try:
                self._start_lane(running)
            except Exception as error:
                self._fail(running, error)

    def _begin_with(self, running: RunningRequest | PrefillJob[Any]) -> list[RunningRequest]:
        """Requests next in the queue that are read and written together with ``running``, the first of it; they come
        in when it does, as far as there are so many lanes at all.
        """
        if isinstance(running, PrefillJob) or not self._waiting or running is not self._waiting[0]:
            return []
        others = self._comparing.sides_of(running, list(self._waiting)[1:])
        return others[: self._settings.MAX_LANES - 1]

    def _has_room(self, running: RunningRequest | PrefillJob[Any], others: Sequence[RunningRequest] = ()) -> bool:
        """Whether what its next lane may come to hold, and the first lane of each of ``others``, fits beside what
        those under way may.
        """
        if self._backend is None or not self._in_flight:
            return True
        held = [lane.need for lane in self._lanes] + [reading.need for reading in self._readings]
        for each in self._running:
            if isinstance(each, RunningRequest):
                held += each.prompts_held()
        if isinstance(running, PrefillJob):
            more = [running.need]
        else:
            item = running.next_choice()
            if item is None:
                return True
            more = running.needs_to_begin(item[0])
        for other in others:
            more += other.needs_to_begin(0)
        return self._admission.has_room(self._backend, held, more)

    def _start_lane(self, running: RunningRequest) -> None:
        item = there(running.next_choice())
        running.todo.remove(item)
        prompt, choice = item
        lane = Lane(running, prompt, choice)
        running.lanes += 1
        self._comparing.link(lane, self._lanes)
        with self._lock:
            self._lanes.append(lane)
        past = running.pasts.get(prompt)
        if past is not None:
            self._begin_decoding(lane, past)
            return
        if self._require_backend().capabilities.batching:
            running.reading.add(prompt)
        self._prefill.add(lane)

    # --- passes -----------------------------------------------------------------------------------------------------

    def _read_prompts(self) -> None:
        for read in self._prefill.step(self._require_backend(), self._desk.live_plan):
            if read.lane not in self._lanes:
                # Its request ended while an earlier prompt of this pass was handled.
                continue
            if read.past is None:
                self._fail_lane(read.lane, there(read.error))
            elif read.lane.follows is not None or self._comparing.is_followed(read.lane, self._lanes):
                self._comparing.hold(read.lane, read.past)
            else:
                self._begin_decoding(read.lane, read.past)

    def _begin_decoding(self, lane: Lane, past: PrefilledPrompt) -> None:
        """Choose the lane's first token from the prompt's logits and give it a row or a store of its own."""
        backend = self._require_backend()
        # A lane that shares what a sibling has read has its prompt behind it too.
        lane.fed, lane.read_under = len(lane.prompt_ids), past.read_under
        lane.follow(past.path)
        try:
            past.users_left -= 1
            last_user = past.users_left == 0
            if last_user:
                lane.running.pasts.pop(lane.prompt, None)
            if past.repeated is not None:
                lane.running.repeat(lane, past.repeated)
            ended = lane.pick(past.logits) if lane.cap else FinishReason.LENGTH
            if ended is not None:
                self._finish_lane(lane, ended)
                return
            if lane.solo:
                lane.store = past.store if last_user else self._copied(backend, past.store)
                self._solo.append(lane)
            else:
                if self._batch is None:
                    self._batch = backend.new_batch(shared=True)
                backend.join(self._batch, past.store)
                self._rows.append(lane)
        except Exception as error:
            self._fail_lane(lane, error)

    @staticmethod
    def _copied(backend: Backend, store: KVStore) -> KVStore:
        copy = backend.new_batch()
        backend.join(copy, store)
        return copy

    def _decode_batch(self) -> None:
        # Imported here: this module is loaded before the window is painted, and torch takes seconds.
        from engine.generation.sampler import greedy_rows

        backend = self._require_backend()
        batch = there(self._batch)
        lanes, lengths = list(self._rows), list(batch.lengths)
        try:
            work = self._passes.batch(lanes)
            logits = backend.decode(batch, [lane.next_token for lane in lanes], work)
            greedy = [row for row, lane in enumerate(lanes) if lane.plain_greedy]
            # One argmax and one transfer for all plain rows, not one for each. On a GPU the pass itself fails here, at
            # the first transfer, so this belongs to the same attempt.
            plain = logits if len(greedy) == len(lanes) else logits[greedy]
            best = dict(zip(greedy, greedy_rows(plain), strict=True)) if greedy else {}
        except RowsRefused as refused:
            # Nothing ran; the others get their token in the next round.
            for row, error in refused.rows.items():
                self._fail_lane(lanes[row], error)
            return
        except Exception as error:
            self._decode_row_by_row(lanes, lengths, error)
            return
        self._pace.decoded(len(lanes))
        rows = self._comparing.rows_read(lanes)
        for row, lane in zip(rows, lanes, strict=True):
            self._take(lane, logits[row], best.get(row))

    def _decode_row_by_row(self, lanes: list[Lane], lengths: list[int], error: Exception) -> None:
        """A pass over ``lanes`` has failed, at rows of ``lengths`` tokens: one row's fault is not the others' end."""
        backend, batch = self._require_backend(), there(self._batch)
        self._batch = None
        self._rows.clear()
        if len(lanes) == 1:
            self._fail_lane(lanes[0], error)
            return
        self._give_way(error)
        apart = decode_apart(backend, batch, lanes, lengths, self._passes, error)
        self._batch = apart.batch
        self._rows.extend(apart.logits)
        for lane, its_own in apart.errors.items():
            self._fail_lane(lane, its_own)
        for row, lane in zip(self._comparing.rows_read(lanes), lanes, strict=True):
            if lane in apart.logits:
                self._take(lane, apart.logits.get(lanes[row], apart.logits[lane]), None)

    def _decode_solo(self, lane: Lane) -> None:
        backend = self._require_backend()
        store = there(lane.store)
        try:
            token = [lane.next_token]
            logits = backend.extend(store, token, self._passes.one_row(lane, token))
        except Exception as error:
            self._fail_lane(lane, error)
            return
        self._pace.decoded(1)
        self._take(lane, logits, None)

    def _take(self, lane: Lane, logits: Tensor, greedy: int | None) -> None:
        """Give a lane its next token: ``greedy`` where the batch has chosen it already, else from its own row."""
        if lane not in self._lanes:
            # Its request ended while an earlier row of this pass was handled.
            return
        try:
            ended = lane.pick(logits) if greedy is None else lane.accept_greedy(greedy)
            if ended is not None:
                self._finish_lane(lane, ended)
        except Exception as error:
            self._fail_lane(lane, error)

    def _read_chunk(self) -> None:
        """Read one chunk of one reading; readings take turns. Such a pass adds nothing, and no monitor sees it."""
        if not self._readings:
            return
        reading = self._readings[0]
        try:
            if not reading.step(self._require_backend(), self._settings.PREFILL_CHUNK):
                self._readings.rotate(-1)
                return
            self._forget(reading)
            reading.finish()
        except Exception as error:
            self._fail(reading, error)

    # --- endings ----------------------------------------------------------------------------------------------------

    def _finish_lane(self, lane: Lane, reason: FinishReason) -> None:
        if lane in self._rows and self._batch is not None:
            self._reuse.keep_answer(lane, self._require_backend(), self._batch, self._rows.index(lane))
        elif lane.store is not None and lane.count > 1:
            self._reuse.keep_answer(lane, self._require_backend(), lane.store, 0)
        self._drop_lane(lane)
        if lane.capture is not None:
            lane.running.activations = lane.capture.result()
        if lane.running.finish_choice(lane, reason):
            self._forget(lane.running)

    def _fail(self, running: RunningRequest | PrefillJob[Any], error: Exception) -> None:
        self._give_way(error)
        doing = "Reading the input" if isinstance(running, PrefillJob) else "Writing the answer"
        self._end_request(running, as_failure(error, doing))

    def _fail_lane(self, lane: Lane, error: Exception) -> None:
        """A lane's own step failed, and its whole request with it; of several inputs the error says which."""
        self._give_way(error)
        self._end_request(lane.running, as_failure(error, "Writing the answer"), lane.prompt)

    def _give_way(self, error: Exception) -> None:
        """Where memory has run out, what is only kept for later goes first."""
        if isinstance(error, InsufficientMemory):
            self._reuse.clear()

    def _end_request(
        self, running: RunningRequest | PrefillJob[Any], error: MillmError, prompt: int | None = None
    ) -> None:
        if isinstance(running, PrefillJob):
            self._forget(running)
            running.fail(error)
            return
        for lane in [lane for lane in self._lanes if lane.running is running]:
            self._drop_lane(lane)
            if lane.capture is not None:
                lane.capture.close()
        running.todo.clear()
        self._forget(running)
        running.fail(error, prompt)

    def _drop_lane(self, lane: Lane) -> None:
        """Free the lane's row or store at once."""
        with self._lock:
            if lane not in self._lanes:
                return
            self._lanes.remove(lane)
        lane.running.lanes -= 1
        lane.store = None
        self._prefill.discard(lane)
        self._comparing.drop(lane)
        if lane in self._solo:
            self._solo.remove(lane)
        if lane in self._rows:
            self._leave_batch(self._rows.index(lane))

    def _leave_batch(self, row: int) -> None:
        batch = there(self._batch)
        try:
            self._require_backend().leave(batch, row)
        except Exception as error:
            # Which row is whose can no longer be said, so the other rows end with it.
            others = [lane for place, lane in enumerate(self._rows) if place != row]
            self._batch = None
            self._rows.clear()
            for lane in others:
                self._fail(lane.running, error)
            return
        self._rows[row] = self._rows[-1]
        self._rows.pop()

    def _forget(self, running: RunningRequest | PrefillJob[Any]) -> None:
        with self._idle:
            if isinstance(running, PrefillJob) and running in self._readings:
                self._readings.remove(running)
            if running in self._running:
                self._running.remove(running)
                if running.started is not None:
                    self._admission.finished_after(time.monotonic() - running.started)
            if not self._waiting and not self._running:
                # An empty batch keeps no memory: the next one starts small.
                self._batch = None
                self._passes.forget()
            self._idle.notify_all()

    def _require_backend(self) -> Backend:
        if self._backend is None:
            raise ModelBusy("The model was unloaded while the request waited.", retry_after=5)
        return self._backend
