"""Logging: structlog's formatting over the standard library's loggers.

Everything goes to a rotating file in the data directory. The terminal stays quiet while the program starts, so that a
failure is the one line that says what to do; afterwards warnings are shown there.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import structlog

FILE_NAME = "millm.log"
FILE_BYTES = 5_000_000
FILES_KEPT = 4
LINES_REMEMBERED = 200

NOISY = ("httpx", "httpcore", "urllib3", "asyncio", "filelock", "alembic", "hpack", "markdown_it")
"""Libraries whose INFO and DEBUG lines say nothing about this program."""


class _Memory(logging.Handler):
    """Keeps the last formatted lines, for crash reports."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=LINES_REMEMBERED)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.lines.append(self.format(record))
        except Exception:
            self.handleError(record)


class Logs:
    """The handlers in force. Made by :func:`set_up`."""

    def __init__(
        self, memory: _Memory, handlers: list[logging.Handler], formatter: logging.Formatter, *, debug: bool = False
    ) -> None:
        self._debug = debug
        self._memory = memory
        self._handlers = handlers
        self._formatter = formatter

    def tail(self) -> list[str]:
        """The last lines logged, oldest first."""
        return list(self._memory.lines)

    def speak(self, level: int = logging.WARNING) -> None:
        """From now on show what is at least as severe as ``level`` on standard error too."""
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setLevel(level)
        terminal.setFormatter(self._formatter)
        self._add(terminal)

    def set_level(self, level: str) -> None:
        """Log what is at least this severe from now on; with ``DEBUG`` set everything is logged all the same."""
        if not self._debug:
            logging.getLogger().setLevel(level)

    def close(self) -> None:
        """Take the handlers off again and close the file."""
        logging.captureWarnings(False)
        for handler in self._handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()
        self._handlers.clear()

    def _add(self, handler: logging.Handler) -> None:
        self._handlers.append(handler)
        logging.getLogger().addHandler(handler)


def set_up(folder: Path, *, level: str = "INFO", style: str = "console", debug: bool = False) -> Logs:
    """Start logging into ``folder``.

    Args:
        level: Least severity logged: DEBUG, INFO, WARNING or ERROR.
        style: ``console`` for lines a person reads, ``json`` for one object a line.
        debug: Log everything, to standard error too.
    """
    formatter = _formatter(style)
    file = RotatingFileHandler(folder / FILE_NAME, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8")
    memory = _Memory()
    root = logging.getLogger()
    root.setLevel(logging.DEBUG if debug else level)
    logs = Logs(memory, [], formatter, debug=debug)
    for handler in (file, memory):
        handler.setFormatter(formatter)
        logs._add(handler)
    if debug:
        logs.speak(logging.DEBUG)
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    return logs


def _formatter(style: str) -> logging.Formatter:
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=False),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    if style == "json":
        last: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        plain = structlog.dev.plain_traceback
        last = [structlog.dev.ConsoleRenderer(colors=False, exception_formatter=plain, pad_event_to=0)]
    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        foreign_pre_chain=shared,
    )
