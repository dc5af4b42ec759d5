"""From an SAE's row back to its files: found where they were, and still the ones that were imported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import MillmError
from engine.library.records import SaeRecord
from engine.saes.config import SaeConfig
from engine.saes.errors import SaeLoadFailed
from engine.wire import wire

if TYPE_CHECKING:
    from engine.saes.formats import Detected

_ESSENCE = (
    "source_format",
    "architecture",
    "d_in",
    "d_sae",
    "k",
    "rescale_acts_by_decoder_norm",
    "apply_b_dec_to_input",
    "normalize_activations",
    "center_input",
    "hook",
    "reshape_activations",
)
"""What decides how an SAE reads and steers. The layer is not among it: a person may have given it by hand."""

_AGAIN = "Put them back, or import the SAE again from where they are now."


def same_sae(first: SaeConfig, second: SaeConfig) -> bool:
    """Whether both describe an SAE that encodes and steers alike, whatever their paths say."""
    return all(getattr(first, name) == getattr(second, name) for name in _ESSENCE)


def find_files(record: SaeRecord) -> tuple[Detected, SaeConfig]:
    """The files of an SAE and its description, with the layer and model its row says.

    Only headers are read. Raises :class:`SaeLoadFailed` when the files are gone or became other ones.
    """
    if not record.local_path:
        raise SaeLoadFailed(
            f"The SAE {record.id!r} has no files on this machine.", remedy="Download or import it again."
        )
    place = Path(record.local_path)
    if not place.exists():
        raise SaeLoadFailed(
            f"The files of the SAE {record.id!r} are not at {place} any more.",
            details={"sae_id": record.id, "path": str(place)},
            remedy=_AGAIN,
        )
    from engine.saes.formats import detect

    try:
        found = detect(place)
        size = found.size_bytes
    except MillmError as error:
        raise SaeLoadFailed(
            f"The files of the SAE {record.id!r} cannot be used any more: {error.message}",
            details={**error.details, "sae_id": record.id},
            remedy=error.remedy,
        ) from error
    except OSError as error:
        raise SaeLoadFailed(
            f"The files of the SAE {record.id!r} cannot be read: {error.strerror or error}.",
            details={"sae_id": record.id, "path": str(place)},
            remedy=_AGAIN,
        ) from error
    _require_unchanged(record, found.config, size)
    config = replace(found.config, layer=record.trained_layer, model_name=record.trained_on or found.config.model_name)
    return found, config


def _require_unchanged(record: SaeRecord, config: SaeConfig, size: int) -> None:
    now = wire(config)
    changed = [name for name in _ESSENCE if name in record.config and record.config[name] != now[name]]
    if record.file_size_bytes is not None and record.file_size_bytes != size:
        changed.append("file_size_bytes")
    if changed:
        raise SaeLoadFailed(
            f"The files of the SAE {record.id!r} are not the ones that were imported: {', '.join(changed)} differ.",
            details={"sae_id": record.id, "path": record.local_path, "changed": changed},
            remedy="Remove the SAE from the library and import it anew.",
        )
