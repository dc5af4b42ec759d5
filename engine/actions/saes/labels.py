"""Labels of features from files: CSV, JSON, JSON lines, each also gzipped, and Neuronpedia's exports.

A row needs a feature and a label; both, and the figures beside them, go by several names. What else a row says in plain
values is kept. A file is taken whole or refused with the place of the first row that cannot be read.
"""

from __future__ import annotations

import gzip
import io
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from engine.actions.saes.import_paths import usable_place
from engine.actions.saes.label_rows import (
    CONFIDENCE,
    DENSITY,
    INDEX,
    LABEL,
    MAXIMUM,
    SOURCE,
    TOKENS,
    Kind,
    decoded,
    kind_of,
    refused,
    rows,
)
from engine.checked import there
from engine.errors import InvalidParameter
from engine.files import open_file
from engine.library.records import FeatureLabel

MOST_BYTES = 512 << 20
"""Text read from one file or folder at most, unpacked: a small archive may hold a very large one."""

MOST_UPLOADED_BYTES = 128 << 20
"""The same for a file that is sent."""

MOST_EXTRA = 500
"""Characters of a text that is kept beside the label; longer ones are left out."""

MOST_LABELS = 1 << 21
"""Features that one set of labels may speak of: more than any SAE has."""

MOST_LABEL = 100_000
"""Characters of a label."""

MOST_OTHERS = 1000
"""Labels of one feature that are kept beside its first."""

_NAMED = {*INDEX, *LABEL, *CONFIDENCE, *DENSITY, *MAXIMUM, *TOKENS, "source"}

_ENDINGS: Mapping[str, Kind] = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_GZIP = b"\x1f\x8b"

LabelKind = Kind
"""How labels are written down."""


@dataclass(frozen=True)
class LabelFile:
    """What was read: one label for each feature, by rising index, and how many rows had nothing to say."""

    labels: tuple[FeatureLabel, ...]
    skipped: int


def read_labels(path: Path, d_sae: int | None = None) -> LabelFile:
    """The labels in ``path`` (absolute): a file, or a folder of them such as Neuronpedia's ``explanations``.

    ``d_sae``: how many features the SAE has. Reading ends at the first label of one it has not, so that a long file for
    another SAE costs nothing; storing what was read then refuses that label.

    Of several rows for one feature the first is its label; the others' are kept as ``extra["others"]``. Raises
    :class:`InvalidParameter` (param ``path``) naming file and row.
    """
    place = usable_place(path)
    return _collected(_read_files(_files(place)), place.name, d_sae)


def read_label_upload(content: bytes, kind: LabelKind | None = None, d_sae: int | None = None) -> LabelFile:
    """The labels in a file that was sent, gzipped or not; see :func:`read_labels`. ``kind`` None: told by its look.

    Raises :class:`InvalidParameter` (param ``body``) naming the row.
    """
    name = "The file that was sent"
    try:
        raw = _unpacked(
            name, io.BytesIO(content), MOST_UPLOADED_BYTES, MOST_UPLOADED_BYTES, packed=content.startswith(_GZIP)
        )
        text = decoded(raw, name, kind)
        return _collected([("labels", kind or kind_of(text), text)], name, d_sae)
    except InvalidParameter as error:
        raise InvalidParameter(error.message, param="body", remedy="Correct the file and send it again.") from error


def _read_files(files: Iterable[Path]) -> Iterator[tuple[str, Kind, str]]:
    left = MOST_BYTES
    for file in files:
        content = _content(file, left)
        left -= len(content)
        kind: LabelKind = there(_kind(file))
        yield file.name, kind, decoded(content, file.name, kind)


def _collected(files: Iterable[tuple[str, Kind, str]], name: str, d_sae: int | None) -> LabelFile:
    """The labels of files that belong together."""
    found: dict[int, FeatureLabel] = {}
    others: dict[int, list[str]] = {}
    skipped = 0
    origins: set[tuple[str, str]] = set()
    for file, kind, text in files:
        for number, row in rows(text, kind, file):
            where = f"{file}, row {number}"
            origins |= _origin(row)
            if len(origins) > 1:
                named = ", ".join(f"{model} {layer}" for model, layer in sorted(origins))
                raise refused(f"{where}: the labels belong to more than one SAE ({named}).")
            label = _label(row, where)
            if label is None:
                skipped += 1
            elif d_sae is not None and label.feature_idx >= d_sae:
                return LabelFile((label,), skipped)
            elif label.feature_idx in found:
                more = others.setdefault(label.feature_idx, [])
                more.append(label.label)
                if len(more) > MOST_OTHERS:
                    raise refused(f"{where}: feature {label.feature_idx} has more than {MOST_OTHERS:,} labels.")
            elif len(found) == MOST_LABELS:
                raise refused(f"{where}: the labels speak of more than {MOST_LABELS:,} features.")
            else:
                found[label.feature_idx] = label
    if not found:
        raise refused(f"{name} holds no labels.")
    for index, names in others.items():
        found[index] = replace(found[index], extra={**found[index].extra, "others": names})
    return LabelFile(tuple(found[index] for index in sorted(found)), skipped)


# --- files ---------------------------------------------------------------------------------------------------


def _files(place: Path) -> list[Path]:
    try:
        if place.is_dir():
            found = [file for file in sorted(place.iterdir()) if _kind(file) is not None and file.is_file()]
            if not found:
                raise refused(f"{place.name} holds no file of labels.")
            return found
    except OSError as error:
        raise refused(f"{place} cannot be read: {error.strerror or error}.") from error
    if not place.is_file():
        raise refused(f"There is no file at {place}.")
    if _kind(place) is None:
        raise refused(f"{place.name} is no file of labels: its name does not end in one of {', '.join(_ENDINGS)}.")
    return [place]


def _kind(file: Path) -> Kind | None:
    name = file.name.lower().removesuffix(".gz")
    return next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), None)


def _content(file: Path, most: int) -> bytes:
    """A file's bytes, unpacked."""
    try:
        with open_file(file) as raw:
            return _unpacked(file.name, raw, most, MOST_BYTES, packed=file.name.lower().endswith(".gz"))
    except OSError as error:
        raise refused(f"{file.name} cannot be read: {error.strerror or error}.") from error


def _unpacked(name: str, raw: IO[bytes], most: int, limit: int, *, packed: bool) -> bytes:
    """At most ``most`` bytes of ``raw``; ``limit`` is what all files together may hold."""
    try:
        content = gzip.GzipFile(fileobj=raw).read(most + 1) if packed else raw.read(most + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise refused(f"{name} cannot be read: {error}.") from error
    if len(content) > most:
        raise refused(f"The labels are larger than {limit >> 20} MiB.")
    return content


# --- one row ----------------------------------------------------------------------------------------------------------


def _label(row: Mapping[str, Any], where: str) -> FeatureLabel | None:
    """The row's label; None where it has none."""
    index = _index(_first(row, INDEX), where)
    text = _first(row, LABEL)
    if text is None or (isinstance(text, str) and not text.strip()):
        return None
    if not isinstance(text, str):
        raise refused(f"{where}: the label is {str(text)[:40]!r}, not a text.")
    if len(text) > MOST_LABEL:
        raise refused(f"{where}: the label has {len(text):,} characters; at most {MOST_LABEL:,} are kept.")
    source = _first(row, SOURCE)
    return FeatureLabel(
        feature_idx=index,
        label=text.strip(),
        source=source if isinstance(source, str) else None,
        confidence=_number(row, CONFIDENCE, where),
        density=_number(row, DENSITY, where),
        max_activation=_number(row, MAXIMUM, where),
        top_tokens=_tokens(_first(row, TOKENS)),
        extra={name: value for name, value in row.items() if name not in _NAMED and _plain(value)},
    )


def _first(row: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _index(value: Any, where: str) -> int:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit() and len(value) < 19:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return value
    raise refused(f"{where}: the feature is {str(value)[:40]!r}, not a whole number from 0.")


def _number(row: Mapping[str, Any], names: Iterable[str], where: str) -> float | None:
    value = _first(row, names)
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise refused(f"{where}: {next(iter(names))} is {str(value)[:40]!r}, not a finite number.")
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
