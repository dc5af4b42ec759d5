"""Figures and outcomes as short phrases for a person; pure functions, one spelling for the whole window."""

from __future__ import annotations

from datetime import UTC, datetime

from engine.counting import plural
from engine.errors import MillmError
from engine.public.library import CUT_OFF


def describe_error(error: BaseException) -> str:
    """One or two sentences: what happened and what to do. Never a bare class name."""
    if isinstance(error, MillmError):
        return error.one_line()
    words = " ".join(str(error).split())
    return f"Something unexpected happened: {words or type(error).__name__}."


def count(number: int) -> str:
    """A whole number with thin groups: 12,345."""
    return f"{number:,}"


def counted(number: int | float, one: str, many: str | None = None) -> str:
    """So many of a thing, in its own number: 1 token, 12,345 tokens. ``many``: where it is not ``one`` with an s."""
    return f"{number:,} {plural(number, one, many)}"


def messages(number: int) -> str:
    """How many messages: 1 message, 12 messages."""
    return counted(number, "message")


def parameters(number: int | None) -> str:
    """A parameter count: 135 M, 7.2 B."""
    if number is None:
        return "unknown"
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= size:
            value = number / size
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return str(number)


def megabytes(size: float | None) -> str:
    """A size given in MB (10⁶ bytes): 98 MB, 1.4 GB."""
    if size is None:
        return "unknown size"
    if size >= 1000:
        return f"{size / 1000:.1f} GB"
    return f"{size:.0f} MB" if size >= 10 else f"{size:.1f} MB"


def number_format(dtype: str) -> str:
    """A dtype's name as people say it."""
    return {"float32": "32-bit float", "bfloat16": "bfloat16", "float16": "16-bit float"}.get(dtype, dtype)


def device_name(device: str) -> str:
    """A torch device as people say it."""
    kind = device.split(":")[0]
    return {"cpu": "CPU", "cuda": "GPU (CUDA)", "mps": "GPU (Apple)"}.get(kind, device)


def when(moment: datetime, now: datetime) -> str:
    """A past moment, shorter the nearer it is: just now, 5 min ago, 14:02, Tue 14:02, 3 Nov 2026. Both aware or UTC."""
    moment, now = (t.replace(tzinfo=UTC) if t.tzinfo is None else t for t in (moment, now))
    seconds = (now - moment).total_seconds()
    local = moment.astimezone()
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{int(seconds // 60)} min ago"
    if local.date() == now.astimezone().date():
        return f"{local:%H:%M}"
    if seconds < 6 * 86400:
        return f"{local:%a %H:%M}"
    return f"{local.day} {local:%b %Y}"


_FINISHES = {
    "stop": "finished",
    "length": "reached the length limit",
    "stopped": "stopped by you",
    "error": "broke off",
    CUT_OFF: "cut off by the program's end",
}


def finish(reason: str) -> str:
    """Why an answer ended, as a phrase."""
    return _FINISHES.get(reason, reason)


def title_of(text: str, limit: int = 60) -> str:
    """A conversation's title from its first message: its first line, cut at a word."""
    line = " ".join(text.split("\n", 1)[0].split())
    if len(line) <= limit:
        return line or "New chat"
    cut = line[:limit].rsplit(" ", 1)[0] if " " in line[:limit] else line[:limit]
    return f"{cut}…"
