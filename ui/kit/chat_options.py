"""How an answer in the window is sampled: what a person set, what the model suggests, and both in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.errors import InvalidParameter
from engine.sampling import MAX_SEED, MIN_SEED, NO_SEED, Sampling, fitting, read_biases, sentence

_SEED_DIGITS = 40

CHAT_SAMPLING = Sampling(temperature=0.7)
"""Of answers in the window, where neither the person nor the model says another."""


@dataclass(frozen=True)
class Suggested:
    """How a model reads best, by its own files or by what was measured: ``values`` by the name of a setting;
    ``source`` says by which, in words.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def temperature(self) -> float | None:
        """The temperature, where one is suggested."""
        return self.values.get("temperature")


@dataclass(frozen=True)
class ChatOptions:
    """How the next answer is written. ``max_tokens`` None: as long as the window allows."""

    system_prompt: str = ""
    max_tokens: int | None = None
    sampling: Sampling = CHAT_SAMPLING

    def to_json(self) -> dict[str, Any]:
        """All of how an answer is sampled, as it is kept with it; the system prompt belongs to a conversation."""
        sampling = self.sampling
        told = {"temperature": sampling.temperature, "max_tokens": self.max_tokens, "seed": sampling.seed}
        return told | sampling.changes()

    @classmethod
    def from_json(cls, value: Any) -> ChatOptions:
        """What :meth:`to_json` gave; anything unusable falls back to the default of its field."""
        given = value.get("max_tokens") if isinstance(value, dict) else None
        usable = isinstance(given, int) and not isinstance(given, bool) and given > 0
        return cls(max_tokens=given if usable else None, sampling=replace(CHAT_SAMPLING, **fitting(value)))


def sampling_words(details: Mapping[str, object]) -> str:
    """How an answer was sampled, as kept with it; empty where that is not known."""
    given = details.get("sampling")
    if not isinstance(given, dict):
        return ""
    seed = given.get("seed")
    words = [f"temperature {given.get('temperature')}", *sentence(given), f"seed {'random' if seed is None else seed}"]
    return ", ".join(words)


def parse_seed(text: str) -> int | None:
    """A seed as typed; blank and −1 are None. Raises InvalidParameter for anything but a whole number in range."""
    words = text.strip().replace("\N{MINUS SIGN}", "-")
    if not words:
        return None
    digits = words.removeprefix("-")
    # The length first: Python refuses to read thousands of digits.
    plain = digits.isascii() and digits.isdigit() and len(digits) <= _SEED_DIGITS
    if not plain or not MIN_SEED <= int(words) <= MAX_SEED:
        raise InvalidParameter(
            f"The seed must be a whole number from {MIN_SEED} to {MAX_SEED}.",
            param="seed",
            remedy="Leave it empty for a different answer each time.",
        )
    return None if int(words) == NO_SEED else int(words)


def parse_biases(text: str) -> dict[int, float]:
    """Biases as typed, ``token: bias`` one to a line. Raises InvalidParameter for what cannot be read so."""
    given: dict[str, float] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        token, _, bias = line.replace("\N{MINUS SIGN}", "-").partition(":")
        token = token.strip()
        try:
            value = float(bias.strip().replace(",", "."))
        except ValueError:
            raise _unreadable(f"“{line[:40]}” is no token and bias.") from None
        if token in given:
            raise _unreadable(f"Token {token[:40]} is named twice.")
        given[token] = value
    try:
        return read_biases(given)
    except ValueError as error:
        raise _unreadable(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None


def _unreadable(message: str) -> InvalidParameter:
    return InvalidParameter(
        message, param="logit_bias", remedy="Write a token id and a number from −100 to 100: 198: -100, one to a line."
    )


def biases_text(biases: Mapping[int, float]) -> str:
    """As :func:`parse_biases` reads it."""
    return "\n".join(f"{token}: {bias:g}" for token, bias in biases.items())
