"""The parts that clusters and circuits share: member, SAE reference, budget, provenance; and the sign rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from engine.documents.binding import SaeReference
from engine.documents.fields import (
    GREATEST_INTENSITY,
    LEAST_INTENSITY,
    Anything,
    Count,
    Index,
    Intensity,
    Number,
    Open,
    Share,
    Sign,
    SourceHint,
    Strength,
    WebAddress,
)
from engine.documents.problems import DocumentProblem, json_pointer
from engine.documents.ranges import Range, parse_intensity_range

MAX_MEMBERS = 20
"""Most members of a cluster, and most distinct features of a circuit on one layer."""


def directional(strength: float, sign: int) -> float:
    """The strength with its direction: a negative one already has it, a non-negative one takes it from ``sign``."""
    return strength if strength < 0 else strength * sign


class Example(Open):
    """A text in which the feature fires, and the part of it that does."""

    text: Annotated[str, Field(max_length=500)] | None = None
    span: Annotated[str, Field(max_length=100)] | None = None


class MemberMeta(Open):
    """What an author says about a feature; shown as the author's words, never computed with."""

    description: Annotated[str, Field(max_length=1000)] | None = None
    category: Annotated[str, Field(max_length=50)] | None = None
    label_source: Annotated[str, Field(max_length=50)] | None = None
    interpretability: Share | None = None
    mean_activation: Number | None = None
    top_tokens: Annotated[list[str], Field(max_length=10)] | None = None
    signature: Annotated[str, Field(max_length=200)] | None = None
    example: Example | None = None
    neuronpedia: WebAddress | None = None


class Member(Open):
    """One feature with its strength at intensity 1."""

    feature_idx: Index
    label: str | None = None
    similarity: Share | None = None
    activation_frequency: Number | None = None
    max_activation: Number | None = None
    strength: Strength
    sign: Sign = 1
    pinned: bool = False
    meta: MemberMeta | None = None

    @property
    def directional_strength(self) -> float:
        """The strength with its direction, at intensity 1 and unclamped."""
        return directional(self.strength, self.sign)


class ModelRef(Open):
    """The model a document was made on."""

    hf_id: str | None = None
    mistudio_model_id: str | None = None


class SaeRef(Open):
    """The SAE a document was made with; ``sae_id`` is another spelling of ``mistudio_sae_id``."""

    mistudio_sae_id: str | None = None
    sae_id: str | None = None
    layer: Index | None = None
    hook_type: str | None = None
    n_features: Count | None = None
    d_model: Count | None = None
    source_hint: SourceHint | None = None

    @property
    def reference(self) -> SaeReference:
        return SaeReference(self.mistudio_sae_id or self.sae_id or None, self.layer, self.n_features, self.d_model)


class LayerBudget(Open):
    """How strengths were shared out, and the dial a cluster was made for. ``intensity_range`` may hold anything."""

    B: Number | None = None
    B_dir: Number | None = None
    G: Number | None = None
    f_eff: Number | None = None
    formula_id: str | None = None
    constants: dict[str, Number] | None = None
    intensity: Intensity = 1.0
    intensity_range: Anything = None

    @property
    def declared_range(self) -> Range | None:
        """The intensity range, where one can be read."""
        return parse_intensity_range(self.intensity_range)


class CircuitBudget(Open):
    """Budgets by layer, and the one dial of the whole circuit. ``intensity_range`` may hold anything."""

    layers: dict[str, LayerBudget] | None = None
    formula_id: str | None = None
    intensity: Intensity = 1.0
    intensity_range: Anything = None

    @property
    def declared_range(self) -> Range | None:
        """The intensity range, where one can be read."""
        return parse_intensity_range(self.intensity_range)


class Provenance(Open):
    """Where a document came from."""

    created_at: str | None = None
    exported_at: str | None = None
    mistudio_version: str | None = None
    source_note: Annotated[str, Field(max_length=500)] | None = None


SchemaVersion = Literal["1"]


def range_notes(budget: LayerBudget | CircuitBudget | None, prefix: Sequence[str | int]) -> list[DocumentProblem]:
    """A note where a declared intensity range cannot be used, so that the configured one holds."""
    if budget is None or budget.intensity_range is None:
        return []
    declared = budget.declared_range
    if declared is None:
        message = "is not a pair of numbers and is ignored"
    elif declared[1] < LEAST_INTENSITY or declared[0] > GREATEST_INTENSITY:
        message = f"lies outside {LEAST_INTENSITY:g} to {GREATEST_INTENSITY:g} and is ignored"
    else:
        return []
    return [DocumentProblem(json_pointer([*prefix, "intensity_range"]), message)]
