"""The machine's figures for people who watch: memory, load and cards, as the event ``system:metrics`` has them."""

from __future__ import annotations

import psutil

from engine.events import SystemMetrics
from engine.models.hardware.gpus import MB, GpuCard, read_gpus


def read_machine() -> SystemMetrics:
    """The figures now. The share of the processor is that since the last reading. May take seconds: not on the loop."""
    memory = psutil.virtual_memory()
    process = psutil.Process()
    cards = read_gpus().cards
    first = cards[0] if cards else None
    return SystemMetrics(
        gpu_utilization=None if first is None else first.utilization,
        gpu_memory_used_mb=None if first is None else round(first.used_mb, 1),
        gpu_memory_total_mb=None if first is None else round(first.total_mb, 1),
        gpu_temperature=None if first is None else first.temperature,
        gpus=[_card(each) for each in cards],
        cpu_percent=psutil.cpu_percent(None),
        memory_used_mb=round((memory.total - memory.available) / MB, 1),
        memory_total_mb=round(memory.total / MB, 1),
        process_memory_mb=round(process.memory_info().rss / MB, 1),
    )


def _card(card: GpuCard) -> dict[str, object]:
    return {
        "index": card.index,
        "name": card.name,
        "utilization": card.utilization,
        "memory_used_mb": round(card.used_mb, 1),
        "memory_total_mb": round(card.total_mb, 1),
        "temperature": card.temperature,
    }
