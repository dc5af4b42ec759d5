"""Whether an SAE does what it says, on the resident model: the bundled text is read and its figures are stored.

The passes are plain ones (nothing is steered) with an observer at the SAE's layer, one chunk of text to a job, so that
running answers go on between two chunks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from engine.actions.saes.context import SaeContext
from engine.actions.saes.verify import find_files
from engine.actions.saes.weights import attach_dtype, load_weights, require_memory
from engine.errors import InvalidParameter, MillmError, ModelBusy
from engine.events import SaesChanged
from engine.library.records import SaeRecord, SaeStatus
from engine.models.registry import LoadedModel
from engine.saes.config import Fit, SaeConfig, judge_fit

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.backends.backend import KVStore, Tokenizer
    from engine.saes.checks import Quality
    from engine.saes.sae import Sae

log = logging.getLogger(__name__)

MOST_TOKENS = 2048
"""Tokens of the text that are read at most: enough for figures to two digits, seconds on a slow machine."""

SEQUENCE = 512
"""Tokens read as one text where the SAE does not say how long its training texts were."""

SHORTEST = 16
"""A rest shorter than this is left out: its first tokens are read without a context."""

QUALITY = "quality"
"""Key of the row's ``config`` under which the figures are kept that have no column of their own, and the verdicts."""


class Measurer:
    """Runs the check and stores what it finds. Blocks; not for the engine thread or a window's."""

    def __init__(self, context: SaeContext) -> None:
        self._context = context

    def measure(self, sae_id: str) -> SaeRecord:
        """Measure L0 and variance explained at the SAE's layer and store them.

        Raises :class:`ModelNotLoaded`, :class:`SaeNotFound`, :class:`SaeIncompatible`, :class:`SaeLoadFailed`,
        :class:`InsufficientMemory`, :class:`InvalidParameter` when the SAE's layer is not known, and
        :class:`ModelBusy` when the model is unloaded meanwhile.
        """
        loaded = self._context.resident()
        record = self._context.record(sae_id)
        if record.trained_layer is None:
            raise InvalidParameter(
                f"Which layer the SAE {sae_id!r} belongs to is not known, so it cannot be measured.",
                param="layer",
                remedy="Import it once more with its layer.",
            )
        _, config = find_files(record)
        fit_to(config, record.trained_layer, loaded).require(sae_id)
        return self._measure(record, config, record.trained_layer, loaded, None)

    def measure_if_fitting(self, record: SaeRecord, sae: Sae | None = None) -> SaeRecord:
        """As :meth:`measure` where the resident model is the one the SAE was made for and nothing is measured yet.

        Otherwise, and when measuring fails, the row as it is: an import does not hang on it.
        """
        loaded = self._context.shelf.resident
        layer = record.trained_layer
        if loaded is None or layer is None or record.measured_l0 is not None or record.status is SaeStatus.ERROR:
            return record
        try:
            _, config = find_files(record)
            fit = fit_to(config, layer, loaded)
            if fit.errors or fit.warnings:
                return record
            return self._measure(record, config, layer, loaded, sae)
        except MillmError as error:
            log.warning("the SAE %s could not be measured: %s", record.id, error.one_line())
            return record

    def measure_pending(self) -> list[SaeRecord]:
        """Measure what was imported before a fitting model was loaded; returns the rows that have figures now."""
        pending = [each for each in self._context.library.saes.list() if each.measured_l0 is None]
        return [done for each in pending if (done := self.measure_if_fitting(each)).measured_l0 is not None]

    def _measure(
        self, record: SaeRecord, config: SaeConfig, layer: int, loaded: LoadedModel, sae: Sae | None
    ) -> SaeRecord:
        from engine.saes.checks import measure

        texts = _texts(loaded.backend.tokenizer, config, loaded.info.context_length)
        activations = self._read(loaded, layer, texts)
        weights = self._weights(record, loaded, sae)
        quality = measure(weights, activations.to(weights.device))
        model = loaded.record
        return self._store(record, config, quality, model.name, model.repo_id, layer, datetime.now(UTC))

    def take_figures(
        self,
        sae_id: str,
        figures: Mapping[str, float],
        *,
        model_name: str,
        repo_id: str | None,
        layer: int,
    ) -> SaeRecord:
        """Store what was measured elsewhere by the same rule, without a date; the row as it is where it has figures.

        ``figures``: the fields of :class:`engine.saes.checks.Quality`. Reads files. Raises :class:`SaeNotFound`,
        :class:`SaeLoadFailed`, and TypeError for figures that are none.
        """
        from engine.saes.checks import Quality

        record = self._context.record(sae_id)
        if record.measured_l0 is not None:
            return record
        _, config = find_files(record)
        return self._store(record, config, Quality(**figures), model_name, repo_id, layer, None)  # type: ignore[arg-type]

    def _store(
        self,
        record: SaeRecord,
        config: SaeConfig,
        quality: Quality,
        model_name: str,
        repo_id: str | None,
        layer: int,
        measured_at: datetime | None,
    ) -> SaeRecord:
        from engine.saes.checks import compare_with_source

        told = {
            **asdict(quality),
            "verdicts": compare_with_source(quality, config),
            "model_name": model_name,
            "repo_id": repo_id,
            "layer": layer,
        }
        stored = self._context.library.saes.update(
            record.id,
            measured_l0=quality.l0,
            measured_variance_explained=quality.variance_explained,
            dead_share=quality.dead_share,
            measured_at=measured_at,
            config={**record.config, QUALITY: told},
        )
        self._context.events.publish(SaesChanged())
        return stored

    def _weights(self, record: SaeRecord, loaded: LoadedModel, sae: Sae | None) -> Sae:
        """The SAE as it would be attached: the attached one itself, what was read already, or read now."""
        for each in self._context.desk.state.attachments:
            if each.sae_id == record.id:
                return each.sae
        dtype = attach_dtype(self._context.settings, loaded)
        detected, config = find_files(record)
        require_memory([(record, config)], dtype, loaded.backend.device)
        if sae is not None:
            return sae.to(loaded.backend.device, dtype)
        return load_weights(detected, loaded.backend.device, dtype)

    def _read(self, loaded: LoadedModel, layer: int, texts: Sequence[Sequence[int]]) -> Tensor:
        """What block ``layer`` puts out for the tokens of ``texts``: float32 ``[tokens, d_model]`` on the CPU."""
        import torch

        reader = _Reader()
        chunk = self._context.settings.PREFILL_CHUNK
        try:
            for text in texts:
                store = self._context.on_model(loaded, loaded.backend.new_store)
                for start in range(0, len(text), chunk):
                    self._pass(loaded, store, text[start : start + chunk], layer, reader)
        finally:
            self._tidy(loaded)
        return torch.cat(reader.parts)

    def _pass(self, loaded: LoadedModel, store: KVStore, token_ids: Sequence[int], layer: int, reader: _Reader) -> None:
        from engine.models.backends.residual import Intervention

        work = Intervention(observers={layer: (reader,)})

        def run() -> None:
            loaded.backend.extend(store, token_ids, work)

        self._context.on_model(loaded, run)

    def _tidy(self, loaded: LoadedModel) -> None:
        """Take the hook away again that the passes left."""
        try:
            self._context.on_model(loaded, lambda: self._context.hook(loaded))
        except ModelBusy:
            log.debug("the model left while an SAE was measured; its hooks went with it")


class _Reader:
    """Keeps what it sees of one row's residual stream."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []

    def observe(self, layer: int, before: Tensor, after: Tensor) -> None:
        """Copy ``before`` ``[1, width, d_model]`` to the CPU as float32."""
        import torch

        self.parts.append(before[0].to("cpu", torch.float32, copy=True))


def fit_to(config: SaeConfig, layer: int, loaded: LoadedModel) -> Fit:
    """How an SAE fits a layer of the resident model; known by its repository where it has one, else by its name."""
    return judge_fit(
        config,
        layer=layer,
        d_model=loaded.info.d_model,
        n_layers=loaded.info.n_layers,
        model_name=loaded.record.repo_id or loaded.record.name,
    )


def _texts(tokenizer: Tokenizer, config: SaeConfig, window: int) -> list[list[int]]:
    """The bundled text as token sequences of the length the SAE was trained on, each begun as its training texts."""
    from engine.saes.checks import check_text

    prefix = list(tokenizer.prepended_ids)
    if config.prepend_bos is False:
        prefix = []
    elif config.prepend_bos and not prefix and tokenizer.bos_id is not None:
        prefix = [tokenizer.bos_id]
    length = max(1, min(window, config.context_size or SEQUENCE) - len(prefix))
    ids = tokenizer.encode(check_text(), add_special_tokens=False)
    return [[*prefix, *piece] for piece in pieces_of(ids, length)]


def pieces_of(token_ids: Sequence[int], length: int) -> list[list[int]]:
    """The tokens that are read, in texts of ``length`` tokens."""
    ids = list(token_ids[:MOST_TOKENS])
    pieces = [ids[start : start + length] for start in range(0, len(ids), length)]
    if len(pieces) > 1 and len(pieces[-1]) < SHORTEST:
        pieces.pop()
    return pieces
