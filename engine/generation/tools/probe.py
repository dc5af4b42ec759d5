"""Which wire a model speaks: found by letting its chat template write a call, never by its name.

Knows templates by what they make of a conversation with a tool in it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from engine.generation.tools.json_wires import Generic, Hermes, Llama3, MistralArgs, MistralList
from engine.generation.tools.raw_wires import Pythonic, QwenXml
from engine.generation.tools.wire import Wire
from engine.models.backends.templates.chat import TemplateRaised

_NAME, _KEY, _VALUE = "count_marmots", "burrow", "Quokka 4817"
_ASKED = "Brisk otters count 2359 pebbles."
_ANSWERED = "Pale wyverns brew 6642 gallons."
_TOLD = "Numbers the vexed jackdaws."
_TOOL = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": _TOLD,
        "parameters": {
            "type": "object",
            "properties": {_KEY: {"type": "string", "description": "Where."}},
            "required": [_KEY],
        },
    },
}
_ID = "a1B2c3D4e"
"""Nine letters and digits, which is what Mistral's templates ask for."""


class RendersTools(Protocol):
    """What is needed of a tokenizer."""

    @property
    def has_chat_template(self) -> bool:
        """Whether the model came with a chat template."""

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final: bool,
        kwargs: Mapping[str, object],
    ) -> str:
        """The conversation as the model's template writes it. Raises ``TemplateRaised``."""


@dataclass(frozen=True)
class ToolForm:
    """How a model is told of tools and writes calls.

    Attributes:
        native: The template itself has tools; else they are described in the system text.
        arguments_as_text: The template wants the arguments of earlier calls as text.
        unread: The template has tools, in a form that is not read here.
    """

    wire: Wire
    native: bool = False
    arguments_as_text: bool = False
    unread: bool = False


GENERIC = ToolForm(Generic())

_SHAPES: tuple[tuple[re.Pattern[str], Callable[[], Wire]], ...] = (
    (re.compile(rf"\[TOOL_CALLS\]\s*{_NAME}(?:\[CALL_ID\]\w*)?\[ARGS\]\s*\{{"), MistralArgs),
    (re.compile(rf'\[TOOL_CALLS\]\s*\[\s*\{{[^{{]*"name":\s*"{_NAME}"'), MistralList),
    (re.compile(rf"<function={_NAME}>\s*<parameter={_KEY}>"), QwenXml),
    (re.compile(rf"<\|tool_call_start\|>\[{_NAME}\({_KEY}="), Pythonic),
    (re.compile(rf"\[{_NAME}\({_KEY}="), lambda: Pythonic(bare=True)),
    (re.compile(rf'<tool_call>\s*\{{\s*"name":\s*"{_NAME}",\s*"arguments":\s*\{{'), Hermes),
    (re.compile(rf'\{{\s*(?:"type":\s*"function",\s*)?"name":\s*"{_NAME}",\s*"parameters":\s*\{{'), Llama3),
)
"""How a call looks in each wire, behind what was asked."""

_known: WeakKeyDictionary[Any, ToolForm] = WeakKeyDictionary()
_lock = threading.Lock()


def tool_form(tokenizer: RendersTools) -> ToolForm:
    """How the model of ``tokenizer`` is told of tools and writes calls; found once for each."""
    with _lock:
        found = _known.get(tokenizer)
    if found is None:
        found = _found(tokenizer)
        with _lock:
            _known[tokenizer] = found
    return found


def _found(tokenizer: RendersTools) -> ToolForm:
    if not tokenizer.has_chat_template:
        return GENERIC
    asked: list[Mapping[str, Any]] = [{"role": "user", "content": _ASKED}]
    shown = _try(tokenizer, asked)
    if shown is None or _NAME not in shown or _TOLD not in shown:
        return GENERIC
    for as_text in (False, True):
        arguments: Any = f'{{"{_KEY}": "{_VALUE}"}}' if as_text else {_KEY: _VALUE}
        call = {"id": _ID, "type": "function", "function": {"name": _NAME, "arguments": arguments}}
        turns = [
            *asked,
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": _ANSWERED, "tool_call_id": _ID, "name": _NAME},
        ]
        written = _try(tokenizer, turns)
        if written is None or _ANSWERED not in written or _VALUE not in written:
            continue
        behind = written[written.rfind(_ASKED) :]
        wire = next((make for shape, make in _SHAPES if shape.search(behind)), None)
        if wire is not None:
            return ToolForm(wire(), native=True, arguments_as_text=as_text)
    return ToolForm(Generic(), unread=True)


def _try(tokenizer: RendersTools, turns: Sequence[Mapping[str, Any]]) -> str | None:
    try:
        return tokenizer.render_chat(turns, add_generation_prompt=True, continue_final=False, kwargs={"tools": [_TOOL]})
    except TemplateRaised:
        return None
