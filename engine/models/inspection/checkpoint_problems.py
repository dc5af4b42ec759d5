"""What is wrong with a checkpoint folder, gathered while it is looked through and refused in one go."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import CheckpointInvalid
from engine.files import open_file
from engine.json_text import TOO_DEEP, loads
from engine.models.inspection.safetensors_header import LFS_POINTER

MAX_JSON_BYTES = 64_000_000
"""No vocabulary or index is larger; a file that is gets no chance to fill the memory."""

MAX_CONFIG_BYTES = 8_000_000
"""The same for configs, which whoever loads the model reads once more, in one step."""

_LISTS = ("model.safetensors.index.json", "vocab.json", "tokenizer.json")

DOWNLOAD_AGAIN = "Download the missing or damaged files again."
PERMISSIONS = "Check the permissions of the folder and its files."


@dataclass(frozen=True)
class CheckpointProblem:
    """One thing that is wrong, as the end of a sentence about the folder, and what to do about it."""

    text: str
    remedy: str


class Findings:
    """What was found wrong so far, and the files that count as the checkpoint.

    Attributes:
        files: Size in bytes of each file of the checkpoint that is there, by name.
        dangling: Names that are there and lead nowhere; each is a problem already.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[CheckpointProblem] = []
        self.files: dict[str, int] = {}
        self.dangling: set[str] = set()

    def add(self, text: str, remedy: str) -> None:
        self.problems.append(CheckpointProblem(text, remedy))

    def has(self, name: str) -> bool:
        """Whether the file is there; one that cannot be reached is noted as a problem of its own."""
        path = self.folder / name
        try:
            status = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                self.dangling.add(name)
                self.add(f"{name} is a link to a file that is not there", DOWNLOAD_AGAIN)
            return False
        except OSError as error:
            self.dangling.add(name)
            self.add(f"{name} cannot be read: {error.strerror or error}", PERMISSIONS)
            return False
        if not stat.S_ISREG(status.st_mode):
            return False
        self.files[name] = status.st_size
        return True

    def read_object(self, name: str) -> dict[str, Any] | None:
        """The JSON object in a file that :meth:`has` found; None, with a problem noted, when it cannot be read."""
        if self.files[name] > MAX_JSON_BYTES:
            self.add(f"{name} is larger than {MAX_JSON_BYTES // 1_000_000} MB", DOWNLOAD_AGAIN)
            return None
        if name not in _LISTS and self.files[name] > MAX_CONFIG_BYTES:
            self.add(f"{name} is larger than {MAX_CONFIG_BYTES // 1_000_000} MB", DOWNLOAD_AGAIN)
            return None
        try:
            with open_file(self.folder / name) as file:
                raw = file.read()
        except OSError as error:
            self.add(f"{name} cannot be read: {error.strerror or error}", PERMISSIONS)
            return None
        if raw.startswith(LFS_POINTER):
            self.add(f"{name} is a Git LFS pointer: the file itself was never downloaded", "Run `git lfs pull` there.")
            return None
        try:
            value = loads(raw.decode("utf-8"))
        except ValueError as error:
            why = "is nested too deeply" if str(error).startswith(TOO_DEEP) else "is not valid JSON"
            self.add(f"{name} {why}", DOWNLOAD_AGAIN)
            return None
        if not isinstance(value, dict):
            self.add(f"{name} is not a JSON object", DOWNLOAD_AGAIN)
            return None
        return value

    def refuse(self) -> None:
        """Raise :class:`CheckpointInvalid` with every problem, if there is one."""
        if not self.problems:
            return
        texts = [problem.text for problem in self.problems]
        remedies = list(dict.fromkeys(problem.remedy for problem in self.problems))
        raise CheckpointInvalid(
            f"{self.folder} cannot be used as a model: {'; '.join(texts)}.",
            param="local_path",
            details={"path": str(self.folder), "problems": texts},
            remedy=" ".join(remedies),
        )
