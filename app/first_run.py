"""The very first start: which folder everything shall be kept in, asked once and remembered.

``--data-dir`` and ``MILLM_DATA_DIR`` win and nothing is asked. Else the answer of the first start holds, kept in a note
among the person's settings (:func:`app.paths.note_file`); without a note the system's own place is used. Only a window
asks: a program without a screen has nobody to ask.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.options import Options
from app.paths import ENVIRONMENT_NAME, Paths, note_file, remember, remembered
from engine.errors import DataDirectoryUnusable

FOLDER = "miLLM Desktop"
"""What the program's own folder is called inside one that holds other things too."""


@dataclass(frozen=True)
class Question:
    """What has to be asked.

    Attributes:
        default: The folder that is offered.
        missing: The folder chosen earlier, where that is the reason for asking: it is not there.
    """

    default: Path
    missing: Path | None = None


def question(options: Options, environ: Mapping[str, str] | None = None) -> Question | None:
    """What has to be asked before the window can open; None when the folder is known."""
    env = os.environ if environ is None else environ
    if options.data_dir or env.get(ENVIRONMENT_NAME):
        return None
    default = Paths.default()
    chosen = remembered()
    if chosen is not None:
        return None if chosen.is_dir() else Question(default.data_dir, chosen)
    return None if default.database.exists() else Question(default.data_dir)


def settle(folder: Path) -> Paths:
    """Make ``folder`` the data directory of this start and of all later ones.

    Raises:
        DataDirectoryUnusable: it cannot be made or written, and nothing is remembered.
    """
    paths = Paths(folder.expanduser().absolute())
    paths.prepare()
    if paths.data_dir == Paths.default().data_dir:
        # Nothing to remember, and a person who deletes it begins anew.
        note_file().unlink(missing_ok=True)
        return paths
    try:
        remember(paths.data_dir)
    except OSError as error:
        raise DataDirectoryUnusable(
            f"The choice of {paths.data_dir} could not be kept in {note_file()}: {error.strerror or error}.",
            remedy=f"Take the default folder, or set {ENVIRONMENT_NAME}.",
        ) from error
    return paths


def own_folder_in(folder: Path) -> Path:
    """The data directory for a person who picked ``folder``: itself where it is empty or ours, else one inside it."""
    try:
        shared = folder.is_dir() and not Paths(folder).database.exists() and any(folder.iterdir())
    except OSError:
        return folder  # it cannot be looked into; what is wrong is said when it is to be used
    return folder / FOLDER if shared else folder


def free_bytes(folder: Path) -> int | None:
    """How much room the disk of ``folder`` has, which need not exist yet; None where the system does not say."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        return shutil.disk_usage(there).free
    except OSError:
        return None
