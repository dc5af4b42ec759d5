"""From bytes to a JSON object that is safe to look at: size, depth, numbers and text are checked before anything else.

The depth is measured on the bytes, without recursion, before a parser sees them: a few kilobytes of brackets can
otherwise exhaust the stack. Nothing of a document is ever executed or followed.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from engine.documents.errors import DocumentTooLarge, UnknownKind
from engine.documents.problems import MAX_LISTED, DocumentProblem, json_pointer, refusal

MAX_DOCUMENT_BYTES = 1_048_576
MAX_NESTING = 32

_WHAT = "document"
# A string up to its closing quote or, where that is missing, the end: linear on any input.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_MAX_DIGITS = 400
"""Whole numbers with more digits are beyond every double, and Python refuses to read very long ones."""

_Path = tuple[Any, ...] | None
"""A place as (place of the parent, key), None for the root: pointers are spelt out only for what is reported."""


class DocumentKind(StrEnum):
    """The values of ``kind`` that are read."""

    CLUSTER = "mistudio.cluster-definition"
    BUNDLE = "mistudio.cluster-bundle"
    CIRCUIT = "mistudio.circuit-definition"


_KIND_WORDS = {
    DocumentKind.CLUSTER: "a cluster document",
    DocumentKind.BUNDLE: "a bundle of clusters",
    DocumentKind.CIRCUIT: "a circuit document",
}


class _Unreadable:
    """Stands where the text has a number that JSON or a double cannot hold."""

    def __init__(self, text: str) -> None:
        self.text = text


class _Repeated(dict[str, Any]):
    """An object whose text names a key twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]


def decode(raw: bytes) -> dict[str, Any]:
    """The JSON object that ``raw`` holds (UTF-8, with or without a byte order mark).

    Raises :class:`DocumentTooLarge` and :class:`DocumentInvalid`: too long, too deep, no UTF-8, no JSON, no object,
    NaN or Infinity, numbers no double holds, a key named twice, text that is not Unicode.
    """
    check_size(len(raw))
    depth = _depth_of_text(raw)
    if depth > MAX_NESTING:
        raise _too_deep("", depth)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refusal(_WHAT, [DocumentProblem("", f"is not UTF-8 text (byte {error.start})")]) from None
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_Unreadable, parse_int=_whole_number, parse_float=float
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise refusal(_WHAT, [DocumentProblem("", f"is not JSON: {error.msg} at {place}")]) from None
    return check_value(value)


def check_value(value: object) -> dict[str, Any]:
    """``value``, already decoded by someone else, held to the same limits as :func:`decode`; returned unchanged."""
    if not isinstance(value, dict):
        raise refusal(_WHAT, [DocumentProblem("", "must be a JSON object")])
    problems = []
    for problem in _problems(value):
        problems.append(problem)
        if len(problems) == MAX_LISTED:
            break
    if problems:
        raise refusal(_WHAT, problems)
    encoded = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    check_size(len(encoded.encode("utf-8")))
    return value


def kind_of(document: dict[str, Any]) -> DocumentKind | None:
    """The document's kind, None when it names none or one that is not read."""
    kind = document.get("kind")
    return DocumentKind(kind) if isinstance(kind, str) and kind in set(DocumentKind) else None


def require_kind(document: dict[str, Any], *accepted: DocumentKind, pointer: str = "/kind") -> DocumentKind:
    """The document's kind, which must be one of ``accepted``; raises :class:`UnknownKind`."""
    kind = kind_of(document)
    if kind in accepted and kind is not None:
        return kind
    expected = " or ".join(f"'{each}'" for each in accepted)
    if kind is not None:
        found, remedy = f"is {_KIND_WORDS[kind]}", f"Import {_KIND_WORDS[kind]} with the import for its own kind."
    elif "kind" not in document:
        found, remedy = "names no kind", "Export the document again from the program that made it."
    else:
        found = f"has the kind {json.dumps(document['kind'])[:80]}"
        remedy = "Export the document again from the program that made it, or update this program."
    raise UnknownKind(
        f"This document {found}; this import reads {expected}.",
        details={"errors": [{"pointer": pointer, "message": f"must be {expected}"}], "accepted": list(accepted)},
        remedy=remedy,
    )


def check_size(size: int) -> None:
    """Raise :class:`DocumentTooLarge` for a document of ``size`` bytes, read or announced."""
    if size > MAX_DOCUMENT_BYTES:
        limit = f"at most {MAX_DOCUMENT_BYTES:,} are read"
        raise DocumentTooLarge(
            f"The document has {size:,} bytes; {limit}.",
            details={
                "bytes": size,
                "limit": MAX_DOCUMENT_BYTES,
                "errors": [{"pointer": "", "message": f"has {size:,} bytes; {limit}"}],
            },
            remedy="Export fewer definitions, or drop long descriptive texts.",
        )


def _depth_of_text(raw: bytes) -> int:
    depth = deepest = 0
    for match in _BRACKET.finditer(_STRING.sub(b"", raw)):
        if match[0] in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        else:
            depth -= 1
    return deepest


def _too_deep(pointer: str, depth: int) -> Exception:
    return refusal(
        _WHAT, [DocumentProblem(pointer, f"is nested {depth:,} levels deep; at most {MAX_NESTING} are read")]
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    return plain if len(plain) == len(pairs) else _Repeated(pairs)


def _whole_number(text: str) -> int | _Unreadable:
    return int(text) if len(text) <= _MAX_DIGITS else _Unreadable(text)


def _problems(root: dict[str, Any]) -> Iterator[DocumentProblem]:
    """Walks the whole value without recursion, in document order, and yields what JSON with doubles cannot hold."""
    waiting: list[tuple[Any, _Path, int]] = [(root, None, 1)]
    while waiting:
        value, path, depth = waiting.pop()
        if depth > MAX_NESTING:
            raise _too_deep(_spelt(path), depth)
        children: list[tuple[Any, _Path, int]] = []
        if isinstance(value, _Repeated):
            for name in value.repeated:
                yield DocumentProblem(_spelt((path, name)), "is named twice in one object")
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict) and not (isinstance(key, str) and _is_unicode(key)):
                yield DocumentProblem(_spelt(path), "has a key that is not Unicode text")
            elif isinstance(child, dict | list):
                children.append((child, (path, key), depth + 1))
            elif complaint := _complaint(child):
                yield DocumentProblem(_spelt((path, key)), complaint)
        waiting.extend(reversed(children))


def _complaint(value: object) -> str | None:
    if isinstance(value, _Unreadable):
        word = value.text if len(value.text) <= 9 else f"a number of {len(value.text)} digits"
        return f"must be a finite number, not {word}"
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return None if _is_unicode(value) else "must be Unicode text"
    if isinstance(value, int | float):
        finite = math.isfinite(value) if isinstance(value, float) else abs(value) <= sys.float_info.max
        return None if finite else "must be a finite number that a double can hold"
    return "must be a JSON value"


def _is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold it: an escaped lone surrogate is legal JSON and cannot be stored."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _spelt(path: _Path) -> str:
    parts: list[str | int] = []
    while path is not None:
        path, key = path
        parts.append(key if isinstance(key, int) else str(key).encode("utf-8", "backslashreplace").decode("utf-8"))
    return json_pointer(parts[::-1])
