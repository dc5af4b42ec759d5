"""Reading a text with an SAE: which features fire at which token, when nothing is steered.

A reading is a plain pass: no plan, no monitor, whatever is set at the same moment. It takes one queue place, goes chunk
by chunk between the tokens of other answers, and ends when its future is cancelled. Any backend whose ``extend`` takes
observers can read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, TypeVar

from engine.actions.saes.context import SaeContext
from engine.actions.saes.measuring import fit_to
from engine.actions.saes.verify import find_files
from engine.actions.saes.weights import attach_dtype, load_weights, require_memory
from engine.counting import so_many
from engine.errors import ContextLengthExceeded, InvalidParameter, SaeNotAttached
from engine.generation.prefill_job import PrefillJob, ReadingFigures
from engine.generation.prompts import check_readable, prepare_chat, prepare_text
from engine.generation.request import ChatInput, TextInput
from engine.models.backends.lengths import TextTooLong
from engine.models.registry import LoadedModel
from engine.saes.errors import InvalidFeatureIndex

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.backends.backend import Backend, KVStore, Tokenizer
    from engine.models.backends.residual import Intervention
    from engine.saes.sae import Sae

T = TypeVar("T")

Source = str | ChatInput | Sequence[int]
"""What is read: plain text, a conversation (through the model's template), or token ids as they are."""

SINK_FACTOR = 5.0
"""A token whose residual norm is above this many medians is an attention sink, as in ``engine.saes.checks``."""

_ENCODED_AT_ONCE = 8 << 20
"""Activations held at once while a chunk is encoded: 32 MiB of float32."""


@dataclass(frozen=True)
class ReadPlace:
    """An SAE at the layer it reads; its weights are held as long as this value is."""

    sae_id: str
    layer: int
    sae: Sae


@dataclass(frozen=True)
class TokenReading:
    """One token that was read. ``top_k`` are [feature, activation]; ``activations`` those of the chosen features.

    Attributes:
        position: 0-based over everything the model read, a BOS included.
        text: The token as text; bytes that are no whole character as escapes.
        top_k: The strongest features, strongest first; only those above 0.
        activations: In the order in which the features were chosen.
        norm: Length of the residual vector.
        sink: An attention sink: the first position, or a norm above :data:`SINK_FACTOR` medians. What it shows is read
            and says little about the text.
    """

    position: int
    token_id: int
    text: str
    top_k: tuple[tuple[int, float], ...]
    activations: tuple[float, ...]
    norm: float
    sink: bool


@dataclass(frozen=True)
class TextReading:
    """A text as one SAE sees it. ``labels`` are by feature index as text.

    Attributes:
        features: The chosen ones, whose values every token has.
        labels: Of every feature in it that has one; empty until :meth:`TextReader.labelled` fills them in.
    """

    sae_id: str
    layer: int
    model: str
    features: tuple[int, ...]
    tokens: tuple[TokenReading, ...]
    labels: Mapping[int, str] = field(default_factory=dict, kw_only=True)
    figures: ReadingFigures = field(compare=False)

    @property
    def seen(self) -> set[int]:
        """Every feature in it."""
        return {index for token in self.tokens for index, _ in token.top_k} | set(self.features)

    def values(self, feature: int) -> tuple[float, ...]:
        """The activation of one feature at each token; 0 where it is neither chosen nor among the strongest."""
        if feature in self.features:
            place = self.features.index(feature)
            return tuple(token.activations[place] for token in self.tokens)
        return tuple(next((v for i, v in token.top_k if i == feature), 0.0) for token in self.tokens)


class TextReader:
    """Prepares readings and hands them to the scheduler. Any thread but the engine's."""

    def __init__(self, context: SaeContext) -> None:
        self._context = context

    def read(
        self,
        source: Source,
        *,
        sae_id: str | None = None,
        layer: int | None = None,
        top_k: int = 8,
        features: Sequence[int] = (),
    ) -> Future[TextReading]:
        """Read ``source`` and give each token its ``top_k`` strongest features and the values of ``features``.

        The SAE is the attached one that fits (the first where nothing is named), else the library's, read from its
        files for this reading. Cancelling the future ends the reading before its next chunk.

        Raises :class:`ModelNotLoaded`, :class:`SaeNotAttached` when nothing is named and nothing attached,
        :class:`SaeNotFound`, :class:`SaeIncompatible`, :class:`SaeLoadFailed`, :class:`InsufficientMemory`,
        :class:`InvalidFeatureIndex`, :class:`InvalidParameter` for an empty text or too many values,
        :class:`ContextLengthExceeded`, :class:`NoChatTemplate`, :class:`QueueFull`; the future raises
        :class:`ModelBusy` when the model is taken away and :class:`RequestCancelled` when the program ends.
        """
        loaded = self._context.resident()
        ids = token_ids_of(source, loaded)
        chosen = tuple(dict.fromkeys(features))
        self._check_size(len(ids), top_k, len(chosen))
        place = self.place(sae_id, layer, loaded)
        check_features(chosen, place.sae)
        return submit(self._context, _TextReading(self._context, loaded, ids, place, top_k, chosen))

    def labelled(self, found: TextReading) -> TextReading:
        """A reading with the labels of all its features. Reads the library."""
        labels = self._context.library.labels.of(found.sae_id, found.seen)
        return replace(found, labels={index: label.label for index, label in sorted(labels.items())})

    def place(self, sae_id: str | None, layer: int | None, loaded: LoadedModel) -> ReadPlace:
        """The attached SAE that fits, else the library's of that id, read from its files. Raises as :meth:`read`."""
        attachments = self._context.desk.state.attachments
        for each in attachments:
            if sae_id in (None, each.sae_id) and layer in (None, each.layer):
                return ReadPlace(each.sae_id, each.layer, each.sae)
        if sae_id is None:
            where = "No SAE is attached" if layer is None else f"No SAE is attached at layer {layer}"
            raise SaeNotAttached(
                f"{where}, so there is nothing to read with.", remedy="Attach an SAE, or name one of the library."
            )
        record = self._context.record(sae_id)
        detected, config = find_files(record)
        wanted = layer if layer is not None else config.layer
        if wanted is None:
            raise InvalidParameter(
                f"Which layer the SAE {sae_id!r} belongs to is not known.", param="layer", remedy="Name the layer."
            )
        fit_to(config, wanted, loaded).require(sae_id)
        same = next((each.sae for each in attachments if each.sae_id == sae_id), None)
        if same is not None:
            return ReadPlace(sae_id, wanted, same)
        dtype = attach_dtype(self._context.settings, loaded)
        require_memory([(record, config)], dtype, loaded.backend.device)
        return ReadPlace(sae_id, wanted, load_weights(detected, loaded.backend.device, dtype))

    def _check_size(self, tokens: int, top_k: int, chosen: int) -> None:
        settings = self._context.settings
        if (
            not isinstance(top_k, int)
            or isinstance(top_k, bool)
            or not 0 <= top_k <= settings.SAE_ACTIVATIONS_MAX_TOP_K
        ):
            raise InvalidParameter(
                f"Invalid value for 'top_k': {top_k!r}; expected a whole number from 0 to "
                f"{settings.SAE_ACTIVATIONS_MAX_TOP_K}.",
                param="top_k",
            )
        entries, most = tokens * (top_k + chosen), settings.SAE_ACTIVATIONS_MAX_ENTRIES
        if entries > most:
            raise InvalidParameter(
                f"{so_many(tokens, 'token')} with {so_many(top_k + chosen, 'feature')} each are {entries} "
                f"values; at most {most} are read "
                "at once.",
                param="text",
                details={"tokens": tokens, "entries": entries, "max_entries": most},
                remedy="Read a shorter text or fewer features.",
            )


def token_ids_of(source: Source, loaded: LoadedModel, name: str = "text") -> tuple[int, ...]:
    """The tokens of ``source``, a BOS included where the model reads one; within its window.

    ``name`` is what the text is called in a refusal. Raises :class:`InvalidParameter`, :class:`ContextLengthExceeded`,
    :class:`NoChatTemplate`.
    """
    tokenizer, window = loaded.backend.tokenizer, loaded.info.context_length
    readable = loaded.info.readable_ids
    try:
        if isinstance(source, ChatInput):
            ids = prepare_chat(tokenizer, source, window)[0].token_ids
            check_readable(tokenizer, ids, readable, "messages")
        elif isinstance(source, str):
            ids = _text_ids(tokenizer, source, name, window)
            check_readable(tokenizer, ids, readable, "text")
        else:
            ids = tuple(source)
            outside = next((token for token in ids if not 0 <= token < readable), None)
            if outside is not None:
                raise InvalidParameter(
                    f"Token {outside} is outside the model's vocabulary of {readable} tokens.",
                    param="token_ids",
                )
    except TextTooLong as error:
        raise _too_long(name, f"at least {so_many(error.tokens, 'token')}", error.tokens, loaded) from error
    if not ids:
        raise InvalidParameter(f"The {name} is empty: there is nothing to read.", param="text")
    if len(ids) > window:
        raise _too_long(name, so_many(len(ids), "token"), len(ids), loaded)
    return ids


def _too_long(name: str, tokens: str, length: int, loaded: LoadedModel) -> ContextLengthExceeded:
    window = loaded.info.context_length
    return ContextLengthExceeded(
        f"The {name} has {tokens}; the context window of {loaded.record.name!r} is {window} tokens.",
        param="text",
        details={"context_length": window, "prompt_tokens": length},
        remedy="Shorten the text, or read it in parts.",
    )


def check_features(features: Iterable[int], sae: Sae) -> None:
    """Raise :class:`InvalidFeatureIndex` for a feature that ``sae`` does not have."""
    d_sae = sae.config.d_sae
    for index in features:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < d_sae:
            raise InvalidFeatureIndex(
                f"There is no feature {index!r}: this SAE has {d_sae}, numbered from 0.",
                details={"feature_idx": index, "d_sae": d_sae},
                remedy=f"Name features from 0 to {d_sae - 1}.",
            )


def submit(context: SaeContext, reading: SaeReading[T]) -> Future[T]:
    """Queue a reading; its future tells the rest."""
    context.scheduler.submit_reading(reading, context.thread.wake)
    return reading.future


class SaeReading(PrefillJob[T]):
    """A reading that sees the residual stream where some SAEs read it; what is made of it is the subclass's.

    Args:
        places: Which SAEs, at which layers.
    """

    def __init__(
        self,
        context: SaeContext,
        loaded: LoadedModel,
        texts: Sequence[tuple[int, ...]],
        places: Iterable[ReadPlace],
        *,
        label: str | None = None,
    ) -> None:
        super().__init__(loaded, texts, label=label)
        self._context = context
        places = tuple(places)
        self._layers = frozenset(place.layer for place in places)
        self._sae_ids = frozenset(place.sae_id for place in places)
        self._seen: dict[int, list[Tensor]] = {}

    def uses(self, sae_id: str) -> bool:
        """Whether it reads with that SAE: its weights are still needed then."""
        return sae_id in self._sae_ids

    def observe(self, layer: int, before: Tensor, after: Tensor) -> None:
        """Keep what block ``layer`` put out in this pass: ``[1, width, d_model]``, equal before and after."""
        # A copy: the model may go on to change its tensor in place.
        self._seen.setdefault(layer, []).append(before[0].clone())

    def _read(
        self, backend: Backend, store: KVStore, chunk: tuple[int, ...], text: int, position: int, *, last: bool
    ) -> None:
        import torch

        from engine.models.backends.residual import Intervention

        self._seen.clear()
        self._forward(backend, store, chunk, Intervention(observers=dict.fromkeys(self._layers, (self,))))
        residuals = {layer: parts[0] if len(parts) == 1 else torch.cat(parts) for layer, parts in self._seen.items()}
        self._seen.clear()
        self._take(residuals, chunk, text, position)

    def _forward(self, backend: Backend, store: KVStore, chunk: tuple[int, ...], work: Intervention) -> None:
        """Feed the chunk, in one pass or several. A subclass that wants the logits does it itself."""
        backend.extend(store, chunk, work)

    @abstractmethod
    def _take(self, residuals: dict[int, Tensor], chunk: tuple[int, ...], text: int, position: int) -> None:
        """What was seen: layer → ``[len(chunk), d_model]``, of text number ``text`` from ``position`` on."""

    def _release(self) -> None:
        self._seen.clear()
        if self._context.shelf.resident is self.loaded:
            # Passes may have put a hook where no SAE is attached.
            self._context.hook(self.loaded)


def encoded(sae: Sae, residual: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Finite activations ``[rows, d_sae]`` of ``residual`` ``[n, d_model]`` and the rows' norms, part by part."""
    import torch

    rows = max(1, _ENCODED_AT_ONCE // sae.config.d_sae)
    for part in residual.split(rows):
        norms = torch.linalg.vector_norm(part, dim=-1, dtype=torch.float32)
        yield torch.nan_to_num(sae.encode(part), nan=0.0), norms


class _TextReading(SaeReading[TextReading]):
    def __init__(
        self,
        context: SaeContext,
        loaded: LoadedModel,
        ids: tuple[int, ...],
        place: ReadPlace,
        top_k: int,
        chosen: tuple[int, ...],
    ) -> None:
        super().__init__(context, loaded, [ids], [place])
        self._ids = ids
        self._place = place
        self._top_k = min(top_k, place.sae.config.d_sae)
        self._chosen = chosen
        self._lines: list[list[float]] = []

    def _take(self, residuals: dict[int, Tensor], chunk: tuple[int, ...], text: int, position: int) -> None:
        import torch

        with torch.inference_mode():
            for activations, norms in encoded(self._place.sae, residuals[self._place.layer]):
                values, indices = activations.topk(self._top_k, dim=-1)
                # One transfer for everything; indices below 2²⁴ are exact in float32.
                parts = [norms[:, None], indices.float(), values.float(), activations[:, list(self._chosen)].float()]
                self._lines.extend(torch.cat([part.to(norms.device) for part in parts], dim=-1).tolist())

    def _result(self, figures: ReadingFigures) -> TextReading:
        sinks = sinks_among([line[0] for line in self._lines])
        tokens = tuple(
            self._token(position, token, line, position in sinks)
            for position, (token, line) in enumerate(zip(self._ids, self._lines, strict=True))
        )
        name = self.loaded.record.name
        return TextReading(self._place.sae_id, self._place.layer, name, self._chosen, tokens, figures)

    def _token(self, position: int, token: int, line: list[float], sink: bool) -> TokenReading:
        k = self._top_k
        pairs = zip((int(index) for index in line[1 : 1 + k]), line[1 + k : 1 + 2 * k], strict=True)
        # The device leaves the order of equal values open.
        best = tuple(sorted((pair for pair in pairs if pair[1] > 0), key=lambda pair: (-pair[1], pair[0])))
        words = self.loaded.backend.tokenizer.token_text(token)
        return TokenReading(position, token, words, best, tuple(line[1 + 2 * k :]), line[0], sink)


def sinks_among(norms: Sequence[float]) -> set[int]:
    """Positions of a text that are attention sinks, from the norms of its residual vectors."""
    rest = norms[1:]
    most = SINK_FACTOR * median(rest) if rest else 0.0
    return {0} | {position for position, norm in enumerate(norms) if position and norm > most}


def _text_ids(tokenizer: Tokenizer, text: str, name: str, window: int) -> tuple[int, ...]:
    if not text.strip():
        raise InvalidParameter(
            f"The {name} is empty: there is nothing to read.", param="text", remedy="Write at least one word."
        )
    return prepare_text(tokenizer, TextInput((text,), add_special_tokens=True), window)[0].token_ids
