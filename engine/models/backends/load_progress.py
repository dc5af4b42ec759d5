"""Progress and cancellation of a transformers load, through the library's own progress-bar hook.

``from_pretrained`` reports only through tqdm. transformers lets a program replace those bars (``set_tqdm_hook``), so
each step of the bar becomes a call of ours, and a call that raises ends the load cleanly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Any

from transformers.utils import logging as transformers_logging

Report = Callable[[float, str], None]
"""(share done 0–1, stage in words). May raise to end the load."""


class _Bar:
    """A stand-in for one tqdm bar: iterates, counts, reports."""

    def __init__(self, report: Report, iterable: Any, total: float | None, description: str) -> None:
        self._report = report
        self._iterable = iterable
        if total is None and isinstance(iterable, Sized):
            total = len(iterable)
        self.total = total
        self.n = 0.0
        self.desc = description

    def __iter__(self) -> Iterator[Any]:
        for item in self._iterable or ():
            yield item
            self.update(1)

    def update(self, n: float = 1) -> None:
        self.n += n
        self._report(min(1.0, self.n / self.total) if self.total else 0.0, self.desc)

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is drawn, so nothing has to be cleared."""

    def refresh(self) -> None:
        """Nothing is drawn."""

    def set_postfix(self, *args: Any, **kwargs: Any) -> None:
        """Names of single tensors; of no use to a person."""

    def set_description(self, description: str | None = None, refresh: bool = True) -> None:
        self.desc = description or ""


@contextmanager
def reporting_bars(report: Report) -> Iterator[None]:
    """While open, transformers' progress bars call ``report`` instead of drawing. One load at a time may use it."""

    def make(_factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Bar:
        iterable = args[0] if args else kwargs.get("iterable")
        return _Bar(report, iterable, kwargs.get("total"), str(kwargs.get("desc") or "Reading files"))

    previous = transformers_logging.set_tqdm_hook(make)
    try:
        yield
    finally:
        transformers_logging.set_tqdm_hook(previous)
