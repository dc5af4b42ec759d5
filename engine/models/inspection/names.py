"""Display names of models: what a model is called by default, which names are allowed, and which row a name means.

Pure functions over :class:`engine.library.records.ModelRecord`; the rows themselves belong to the library.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import PurePath

from engine.errors import AmbiguousModelName, InvalidParameter, ModelNotFound, ModelNotGenerative, shortened
from engine.library.records import ModelRecord

MAX_CUSTOM_NAME = 100
"""Characters of a name a person chooses."""

NAMES_IN_MESSAGE = 5
"""How many available names an error lists."""

_UNSHOWABLE = {"Cc", "Cs", "Zl", "Zp"}
"""Unicode categories no name may hold: control characters, lone surrogates, line and paragraph ends."""

_HUB_FOLDER = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)")

TEXT_GENERATION = "text-generation"

NON_GENERATIVE_TAGS = frozenset(
    {
        "sentence-similarity",
        "feature-extraction",
        "sentence-transformers",
        "text-embedding",
        "zero-shot-classification",
        "text-classification",
        "token-classification",
    }
)
"""Pipeline tags of models that encode or classify: they are refused where text is to be written."""


def default_name(*, repo_id: str | None = None, path: PurePath | None = None, gguf_label: str | None = None) -> str:
    """The last segment of ``repo_id``, else of ``path``; a GGUF's exact tag follows after a colon.

    Control characters and blanks at the ends, which a folder's name may have, are left out. A GGUF file's own ending
    and tag are not said twice: ``smol-Q4_1.gguf`` with the label ``Q4_1`` is ``smol:Q4_1``. Raises ValueError when
    there is neither a repository nor a path with a last segment.
    """
    if repo_id:
        base = repo_id.rstrip("/").rpartition("/")[2]
    elif path is not None:
        base = path.stem if path.suffix.lower() == ".gguf" else path.name
        if gguf_label and base.lower().endswith(gguf_label.lower()):
            base = base[: -len(gguf_label)].rstrip("-._ ") or base
    else:
        base = ""
    base = "".join(character for character in base if unicodedata.category(character) not in _UNSHOWABLE).strip()
    if not base:
        raise ValueError("a model's name needs a repository or a path that ends in a name")
    return f"{base}:{gguf_label}" if gguf_label else base


def hub_snapshot(path: PurePath) -> tuple[str, str] | None:
    """(repository, revision) of a snapshot folder in a Hugging Face cache, or None for any other folder.

    Such a folder is named after a commit, which is no name for people; the cache's own layout says whose it is.
    """
    match = _HUB_FOLDER.fullmatch(path.parent.parent.name) if path.parent.name == "snapshots" else None
    return None if match is None else (f"{match['owner']}/{match['name']}", path.name)


def check_custom_name(name: str) -> str:
    """Return ``name`` untouched when it may be used: 1–100 printable characters without blanks at its ends.

    Raises :class:`InvalidParameter`, ``param`` ``custom_name``.
    """
    if not name.strip():
        why = "it is empty"
    elif len(name) > MAX_CUSTOM_NAME:
        why = f"it has {len(name)} characters"
    elif name != name.strip():
        why = "it begins or ends with a blank"
    elif any(unicodedata.category(character) in _UNSHOWABLE for character in name):
        why = "it holds characters that cannot be shown"
    else:
        return name
    raise InvalidParameter(
        f"The name {shortened(name)} cannot be used for a model: {why}.",
        param="custom_name",
        remedy=f"Choose a name of 1 to {MAX_CUSTOM_NAME} printable characters.",
    )


def resolve_name(name: str, records: Sequence[ModelRecord]) -> ModelRecord:
    """The one model that ``name`` means: an exact name, or a name without its tag while only one has it.

    Tags are those of GGUF files (``smol:Q4_1``) and of checkpoints held at another level (``smol:Q8``).

    Raises :class:`AmbiguousModelName` (``param`` None) listing the tags, :class:`ModelNotFound` (``param`` ``model``)
    listing available names.
    """
    for record in records:
        if record.name == name:
            return record
    variants = [record for record in records if _is_variant(record, name)]
    if len(variants) == 1:
        return variants[0]
    if variants:
        names = sorted(record.name for record in variants)
        raise AmbiguousModelName(
            f"The name {shortened(name)} fits {len(names)} models: {', '.join(names)}.",
            details={"name": name, "candidates": names},
            remedy="Name one of them with its tag.",
        )
    raise ModelNotFound(
        f"There is no model named {shortened(name)}. {_available(records)}",
        param="model",
        remedy="Use one of the names in the list of models, or import the model first.",
    )


def is_generative(record: ModelRecord) -> bool:
    """Whether the model can write text, as far as its pipeline tag tells; a model without one counts as able to."""
    return record.pipeline_tag not in NON_GENERATIVE_TAGS


def check_generative(record: ModelRecord) -> None:
    """Raise :class:`ModelNotGenerative` (``param`` ``model``) for a model that only encodes or classifies."""
    if not is_generative(record):
        raise ModelNotGenerative(
            f"The model {record.name!r} is made for {record.pipeline_tag}: it cannot write text.",
            param="model",
            remedy="Name a model that generates text.",
        )


def _is_variant(record: ModelRecord, bare: str) -> bool:
    if not bare:
        return False
    if record.gguf_label is None:
        return record.quantization is not None and record.name == f"{bare}:{record.quantization}"
    # By the repository too, so that rows a person renamed still answer to where they came from.
    return record.name == f"{bare}:{record.gguf_label}" or (record.repo_id or "").rpartition("/")[2] == bare


def _available(records: Sequence[ModelRecord]) -> str:
    names = [record.name for record in records]
    if not names:
        return "The library has no models yet."
    more = len(names) - NAMES_IN_MESSAGE
    listed = ", ".join(names[:NAMES_IN_MESSAGE])
    return f"Available: {listed}{f' and {more} more' if more > 0 else ''}."
