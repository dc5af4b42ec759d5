"""Quitting: the order, once only, and the hard exit for what cannot be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable

from app.quitter import Quitter


class Parts:
    """Stands for everything the quitter ends, and notes what it is told."""

    def __init__(self, *, clean: bool = True) -> None:
        self.log: list[str] = []
        self.clean = clean
        self.left: list[int] = []
        self.gone = threading.Event()

    def part(self, name: str, method: str, action: Callable[[], object] = lambda: None) -> object:
        def call(*_: object) -> object:
            self.log.append(name)
            return action()

        return type(name, (), {method: staticmethod(call)})()

    def quitter(self, **changes: object) -> Quitter:
        parts = {
            "server": self.part("server", "close"),
            "engine": self.part("engine", "stop", lambda: self.clean),
            "window": lambda: self.log.append("window"),
            "library": self.part("library", "close"),
            "instance": self.part("instance", "release"),
            "hard_exit": self._leave,
            **changes,
        }
        return Quitter(**parts)  # type: ignore[arg-type]

    def _leave(self, status: int) -> None:
        self.left.append(status)
        self.gone.set()


ORDER = ["server", "engine", "window", "library", "instance"]


def test_order_and_once() -> None:
    parts = Parts()
    quitter = parts.quitter()
    quitter.quit()
    quitter.quit()
    assert parts.log == ORDER
    assert parts.left == []
    quitter.leave(0)
    assert parts.left == [0]


def test_a_part_that_fails_does_not_keep_the_others_alive() -> None:
    parts = Parts()

    def fail() -> None:
        raise RuntimeError("no")

    parts.quitter(server=parts.part("server", "close", fail)).quit()
    assert parts.log == ORDER


def test_what_cannot_be_interrupted_is_left_by_a_hard_exit_after_the_database_is_closed() -> None:
    parts = Parts(clean=False)
    quitter = parts.quitter()
    quitter.quit()
    assert parts.log == ORDER
    quitter.leave(0)
    assert parts.left == [0]


def test_the_watchdog_leaves_when_a_part_hangs_and_closes_the_database_first() -> None:
    parts = Parts()
    release = threading.Event()
    quitter = parts.quitter(server=parts.part("server", "close", release.wait), seconds=0.05)
    quitting = threading.Thread(target=quitter.quit, args=(7,))
    quitting.start()
    try:
        assert parts.gone.wait(30)
        assert parts.left == [7]
        assert parts.log == ["server", "library", "instance"]
    finally:
        release.set()
        quitting.join()


def test_nothing_to_end_is_no_error() -> None:
    left: list[int] = []
    quitter = Quitter(hard_exit=left.append)
    quitter.quit()
    quitter.leave(0)
    assert left == [0]
