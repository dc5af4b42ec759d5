"""The machine's figures for people who watch: memory, load and cards, as the event ``system:metrics`` has them."""

from __future__ import annotations

import psutil

from engine.counting import in_mb
from engine.events import SystemMetrics
from engine.public.models import GpuCard, read_gpus


def read_machine() -> SystemMetrics:
    """The figures now. The share of the processor is that since the last reading. May take seconds: not on the loop."""
    memory = psutil.virtual_memory()
    process = psutil.Process()
    cards = read_gpus().cards
    first = cards[0] if cards else None
    return SystemMetrics(
        gpu_utilization=None if first is None else first.utilization,
        gpu_memory_used_mb=None if first is None else in_mb(first.used_bytes, 1),
        gpu_memory_total_mb=None if first is None else in_mb(first.total_bytes, 1),
        gpu_temperature=None if first is None else first.temperature,
        gpus=[_card(each) for each in cards],
        cpu_percent=psutil.cpu_percent(None),
        memory_used_mb=in_mb(memory.total - memory.available, 1),
        memory_total_mb=in_mb(memory.total, 1),
        process_memory_mb=in_mb(process.memory_info().rss, 1),
    )


def _card(card: GpuCard) -> dict[str, object]:
    return {
        "index": card.index,
        "name": card.name,
        "utilization": card.utilization,
        "memory_used_mb": in_mb(card.used_bytes, 1),
        "memory_total_mb": in_mb(card.total_bytes, 1),
        "temperature": card.temperature,
    }
