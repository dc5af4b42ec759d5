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
from concurrent.futures import Future
from types import FrameType

from app.network import Network
from app.options import Options
from app.quitter import Quitter
from app.startup import Program, choose_model, could_not_load, opened, start_engine
from app.token_store import TokenStore
from engine.engine import Engine
from engine.errors import MillmError
from engine.library.records import ModelRecord
from engine.models.shelf import LoadedModel

log = logging.getLogger(__name__)

SERVER_START_SECONDS = 30.0
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
        """The next wish."""
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
    record = choose_model(program, engine, restore=True)

    from server.thread import ServerThread

    server = quitter.server = ServerThread(engine, program.settings, insecure=program.options.insecure)
    server.start()
    address = server.wait_ready(SERVER_START_SECONDS)
    program.instance.set_port(_port_of(address))
    if record is not None and not wishes.stopping:
        failure = _load(engine, record, wishes)
        if failure is not None:
            _complain(could_not_load(record, failure))
            return 1
    if not wishes.stopping:
        print(f"Serving {record.name if record else 'no model'} at {address}", flush=True)
        program.logs.speak()
        while wishes.wait() != STOP:
            pass
    log.info("asked to stop")
    return 0


def _load(engine: Engine, record: ModelRecord, wishes: Wishes) -> MillmError | None:
    """Load and wait, unless a signal comes first; the error of a load that failed."""
    try:
        future: Future[LoadedModel] = engine.loader.load(record.id)
    except MillmError as error:
        return error
    future.add_done_callback(lambda _: wishes.say(LOADED))
    if wishes.wait() == STOP:
        return None
    failure = future.exception()
    if failure is None or isinstance(failure, MillmError):
        return failure
    raise failure


def _use_network(program: Program) -> None:
    Network().use(program.settings.PROXY, TokenStore(program.paths.data_dir).token())


def _port_of(address: str) -> int:
    from urllib.parse import urlsplit

    return urlsplit(address).port or 0


def _complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
