"""What the names of folders and repositories tell about an SAE: layer, width, L0, model. Knows no torch.

Such facts are only taken where the files themselves are silent, and are always said as assumed.
"""

from __future__ import annotations

import re
from pathlib import PurePath

_LAYER = re.compile(r"(?<![a-z])layers?[_.\- ]?(\d{1,6})(?!\d)", re.IGNORECASE)
_SHORT_LAYER = re.compile(r"(?<![A-Za-z0-9])[lL](\d{1,3})(?![A-Za-z0-9_-])")
_WIDTH = re.compile(r"(?<![a-z])width[_\- ]?(\d+(?:\.\d+)?[km]?)(?![a-z0-9])", re.IGNORECASE)
_L0 = re.compile(r"(?<![a-z0-9])(?:average_)?l0[_\- ](\d+(?:\.\d+)?)(?![a-z0-9])", re.IGNORECASE)
_GEMMA_2 = re.compile(
    r"gemma-scope-(2b|9b|27b)(?:-(pt|it))?(?:-(res|mlp|att|transcoders?))?(?![a-z0-9])", re.IGNORECASE
)
_GEMMA_3 = re.compile(r"gemma-scope-2-(270m|1b|4b|12b|27b)(?:-(pt|it))?(?![a-z0-9])", re.IGNORECASE)


def layer_from_path(path: PurePath | str) -> int | None:
    """The layer a path names (``layer_20``, ``layers.20``, ``layer0.sae.pt``, ``…-l19.pth``); the last one wins."""
    for pattern in (_LAYER, _SHORT_LAYER):
        found = pattern.findall(_text(path))
        if found:
            return int(found[-1])
    return None


def width_from_path(path: PurePath | str) -> str | None:
    """The width label a path names (``16k`` of ``width_16k``), lower-case."""
    found = _WIDTH.findall(_text(path))
    return found[-1].lower() if found else None


def l0_from_path(path: PurePath | str) -> float | None:
    """The L0 a path names (71 of ``average_l0_71``)."""
    found = _L0.findall(_text(path))
    return float(found[-1]) if found else None


def gemma_2_from_path(path: PurePath | str) -> tuple[str, str | None] | None:
    """Model and site a Gemma Scope path names: ``("google/gemma-2-2b", "res")``; the site is res, mlp, att or
    transcoder, or None. None when no Gemma Scope repository is named.
    """
    found = _GEMMA_2.search(_text(path))
    if found is None:
        return None
    size, tuning, site = (part.lower() if part else None for part in found.groups())
    model = f"google/gemma-2-{size}" + ("-it" if tuning == "it" else "")
    return model, site.rstrip("s") if site and site.startswith("transcoder") else site


def gemma_3_from_path(path: PurePath | str) -> str | None:
    """The model a Gemma Scope 2 path names: ``google/gemma-3-4b-pt``."""
    found = _GEMMA_3.search(_text(path))
    if found is None:
        return None
    size, tuning = found[1].lower(), (found[2] or "pt").lower()
    # The smallest one is published without the ending.
    return f"google/gemma-3-{size}" if size == "270m" and tuning == "pt" else f"google/gemma-3-{size}-{tuning}"


def _text(path: PurePath | str) -> str:
    return path.as_posix() if isinstance(path, PurePath) else path.replace("\\", "/")
