"""Wires whose calls are no JSON: Qwen-Coder's tags with raw values, and calls as Python would write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from engine.generation.tools.raw_scanners import PythonArguments, TaggedArguments, is_text
from engine.generation.tools.scanners import Scanner
from engine.generation.tools.values import Tool, ToolKind
from engine.generation.tools.wire import MarkRule, Patterns, Wire, either, literal, repeated, told_to_library


class QwenXml(Wire):
    """``<function=NAME><parameter=KEY>…</parameter></function>`` in the tags of Hermes: values are raw, and what they
    are the schema says.
    """

    name = "qwen-xml"
    marks = ("<tool_call>", "</tool_call>")

    def patterns(self, names: Sequence[str]) -> Patterns:
        """As in the base."""
        return Patterns(
            r"<tool_call>|<function=",
            rf"(?:<tool_call>\s{{0,8}})?<function=(?P<name>{either(names)})>",
            r"\s{0,8}</tool_call>",
        )

    def rules(self, arguments: Mapping[str, str], most: int, mark: MarkRule) -> str:
        """As in the base."""
        alternatives = [f"one_{place}" for place in range(len(arguments))]
        opened = f"{mark(self.marks[0])} BREAK"
        lines = [
            f"held: {opened} functions BREAK {mark(self.marks[1])} | functions BREAK {mark(self.marks[1])}",
            f"whole: {opened} functions BREAK {mark(self.marks[1])}",
            f"calls: {repeated('whole', 'BREAK whole', most)}",
            f"functions: {' | '.join(alternatives)}",
            r"BREAK: /\n?/",
        ]
        for alternative, (name, rule) in zip(alternatives, arguments.items(), strict=True):
            lines.append(f'{alternative}: {literal(f"<function={name}>")} BREAK {rule} "</function>"')
        return "\n".join(lines) + "\n"

    def scanner(self, tool: Tool) -> Scanner:
        """As in the base."""
        return TaggedArguments(tool.schema, custom=tool.kind is ToolKind.CUSTOM)

    def arguments_rule(self, name: str, schema: Mapping[str, Any]) -> str:
        """As in the base."""
        listed = schema.get("properties") or {}
        lines: list[str] = []
        members: list[str] = []
        for place, (key, inner) in enumerate(listed.items()):
            member = f"{name}_{place}"
            needed = key in schema.get("required", ())
            members.append(member if needed else f"{member}?")
            lines.append(
                f"{member}: {literal(f'<parameter={key}>')} BREAK {member}_value\n"
                + _value_rules(f"{member}_value", inner, schema)
            )
        if not listed and schema.get("additionalProperties", True) is not False:
            members.append(f"{name}_any{{0,16}}")
            lines.append(
                f'{name}_any: "<parameter=" /[A-Za-z0-9_.-]{{1,64}}/ ">" BREAK {name}_any_value\n'
                + _value_rules(f"{name}_any_value", {"type": "string"}, schema)
            )
        return f"{name}: {' '.join(members) or _NOTHING}\n{''.join(lines)}"

    def cannot_hold(self, schema: Mapping[str, Any]) -> str | None:
        """As in the base: raw text is held to its length and to listed values, not to a pattern."""
        if (why := _not_in_order(schema)) is not None:
            return why
        for key, inner in (schema.get("properties") or {}).items():
            if isinstance(inner, Mapping) and is_text(inner) and any(w in inner for w in ("pattern", "allOf")):
                return f"the text of {key!r} is written raw, and cannot be held to a pattern"
        return None

    def written(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """As in the base."""
        given = arguments if isinstance(arguments, Mapping) else {"arguments": arguments}
        inside = "".join(
            f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}\n"
            "</parameter>\n"
            for key, value in given.items()
        )
        return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


def _not_in_order(schema: Mapping[str, Any]) -> str | None:
    """Why arguments that are written one by one, in the order they are listed in, cannot be held to ``schema``."""
    if beside := [word for word in ("anyOf", "allOf", "$ref", "enum", "const") if word in schema]:
        return f"its arguments are written one by one, and {beside[0]!r} speaks of all of them"
    listed = schema.get("properties") or {}
    if unlisted := [name for name in schema.get("required", ()) if name not in listed]:
        return f"{unlisted[0]!r} is required and not among the properties"
    if not listed and isinstance(schema.get("additionalProperties"), Mapping):
        return "its arguments have no names"
    return None


_NOTHING = '""'
_CLOSES = r"/\n?<\/parameter>/ BREAK"
_CLOSING = "</parameter>"


def _value_rules(name: str, schema: Any, root: Mapping[str, Any]) -> str:
    """The rule ``name`` of a value and what ends it: text as it is, anything else as JSON."""
    if not isinstance(schema, Mapping) or not is_text(schema):
        return f"{name}: {name}_json {_CLOSES}\n{name}_json: %json {_with_definitions(schema, root)}\n"
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        return f"{name}: ({' | '.join(literal(str(value)) for value in values)}) {_CLOSES}\n"
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    # Up to the first end there is: greedily it would run past it.
    return f"{name}: {name}_text BREAK\n{name}_text[suffix={literal(_CLOSING)}]: /{_text_pattern(least, most)}/\n"


def _text_pattern(least: int, most: int | None) -> str:
    """A pattern for text of so many characters. Bounded text ends with no break: that would be taken off it again."""
    if not least and most is None:
        return r"(.|\n)*"
    if most is not None and most < 1:
        return ""
    counted = rf"(.|\n){{{max(least - 1, 0)},{'' if most is None else int(most) - 1}}}."
    return counted if least else f"({counted})?"


def _with_definitions(schema: Any, root: Mapping[str, Any]) -> str:
    if not isinstance(schema, Mapping):
        schema = {}
    kept = {word: root[word] for word in ("$defs", "definitions") if word in root}
    return told_to_library({**schema, **kept})


class Pythonic(Wire):
    """``[name(key="value"), …]``, as LFM2 and Llama 3.2 write it."""

    name = "pythonic"
    marks = ("<|tool_call_start|>", "<|tool_call_end|>")

    def __init__(self, *, bare: bool = False) -> None:
        self.only_first = bare  # type: ignore[misc]  # without a mark of its own, only its place tells a call
        self._bare = bare

    def patterns(self, names: Sequence[str]) -> Patterns:
        """As in the base."""
        head = rf"(?P<name>{either(names)})\(\s{{0,8}}"
        if self._bare:
            return Patterns(
                rf"\[\s{{0,8}}(?:{either(names)})\(",
                rf"\[\s{{0,8}}{head}",
                "",
                next=rf"\s{{0,8}},\s{{0,8}}{head}",
                end=r"\s{0,8}\]",
            )
        return Patterns(
            r"<\|tool_call_start\|>",
            rf"<\|tool_call_start\|>\s{{0,8}}\[\s{{0,8}}{head}",
            "",
            next=rf"\s{{0,8}},\s{{0,8}}{head}",
            end=r"\s{0,8}\]\s{0,8}<\|tool_call_end\|>",
        )

    def rules(self, arguments: Mapping[str, str], most: int, mark: MarkRule) -> str:
        """As in the base."""
        alternatives = [f"one_{place}" for place in range(len(arguments))]
        row = f'"[" {repeated("functions", "COMMA functions", most)} "]"'
        if not self._bare:
            row = f"{mark(self.marks[0])} {row} {mark(self.marks[1])}"
        lines = [
            f"held: {row}",
            "calls: held",
            f"functions: {' | '.join(alternatives)}",
            "COMMA: /, ?/",
        ]
        for alternative, (name, rule) in zip(alternatives, arguments.items(), strict=True):
            lines.append(f'{alternative}: {literal(f"{name}(")} {rule} ")"')
        return "\n".join(lines) + "\n"

    def scanner(self, tool: Tool) -> Scanner:
        """As in the base."""
        return PythonArguments(custom=tool.kind is ToolKind.CUSTOM)

    def arguments_rule(self, name: str, schema: Mapping[str, Any]) -> str:
        """As in the base."""
        listed = list((schema.get("properties") or {}).items())
        needed = set(schema.get("required", ()))
        lines: list[str] = []
        for place, (key, inner) in enumerate(listed):
            lines.append(f"{name}_{place}: {literal(f'{key}=')} ({_python_value(inner, schema)})\n")
        if not listed and schema.get("additionalProperties", True) is not False:
            value = f"%json {told_to_library({})}"
            return (
                f"{name}: ({name}_any (COMMA {name}_any){{0,15}})?\n"
                f'{name}_any: /[A-Za-z_][A-Za-z0-9_]{{0,63}}/ "=" {name}_value\n{name}_value: {value}\n'
            )
        # Behind the first argument each has a comma before it; which one is first depends on those left out.
        count = len(listed)
        lines.append(f"{name}_rest_{count}: {_NOTHING}\n{name}_first_{count}: {_NOTHING}\n")
        for place in range(count):
            skip = listed[place][0] not in needed
            rest = f"COMMA {name}_{place} {name}_rest_{place + 1}" + (f" | {name}_rest_{place + 1}" if skip else "")
            first = f"{name}_{place} {name}_rest_{place + 1}" + (f" | {name}_first_{place + 1}" if skip else "")
            lines.append(f"{name}_rest_{place}: {rest}\n{name}_first_{place}: {first}\n")
        return f"{name}: {name}_first_0\n{''.join(lines)}"

    def cannot_hold(self, schema: Mapping[str, Any]) -> str | None:
        """As in the base."""
        return _not_in_order(schema)

    def written(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """As in the base."""
        given = arguments if isinstance(arguments, Mapping) else {"arguments": arguments}
        inside = ", ".join(f"{key}={value!r}" for key, value in given.items())
        row = f"[{name}({inside})]"
        return row if self._bare else f"{self.marks[0]}{row}{self.marks[1]}"


def _python_value(schema: Any, root: Mapping[str, Any]) -> str:
    if isinstance(schema, Mapping) and schema.get("type") == "boolean" and not {"enum", "const"} & schema.keys():
        return '"True" | "False"'
    return f"%json {_with_definitions(schema, root)}"
