"""A sweep as a record, and back: nothing of it is lost, so a kept sweep is shown and exported as one of the session.

Pure functions. What a number could not be (no answer, nothing measured) is ``null``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.actions.experiments.parts import amount, index_of, number, part, parts, texts, whole, word
from engine.actions.sweeping.results import ToldBase
from engine.actions.sweeping.settings import (
    SWEEP_SAMPLING,
    BaseKind,
    CellResult,
    SweepBase,
    SweepOutcome,
    SweepSettings,
)
from engine.errors import InvalidParameter
from engine.library.records import ExperimentRecord, RecordKind
from engine.sampling import FIELDS
from engine.wire import wire

BETWEEN = "\n\n"


def record_of_sweep(outcome: SweepOutcome, versions: Mapping[str, str], title: str | None = None) -> ExperimentRecord:
    """A sweep as far as it came, to be kept."""
    settings, base = outcome.settings, outcome.base
    plain = [cell.text for cell in outcome.cells if cell.intensity == 0]
    steered = [cell.text for cell in outcome.cells if cell.intensity != 0]
    return ExperimentRecord(
        title=title or f"Sweep of {base.name}",
        model=outcome.facts.get("Model", ""),
        prompt="\n".join(settings.prompts),
        plain=BETWEEN.join(plain),
        steered=BETWEEN.join(steered),
        settings=settings.as_json(),
        versions=dict(versions),
        kind=RecordKind.SWEEP,
        content={
            "base": wire(ToldBase.of(base)),
            "facts": dict(outcome.facts),
            "cells": wire(outcome.cells),
            "complete": outcome.complete,
        },
    )


def sweep_of(record: ExperimentRecord) -> SweepOutcome:
    """The sweep that a record keeps. Raises :class:`InvalidParameter` naming what is not as it must be."""
    given, content = record.settings, record.content
    sampled = {each.name: each.read(given[each.name], f"settings.{each.name}") for each in FIELDS if each.name in given}
    settings = SweepSettings(
        prompts=texts(given, "prompts", "settings"),
        intensities=tuple(number(each, "settings.intensities") for each in parts(given, "intensities", "settings")),
        max_tokens=whole(given.get("max_tokens", 48), "settings.max_tokens"),
        sampling=replace(SWEEP_SAMPLING, **sampled),
        topic=frozenset(texts(given, "topic", "settings")),
        system=word(given.get("system", ""), "settings.system"),
    )
    base = part(content, "base", "content")
    kind = word(base.get("kind"), "content.base.kind")
    if kind not in set(BaseKind):
        raise InvalidParameter(f"{kind[:40]!r} is nothing a sweep turns the dial of.", param="content.base.kind")
    authored: dict[tuple[str, int], Mapping[int, float]] = {}
    for place in parts(base, "places", "content.base"):
        where = "content.base.places"
        if not isinstance(place, Mapping):
            raise InvalidParameter(f"'{where}' must be objects.", param=where)
        strengths = part(place, "strengths", where)
        key = (word(place.get("sae_id"), f"{where}.sae_id"), whole(place.get("layer"), f"{where}.layer"))
        authored[key] = {
            index_of(index, f"{where}.strengths"): number(value, f"{where}.strengths")
            for index, value in strengths.items()
        }
    name = word(base.get("name"), "content.base.name")
    warnings = texts(base, "warnings", "content.base")
    facts = {str(head): str(told) for head, told in part(content, "facts", "content").items()}
    return SweepOutcome(
        settings,
        SweepBase(BaseKind(kind), name, authored, warnings, word(base.get("id", ""), "content.base.id")),
        tuple(_cell(each, settings) for each in parts(content, "cells", "content")),
        facts,
        content.get("complete") is True,
    )


def _cell(given: object, settings: SweepSettings) -> CellResult:
    where = "content.cells"
    if not isinstance(given, Mapping):
        raise InvalidParameter(f"'{where}' must be objects.", param=where)
    prompt = whole(given.get("prompt"), f"{where}.prompt")
    if prompt >= len(settings.prompts):
        raise InvalidParameter(f"There is no prompt {prompt} in this sweep.", param=f"{where}.prompt")
    kinds = {"topic": amount, "features": number, "loss": amount, "trigrams": amount}
    measured: dict[str, Any] = {
        name: None if given.get(name) is None else kind(given[name], f"{where}.{name}") for name, kind in kinds.items()
    }
    error = given.get("error")
    return CellResult(
        prompt=prompt,
        intensity=number(given.get("intensity"), f"{where}.intensity"),
        text=word(given.get("text", ""), f"{where}.text"),
        tokens=whole(given.get("tokens", 0), f"{where}.tokens"),
        finish=word(given.get("finish", ""), f"{where}.finish"),
        clamped=whole(given.get("clamped", 0), f"{where}.clamped"),
        error=None if error is None else word(error, f"{where}.error"),
        reasoning=word(given.get("reasoning", ""), f"{where}.reasoning"),
        **measured,
    )
