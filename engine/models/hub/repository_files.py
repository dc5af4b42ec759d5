"""Which files of a hub repository make a model: a checkpoint's, or those of one GGUF quantisation. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from engine.counting import plural, so_many
from engine.errors import CheckpointInvalid, InvalidParameter
from engine.models.hub.client import HubFile, Repository
from engine.models.inspection.gguf_file import label_of, whole_stem

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_GGUF_FILES = 64
MAX_LABEL = 64

_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
_CHECKPOINT = re.compile(
    r"config\.json|generation_config\.json|tokenizer\.json|tokenizer_config\.json|tokenizer\.model"
    r"|special_tokens_map\.json|added_tokens\.json|vocab\.json|merges\.txt|chat_template\.(jinja|json)"
    r"|modules\.json|config_sentence_transformers\.json|README\.md|LICEN[CS]E(\.\w+)?|NOTICE(\.\w+)?"
)
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_COMPANIONS = ("mmproj", "imatrix")


@dataclass(frozen=True)
class GgufQuant:
    """One quantisation that a repository holds: all its files, in order. ``label`` is what it is chosen by."""

    label: str
    files: tuple[HubFile, ...]

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def is_split(self) -> bool:
        return len(self.files) > 1


def gguf_quants(repository: Repository) -> list[GgufQuant]:
    """The quantisations in ``repository``, smallest first."""
    groups: dict[str, list[HubFile]] = {}
    for file in repository.files:
        path = PurePosixPath(file.path)
        if path.suffix.lower() == ".gguf" and not _is_companion(path.name):
            groups.setdefault((path.parent / whole_stem(path.name)).as_posix(), []).append(file)
    quants = [GgufQuant(_label(stem), tuple(sorted(files, key=lambda f: f.path))) for stem, files in groups.items()]
    return sorted(quants, key=lambda quant: (quant.total_bytes, quant.label))


def companions(repository: Repository) -> list[HubFile]:
    """Files that go with a GGUF and are no language model: the part that reads images, statistics."""
    return [
        file
        for file in repository.files
        if PurePosixPath(file.path).suffix.lower() == ".gguf" and _is_companion(PurePosixPath(file.path).name)
    ]


def has_checkpoint(repository: Repository) -> bool:
    """Whether a transformers checkpoint with safe weights lies at its root."""
    names = {file.path for file in repository.files}
    return "config.json" in names and bool(names & {SINGLE, INDEX})


def checkpoint_files(repository: Repository, *, with_code: bool = False) -> list[HubFile]:
    """The files of the transformers checkpoint at the root of ``repository``.

    Raises :class:`CheckpointInvalid` saying what is missing, or :class:`InvalidParameter` (``gguf_files``) with the
    choices where only GGUF files are there.
    """
    names = {file.path: file for file in repository.files}
    if not has_checkpoint(repository):
        raise _no_checkpoint(repository, names)
    # Where the weights are there whole and in parts, the parts are not needed.
    parts = {path for path in names if SINGLE in names and (path == INDEX or _SHARD.fullmatch(path))}
    return [
        file
        for file in repository.files
        if is_checkpoint_file(file.path, with_code=with_code) and file.path not in parts
    ]


def is_checkpoint_file(path: str, *, with_code: bool = False) -> bool:
    """Whether a file of that path in a repository belongs to a transformers checkpoint at its root."""
    templates = path.startswith("additional_chat_templates/") and path.endswith(".jinja")
    code = with_code and path.endswith(".py") and "/" not in path
    weights = path in (SINGLE, INDEX) or _SHARD.fullmatch(path) is not None
    return weights or templates or code or _CHECKPOINT.fullmatch(path) is not None


def choose_gguf(
    repository: Repository, gguf_files: Sequence[str] | None, gguf_label: str | None
) -> tuple[str, list[HubFile]]:
    """The label and files that are meant: those named, else all of the quantisation ``gguf_label``, else the only one.

    Raises :class:`InvalidParameter` naming what there is.
    """
    if gguf_files is not None:
        names = {file.path: file for file in repository.files}
        missing = [path for path in gguf_files if path not in names]
        if missing:
            raise InvalidParameter(
                f"{repository.repo_id} has no file {missing[0]}.",
                param="gguf_files",
                details={"missing": missing, "choices": _choices(repository)},
                remedy="Preview the repository to see its files.",
            )
        stems = {(PurePosixPath(path).parent / whole_stem(PurePosixPath(path).name)).as_posix() for path in gguf_files}
        if len(stems) > 1:
            raise InvalidParameter(
                "The files are those of several quantisations; each of them is a model of its own.",
                param="gguf_files",
                remedy="Name the parts of one quantisation.",
            )
        stem = stems.pop()
        parts = [f for q in gguf_quants(repository) for f in q.files if _stem_of(f) == stem]
        lacking = [file.path for file in parts if file.path not in gguf_files]
        if lacking:
            raise InvalidParameter(
                f"{so_many(len(lacking), 'part')} of the set {plural(len(lacking), 'is', 'are')} not among the files: "
                f"{lacking[0]} …",
                param="gguf_files",
                details={"missing": lacking},
                remedy="Name all parts.",
            )
        chosen = [names[path] for path in sorted(set(gguf_files))]
        return gguf_label or _label(stem), chosen
    quants = gguf_quants(repository)
    if gguf_label is not None:
        quants = [quant for quant in quants if quant.label.casefold() == gguf_label.casefold()]
    if len(quants) != 1:
        what = f"no quantisation {gguf_label}" if gguf_label is not None and not quants else "several quantisations"
        raise InvalidParameter(
            f"{repository.repo_id} holds {what}: {_listed(repository)}.",
            param="gguf_label" if gguf_label is not None else "gguf_files",
            details={"choices": _choices(repository)},
            remedy="Name one of them by gguf_label, or its files by gguf_files.",
        )
    return quants[0].label, list(quants[0].files)


def tag_of(label: str, file: HubFile) -> str | None:
    """What a model of ``file``, chosen by ``label``, is called after; None where that is only the file's own name."""
    stem = _stem_of(file)
    return None if _tag(stem) is None and label == _label(stem) else label


def _no_checkpoint(repository: Repository, names: Mapping[str, HubFile]) -> CheckpointInvalid | InvalidParameter:
    where = f"{repository.repo_id} ({repository.revision})"
    quants = gguf_quants(repository)
    if quants:
        return InvalidParameter(
            f"{where} holds GGUF files only: {_listed(repository)}.",
            param="gguf_files",
            details={"choices": _choices(repository)},
            remedy="Name one of them by gguf_label, or its files by gguf_files.",
        )
    if "adapter_config.json" in names:
        problem, remedy = "it holds a LoRA adapter, not a whole model", "Download its base model instead."
    elif any(name.endswith(_PICKLES) for name in names) and "config.json" in names:
        problem = "its weights are pickle files, which are never read because they can run code"
        remedy = "Look for a version with safetensors; many repositories have one at the revision refs/pr/1."
    else:
        problem, remedy = "it holds no language model", "Check the repository's name."
    return CheckpointInvalid(
        f"{where} cannot be used as a model: {problem}.",
        param="repo_id",
        details={"repo_id": repository.repo_id, "problems": [problem]},
        remedy=remedy,
    )


def _is_companion(name: str) -> bool:
    return any(word in name.lower() for word in _COMPANIONS)


def _tag(stem: str) -> str | None:
    """The quantisation that a name ends in, else its folder's."""
    path = PurePosixPath(stem)
    return label_of(path.name + ".gguf") or label_of(path.parent.name + ".gguf")


def _label(stem: str) -> str:
    return _tag(stem) or PurePosixPath(stem).name[:MAX_LABEL]


def _stem_of(file: HubFile) -> str:
    path = PurePosixPath(file.path)
    return (path.parent / whole_stem(path.name)).as_posix()


def _choices(repository: Repository) -> list[dict[str, object]]:
    return [{"label": quant.label, "files": [file.path for file in quant.files]} for quant in gguf_quants(repository)]


def _listed(repository: Repository) -> str:
    labels = [quant.label for quant in gguf_quants(repository)]
    return ", ".join(labels[:12]) + (f" and {len(labels) - 12} more" if len(labels) > 12 else "")
