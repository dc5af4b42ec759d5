"""The two doors of the GUI thread: one in (:meth:`Bridge.post`, events), one out (:meth:`Bridge.run_in_background`).

Nothing else in ``ui/`` starts a thread or touches a widget from one. Work that may take longer than a frame (the
library, tokenizing, imports, starting a server) leaves through ``run_in_background``; its result, an engine event or
a piece of streamed text comes back as a queued signal and is handled on the GUI thread.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

import shiboken6
from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from engine.events import Event, EventBus, Subscription

log = logging.getLogger(__name__)

T = TypeVar("T")
Callback = Callable[..., None]

STREAM_INTERVAL_MS = 50
"""Streamed items reach the window at most this often: 20 times a second, faster than anyone reads."""


def _alive(receiver: QObject | None) -> bool:
    """Whether a Qt object can still be called; its Python half may outlive its C++ half."""
    return receiver is None or shiboken6.isValid(receiver)


def _receiver_of(callback: Callback | None, owner: QObject | None) -> QObject | None:
    """The Qt object a callback belongs to: the one named, else the one it is a method of."""
    if owner is not None:
        return owner
    bound = getattr(callback, "__self__", None)
    return bound if isinstance(bound, QObject) else None


class Bridge(QObject):
    """Carries engine events into the GUI thread and long work out of it. Created and closed on the GUI thread.

    Callbacks whose receiver (``owner``, or the QObject a bound method belongs to) is gone are dropped, so a page may be
    closed while its work is under way.
    """

    event_arrived = Signal(object)
    """An :class:`engine.events.Event`, on the GUI thread."""
    failed = Signal(object)
    """An exception of background work that named no ``on_error``; the window shows it."""
    _call = Signal(object)

    def __init__(self, events: EventBus | None = None, *, threads: int = 4, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._open = True
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._limit = threads
        self._workers: list[threading.Thread] = []
        self._busy = 0
        self._lock = threading.Lock()
        self._under_way: dict[Hashable, list[tuple[Callback | None, Callback | None, QObject | None]]] = {}
        """Who waits for what is under way under a key; of the GUI thread alone."""
        self._call.connect(self._run_posted, Qt.ConnectionType.QueuedConnection)
        self._subscription: Subscription | None = events.subscribe(self._on_event) if events is not None else None

    # --- in ---------------------------------------------------------------------------------------------------------

    def post(self, callback: Callback, *args: Any, owner: QObject | None = None) -> None:
        """Call ``callback(*args)`` on the GUI thread soon. From any thread; dropped once the bridge is closed."""
        if not self._open:
            return
        receiver = _receiver_of(callback, owner)

        def deliver() -> None:
            if self._open and _alive(receiver):
                callback(*args)

        try:
            self._call.emit(deliver)
        except RuntimeError:
            # The C++ half went away between the check and the call: the program is ending, nobody waits for this.
            log.debug("a callback came after the bridge was destroyed")

    def when_done(
        self,
        future: Future[T],
        on_done: Callable[[T], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        *,
        owner: QObject | None = None,
    ) -> None:
        """Bring the outcome of an engine future into the GUI thread without a thread waiting for it."""

        def finished(ended: Future[T]) -> None:
            try:
                value = ended.result()
            except CancelledError:
                return
            except Exception as error:
                self._deliver_error(error, on_error, owner)
            else:
                if on_done is not None:
                    self.post(on_done, value, owner=owner)

        future.add_done_callback(finished)

    # --- out --------------------------------------------------------------------------------------------------------

    def run_in_background(
        self,
        task: Callable[[], T],
        on_done: Callable[[T], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        *,
        owner: QObject | None = None,
    ) -> None:
        """Run ``task`` on a pool thread, then one of the callbacks on the GUI thread.

        Without ``on_error`` a failure is logged and emitted as :attr:`failed`. Tasks start in order, several at once.
        """
        if not self._open:
            return

        def work() -> None:
            try:
                value = task()
            except Exception as error:
                self._deliver_error(error, on_error, owner)
            else:
                if on_done is not None:
                    self.post(on_done, value, owner=owner)

        self._tasks.put(work)
        with self._lock:
            self._busy += 1
            if self._busy > len(self._workers) < self._limit:
                # Daemon threads: a task stuck in a library must not keep the process alive after the window is gone.
                worker = threading.Thread(target=self._work, name=f"ui-background-{len(self._workers)}", daemon=True)
                self._workers.append(worker)
                worker.start()

    def run_once(
        self,
        key: Hashable,
        task: Callable[[], T],
        on_done: Callable[[T], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        *,
        owner: QObject | None = None,
    ) -> bool:
        """As :meth:`run_in_background`, but what is under way under ``key`` is not begun again: this one joins it.

        ``key`` says what is done to which thing, the same from every page. Everybody who joined hears the outcome, each
        ``owner`` once. On the GUI thread. Returns False where the owner waits for this already: a second click.
        """
        listeners = self._under_way.get(key)
        if listeners is not None:
            if any(each is owner for _, _, each in listeners):
                return False
            listeners.append((on_done, on_error, owner))
            return True
        self._under_way[key] = [(on_done, on_error, owner)]

        def done(value: T) -> None:
            for heard, _, each in self._under_way.pop(key):
                if heard is not None and _alive(_receiver_of(heard, each)):
                    heard(value)

        def failed(error: Exception) -> None:
            for _, heard, each in self._under_way.pop(key):
                if heard is None:
                    self.failed.emit(error)
                elif _alive(_receiver_of(heard, each)):
                    heard(error)

        self.run_in_background(task, done, failed, owner=self)
        return True

    def shutdown(self, timeout: float = 0.5) -> bool:
        """Drop what waits, deliver nothing more, give running tasks ``timeout`` seconds. False if some still run."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        self._open = False
        workers = list(self._workers)
        for _ in workers:
            self._tasks.put(None)
        deadline = time.monotonic() + timeout
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        return not any(worker.is_alive() for worker in workers)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            if self._open:
                task()
            with self._lock:
                self._busy -= 1

    def _deliver_error(
        self, error: Exception, on_error: Callable[[Exception], None] | None, owner: QObject | None
    ) -> None:
        if on_error is not None:
            self.post(on_error, error, owner=owner)
        else:
            log.error("background work failed", exc_info=error)
            self.post(self.failed.emit, error, owner=self)

    def _on_event(self, event: Event) -> None:
        self.post(self.event_arrived.emit, event, owner=self)

    @Slot(object)
    def _run_posted(self, deliver: Callable[[], None]) -> None:
        deliver()


class Inbox(QObject):
    """Collects items put from any thread and hands them over on the GUI thread, in order and in batches.

    The first item of a burst arrives at once; the rest at most every ``interval_ms``, however fast they come.
    """

    arrived = Signal(list)
    _wake = Signal()

    def __init__(self, interval_ms: int = STREAM_INTERVAL_MS, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = threading.Lock()
        self._items: list[Any] = []
        self._closed = False
        self._last_flush = 0.0
        self._interval = interval_ms / 1000
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._flush)
        self._wake.connect(self._schedule, Qt.ConnectionType.QueuedConnection)

    def put(self, item: Any) -> None:
        """Add one item. From any thread; returns at once; ignored after :meth:`close`."""
        with self._lock:
            if self._closed:
                return
            self._items.append(item)
            first = len(self._items) == 1
        if first:
            try:
                self._wake.emit()
            except RuntimeError:
                log.debug("an item came after its inbox was destroyed")

    def close(self) -> None:
        """Take nothing more and drop what waits."""
        with self._lock:
            self._closed = True
            self._items.clear()

    @Slot()
    def _schedule(self) -> None:
        if not self._timer.isActive():
            left = self._last_flush + self._interval - time.monotonic()
            self._timer.start(max(0, round(left * 1000)))

    @Slot()
    def _flush(self) -> None:
        with self._lock:
            items, self._items = self._items, []
        self._last_flush = time.monotonic()
        if items:
            self.arrived.emit(items)
