"""What a format makes of a source: a configuration, and where each canonical tensor comes from, before it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from engine.saes.config import SaeConfig, SourceFormat
from engine.saes.errors import SaeFormatUnknown
from engine.saes.formats.configs import Config, read_config
from engine.saes.formats.weights import WeightsFile

CONFIG_NAMES = ("cfg.json", "config.json", "sae_cfg.json", "sae_config.json")
"""Names a configuration may have, in the order they are tried."""

VectorSource = Callable[[WeightsFile], Tensor]
"""Makes one canonical vector from the weight file, in whatever float format it is stored."""


@dataclass(frozen=True)
class Source:
    """The folder of one SAE, the weight file looked at, and the configurations beside it (read on first use)."""

    folder: Path
    weights: WeightsFile

    @cached_property
    def config(self) -> Config | None:
        """The first of :data:`CONFIG_NAMES` in the folder, or None."""
        return next((found for name in CONFIG_NAMES if (found := self.json(name)) is not None), None)

    def json(self, name: str) -> Config | None:
        """The configuration ``name`` in the folder (``../config.json`` looks one up), or None when there is none."""
        path = self.folder / name
        return read_config(path) if path.is_file() else None

    @property
    def config_files(self) -> tuple[Path, ...]:
        """The configuration files in the folder."""
        names = (*CONFIG_NAMES, "hyperparams.json", "activation_scaler.json")
        return tuple(path for name in names if (path := self.folder / name).is_file())

    def require_config(self) -> Config:
        """The configuration. Raises :class:`SaeFormatUnknown` when there is none: weights alone do not say enough."""
        if self.config is None:
            raise SaeFormatUnknown(
                f"{self.weights.path.name} has the tensors of an SAE, but no configuration lies beside it, "
                "and the tensors alone do not say how it encodes.",
                details={"file": str(self.weights.path), "tensors": sorted(self.weights.tensors)[:50]},
                remedy=f"Put the SAE's configuration ({CONFIG_NAMES[0]} or {CONFIG_NAMES[1]}) into the same folder.",
            )
        return self.config


@dataclass(frozen=True)
class FormatMatch:
    """A format recognises a source. ``score`` is from 1 (the tensors could be this) to 100 (nothing else is)."""

    score: int
    reason: str


@dataclass(frozen=True)
class StoredMatrix:
    """A matrix in the file. ``transposed`` brings it to the canonical orientation; ``undecided`` where the shape is
    square, so that only the values can tell whether the format's layout was kept.
    """

    key: str
    transposed: bool
    undecided: bool = False


@dataclass(frozen=True)
class SaeDraft:
    """An SAE as described, before its values are read.

    Args:
        config: What is known from headers and configurations.
        encoder, decoder: The two matrices.
        vectors: The other canonical tensors.
        encoder_scale: Factor folded into ``W_enc`` (a training-time scaling of the input).
        finish: Called with the loaded tensors (canonical names) and the configuration; gives both back, corrected by
            what only the values tell.
    """

    config: SaeConfig
    encoder: StoredMatrix
    decoder: StoredMatrix
    vectors: Mapping[str, VectorSource] = field(default_factory=dict)
    encoder_scale: float = 1.0
    finish: Callable[[dict[str, Tensor], SaeConfig], tuple[dict[str, Tensor], SaeConfig]] | None = None


class Format(Protocol):
    """One source format: a module of this package with these three names."""

    @property
    def FORMAT(self) -> SourceFormat:
        """Which format."""
        ...

    @property
    def LABEL(self) -> str:
        """Its name for people."""
        ...

    def sniff(self, source: Source) -> FormatMatch | None:
        """Whether the tensors and the configuration are this format's."""
        ...

    def describe(self, source: Source) -> SaeDraft:
        """The SAE as described. Raises the errors of :mod:`engine.saes.errors`."""
        ...


def stored(key: str) -> VectorSource:
    """The tensor ``key`` as it is."""
    return lambda weights: weights.floats(key)


def scaled(key: str, factor: float) -> VectorSource:
    """The tensor ``key`` times ``factor``."""
    return lambda weights: weights.floats(key).to(torch.float32) * factor


def exponential(key: str) -> VectorSource:
    """The exponential of the tensor ``key``."""
    return lambda weights: weights.floats(key).to(torch.float32).exp()


def filled(value: float, length: int) -> VectorSource:
    """``length`` times the same value."""
    # By way of a double: of a number beyond its range torch makes no float32; an infinity is refused in words later.
    return lambda _weights: torch.tensor(value, dtype=torch.float64).to(torch.float32).repeat(length)
