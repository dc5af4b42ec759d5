"""The transformers backend: loads a checkpoint folder and runs it on CUDA, MPS or the CPU.

The decode loop is ours; the library gives the model's forward. Rows of different lengths decode in one batch on the
slab of ``kv.py``. A family not proven by our tests is compared with the library's own forward when it is
loaded; where the two disagree, or its layers keep a state that is no KV (Mamba, linear attention), each lane runs
alone on the library's cache.

Shapes: ``vocab`` is the width of the logits. Everything runs under ``torch.inference_mode`` on the engine thread.
"""

from __future__ import annotations

import gc
import inspect
import logging
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from engine.checked import of_kind
from engine.counting import so_many
from engine.errors import (
    CheckpointInvalid,
    EngineUnsupported,
    InsufficientMemory,
    InvalidParameter,
    MillmError,
    ModelLoadFailed,
    described,
)
from engine.models.backends import trial
from engine.models.backends.backend import Capabilities, KvNeed, KVStore, ModelInfo
from engine.models.backends.batch_invariance import Layout, lay_out, pad, without_padding
from engine.models.backends.kv import KVSlab, Step, slots_taken
from engine.models.backends.load_progress import Report, reporting_bars
from engine.models.backends.masks import MASKABLE, attention_kinds, step_masks
from engine.models.backends.module_state import LibraryStore, ModuleState
from engine.models.backends.prepacked import pack
from engine.models.backends.rehearsal import refuse_gaps
from engine.models.backends.residual import Intervention, ResidualHooks
from engine.models.backends.tokenizer import CheckpointTokenizer
from engine.models.hardware.devices import (
    DevicePlacement,
    describe_device,
    is_out_of_memory,
    on_device,
    release_cached_memory,
)

log = logging.getLogger(__name__)

PROVEN = frozenset(
    {
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "phi3",
        "gemma2",
        "gemma3_text",
        "cohere2",
        "olmo2",
        "gpt2",
        "gpt_neox",
    }
)
"""``model_type`` of the families whose batched decoding the test-suite compares with the library's forward."""


class TransformersBackend:
    """A loaded checkpoint. Build it with :meth:`load`."""

    def __init__(self, model: Any, tokenizer: CheckpointTokenizer) -> None:
        self._model = model
        self._config = model.config.get_text_config(decoder=True)
        self.tokenizer = tokenizer
        self.device: torch.device = model.device
        self.dtype: torch.dtype = model.dtype
        self._kinds = attention_kinds(self._config)
        # The library chose: eager adds the mask to the scores; sdpa takes a boolean one too, but turns it into what it
        # adds (−∞) in every layer anew on a CPU, so it is made once for all of them.
        eager = self._config._attn_implementation == "eager"
        self._additive = self.dtype if eager or self.device.type == "cpu" else None
        self._mask_floor = None if eager else -math.inf
        accepted = inspect.signature(model.forward).parameters
        # transformers 5.24 renamed `past_key_values`; the old name still works there but warns.
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._keep = next((name for name in ("logits_to_keep", "num_logits_to_keep") if name in accepted), None)
        self._positions = "position_ids" in accepted
        if self._cache_name not in accepted:
            raise trial.no_cache(self)
        self._hooks = ResidualHooks(model, self._n_layers())
        self._num_parameters = int(model.num_parameters())
        self._packing = pack(model, self.device, self.dtype)
        self._vocab = self._writable()
        self._in_modules = ModuleState(model)
        self.capabilities = Capabilities(False)
        self.capabilities = self._find_capabilities()
        tried = trial.tried(self, known=self.model_type in PROVEN)
        self.capabilities = replace(tried, all_logits=True, copies_lone=tried.batching)
        self.info = self._describe()
        self.kv_bytes_per_token = max(1, 2 * self._n_layers() * _kv_width(self._config) * self.dtype.itemsize)
        self.kv_cells: int | None = None
        self._reads_alike: bool | None = None

    # --- loading ----------------------------------------------------------------------------------------------------

    @classmethod
    def load(
        cls,
        folder: Path,
        placement: DevicePlacement,
        report: Report,
        *,
        trust_remote_code: bool = False,
        quantization: Any = None,
    ) -> TransformersBackend:
        """Load ``folder`` (config, tokenizer, safetensors) to ``placement``; ``quantization`` is the library's
        configuration for quantising on the way, or None.

        ``report`` is called with (share 0–1, stage); an error it raises ends the load. Raises
        :class:`ModelLoadFailed` or :class:`InsufficientMemory` with the cause in the message,
        :class:`CheckpointInvalid` for the tokenizer.
        """
        try:
            report(0.0, "Reading the tokenizer")
            config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
            # Weights that are quantised on the way are made on their device and cannot be moved afterwards.
            quantized: dict[str, Any] = {}
            if quantization is not None:
                quantized = {"quantization_config": quantization, "device_map": {"": placement.device}}
            with reporting_bars(report):
                model, found = AutoModelForCausalLM.from_pretrained(
                    folder,
                    config=config,
                    dtype=placement.dtype,
                    trust_remote_code=trust_remote_code,
                    local_files_only=True,
                    # Gaps and misfits are refused by name below; the library's own error names nothing.
                    ignore_mismatched_sizes=True,
                    output_loading_info=True,
                    **quantized,
                )
            refuse_gaps(folder, found)
            report(1.0, f"Moving to {placement.device}")
            if quantization is None:
                model.to(placement.device)
            model.eval()
            tokenizer = CheckpointTokenizer.load(folder, _declared_eos(model))
            with torch.inference_mode():
                return cls(model, tokenizer)
        except MillmError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise InsufficientMemory(
                    f"{describe_device(placement.device)} ran out of memory while loading {folder.name}.",
                    remedy="Close other programs that use this memory, or choose a smaller model.",
                ) from error
            if isinstance(error, ImportError):
                said = " ".join(str(error).split())[:300]
                raise EngineUnsupported(
                    f"Loading {folder.name} needs what is not installed here: {said}",
                    param="model",
                    remedy="Use the model's plain checkpoint, or a GGUF file of it.",
                ) from error
            log.exception("loading %s failed", folder)
            said = " ".join(str(error).split())[:300]
            raise ModelLoadFailed(
                f"Loading {folder.name} failed: {type(error).__name__}: {said}",
                details={"path": str(folder)},
                remedy="The log file has the full report; check the checkpoint's files.",
            ) from error

    def _find_capabilities(self) -> Capabilities:
        strange = sorted(set(self._kinds) - MASKABLE)
        if strange:
            return Capabilities(False, f"layers of the kind {', '.join(strange)} keep a state that is not batched here")
        if not self._positions:
            return Capabilities(False, "the model takes no token positions")
        if self.model_type in PROVEN:
            # Kernels of a GPU were not looked at: there prompts are read one by one where bits matter.
            return Capabilities(True, reads_together=True, reads_alike=self.device.type == "cpu")
        return self._probe()

    def _probe(self) -> Capabilities:
        """Compare the slab with the library's own forward on a short input, rows of two lengths in one batch."""
        ids = [(7 * i + 3) % self._vocab_rows() for i in range(12)]
        try:
            expected = self._plain_logits(ids)
            batch = KVSlab(self._n_layers(), self.device, 0)
            for cut in (4, 8):
                row = KVSlab(self._n_layers(), self.device, 1)
                self._extend_slab(row, ids[:cut])
                batch.join(row)
            for step in range(4):
                found = self._decode_slab(batch, [ids[4 + step], ids[8 + step]])
        except Exception as error:
            log.warning("batched decoding does not work for %s: %s", self._config.model_type, error)
            return Capabilities(False, f"its forward refuses batched decoding ({type(error).__name__})")
        spread = float(expected.std()) + 1e-6
        drift = max(
            float((found[1] - expected).abs().max()), float((found[0] - self._plain_logits(ids[:8])).abs().max())
        )
        if drift / spread > trial.tolerance(self.dtype):
            return Capabilities(False, f"batched decoding changed its logits by {drift / spread:.2g} of their spread")
        return Capabilities(True)

    def _plain_logits(self, ids: list[int]) -> Tensor:
        output = self._model(input_ids=torch.tensor([ids], device=self.device), use_cache=False)
        return cast(Tensor, output.logits[0, -1, : self._vocab].float())

    def _n_layers(self) -> int:
        return int(self._config.num_hidden_layers)

    def _vocab_rows(self) -> int:
        return int(self._model.get_input_embeddings().num_embeddings)

    @property
    def model_type(self) -> str:
        """The family, in transformers' word."""
        return str(self._config.model_type)

    @property
    def architecture(self) -> str:
        """The class of the model."""
        return type(self._model).__name__

    def _writable(self) -> int:
        """Ids that can be chosen: a head may be wider than the embedding, which would have to read them next."""
        head = self._model.get_output_embeddings()
        width = int(head.out_features) if head is not None else int(self._config.vocab_size)
        return min(width, self._vocab_rows())

    def _check_ids(self, rows: Sequence[Sequence[int]]) -> None:
        """Raise :class:`InvalidParameter` before a pass that would look beyond the embedding's rows.

        Requests are looked at when they come in; this is for whoever else calls. What the libraries do instead depends
        on the device and the layer: an error, another token's row, or a card that answers nobody any more.
        """
        end = self._vocab_rows()
        outside = next((token for row in rows for token in row if not 0 <= token < end), None)
        if outside is not None:
            raise InvalidParameter(f"Token {outside} is outside the model's embedding of {end} rows.")

    def _describe(self) -> ModelInfo:
        kept = [*self._model.parameters(), *self._model.buffers()]
        return ModelInfo(
            architecture=self.architecture,
            n_layers=self._n_layers(),
            d_model=int(self._config.hidden_size),
            vocab_size=self._vocab,
            readable_ids=self._vocab_rows(),
            context_length=int(getattr(self._config, "max_position_embeddings", 0) or 2048),
            num_parameters=self._num_parameters,
            memory_bytes=sum(each.nbytes for each in kept) + self._packing.nbytes,
            device=describe_device(self.device),
            dtype=str(self.dtype).removeprefix("torch."),
            has_chat_template=self.tokenizer.has_chat_template,
            backend_word="cbm" if self.capabilities.batching else "serial",
            blocks_path=self._hooks.path,
        )

    # --- running ----------------------------------------------------------------------------------------------------

    def kv_tokens(self, needs: Sequence[KvNeed]) -> int:
        """Slots that slabs of these rows take: the batch as one block, every other row by itself."""
        batched = [need.tokens for need in needs if need.batched and self.capabilities.batching]
        apart = [need.tokens for need in needs if not (need.batched and self.capabilities.batching)]
        return slots_taken(batched) + sum(slots_taken([tokens]) for tokens in apart)

    def new_store(self, *, alone: bool = False, tokens: int = 0) -> KVStore:
        """An empty store of one row. Every row here computes as if it were alone."""
        if not self.capabilities.batching:
            return LibraryStore(self._model.config)
        return KVSlab(self._n_layers(), self.device, 1)

    def new_batch(self, *, shared: bool = False) -> KVStore:
        """An empty store of no rows."""
        return KVSlab(self._n_layers(), self.device, 0)

    def extend(self, store: KVStore, token_ids: Sequence[int], work: Intervention | None = None) -> Tensor:
        """Feed tokens to the one row of ``store``; float32 logits ``[vocab]`` after the last."""
        self._check_ids([token_ids])
        with torch.inference_mode(), self._guarded(len(token_ids), 1), self._hooks.working(work):
            if isinstance(store, KVSlab):
                return self._extend_slab(store, token_ids)
            store = of_kind(LibraryStore, store)
            for part in self._parts(store, token_ids):
                output = self._call_library(self._model, store, part, **self._keep_last())
            return cast(Tensor, output.logits[0, -1, : self._vocab].float())

    def read_together(
        self, prompts: Sequence[Sequence[int]], work: Intervention | None = None
    ) -> tuple[list[KVStore], Tensor]:
        """Read several prompts in one forward, padded at their ends; a store for each, and ``[prompts, vocab]``.

        A padded position comes after all real ones of its row, so none of them looks at it.
        """
        self._check_ids(prompts)
        lengths = [len(prompt) for prompt in prompts]
        lasts = sorted({length - 1 for length in lengths})
        padded = Layout(pad(prompts, max(lengths)), lasts, [lasts.index(length - 1) for length in lengths])
        with torch.inference_mode(), self._guarded(max(lengths), len(prompts)), self._hooks.working(work):
            slab, logits = self._forward_whole(prompts, padded)
            slab.commit()
            slab.cut(lengths)
            return [slab.fork(row, length) for row, length in enumerate(lengths)], logits

    def logits_at_ends(self, prompts: Sequence[Sequence[int]], work: Intervention | None = None) -> Tensor:
        """Float32 logits ``[prompts, vocab]`` after the last token of each, the same bits whichever go together.

        That the kernels of this machine keep to it is looked at once, on the first prompts that come together; where
        they do not, each has a pass of its own.
        """
        if len(prompts) == 1 or self._reads_alike is False:
            return torch.cat([self._read_ends([prompt], work) for prompt in prompts])
        found = self._read_ends(prompts, work)
        if self._reads_alike is None:
            shortest = min(range(len(prompts)), key=lambda row: len(prompts[row]))
            alone = self._read_ends([prompts[shortest]], None)[0]
            self._reads_alike = torch.allclose(alone, found[shortest], rtol=0, atol=0, equal_nan=True)
            if not self._reads_alike:
                log.warning("prompts read in one pass give other bits than each alone here; they are read one by one")
                return self.logits_at_ends(prompts, work)
        return found

    def _read_ends(self, prompts: Sequence[Sequence[int]], work: Intervention | None) -> Tensor:
        self._check_ids(prompts)
        layout = lay_out(prompts)
        if work is not None:
            (prompt,) = prompts
            work = without_padding(work, len(prompt))
        with torch.inference_mode(), self._guarded(layout.width, len(prompts)), self._hooks.working(work):
            return self._forward_whole(prompts, layout)[1]

    def _forward_whole(self, prompts: Sequence[Sequence[int]], layout: Layout) -> tuple[KVSlab, Tensor]:
        """One forward over whole prompts: a new slab, not yet committed, and float32 logits after each last token."""
        slab = KVSlab(self._n_layers(), self.device, len(prompts))
        keep = {self._keep: on_device(layout.kept, self.device)} if self._keep else {}
        ids = on_device(layout.ids, self.device)
        output = self._model(input_ids=ids, **self._slab_arguments(slab, slab.begin(layout.width)), **keep)
        places = layout.ends if self._keep else [len(prompt) - 1 for prompt in prompts]
        rows = torch.arange(len(prompts), device=self.device)
        return slab, cast(Tensor, output.logits[rows, on_device(places, self.device), : self._vocab].float())

    def extend_all(self, store: KVStore, token_ids: Sequence[int], work: Intervention | None = None) -> Tensor:
        """As :meth:`extend`, with the logits after each of the tokens: float32 ``[tokens, vocab]``."""
        self._check_ids([token_ids])
        with torch.inference_mode(), self._guarded(len(token_ids), 1), self._hooks.working(work):
            ids = torch.tensor([list(token_ids)], device=self.device)
            if isinstance(store, KVSlab):
                step = store.begin(len(token_ids))
                output = self._model(input_ids=ids, **self._slab_arguments(store, step))
                store.commit()
            else:
                store = of_kind(LibraryStore, store)
                parts = [self._call_library(self._model, store, part) for part in self._parts(store, token_ids)]
                return torch.cat([part.logits[0, :, : self._vocab].float() for part in parts])
            return cast(Tensor, output.logits[0, :, : self._vocab].float())

    def hidden(self, store: KVStore, token_ids: Sequence[int]) -> Tensor:
        """Feed tokens to the one row of ``store``; their states after the final norm, float32 ``[tokens, d_model]``."""
        self._check_ids([token_ids])
        with torch.inference_mode(), self._guarded(len(token_ids), 1), self._hooks.working(None):
            ids = torch.tensor([list(token_ids)], device=self.device)
            decoder = self._decoder()
            if isinstance(store, KVSlab):
                step = store.begin(len(token_ids))
                output = decoder(input_ids=ids, **self._slab_arguments(store, step))
                store.commit()
            else:
                store = of_kind(LibraryStore, store)
                parts = [self._call_library(decoder, store, part) for part in self._parts(store, token_ids)]
                return torch.cat([part.last_hidden_state[0].float() for part in parts])
            return cast(Tensor, output.last_hidden_state[0].float())

    def decode(self, batch: KVStore, token_ids: Sequence[int], work: Intervention | None = None) -> Tensor:
        """Feed one token to each row; float32 logits ``[rows, vocab]``."""
        batch = of_kind(KVSlab, batch)
        self._check_ids([token_ids])
        with torch.inference_mode(), self._guarded(1, len(token_ids)), self._hooks.working(work):
            return self._decode_slab(batch, token_ids)

    def join(self, batch: KVStore, store: KVStore) -> int:
        """Copy the row of ``store`` to the end of ``batch``; its row number."""
        batch, store = of_kind(KVSlab, batch), of_kind(KVSlab, store)
        with torch.inference_mode(), self._guarded(store.lengths[0], 1):
            return batch.join(store)

    def fork(self, store: KVStore, row: int, length: int) -> KVStore | None:
        """A copy of the first ``length`` tokens of a row; None on the library's cache, which cannot be cut."""
        if not isinstance(store, KVSlab):
            return None
        with torch.inference_mode(), self._guarded(length, 1):
            return store.fork(row, length)

    def cut(self, store: KVStore, length: int) -> None:
        """Forget all but the first ``length`` tokens of a row."""
        of_kind(KVSlab, store).cut([length])

    def leave(self, batch: KVStore, row: int) -> None:
        """Remove a row; the last one takes its number."""
        batch = of_kind(KVSlab, batch)
        with torch.inference_mode():
            batch.leave(row)

    def watch_layers(self, layers: Collection[int]) -> None:
        """Have hooks on exactly ``layers``, so that a pass with work there installs nothing."""
        self._hooks.install(layers)

    def passes_steered(self, layer: int) -> int:
        """How many passes added something at ``layer`` since the model was loaded."""
        return self._hooks.passes_steered[layer]

    def close(self) -> None:
        self._hooks.release()
        self._in_modules.release()
        self._model = None
        gc.collect()
        release_cached_memory(self.device)

    def _parts(self, store: LibraryStore, token_ids: Sequence[int]) -> Iterator[Sequence[int]]:
        """What is fed in one call: all, or token by token where the model cannot go on with several."""
        if self.capabilities.chunks or not store.lengths[0]:
            yield token_ids
        else:
            yield from ([token] for token in token_ids)

    def _call_library(self, module: Any, store: LibraryStore, token_ids: Sequence[int], **more: Any) -> Any:
        ids = torch.tensor([list(token_ids)], device=self.device)
        with self._in_modules.of(store):
            output = module(input_ids=ids, use_cache=True, **{self._cache_name: store.cache}, **more)
        store.lengths[0] += len(token_ids)
        return output

    def _extend_slab(self, slab: KVSlab, token_ids: Sequence[int]) -> Tensor:
        return self._forward_slab(slab, on_device([list(token_ids)], self.device))[0]

    def _decode_slab(self, slab: KVSlab, token_ids: Sequence[int]) -> Tensor:
        return self._forward_slab(slab, on_device([[token] for token in token_ids], self.device))

    def _forward_slab(self, slab: KVSlab, ids: Tensor) -> Tensor:
        """One forward over all rows of ``slab``; ``ids`` is ``[rows, width]``. Returns ``[rows, vocab]`` float32."""
        step = slab.begin(ids.shape[1])
        output = self._model(input_ids=ids, **self._slab_arguments(slab, step), **self._keep_last())
        slab.commit()
        return cast(Tensor, output.logits[:, -1, : self._vocab].float())

    def _slab_arguments(self, slab: KVSlab, step: Step) -> dict[str, Any]:
        return {
            "attention_mask": step_masks(
                self._kinds, step, self._config, additive=self._additive, floor=self._mask_floor
            ),
            "position_ids": step.positions,
            "use_cache": True,
            self._cache_name: slab,
        }

    def _decoder(self) -> Any:
        """The model below its head: the module whose output is ``last_hidden_state``."""
        return self._model.get_decoder()

    def _keep_last(self) -> dict[str, int]:
        return {self._keep: 1} if self._keep else {}

    def _guarded(self, tokens: int, rows: int) -> _MemoryGuard:
        return _MemoryGuard(self.device, tokens, rows)


class _MemoryGuard:
    """Turns exhausted memory inside the block into a typed error that names the device, and gives memory back."""

    def __init__(self, device: torch.device, tokens: int, rows: int) -> None:
        self._device = device
        self._tokens = tokens
        self._rows = rows

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or not is_out_of_memory(error):
            return
        release_cached_memory(self._device)
        raise InsufficientMemory(
            f"{describe_device(self._device)} ran out of memory on a pass of {so_many(self._rows, 'row')} "
            f"of {so_many(self._tokens, 'token')}.",
            details={
                "phase": "generation",
                "device": str(self._device),
                "rows": self._rows,
                "tokens": self._tokens,
            },
            remedy="Ask for fewer tokens, send fewer requests at once, or load a smaller model.",
        ) from error


def _kv_width(config: Any) -> int:
    """Values that a token's keys take in one layer; 0 for a model without attention."""
    stated = getattr(config, "num_attention_heads", None)
    if stated is None:
        return 0
    heads = int(stated)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    return int(getattr(config, "num_key_value_heads", None) or heads) * width


def _declared_eos(model: Any) -> list[int]:
    """End-of-sequence ids that the generation config and the model config declare; each may be one id, a list or
    None.
    """
    found: list[int] = []
    for config in (getattr(model, "generation_config", None), model.config, model.config.get_text_config(decoder=True)):
        declared = getattr(config, "eos_token_id", None)
        if isinstance(declared, int):
            found.append(declared)
        elif isinstance(declared, list | tuple):
            wrong = [item for item in declared if not isinstance(item, int) or isinstance(item, bool)]
            if wrong:
                raise CheckpointInvalid(
                    f"The model's configuration has {described(wrong[0])} among its end tokens (eos_token_id), where "
                    "whole numbers belong.",
                    details={"problems": ["eos_token_id holds what is no token"]},
                    remedy="Download the model's generation_config.json again.",
                )
            found.extend(declared)
    return list(dict.fromkeys(found))
