"""Labels of features from files: CSV, JSON, JSON lines, each also gzipped, and Neuronpedia's exports.

A row needs a feature and a label; both, and the figures beside them, go by several names. What else a row says in plain
values is kept. A file is taken whole or refused with the place of the first row that cannot be read.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from engine.actions.saes.places import usable_place
from engine.errors import InvalidParameter
from engine.library.records import FeatureLabel

MOST_BYTES = 512 << 20
"""Text read from one file or folder at most, unpacked: a small archive may hold a very large one."""

MOST_UPLOADED_BYTES = 128 << 20
"""The same for a file that is sent."""

MOST_EXTRA = 500
"""Characters of a text that is kept beside the label; longer ones are left out."""

_INDEX = ("feature_idx", "index", "feature", "feature_index", "idx")
_LABEL = ("label", "description", "explanation", "name")
_SOURCE = ("source", "explanationModelName", "typeName")
_CONFIDENCE = ("confidence", "score")
_DENSITY = ("density", "frac_nonzero", "activation_frequency")
_MAXIMUM = ("max_activation", "maxActApprox")
_TOKENS = ("top_tokens", "pos_str")
_LISTS = ("labels", "features", "explanations")
_NAMED = {*_INDEX, *_LABEL, *_CONFIDENCE, *_DENSITY, *_MAXIMUM, *_TOKENS, "source"}

_ENDINGS = (".csv", ".json", ".jsonl", ".ndjson")
_GZIP = b"\x1f\x8b"

LabelKind = Literal["csv", "json", "jsonl"]
"""How labels are written down."""


@dataclass(frozen=True)
class LabelFile:
    """What was read: one label for each feature, by rising index, and how many rows had nothing to say."""

    labels: tuple[FeatureLabel, ...]
    skipped: int


def read_labels(path: Path) -> LabelFile:
    """The labels in ``path`` (absolute): a file, or a folder of them such as Neuronpedia's ``explanations``.

    Of several rows for one feature the first is its label; the others' are kept as ``extra["others"]``. Raises
    :class:`InvalidParameter` (param ``path``) naming file and row.
    """
    place = usable_place(path)
    return _collected(_read_files(_files(place)), place.name)


def read_label_upload(content: bytes, kind: LabelKind | None = None) -> LabelFile:
    """The labels in a file that was sent, gzipped or not; see :func:`read_labels`. ``kind`` None: told by its look.

    Raises :class:`InvalidParameter` (param ``body``) naming the row.
    """
    name = "The file that was sent"
    try:
        text = _unpacked(
            name, io.BytesIO(content), MOST_UPLOADED_BYTES, MOST_UPLOADED_BYTES, packed=content.startswith(_GZIP)
        )[0]
        ending = f".{kind}" if kind is not None else _ending_of(text)
        return _collected([(Path(f"labels{ending}"), text)], name)
    except InvalidParameter as error:
        raise InvalidParameter(error.message, param="body", remedy="Correct the file and send it again.") from error


def _read_files(files: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    left = MOST_BYTES
    for file in files:
        text, left = _text(file, left)
        yield file, text


def _collected(files: Iterable[tuple[Path, str]], name: str) -> LabelFile:
    """The labels of files that belong together."""
    found: dict[int, FeatureLabel] = {}
    skipped = 0
    origins: set[tuple[str, str]] = set()
    for file, text in files:
        for number, row in _rows(file, text):
            where = f"{file.name}, row {number}"
            origins |= _origin(row)
            if len(origins) > 1:
                named = ", ".join(f"{model} {layer}" for model, layer in sorted(origins))
                raise _refused(f"{where}: the labels belong to more than one SAE ({named}).")
            label = _label(row, where)
            if label is None:
                skipped += 1
            elif label.feature_idx in found:
                found[label.feature_idx] = _with_other(found[label.feature_idx], label.label)
            else:
                found[label.feature_idx] = label
    if not found:
        raise _refused(f"{name} holds no labels.")
    return LabelFile(tuple(found[index] for index in sorted(found)), skipped)


# --- files and rows ---------------------------------------------------------------------------------------------------


def _files(place: Path) -> list[Path]:
    try:
        if place.is_dir():
            found = [file for file in sorted(place.iterdir()) if _kind(file) is not None and file.is_file()]
            if not found:
                raise _refused(f"{place.name} holds no file of labels.")
            return found
    except OSError as error:
        raise _refused(f"{place} cannot be read: {error.strerror or error}.") from error
    if not place.is_file():
        raise _refused(f"There is no file at {place}.")
    if _kind(place) is None:
        raise _refused(f"{place.name} is no file of labels: its name does not end in one of {', '.join(_ENDINGS)}.")
    return [place]


def _kind(file: Path) -> str | None:
    name = file.name.lower().removesuffix(".gz")
    return next((ending for ending in _ENDINGS if name.endswith(ending)), None)


def _text(file: Path, most: int) -> tuple[str, int]:
    """A file's text, unpacked, and how many more bytes may be read."""
    try:
        with file.open("rb") as raw:
            return _unpacked(file.name, raw, most, MOST_BYTES, packed=file.name.lower().endswith(".gz"))
    except OSError as error:
        raise _refused(f"{file.name} cannot be read: {error.strerror or error}.") from error


def _unpacked(name: str, raw: IO[bytes], most: int, limit: int, *, packed: bool) -> tuple[str, int]:
    """What :func:`_text` gives; ``limit`` is what all files together may hold."""
    try:
        content = gzip.GzipFile(fileobj=raw).read(most + 1) if packed else raw.read(most + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _refused(f"{name} cannot be read: {error}.") from error
    if len(content) > most:
        raise _refused(f"The labels are larger than {limit >> 20} MiB.")
    try:
        return content.decode("utf-8-sig"), most - len(content)
    except UnicodeDecodeError as error:
        raise _refused(f"{name} is not UTF-8 text.") from error


def _ending_of(text: str) -> str:
    """What a text without a name looks like: JSON, an object on each line, or CSV."""
    start = text.lstrip()[:1]
    if start == "[":
        return ".json"
    if start != "{":
        return ".csv"
    first = text.strip().partition("\n")[0]
    try:
        whole = json.loads(first)
    except (ValueError, RecursionError):
        return ".json"
    # A line that is an object with a feature of its own is a row, unless it holds the rows.
    row = any(name in whole for name in _INDEX) and not any(isinstance(whole.get(name), list) for name in _LISTS)
    return ".jsonl" if row else ".json"


def _rows(file: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The rows of a file with their numbers, from 1."""
    match _kind(file):
        case ".csv":
            # A quoted text may be longer than the reader's own limit, and is bounded by the file's.
            csv.field_size_limit(MOST_BYTES)
            rows: Iterable[Any] = _csv_rows(file, text)
        case ".json":
            rows = _json_rows(_json(text, file.name))
        case _:
            lines = (line for line in text.split("\n") if line.strip())
            rows = (_json(line, f"{file.name}, row {number}") for number, line in enumerate(lines, 1))
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise _refused(f"{file.name}, row {number} is not an object.")
        yield number, row


def _csv_rows(file: Path, text: str) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    heads = set(reader.fieldnames or ())
    for wanted, what in ((_INDEX, "feature"), (_LABEL, "label")):
        if not heads & set(wanted):
            raise _refused(f"{file.name} has no column for the {what}: one is called {', '.join(wanted)}.")
    try:
        for row in reader:
            yield {name: value for name, value in row.items() if name is not None and value not in (None, "")}
    except csv.Error as error:
        raise _refused(f"{file.name}, line {reader.line_num} is no CSV: {error}.") from error


def _json_rows(value: Any) -> Iterable[Any]:
    """A list of rows, one under a usual name, or an object from feature to label."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise _refused("The file is neither a list nor an object.")
    for name in _LISTS:
        if isinstance(value.get(name), list):
            # Neuronpedia's answer about one feature: its explanations do not repeat the index.
            index = {"index": value["index"]} if "index" in value else {}
            return [{**index, **row} if isinstance(row, dict) else row for row in value[name]]
    return [
        {"index": name, **row} if isinstance(row, dict) else {"index": name, "label": row}
        for name, row in value.items()
    ]


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(f"{where} is not JSON: {error}.") from error


# --- one row ----------------------------------------------------------------------------------------------------------


def _label(row: Mapping[str, Any], where: str) -> FeatureLabel | None:
    """The row's label; None where it has none."""
    index = _index(_first(row, _INDEX), where)
    text = _first(row, _LABEL)
    if text is None or (isinstance(text, str) and not text.strip()):
        return None
    if not isinstance(text, str):
        raise _refused(f"{where}: the label is {str(text)[:40]!r}, not a text.")
    source = _first(row, _SOURCE)
    return FeatureLabel(
        feature_idx=index,
        label=text.strip(),
        source=source if isinstance(source, str) else None,
        confidence=_number(row, _CONFIDENCE, where),
        density=_number(row, _DENSITY, where),
        max_activation=_number(row, _MAXIMUM, where),
        top_tokens=_tokens(_first(row, _TOKENS)),
        extra={name: value for name, value in row.items() if name not in _NAMED and _plain(value)},
    )


def _first(row: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _index(value: Any, where: str) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 19:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return value
    raise _refused(f"{where}: the feature is {str(value)[:40]!r}, not a whole number from 0.")


def _number(row: Mapping[str, Any], names: Iterable[str], where: str) -> float | None:
    value = _first(row, names)
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise _refused(f"{where}: {next(iter(names))} is {str(value)[:40]!r}, not a finite number.")
    return number


def _tokens(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split("|")
    if not isinstance(value, list):
        return ()
    return tuple(token for token in value if isinstance(token, str))[:20]


def _plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MOST_EXTRA
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


def _origin(row: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Which SAE Neuronpedia says the row is about."""
    model, layer = row.get("modelId"), row.get("layer")
    return {(model, layer)} if isinstance(model, str) and isinstance(layer, str) else set()


def _with_other(label: FeatureLabel, other: str) -> FeatureLabel:
    others = [*label.extra.get("others", []), other]
    return replace(label, extra={**label.extra, "others": others})


def _refused(what: str) -> InvalidParameter:
    return InvalidParameter(what, param="path", remedy="Correct the file, or choose another one.")
