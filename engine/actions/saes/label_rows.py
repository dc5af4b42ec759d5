"""From the bytes of a file of labels to its rows: encodings, spreadsheets' habits, and the shapes JSON comes in.

Rows come one at a time and nothing is read in one long step, so that a hundred megabytes hold nobody up. All refusals
are :class:`InvalidParameter` and name the file and the row.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from engine.counting import so_many
from engine.errors import InvalidParameter
from engine.json_text import JsonText, loads

INDEX = ("feature_idx", "index", "feature", "feature_index", "idx", "feature_id")
LABEL = ("label", "description", "explanation", "name")
SOURCE = ("source", "explanationModelName", "typeName")
CONFIDENCE = ("confidence", "score")
DENSITY = ("density", "frac_nonzero", "activation_frequency")
MAXIMUM = ("max_activation", "maxActApprox")
TOKENS = ("top_tokens", "pos_str")
NUMBERS = (*CONFIDENCE, *DENSITY, *MAXIMUM)
LISTS = ("labels", "features", "explanations")

MOST_FIELD = 1 << 20
"""Characters of one field of a CSV; a quote that is never closed would make one of the whole file."""

MOST_LINE = 4 << 20
"""Characters of one line of a CSV: the reader takes a line in one step."""

MOST_WHOLE = 64 << 20
"""Characters of one line of JSON lines."""

_DELIMITERS = (",", ";", "\t", "|")
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_SEPARATOR_LINE = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")
_WHOLE_WITH_FRACTION = re.compile(r"(\d+)[.,]0+")

Kind = Literal["csv", "json", "jsonl"]
Row = Mapping[str, Any]


def decoded(content: bytes, name: str, kind: Kind | None) -> str:
    """The text in ``content``: UTF-8 or UTF-16, and for CSV what Windows' spreadsheets write (cp1252)."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return _decode(content.removeprefix(mark), encoding, name)
    # Without a mark every other byte of UTF-16 is zero where the text is Latin, as names of columns are.
    start = content[:64]
    if len(start) > 3 and not start[1:64:2].strip(b"\0"):
        return _decode(content, "utf-16-le", name)
    if len(start) > 3 and not start[0:64:2].strip(b"\0"):
        return _decode(content, "utf-16-be", name)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        if kind in ("json", "jsonl") or start.lstrip()[:1] in (b"{", b"["):
            raise refused(f"{name} is not UTF-8 text.") from error
    return _decode(content, "cp1252", name)


def _decode(content: bytes, encoding: str, name: str) -> str:
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise refused(f"{name} is no text: neither UTF-8, UTF-16 nor the encoding of Windows.") from error
    if "\0" in text[:1000]:
        raise refused(f"{name} is no text: it holds bytes of zero.")
    return text


def kind_of(text: str) -> Kind:
    """What a text without a name looks like: JSON, an object on each line, or CSV."""
    start = text.lstrip()[:1]
    if start == "[":
        return "json"
    if start != "{":
        return "csv"
    first = JsonText(text.strip().partition("\n")[0])
    names, lists = set(), False
    try:
        for name in first.members():
            names.add(name)
            lists = lists or (name in LISTS and first.peek() == "[")
        first.end()
    except ValueError:
        return "json"
    # A line that is an object with a feature of its own is a row, unless it holds the rows.
    return "jsonl" if names & set(INDEX) and not lists else "json"


def rows(text: str, kind: Kind, name: str) -> Iterator[tuple[int, Row]]:
    """The rows of a file with their numbers, from 1."""
    match kind:
        case "csv":
            found: Iterable[tuple[int, Any]] = _csv_rows(text, name)
        case "json":
            found = enumerate(_json_rows(text, name), 1)
        case _:
            lines = (line for line in _lines(text) if line.strip())
            found = ((number, _json(line, f"{name}, row {number}")) for number, line in enumerate(lines, 1))
    for number, row in found:
        if not isinstance(row, Mapping):
            raise refused(f"{name}, row {number} is not an object.")
        yield number, row


def refused(what: str) -> InvalidParameter:
    """The refusal of a file, in words."""
    return InvalidParameter(what, param="path", remedy="Correct the file, or choose another one.")


# --- CSV --------------------------------------------------------------------------------------------------------------


def _csv_rows(text: str, name: str) -> Iterator[tuple[int, Row]]:
    # The reader's own limit is below what labels may have.
    csv.field_size_limit(MOST_FIELD)
    text, delimiter = _delimiter(text)
    reader = csv.reader(_csv_lines(text, name), delimiter=delimiter, skipinitialspace=True)
    number = 0
    try:
        heads = _heads(next((line for line in reader if any(cell.strip() for cell in line)), []), name)
        for line in reader:
            if not any(cell.strip() for cell in line):
                continue
            number += 1
            if len(line) > len(heads) and any(cell.strip() for cell in line[len(heads) :]):
                raise refused(
                    f"{name}, row {number} has {so_many(len(line), 'field')} for {so_many(len(heads), 'column')}. "
                    "A text that "
                    f"holds {delimiter!r} has to stand in quotes."
                )
            cells = zip(heads, line, strict=False)
            yield number, {head: _cell(head, cell, delimiter) for head, cell in cells if head and cell.strip()}
    except csv.Error as error:
        raise refused(f"{name}, line {reader.line_num} is no CSV: {error}.") from error


def _delimiter(text: str) -> tuple[str, str]:
    """The text after a line that names the delimiter, and the delimiter: the one that gives the columns their names."""
    named = _SEPARATOR_LINE.match(text)
    if named is not None:
        return text[named.end() :], named[1]
    first = text.lstrip()[:MOST_FIELD].partition("\n")[0]
    return text, max(_DELIMITERS, key=lambda each: _known_columns(first, each))


def _known_columns(first: str, delimiter: str) -> tuple[int, int]:
    try:
        cells = next(csv.reader([first], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        return 0, 0
    names = {_canonical(cell) for cell in cells}
    return bool(names & set(INDEX)) + bool(names & set(LABEL)), len(cells)


def _heads(cells: list[str], name: str) -> list[str]:
    heads = [_canonical(cell) for cell in cells]
    for wanted, what in ((INDEX, "feature"), (LABEL, "label")):
        if not set(heads) & set(wanted):
            seen = ", ".join(repr(cell.strip()[:40]) for cell in cells[:20]) or "none"
            raise refused(
                f"{name} has no column for the {what}: one is called {', '.join(wanted)}. Its columns are {seen}."
            )
    return heads


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


_BY_PLAIN = {_plain(name): name for name in (*INDEX, *LABEL, *SOURCE, *NUMBERS, *TOKENS)}


def _canonical(cell: str) -> str:
    """A column's name as it is known here, whatever its case and blanks; another name as it is written."""
    return _BY_PLAIN.get(_plain(cell), cell.strip())


def _cell(head: str, cell: str, delimiter: str) -> str:
    """A cell as JSON would have it: where commas do not part the columns, one may part a number."""
    cell = cell.strip()
    if head in INDEX and (whole := _WHOLE_WITH_FRACTION.fullmatch(cell)):
        return whole[1]
    if head not in NUMBERS or (delimiter == "," and "," not in cell):
        return cell
    if delimiter == ";" and "." in cell and "," in cell:
        return cell.replace(".", "").replace(",", ".")
    if _DECIMAL_COMMA.fullmatch(cell) and (delimiter == ";" or not _THOUSANDS.fullmatch(cell)):
        return cell.replace(",", ".")
    return cell


def _csv_lines(text: str, name: str) -> Iterator[str]:
    # Old programs end lines with a carriage return alone.
    end = "\n" if "\n" in text else "\r"
    for number, line in enumerate(_lines(text, end), 1):
        if len(line) > MOST_LINE:
            raise refused(f"{name}, line {number} is longer than any row of labels.")
        yield line + end


# --- JSON -------------------------------------------------------------------------------------------------------------


def _lines(text: str, end: str = "\n") -> Iterator[str]:
    """The lines of ``text``; of one that is far too long only the beginning, which is refused."""
    start = 0
    while start < len(text):
        at = text.find(end, start, start + MOST_WHOLE)
        if at < 0:
            at = min(len(text), start + MOST_WHOLE)
        yield text[start:at]
        start = at + 1


def _json(text: str, where: str) -> Any:
    try:
        return loads(text)
    except ValueError as error:
        raise refused(f"{where} is not JSON: {error}.") from error


def _json_rows(text: str, name: str) -> Iterator[Any]:
    """A list of rows, one under a usual name, or an object from feature to label."""
    try:
        cursor = JsonText(text)
        match cursor.peek():
            case "[":
                yield from _elements(cursor)
            case "{":
                yield from _object_rows(text)
            case _:
                loads(text)
                raise refused("The file is neither a list nor an object.")
    except ValueError as error:
        raise refused(f"{name} is not JSON: {error}.") from error


def _elements(cursor: JsonText) -> Iterator[Any]:
    for _ in cursor.elements():
        yield cursor.value()
    cursor.end()


def _object_rows(text: str) -> Iterator[Any]:
    cursor = JsonText(text)
    lists: set[str] = set()
    index: dict[str, Any] = {}
    for name in cursor.members():
        if name in LISTS and cursor.peek() == "[":
            lists.add(name)
        elif name == "index":
            # Neuronpedia's answer about one feature: its explanations do not repeat the index.
            index = {"index": cursor.value()}
    cursor.end()
    wanted = next((name for name in LISTS if name in lists), None)
    cursor = JsonText(text)
    for name in cursor.members():
        if wanted is None:
            value = cursor.value()
            yield {"index": name, **value} if isinstance(value, dict) else {"index": name, "label": value}
        elif name == wanted and cursor.peek() == "[":
            for _ in cursor.elements():
                row = cursor.value()
                yield {**index, **row} if isinstance(row, dict) else row
