"""A scheduler whose ticks the test makes itself: races become steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine.actions.models.importing import import_local_model
from engine.config import EngineSettings
from engine.errors import MillmError
from engine.events import EventBus
from engine.generation.prepared import RequestHandle
from engine.generation.request import (
    ChoiceFinished,
    Delta,
    GenerationRequest,
    RequestFailed,
    RequestFinished,
    TextDelta,
    TextInput,
)
from engine.generation.scheduler import Scheduler
from engine.generation.service import GenerationService
from engine.library.database import Library
from engine.models.backends.transformers_backend import TransformersBackend
from engine.models.hardware.devices import DevicePlacement
from engine.models.registry import LoadedModel, ModelShelf
from engine.monitor.live import LiveMonitor
from engine.sampling import Sampling
from engine.steering.desk import SteeringDesk


@dataclass
class Answer:
    """What one request has sent so far."""

    handle: RequestHandle
    deltas: list[Delta] = field(default_factory=list)

    def text(self, index: int = 0) -> str:
        return "".join(d.content for d in self.deltas if isinstance(d, TextDelta) and d.index == index)

    def ids(self, index: int = 0) -> list[int]:
        return [t.token_id for d in self.deltas if isinstance(d, TextDelta) and d.index == index for t in d.tokens]

    @property
    def ends(self) -> dict[int, ChoiceFinished]:
        return {d.index: d for d in self.deltas if isinstance(d, ChoiceFinished)}

    @property
    def finished(self) -> RequestFinished | None:
        return next((d for d in self.deltas if isinstance(d, RequestFinished)), None)

    @property
    def error(self) -> MillmError | None:
        return next((d.error for d in self.deltas if isinstance(d, RequestFailed)), None)


class _NoThread:
    """Stands where the engine thread is: the test ticks instead."""

    def wake(self) -> None: ...


def _load(folder: Path) -> TransformersBackend:
    placement = DevicePlacement(torch.device("cpu"), torch.float32, "test")
    return TransformersBackend.load(folder, placement, lambda share, stage: None)


class Driver:
    """A real backend, a real scheduler, no thread. ``passes`` logs each forward as (kind, rows or tokens).

    ``load`` makes another backend than the transformers one.
    """

    def __init__(
        self, folder: Path, library: Library, *, load: Callable[[Path], Any] | None = None, **settings: Any
    ) -> None:
        self.settings = EngineSettings(**{"PREFILL_CHUNK": 8, **settings})
        self.events = EventBus()
        self.desk = SteeringDesk(self.events)
        self.monitor = LiveMonitor(self.events)
        self.scheduler = Scheduler(self.settings, self.desk, self.monitor)
        shelf = ModelShelf(library.models)
        known = [each for each in library.models.list() if each.local_path == str(folder)]
        record = known[0] if known else import_local_model(library, EventBus(), folder)
        self.name = record.name
        self.backend = (load or _load)(folder)
        self.passes: list[tuple[str, int]] = []
        self._log_passes()
        shelf.set_resident(LoadedModel(record, self.backend.info, self.backend))
        self.scheduler.set_backend(self.backend)
        self.service = GenerationService(
            self.settings,
            shelf,
            library.profiles,
            library.saes,
            self.desk,
            self.scheduler,
            _NoThread(),  # type: ignore[arg-type]
        )

    def _log_passes(self) -> None:
        extend, decode, together = self.backend.extend, self.backend.decode, self.backend.read_together
        ends, every = self.backend.logits_at_ends, self.backend.extend_all

        def logged_extend(store: Any, ids: Any, work: Any = None) -> Any:
            self.passes.append(("extend", len(ids)))
            return extend(store, ids, work)

        def logged_every(store: Any, ids: Any, work: Any = None) -> Any:
            self.passes.append(("every", len(ids)))
            return every(store, ids, work)

        def logged_decode(batch: Any, ids: Any, work: Any = None) -> Any:
            self.passes.append(("decode", len(ids)))
            return decode(batch, ids, work)

        def logged_together(prompts: Any, work: Any = None) -> Any:
            self.passes.append(("together", len(prompts)))
            return together(prompts, work)

        def logged_ends(prompts: Any, work: Any = None) -> Any:
            self.passes.append(("ends", len(prompts)))
            return ends(prompts, work)

        self.backend.logits_at_ends = logged_ends  # type: ignore[method-assign]
        self.backend.extend_all = logged_every  # type: ignore[method-assign]
        self.backend.read_together = logged_together  # type: ignore[method-assign]
        self.backend.extend = logged_extend  # type: ignore[method-assign]
        self.backend.decode = logged_decode  # type: ignore[method-assign]

    def send(self, *prompts: str | tuple[int, ...], sampling: Sampling | None = None, **fields: Any) -> Answer:
        """Submit raw prompts; greedy and 12 tokens unless told otherwise."""
        request = GenerationRequest(
            model=self.name,
            input=TextInput(prompts),
            sampling=sampling or Sampling(temperature=0.0, ignore_eos=True),
            **{"max_tokens": 12, **fields},
        )
        prepared = self.service.prepare(request)
        deltas: list[Delta] = []
        return Answer(self.service.submit(prepared, deltas.append), deltas)

    def tick(self, times: int = 1) -> None:
        for _ in range(times):
            self.scheduler.tick()

    def finish(self) -> None:
        """Tick until nothing is left."""
        for _ in range(10_000):
            if not self.scheduler.tick():
                return
        raise AssertionError("the scheduler never came to rest")

    def alone(self, prompt: str | tuple[int, ...], **fields: Any) -> Answer:
        answer = self.send(prompt, **fields)
        self.finish()
        return answer
