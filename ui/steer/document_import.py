"""Taking documents in, whatever page they are given to: each goes to the import of its own kind. No widgets.

Nothing is renamed without being asked: a name that is taken is said, with the way to take the document all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.engine import Engine
from engine.errors import MillmError
from engine.files import open_file
from engine.public.documents import (
    MAX_DOCUMENT_BYTES,
    DocumentKind,
    DocumentRefused,
    ImportStatus,
    Verdict,
    decode,
    evidence_words,
    kind_of,
    require_kind,
)
from engine.public.library import CircuitAlreadyExists, ProfileAlreadyExists
from engine.public.steering import ImportedCircuit, ImportItem, ProfileSummary
from ui.context.page_context import CIRCUITS, CLUSTERS, PROFILES
from ui.kit.steering_text import features

VERDICT_WORDS = {
    Verdict.BIND.value: "bound to its SAE",
    Verdict.WARN.value: "bound with a remark",
    Verdict.UNBOUND.value: "not bound",
    Verdict.BLOCK.value: "cannot be bound",
}
"""A verdict in words."""

_TAKEN = (ProfileAlreadyExists.code, CircuitAlreadyExists.code)
_SUFFIXES = {PROFILES: ".profile.json", CLUSTERS: ".cluster.json", CIRCUITS: ".circuit.json"}


@dataclass(frozen=True)
class Outcome:
    """What became of one document. ``tone`` is good, warn or bad; ``words`` are sentences.

    ``page`` and ``key`` say where it is now. ``again`` is the document where only its name was in the way.
    """

    title: str
    tone: str
    words: tuple[str, ...]
    page: str | None = None
    key: str | None = None
    again: bytes | None = None


def take_in(engine: Engine, raw: bytes, source: str, *, rename: bool = False) -> list[Outcome]:
    """Import what ``raw`` holds; a bundle gives an outcome for each definition. ``source`` is what to call it."""
    on_conflict = "rename" if rename else "fail"
    try:
        document = decode(raw)
        kind = kind_of(document)
        if kind is DocumentKind.CIRCUIT:
            return [_circuit(engine.circuits.import_document(raw, on_conflict=on_conflict, origin=source[:200]))]
        if kind is None and "kind" not in document and ("steering" in document or "features" in document):
            return [_profile(engine.profiles.import_document(raw, on_conflict=on_conflict))]
        require_kind(document, DocumentKind.CLUSTER, DocumentKind.BUNDLE, DocumentKind.CIRCUIT)
        results = engine.clusters.import_document(raw, on_conflict=on_conflict).results
        return [_cluster(each, _alone(document, place)) for place, each in enumerate(results)]
    except MillmError as error:
        return [_refused(source, error, raw)]


def take_in_files(engine: Engine, paths: Iterable[Path]) -> list[Outcome]:
    """Import files one after the other; one that cannot be read stops no other."""
    found: list[Outcome] = []
    for path in paths:
        try:
            with open_file(path) as file:
                raw = file.read(MAX_DOCUMENT_BYTES + 1)
        except OSError as error:
            found.append(Outcome(path.name, "bad", (f"The file cannot be read: {error.strerror or error}.",)))
            continue
        found.extend(take_in(engine, raw, path.name))
    return found


def file_name(name: str, page: str) -> str:
    """A name for an exported document: what no file system refuses, with the ending of its kind."""
    plain = "".join(each if each.isalnum() or each in " -_.()" else "-" for each in name)
    return f"{plain.strip(' .')[:80] or 'document'}{_SUFFIXES[page]}"


def document_bytes(document: dict[str, Any]) -> bytes:
    """An exported document as it is written to a file."""
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()


def _alone(document: dict[str, Any], place: int) -> bytes:
    """The definition at ``place`` of a bundle as a document of its own, else the document itself."""
    definitions: Sequence[Any] = document.get("definitions") or [] if "definitions" in document else [document]
    return json.dumps(definitions[place] if place < len(definitions) else document, ensure_ascii=False).encode()


def _cluster(item: ImportItem, alone: bytes) -> Outcome:
    if item.status is ImportStatus.ERROR:
        taken = item.code in _TAKEN
        words = (item.error or "It could not be imported.", *_pointers(item.errors[1:]))
        return Outcome(item.name, "warn" if taken else "bad", words, again=alone if taken else None)
    bound = item.status is ImportStatus.IMPORTED
    head = "Imported and bound to its SAE." if bound else "Imported, but not bound to an SAE yet."
    tone = "good" if bound and not item.warnings else "warn"
    return Outcome(item.name, tone, (head, *item.warnings), CLUSTERS, item.profile_id)


def _circuit(done: ImportedCircuit) -> Outcome:
    record = done.record
    head = "Imported; every layer has its SAE." if record.serveable else "Imported; not every layer has its SAE yet."
    words = [head, f"Evidence: {evidence_words(record.rung, record.only_persistence)}."]
    said = {f"Layer {each['layer']}" for each in record.per_sae_warnings if each.get("reason")}
    for each in record.per_sae_warnings:
        if f"Layer {each['layer']}" not in said:
            words.append(f"Layer {each['layer']}: {VERDICT_WORDS.get(str(each['verdict']), each['verdict'])}.")
    tone = "good" if record.serveable and not done.warnings else "warn"
    return Outcome(record.name, tone, (*words, *done.warnings), CIRCUITS, record.id)


def _profile(done: ProfileSummary) -> Outcome:
    record = done.record
    place = "" if record.sae_id is None else f" for {record.sae_id}"
    place += "" if record.layer is None else f" at layer {record.layer}"
    return Outcome(record.name, "good", (f"Imported: {features(len(record.steering))}{place}.",), PROFILES, record.id)


def _refused(source: str, error: MillmError, raw: bytes) -> Outcome:
    if isinstance(error, ProfileAlreadyExists | CircuitAlreadyExists):
        name = str(error.details.get("existing_name", source))
        return Outcome(name, "warn", (error.message,), again=raw)
    errors = error.details.get("errors", []) if isinstance(error, DocumentRefused) else []
    return Outcome(source, "bad", (error.one_line(), *_pointers(errors[1:])))


def _pointers(errors: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """The problems after the first, which the message has already."""
    return tuple(f"{each.get('pointer') or 'The document'} {each.get('message', '')}." for each in errors)
