"""The one in-memory SAE, whatever format it came from.

Shapes: ``W_enc`` [d_in, d_sae], ``W_dec`` [d_sae, d_in], ``b_dec`` [d_in]; further tensors by architecture. Decoder
rows are kept as the source stored them, neither normalised nor folded: steering adds strength × row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from types import MappingProxyType

import torch
from torch import Tensor

from engine.saes.architectures import rules_for
from engine.saes.architectures.base import COMMON, FEATURE_SCALE
from engine.saes.architectures.topk import DECODER_NORMS
from engine.saes.config import BYTES_PER_VALUE, NormalizeActivations, SaeConfig
from engine.saes.errors import InvalidFeatureIndex, SaeIncompatible, SaeLoadFailed

LAYER_NORM_EPS = 1e-5


def undo_needs_input(config: SaeConfig) -> bool:
    """Whether decoding needs the original input to get back to its scale."""
    per_token = {NormalizeActivations.CONSTANT_NORM_RESCALE, NormalizeActivations.LAYER_NORM}
    return config.center_input or config.normalize_activations in per_token


def normalize(x: Tensor, config: SaeConfig) -> Tensor:
    """``x`` [..., d_in] as the encoder expects it, in its own dtype.

    Formulas as in SAELens (``normalize_activations``): √d ÷ ‖x‖ per token; or mean and standard deviation with 1e-5
    added to the deviation on the way in only. Statistics are computed in float32 for half-precision inputs. Nothing is
    kept: undoing reads the input again.
    """
    if not undo_needs_input(config):
        return x
    wide = _wide(x)
    if config.center_input:
        wide = wide - wide.mean(dim=-1, keepdim=True)
    if config.normalize_activations is NormalizeActivations.CONSTANT_NORM_RESCALE:
        wide = wide * _norm_coefficient(wide, config.d_in)
    elif config.normalize_activations is NormalizeActivations.LAYER_NORM:
        mean, deviation = _moments(wide)
        wide = (wide - mean) / (deviation + LAYER_NORM_EPS)
    return wide.to(x.dtype)


def denormalize(x_hat: Tensor, x: Tensor, config: SaeConfig) -> Tensor:
    """``x_hat`` [..., d_in] brought back to the scale of the input ``x`` [..., d_in] it was encoded from."""
    wide, source = _wide(x_hat), _wide(x)
    input_mean = source.mean(dim=-1, keepdim=True)
    if config.center_input:
        source = source - input_mean
    if config.normalize_activations is NormalizeActivations.CONSTANT_NORM_RESCALE:
        wide = wide / _norm_coefficient(source, config.d_in)
    elif config.normalize_activations is NormalizeActivations.LAYER_NORM:
        mean, deviation = _moments(source)
        wide = wide * deviation + mean
    if config.center_input:
        wide = wide + input_mean
    return wide.to(x_hat.dtype)


def _norm_coefficient(x: Tensor, d_in: int) -> Tensor:
    # An all-zero token has no direction: it stays zero instead of becoming NaN.
    norm = x.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).eps)
    return torch.full_like(norm, d_in**0.5) / norm


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = x.mean(dim=-1, keepdim=True)
    return mean, (x - mean).std(dim=-1, keepdim=True)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in {torch.float16, torch.bfloat16} else x


DTYPES: Mapping[str, torch.dtype] = {name: getattr(torch, name) for name in BYTES_PER_VALUE}
"""torch's own constants by the names configurations use."""

_CHECK_ROWS_OF = 1 << 22
"""Values looked at together when weights are checked, so that the check needs little memory of its own."""


class Sae:
    """An SAE ready to encode, decode and steer. Never changed after it is made; :meth:`to` gives another.

    Args:
        config: What it is.
        tensors: Its weights by canonical name, all of one floating dtype on one device. Raises
            :class:`SaeLoadFailed` when one is missing, has another shape or holds NaN or infinity.
    """

    def __init__(self, config: SaeConfig, tensors: Mapping[str, Tensor]) -> None:
        self.config = config
        self._rules = rules_for(config.architecture)
        self.tensors: Mapping[str, Tensor] = MappingProxyType(dict(tensors))
        self._check()
        self.W_enc = tensors["W_enc"]
        self.W_dec = tensors["W_dec"]
        self.b_dec = tensors["b_dec"]
        self._norms: Tensor | None = None
        self._weights: Mapping[str, Tensor] = self.tensors
        if config.rescale_acts_by_decoder_norm:
            self._weights = {**tensors, DECODER_NORMS: self.decoder_norms().to(self.dtype)}

    @property
    def dtype(self) -> torch.dtype:
        """Number format the weights are held in; inputs are cast to it."""
        return self.tensors["W_dec"].dtype

    @property
    def device(self) -> torch.device:
        return self.tensors["W_dec"].device

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())

    @property
    def encodes_partially(self) -> bool:
        """Whether :meth:`encode_features` is cheaper than encoding everything."""
        return self._rules.partial

    @torch.no_grad()
    def encode(self, x: Tensor) -> Tensor:
        """Activations [..., d_sae], in the SAE's dtype, of inputs ``x`` [..., d_in] of any floating dtype.

        Raises :class:`SaeIncompatible` when the width is another.
        """
        return self._rules.activate(self._prepare(x) @ self.W_enc, self._weights, self.config)

    @torch.no_grad()
    def encode_features(self, x: Tensor, indices: Sequence[int]) -> Tensor:
        """Activations [..., n] of the n features ``indices``, in their order.

        Top-k chooses among all features, so there everything is encoded first. Raises
        :class:`InvalidFeatureIndex` for an index outside the SAE.
        """
        index = self._index(indices)
        if not self._rules.partial:
            return self.encode(x).index_select(-1, index)
        weights = {name: self.tensors[name].index_select(0, index) for name in self._rules.tensors}
        return self._rules.activate(self._prepare(x) @ self.W_enc.index_select(1, index), weights, self.config)

    @torch.no_grad()
    def top_features(self, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The ``k`` strongest activations of each token, strongest first: values and indices, both [..., k]."""
        values, indices = self.encode(x).topk(min(k, self.config.d_sae), dim=-1)
        return values, indices

    @torch.no_grad()
    def decode(self, f: Tensor, x: Tensor | None = None) -> Tensor:
        """Reconstruction [..., d_in] of activations ``f`` [..., d_sae], at the scale of the model's own activations.

        ``x`` [..., d_in] is the input that was encoded; SAEs that normalise each token need it to undo that, and
        ValueError says so when it is missing.
        """
        if undo_needs_input(self.config) and x is None:
            raise ValueError(
                f"decoding with {self.config.normalize_activations.value} needs the input that was encoded"
            )
        f = f.to(device=self.device, dtype=self.dtype)
        if FEATURE_SCALE in self.tensors:
            f = f * self.tensors[FEATURE_SCALE]
        if self.config.rescale_acts_by_decoder_norm:
            # A dead row of zeros adds nothing, whatever its activation.
            f = f / self._weights[DECODER_NORMS].clamp_min(torch.finfo(self.dtype).tiny)
        x_hat = f @ self.W_dec + self.b_dec
        if x is None or not undo_needs_input(self.config):
            return x_hat
        return denormalize(x_hat, x.to(device=self.device, dtype=self.dtype), self.config)

    def reconstruct(self, x: Tensor) -> Tensor:
        """``decode(encode(x))`` [..., d_in] with all normalisation undone."""
        return self.decode(self.encode(x), x)

    def decoder_row(self, index: int) -> Tensor:
        """Row [d_in] of one feature, as stored. Raises :class:`InvalidFeatureIndex`."""
        return self.decoder_rows([index])[0]

    def decoder_rows(self, indices: Sequence[int]) -> Tensor:
        """Rows [n, d_in] of the features ``indices``, in their order, as stored."""
        return self.W_dec.index_select(0, self._index(indices))

    @torch.no_grad()
    def decoder_norms(self) -> Tensor:
        """Euclidean length of every decoder row: float32 [d_sae], computed once."""
        if self._norms is None:
            self._norms = torch.linalg.vector_norm(self.W_dec, dim=-1, dtype=torch.float32)
        return self._norms

    @torch.no_grad()
    def delta(self, strengths: Mapping[int, float]) -> Tensor:
        """Σ strength × decoder row: float32 [d_in] on the SAE's device. Zero strengths add nothing; no features, zeros.

        Summed in double precision on the CPU in the order of the indices and rounded once, so equal strengths give
        equal bits. Raises :class:`InvalidFeatureIndex` and ValueError for a strength that is not finite.
        """
        self._index(strengths)
        wanted = {index: float(strengths[index]) for index in sorted(strengths) if strengths[index] != 0}
        for index, strength in wanted.items():
            if not math.isfinite(strength):
                raise ValueError(f"the strength of feature {index} is {strength}, not a finite number")
        if not wanted:
            return torch.zeros(self.config.d_in, dtype=torch.float32, device=self.device)
        # In two steps: Apple's GPUs know no doubles.
        rows = self.decoder_rows(list(wanted)).to("cpu").to(torch.float64)
        factors = torch.tensor(list(wanted.values()), dtype=torch.float64)
        return (rows * factors[:, None]).sum(dim=0).to(torch.float32).to(self.device)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Sae:
        """The same SAE on another device or in another number format; itself when nothing changes.

        Raises :class:`SaeLoadFailed` when a value does not fit the format.
        """
        target = self.device if device is None else torch.device(device)
        wanted = self.dtype if dtype is None else dtype
        if wanted == self.dtype and target in (self.device, torch.device(self.device.type)):
            return self
        return Sae(self.config, {name: tensor.to(target, wanted) for name, tensor in self.tensors.items()})

    def with_config(self, config: SaeConfig) -> Sae:
        """The same weights, shared, for another layer or with more said about what was assumed."""
        same = replace(config, layer=self.config.layer, assumed=self.config.assumed)
        if same != self.config:
            raise ValueError("only the layer and what was assumed may change")
        other = copy(self)
        other.config = config
        return other

    def _prepare(self, x: Tensor) -> Tensor:
        if x.shape[-1:] != (self.config.d_in,):
            raise SaeIncompatible(
                f"The SAE reads vectors of width {self.config.d_in}; these have shape {list(x.shape)}.",
                details={"d_in": self.config.d_in, "shape": list(x.shape)},
            )
        x = normalize(x.to(device=self.device, dtype=self.dtype), self.config)
        return x - self.b_dec if self.config.apply_b_dec_to_input else x

    def _index(self, indices: Iterable[int]) -> Tensor:
        found = list(indices)
        for index in found:
            if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < self.config.d_sae:
                raise InvalidFeatureIndex(
                    f"There is no feature {index!r}: this SAE has {self.config.d_sae}, numbered from 0.",
                    details={"index": index, "d_sae": self.config.d_sae},
                    remedy=f"Name features from 0 to {self.config.d_sae - 1}.",
                )
        return torch.tensor(found, dtype=torch.long, device=self.device)

    def _check(self) -> None:
        sizes = {"d_in": self.config.d_in, "d_sae": self.config.d_sae}
        wanted = {**COMMON, **self._rules.tensors}
        missing = [name for name in wanted if name not in self.tensors]
        if missing:
            raise SaeLoadFailed(f"A {self.config.architecture.value} SAE also needs {', '.join(missing)}.")
        unknown = [name for name in self.tensors if name not in wanted and name != FEATURE_SCALE]
        if unknown:
            raise SaeLoadFailed(f"A {self.config.architecture.value} SAE has no {', '.join(unknown)}.")
        formats = {tensor.dtype for tensor in self.tensors.values()}
        if len(formats) != 1 or not formats <= set(DTYPES.values()):
            raise SaeLoadFailed(f"The weights must share one floating format, not {', '.join(map(str, formats))}.")
        for name, tensor in self.tensors.items():
            shape = tuple(sizes[side] for side in wanted.get(name, ("d_sae",)))
            if tuple(tensor.shape) != shape:
                raise SaeLoadFailed(f"{name} has shape {list(tensor.shape)} where {list(shape)} is needed.")
            if not all_finite(tensor):
                raise SaeLoadFailed(f"{name} holds values that are not finite numbers in {tensor.dtype}.")


def all_finite(tensor: Tensor) -> bool:
    """Whether no value is NaN or infinite; looks at a few million values at a time."""
    if tensor.dim() == 0:
        return bool(torch.isfinite(tensor))
    step = max(1, _CHECK_ROWS_OF // max(1, math.prod(tensor.shape[1:])))
    return all(bool(torch.isfinite(part).all()) for part in tensor.split(step))
