"""A server with SAEs at hand, which come and go with each test."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from httpx_sse import connect_sse

from engine.engine import Engine
from engine.library.records import ProfileKind, ProfileRecord
from engine.steering import transitions
from tests.contract.conftest import Live, chat_body, text_body
from tests.made_saes import make_mirror_sae, make_sae
from tests.waiting import wait_until

STEERING, INTENSITY, RUNG = "X-miLLM-Steering", "X-miLLM-Steering-Intensity", "X-miLLM-Circuit-Rung"
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@dataclass
class Stage:
    """A running server, and the SAEs and profiles of one test. ``folder`` is where SAEs are written."""

    live: Live
    folder: Path

    @property
    def engine(self) -> Engine:
        return self.live.engine

    def attach(self, sae_id: str = "sae-1", layer: int = 1, *, mirror: bool = False, d_sae: int = 64) -> None:
        """An SAE of random features (or, ``mirror``, of plain coordinates) at ``layer``, beside those already there."""
        folder = self.folder / sae_id
        if mirror:
            make_mirror_sae(folder, layer=layer)
        else:
            make_sae(folder, layer=layer, d_sae=d_sae, seed=layer)
        self.engine.saes.import_local(folder, sae_id=sae_id)
        self.engine.attachments.attach(sae_id)

    def profile(
        self,
        name: str,
        steering: dict[int, float],
        *,
        sae_id: str | None = "sae-1",
        layer: int | None = 1,
        intensity: float = 1.0,
        kind: ProfileKind = ProfileKind.MANUAL,
    ) -> ProfileRecord:
        """A row of the library."""
        return self.engine.library.profiles.add(
            ProfileRecord(name, sae_id=sae_id, layer=layer, steering=steering, intensity=intensity, source_kind=kind)
        )

    def activate(self, record: ProfileRecord) -> None:
        """Put a profile in force at its SAE."""
        self.engine.profiles.activate(record.id)

    def live_steering(self) -> tuple[Any, ...]:
        """Everything that steers live, down to the bytes that are added."""
        now = self.engine.desk.now
        values = {place: (dict(entry.values), entry.enabled) for place, entry in now.state.entries.items()}
        deltas = {layer: bytes(delta.numpy().tobytes()) for layer, delta in now.plan.deltas.items()}
        return now.state.version, values, deltas, now.plan.digest, now.plan.report.text()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The engine thread stands still between two ticks: requests queue up, and nothing is read or written."""
        standing, go_on = threading.Event(), threading.Event()

        def job() -> None:
            standing.set()
            go_on.wait(60)

        ended = self.engine._thread.run(job)
        assert standing.wait(60)
        try:
            yield
        finally:
            go_on.set()
            ended.result(60)

    def wait_pending(self, count: int) -> None:
        """Until ``count`` requests wait or run."""
        wait_until(lambda: self.engine.generation.stats().queue_pending == count, f"{count} requests")

    def clear(self) -> None:
        """Back to a model with nothing attached and a library without SAEs and profiles."""
        self.live.wait_idle()
        for circuit in self.engine.desk.state.circuits:
            self.engine.desk.apply(transitions.stop_circuit(circuit.circuit_id))
        for profile in self.engine.library.profiles.list():
            self.engine.profiles.delete(profile.id)
        for attachment in self.engine.desk.state.attachments:
            self.engine.attachments.detach(attachment.sae_id)
        for sae in self.engine.saes.list():
            self.engine.saes.delete(sae.id)

    # --- requests ---------------------------------------------------------------------------------------------------

    def ask(self, **body: Any) -> httpx.Response:
        """A text completion that goes on to its cap; it must succeed."""
        response = self.live.text(**{"ignore_eos": True, "max_tokens": 16, **body})
        assert response.status_code == 200, response.text
        return response

    def text(self, **body: Any) -> str:
        """The text of :meth:`ask`."""
        return str(self.ask(**body).json()["choices"][0]["text"])

    def report(self, **body: Any) -> str:
        """What the answer of :meth:`ask` says was added."""
        return self.ask(**body).headers[STEERING]

    def refused(self, path: str = TEXT, **body: Any) -> tuple[int, str, str | None, str]:
        """(status, code, param, message) of a refusal."""
        response = self.live.chat(**body) if path == CHAT else self.live.text(**body)
        assert response.headers["content-type"] == "application/json"
        error = response.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        return response.status_code, error["code"], error["param"], error["message"]

    def stream(self, path: str = TEXT, **body: Any) -> tuple[httpx.Response, list[dict[str, Any]]]:
        """The response and all JSON events of a stream that ends with ``[DONE]``."""
        with self.live.http() as client, connect_sse(client, "POST", path, json=stream_body(path, **body)) as source:
            data = [event.data for event in source.iter_sse()]
        assert data.count("[DONE]") == 1
        assert data[-1] == "[DONE]"
        return source.response, [json.loads(item) for item in data[:-1]]


def stream_body(path: str, **body: Any) -> dict[str, Any]:
    """A body for ``path`` that streams to its cap."""
    make = chat_body if path == CHAT else text_body
    return make(**{"stream": True, "ignore_eos": True, "max_tokens": 16, **body})


def inline(*features: tuple[int, float], sae_id: str | None = None) -> dict[str, Any]:
    """A ``steering`` object."""
    wire: dict[str, Any] = {"features": [{"index": index, "strength": strength} for index, strength in features]}
    return wire if sae_id is None else {"sae_id": sae_id, **wire}
