"""One chat template, rendered: the Jinja environment templates are written for, and the look at what came out.

Runs in the renderer's own process (``worker``). The environment offers what transformers offers to templates: an
immutable sandbox, trimmed blocks, ``break`` and ``continue``, the ``generation`` tag, ``tojson`` without HTML escapes,
``raise_exception`` and ``strftime_now``.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_TEXT = 64 << 20
"""Characters a template may write: far beyond every window, and what one pipe carries in a moment."""

_OPEN_END = "<|here-the-answer-goes-on|>"
_THOUGHTS = ("</think>", "[/THINK]", "</thinking>", "</thought>", "</reasoning>", "<channel|>")
"""What ends the thoughts in an assistant's turn. Templates leave thoughts of earlier turns out on purpose."""


_PART_AS_CODE = ("'type': 'text'", '"type": "text"', '"type":"text"')
"""How a part looks that was written out instead of being read."""


class TooLong(Exception):
    """The template wrote more than :data:`MAX_TEXT` characters."""


class _Generation(Extension):
    """``{% generation %}…{% endgeneration %}`` marks what an assistant said; for rendering it is its body."""

    tags = {"generation"}  # noqa: RUF012 - the base class's own form

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Sequence[str] | None = None,
    sort_keys: bool = False,
) -> str:
    pair = None if separators is None else (separators[0], separators[1])
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=pair, sort_keys=sort_keys)


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made


_ENVIRONMENT = _environment()


@lru_cache(maxsize=8)
def _compiled(source: str) -> jinja2.Template:
    return _ENVIRONMENT.from_string(source)


def variables(source: str) -> list[str]:
    """Names the template reads from outside. Raises :class:`jinja2.TemplateSyntaxError`."""
    return sorted(meta.find_undeclared_variables(_ENVIRONMENT.parse(source)))


def levels(source: str, name: str) -> list[str]:
    """Words that the template holds the variable ``name`` against, itself or under a name it is given there, and those
    it has where it is not set. Raises :class:`jinja2.TemplateSyntaxError`.
    """
    tree = _ENVIRONMENT.parse(source)
    names, compared, others = {name}, set[str](), set[str]()
    for given in tree.find_all(nodes.Assign):
        if isinstance(given.target, nodes.Name) and _speaks_of(given.node, {name}):
            names.add(given.target.name)
    for each in tree.find_all(nodes.Compare):
        sides = [each.expr, *(operand.expr for operand in each.ops)]
        if any(_speaks_of(side, names) for side in sides):
            compared.update(word for side in sides for word in _words_of(side))
    for given in tree.find_all(nodes.Assign):
        if isinstance(given.target, nodes.Name) and given.target.name in names:
            others.update(_words_of(given.node))
    for used in tree.find_all(nodes.Filter):
        if used.name in ("default", "d") and used.node is not None and _speaks_of(used.node, names):
            others.update(word for argument in used.args for word in _words_of(argument))
    return sorted(compared | others) if compared else []


def _speaks_of(node: nodes.Node, names: set[str]) -> bool:
    if isinstance(node, nodes.Name):
        return node.name in names
    return any(each.name in names for each in node.find_all(nodes.Name))


def _words_of(node: nodes.Node) -> list[str]:
    """The words a node is: one, or those of a list."""
    if isinstance(node, nodes.Const):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, nodes.List | nodes.Tuple):
        return [word for item in node.items for word in _words_of(item)]
    if isinstance(node, nodes.Or):
        return [*_words_of(node.left), *_words_of(node.right)]
    return []


def render(
    source: str,
    messages: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any],
    *,
    parts: Collection[str] = (),
    continue_final: bool = False,
) -> tuple[str, list[int]]:
    """The conversation as ``source`` writes it.

    Args:
        source: The template.
        messages: ``role`` and ``content`` of each turn, and what else the template reads of it.
        variables: Everything else the template may read.
        parts: Roles whose content is given as a list of one part of type ``text``, for templates that loop over parts.
        continue_final: Leave the last message open: the text ends with what it says.

    Returns:
        The text, and the numbers of the messages whose content is not in it.

    Raises:
        TooLong: More than :data:`MAX_TEXT` characters.
        Exception: A template is a program: whatever it raises is its refusal.
    """
    turns = [dict(message) for message in messages]
    final = turns[-1]["content"] if turns else ""
    if continue_final:
        turns[-1]["content"] += _OPEN_END + " "
    given: list[dict[str, Any]] = [
        {**turn, "content": [{"type": "text", "text": turn["content"]}]} if turn["role"] in parts else turn
        for turn in turns
    ]
    pieces: list[str] = []
    room = MAX_TEXT
    for piece in _compiled(source).generate(messages=given, **{"tools": None, "documents": None, **variables}):
        room -= len(piece)
        if room < 0:
            raise TooLong
        pieces.append(piece)
    text = "".join(pieces)
    if parts and any(text.count(code) > sum(turn["content"].count(code) for turn in turns) for code in _PART_AS_CODE):
        raise jinja2.TemplateError("The template reads content as text, not in parts.")
    if not text.strip() and any(turn["content"].strip() for turn in turns):
        raise jinja2.TemplateError("It makes an empty prompt.")
    if continue_final:
        text = _cut_at_open_end(text, final)
    return text, _left_out(messages, text)


def _cut_at_open_end(text: str, final: str) -> str:
    at = text.rfind(_OPEN_END)
    if at < 0 or final.strip() not in text:
        raise jinja2.TemplateError("The template does not show the end of the last message, so it cannot be left open.")
    trimmed = not text.startswith(_OPEN_END + " ", at)
    return text[:at].rstrip() if trimmed else text[:at]


# --- was everything said? ---------------------------------------------------------------------------------------------


def _left_out(messages: Sequence[Mapping[str, Any]], text: str) -> list[int]:
    """Numbers of the messages whose content is not in ``text``.

    Templates may trim, fold case, escape for HTML or JSON, and leave out the thoughts of an assistant's turn.
    """
    missing = [
        number for number, message in enumerate(messages) if not _said(message["role"], message["content"], text)
    ]
    if not missing:
        return []
    bare = [_letters(text), _letters(html.unescape(text))]
    return [number for number in missing if not _said_loosely(messages[number], text, bare)]


def _said(role: str, content: str, text: str) -> bool:
    return content.strip() in text or (role == "assistant" and _answer(content) in text)


def _said_loosely(message: Mapping[str, str], text: str, bare: Sequence[str]) -> bool:
    content = message["content"]
    if any(json.dumps(content, ensure_ascii=plain)[1:-1] in text for plain in (False, True)):
        return True
    wanted = {_letters(content)}
    if message["role"] == "assistant":
        wanted.add(_letters(_answer(content)))
    if "" in wanted:
        return not content.strip() or content.strip() in text
    return any(letters in each for letters in wanted for each in bare)


def _answer(content: str) -> str:
    """What an assistant's turn says after its thoughts."""
    at = max((content.rfind(mark) + len(mark) for mark in _THOUGHTS if mark in content), default=0)
    return content[at:].strip()


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()
