"""What the command line asked for, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """Parsed arguments; None means "not given".

    Attributes:
        command: gui, serve, demo or doctor.
        action: For demo: install, status or remove.
        wheel: For ``demo install``: a wheel fetched by hand.
        files: For gui: documents to open.
    """

    command: str = "gui"
    action: str | None = None
    data_dir: str | None = None
    host: str | None = None
    port: int | None = None
    model: str | None = None
    insecure: bool = False
    wheel: Path | None = None
    files: tuple[Path, ...] = ()
