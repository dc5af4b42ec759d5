"""The activations one request asks back: where they are read, how many may be asked, and the reading itself.

A capture belongs to one request and to nothing else: the live monitor does not see it, and it does not see the live
monitor. Positions count from 0 over prompt then answer. Torch is imported on the first read only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.counting import so_many
from engine.errors import SaeNotAttached, shortened
from engine.monitor.activation_spec import (
    FIELD,
    ActivationSpec,
    CaptureLimits,
    PositionChoice,
    PositionRange,
    ReadPoint,
)
from engine.monitor.errors import SaeActivationsRefused, listed, pairs
from engine.monitor.rows import NO_OBSERVERS, Observers, RowInfo
from engine.saes.attachment import Attachment

if TYPE_CHECKING:
    from torch import Tensor

_DEFAULT_LIMITS = CaptureLimits()


@dataclass(frozen=True, eq=False)
class CapturePlan:
    """A wish resolved for one request: which SAE, which positions, how many features.

    Attributes:
        start, stop: Positions wanted, half-open; ``stop`` None has no end. Not used where only the last one is.
        last_only: Only the last position that is read is wanted.
        top_k: Features given back per position: the wish's, or all candidates where there are fewer.
        read_point: What is reported; ``unsteered`` for scoring.
        first_position_steered: Whether steering reaches position 0 (``STEER_FIRST_POSITION``).
    """

    attachment: Attachment
    features: tuple[int, ...] | None
    start: int
    stop: int | None
    last_only: bool
    top_k: int
    read_point: ReadPoint
    prompt_tokens: int
    encode_chunk: int
    first_position_steered: bool


def resolve(
    spec: ActivationSpec,
    attachments: Sequence[Attachment],
    prompt_tokens: int,
    max_tokens: int,
    *,
    limits: CaptureLimits = _DEFAULT_LIMITS,
    scoring: bool = False,
    first_position_steered: bool = False,
) -> CapturePlan:
    """The plan for a prompt of ``prompt_tokens`` and an answer of at most ``max_tokens``; decided before anything runs.

    The most that could be read is what counts against the caps: an answer's positions in full, though its last token
    is never fed back. ``scoring`` reads the prompt alone, without steering.

    Raises :class:`SaeNotAttached`, and :class:`SaeActivationsRefused` when no one SAE is meant, a feature is outside
    it, or the caps are passed.
    """
    attachment = _target(spec, attachments)
    _check_features(spec, attachment)
    if spec.top_k > limits.max_top_k:
        raise SaeActivationsRefused(
            f"{spec.top_k} features per position are asked for; at most {limits.max_top_k} are given back.",
            param=f"{FIELD}.top_k",
            details={"top_k": spec.top_k, "max_top_k": limits.max_top_k},
            remedy=f"Ask for {limits.max_top_k} or fewer, or raise SAE_ACTIVATIONS_MAX_TOP_K.",
        )
    answer_tokens = 0 if scoring else max_tokens
    start, stop = _bounds(spec.positions, prompt_tokens)
    count = _most_positions(spec.positions, prompt_tokens, answer_tokens)
    if count * spec.top_k > limits.max_entries:
        raise SaeActivationsRefused(
            f"Up to {so_many(count, 'position')} with {so_many(spec.top_k, 'feature')} each are asked for, "
            f"{count * spec.top_k} in all; at most {limits.max_entries} are given back.",
            param=f"{FIELD}.positions",
            details={"positions": count, "top_k": spec.top_k, "max_entries": limits.max_entries},
            remedy="Ask for fewer positions or features, or set a smaller max_tokens.",
        )
    candidates = attachment.sae.config.d_sae if spec.features is None else len(spec.features)
    return CapturePlan(
        attachment=attachment,
        features=spec.features,
        start=start,
        stop=stop,
        last_only=spec.positions is PositionChoice.LAST,
        top_k=min(spec.top_k, candidates),
        read_point=ReadPoint.UNSTEERED if scoring else spec.read_point,
        prompt_tokens=prompt_tokens,
        encode_chunk=limits.encode_chunk,
        first_position_steered=first_position_steered,
    )


class Capture:
    """Reads one request's activations along its passes. Engine thread only.

    Args:
        plan: What to read.
        owner: The request's id. Rows of any other are refused, and an observer is good for the one pass it was made
            for: one that is still held when its pass is over, or when the capture has ended, writes nothing anywhere.
    """

    def __init__(self, plan: CapturePlan, owner: str) -> None:
        self._plan = plan
        self._owner = owner
        self._reader: _PassReader | None = None
        self._ended = False
        self._waiting: list[Tensor] = []
        self._places: list[tuple[int, int]] = []
        self._found: list[list[tuple[int, float]]] = []
        self._result: dict[str, Any] | None = None

    def observers(self, rows: Sequence[RowInfo]) -> Observers:
        """Who reads in the coming pass; empty when it holds no wanted position.

        ``rows`` must be the one row of this capture's owner: ValueError otherwise, since the reading would be another
        request's.
        """
        self._reader = None
        if len(rows) != 1 or rows[0].request_id != self._owner:
            raise ValueError(f"the capture of {self._owner} was given rows of {[row.request_id for row in rows]}")
        row, plan = rows[0], self._plan
        if self._ended:
            return NO_OBSERVERS
        if plan.last_only:
            if row.end_position < plan.prompt_tokens:
                return NO_OBSERVERS
            first, end = row.end_position - 1, row.end_position
        else:
            first = max(plan.start, row.first_position)
            end = row.end_position if plan.stop is None else min(plan.stop, row.end_position)
        if end <= first:
            return NO_OBSERVERS
        self._reader = _PassReader(self, row, first - row.first_position, end - row.first_position)
        return {plan.attachment.layer: (self._reader,)}

    def result(self) -> dict[str, Any]:
        """What was read, in the shape of the wire (``millm.sae_activations``); ends the capture.

        Positions that were asked for and never fed to the model are not listed.
        """
        if self._result is None:
            self._encode_waiting(all_of_them=True)
            self._result = self._as_wire()
            self.close()
        return self._result

    def close(self) -> None:
        """End the capture and let go of what was read and not yet given out; nothing is written from here on."""
        self._ended = True
        self._reader = None
        self._waiting.clear()
        self._places.clear()
        self._found.clear()

    def take(self, reader: _PassReader, before: Tensor, after: Tensor) -> None:
        """Keep what ``reader`` was made for, once, unless its pass is over."""
        if reader is not self._reader:
            return
        self._reader = None
        residual = after if self._plan.read_point is ReadPoint.POST_STEERING else before
        width = len(reader.row.token_ids)
        if tuple(residual.shape[:2]) != (1, width):
            raise ValueError(f"a pass of one row of {width} tokens shows a residual of {tuple(residual.shape)}")
        # A copy: the model may go on to change its tensor in place, and a slice would keep all of it alive.
        kept = residual[0, reader.first : reader.end].clone()
        base = reader.row.first_position
        places = [(base + i, reader.row.token_ids[i]) for i in range(reader.first, reader.end)]
        if self._plan.last_only:
            self._waiting, self._places = [kept], places
            return
        self._waiting.append(kept)
        self._places.extend(places)
        self._encode_waiting(all_of_them=False)

    def _encode_waiting(self, *, all_of_them: bool) -> None:
        """Encode the kept vectors in chunks: one wide product costs far less than a product for each token."""
        chunk = self._plan.encode_chunk
        held = sum(part.shape[0] for part in self._waiting)
        if not held or (held < chunk and not all_of_them):
            return
        import torch

        vectors = torch.cat(self._waiting)
        while vectors.shape[0] >= chunk or (all_of_them and vectors.shape[0]):
            self._found.extend(self._top_features(vectors[:chunk]))
            vectors = vectors[chunk:]
        self._waiting = [vectors.clone()] if vectors.shape[0] else []

    def _top_features(self, vectors: Tensor) -> list[list[tuple[int, float]]]:
        """The strongest features of each of ``vectors`` [n, d_model]; equal ones in the order of their indices."""
        import torch

        plan, sae = self._plan, self._plan.attachment.sae
        activations = sae.encode(vectors) if plan.features is None else sae.encode_features(vectors, plan.features)
        # A half-precision encoder can overflow on the attention sink, and JSON has no word for infinity.
        values, places = torch.nan_to_num(activations, nan=0.0).topk(plan.top_k, dim=-1)
        # One transfer for both; indices below 2²⁴ are exact in float32.
        packed = torch.cat([places.to(torch.float32), values.to(torch.float32)], dim=-1).tolist()
        found = []
        for line in packed:
            indices = (int(place) for place in line[: plan.top_k])
            named = indices if plan.features is None else (plan.features[place] for place in indices)
            best = zip(named, line[plan.top_k :], strict=True)
            found.append(sorted(best, key=lambda pair: (-pair[1], pair[0])))
        return found

    def _as_wire(self) -> dict[str, Any]:
        plan = self._plan
        positions: list[dict[str, Any]] = []
        for (position, token_id), best in zip(self._places, self._found, strict=True):
            entry: dict[str, Any] = {
                "position": position,
                "token_id": token_id,
                "features": [{"index": index, "value": value} for index, value in best],
            }
            if position == 0 and self._first_is_exempt:
                entry["steered"] = False
            positions.append(entry)
        return {
            "sae_id": plan.attachment.sae_id,
            "layer": plan.attachment.layer,
            "read_point": plan.read_point.value,
            "positions": positions,
            "note": self._note(exempt=self._first_is_exempt and any(place == 0 for place, _ in self._places)),
        }

    @property
    def _first_is_exempt(self) -> bool:
        return self._plan.read_point is not ReadPoint.UNSTEERED and not self._plan.first_position_steered

    def _note(self, *, exempt: bool) -> str:
        plan = self._plan
        sentences = [_NOTES[plan.read_point].format(layer=plan.attachment.layer)]
        if exempt:
            sentences.append("Position 0 is never steered.")
        if plan.stop is None and not plan.last_only and plan.read_point is not ReadPoint.UNSTEERED:
            sentences.append("The last token of the answer is never fed to the model and has no activations.")
        return " ".join(sentences)


class _PassReader:
    """The observer of one pass: it knows its row and which of the row's tokens are wanted."""

    def __init__(self, capture: Capture, row: RowInfo, first: int, end: int) -> None:
        self._capture = capture
        self.row = row
        self.first = first
        self.end = end

    def observe(self, layer: int, before: Tensor, after: Tensor) -> None:
        """Hand the layer's output to the capture, which decides whether it still wants it."""
        self._capture.take(self, before, after)


_NOTES = {
    ReadPoint.POST_STEERING: (
        "Read after layer {layer} with that layer's own steering added: what the model computed for this request, not "
        "what it would have computed unsteered."
    ),
    ReadPoint.PRE_STEERING: (
        "Read after layer {layer} before that layer's own steering was added. Steering of earlier layers, and text "
        "written under steering, is still in it."
    ),
    ReadPoint.UNSTEERED: "Read after layer {layer} in a scoring pass, which is never steered.",
}


def _target(spec: ActivationSpec, attachments: Sequence[Attachment]) -> Attachment:
    details = {"attached": pairs(attachments)}
    fitting = [each for each in attachments if spec.sae_id in (None, each.sae_id)]
    if not fitting:
        named = f"The SAE {shortened(spec.sae_id)} is not attached" if spec.sae_id is not None else "No SAE is attached"
        raise SaeNotAttached(
            f"{named}, so '{FIELD}' has nothing to read. Attached: {listed(attachments)}.",
            param=f"{FIELD}.sae_id" if spec.sae_id is not None else FIELD,
            details=details,
            remedy="Attach it, or name one that is attached." if attachments else "Attach an SAE first.",
        )
    if len(fitting) == 1:
        return fitting[0]
    if spec.sae_id is None:
        message = f"Several SAEs are attached ({listed(fitting)}) and '{FIELD}' names none."
        remedy = f"Name one with '{FIELD}.sae_id'."
    else:
        message = f"The SAE '{spec.sae_id}' is attached at several layers ({listed(fitting)}): no one place is named."
        remedy = "Detach it from all layers but one."
    raise SaeActivationsRefused(message, param=f"{FIELD}.sae_id", details=details, remedy=remedy)


def _check_features(spec: ActivationSpec, attachment: Attachment) -> None:
    d_sae = attachment.sae.config.d_sae
    outside = [index for index in spec.features or () if index >= d_sae]
    if outside:
        raise SaeActivationsRefused(
            f"The SAE '{attachment.sae_id}' has features 0 to {d_sae - 1}; "
            f"{', '.join(map(str, outside[:20]))} {'is' if len(outside) == 1 else 'are'} asked for.",
            param=f"{FIELD}.features",
            details={"feature_idx": outside[0], "d_sae": d_sae},
            remedy="Name features of that SAE.",
        )


def _bounds(positions: PositionChoice | PositionRange, prompt_tokens: int) -> tuple[int, int | None]:
    """The positions wanted, half-open; None where they have no end."""
    if isinstance(positions, PositionRange):
        return positions.start, positions.end
    if positions is PositionChoice.PROMPT:
        return 0, prompt_tokens
    return (prompt_tokens, None) if positions is PositionChoice.COMPLETION else (0, None)


def _most_positions(positions: PositionChoice | PositionRange, prompt_tokens: int, answer_tokens: int) -> int:
    """The most positions that could be given back."""
    total = prompt_tokens + answer_tokens
    if isinstance(positions, PositionRange):
        return max(0, min(positions.end, total) - positions.start)
    return {
        PositionChoice.LAST: 1,
        PositionChoice.PROMPT: prompt_tokens,
        PositionChoice.COMPLETION: answer_tokens,
        PositionChoice.ALL: total,
    }[positions]
