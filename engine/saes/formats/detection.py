"""Finds out what lies in a folder or file: every weight file is offered to every format, and the surest wins."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from engine.saes.config import BYTES_PER_VALUE, SaeConfig, SourceFormat
from engine.saes.errors import SaeFormatUnknown, SaeLoadFailed
from engine.saes.formats import (
    dictionary_learning,
    gemma_scope,
    gemma_scope_2,
    goodfire,
    llama_scope,
    openai,
    openmoss,
    qwen_scope,
    saelens,
    sparsify,
    unsupported,
)
from engine.saes.formats.draft import Format, FormatMatch, SaeDraft, Source
from engine.saes.formats.weights import WEIGHT_ENDINGS, WeightsFile, damaged, open_weights

FORMATS: Sequence[Format] = cast(
    "Sequence[Format]",
    (
        saelens,
        gemma_scope,
        gemma_scope_2,
        sparsify,
        dictionary_learning,
        llama_scope,
        openmoss,
        qwen_scope,
        goodfire,
        openai,
    ),
)

PREFERRED_STEMS = ("sae_weights", "model", "weights", "sae", "params", "ae", "final")
"""Which of several fitting files is meant when a folder is given, in this order."""

CHECKPOINTS = "checkpoints"
"""Folder inside an SAE's folder that may hold its weights."""

_SEARCH_DEPTH = 4
_MOST_FOLDERS = 200
_MOST_FILES = 64
_UNSURE = 40
"""At this score or below a format only might fit: something known but unsupported is the better explanation."""


@dataclass(frozen=True)
class Detected:
    """What was found. ``config`` is known from headers alone; loading may add to what it assumed.

    ``files`` are the weight file and the configurations used; ``reason`` says what gave the format away.
    """

    format: SourceFormat
    label: str
    folder: Path
    files: tuple[Path, ...]
    config: SaeConfig
    reason: str
    draft: SaeDraft = field(repr=False, compare=False)
    weights: WeightsFile = field(repr=False, compare=False)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files used."""
        return sum(path.stat().st_size for path in self.files)

    def digest(self) -> str:
        """SHA-256 over names and contents of all files used: equal for the same SAE in another place."""
        whole = hashlib.sha256()
        for path in sorted(self.files, key=lambda path: path.name):
            with path.open("rb") as file:
                whole.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return whole.hexdigest()


def detect(path: Path) -> Detected:
    """What SAE lies at ``path``, a weight file or a folder (one with a single SAE below it will do).

    Raises :class:`SaeFormatUnknown` when nothing fits or several SAEs lie there, :class:`SaeLoadFailed` for damaged or
    unsafe files, and :class:`SaeNotSteerable` for what is recognised but cannot be used. Values are not read, apart
    from single numbers.
    """
    try:
        folder, candidates = _candidates(path)
    except OSError as error:
        raise damaged(path, f"cannot be read ({error.strerror or error})") from error
    opened: list[WeightsFile] = []
    broken: list[tuple[int, SaeLoadFailed]] = []
    for candidate in candidates[:_MOST_FILES]:
        try:
            opened.append(open_weights(candidate))
        except SaeLoadFailed as error:
            broken.append((_rank(candidate), error))
    ranked: list[tuple[int, int, Format, FormatMatch, Source]] = []
    for weights in opened:
        source = Source(folder, weights)
        for known in FORMATS:
            match = known.sniff(source)
            if match is not None:
                ranked.append((match.score, -_rank(weights.path), known, match, source))
    ranked.sort(key=lambda entry: entry[:2], reverse=True)
    if not ranked or ranked[0][0] <= _UNSURE:
        for weights in opened:
            if (known_refusal := unsupported.refusal(Source(folder, weights))) is not None:
                raise known_refusal
    if not ranked:
        raise broken[0][1] if broken else _unknown(path, opened)
    score, rank, known, match, source = ranked[0]
    if broken and broken[0][0] < -rank:
        # The file that is usually the SAE is damaged: another one is no substitute for it.
        raise broken[0][1]
    draft = known.describe(source)
    rivals = [entry for entry in ranked if entry[:2] == (score, rank) and entry[4].weights.path != source.weights.path]
    if rivals:
        names = sorted({source.weights.path.name, *(entry[4].weights.path.name for entry in rivals)})
        raise _several(path, names, "file")
    files = (source.weights.path, *source.config_files)
    return Detected(known.FORMAT, known.LABEL, folder, files, draft.config, match.reason, draft, source.weights)


def estimate_bytes(detected: Detected, dtype: object) -> int:
    """Bytes the SAE will take in ``dtype`` (a torch dtype or its name): both matrices and both biases."""
    name = str(dtype).removeprefix("torch.")
    return detected.config.memory_bytes(BYTES_PER_VALUE.get(name, 4))


def _candidates(path: Path) -> tuple[Path, list[Path]]:
    """The SAE's folder and the weight files to look into."""
    if path.is_file() and path.suffix.lower() == ".json":
        path = path.parent  # someone chose the configuration
    if path.is_file():
        folder = path.parent
        return (folder.parent if folder.name == CHECKPOINTS else folder), [path]
    if not path.is_dir():
        raise SaeFormatUnknown(
            f"There is nothing at {path}.",
            param="path",
            details={"path": str(path)},
            remedy="Name a folder with an SAE, or its weight file.",
        )
    files = _weight_files(path)
    if files:
        return path, files
    below = _folders_with_weights(path)
    if len(below) == 1:
        return below[0], _weight_files(below[0])
    if below:
        raise _several(path, [str(folder.relative_to(path)) for folder in below], "folder")
    raise SaeFormatUnknown(
        f"No weight file lies in {path.name}.",
        param="path",
        details={"path": str(path), "endings": sorted(WEIGHT_ENDINGS)},
        remedy="Name a folder with an SAE, or its weight file.",
    )


def _weight_files(folder: Path) -> list[Path]:
    places = (folder, folder / CHECKPOINTS) if (folder / llama_scope.SETTINGS).is_file() else (folder,)
    found = (
        file
        for place in places
        if place.is_dir()
        for file in place.iterdir()
        if file.suffix.lower() in WEIGHT_ENDINGS and file.is_file()
    )
    return sorted(found, key=lambda file: (_rank(file), file.name))


def _folders_with_weights(top: Path) -> list[Path]:
    found: list[Path] = []
    level, seen = [top], 0
    for _ in range(_SEARCH_DEPTH):
        following: list[Path] = []
        for folder in level:
            for child in sorted(folder.iterdir()):
                if not child.is_dir() or child.name.startswith(".") or seen >= _MOST_FOLDERS:
                    continue
                seen += 1
                if _weight_files(child):
                    found.append(child)
                else:
                    following.append(child)
        level = following
    return found


def _rank(file: Path) -> int:
    return PREFERRED_STEMS.index(file.stem) if file.stem in PREFERRED_STEMS else len(PREFERRED_STEMS)


def _several(path: Path, names: list[str], what: str) -> SaeFormatUnknown:
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return SaeFormatUnknown(
        f"{path.name} holds several SAEs: {shown}.",
        param="path",
        details={"choices": names[:100]},
        remedy=f"Name the {what} of the one you want.",
    )


def _unknown(path: Path, opened: list[WeightsFile]) -> SaeFormatUnknown:
    tensors = {weights.path.name: sorted(weights.tensors)[:20] for weights in opened}
    labels = ", ".join(known.LABEL for known in FORMATS)
    return SaeFormatUnknown(
        f"{path.name} holds tensors, but not those of an SAE of any known format.",
        param="path",
        details={"tensors": tensors},
        remedy=f"Known formats are {labels}.",
    )
