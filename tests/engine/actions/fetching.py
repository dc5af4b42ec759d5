"""Asking for a download and waiting for its end."""

from __future__ import annotations

from engine.actions.downloading.models import DownloadRequest
from engine.engine import Engine
from engine.library.records import ModelStatus

REPO = "made/tiny-llama"
WEIGHTS = "model.safetensors"


def ended(engine: Engine, model_id: int) -> ModelStatus:
    """The row's status once the download is over."""
    assert engine.models.downloads.wait_ended(model_id, 60)
    return engine.shelf.get(model_id).status


def ask(repo_id: str = REPO, **more: object) -> DownloadRequest:
    return DownloadRequest(repo_id, **more)  # type: ignore[arg-type]
