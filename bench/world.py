"""What the figures are measured on: the demo model in a real engine behind a real server, and the library's own
``generate``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from engine.actions.importing import import_local_model
from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.database import Library
from engine.models.shelf import LoadedModel
from server.config import ServerSettings
from server.thread import ServerThread

PROMPT = "Tell me about the sea, the ships on it and the people who sail them, in a few sentences."


@dataclass(frozen=True)
class World:
    """A running program: engine, resident model, server address."""

    engine: Engine
    loaded: LoadedModel
    address: str
    client: httpx.Client

    def stream_tokens_per_second(self, tokens: int, prompt: str = PROMPT) -> float:
        """Tokens per second of one greedy stream over HTTP, from sending the request to the last byte."""
        body = {
            "model": self.loaded.record.name,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        begun = time.perf_counter()
        with self.client.stream("POST", f"{self.address}/chat/completions", json=body) as response:
            response.raise_for_status()
            for _ in response.iter_bytes():
                pass
        return tokens / (time.perf_counter() - begun)

    def generate_tokens_per_second(self, tokens: int, prompt: str = PROMPT) -> float:
        """Tokens per second of transformers' ``generate`` in process: same weights, dtype, prompt and count."""
        import torch

        tokenizer = self.loaded.backend.tokenizer
        text = tokenizer.render_chat(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, continue_final=False, kwargs={}
        )
        ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)], device=self.loaded.backend.device)
        model: Any = self.loaded.backend._model  # type: ignore[attr-defined]
        begun = time.perf_counter()
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=tokens,
                max_new_tokens=tokens,
            )
        assert out.shape[1] == ids.shape[1] + tokens
        return tokens / (time.perf_counter() - begun)


@contextmanager
def open_world(model: Path, **settings: object) -> Iterator[World]:
    """The program with ``model`` loaded and its server on a free port, in a data directory of its own."""
    with TemporaryDirectory() as folder:
        library = Library.open(Path(folder) / "millm.db")
        engine = Engine(EngineSettings(**settings), library)  # type: ignore[arg-type]
        engine.start()
        try:
            record = import_local_model(library, engine.events, model, name="bench")
            loaded = engine.loader.load(record.id).result()
            server = ServerThread(engine, ServerSettings(PORT=0))
            server.start()
            try:
                with httpx.Client(timeout=600) as client:
                    yield World(engine, loaded, server.wait_ready(60), client)
            finally:
                server.stop()
        finally:
            engine.stop(30)
            library.close()
