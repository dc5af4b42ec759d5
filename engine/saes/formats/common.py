"""Steps that several formats share: sizes from the biases, hooks and L0 from paths, refusals, leftover tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any

from engine.saes.config import HookKind
from engine.saes.errors import SaeLoadFailed, SaeNotSteerable
from engine.saes.formats.draft import Source
from engine.saes.formats.weights import WeightsFile, damaged
from engine.saes.hooks import HookPoint
from engine.saes.path_facts import l0_from_path, layer_from_path

TRANSCODER = "a transcoder: it reads one tensor and writes another, so its features are no directions of what it reads"
"""Used by every format that has them."""


def refused(what: str, *, remedy: str = "Choose a sparse autoencoder of the residual stream.") -> SaeNotSteerable:
    """The error for something recognised that cannot be used; ``what`` completes "This is …"."""
    return SaeNotSteerable(f"This is {what}.", details={"kind": what.split(":")[0]}, remedy=remedy)


def vector_length(weights: WeightsFile, key: str) -> int:
    """Length of the vector ``key``. Raises :class:`SaeLoadFailed` when it is absent or no vector."""
    shape = weights.shape(key)
    if len(shape) != 1 or shape[0] < 1:
        raise SaeLoadFailed(
            f"{weights.path.name}: {key} has shape {list(shape)}, where a vector belongs.",
            details={"file": str(weights.path), "tensor": key, "shape": list(shape)},
        )
    return shape[0]


def single_number(weights: WeightsFile, key: str) -> float:
    """The one number in the tensor ``key``. Raises :class:`SaeLoadFailed` when it is absent, none, or several."""
    shape = weights.shape(key)
    if math.prod(shape) != 1:
        raise damaged(weights.path, f"stores {key} with the shape {list(shape)}, where a single number belongs")
    tensor = weights.read(key)
    try:
        return float(tensor.reshape(()))
    except (RuntimeError, TypeError) as error:  # complex numbers, and formats torch cannot convert
        raise damaged(weights.path, f"stores {key} as {tensor.dtype}, which is no plain number") from error


def check_stated(weights: WeightsFile, stated: int | None, actual: int, what: str) -> None:
    """Raise :class:`SaeLoadFailed` when the configuration states another size than the tensors have."""
    if stated is not None and stated != actual:
        raise SaeLoadFailed(
            f"The configuration says {what} is {stated}; the tensors in {weights.path.name} have {actual}.",
            details={"stated": stated, "actual": actual, "file": str(weights.path)},
            remedy="Weights and configuration belong to different SAEs: download both again.",
        )


def near_path(source: Source) -> PurePath:
    """The end of the weight file's path: as much as repositories use to say what an SAE is."""
    return PurePath(*source.weights.path.absolute().parts[-7:])


def hook_fields(source: Source, point: HookPoint | None, assumed: list[str]) -> dict[str, Any]:
    """``layer``, ``hook`` and ``hook_name`` of a configuration, completed from the path; says what it assumed."""
    if point is not None and (point.layer is not None or point.kind is HookKind.RESID_PRE):
        return {"layer": point.layer, "hook": point.kind, "hook_name": point.name}
    layer = layer_from_path(near_path(source))
    if layer is not None:
        assumed.append(f"Layer {layer} was taken from the path.")
    else:
        assumed.append("The files do not say which layer the SAE belongs to.")
    if point is None:
        assumed.append("The files do not say which tensor it reads; the residual stream after the block was assumed.")
        return {"layer": layer, "hook": HookKind.RESID_POST, "hook_name": None}
    return {"layer": layer, "hook": point.kind, "hook_name": point.name}


def l0_fields(source: Source, stated: float | None, assumed: list[str]) -> float | None:
    """The source's L0: as stated, else from the path (said as assumed), else None."""
    if stated is not None:
        return stated
    found = l0_from_path(near_path(source))
    if found is not None:
        assumed.append(f"The expected L0 of {found:g} was taken from the path.")
    return found


def note_leftovers(weights: WeightsFile, used: Iterable[str], assumed: list[str]) -> None:
    """Say which tensors nobody uses."""
    left = sorted(set(weights.tensors) - set(used))
    if left:
        shown = ", ".join(left[:8]) + (f" and {len(left) - 8} more" if len(left) > 8 else "")
        assumed.append(f"Tensors without a known meaning were left out: {shown}.")


def has_sibling(folder: Path, *names: str) -> bool:
    """Whether any of these files lies in ``folder`` or the folder above."""
    return any((place / name).is_file() for place in (folder, folder.parent) for name in names)
