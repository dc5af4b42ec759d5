"""Choosing the next token of one lane from a row of logits.

Knows about logits, sampling fields and one lane's own tokens; knows nothing of models, text or other lanes. Order of
application: logit bias, repetition penalty, frequency and presence penalties, constraint mask, held end tokens. The
log-probabilities reported are of the distribution at that point. Then, unless the temperature is 0: temperature, top_k,
top_p, min_p, and one draw from the lane's own generator.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import InvalidParameter, NonFiniteLogits
from engine.sampling import Sampling

_UINT64 = 2**64 - 1
_DEPTHS = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0)
"""How far below the likeliest logit to look, step by step, before the whole row is sorted. In nats."""
_LEAST_TEMPERATURE = 1e-30
"""Anything smaller would be 0 in float32, and 0 / 0 is no logit."""
_LEAST_PENALTY = 1e-30
"""Anything smaller would be 0 in float32, and leave nothing of a logit to divide; this is far beyond any difference."""
_BLOCK = 512
"""Tokens per block when drawing from a long row: block sums first, then one block."""


@dataclass(frozen=True)
class Picked:
    """A chosen token. ``logprob`` and ``top`` are filled when they were asked for; ``top`` is in falling order.

    Log-probabilities are natural logarithms. Candidates that are impossible (masked, held) are never in ``top``.
    """

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


def mixed_seed(seed: int, choice_index: int) -> int:
    """A 64-bit generator seed for choice ``choice_index`` (under 2³²) of a request with ``seed`` (signed, 64 bits).

    With a seed of 0…2³²−1 the pair is packed into 64 bits and put through one step of SplitMix64 (Steele, Lea, Flood,
    2014), a bijection: two such pairs never give the same value. A larger or negative seed is mixed first. Mixing is
    needed, since torch's CPU generator reads only the low 32 bits of a seed.
    """
    if not 0 <= seed < 1 << 32:
        seed = _mixed(seed & _UINT64)
    return _mixed(((choice_index << 32) ^ seed) & _UINT64)


def _mixed(z: int) -> int:
    """One step of SplitMix64, a bijection of 64 bits."""
    z = (z + 0x9E3779B97F4A7C15) & _UINT64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _UINT64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _UINT64
    return z ^ (z >> 31)


@torch.inference_mode()
def greedy_rows(logits: Tensor) -> list[int | None]:
    """The likeliest token of each row of ``logits`` ``[rows, V]``; None for a row that has no finite maximum.

    For lanes whose ``is_plain_greedy`` is true: the same choice as ``pick`` makes, in one pass over the batch.
    """
    return [token if math.isfinite(value) else None for value, token in _likeliest(logits)]


def _likeliest(rows: Tensor) -> list[tuple[float, int]]:
    """The maximum of each row of ``[rows, V]`` and the first place it is at; of a row with a NaN, that."""
    if rows.device.type == "cpu" and rows.dtype is torch.float32:
        # Ten times as fast as torch's own, which looks for both at once, element by element.
        values = rows.numpy()
        places = values.argmax(axis=-1).tolist()
        return [(float(values[row, place]), place) for row, place in enumerate(places)]
    best, ids = rows.max(dim=-1)
    # One transfer, since each waits for the device; an index below 2²⁴ is exact in float32.
    found = torch.stack((best.float(), ids.float())).tolist()
    return [(value, int(place)) for value, place in zip(*found, strict=True)]


class LaneSampler:
    """The sampling state of one lane: its generator and what its penalties count.

    Not thread-safe; used on the engine thread. The generator lives on the CPU whatever the device of the logits: a draw
    is one uniform number, so a seed means the same on every device and no device needs a generator of its own (MPS has
    only a default one that all lanes would share).

    Args:
        sampling: Checked on construction; see :class:`Sampling`.
        vocab_size: Width V of the logits rows, in tokens.
        eos_ids: Tokens that end the text; held until ``min_tokens`` were generated, unless ``ignore_eos``.
        prompt_ids: The prompt; only the repetition penalty looks at it.
        choice_index: Which choice of the request this lane writes; enters the seed.
        device: Where the logits will be.

    Raises:
        InvalidParameter: ``logit_bias`` names a token outside the vocabulary.
    """

    @torch.inference_mode()
    def __init__(
        self,
        sampling: Sampling,
        *,
        vocab_size: int,
        eos_ids: Collection[int],
        prompt_ids: Iterable[int],
        choice_index: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self._sampling = sampling
        self._vocab_size = vocab_size
        self._device = torch.device(device)
        self._generated = 0
        self._eos = torch.tensor(sorted(i for i in eos_ids if 0 <= i < vocab_size), dtype=torch.long, device=device)
        self._generator = torch.Generator(device="cpu")
        self._generator.manual_seed(
            secrets.randbits(64) if sampling.seed is None else mixed_seed(sampling.seed, choice_index)
        )
        # MPS has no float64; there the cumulative sums are float32.
        self._sum_dtype = torch.float32 if self._device.type == "mps" else torch.float64

        self._bias_ids = torch.tensor(list(sampling.logit_bias), dtype=torch.long, device=device)
        self._bias = torch.tensor(list(sampling.logit_bias.values()), dtype=torch.float32, device=device)
        outside = [token for token in sampling.logit_bias if token >= vocab_size]
        if outside:
            raise InvalidParameter(
                f"'logit_bias' names token {outside[0]}, but the model's token ids end at {vocab_size - 1}.",
                param="logit_bias",
            )
        self._seen = _TokenCounts(device) if sampling.repetition_penalty != 1.0 else None
        if self._seen is not None:
            self._seen.add_all({i for i in prompt_ids if 0 <= i < vocab_size})
        additive = sampling.frequency_penalty != 0.0 or sampling.presence_penalty != 0.0
        self._written = _TokenCounts(device) if additive else None

    @property
    def generated(self) -> int:
        """Tokens recorded so far, by ``pick`` or ``record``."""
        return self._generated

    @property
    def is_plain_greedy(self) -> bool:
        """Whether the next token is simply the row's likeliest, so that ``greedy_rows`` may choose it.

        Holds only without a constraint mask and without logprobs, which belong to the call. May turn true once
        ``min_tokens`` are written, so ``record`` the tokens chosen elsewhere.
        """
        return (
            self._sampling.temperature == 0.0
            and not self._sampling.logit_bias
            and self._seen is None
            and self._written is None
            and not self._holds_eos
        )

    @property
    def _holds_eos(self) -> bool:
        return self._generated < self._sampling.min_tokens and not self._sampling.ignore_eos and self._eos.numel() > 0

    @torch.inference_mode()
    def record(self, token_id: int) -> None:
        """Count a token of this lane that was chosen elsewhere. ``pick`` counts its own."""
        self._generated += 1
        if not 0 <= token_id < self._vocab_size:
            return
        if self._seen is not None:
            self._seen.add(token_id)
        if self._written is not None:
            self._written.add(token_id)

    @torch.inference_mode()
    def pick(self, logits: Tensor, logprobs: int | None = None, mask: Tensor | None = None) -> Picked:
        """Choose the next token and count it.

        Args:
            logits: One row ``[V]``, any float dtype; read, never written.
            logprobs: None: none are computed. k ≥ 0: the chosen token's, and the k likeliest (fewer where fewer are
                possible).
            mask: ``[V]`` bool, true where the constraint allows the token.

        Raises:
            NonFiniteLogits: NaN or infinity in the row, or no token left that is possible.
        """
        row, best, best_id = self._adjusted(logits, mask)
        if self._sampling.temperature == 0.0:
            token_id = best_id
        else:
            token_id = self._drawn(row, best)
        picked = _with_logprobs(row, token_id, logprobs) if logprobs is not None else Picked(token_id)
        self.record(token_id)
        return picked

    def _adjusted(self, logits: Tensor, mask: Tensor | None) -> tuple[Tensor, float, int]:
        """The float32 row after bias, penalties, mask and held end tokens, its maximum and where that is."""
        row = logits.float()
        in_place = bool(self._sampling.logit_bias) or self._seen is not None or self._written is not None
        in_place = in_place or self._holds_eos
        if (in_place or mask is not None) and not math.isfinite(float(logits.max())):
            raise _non_finite(logits)  # before a mask can hide it
        if in_place and row is logits:
            row = logits.clone()
        if self._sampling.logit_bias:
            row[self._bias_ids] += self._bias
        if self._seen is not None:
            ids = self._seen.ids
            values, penalty = row[ids], max(self._sampling.repetition_penalty, _LEAST_PENALTY)
            penalised = torch.where(values < 0, values * penalty, values / penalty)
            row[ids] = penalised.masked_fill(penalised == math.inf, torch.finfo(torch.float32).max)
        if self._written is not None:
            ids, counts = self._written.ids, self._written.counts
            row[ids] -= counts * self._sampling.frequency_penalty + self._sampling.presence_penalty
        if mask is not None:
            row = row.masked_fill(~mask, -math.inf)
        if self._holds_eos:
            held = row[self._eos]
            row[self._eos] = -math.inf
            if mask is not None and not bool(row.max() > -math.inf):
                # A constraint whose document is complete allows nothing but the end: the constraint wins.
                row[self._eos] = held
        ((best, best_id),) = _likeliest(row[None])
        if not math.isfinite(best):
            raise _non_finite(row)
        return row, best, best_id

    def _drawn(self, row: Tensor, best: float) -> int:
        """Temperature, top_k, top_p, min_p, one draw. ``best`` is the row's maximum."""
        # Shifted before the division, so that the smallest temperature cannot overflow: the likeliest token is at 0.
        scaled = (row - best) / max(self._sampling.temperature, _LEAST_TEMPERATURE)
        candidates: Tensor | None = None
        if 0 < self._sampling.top_k < self._vocab_size:
            candidates = _top_k(scaled, self._sampling.top_k)
        if self._sampling.top_p < 1.0:
            candidates = _top_p(scaled, candidates, self._sampling.top_p, self._sum_dtype)
        if self._sampling.min_p > 0.0:
            # p ≥ min_p · p_max is the same as a distance of at most −ln(min_p); truncation does not change ratios.
            near = scaled if candidates is None else scaled[candidates]
            kept = (near >= math.log(self._sampling.min_p)).nonzero().flatten()
            candidates = kept if candidates is None else candidates[kept]
        weights = (scaled if candidates is None else scaled[candidates]).exp()
        place = _place(weights, self._uniform(), self._sum_dtype)
        return place if candidates is None else int(candidates[place])

    def _uniform(self) -> float:
        """The next number of the lane's generator, 0 ≤ u < 1."""
        return float(torch.rand((), generator=self._generator, dtype=torch.float64))


class _TokenCounts:
    """Distinct tokens and how often each came, as tensors that grow in place: adding one token writes one element."""

    def __init__(self, device: torch.device | str) -> None:
        self._places: dict[int, int] = {}
        self._ids = torch.zeros(64, dtype=torch.long, device=device)
        self._counts = torch.zeros(64, dtype=torch.float32, device=device)

    @property
    def ids(self) -> Tensor:
        """``[n]`` distinct token ids."""
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> Tensor:
        """``[n]`` float32 counts, in the order of ``ids``."""
        return self._counts[: len(self._places)]

    def add(self, token_id: int) -> None:
        """Count one token."""
        place = self._places.get(token_id)
        if place is None:
            place = self._places[token_id] = len(self._places)
            self._reserve(place + 1)
            self._ids[place] = token_id
        self._counts[place] += 1

    def add_all(self, token_ids: Collection[int]) -> None:
        """Start from distinct tokens, each counted once."""
        self._places = {token: place for place, token in enumerate(token_ids)}
        self._reserve(len(token_ids))
        self._ids[: len(token_ids)] = torch.tensor(list(token_ids), dtype=torch.long, device=self._ids.device)
        self._counts[: len(token_ids)] = 1

    def _reserve(self, size: int) -> None:
        if size > self._ids.numel():
            room = max(size, 2 * self._ids.numel()) - self._ids.numel()
            self._ids = torch.cat([self._ids, self._ids.new_zeros(room)])
            self._counts = torch.cat([self._counts, self._counts.new_zeros(room)])


def _non_finite(row: Tensor) -> NonFiniteLogits:
    if bool(row.isnan().any()):
        what = "NaN logits"
    elif bool(row.isposinf().any()):
        what = "infinite logits"
    else:
        what = "a row of logits in which no token is possible"
    return NonFiniteLogits(
        f"The model produced {what}, so no next token can be chosen.",
        remedy="Lower the steering strength, loosen logit_bias, or load the model with DTYPE=float32.",
    )


def _with_logprobs(row: Tensor, token_id: int, k: int) -> Picked:
    logprobs = torch.log_softmax(row, dim=0)
    values, ids = logprobs.topk(min(k, row.numel()))
    top = tuple((i, v) for i, v in zip(ids.tolist(), values.tolist(), strict=True) if v > -math.inf)
    return Picked(token_id, float(logprobs[token_id]), top)


def _top_k(scaled: Tensor, k: int) -> Tensor:
    """Indices of the k likeliest; ties with the k-th are all kept, as transformers' ``TopKLogitsWarper`` does."""
    threshold = scaled.topk(k).values[-1]
    return ((scaled >= threshold) & (scaled > -math.inf)).nonzero().flatten()


def _top_p(scaled: Tensor, candidates: Tensor | None, top_p: float, sum_dtype: torch.dtype) -> Tensor:
    """Indices of the nucleus in falling order: each token before which less than ``top_p`` has been gathered.

    The first is always kept. ``scaled`` has its maximum at 0. A full sort of a large vocabulary costs more than all the
    rest, so only tokens within a certain depth of the best are sorted, deeper where they do not hold enough. All tokens
    of a depth come before all others in the sorted row, so the result is that of the full sort.
    """
    pool = scaled if candidates is None else scaled[candidates]
    weights = pool.exp()
    needed = top_p * float(weights.sum(dtype=sum_dtype))
    # Sums in another order differ in their last digits: a depth must hold a little more than is needed.
    enough = needed * (1.0 + 1e4 * torch.finfo(sum_dtype).eps)
    for depth in _DEPTHS:
        inside = (pool >= -depth).nonzero().flatten()
        if float(weights[inside].sum(dtype=sum_dtype)) >= enough:
            break
    else:
        inside = (pool > -math.inf).nonzero().flatten()
    order = pool[inside].sort(descending=True, stable=True).indices
    gathered = weights[inside[order]].to(sum_dtype).cumsum(0)
    kept = torch.ones_like(gathered, dtype=torch.bool)
    kept[1:] = gathered[:-1] < needed
    places = inside[order[kept]]
    return places if candidates is None else candidates[places]


def _place(weights: Tensor, uniform: float, sum_dtype: torch.dtype) -> int:
    """The index at which the cumulative sum of ``weights`` ``[n]`` passes ``uniform`` (0 ≤ u < 1) of their total."""
    whole = weights.numel() - weights.numel() % _BLOCK
    if whole < 8 * _BLOCK:
        return _first_over(weights.to(sum_dtype), uniform)[0]
    blocks = weights[:whole].view(-1, _BLOCK).sum(dim=1, dtype=sum_dtype)
    blocks = torch.cat([blocks, weights[whole:].sum(dtype=sum_dtype).reshape(1)])
    block, inside = _first_over(blocks, uniform)
    start = block * _BLOCK
    return start + _first_over(weights[start : start + _BLOCK].to(sum_dtype), inside)[0]


def _first_over(weights: Tensor, uniform: float) -> tuple[int, float]:
    """The first place whose cumulative weight is over ``uniform`` of the total; how far into it that falls (0…1)."""
    gathered = weights.cumsum(0)
    target = gathered[-1] * uniform
    # Where rounding brings the target up to the total, the last token with any weight is meant, not one behind it.
    last = torch.searchsorted(gathered, gathered[-1:], right=False)
    place = int(torch.minimum(torch.searchsorted(gathered, target.reshape(1), right=True), last))
    weight = float(weights[place])
    into = (float(target) - (float(gathered[place]) - weight)) / weight if weight > 0 else 0.0
    return place, min(max(into, 0.0), 1.0)
