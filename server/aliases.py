"""Names that stand for a model and a way to steer it: what ``MODEL_ALIASES`` may hold, and what a name then means.

Programs that can neither change a body nor send a header of their own can still be told which model to ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from engine.errors import InvalidParameter, described

MAX_NAME = 100
"""Characters of an alias."""
ANY_ENDING = "*"
"""At the end of an alias: whatever begins with what stands before it."""

_KEYS = ("model", "profile", "steering_intensity", "chat_template_kwargs")


@dataclass(frozen=True)
class Alias:
    """What a name stands for.

    Attributes:
        model: A model's name; never another alias.
        profile: Name of the profile or cluster that steers, where it names one.
        steering_intensity: The dial as it is written in a request: a number, ``off``, ``min`` or ``max``.
        chat_template_kwargs: Variables of the chat template, under those of the request.
    """

    name: str
    model: str
    profile: str | None = None
    steering_intensity: float | str | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for every name with its beginning."""
        return self.name.endswith(ANY_ENDING)


class Aliases:
    """The aliases of one value of the setting. Raises ``ValueError`` with words for one that cannot be used."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        made = [_alias(name, meaning) for name, meaning in value.items()]
        self._exact = MappingProxyType({each.name: each for each in made if not each.is_pattern})
        # The longest first: it says most about the name.
        self._patterns = tuple(sorted((each for each in made if each.is_pattern), key=lambda each: -len(each.name)))

    def find(self, name: str) -> Alias | None:
        """What ``name`` stands for; an exact alias before a pattern, the longer pattern before the shorter."""
        exact = self._exact.get(name)
        if exact is not None:
            return exact
        return next((each for each in self._patterns if name.startswith(each.name.removesuffix(ANY_ENDING))), None)

    def listed(self) -> Iterator[Alias]:
        """Those that are names of their own, in the order of the setting."""
        yield from self._exact.values()


class AliasDesk:
    """The aliases in force; they may change while the server runs. Any thread."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.now = Aliases(value)

    def use(self, value: Mapping[str, Any]) -> None:
        """Go by ``value`` from the next request on."""
        self.now = Aliases(value)


def checked(value: dict[str, Any]) -> dict[str, Any]:
    """``value`` itself. Raises ``ValueError`` with words where it cannot be used."""
    Aliases(value)
    return value


def _alias(name: str, meaning: object) -> Alias:
    if not name.strip() or len(name) > MAX_NAME:
        raise ValueError(f"the name of an alias has 1 to {MAX_NAME} characters; received {described(name)}")
    if not _is_text(name):
        raise ValueError("the name of an alias holds half of a surrogate pair, which is not Unicode text")
    if isinstance(meaning, str):
        meaning = {"model": meaning}
    if not isinstance(meaning, Mapping):
        raise ValueError(f"{name!r} stands for a model's name or an object; received {described(meaning)}")
    unknown = next((key for key in meaning if key not in _KEYS), None)
    if unknown is not None:
        raise ValueError(f"{name!r} has {unknown[:60]!r}, which is none of {', '.join(_KEYS)}")
    variables = meaning.get("chat_template_kwargs")
    if variables is not None and not isinstance(variables, Mapping):
        raise ValueError(f"'chat_template_kwargs' of {name!r} is an object; received {described(variables)}")
    profile = meaning.get("profile")
    return Alias(
        name,
        _named(name, "model", meaning.get("model")),
        None if profile is None else _named(name, "profile", profile),
        _dial(name, meaning.get("steering_intensity")),
        MappingProxyType(dict(variables or {})),
    )


def _named(alias: str, key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not _is_text(value):
        raise ValueError(f"{key!r} of {alias!r} is a name; received {described(value)}")
    return value


def _dial(alias: str, value: Any) -> float | str | None:
    # Here: most have no aliases, and the dial's module takes the library with it.
    from engine.public.steering import parse_dial

    try:
        return None if value is None or parse_dial(value) is None else value
    except InvalidParameter:
        raise ValueError(
            f"'steering_intensity' of {alias!r} is a number from 0 to 2, off, min or max; received {described(value)}"
        ) from None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
