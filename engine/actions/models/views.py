"""A model as the faces see it: its row, and what is true of it now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from engine.counting import in_mb
from engine.models.capabilities import ModelCapabilities
from engine.models.registry import LoadedModel


@dataclass(frozen=True)
class ModelPlacement:
    """Where a loaded model is. Figures nobody measured are None."""

    mode: str
    reason: str
    requested: str | None
    devices: tuple[str, ...]
    gpu_indices: tuple[int, ...]
    required_mb: float | None
    capacity_mb: float | None
    memory_by_device_mb: Mapping[str, float]
    planned_mb_by_device: Mapping[str, float] | None
    budget_mb_by_device: Mapping[str, float] | None


@dataclass(frozen=True)
class ModelView:
    """A model's row and what is true of it now. Sizes are in MB of 10⁶ bytes; None means not measured.

    Attributes:
        has_chat_template: None where nobody has looked yet: at the files of a checkpoint until it is loaded.
        download_progress, load_progress: 0–100 while under way, else None.
        disk_size_mb: What its files take, wherever they lie: as they are now, or as they were when they were added.
        files_missing: Whether nothing lies any more where its files were.
        disk_bytes: What goes from the disk with it, since this program wrote it; None for files that stay.
        num_parameters, memory_footprint, device, dtype, placement: Of the loaded model; ``memory_footprint`` is bytes.
        lease: Who keeps the model in memory for themselves; nobody can yet.
        capabilities: What it can do beyond writing text.
    """

    id: int
    name: str
    source: str
    engine: str
    repo_id: str | None
    local_path: str | None
    params: int | None
    architecture: str | None
    quantization: str | None
    gguf_label: str | None
    revision: str | None
    pipeline_tag: str | None
    context_length: int | None
    has_chat_template: bool | None
    disk_size_mb: float | None
    disk_bytes: int | None
    files_missing: bool
    estimated_memory_mb: float | None
    trust_remote_code: bool
    status: str
    error_message: str | None
    locked: bool
    download_progress: float | None
    downloaded_bytes: int | None
    total_bytes: int | None
    download_speed_bps: float | None
    load_progress: float | None
    load_stage: str | None
    created_at: datetime
    updated_at: datetime
    loaded_at: datetime | None
    last_used_at: datetime | None
    capabilities: ModelCapabilities
    num_parameters: int | None = None
    memory_footprint: int | None = None
    device: str | None = None
    dtype: str | None = None
    placement: ModelPlacement | None = None
    lease: None = None


def placement_of(resident: LoadedModel) -> ModelPlacement:
    """Where the model in memory is."""
    device = resident.backend.device
    on_card = device.type == "cuda"
    return ModelPlacement(
        mode="single" if on_card else "cpu",
        reason="most_free_card_fits" if on_card else "no_gpu",
        requested=None,
        devices=(str(device),),
        gpu_indices=((device.index or 0),) if on_card else (),
        required_mb=None,
        capacity_mb=None,
        memory_by_device_mb={str(device): in_mb(resident.info.memory_bytes, 1)},
        planned_mb_by_device=None,
        budget_mb_by_device=None,
    )
