"""A conversation with calls in it as turns that a template can write, and tools told in words where it has none."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.generation.tools.json_wires import MistralArgs, MistralList
from engine.generation.tools.probe import ToolForm
from engine.generation.tools.values import Tool

Turn = dict[str, Any]

TOOL_CALLS, TOOL_CALL_ID, NAME = "tool_calls", "tool_call_id", "name"
"""What templates call the calls of an assistant's turn, and on a tool's turn the call it answers and who answers."""

NOTE_DESCRIBED = "The model's chat template has no tools; they were described in the system text."
NOTE_UNREAD = (
    "The model's chat template writes calls in a form that is not read here; the tools were described in the system "
    "text."
)
NOTE_NO_TEXT = "The chat template has no place for text beside a call; what the assistant said there was left out."
NOTE_SPLIT = "The chat template takes one call a turn; turns with several calls were written as several."

_ID_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def told_turns(turns: Sequence[Turn], form: ToolForm) -> list[Turn]:
    """``turns`` as the template is given them: calls as templates know them, or as the text of the wire."""
    return [_native(turn, form) if form.native else _described(turn, form) for turn in turns]


def _native(turn: Turn, form: ToolForm) -> Turn:
    made = dict(turn)
    short = isinstance(form.wire, MistralList | MistralArgs)
    if calls := turn.get(TOOL_CALLS):
        made[TOOL_CALLS] = [
            {
                "id": _nine(call.id) if short else call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.arguments if form.arguments_as_text else call.value(),
                },
            }
            for call in calls
        ]
    if short and turn.get(TOOL_CALL_ID):
        made[TOOL_CALL_ID] = _nine(turn[TOOL_CALL_ID])
    return made


def _described(turn: Turn, form: ToolForm) -> Turn:
    made = {key: value for key, value in turn.items() if key not in (TOOL_CALLS, TOOL_CALL_ID, NAME)}
    if calls := turn.get(TOOL_CALLS):
        written = [form.wire.written(call.name, call.value()) for call in calls]
        made["content"] = "\n".join([text for text in (turn["content"],) if text.strip()] + written)
    if turn["role"] == "tool":
        made["role"] = "user"
        made["content"] = f"<tool_response>\n{turn['content']}\n</tool_response>"
    return made


def _nine(call_id: str) -> str:
    """``call_id`` as nine letters and digits; the same one for the same."""
    if len(call_id) == 9 and call_id.isascii() and call_id.isalnum():
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).digest()[:12])
    letters = ""
    for _ in range(9):
        number, letter = divmod(number, len(_ID_LETTERS))
        letters += _ID_LETTERS[letter]
    return letters


def one_call_a_turn(turns: Sequence[Turn]) -> list[Turn] | None:
    """``turns`` with each call in a turn of its own, followed by its answer; None where they are so already."""
    made: list[Turn] = []
    left = list(turns)
    split = False
    while left:
        turn = left.pop(0)
        calls = turn.get(TOOL_CALLS) or []
        if len(calls) < 2:
            made.append(turn)
            continue
        split = True
        answers = _answers(left)
        del left[: len(answers)]
        for number, call in enumerate(calls):
            made.append({**turn, "content": turn["content"] if number == 0 else "", TOOL_CALLS: [call]})
            made += [answer for answer in answers if answer.get(TOOL_CALL_ID) == call["id"]]
        told = {call["id"] for call in calls}
        made += [answer for answer in answers if answer.get(TOOL_CALL_ID) not in told]
    return made if split else None


def no_text_beside_calls(turns: Sequence[Turn]) -> list[Turn] | None:
    """``turns`` without what an assistant said in a turn with calls; None where it said nothing there."""
    if not any(turn.get(TOOL_CALLS) and turn["content"].strip() for turn in turns):
        return None
    return [{**turn, "content": ""} if turn.get(TOOL_CALLS) else turn for turn in turns]


def other_ways(turns: Sequence[Turn]) -> list[tuple[list[Turn], list[str]]]:
    """Other ways to tell a template of the calls in ``turns``, the nearest first, each with its notes."""
    apart = one_call_a_turn(turns)
    ways = [] if apart is None else [(apart, [NOTE_SPLIT])]
    for way, notes in [(list(turns), list[str]()), *ways]:
        if (bare := no_text_beside_calls(way)) is not None:
            ways.append((bare, [*notes, NOTE_NO_TEXT]))
    return ways


def _answers(turns: Sequence[Turn]) -> list[Turn]:
    """The tools' turns that ``turns`` begin with."""
    return list(itertools.takewhile(lambda turn: turn["role"] == "tool", turns))


def description(tools: Sequence[Tool], form: ToolForm) -> str:
    """What a model without tools of its own is told of ``tools``."""
    listed = "\n".join(json.dumps(tool.told()["function"], ensure_ascii=False) for tool in tools)
    example = form.wire.written("NAME", {"ARGUMENT": "VALUE"})
    return (
        "You can call functions. Each line below describes one, its arguments as a JSON schema:\n"
        f"<tools>\n{listed}\n</tools>\n"
        "To call a function, write its name and its arguments in exactly this form, and nothing after it:\n"
        f"{example}\n"
        "What it gives back comes in <tool_response>. Call one only where it helps; otherwise answer in plain words."
    )


def with_description(turns: Sequence[Turn], text: str) -> list[Turn]:
    """``turns`` with ``text`` in their system turn; one is made where they have none."""
    made = list(turns)
    if made and made[0]["role"] == "system":
        own = made[0]["content"]
        made[0] = {**made[0], "content": f"{own}\n\n{text}" if own.strip() else text}
    else:
        made.insert(0, {"role": "system", "content": text})
    return made


def variables_for(tools: Sequence[Tool]) -> Mapping[str, object]:
    """What a template with tools of its own is given of ``tools``."""
    return {"tools": [tool.told() for tool in tools]}
