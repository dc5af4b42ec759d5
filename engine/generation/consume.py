"""Reading a whole answer in one call, for callers that may block."""

from __future__ import annotations

from queue import SimpleQueue

from engine.generation.prepared import PreparedRequest
from engine.generation.request import Delta, RequestFailed, RequestFinished
from engine.generation.service import GenerationService


def collect(service: GenerationService, prepared: PreparedRequest) -> list[Delta]:
    """Submit, wait and return every delta; raises the error the request ended with."""
    queue: SimpleQueue[Delta] = SimpleQueue()
    service.submit(prepared, queue.put)
    deltas: list[Delta] = []
    while True:
        delta = queue.get()
        deltas.append(delta)
        if isinstance(delta, RequestFailed):
            raise delta.error
        if isinstance(delta, RequestFinished):
            return deltas
