"""Steering that comes beside a body: in headers, for programs that cannot change one, and with an alias of a model.

What stands in a header means what the field of that meaning does. An alias comes last: what a request brings wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_to_bytes

from werkzeug.datastructures import Headers

from engine.errors import InvalidParameter, MillmError, described
from engine.public.generation import EFFORT_VARIABLES, ChatInput, GenerationRequest, TextInput
from engine.public.steering import SteeringRequest, parse_dial
from server.aliases import Alias
from server.headers import PROFILE, STEERING_INTENSITY

if TYPE_CHECKING:
    from server.generation.endpoint import Asked

    A = TypeVar("A", bound=Asked)

_NEVER_STEERED = "Nothing is steered here"
_STRAY_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Origin:
    """Where a field's value came from that is not in the body: what an error names, and how it goes on."""

    param: str
    words: str


def with_headers(asked: A, headers: Headers) -> A:
    """``asked`` with what the headers say beside its fields.

    Raises :class:`InvalidParameter` naming the header whose value cannot be used, or whose field says something else.
    """
    if PROFILE not in headers and STEERING_INTENSITY not in headers:
        return asked
    if not asked.steers:
        return replace(asked, notes=(*asked.notes, *notes_on_headers(headers)))
    own = asked.generation.steering
    profile = _beside(PROFILE, "profile", own.profile, _profile(headers))
    dial = _beside(STEERING_INTENSITY, "steering_intensity", own.dial, _dial(headers))
    blame = dict(asked.blame)
    for name, header, value in (("profile", PROFILE, profile), ("steering_intensity", STEERING_INTENSITY, dial)):
        if value is not None and header in headers:
            if own.inline is not None:
                raise InvalidParameter(
                    f"The header '{header}' cannot be combined with 'steering', which is the whole set already.",
                    param=header,
                    remedy="Send one of the two.",
                )
            blame[name] = Origin(header, f"It was named by the header {header}.")
    generation = replace(asked.generation, steering=SteeringRequest(profile, dial, own.inline))
    return replace(asked, generation=generation, blame=blame)


def notes_on_headers(headers: Headers) -> tuple[str, ...]:
    """What to say of the headers where nothing is ever steered."""
    sent = [name for name in (PROFILE, STEERING_INTENSITY) if name in headers]
    return (f"{_NEVER_STEERED}: {' and '.join(sent)} had no effect.",) if sent else ()


def with_alias(asked: A, alias: Alias | None, model: str) -> A:
    """``asked``, which asked for ``model`` by the name of ``alias``, as that would have it."""
    if alias is None:
        return asked
    generation = asked.generation
    note = note_on_alias(generation.model, alias, model, steers=asked.steers)
    lent: frozenset[str] = frozenset()
    blame = asked.blame
    if asked.steers:
        steering = _steering(generation.steering, alias)
        if steering is not generation.steering:
            words = Origin("model", f"It was named by the alias {alias.name!r}.")
            named = ("profile",) if generation.steering.dial is not None else ("profile", "steering_intensity")
            blame = {**blame, **dict.fromkeys(named, words)}
            generation = replace(generation, steering=steering)
    if alias.chat_template_kwargs:
        generation, lent = _with_variables(generation, alias.chat_template_kwargs)
    return replace(asked.rewritten(generation), blame=blame, lent=lent, notes=(*asked.notes, note))


def note_on_alias(asked: str, alias: Alias, model: str, *, steers: bool) -> str:
    """That ``asked`` is an alias, and of what."""
    by = "" if asked == alias.name else f" (by {alias.name!r})"
    note = f"{asked!r} is an alias{by} of the model {model!r}."
    if not steers and (alias.profile is not None or alias.steering_intensity is not None):
        note += f" {_NEVER_STEERED}: what it says of steering had no effect."
    return note


@contextmanager
def blamed(asked: Asked) -> Iterator[None]:
    """An error about a field that came from elsewhere names where it came from."""
    try:
        yield
    except MillmError as error:
        origin = asked.blame.get(error.param or "")
        if origin is not None:
            error.param, error.message = origin.param, f"{error.message} {origin.words}"
        raise


def _steering(own: SteeringRequest, alias: Alias) -> SteeringRequest:
    """Its own profile or features replace all that the alias says; its own dial alone replaces the dial."""
    if own.profile is not None or own.inline is not None:
        return own
    dial = own.dial if own.dial is not None else parse_dial(alias.steering_intensity)
    made = SteeringRequest(alias.profile, dial)
    return own if made == own else made


def _with_variables(
    generation: GenerationRequest, variables: Mapping[str, Any]
) -> tuple[GenerationRequest, frozenset[str]]:
    """``generation`` with template variables where it sets none of its own, and their names."""
    given = generation.input
    if isinstance(given, TextInput):
        return generation, frozenset()
    first = given if isinstance(given, ChatInput) else given[0]
    # A word for how much to reason is one that the request brings for each of these.
    own = {*first.template_kwargs, *(() if first.effort is None else EFFORT_VARIABLES)}
    lent = {name: value for name, value in variables.items() if name not in own}

    def under(chat: ChatInput) -> ChatInput:
        return replace(chat, template_kwargs={**lent, **chat.template_kwargs})

    made = under(given) if isinstance(given, ChatInput) else tuple(under(each) for each in given)
    return replace(generation, input=made), frozenset(lent)


# --- what headers say -------------------------------------------------------------------------------------------------


def _beside(header: str, field: str, own: Any, sent: Any) -> Any:
    if own is not None and sent is not None and own != sent:
        raise InvalidParameter(
            f"The header '{header}' and the field '{field}' mean the same and have different values.",
            param=header,
            remedy="Send one of them.",
        )
    return own if sent is None else sent


def _one(headers: Headers, name: str) -> str | None:
    values = list(dict.fromkeys(value.strip() for value in headers.getlist(name)))
    if len(values) > 1:
        raise InvalidParameter(f"The header '{name}' was sent {len(values)} times with different values.", param=name)
    return values[0] if values else None


def _profile(headers: Headers) -> str | None:
    text = _one(headers, PROFILE)
    if text is None:
        return None
    try:
        if not text.isascii() or _STRAY_PERCENT.search(text):
            raise ValueError
        return unquote_to_bytes(text).decode()
    except ValueError:
        raise InvalidParameter(
            f"Invalid value for '{PROFILE}': a name, percent-encoded as UTF-8, is expected.",
            param=PROFILE,
            remedy="Write every byte outside printable ASCII, and the percent sign itself, as %XX.",
        ) from None


def _dial(headers: Headers) -> Any:
    text = _one(headers, STEERING_INTENSITY)
    if text is None:
        return None
    try:
        return parse_dial(text, param=STEERING_INTENSITY)
    except InvalidParameter:
        raise InvalidParameter(
            f"Invalid value for '{STEERING_INTENSITY}': a number from 0 to 2, or off, min or max is expected; received "
            f"{described(text)}.",
            param=STEERING_INTENSITY,
        ) from None
