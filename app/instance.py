"""One process per data directory: a lock the system releases when the process dies, and a note that says who holds it.

The note also names a loopback port on which a first window listens for "show yourself" from a second start; a token in
the note (readable by its owner only) keeps others from asking.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import os
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from app.paths import REMEDY, Paths
from engine.errors import DataDirectoryInUse, DataDirectoryUnusable

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
ANSWER_SECONDS = 3.0
NOTE_SECONDS = 2.0
LONGEST_LINE = 1 << 20


@dataclass(frozen=True)
class Holder:
    """Who uses a data directory.

    Attributes:
        pid: Process id.
        role: The command it was started with: gui, serve or demo.
        port: Port of its API server, or the one it is about to use; None when it has none.
        raise_port: Loopback port that shows the window on request; None when there is no window.
        token: What such a request has to carry.
    """

    pid: int
    role: str
    port: int | None = None
    raise_port: int | None = None
    token: str = ""

    def in_words(self) -> str:
        """For a message: pid, role and port."""
        port = "no server port" if self.port is None else f"port {self.port}"
        return f"pid {self.pid}, {self.role}, {port}"


class Instance:
    """The claim of this process on a data directory. Made by :meth:`claim`."""

    def __init__(self, paths: Paths, lock: FileLock, holder: Holder) -> None:
        self._paths = paths
        self._lock = lock
        self._holder = holder
        self._listener: socket.socket | None = None
        self._answering: threading.Thread | None = None
        self._closed = threading.Event()

    @classmethod
    def claim(cls, paths: Paths, *, role: str, port: int | None = None) -> Instance:
        """Take the data directory for this process.

        Raises:
            DataDirectoryInUse: another process holds it; ``details`` has its pid and port.
            DataDirectoryUnusable: the file system cannot lock.
        """
        # Not thread-bound: a claim is given back on whichever thread quits. The short patience is for current_holder()
        # of another process, which takes the lock for a moment to see whether it can.
        lock = FileLock(paths.lock_file, timeout=0.5, mode=0o600, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            raise in_use(paths, current_holder(paths)) from None
        except (OSError, NotImplementedError) as error:
            raise DataDirectoryUnusable(
                f"The data directory {paths.data_dir} cannot be locked: {error}.",
                details={"path": str(paths.lock_file)},
                remedy=REMEDY,
            ) from error
        instance = cls(paths, lock, Holder(os.getpid(), role, port))
        instance._write()
        return instance

    def set_port(self, port: int | None) -> None:
        """Say which port the API server really has."""
        self._holder = replace(self._holder, port=port)
        self._write()

    def listen(self, show: Callable[[tuple[Path, ...]], None]) -> None:
        """Call ``show`` (on a thread of its own) whenever a second start asks for this process's window.

        Its argument are the documents that were to be opened; mostly none.
        """
        listener = socket.create_server((LOOPBACK, 0))
        self._listener = listener
        token = secrets.token_hex(16)
        self._answering = threading.Thread(
            target=_answer, args=(listener, token, show, self._closed), name="raise-window", daemon=True
        )
        self._answering.start()
        self._holder = replace(self._holder, raise_port=listener.getsockname()[1], token=token)
        self._write()

    def release(self) -> None:
        """Give the directory back. Harmless when repeated."""
        if self._listener is not None and self._answering is not None:
            self._closed.set()
            with contextlib.suppress(OSError):
                # Closing a socket does not wake a thread that waits on it; a connection does.
                socket.create_connection(self._listener.getsockname(), timeout=ANSWER_SECONDS).close()
            self._answering.join(ANSWER_SECONDS)
            self._listener.close()
            self._listener = None
        if self._lock.is_locked:
            self._paths.instance_file.unlink(missing_ok=True)
            self._lock.release()

    def _write(self) -> None:
        """Replace the note in one step, so that a reader never sees half of it."""
        handle, name = tempfile.mkstemp(dir=self._paths.data_dir, prefix=".instance-")  # mode 0600
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(self._holder), file)
        Path(name).replace(self._paths.instance_file)


def current_holder(paths: Paths) -> Holder | None:
    """Who holds the data directory, or None when nobody does. Only reads.

    A process that has just taken the lock may not have written its note yet: that is waited for, shortly.
    """
    deadline = time.monotonic() + NOTE_SECONDS
    while True:
        if not _is_locked(paths):
            return None
        if (holder := _read(paths)) is not None:
            return holder
        if time.monotonic() > deadline:
            return Holder(0, "unknown")
        time.sleep(0.05)


def in_use(paths: Paths, holder: Holder | None) -> DataDirectoryInUse:
    """The error for a directory that ``holder`` has."""
    who = "another process" if holder is None or holder.pid == 0 else f"another miLLM process ({holder.in_words()})"
    return DataDirectoryInUse(
        f"The data directory {paths.data_dir} is in use by {who}.",
        details={"pid": holder.pid, "port": holder.port, "role": holder.role} if holder else {},
        remedy="Quit it first, or give this one a directory of its own with --data-dir.",
    )


def ask_to_show(holder: Holder, files: Sequence[Path] = ()) -> bool:
    """Ask the process to show its window, and ``files`` in it; True when it says that it does."""
    if holder.raise_port is None:
        return False
    try:
        with socket.create_connection((LOOPBACK, holder.raise_port), timeout=ANSWER_SECONDS) as connection:
            wanted = json.dumps([str(file) for file in files])
            connection.sendall(f"show {holder.token} {wanted}\n".encode())
            return connection.recv(16).startswith(b"ok")
    except OSError as error:
        log.warning("the first window did not answer: %s", error)
        return False


def _is_locked(paths: Paths) -> bool:
    if not paths.lock_file.exists():
        return False
    lock = FileLock(paths.lock_file, timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return True
    except (OSError, NotImplementedError):
        return False  # a directory that cannot be locked cannot be held either
    lock.release()
    return False


def _read(paths: Paths) -> Holder | None:
    try:
        content = json.loads(paths.instance_file.read_text(encoding="utf-8"))
        holder = Holder(**content)
    except (OSError, ValueError, TypeError):
        return None
    # A note left behind by a killed process names a pid that is gone, while its successor has not written yet.
    return holder if _alive(holder.pid) else None


def _alive(pid: int) -> bool:
    import psutil

    return bool(psutil.pid_exists(pid))


def _answer(
    listener: socket.socket, token: str, show: Callable[[tuple[Path, ...]], None], closed: threading.Event
) -> None:
    expected = f"show {token}".encode()
    while not closed.is_set():
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            if closed.is_set():
                return
            connection.settimeout(ANSWER_SECONDS)
            asked, _, wanted = _line(connection).partition(b" [")
            files = _files(b"[" + wanted)
            if not hmac.compare_digest(asked, expected) or files is None:
                connection.sendall(b"no\n")
                continue
            show(files)
            connection.sendall(b"ok\n")


def _line(connection: socket.socket) -> bytes:
    """What was sent up to the end of the line."""
    line = b""
    while not line.endswith(b"\n") and len(line) < LONGEST_LINE:
        part = connection.recv(4096)
        if not part:
            break
        line += part
    return line.rstrip(b"\n")


def _files(text: bytes) -> tuple[Path, ...] | None:
    try:
        names = json.loads(text)
    except ValueError:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    return tuple(Path(name) for name in names)
