"""``serve``: the engine and the API server without a window.

The port is taken first, so that a start that cannot work fails before a model is read; the line ``Serving …`` is
printed when the first request would be answered.
"""

from __future__ import annotations

import logging
import queue
import signal
import sys
import threading
import time
from concurrent.futures import Future
from types import FrameType

from app.network import Network
from app.options import Options
from app.quitter import Quitter
from app.startup import FolderChoice, Program, choose_model, could_not_load, opened, start_engine
from app.token_store import TokenStore
from engine.engine import Engine
from engine.errors import LoadCancelled, MillmError, ModelBusy
from engine.models.registry import LoadedModel

log = logging.getLogger(__name__)

SERVER_START_SECONDS = 30.0
BUSY_SECONDS = 0.2
STOP = "stop"
LOADED = "loaded"


class Wishes:
    """What the main thread waits for: a signal, or the end of a load.

    A simple queue, since a signal handler may run in the middle of another call on it; an Event's lock could not bear
    that.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.stopping = False

    def listen_to_signals(self) -> None:
        """SIGINT and SIGTERM (and Windows' Ctrl+Break) ask to stop."""
        for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
            number = getattr(signal, name, None)
            if number is not None:
                signal.signal(number, self._on_signal)

    def say(self, wish: str) -> None:
        """From any thread."""
        self._queue.put(wish)

    def wait(self) -> str:
        while True:
            try:
                # Windows looks at signals only between waits.
                return self._queue.get(timeout=0.5 if sys.platform == "win32" else None)
            except queue.Empty:
                continue

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.stopping = True
        self._queue.put(STOP)


def run(options: Options) -> int:
    """Serve until a signal comes; the exit status."""
    wishes = Wishes()
    wishes.listen_to_signals()
    quitter = Quitter()
    with opened(options) as program:
        quitter.library, quitter.instance = program.library, program.instance
        try:
            status = _serve(program, quitter, wishes)
        except MillmError as error:
            _complain(error.one_line())
            status = 1
        except BaseException:
            quitter.quit(1)
            raise
        quitter.quit(status)
        return quitter.leave(status)


def _serve(program: Program, quitter: Quitter, wishes: Wishes) -> int:
    # Not on this thread: a keyring may ask somebody to unlock it, and here nobody may be there.
    threading.Thread(target=_use_network, args=(program,), name="network", daemon=True).start()
    engine = quitter.engine = start_engine(program)
    choice = choose_model(program, engine, restore=True)

    from server.thread import ServerThread

    server = quitter.server = ServerThread(engine, program.settings, insecure=program.options.insecure)
    server.start()
    address = server.wait_ready(SERVER_START_SECONDS)
    program.instance.set_port(_port_of(address))
    if choice is not None and not wishes.stopping:
        failure = _load(engine, choice, wishes)
        if failure is not None:
            line = could_not_load(choice.record, failure)
            _complain(line)
            # What a client does to the load is no reason to end what others use, nor is a model nobody named.
            if choice.named and not isinstance(failure, LoadCancelled):
                return 1
            log.warning("%s", line)
        elif program.settings.RESTORE_LAST and not wishes.stopping:
            _put_back(engine)
    if not wishes.stopping:
        resident = engine.shelf.resident
        print(f"Serving {resident.record.name if resident else 'no model'} at {address}", flush=True)
        program.logs.speak()
        while wishes.wait() != STOP:
            pass
    log.info("asked to stop")
    return 0


def _load(engine: Engine, choice: FolderChoice, wishes: Wishes) -> MillmError | None:
    """Load and wait, unless a signal comes first; the error of a load that failed."""
    future: Future[LoadedModel] | None = None
    refused: MillmError | None = None
    while future is None:
        if not choice.named and engine.shelf.resident is not None:
            # A client was quicker, the port being open already; what it asked for is wanted more than the last.
            return None
        try:
            future = engine.loader.load(choice.record.id)
        except ModelBusy as error:
            if not engine.loader.busy and error.message == getattr(refused, "message", None):
                return error
            refused = error
            if wishes.stopping:
                return None
            time.sleep(BUSY_SECONDS)
        except MillmError as error:
            return error
    future.add_done_callback(lambda _: wishes.say(LOADED))
    if wishes.wait() == STOP:
        return None
    failure = future.exception()
    if failure is None or isinstance(failure, MillmError):
        return failure
    raise failure


def _put_back(engine: Engine) -> None:
    """What was attached to the model and chosen for it last; nothing of it steers yet."""
    outcome = engine.standing.put_back()
    if words := outcome.in_words():
        log.info("%s", words)
    for problem in outcome.problems:
        log.warning("%s", problem)


def _use_network(program: Program) -> None:
    Network().use(program.settings.PROXY, TokenStore(program.paths.data_dir).token())


def _port_of(address: str) -> int:
    from urllib.parse import urlsplit

    return urlsplit(address).port or 0


def _complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
