"""The llama.cpp backend: a GGUF file behind the interface of ``engine.models.backends.backend``.

Answers share one context by its sequences and are decoded in one call. The scheduler, sampling, text and steering plans
are those of every model; here token ids become logits, and a pass's work reaches the layers.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

import torch
from torch import Tensor

from engine.checked import of_kind, there
from engine.errors import EngineUnsupported, GenerationFailed
from engine.models.backends.backend import LLAMACPP_WORD, Capabilities, KvNeed, KVStore, ModelInfo, RowsRefused
from engine.models.backends.llamacpp.context import ContextOptions, LlamaContext, NoCells, no_room
from engine.models.backends.llamacpp.control_vector import ControlVector, grouped
from engine.models.backends.llamacpp.eval_callback import Shape, Tap
from engine.models.backends.llamacpp.guard import guarded
from engine.models.backends.llamacpp.model import LlamaModel
from engine.models.backends.llamacpp.placement import GgufPlacement
from engine.models.backends.llamacpp.probe import probe
from engine.models.backends.llamacpp.store import LlamaStore, Pool
from engine.models.backends.llamacpp.tokenizer import GgufTokenizer
from engine.models.backends.load_progress import Report
from engine.models.backends.residual import Intervention


class LlamaCppBackend:
    """A loaded GGUF model. Build it with :meth:`load`.

    ``device`` and ``dtype`` are those of what goes in and out (deltas, residuals, logits), wherever the weights are.
    """

    def __init__(self, model: LlamaModel, placement: GgufPlacement) -> None:
        self._model = model
        self._placement = placement
        self.device = torch.device("cpu")
        self.dtype = torch.float32
        self._taps: list[Tap] = []
        self.tokenizer = GgufTokenizer(model)
        steering = probe(model, self._make)
        # What the probe steered is nobody's.
        self._taps.clear()
        self.capabilities = Capabilities(
            True, reads_together=True, steering=steering, all_logits=True, cuts_lone=not model.keeps_state
        )
        self._control = None if steering.rows or not steering.control else ControlVector(model)
        self._pool = Pool(
            self._make,
            cells=placement.cells,
            sequences=placement.sequences,
            bytes_per_token=placement.bytes_per_token,
        )
        self.kv_bytes_per_token = placement.bytes_per_token
        self.kv_cells: int | None = placement.cells
        self.info = self._describe()

    @classmethod
    def load(cls, placement: GgufPlacement, report: Report) -> LlamaCppBackend:
        """Load the file of ``placement``. ``report`` as in :meth:`LlamaModel.load`.

        Raises :class:`ModelLoadFailed`, :class:`EngineUnsupported`, and whatever ``report`` raises.
        """

        def load() -> LlamaCppBackend:
            model = LlamaModel.load(placement.path, placement.gpu_layers, report)
            try:
                report(1.0, "Trying out what can be steered")
                return cls(model, placement)
            except BaseException:
                # Contexts that were made go with their last reference, before the weights.
                gc.collect()
                model.close()
                raise

        return guarded(load, placement.path.name)

    def _make(self, cells: int, sequences: int, tapped: bool) -> LlamaContext:
        tap = None
        if tapped:
            tap = Tap(self._model.d_model, direct=not self._placement.offloaded)
            self._taps.append(tap)
        return LlamaContext(self._model, self._options(), cells=cells, sequences=sequences, tap=tap)

    def _options(self) -> ContextOptions:
        placement = self._placement
        return ContextOptions(
            batch=placement.batch,
            threads=placement.threads,
            kv_type=placement.kv_type,
            flash_attention=placement.flash_attention,
            offloaded=placement.offloaded,
        )

    def _describe(self) -> ModelInfo:
        return ModelInfo(
            architecture=self._model.architecture,
            n_layers=self._model.n_layers,
            d_model=self._model.d_model,
            vocab_size=self._model.vocab_size,
            readable_ids=self._model.vocab_size,
            context_length=self._placement.window,
            num_parameters=self._model.params,
            memory_bytes=self._model.nbytes,
            device="GPU, by llama.cpp" if self._placement.offloaded else "cpu",
            dtype="float32",
            has_chat_template=self.tokenizer.has_chat_template,
            backend_word=LLAMACPP_WORD,
            blocks_path="model.layers",
        )

    # --- stores -----------------------------------------------------------------------------------------------------

    def kv_tokens(self, needs: Sequence[KvNeed]) -> int:
        """Cells of the shared context that are taken; what stands alone has a context of its own, and a copy takes the
        cells of what it was made from.
        """
        return sum(need.tokens for need in needs if not need.alone and not need.copied)

    def new_store(self, *, alone: bool = False, tokens: int = 0) -> LlamaStore:
        """An empty store of one row."""
        return self._pool.new(alone=alone, tokens=tokens)

    def new_batch(self, *, shared: bool = False) -> LlamaStore:
        """An empty store of no rows."""
        store = self._pool.empty()
        store.shared = shared
        return store

    def join(self, batch: KVStore, store: KVStore) -> int:
        """Copy the row of ``store`` to the end of ``batch``; its row number."""
        batch, store = of_kind(LlamaStore, batch), of_kind(LlamaStore, store)
        if not batch.sequences and store.alone and not batch.shared:
            # The copy of a lone store is as lone as it is.
            batch.alone, batch.tokens = True, store.tokens
        while not self._pool.copy_row(store, 0, batch):
            if not self._pool.make_room():
                raise no_room(store.lengths[0], self._placement.cells)
        return len(batch.lengths) - 1

    def fork(self, store: KVStore, row: int, length: int) -> LlamaStore | None:
        """A copy of the first ``length`` tokens of a row, which may be taken away again when room is short."""
        store = of_kind(LlamaStore, store)
        if store.alone or row >= len(store.lengths) or not self._pool.has(store):
            return None
        if self._model.keeps_state and length != store.lengths[row]:
            return None
        copy = self._pool.empty()
        if not self._pool.copy_row(store, row, copy, length):
            return None
        self._pool.mark_spare(copy)
        return copy

    def cut(self, store: KVStore, length: int) -> None:
        """Forget all but the first ``length`` tokens of a row."""
        store = of_kind(LlamaStore, store)
        there(store.context).cut(store.sequences[0], length)
        store.lengths[0] = length

    def leave(self, batch: KVStore, row: int) -> None:
        """Remove a row; the last one takes its number."""
        batch = of_kind(LlamaStore, batch)
        self._pool.remove_row(batch, row)

    # --- passes -----------------------------------------------------------------------------------------------------

    def extend(self, store: KVStore, token_ids: Sequence[int], work: Intervention | None = None) -> Tensor:
        """Feed tokens to the one row of ``store``; float32 logits ``[vocab]`` after the last."""
        store = of_kind(LlamaStore, store)
        self._extend(store, token_ids, work, every=False)
        return there(store.context).last_logits()

    def extend_all(self, store: KVStore, token_ids: Sequence[int], work: Intervention | None = None) -> Tensor:
        """As :meth:`extend`, with the logits after each of the tokens: float32 ``[tokens, vocab]``."""
        return torch.cat(self._extend(of_kind(LlamaStore, store), token_ids, work, every=True))

    def _extend(
        self, store: LlamaStore, token_ids: Sequence[int], work: Intervention | None, *, every: bool
    ) -> list[Tensor]:
        self._take_up(store)
        if work is None:
            return self._feed(store, token_ids, None, every=every)
        if self._control is not None:
            return self._feed_controlled(store, token_ids, work, self._control, every=every)
        with self._tapped(store, work) as tap:
            found = self._feed(store, token_ids, work, every=every)
            tap.finish()
        return found

    def read_together(
        self, prompts: Sequence[Sequence[int]], work: Intervention | None = None
    ) -> tuple[list[KVStore], Tensor]:
        """Read several prompts in one call; a store for each, and ``[prompts, vocab]``."""
        if work is not None:
            self._refuse_observers(work)
        stores = [self.new_store() for _ in prompts]
        if sum(map(len, prompts)) > self._placement.batch or self._control is not None:
            singly = [
                self.extend(store, ids, _of_row(work, row))
                for row, (store, ids) in enumerate(zip(stores, prompts, strict=True))
            ]
            return list(stores), torch.stack(singly)
        if work is None:
            return list(stores), self._read_all(stores, prompts, None)
        for store in stores:
            self._pool.ensure_tapped(store)
        with self._tapped(stores[0], work) as tap:
            logits = self._read_all(stores, prompts, work)
            tap.finish()
        return list(stores), logits

    def logits_at_ends(self, prompts: Sequence[Sequence[int]], work: Intervention | None = None) -> Tensor:
        """Not offered: llama.cpp promises no bits for a batch, so prompts are read one by one by :meth:`extend`."""
        raise EngineUnsupported("Prompts of a GGUF model are not scored in one pass.", remedy="Read them one by one.")

    def hidden(self, store: KVStore, token_ids: Sequence[int]) -> Tensor:
        """Feed tokens to the one row of ``store``; their states after the final norm, float32 ``[tokens, d_model]``."""
        store = of_kind(LlamaStore, store)
        self._take_up(store)
        context = there(store.context)
        parts: list[Tensor] = []
        context.give_states(True)
        try:
            for chunk in _chunks(token_ids, context.batch_size):
                self._run(store, chunk, range(len(chunk)))
                parts.append(context.states(len(chunk)))
        finally:
            context.give_states(False)
        return torch.cat(parts)

    def decode(self, batch: KVStore, token_ids: Sequence[int], work: Intervention | None = None) -> Tensor:
        """Feed one token to each row; float32 logits ``[rows, vocab]``."""
        batch = of_kind(LlamaStore, batch)
        rows = list(range(len(token_ids)))
        if work is None:
            return self._step(batch, token_ids, rows, None)
        if self._control is not None:
            return self._step_controlled(batch, token_ids, work, self._control)
        with self._tapped(batch, work) as tap:
            logits = self._step(batch, token_ids, rows, work)
            tap.finish()
        return logits

    def watch_layers(self, layers: Collection[int]) -> None:
        """Have passes looked into where there is anything to see: it costs a call for every node of the graph."""
        for layer in layers:
            if not 0 <= layer < self._model.n_layers:
                raise ValueError(f"layer {layer} is not one of 0…{self._model.n_layers - 1}")
        if self._control is None:
            self._pool.tap(bool(layers))

    def passes_steered(self, layer: int) -> int:
        """How many passes added something at ``layer`` since the model was loaded."""
        return sum(tap.passes_steered[layer] for tap in self._taps)

    def close(self) -> None:
        self._pool.close()
        self._model.close()
        self._taps.clear()
        gc.collect()

    # --- inside a pass ----------------------------------------------------------------------------------------------

    def _take_up(self, store: LlamaStore) -> None:
        if not self._pool.use(store):
            raise no_room(1, self._placement.cells)

    @contextmanager
    def _tapped(self, store: LlamaStore, work: Intervention) -> Iterator[Tap]:
        if not self.capabilities.steering.reads:
            raise EngineUnsupported(
                f"The layers of this model are out of reach: {self.capabilities.steering.reason}.",
                remedy="Send the request without steering and activations.",
            )
        self._pool.ensure_tapped(store)
        tap = there(there(store.context).tap)
        tap.begin(work)
        try:
            yield tap
        finally:
            tap.drop()

    def _feed(
        self, store: LlamaStore, token_ids: Sequence[int], work: Intervention | None, *, every: bool = False
    ) -> list[Tensor]:
        """Feed tokens to the one row, in calls of what the context takes at once. The logits after each token where
        ``every`` of them is wanted, ``[tokens, vocab]`` for each call.
        """
        context = there(store.context)
        found: list[Tensor] = []
        watched_last = work is not None and self._model.n_layers - 1 in work.observers
        done = 0
        for chunk in _chunks(token_ids, context.batch_size):
            ends = done + len(chunk) == len(token_ids)
            # A token whose logits nobody asks for has no row in the last layer.
            asked = range(len(chunk)) if watched_last or every else [len(chunk) - 1] if ends else []
            if work is not None and context.tap is not None:
                context.tap.expect(Shape.one_row(len(chunk), max(0, work.unsteered - done), asked))
            self._run(store, chunk, asked)
            if every:
                found.append(context.logits(len(chunk)))
            done += len(chunk)
        return found

    def _run(self, store: LlamaStore, chunk: Sequence[int], asked: Sequence[int]) -> None:
        context = there(store.context)
        start = store.lengths[0]
        positions = range(start, start + len(chunk))
        while True:
            try:
                with self._computing():
                    context.decode(chunk, positions, [store.sequences[0]] * len(chunk), asked)
                break
            except NoCells:
                if store.alone or not self._pool.make_room():
                    raise no_room(len(chunk), context.cells) from None
        store.lengths[0] += len(chunk)

    def _step(self, batch: LlamaStore, token_ids: Sequence[int], rows: list[int], work: Intervention | None) -> Tensor:
        """One token of each of ``rows``; float32 logits ``[rows, vocab]``."""
        context = there(batch.context)
        if work is not None and context.tap is not None:
            context.tap.expect(Shape.step(len(rows), work.unsteered))
        tokens = [token_ids[row] for row in rows]
        positions = [batch.lengths[row] for row in rows]
        sequences = [batch.sequences[row] for row in rows]
        while True:
            try:
                with self._computing():
                    context.decode(tokens, positions, sequences, range(len(rows)))
                break
            except NoCells:
                if not self._pool.make_room():
                    # The longest gives the most room to the others.
                    longest = max(rows, key=lambda row: batch.lengths[row])
                    raise RowsRefused({longest: no_room(1, context.cells)}) from None
        for row in rows:
            batch.lengths[row] += 1
        return context.logits(len(rows))

    def _read_all(
        self, stores: Sequence[LlamaStore], prompts: Sequence[Sequence[int]], work: Intervention | None
    ) -> Tensor:
        """All of ``prompts``, each into the empty row of its store, in one call; logits after the last of each."""
        context = there(stores[0].context)
        rows = [row for row, ids in enumerate(prompts) for _ in ids]
        positions = [position for ids in prompts for position in range(len(ids))]
        asked = [place - 1 for place in accumulate(map(len, prompts))]
        if work is not None and context.tap is not None:
            left = [place for place, position in enumerate(positions) if position < work.unsteered]
            context.tap.expect(Shape(rows, frozenset(left), asked))
        tokens = [token for ids in prompts for token in ids]
        sequences = [stores[row].sequences[0] for row in rows]
        while True:
            try:
                with self._computing():
                    context.decode(tokens, positions, sequences, asked)
                break
            except NoCells:
                if not self._pool.make_room():
                    raise no_room(len(tokens), context.cells) from None
        for store, ids in zip(stores, prompts, strict=True):
            store.lengths[0] = len(ids)
        return context.logits(len(prompts))

    @contextmanager
    def _computing(self) -> Iterator[None]:
        self._pool.busy = True
        try:
            yield
        finally:
            self._pool.busy = False

    # --- by control vector ------------------------------------------------------------------------------------------

    def _feed_controlled(
        self,
        store: LlamaStore,
        token_ids: Sequence[int],
        work: Intervention,
        control: ControlVector,
        *,
        every: bool = False,
    ) -> list[Tensor]:
        """As :meth:`_feed`, with one set of vectors; the leading tokens that are left alone go first, without it."""
        self._refuse_observers(work)
        deltas = {layer: delta[0] for layer, delta in work.deltas.items()}
        plain, steered = token_ids[: work.unsteered], token_ids[work.unsteered :]
        found: list[Tensor] = []
        try:
            if plain:
                found += self._feed(store, plain, None, every=every)
            if steered:
                control.set(there(store.context), deltas)
                found += self._feed(store, steered, None, every=every)
            return found
        finally:
            control.set(there(store.context), {})

    def _step_controlled(
        self, batch: LlamaStore, token_ids: Sequence[int], work: Intervention, control: ControlVector
    ) -> Tensor:
        """Rows with equal vectors go together; each other set of vectors costs a call of its own."""
        self._refuse_observers(work)
        logits = torch.empty(len(token_ids), self._model.vocab_size)
        try:
            for rows, deltas in grouped(work.deltas, len(token_ids)):
                control.set(there(batch.context), deltas)
                logits[rows] = self._step(batch, token_ids, rows, None)
        finally:
            control.set(there(batch.context), {})
        return logits

    @staticmethod
    def _refuse_observers(work: Intervention) -> None:
        if work.observers:
            raise EngineUnsupported(
                "Activations of this model cannot be read: its layers are out of reach on this device.",
                remedy="Switch monitoring off, or set DEVICE to cpu.",
            )


def _of_row(work: Intervention | None, row: int) -> Intervention | None:
    """The work of one row of a pass, as a pass of its own."""
    if work is None:
        return None
    return Intervention({layer: delta[row : row + 1] for layer, delta in work.deltas.items()}, work.unsteered)


def _chunks(token_ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    if not token_ids:
        raise GenerationFailed("A pass without a token was asked for.", remedy="Send the request again.")
    for start in range(0, len(token_ids), size):
        yield token_ids[start : start + size]
