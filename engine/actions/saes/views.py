"""What the actions on SAEs answer with: frozen values with the names the management API uses, and how they are made.

Memory is in MB of 10⁶ bytes, layers count from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from engine.actions.saes.context import SaeContext
from engine.counting import MB, in_mb
from engine.saes.attachment import Attachment
from engine.wire import made_of


class AttachStatus(StrEnum):
    """What became of one item of a set."""

    ATTACHED = "attached"
    ALREADY_ATTACHED = "already_attached"


@dataclass(frozen=True)
class Compatibility:
    """Whether an SAE can be attached at a layer of the resident model."""

    compatible: bool
    errors: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class AttachResult:
    """One SAE was attached. ``layer_module_path`` is the block it reads."""

    status: AttachStatus
    sae_id: str
    layer: int
    memory_usage_mb: float
    warnings: tuple[str, ...]
    layer_module_path: str


@dataclass(frozen=True)
class AttachSetResult:
    """A set was attached. ``attached_count`` and the total are of all SAEs that are attached now."""

    status: AttachStatus
    entries: tuple[AttachResult, ...]
    attached_count: int
    total_memory_usage_mb: float
    vram_envelope_mb: int
    vram_warning: bool


@dataclass(frozen=True)
class DetachResult:
    """An SAE left every layer it was on. ``unused``: no request ran with it any more."""

    status: str
    sae_id: str
    memory_freed_mb: float
    layers: tuple[int, ...]
    unused: bool


@dataclass(frozen=True)
class DeleteResult:
    """An SAE left the library."""

    status: str
    sae_id: str
    freed_disk_mb: float


@dataclass(frozen=True)
class LabelsResult:
    """Labels were stored for ``imported`` features; ``skipped`` rows had none."""

    sae_id: str
    imported: int
    skipped: int


@dataclass(frozen=True)
class AttachmentView:
    """An attachment. ``steering_apply_count`` counts passes that added a vector at its layer; None: not counted."""

    sae_id: str
    layer: int
    memory_usage_mb: float
    steering_enabled: bool
    monitoring_enabled: bool
    steering_apply_count: int | None


@dataclass(frozen=True)
class FirstAttachmentView:
    """The first attachment, all None or False while there is none."""

    is_attached: bool
    sae_id: str | None = None
    layer: int | None = None
    memory_usage_mb: float | None = None
    steering_enabled: bool = False
    monitoring_enabled: bool = False
    steering_apply_count: int | None = None


@dataclass(frozen=True)
class AttachmentsView:
    """All attachments in the order they were made. ``vram_warning``: their total is above the advisory envelope."""

    is_attached: bool
    count: int
    entries: tuple[AttachmentView, ...]
    total_memory_usage_mb: float
    vram_envelope_mb: int
    vram_warning: bool


@dataclass(frozen=True)
class SteeringView:
    """The hand-set values of one attached SAE, by feature index as text in rising order; empty while none is."""

    enabled: bool
    values: dict[str, float]
    sae_id: str | None = None
    layer: int | None = None


class Viewer:
    """Reads the desk and the monitor and says how things stand.

    ``passes_steered``: layer to the number of passes that added a vector there, where someone counts them.
    """

    def __init__(self, context: SaeContext, passes_steered: Callable[[int], int] | None) -> None:
        self._context = context
        self._passes_steered = passes_steered

    def first(self) -> FirstAttachmentView:
        """The first attachment."""
        found = self.all()
        if not found.entries:
            return FirstAttachmentView(False)
        return made_of(FirstAttachmentView, found.entries[0], is_attached=True)

    def all(self) -> AttachmentsView:
        """Every attachment and the memory they take together."""
        state = self._context.desk.state
        monitor = self._context.monitor.state()
        entries = tuple(
            AttachmentView(
                each.sae_id,
                each.layer,
                in_mb(each.memory_bytes),
                state.entry((each.sae_id, each.layer)).enabled,
                monitor.enabled and (each.sae_id, each.layer) in monitor.saes,
                None if self._passes_steered is None else self._passes_steered(each.layer),
            )
            for each in state.attachments
        )
        total, envelope, above = self.memory(state.attachments)
        return AttachmentsView(bool(entries), len(entries), entries, total, envelope, above)

    def memory(self, attachments: Iterable[Attachment]) -> tuple[float, int, bool]:
        """What ``attachments`` take together, the advisory envelope, and whether they are above it."""
        size = held_bytes(attachments)
        envelope = self._context.settings.MULTISAE_VRAM_ENVELOPE_MB
        return in_mb(size), envelope, size > envelope * MB

    def steering(self, sae_id: str | None = None, layer: int | None = None) -> SteeringView:
        """The hand-set values of the first attachment that fits; raises :class:`SaeNotAttached` for a named one."""
        state = self._context.desk.state
        if not state.attachments and sae_id is None and layer is None:
            return SteeringView(False, {})
        each = self._context.desk.attachment(sae_id, layer)
        entry = state.entry((each.sae_id, each.layer))
        values = {str(index): value for index, value in sorted(entry.values.items())}
        return SteeringView(entry.enabled, values, each.sae_id, each.layer)


def held_bytes(attachments: Iterable[Attachment]) -> int:
    """Bytes of the weights; an SAE on several layers holds them once."""
    return sum({id(each.sae): each.memory_bytes for each in attachments}.values())
