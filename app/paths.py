"""Where the program keeps its files: one data directory with everything in it.

``--data-dir`` wins over ``MILLM_DATA_DIR``, which wins over the folder a person chose at the first start, which wins
over the system's place for a person's application data.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from engine.errors import DataDirectoryUnusable

ENVIRONMENT_NAME = "MILLM_DATA_DIR"
REMEDY = f"Choose another with --data-dir or {ENVIRONMENT_NAME}."
OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""What group and others may do: nothing, with chats, settings and keys."""
PROGRAM_FOLDER = "miLLM Desktop"
NOTE = "data-folder.json"


def note_file() -> Path:
    """The one file outside the data directory: it says which folder was chosen at the first start."""
    return Path(platformdirs.user_config_dir(PROGRAM_FOLDER, appauthor=False)) / NOTE


def remembered() -> Path | None:
    """The folder chosen at the first start; None when none was, or the note cannot be read."""
    try:
        chosen = json.loads(note_file().read_text(encoding="utf-8"))["data_dir"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Path(chosen) if isinstance(chosen, str) and Path(chosen).is_absolute() else None


def remember(folder: Path) -> None:
    """Write the note. OSError where that fails; a note that stood there is whole then."""
    note = note_file()
    note.parent.mkdir(parents=True, exist_ok=True)
    fresh = note.with_name(f".{NOTE}-{os.getpid()}")
    fresh.write_text(json.dumps({"data_dir": str(folder)}) + "\n", encoding="utf-8")
    fresh.replace(note)


@dataclass(frozen=True)
class Paths:
    """The data directory and what lies in it. Making one touches nothing; :meth:`prepare` does.

    Attributes:
        remembered: It was chosen at the first start and made then, so it is not made anew when it is gone.
    """

    data_dir: Path
    remembered: bool = False

    @classmethod
    def find(cls, command_line: str | None = None, environ: Mapping[str, str] | None = None) -> Paths:
        """The data directory asked for, as an absolute path; ``~`` is the person's home."""
        env = os.environ if environ is None else environ
        asked = command_line or env.get(ENVIRONMENT_NAME)
        if asked:
            return cls(Path(asked).expanduser().absolute())
        chosen = remembered()
        return cls.default() if chosen is None else cls(chosen, remembered=True)

    @classmethod
    def default(cls) -> Paths:
        """The system's place for a person's application data."""
        return cls(Path(platformdirs.user_data_dir(PROGRAM_FOLDER, appauthor=False)))

    @property
    def database(self) -> Path:
        return self.data_dir / "millm.db"

    @property
    def settings_file(self) -> Path:
        """The settings a person changed, as JSON."""
        return self.data_dir / "settings.json"

    @property
    def models(self) -> Path:
        """Model files the program fetched itself."""
        return self.data_dir / "models"

    @property
    def saes(self) -> Path:
        """Sparse autoencoders the program fetched itself."""
        return self.data_dir / "saes"

    @property
    def logs(self) -> Path:
        """Logs and crash reports."""
        return self.data_dir / "logs"

    @property
    def lock_file(self) -> Path:
        """Locked while a process uses the directory."""
        return self.data_dir / "instance.lock"

    @property
    def instance_file(self) -> Path:
        """Who that process is, for others to read."""
        return self.data_dir / "instance.json"

    def prepare(self) -> None:
        """Create the folders and prove that files can be written there.

        Raises:
            DataDirectoryUnusable: naming the folder and what the system said.
        """
        if self.remembered and not self.data_dir.is_dir():
            raise DataDirectoryUnusable(
                f"The data directory {self.data_dir}, chosen at the first start, is not there.",
                details={"path": str(self.data_dir), "reason": "missing"},
                remedy=f"Connect the disk it is on, or open the window to choose another. {REMEDY}",
            )
        for folder in (self.data_dir, self.models, self.saes, self.logs):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                # Permission bits prove nothing: a read-only mount or a full disk grants them and refuses the write.
                with tempfile.TemporaryFile(dir=folder) as probe:
                    probe.write(b"x")
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                raise DataDirectoryUnusable(
                    f"The data directory {self.data_dir} cannot be used: {folder} cannot be written ({reason}).",
                    details={"path": str(folder), "reason": reason},
                    remedy=REMEDY,
                ) from error
        self._close_to_others()

    def _close_to_others(self) -> None:
        """Take group's and others' rights from the folders and from the program's own files, where there are such.

        Earlier versions left them as the system makes them, readable by everybody. Models keep theirs: they lie in a
        folder nobody else can enter, and may be links to files of others. File systems that have no such rights refuse,
        and so does what belongs to somebody else; neither keeps the program from starting.
        """
        if os.name == "nt":
            return
        folders = (self.data_dir, self.models, self.saes, self.logs)
        for path in (*folders, *self._own_files()):
            with contextlib.suppress(OSError):
                about = path.lstat()
                # A folder like /tmp is not ours to close, even where somebody lets us work in it.
                open_to_all = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX
                if about.st_mode & OTHERS and not open_to_all and not stat.S_ISLNK(about.st_mode):
                    path.chmod(stat.S_IMODE(about.st_mode) & ~OTHERS)

    def _own_files(self) -> Iterator[Path]:
        """The program's files directly in the data directory, and all logs and crash reports."""
        names = ("millm.db*", "settings.json", ".settings-*", "hf-token*", ".hf-token*", "instance.*", ".instance-*")
        for folder, patterns in ((self.data_dir, names), (self.logs, ("*",))):
            for pattern in patterns:
                yield from (path for path in folder.glob(pattern) if path.is_file())


def keep_to_oneself() -> int | None:
    """Have this process make files and folders that only its person can read; what was so before, for ``os.umask``.

    None on Windows, where a person's folders are closed to others by what they inherit.
    """
    return None if os.name == "nt" else os.umask(OTHERS)
