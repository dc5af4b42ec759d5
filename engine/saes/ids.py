"""Ids of SAEs: which are allowed, and how one is derived from a folder or a hub file. Knows no torch."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from pathlib import PurePath, PurePosixPath

from engine.errors import InvalidParameter
from engine.saes.path_facts import layer_from_path

MAX_ID_LENGTH = 100

_ID = re.compile(r"[A-Za-z0-9._@-]{1,100}")
_REPO_ID = re.compile(r"[\w-]+/[\w.-]+", re.ASCII)
_FOREIGN = re.compile(r"[^A-Za-z0-9._@-]+")


def check_sae_id(sae_id: str) -> str:
    """``sae_id`` itself when it is allowed, else :class:`InvalidParameter` (param ``sae_id``).

    Letters, digits, ``.``, ``_``, ``@`` and ``-``, up to 100; not ``.`` or ``..``, since ids name folders.
    """
    if not isinstance(sae_id, str) or not _ID.fullmatch(sae_id) or sae_id in {".", ".."}:
        raise InvalidParameter(
            f"The SAE id {str(sae_id)[:120]!r} is not allowed.",
            param="sae_id",
            remedy="Use 1 to 100 letters, digits, dots, underscores, @ or hyphens.",
        )
    return sae_id


def id_from_folder(folder: PurePath, layer: int | None) -> str:
    """An id from the folder's name, with ``--layer_N`` where the name does not say the layer itself.

    Characters that no id may hold become hyphens; what is too long loses its end, never the layer.
    """
    name = _clean(folder.name) or "sae"
    ending = ""
    if layer is not None and layer_from_path(folder.name) != layer:
        ending = f"--layer_{layer}"
    return name[: MAX_ID_LENGTH - len(ending)].rstrip("-") + ending


def id_from_hub(repo_id: str, *, revision: str = "main", file_path: str | None = None) -> str:
    """An id from a hub repository: ``org--repo``, ``@revision`` unless it is main, and the folder of ``file_path``.

    ``org/repo`` with ``layer_7/width_16k/params.npz`` gives ``org--repo--layer_7--width_16k``. What would be longer
    than 100 characters is cut and ends in eight digits of its own hash, so two long paths stay two ids. Raises
    :class:`InvalidParameter` when ``repo_id`` is not of the form ``owner/name``.
    """
    if not isinstance(repo_id, str) or len(repo_id) > 255 or not _REPO_ID.fullmatch(repo_id):
        raise InvalidParameter(
            f"{str(repo_id)[:120]!r} is not a hub repository.",
            param="repository_id",
            remedy="Write it as owner/name, for example google/gemma-scope-2b-pt-res.",
        )
    whole = repo_id.replace("/", "--")
    if revision != "main":
        whole += f"@{revision.replace('/', '--')}"
    folder = PurePosixPath(file_path).parent.as_posix() if file_path else "."
    if folder != ".":
        whole += f"--{folder.strip('/').replace('/', '--')}"
    cleaned = _clean(whole)
    if len(cleaned) <= MAX_ID_LENGTH:
        return cleaned
    digest = hashlib.sha256(whole.encode("utf-8")).hexdigest()[:8]
    return f"{cleaned[: MAX_ID_LENGTH - 9].rstrip('-')}-{digest}"


def _clean(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return _FOREIGN.sub("-", plain).strip("-").lstrip(".")
