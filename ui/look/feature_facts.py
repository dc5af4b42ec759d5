"""What is known about one feature of an attached SAE, gathered for the pages that show it. No widgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.engine import Engine
from engine.public.library import FeatureLabel
from engine.public.monitor import Peak
from engine.public.saes import Attachment

VISIBLE = str.maketrans({"\n": "↵", "\t": "⇥", "\r": "␍"})
"""Characters that do not show, as signs that do."""


@dataclass(frozen=True)
class SeenToken:
    """A token at which a feature fired in this session, in words."""

    before: str
    token: str
    value: float


@dataclass(frozen=True)
class FeatureFacts:
    """A feature as the side panel shows it.

    Attributes:
        row_norm: Length of its decoder row.
        typical_norm: Median length of the residual stream at its layer, where it was measured.
        seen: Its strongest tokens in this session.
    """

    sae_id: str
    layer: int
    index: int
    label: FeatureLabel | None
    row_norm: float
    typical_norm: float | None
    seen: tuple[SeenToken, ...]

    def strength(self, multiple: float) -> float | None:
        """The strength that adds ``multiple`` of the typical norm; None where that norm is not known."""
        if self.typical_norm is None or not self.row_norm:
            return None
        # Not clamped: a strength that is out of reach is said to be.
        return round(multiple * self.typical_norm / self.row_norm, 2)


def visible(token: str) -> str:
    """A token's text with what does not show made visible; a lone space is a dot."""
    words = token.translate(VISIBLE)
    return words if words.strip(" ") else "·" * max(1, len(words))


def facts_of(engine: Engine, attachment: Attachment, index: int) -> FeatureFacts:
    """Everything about one feature. Reads the library; for a background thread."""
    sae_id, layer = attachment.sae_id, attachment.layer
    return FeatureFacts(
        sae_id,
        layer,
        index,
        engine.library.labels.get(sae_id, index),
        float(attachment.sae.delta({index: 1.0}).norm()),
        engine.hand_steering.typical_norm(sae_id, layer),
        seen_tokens(engine, engine.monitor.peaks_of(sae_id, layer, index).peaks),
    )


def seen_tokens(engine: Engine, peaks: Sequence[Peak]) -> tuple[SeenToken, ...]:
    """Peaks in words; none once the model is gone whose tokens they are."""
    resident = engine.shelf.resident
    if resident is None:
        return ()
    tokenizer = resident.backend.tokenizer
    return tuple(
        SeenToken(
            tokenizer.decode(peak.token_ids[:-1], skip_special=False),
            tokenizer.token_text(peak.token_ids[-1]),
            peak.value,
        )
        for peak in peaks
    )


def label_words(label: FeatureLabel | None, index: int) -> str:
    """What a feature is called in a list: #41 ships and the sea."""
    return f"#{index} {label.label}" if label is not None and label.label else f"#{index}"
