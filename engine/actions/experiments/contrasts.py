"""A contrast of two sets of texts as a record, and back. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from engine.actions.experiments.parts import number, parts, texts, whole, word
from engine.actions.saes.contrast import CLUSTER_SHARE, Contrast, ContrastFeature
from engine.errors import InvalidParameter
from engine.library.records import ExperimentRecord, FeatureLabel, RecordKind

LONGEST_TITLE = 60
FIGURES = ("score", "mean", "share", "other_mean", "other_share", "density")


@dataclass(frozen=True)
class KeptDifference:
    """A feature that differed. ``label`` as it was then, None where there was none; ``strength`` what a cluster of it
    alone would add.
    """

    index: int
    label: str | None
    score: float
    mean: float
    share: float
    other_mean: float
    other_share: float
    density: float
    strength: float


@dataclass(frozen=True)
class KeptContrast:
    """What a record of a contrast says; fields as in :class:`engine.actions.saes.contrast.Contrast`."""

    sae_id: str
    layer: int
    texts_a: tuple[str, ...]
    texts_b: tuple[str, ...]
    density_cap: float
    tokens_a: int
    tokens_b: int
    typical_norm: float
    left_out: int
    toward_a: tuple[KeptDifference, ...]
    toward_b: tuple[KeptDifference, ...]


def record_of_contrast(
    found: Contrast,
    texts_a: Sequence[str],
    texts_b: Sequence[str],
    density_cap: float,
    labels: Mapping[int, FeatureLabel],
    versions: Mapping[str, str],
    title: str | None = None,
) -> ExperimentRecord:
    """A contrast to be kept, with the texts that were read and the labels of now."""

    def told(feature: ContrastFeature) -> dict[str, Any]:
        known = labels.get(feature.index)
        return {
            "feature_idx": feature.index,
            "label": None if known is None else known.label,
            **{name: getattr(feature, name) for name in FIGURES},
            "strength": found.strength(feature, CLUSTER_SHARE),
        }

    named = next((each.index for each in found.toward_a if each.index in labels), None)
    about = next(iter(texts_a), "") if named is None else f"#{named} {labels[named].label}"
    return ExperimentRecord(
        title=title or f"Contrast: {shorten(about, LONGEST_TITLE, placeholder='…')}",
        model=found.model,
        prompt="",
        plain="\n".join(texts_b),
        steered="\n".join(texts_a),
        settings={"sae_id": found.sae_id, "layer": found.layer, "density_cap": density_cap},
        versions=dict(versions),
        kind=RecordKind.CONTRAST,
        content={
            "texts_a": list(texts_a),
            "texts_b": list(texts_b),
            "tokens_a": found.tokens_a,
            "tokens_b": found.tokens_b,
            "typical_norm": found.typical_norm,
            "left_out": found.left_out,
            "toward_a": [told(each) for each in found.toward_a],
            "toward_b": [told(each) for each in found.toward_b],
        },
    )


def contrast_of(record: ExperimentRecord) -> KeptContrast:
    """The contrast that a record keeps. Raises :class:`InvalidParameter` naming what is not as it must be."""
    settings, content = record.settings, record.content
    return KeptContrast(
        sae_id=word(settings.get("sae_id"), "settings.sae_id"),
        layer=whole(settings.get("layer"), "settings.layer"),
        density_cap=number(settings.get("density_cap"), "settings.density_cap"),
        texts_a=texts(content, "texts_a", "content"),
        texts_b=texts(content, "texts_b", "content"),
        tokens_a=whole(content.get("tokens_a"), "content.tokens_a"),
        tokens_b=whole(content.get("tokens_b"), "content.tokens_b"),
        typical_norm=number(content.get("typical_norm"), "content.typical_norm"),
        left_out=whole(content.get("left_out"), "content.left_out"),
        toward_a=tuple(_difference(each, "content.toward_a") for each in parts(content, "toward_a", "content")),
        toward_b=tuple(_difference(each, "content.toward_b") for each in parts(content, "toward_b", "content")),
    )


def _difference(given: object, where: str) -> KeptDifference:
    if not isinstance(given, Mapping):
        raise InvalidParameter(f"'{where}' must be objects.", param=where)
    label = given.get("label")
    figures = {name: number(given.get(name), f"{where}.{name}") for name in FIGURES}
    return KeptDifference(
        index=whole(given.get("feature_idx"), f"{where}.feature_idx"),
        label=None if label is None else word(label, f"{where}.label"),
        strength=number(given.get("strength"), f"{where}.strength"),
        **figures,
    )
