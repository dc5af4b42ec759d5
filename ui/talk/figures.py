"""What is measured of an answer, in words. Pure functions."""

from __future__ import annotations

from ui.kit.text import counted, finish


def number(details: dict[str, object], key: str) -> float | None:
    """A figure of a message's details, where it is one."""
    value = details.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def tokens_per_second(details: dict[str, object]) -> float | None:
    """Decode speed: tokens after the first, over the time after the first. None where that is not defined."""
    tokens, total, first = (
        number(details, k) for k in ("completion_tokens", "seconds_total", "seconds_to_first_token")
    )
    if tokens is None or total is None or first is None or tokens < 2 or total <= first:
        return None
    return (tokens - 1) / (total - first)


def figures(details: dict[str, object]) -> str:
    """What is shown under an answer: why it ended, how long it is, how fast it came."""
    parts: list[str] = []
    reason = details.get("finish_reason")
    if isinstance(reason, str):
        parts.append(finish(reason))
    tokens = number(details, "completion_tokens")
    if tokens is not None and reason is not None:
        parts.append(counted(int(tokens), "token"))
    speed = tokens_per_second(details)
    if speed is not None:
        parts.append(f"{speed:.1f} tokens/s")
    return " · ".join(parts)
