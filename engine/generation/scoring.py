"""Scoring: how likely each candidate is as the next token, read from one forward per prompt. Nothing is written.

Arithmetic: the float32 logits at the last position, plus the bias, divided by the temperature if that is above 0, then
log-softmax over the allowed tokens, or over the whole vocabulary. The chosen token is the likeliest, never drawn.
Scoring is never steered and never monitored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from engine.counting import so_many
from engine.errors import InvalidParameter, MillmError, NoChatTemplate, NonFiniteLogits
from engine.generation.errors import InvalidScoringRequest
from engine.generation.prefill_job import PrefillJob, ReadingFigures, numbered
from engine.generation.prompts import PreparedPrompt, prepare_chat, prepare_text
from engine.generation.request import MAX_TOP_LOGPROBS, Alternative, ChatInput, TextInput, Usage
from engine.monitor.activation_spec import ActivationSpec
from engine.monitor.capture import Capture, CapturePlan
from engine.monitor.rows import RowInfo
from engine.sampling import BY_NAME

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.backends.backend import Backend, KVStore, Tokenizer
    from engine.models.backends.residual import Intervention
    from engine.models.registry import LoadedModel

MAX_ALLOWED = 1024
MIN_TEMPERATURE = 0.001
"""Below this, but for 0, dividing would overflow the logits."""
MAX_TEMPERATURE = BY_NAME["temperature"].high or 0.0


@dataclass(frozen=True)
class ScoringRequest:
    """What to score.

    Attributes:
        model: Library name of the model, exactly as asked.
        input: Raw prompts, or one conversation or several; each gives one result, in order.
        allowed_token_ids: The candidates, 1 to 1024 ids, twice the same counts once; None: the whole vocabulary.
        logprobs: How many candidates to report, 0 to 20; None: only the chosen one.
        temperature: 0 (no scaling), or 0.001 to 2.
        logit_bias: Added to the logits of these token ids; not with ``allowed_token_ids``, which chooses already.
        activations: SAE activations to read along; one prompt only.
    """

    model: str
    input: TextInput | tuple[ChatInput, ...]
    allowed_token_ids: tuple[int, ...] | None = None
    logprobs: int | None = None
    temperature: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    activations: ActivationSpec | None = None
    request_id: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        allowed = self.allowed_token_ids
        if allowed is not None:
            if not 1 <= len(allowed) <= MAX_ALLOWED:
                raise _invalid("allowed_token_ids", so_many(len(allowed), "id"), f"1 to {MAX_ALLOWED} token ids")
            below = next((token for token in allowed if token < 0), None)
            if below is not None:
                raise _invalid("allowed_token_ids", below, "token ids of at least 0")
        if self.logprobs is not None and not 0 <= self.logprobs <= MAX_TOP_LOGPROBS:
            raise _invalid("logprobs", self.logprobs, f"an integer from 0 to {MAX_TOP_LOGPROBS}")
        if not (self.temperature == 0.0 or MIN_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE):
            expected = f"0, or a number from {MIN_TEMPERATURE} to {MAX_TEMPERATURE:g}, when scoring"
            raise _invalid("temperature", self.temperature, expected)

    @property
    def label(self) -> str:
        """What one of several inputs is called in an error."""
        return "prompt" if isinstance(self.input, TextInput) else "conversation"


@dataclass(frozen=True)
class PreparedScoring:
    """A scoring request rendered and tokenized for a resident model.

    ``unread_variables``: as of a request that writes.
    """

    request: ScoringRequest
    loaded: LoadedModel
    prompts: tuple[PreparedPrompt, ...]
    capture: CapturePlan | None = None
    notes: tuple[str, ...] = ()
    unread_variables: tuple[str, ...] = ()

    @property
    def model_name(self) -> str:
        """The resident model's library name."""
        return self.loaded.record.name


@dataclass(frozen=True)
class ScoredPrompt:
    """The candidates of one prompt.

    Attributes:
        chosen: The likeliest; on a tie the lowest id.
        text: The chosen token as text; bytes that are no whole character show as U+FFFD.
        top: Candidates in falling order, max(1, min(k, candidates)) of them; k is ``logprobs``.
        text_offset: Characters of the prompt.
    """

    chosen: Alternative
    text: str
    top: tuple[Alternative, ...]
    text_offset: int
    prompt_tokens: int


@dataclass(frozen=True)
class Scored:
    """The result of a scoring request. ``activations`` are in the shape of the wire."""

    prompts: tuple[ScoredPrompt, ...]
    usage: Usage
    figures: ReadingFigures
    activations: Mapping[str, Any] | None = None


class Scoring(PrefillJob[Scored]):
    """One scoring request on its way through the engine."""

    def __init__(self, prepared: PreparedScoring) -> None:
        super().__init__(
            prepared.loaded,
            [prompt.token_ids for prompt in prepared.prompts],
            capture=prepared.capture,
            label=prepared.request.label,
            shares=prepared.capture is None,
            reads_whole=True,
        )
        self._prepared = prepared
        self._found: list[ScoredPrompt] = []
        self._capture = None if prepared.capture is None else Capture(prepared.capture, prepared.request.request_id)

    def _read(
        self, backend: Backend, store: KVStore, chunk: tuple[int, ...], text: int, position: int, *, last: bool
    ) -> None:
        logits = backend.extend(store, chunk, self._work(chunk, text, position))
        if last:
            self._rank(backend, text, logits)

    def _read_whole(self, backend: Backend, texts: range) -> None:
        prompts = [self._prepared.prompts[text].token_ids for text in texts]
        work = self._work(prompts[0], texts[0], 0) if len(texts) == 1 else None
        for text, logits in zip(texts, backend.logits_at_ends(prompts, work), strict=True):
            try:
                self._rank(backend, text, logits)
            except MillmError as error:
                raise numbered(error, self._label, text) from error

    def _rank(self, backend: Backend, text: int, logits: Tensor) -> None:
        request, prompt = self._prepared.request, self._prepared.prompts[text]
        logits = biased(logits, request.logit_bias)
        ranked = rank(logits, request.allowed_token_ids, request.logprobs or 0, request.temperature)
        self._found.append(_scored(ranked, prompt, backend.tokenizer))

    def _work(self, chunk: tuple[int, ...], text: int, position: int) -> Intervention | None:
        """Who reads along; never a delta."""
        if self._capture is None:
            return None
        from engine.models.backends.residual import Intervention

        row = RowInfo(
            self._prepared.request.request_id,
            position,
            chunk,
            prompt_tokens=len(self._prepared.prompts[text].token_ids),
        )
        observers = self._capture.observers([row])
        return Intervention(observers=observers) if observers else None

    def _result(self, figures: ReadingFigures) -> Scored:
        read = sum(found.prompt_tokens for found in self._found)
        activations = None if self._capture is None else self._capture.result()
        usage = Usage(read, len(self._found), self.shared_tokens)
        return Scored(tuple(self._found), usage, figures, activations)

    def _release(self) -> None:
        if self._capture is not None:
            self._capture.close()


def biased(logits: Tensor, bias: Mapping[int, float]) -> Tensor:
    """The float32 row ``[vocab]`` with ``bias`` added at its token ids; ``logits`` itself stays as it is."""
    if not bias:
        return logits
    import torch

    with torch.inference_mode():
        row = logits.float()
        row = row.clone() if row is logits else row
        ids = torch.tensor(list(bias), dtype=torch.long, device=row.device)
        row[ids] += torch.tensor(list(bias.values()), dtype=torch.float32, device=row.device)
    return row


def rank(logits: Tensor, allowed: Sequence[int] | None, k: int, temperature: float) -> tuple[tuple[int, float], ...]:
    """The likeliest candidates as (token id, log-probability), in falling order; on a tie the lowest id first.

    Args:
        logits: One row ``[vocab]``.
        allowed: The candidates; None: the whole row.
        k: How many: max(1, min(k, candidates)) are given.
        temperature: Divides the logits when above 0.

    Raises :class:`NonFiniteLogits` for NaN or +infinity on a candidate, and for one that is given and impossible.
    """
    import torch

    with torch.inference_mode():
        row = logits.float()
        ids = None
        if allowed is not None:
            ids = torch.tensor(sorted(set(allowed)), dtype=torch.long, device=row.device)
            row = row[ids]
        if bool((row.isnan() | row.isposinf()).any()):
            raise _non_finite("NaN or infinite logits on a token that may be chosen")
        if temperature > 0:
            row = row / temperature
        logprobs = torch.log_softmax(row, dim=0)
        wanted = max(1, min(k, logprobs.numel()))
        # Everything that ties with the last place is sorted too, so that the order never depends on the device.
        inside = (logprobs >= logprobs.topk(wanted).values[-1]).nonzero().flatten()
        order = logprobs[inside].sort(descending=True, stable=True).indices[:wanted]
        places = inside[order]
        values = logprobs[places].tolist()
        found = (places if ids is None else ids[places]).tolist()
    # Where every candidate is impossible, nothing was compared and nothing found.
    if len(values) < wanted or not all(math.isfinite(value) for value in values):
        raise _non_finite("no probability for a token that is to be reported")
    return tuple(zip(found, values, strict=True))


def prepare_input(
    tokenizer: Tokenizer,
    request: ScoringRequest,
    model_name: str,
    place: int,
    most: int | None = None,
    readable: int | None = None,
) -> tuple[PreparedPrompt, tuple[str, ...]]:
    """Prompt number ``place`` of ``request`` as tokens, and notes on what was changed to make it work.

    Raises :class:`InvalidScoringRequest` for a prompt without tokens, :class:`NoChatTemplate`, and
    :class:`InvalidParameter` for text that is not Unicode or messages the template refuses, :class:`TextTooLong` for
    certainly more than ``most`` tokens.
    """
    if not isinstance(request.input, TextInput):
        if not tokenizer.has_chat_template:
            raise NoChatTemplate(
                f"The model {model_name!r} has no chat template, so a conversation cannot be scored by it.",
                param="model",
                remedy="Score the text with /v1/completions, or use a model that has a chat template.",
            )
        prompt, notes, _ = prepare_chat(tokenizer, request.input[place], most)
        return prompt, notes
    text = request.input.prompts[place]
    try:
        (prompt,) = prepare_text(tokenizer, TextInput((text,), request.input.add_special_tokens), most, readable)
    except InvalidParameter as error:
        if not (_is_unicode(text) if isinstance(text, str) else not text):
            raise
        raise InvalidScoringRequest(
            "The prompt is empty: it gives the model no token to start from.", remedy="Send at least one character."
        ) from error
    return prompt, ()


def check_vocabulary(allowed: Sequence[int] | None, vocab_size: int) -> None:
    """Raise :class:`InvalidScoringRequest` for an id at or above ``vocab_size``, the width of the logits."""
    outside = next((token for token in allowed or () if token >= vocab_size), None)
    if outside is not None:
        raise InvalidScoringRequest(
            f"'allowed_token_ids' names token {outside}, which is outside the model's vocabulary of {vocab_size} "
            "tokens.",
            details={"token_id": outside, "vocab_size": vocab_size},
            remedy=f"Use token ids from 0 to {vocab_size - 1}.",
        )


def _scored(ranked: tuple[tuple[int, float], ...], prompt: PreparedPrompt, tokenizer: Tokenizer) -> ScoredPrompt:
    top = tuple(
        Alternative(token, tokenizer.token_text(token), tokenizer.token_bytes(token), logprob)
        for token, logprob in ranked
    )
    return ScoredPrompt(
        chosen=top[0],
        text=top[0].bytes.decode("utf-8", "replace"),
        top=top,
        text_offset=len(prompt.text),
        prompt_tokens=len(prompt.token_ids),
    )


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _invalid(name: str, value: object, expected: str) -> InvalidParameter:
    return InvalidParameter(f"Invalid value for '{name}': {value!r}; expected {expected}.", param=name)


def _non_finite(what: str) -> NonFiniteLogits:
    return NonFiniteLogits(
        f"The model gave {what}, so the prompt cannot be scored.",
        remedy="Choose other candidates, or load the model with DTYPE=float32.",
    )
