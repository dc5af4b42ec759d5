"""Wires whose calls are JSON objects of a name and arguments: Hermes', Llama 3's and Mistral's two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from engine.generation.tools.wire import MarkRule, Patterns, Wire, either, literal, repeated

_GAP = r"/[ \n]{0,2}/"


class _ObjectWire(Wire):
    """Calls are objects with a name first and arguments after it.

    Attributes:
        key: What the arguments are called.
    """

    key: ClassVar[str] = "arguments"

    def _head(self, names: Sequence[str]) -> str:
        typed = r'(?:"type"\s{0,8}:\s{0,8}"function"\s{0,8},\s{0,8})?'
        return (
            rf'\{{\s{{0,8}}{typed}"name"\s{{0,8}}:\s{{0,8}}"(?P<name>{either(names)})"\s{{0,8}},\s{{0,8}}'
            rf'"{self.key}"\s{{0,8}}:\s{{0,8}}(?=\{{)'
        )

    def _object(self, arguments: Mapping[str, str]) -> str:
        """The rule ``object`` and what it is made of."""
        between = rf'/", ?\n?"{self.key}": ?/'
        alternatives = [f"one_{place}" for place in range(len(arguments))]
        lines = [
            f"object: OPENS ({' | '.join(alternatives)}) CLOSES",
            r'OPENS: /\{[ \n]?("type": ?"function", ?)?"name": ?"/',
            r"CLOSES: /[ \n]?\}/",
        ]
        for alternative, (name, rule) in zip(alternatives, arguments.items(), strict=True):
            lines.append(f"{alternative}: {literal(name)} BETWEEN {rule}")
        lines.append(f"BETWEEN: {between}")
        return "\n".join(lines) + "\n"

    def written(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """As in the base."""
        return json.dumps({"name": name, self.key: arguments}, ensure_ascii=False)


class Hermes(_ObjectWire):
    """``<tool_call>{"name": …, "arguments": …}</tool_call>``, as Hermes' and Qwen's models write it."""

    name = "hermes"
    marks = ("<tool_call>", "</tool_call>")

    def patterns(self, names: Sequence[str]) -> Patterns:
        """As in the base."""
        return Patterns("<tool_call>", rf"<tool_call>\s{{0,8}}{self._head(names)}", r"\s{0,8}\}\s{0,8}</tool_call>")

    def rules(self, arguments: Mapping[str, str], most: int, mark: MarkRule) -> str:
        """As in the base."""
        return (
            f"held: {mark(self.marks[0])} GAP object GAP {mark(self.marks[1])}\n"
            f"calls: {repeated('held', 'GAP held', most)}\n"
            f"GAP: {_GAP}\n{self._object(arguments)}"
        )

    def written(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """As in the base."""
        return f"<tool_call>\n{super().written(name, arguments)}\n</tool_call>"


class Generic(Hermes):
    """Hermes' tags for a model whose template has no tools, which are described to it in words."""

    name = "generic"


class Llama3(_ObjectWire):
    """Bare objects, several with a semicolon between them: nothing tells them from an answer but that they come first.

    Their mark is how such an object begins.
    """

    name = "llama3"
    marks = ("<|python_tag|>",)
    only_first = True
    key = "parameters"

    def patterns(self, names: Sequence[str]) -> Patterns:
        """As in the base."""
        tag = r"(?:<\|python_tag\|>\s{0,8})?"
        begun = r'\{\s{0,8}(?:"type"\s{0,8}:\s{0,8}"function"\s{0,8},\s{0,8})?"name"\s{0,8}:\s{0,8}"'
        return Patterns(
            rf"{tag}{begun}",
            rf"{tag}{self._head(names)}",
            r"\s{0,8}\}",
            next=rf"\s{{0,8}}(?:;\s{{0,8}})?{tag}{self._head(names)}",
        )

    def rules(self, arguments: Mapping[str, str], most: int, mark: MarkRule) -> str:
        """As in the base."""
        tag = mark(self.marks[0])
        # Written out in letters it would mean nothing to a model that does not know it.
        opens = f"({tag})? " if "<[" in tag else ""
        return (
            f"held: {opens}{repeated('object', 'SEMICOLON object', most)}\n"
            "calls: held\n"
            f"SEMICOLON: /; ?\\n?/\n{self._object(arguments)}"
        )


class MistralList(_ObjectWire):
    """``[TOOL_CALLS]`` and a list of objects."""

    name = "mistral"
    marks = ("[TOOL_CALLS]",)

    def patterns(self, names: Sequence[str]) -> Patterns:
        """As in the base."""
        head = self._head(names)
        return Patterns(
            r"\[TOOL_CALLS\]",
            rf"\[TOOL_CALLS\]\s{{0,8}}\[\s{{0,8}}{head}",
            r'\s{0,8}(?:,\s{0,8}"id"\s{0,8}:\s{0,8}"[^"]{0,64}"\s{0,8})?\}',
            next=rf"\s{{0,8}},\s{{0,8}}{head}",
            end=r"\s{0,8}\]",
        )

    def rules(self, arguments: Mapping[str, str], most: int, mark: MarkRule) -> str:
        """As in the base."""
        return (
            f'held: {mark(self.marks[0])} GAP "[" {repeated("object", "COMMA object", most)} "]"\n'
            "calls: held\n"
            f"COMMA: /, ?\\n?/\nGAP: {_GAP}\n{self._object(arguments)}"
        )

    def written(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """As in the base."""
        return f"[TOOL_CALLS][{super().written(name, arguments)}]"


class MistralArgs(Wire):
    """``[TOOL_CALLS]NAME[ARGS]{…}``, as Mistral's later models write it."""

    name = "mistral"
    marks = ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]")

    def patterns(self, names: Sequence[str]) -> Patterns:
        """As in the base."""
        return Patterns(
            r"\[TOOL_CALLS\]",
            rf"\[TOOL_CALLS\]\s{{0,8}}(?P<name>{either(names)})(?:\[CALL_ID\][A-Za-z0-9]{{0,64}})?\[ARGS\]\s{{0,8}}(?=\{{)",
            "",
        )

    def rules(self, arguments: Mapping[str, str], most: int, mark: MarkRule) -> str:
        """As in the base."""
        alternatives = [f"one_{place}" for place in range(len(arguments))]
        lines = [
            f"held: {mark(self.marks[0])} ({' | '.join(alternatives)})",
            f"calls: {repeated('held', 'held', most)}",
        ]
        for alternative, (name, rule) in zip(alternatives, arguments.items(), strict=True):
            lines.append(f"{alternative}: {literal(name)} {mark(self.marks[2])} {rule}")
        return "\n".join(lines) + "\n"

    def written(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """As in the base."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return f"[TOOL_CALLS]{name}[ARGS]{text}"
