"""What can be told of a checkpoint before anything of it is loaded: by names, shapes and its config alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.counting import so_many
from engine.errors import CheckpointInvalid
from engine.models.backends.load_progress import reporting_bars

log = logging.getLogger(__name__)


def refuse_gaps(folder: Path, found: Mapping[str, Any]) -> None:
    """Raise when tensors the model needs were not in the files: the library would fill them at random and only warn."""
    gaps = sorted({*found.get("missing_keys", ()), *(str(item[0]) for item in found.get("mismatched_keys", ()))})
    if not gaps:
        return
    listed = ", ".join(gaps[:3]) + (f" and {len(gaps) - 3} more" if len(gaps) > 3 else "")
    raise CheckpointInvalid(
        f"The weights in {folder} lack {so_many(len(gaps), 'tensor')} in the shape the model needs: {listed}.",
        details={"problems": gaps[:20]},
        remedy="Download the model's weights again; all files of one model must be together.",
    )


def refuse_misfits(folder: Path, *, trust_remote_code: bool = False) -> None:
    """Raise :class:`CheckpointInvalid` where a load would find tensors missing or in other shapes, or no model at all.

    The library's own load, on the meta device, which has shapes and no values: it knows how stored names are mapped to
    the model's. What else goes wrong is left to the load itself, which says it.
    """
    try:
        with reporting_bars(lambda _share, _stage: None):
            _, found = AutoModelForCausalLM.from_pretrained(
                folder,
                device_map={"": "meta"},
                trust_remote_code=trust_remote_code,
                local_files_only=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception:
        log.info("the load of %s could not be rehearsed", folder, exc_info=True)
        if not trust_remote_code:
            _refuse_impossible(folder)
        return
    refuse_gaps(folder, found)


def _refuse_impossible(folder: Path) -> None:
    """Raise :class:`CheckpointInvalid` where no model can be built from what config.json says, whatever the weights."""
    try:
        config = AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            AutoModelForCausalLM.from_config(config)
    except ImportError:
        return
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise CheckpointInvalid(
            f"No model can be built from the config.json of {folder}: {said}",
            param="model",
            details={"path": str(folder), "problems": [said]},
            remedy="Download the model's config.json again.",
        ) from error


def checkpoint_dtype(folder: Path) -> torch.dtype:
    """The number format a checkpoint's config declares; float32 where it says nothing, as transformers assumes."""
    try:
        config = AutoConfig.from_pretrained(folder)
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise CheckpointInvalid(
            f"{folder} has a config.json that transformers cannot read: {said}",
            details={"problems": [said]},
            remedy="Download the model's config.json again.",
        ) from error
    declared = getattr(config.get_text_config(decoder=True), "dtype", None) or getattr(config, "dtype", None)
    if isinstance(declared, str):
        declared = getattr(torch, declared.removeprefix("torch."), None)
    return declared if isinstance(declared, torch.dtype) else torch.float32
