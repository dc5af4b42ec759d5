"""A context-free grammar as a value: what both ways to write one become, and what the constraint library is told.

The library is given what is written anew from here, never what a request sent: so nothing gets to it that was not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.generation.constraints.patterns import problem
from engine.generation.errors import ResponseFormatUnsupported

MAX_NESTING = 50
"""Groups inside one another; the library's own bound lies somewhat above."""
MAX_TIMES = 10_000
"""Greatest number of times in a repetition."""

START = "start"


@dataclass(frozen=True)
class Text:
    """Exactly these characters, or in either case."""

    value: str
    any_case: bool = False


@dataclass(frozen=True)
class Pattern:
    """What a regular expression matches."""

    value: str


@dataclass(frozen=True)
class Span:
    """One character from ``first`` to ``last``."""

    first: str
    last: str


@dataclass(frozen=True)
class Ref:
    """What the rule of that name says."""

    name: str


@dataclass(frozen=True)
class Row:
    """All parts, in order; none: nothing at all."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Either:
    """One of its parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Times:
    """``part`` so many times; ``most`` None: without end."""

    part: Node
    least: int
    most: int | None


Node = Text | Pattern | Span | Ref | Row | Either | Times


@dataclass(frozen=True)
class Grammar:
    """Rules by name, one of them :data:`START`; what may stand between the parts of a text; the library's own rules.

    Raises :class:`ResponseFormatUnsupported` for a rule that is missing, or that no text of finite length fits.
    """

    rules: Mapping[str, Node]
    ignored: tuple[Node, ...] = ()
    imported: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if START not in self.rules:
            raise refused(f"The grammar has no rule named '{START}', where every text begins.")
        for node in (*self.rules.values(), *self.ignored):
            for name in _names(node):
                if name not in self.rules and name not in self.imported:
                    raise refused(f"The grammar has no rule named '{name[:60]}'.")
        endless = self._endless()
        if endless is not None:
            raise refused(f"No text of finite length fits the rule '{endless[:60]}': it always needs itself again.")

    def _endless(self) -> str | None:
        """The first rule that never comes to an end: what is left when all have been found that do."""
        ending, waiting = set(self.imported), dict(self.rules)
        users: dict[str, set[str]] = {}
        for name, node in waiting.items():
            for used in _names(node):
                users.setdefault(used, set()).add(name)
        looked_at = list(waiting)
        while looked_at:
            found = [name for name in looked_at if _ends(waiting[name], ending)]
            ending.update(found)
            for name in found:
                del waiting[name]
            # Only what uses one of these can have changed.
            looked_at = list({user for name in found for user in users.get(name, ()) if user in waiting})
        return next(iter(waiting), None)

    def as_lark(self) -> str:
        """The grammar in the library's words."""
        lines = [f"%import common.{name}" for name in sorted(self.imported)]
        lines += [f"{name}: {_written(node)}" for name, node in self.rules.items()]
        lines += [f"%ignore {_written(node)}" for node in self.ignored]
        return "\n".join(lines) + "\n"


def pattern(value: str, flags: str = "") -> Pattern:
    """A regular expression with Python's letters for flags. Raises :class:`ResponseFormatUnsupported`."""
    unknown = set(flags) - set("imsu")
    if unknown:
        raise refused(
            f"The regular expression /{value[:60]}/ has the flag '{sorted(unknown)[0]}', which is not enforced."
        )
    if reason := problem(value):
        raise refused(f"The regular expression /{value[:60]}/ cannot be used: {reason}.")
    kept = "".join(sorted(set(flags) - {"u"}))
    return Pattern(f"(?{kept}:{value})" if kept else value)


def either(parts: list[Node]) -> Node:
    """One of ``parts``."""
    return parts[0] if len(parts) == 1 else Either(tuple(parts))


def row(parts: list[Node]) -> Node:
    """All ``parts``."""
    return parts[0] if len(parts) == 1 else Row(tuple(parts))


def times(part: Node, least: int, most: int | None) -> Times:
    """``part`` so many times. Raises :class:`ResponseFormatUnsupported` for numbers that cannot be."""
    if least > MAX_TIMES or (most is not None and not least <= most <= MAX_TIMES):
        shown = f"{least} to {most}" if most is not None else f"{least}"
        raise refused(f"The grammar repeats a part {shown} times; up to {MAX_TIMES} are possible, the least first.")
    return Times(part, least, most)


def refused(message: str) -> ResponseFormatUnsupported:
    """The refusal of a grammar or of a regular expression."""
    return ResponseFormatUnsupported(
        message, param="response_format", remedy="Correct it, or say it in simpler words of its syntax."
    )


def _inside(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Row | Either):
        return node.parts
    return (node.part,) if isinstance(node, Times) else ()


def _names(node: Node) -> Iterator[str]:
    stack = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, Ref):
            yield top.name
        stack.extend(reversed(_inside(top)))


def _ends(node: Node, ending: set[str]) -> bool:
    """Whether it comes to an end when the rules ``ending`` do. As deep as groups are nested."""
    match node:
        case Ref():
            return node.name in ending
        case Row():
            return all(_ends(part, ending) for part in node.parts)
        case Either():
            return any(_ends(part, ending) for part in node.parts)
        case Times():
            return node.least == 0 or _ends(node.part, ending)
    return True


def _written(node: Node) -> str:
    match node:
        case Text():
            return json.dumps(node.value, ensure_ascii=False) + ("i" if node.any_case and node.value else "")
        case Pattern():
            return f"/{node.value}/"
        case Span():
            return f"/{char_class([(node.first, node.last)])}/"
        case Ref():
            return node.name
        case Row():
            return " ".join(_grouped(part) for part in node.parts) if node.parts else '""'
        case Either():
            return "(" + " | ".join(_written(part) for part in node.parts) + ")"
        case Times():
            most = "" if node.most is None else str(node.most)
            return f"{_grouped(node.part)}{{{node.least},{most}}}"


def _grouped(node: Node) -> str:
    return f"({_written(node)})" if isinstance(node, Row | Times) else _written(node)


def char_class(spans: list[tuple[str, str]], *, negated: bool = False) -> str:
    """A class of single characters as every reader of regular expressions reads it."""
    inside = "".join(f"\\u{{{ord(a):x}}}" if a == b else f"\\u{{{ord(a):x}}}-\\u{{{ord(b):x}}}" for a, b in spans)
    return f"[{'^' if negated else ''}{inside}]"
