"""Contrasting two sets of texts: the features that fire more in one than in the other.

A feature's score is (mean in A − mean in B) × (share of tokens on in A − share on in B): how strongly and how often it
fires must both differ, and in the same direction. Means and shares are over tokens; attention sinks are left out. All
texts are read plainly, as in :mod:`engine.actions.saes.reading`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from engine.actions.saes.context import SaeContext
from engine.actions.saes.reading import (
    ReadPlace,
    SaeReading,
    TextReader,
    encoded,
    sinks_among,
    submit,
    token_ids_of,
)
from engine.actions.steering.results import ImportItem
from engine.checked import there
from engine.counting import so_many
from engine.documents.members import MAX_MEMBERS
from engine.errors import InvalidParameter
from engine.generation.prefill_job import ReadingFigures
from engine.models.registry import LoadedModel
from engine.steering.push import length_of
from engine.wire import made_of

if TYPE_CHECKING:
    from torch import Tensor

    from engine.library.records import FeatureLabel

MOST_TEXTS = 1000
"""Texts of one set at most."""

MOST_FEATURES = 200
"""Features given back for one direction at most."""

DENSITY_CAP = 0.06
"""Features that fire at more than this share of tokens anyway are left out unless another cap is asked for."""

Side = Literal["a", "b"]
"""Which set a feature leans to."""

CLUSTER_SHARE = 0.3
"""What the strengths of a cluster sum to at intensity 1, as a share of the layer's typical norm, each counted by the
length of its decoder row: fluent and on topic with tight ones. The vector they add together is as long or shorter."""


@dataclass(frozen=True)
class ContrastFeature:
    """A feature that differs.

    Attributes:
        score: (difference of means) × (difference of shares), above 0.
        mean, share: Mean activation, and share of tokens at which it is on, in the set it leans to.
        other_mean, other_share: The same in the other set.
        density: How often it fires in general: its label's figure where there is one, else ``other_share``.
        row_norm: Length of its decoder row.
        row: The decoder row itself, float32 ``[d_in]`` on the CPU.
    """

    index: int
    score: float
    mean: float
    share: float
    other_mean: float
    other_share: float
    density: float
    row_norm: float
    row: Tensor = field(compare=False, repr=False)


@dataclass(frozen=True)
class Contrast:
    """What was found. ``toward_a`` and ``toward_b`` are in falling order of their score.

    Attributes:
        tokens_a, tokens_b: Tokens that were counted.
        typical_norm: Median length of the residual stream at these tokens.
        left_out: Features that differed and fire too often in general.
        d_sae, d_in: Features of the SAE, and width of the vectors it reads.
    """

    sae_id: str
    layer: int
    model: str
    tokens_a: int
    tokens_b: int
    typical_norm: float
    toward_a: tuple[ContrastFeature, ...]
    toward_b: tuple[ContrastFeature, ...]
    left_out: int
    figures: ReadingFigures = field(compare=False)
    d_sae: int = 0
    d_in: int = 0

    def strength(self, feature: ContrastFeature, multiple: float) -> float:
        """The strength that adds ``multiple`` of the typical norm with this feature alone; two decimals."""
        return round(multiple * self.typical_norm / feature.row_norm, 2) if feature.row_norm else 0.0

    def length(self, strengths: Mapping[int, float]) -> float:
        """Length of the vector that ``strengths`` of features found here add together. Raises KeyError for others."""
        import torch

        rows = {each.index: each.row for each in (*self.toward_a, *self.toward_b)}
        parts = [strength * rows[index].double() for index, strength in strengths.items()]
        return length_of(torch.stack(parts).sum(dim=0)) if parts else 0.0


@dataclass(frozen=True)
class Difference:
    """A feature that fires more in one set. ``strength`` adds 0.3 of the typical norm with it alone."""

    feature_idx: int
    label: str | None
    score: float
    mean: float
    share: float
    other_mean: float
    other_share: float
    density: float
    row_norm: float
    strength: float


@dataclass(frozen=True)
class FoundCluster:
    """A cluster document of what was found, and what became of it where it was to be stored.

    ``length`` is that of the vector it adds at intensity 1, ``share`` the same as a share of the typical norm.
    """

    document: Mapping[str, Any]
    stored: ImportItem | None
    length: float
    share: float


@dataclass(frozen=True)
class Differences:
    """What tells two sets of texts apart, by falling score. ``left_out`` features fire too often in general."""

    sae_id: str
    layer: int
    model: str
    tokens_a: int
    tokens_b: int
    typical_norm: float
    toward_a: tuple[Difference, ...]
    toward_b: tuple[Difference, ...]
    left_out: int
    figures: ReadingFigures
    cluster: FoundCluster | None = None

    @classmethod
    def of(
        cls, found: Contrast, labels: Mapping[int, FeatureLabel], cluster: FoundCluster | None = None
    ) -> Differences:
        """What was found, under the labels of now."""

        def told(each: ContrastFeature) -> Difference:
            label = labels[each.index].label if each.index in labels else None
            return made_of(
                Difference, each, feature_idx=each.index, label=label, strength=found.strength(each, CLUSTER_SHARE)
            )

        toward_a, toward_b = (tuple(map(told, side)) for side in (found.toward_a, found.toward_b))
        return made_of(cls, found, toward_a=toward_a, toward_b=toward_b, cluster=cluster)


class Contraster:
    """Prepares contrasts and hands them to the scheduler. Any thread but the engine's."""

    def __init__(self, context: SaeContext, reader: TextReader) -> None:
        self._context = context
        self._reader = reader

    def find(
        self,
        texts_a: Sequence[str],
        texts_b: Sequence[str],
        *,
        sae_id: str | None = None,
        layer: int | None = None,
        limit: int = 30,
        density_cap: float = DENSITY_CAP,
    ) -> Future[Contrast]:
        """Read both sets and compare them; at most ``limit`` features (1 to 200) for each direction.

        Cancelling the future ends it before its next chunk. Raises as :meth:`TextReader.read`, and
        :class:`InvalidParameter` for a set that is empty or too large, a limit or a cap out of range.
        """
        loaded = self._context.resident()
        if not isinstance(limit, int) or not 1 <= limit <= MOST_FEATURES:
            raise _invalid("limit", limit, f"a whole number from 1 to {MOST_FEATURES}")
        if not 0.0 < density_cap <= 1.0:
            raise _invalid("density_cap", density_cap, "a share above 0, at most 1")
        sets = [_tokenized(texts, name, loaded) for texts, name in ((texts_a, "A"), (texts_b, "B"))]
        place = self._reader.place(sae_id, layer, loaded)
        return submit(self._context, _Contrasting(self._context, loaded, sets, place, limit, density_cap))

    def cluster(
        self,
        found: Contrast,
        name: str,
        *,
        side: Side = "a",
        features: Sequence[int] | None = None,
        count: int = 3,
        total: float = CLUSTER_SHARE,
    ) -> dict[str, Any]:
        """A cluster document of ``features`` that lean to ``side``, by default the first ``count``. Reads the library.

        Raises :class:`InvalidParameter` for a feature that is not among those found, and as :func:`cluster_document`.
        """
        leaning = {each.index: each for each in (found.toward_a if side == "a" else found.toward_b)}
        chosen = list(leaning)[:count] if features is None else list(dict.fromkeys(features))
        missing = [index for index in chosen if index not in leaning]
        if missing:
            raise InvalidParameter(
                f"Feature {missing[0]} is not among the {len(leaning)} that lean to {side.upper()}.",
                param="features",
                remedy="Choose among those found, or raise the limit.",
            )
        model = self._context.library.models.by_name(found.model)
        return cluster_document(
            found,
            [leaning[index] for index in chosen],
            name,
            labels=self._context.library.labels.of(found.sae_id, chosen),
            model_id=None if model is None else model.repo_id,
            n_features=found.d_sae,
            d_model=found.d_in,
            total=total,
        )


def cluster_document(
    found: Contrast,
    features: Sequence[ContrastFeature],
    name: str,
    *,
    labels: Mapping[int, FeatureLabel],
    model_id: str | None,
    n_features: int,
    d_model: int,
    total: float = CLUSTER_SHARE,
) -> dict[str, Any]:
    """A cluster document of ``features`` whose strengths share ``total`` of the typical norm equally at intensity 1.

    What it says of itself is the length of the vector that is added, which may be shorter than that sum. Raises
    :class:`InvalidParameter` for none or more than a cluster holds.
    """
    if not 1 <= len(features) <= MAX_MEMBERS:
        raise _invalid("features", so_many(len(features), "feature"), f"1 to {MAX_MEMBERS} of them")
    members: list[dict[str, Any]] = []
    for each in features:
        known = labels.get(each.index)
        meta: dict[str, Any] = {"mean_activation": round(each.mean, 4), "label_source": "contrast of texts"}
        if known is not None and known.source:
            meta["label_source"] = known.source[:50]
        if known is not None and known.top_tokens:
            meta["top_tokens"] = list(known.top_tokens[:10])
        member: dict[str, Any] = {
            "feature_idx": each.index,
            "activation_frequency": round(each.density, 5),
            "strength": found.strength(each, total / len(features)),
            "sign": 1,
            "meta": meta,
        }
        if known is not None:
            member["label"] = known.label
            if known.max_activation is not None:
                member["max_activation"] = known.max_activation
        members.append(member)
    budget = round(sum(member["strength"] for member in members), 2)
    length = found.length({member["feature_idx"]: member["strength"] for member in members})
    share = length / found.typical_norm if found.typical_norm else 0.0
    return {
        "kind": "mistudio.cluster-definition",
        "schema_version": "1",
        "name": name,
        "narrative": (
            f"{len(members)} of the features of layer {found.layer} that fire more in one set of texts than in another "
            f"({found.tokens_a} and {so_many(found.tokens_b, 'token')}). "
            f"At intensity 1 the vector they add is {length:.3g} long, "
            f"{share:.2f} of the residual stream's typical norm."
        ),
        "model": {"hf_id": model_id or found.model},
        "sae": {
            "mistudio_sae_id": found.sae_id,
            "layer": found.layer,
            "hook_type": "residual",
            "n_features": n_features,
            "d_model": d_model,
        },
        "members": members,
        "budget": {
            "B": budget,
            "B_dir": budget,
            "formula_id": "equal-share-of-median-norm@1",
            "constants": {
                "sum_over_median_norm": total,
                "length": round(length, 4),
                "length_over_median_norm": round(share, 4),
            },
            "intensity": 1.0,
            "intensity_range": [0.0, 2.0],
        },
        "provenance": {
            "created_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "source_note": "Found by contrasting two sets of texts in miLLM Desktop. Not tested for what it causes.",
        },
    }


class _Contrasting(SaeReading[Contrast]):
    def __init__(
        self,
        context: SaeContext,
        loaded: LoadedModel,
        sets: Sequence[Sequence[tuple[int, ...]]],
        place: ReadPlace,
        limit: int,
        density_cap: float,
    ) -> None:
        super().__init__(context, loaded, [ids for texts in sets for ids in texts], [place], label="text")
        self._place = place
        self._limit = limit
        self._cap = density_cap
        self._split = len(sets[0])
        self._parts: list[Tensor] = []
        self._sums: list[Tensor | None] = [None, None]
        self._tokens = [0, 0]
        self._norms: list[float] = []

    def _take(self, residuals: dict[int, Tensor], chunk: tuple[int, ...], text: int, position: int) -> None:
        self._parts.append(residuals[self._place.layer])
        if position + len(chunk) == len(self._texts[text]):
            self._count(0 if text < self._split else 1)
            self._parts.clear()

    def _count(self, side: int) -> None:
        """Add a whole text to its set: sum of activations and times on, ``[2, d_sae]``."""
        import torch

        with torch.inference_mode():
            residual = torch.cat(self._parts)
            norms: list[float] = torch.linalg.vector_norm(residual, dim=-1, dtype=torch.float32).tolist()
            sinks = sinks_among(norms)
            kept = [place for place in range(len(norms)) if place not in sinks]
            self._tokens[side] += len(kept)
            self._norms.extend(norms[place] for place in kept)
            if not kept:
                return
            for activations, _ in encoded(self._place.sae, residual[kept]):
                added = torch.stack([activations.float().sum(dim=0), (activations > 0).float().sum(dim=0)])
                old = self._sums[side]
                # In double precision on the CPU: Apple's GPUs know no doubles.
                self._sums[side] = added.cpu().double() if old is None else old + added.cpu().double()

    def _result(self, figures: ReadingFigures) -> Contrast:
        import torch

        for side, name in enumerate("AB"):
            if self._sums[side] is None:
                raise InvalidParameter(
                    f"The texts of {name} hold no token to count: the first of each is an attention sink.",
                    param=f"texts_{name.lower()}",
                    remedy="Write longer texts.",
                )
        first, second = map(there, self._sums)
        a, b = first / self._tokens[0], second / self._tokens[1]
        mean, share = a - b
        same = (mean > 0) == (share > 0)
        score = torch.where(same, (mean * share), torch.zeros_like(mean))
        toward = []
        left_out = 0
        known = self._densities(torch.nonzero(score > 0).flatten().tolist())
        for sign, mine, others in ((1, a, b), (-1, b, a)):
            leaning = torch.nonzero((score > 0) & (mean * sign > 0)).flatten()
            order = leaning[score[leaning].sort(descending=True, stable=True).indices].tolist()
            density = {index: known.get(index, float(others[1][index])) for index in order}
            fitting = [index for index in order if density[index] <= self._cap]
            left_out += len(order) - len(fitting)
            chosen = fitting[: self._limit]
            rows = self._rows_of(chosen)
            toward.append(
                tuple(
                    ContrastFeature(
                        index,
                        float(score[index]),
                        float(mine[0][index]),
                        float(mine[1][index]),
                        float(others[0][index]),
                        float(others[1][index]),
                        density[index],
                        float(row.norm()),
                        row,
                    )
                    for index, row in zip(chosen, rows, strict=True)
                )
            )
        return Contrast(
            self._place.sae_id,
            self._place.layer,
            self.loaded.record.name,
            self._tokens[0],
            self._tokens[1],
            median(self._norms),
            toward[0],
            toward[1],
            left_out,
            figures,
            self._place.sae.config.d_sae,
            self._place.sae.config.d_in,
        )

    def _rows_of(self, indices: Sequence[int]) -> list[Tensor]:
        """Copies on the CPU: what was found must not keep an SAE's weights in memory."""
        return list(self._place.sae.decoder_rows(list(indices)).float().cpu().clone()) if indices else []

    def _densities(self, indices: Sequence[int]) -> dict[int, float]:
        labels = self._context.library.labels.of(self._place.sae_id, indices)
        return {index: label.density for index, label in labels.items() if label.density is not None}

    def _release(self) -> None:
        super()._release()
        self._parts.clear()


def _tokenized(texts: Sequence[str], name: str, loaded: LoadedModel) -> list[tuple[int, ...]]:
    if not texts:
        raise InvalidParameter(
            f"There is no text in {name}.", param=f"texts_{name.lower()}", remedy="Write one text to a line."
        )
    if len(texts) > MOST_TEXTS:
        raise _invalid(f"texts_{name.lower()}", so_many(len(texts), "text"), f"at most {MOST_TEXTS}")
    return [token_ids_of(text, loaded, f"text {number} of {name}") for number, text in enumerate(texts, 1)]


def _invalid(name: str, value: object, expected: str) -> InvalidParameter:
    return InvalidParameter(f"Invalid value for '{name}': {value}; expected {expected}.", param=name)
