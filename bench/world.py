"""What the figures are measured on: the demo model in a real engine behind a real server, and the library's own
``generate``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import httpx

from engine.actions.models.importing import import_local_model
from engine.config import EngineSettings
from engine.engine import Engine
from engine.generation.consume import collect
from engine.generation.request import ChatInput, GenerationRequest, Message
from engine.library.database import Library
from engine.models.registry import LoadedModel
from engine.saes.attachment import Attachment
from engine.saes.config import Architecture, SaeConfig, SourceFormat
from engine.saes.sae import Sae
from engine.sampling import Sampling
from engine.steering import transitions
from server.config import ServerSettings
from server.thread import ServerThread

T = TypeVar("T")
SAE_IDS = ("bench-low", "bench-middle", "bench-high")
PROMPT = "Tell me about the sea, the ships on it and the people who sail them, in a few sentences."


@dataclass(frozen=True)
class World:
    """A running program: engine, resident model, server address."""

    engine: Engine
    loaded: LoadedModel
    address: str
    client: httpx.Client

    def stream_tokens_per_second(self, tokens: int, prompt: str = PROMPT, **fields: object) -> float:
        """Tokens per second of one greedy stream over HTTP, from sending the request to the last byte."""
        body = {
            "model": self.loaded.record.name,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
            **fields,
        }
        begun = time.perf_counter()
        with self.client.stream("POST", f"{self.address}/chat/completions", json=body) as response:
            response.raise_for_status()
            for _ in response.iter_bytes():
                pass
        return tokens / (time.perf_counter() - begun)

    def clients_tokens_per_second(self, clients: int, tokens: int, dials: bool) -> float:
        """Tokens per second of several greedy streams at once, all together; ``dials``: each steers otherwise."""
        fields: list[dict[str, object]] = [
            {"steering": {"sae_id": SAE_IDS[0], "features": [{"index": turn, "strength": 1.0 + turn}]}} if dials else {}
            for turn in range(clients)
        ]
        begun = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            for _ in pool.map(lambda own: self.stream_tokens_per_second(tokens, **own), fields):
                pass
        return clients * tokens / (time.perf_counter() - begun)

    def decode_tokens_per_second(self, tokens: int) -> float:
        """Tokens per second of one greedy answer in process, without HTTP, following the live steering."""
        request = GenerationRequest(
            self.loaded.record.name,
            ChatInput((Message("user", PROMPT),)),
            Sampling(temperature=0.0, ignore_eos=True),
            max_tokens=tokens,
        )
        prepared = self.engine.generation.prepare(request)
        begun = time.perf_counter()
        collect(self.engine.generation, prepared)
        return tokens / (time.perf_counter() - begun)

    def attach_random_saes(self, features: int = 3072) -> None:
        """Attach top-k SAEs of random unit rows at three layers; what a feature means does not matter to speed."""
        stream = self.engine.desk.state.stream
        assert stream is not None
        layers = [stream.n_layers // 3, stream.n_layers // 2, 2 * stream.n_layers // 3]
        attachments = []
        for sae_id, layer in zip(SAE_IDS, layers, strict=True):
            sae = _random_sae(stream.d_model, features, layer).to(stream.device, stream.dtype)
            attachments.append(Attachment(sae_id, layer, sae, f"{stream.blocks_path}.{layer}", sae.nbytes))
        self.loaded.backend.watch_layers(layers)
        self.engine.desk.apply(transitions.attach(attachments))
        self.engine.monitor.set_attachments(attachments)

    def steer_three_layers(self, strength: float) -> None:
        """Steer one feature on each of the three layers; 0 clears."""
        for each in self.engine.desk.state.attachments:
            if strength:
                self.engine.desk.apply(transitions.set_values((each.sae_id, each.layer), {5: strength}))
            else:
                self.engine.desk.apply(transitions.clear((each.sae_id, each.layer)))

    def first_token_seconds(self, prompt: str) -> float:
        """Seconds from sending a streamed text completion to the first bytes of its first token."""
        body = {"model": self.loaded.record.name, "prompt": prompt, "temperature": 0, "max_tokens": 4, "stream": True}
        # Some prompts are answered with nothing: the time to the first token is wanted all the same.
        body["ignore_eos"] = True
        begun = time.perf_counter()
        with self.client.stream("POST", f"{self.address}/completions", json=body) as response:
            response.raise_for_status()
            for line in response.iter_lines():
                if line.startswith("data: {") and '"text": ""' not in line and '"text":""' not in line:
                    return time.perf_counter() - begun
        raise RuntimeError("the stream ended without a token")

    def on_engine_thread(self, job: Callable[[], T]) -> T:
        """Run ``job`` where passes are made."""
        return self.engine.generation._thread.run(job).result()

    def one_at_a_time_tokens_per_second(self, clients: int, tokens: int) -> float:
        """Several dials as servers with one steering for all do it: set it, generate, set it back, the next one."""
        begun = time.perf_counter()
        for _ in range(clients):
            self.generate_tokens_per_second(tokens, hooks=True)
        return clients * tokens / (time.perf_counter() - begun)

    def _hooks(self, model: Any) -> list[Any]:
        """Forward hooks of the usual kind: a vector added to a block's output, on three layers."""
        handles = []
        for each in self.engine.desk.state.attachments:
            vector = 2.0 * each.sae.delta({5: 1.0}).to(model.device, model.dtype)

            def add(_module: Any, _inputs: Any, output: Any, vector: Any = vector) -> Any:
                return (output[0] + vector, *output[1:]) if isinstance(output, tuple) else output + vector

            handles.append(model.model.layers[each.layer].register_forward_hook(add))
        return handles

    @cached_property
    def _plain_model(self) -> Any:
        from transformers import AutoModelForCausalLM

        backend: Any = self.loaded.backend
        folder = self.loaded.record.local_path
        assert folder is not None
        return AutoModelForCausalLM.from_pretrained(folder, dtype=backend.dtype).to(backend.device).eval()

    def generate_tokens_per_second(self, tokens: int, prompt: str = PROMPT, *, hooks: bool = False) -> float:
        """Tokens per second of transformers' ``generate`` in process, on a model of its own as the library loads it.

        Checkpoint, dtype, device, prompt and count are the same.

        ``hooks``: steered on three layers by plain forward hooks, put on before and taken off after.
        """
        import torch

        tokenizer = self.loaded.backend.tokenizer
        text = tokenizer.render_chat(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, continue_final=False, kwargs={}
        )
        ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)], device=self.loaded.backend.device)
        model = self._plain_model
        begun = time.perf_counter()
        handles = self._hooks(model) if hooks else []
        try:
            with torch.inference_mode():
                out = model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    do_sample=False,
                    min_new_tokens=tokens,
                    max_new_tokens=tokens,
                )
        finally:
            for handle in handles:
                handle.remove()
        assert out.shape[1] == ids.shape[1] + tokens
        return tokens / (time.perf_counter() - begun)


def _random_sae(d_in: int, d_sae: int, layer: int) -> Sae:
    import torch

    draw = torch.Generator().manual_seed(layer)
    rows = torch.nn.functional.normalize(torch.randn(d_sae, d_in, generator=draw), dim=1)
    config = SaeConfig(Architecture.TOPK, d_in, d_sae, SourceFormat.SAELENS, k=32, layer=layer)
    zeros = {"b_enc": torch.zeros(d_sae), "b_dec": torch.zeros(d_in)}
    return Sae(config, {"W_enc": rows.T.contiguous(), "W_dec": rows, **zeros})


@contextmanager
def open_world(model: Path, **settings: object) -> Iterator[World]:
    """The program with ``model`` loaded and its server on a free port, in a data directory of its own."""
    with TemporaryDirectory() as folder:
        library = Library.open(Path(folder) / "millm.db")
        engine = Engine(EngineSettings(**settings), library)
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
