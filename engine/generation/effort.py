"""How much a model shall reason, in a word: what that means for its chat template.

Templates know no common word for it. Some read ``reasoning_effort``, each with levels of its own; more read
``enable_thinking``, which is on or off; most read neither.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engine.generation.request import ChatInput, Effort, TextInput

if TYPE_CHECKING:
    from engine.models.backends.backend import Tokenizer

LEVEL = "reasoning_effort"
SWITCH = "enable_thinking"
VARIABLES = (LEVEL, SWITCH)


_ORDER = tuple(Effort)
_OFF = (Effort.NONE, Effort.MINIMAL)


def with_effort(tokenizer: Tokenizer, chat: ChatInput) -> tuple[ChatInput, bool]:
    """``chat`` with its effort as a variable of the template, and whether it has any effect.

    A variable that is set by name wins over it. It has none either where the template reads neither variable, or where
    there is no template that takes any.
    """
    effort = chat.effort
    if effort is None:
        return chat, True
    name = _variable(tokenizer)
    if name is None or name in chat.template_kwargs:
        return replace(chat, effort=None), False
    value: object = effort not in _OFF
    if name == LEVEL:
        value = snapped(effort, tokenizer.template_levels(LEVEL)).value
    return replace(chat, effort=None, template_kwargs={**chat.template_kwargs, name: value}), True


def settled(tokenizer: Tokenizer, given: ChatInput | tuple[ChatInput, ...] | TextInput) -> tuple[Any, tuple[str, ...]]:
    """:func:`with_effort` for each conversation of an input, in its form, and the name of what had no effect."""
    if isinstance(given, TextInput):
        return given, ()
    if isinstance(given, ChatInput):
        chat, used = with_effort(tokenizer, given)
        return chat, () if used else (LEVEL,)
    found = [with_effort(tokenizer, each) for each in given]
    idle = () if all(used for _, used in found) else (LEVEL,)
    return tuple(chat for chat, _ in found), idle


def snapped(effort: Effort, known: Collection[str]) -> Effort:
    """The level of those a template tells apart that is nearest to ``effort``, the higher of two. As it was sent where
    fewer than two are known: what a template does with any other word than the one it asks for is its own affair.
    """
    levels = [each for each in _ORDER if each.value in known]
    if len(levels) < 2:
        return effort
    place = _ORDER.index(effort)
    return min(levels, key=lambda level: (abs(_ORDER.index(level) - place), -_ORDER.index(level)))


def _variable(tokenizer: Tokenizer) -> str | None:
    """What the template reads of it; its own word for it where that cannot be told."""
    if not (tokenizer.has_chat_template and tokenizer.takes_variables):
        return None
    read = tokenizer.template_variables()
    if read is None:
        return LEVEL
    return next((name for name in VARIABLES if name in read), None)
