"""How likely a model takes each token of a prompt, from the passes that read it anyway; the prompt as it is repeated.

Arithmetic: float32 logits after the tokens before it, log-softmax over the whole vocabulary. The first token follows
nothing and has no probability. Of the logits nothing is kept but the token's own log-probability and the k likeliest.

The passes of such a prompt are its own, and where they begin is settled by its request alone: at the chunks of a prompt
and where another prompt of the request parts from it (:func:`where_to_part`). So the figures are the same to the last
bit whatever else is being answered, also where a beginning is taken over from another prompt of the request.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from engine.errors import InvalidParameter, NonFiniteLogits
from engine.generation.prefix_cache import as_tokens, shared_length
from engine.generation.prompts import PreparedPrompt
from engine.generation.request import Alternative, Piece, TokenInfo
from engine.generation.text.parts import Kind

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models.backends.backend import Tokenizer

MOST_LOGITS = 2**25
"""Logits of one pass, 128 MB of them: a prompt of a large vocabulary is read in shorter chunks."""

MOST_FIGURES = 1_000_000
"""Log-probabilities of prompts' tokens in one answer: some hundred bytes each, here and again as JSON."""

_ROWS = 32
"""Rows that are normalised at once."""

FEWEST, FEWEST_ON_A_GPU = 16, 128
"""Tokens of a beginning that is read apart since others share it: below, the further pass costs more than it spares."""

Ranked = tuple[tuple[int, float], ...]
"""Token ids with their log-probabilities, in falling order."""


@dataclass(frozen=True)
class Scores:
    """Figures of a prompt's tokens from the second on: ``logprobs[i]`` and ``tops[i]`` are token i + 1's."""

    logprobs: tuple[float, ...] = ()
    tops: tuple[Ranked, ...] = ()

    def until(self, token: int) -> Scores:
        """Those up to token number ``token``, it included."""
        return Scores(self.logprobs[:token], self.tops[:token])


class PromptScores:
    """The figures of one prompt while it is read.

    Args:
        token_ids: The prompt.
        k: How many alternatives are kept of each token.
    """

    def __init__(self, token_ids: Sequence[int], k: int) -> None:
        self._token_ids = token_ids
        self.k = k
        self._logprobs: list[float] = []
        self._tops: list[Ranked] = []

    @property
    def so_far(self) -> Scores:
        """What is known."""
        return Scores(tuple(self._logprobs), tuple(self._tops))

    def take_over(self, known: Scores) -> None:
        """These are the figures of what was read before."""
        self._logprobs, self._tops = list(known.logprobs), list(known.tops)

    def read(self, position: int, logits: Tensor) -> None:
        """Take ``logits`` ``[tokens, vocab]`` after the tokens from ``position`` on; the last token has none to say.

        Raises :class:`NonFiniteLogits` for NaN or infinity among them.
        """
        import torch

        following = self._token_ids[position + 1 : position + 1 + len(logits)]
        with torch.inference_mode():
            for start in range(0, len(following), _ROWS):
                self._read(logits[start : start + _ROWS].float(), following[start : start + _ROWS])

    def _read(self, logits: Tensor, following: Sequence[int]) -> None:
        import torch

        rows = torch.log_softmax(logits[: len(following)], dim=-1)
        vocab = rows.shape[1]
        # A token that can be read and never written has no logit.
        ids = torch.tensor([min(token, vocab - 1) for token in following], device=rows.device)
        chosen = rows.gather(1, ids[:, None])[:, 0].tolist()
        # Of one row that holds a NaN all are NaN, so its likeliest tells.
        values, places = rows.topk(min(max(self.k, 1), vocab), dim=-1)
        if not bool(values[:, 0].isfinite().all()):
            raise NonFiniteLogits(
                "The model produced logits without end for the prompt, so its tokens have no probabilities.",
                remedy="Lower the steering strength, or load the model with DTYPE=float32.",
            )
        for token, logprob, best, where in zip(following, chosen, values.tolist(), places.tolist(), strict=True):
            self._logprobs.append(logprob if token < vocab else float("-inf"))
            self._tops.append(tuple(zip(where, best, strict=True))[: self.k])


def check_figures(prompts: Sequence[PreparedPrompt], k: int, choices: int) -> None:
    """Raise :class:`InvalidParameter` where the tokens of ``prompts``, each with ``k`` alternatives and repeated in
    ``choices`` answers, are more than one answer can hold.
    """
    figures = sum(len(prompt.token_ids) for prompt in prompts) * (1 + k) * choices
    if figures > MOST_FIGURES:
        raise InvalidParameter(
            f"The figures of all prompts' tokens and alternatives are {figures}; at most {MOST_FIGURES} are given "
            "in one answer.",
            param="logprobs",
            details={"figures": figures, "max_figures": MOST_FIGURES},
            remedy="Send fewer prompts in one request, or ask for fewer alternatives.",
        )


def repeated(tokenizer: Tokenizer, prompt: PreparedPrompt, scores: Scores | None) -> Piece:
    """The prompt as the beginning of an answer, with its tokens where ``scores`` has their figures."""
    if scores is None:
        return Piece(Kind.CONTENT, prompt.text)
    name, raw = tokenizer.token_text, tokenizer.token_bytes
    tokens = []
    figures: list[tuple[float | None, Ranked]] = [(None, ()), *zip(scores.logprobs, scores.tops, strict=True)]
    for token, offset, (logprob, top) in zip(prompt.token_ids, offsets(tokenizer, prompt), figures, strict=True):
        others = tuple(Alternative(other, name(other), raw(other), likely) for other, likely in top)
        tokens.append(TokenInfo(token, name(token), raw(token), logprob, others, offset))
    return Piece(Kind.CONTENT, prompt.text, tuple(tokens))


def offsets(tokenizer: Tokenizer, prompt: PreparedPrompt) -> list[int]:
    """For each token of ``prompt`` the whole characters of its text that stand before the token.

    A token that is not in the text (a BOS the tokenizer adds, a space it puts in front) has no width; where it writes
    the text in other letters, a token is taken to be as long as its own.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    found: list[int] = []
    place = 0
    for token in prompt.token_ids:
        found.append(min(place, len(prompt.text)))
        before = decoder.getstate()
        written = decoder.decode(tokenizer.token_bytes(token))
        if not prompt.text.startswith(written, place):
            if token in tokenizer.hidden_ids:
                decoder.setstate(before)
                continue
            if written.startswith(" ") and prompt.text.startswith(written[1:], place):
                written = written[1:]
        place += len(written)
    return found


def where_to_part(prompts: Sequence[Sequence[int]], fewest: int) -> tuple[tuple[int, ...], ...]:
    """For each of ``prompts``, token ids, the lengths at which its reading pauses, rising: its beginnings that others
    share.

    Such a beginning is one token shorter than what two prompts have in common, so that how likely that token is after
    it is known too. Each is at least ``fewest`` tokens longer than the one before. Prompts that share a beginning pause
    at the same places in it.
    """
    order = sorted(range(len(prompts)), key=lambda number: tuple(prompts[number]))
    tokens = [as_tokens(prompts[number]) for number in order]
    # What a prompt shares with any other is the least of what neighbours share on the way there.
    shared = [shared_length(one, other) for one, other in pairwise(tokens)]
    lengths: list[set[int]] = [set() for _ in order]
    for places, between in (
        (range(len(order)), [0, *shared]),
        (range(len(order) - 1, -1, -1), [*shared, 0]),
    ):
        on_the_way: list[int] = []
        for place in places:
            while on_the_way and on_the_way[-1] >= between[place]:
                on_the_way.pop()
            on_the_way.append(between[place])
            lengths[place].update(on_the_way)
    pauses: list[tuple[int, ...]] = [()] * len(prompts)
    for number, found in zip(order, lengths, strict=True):
        kept: list[int] = []
        for length in sorted(found):
            if length - 1 - (kept[-1] if kept else 0) >= fewest:
                kept.append(length - 1)
        pauses[number] = tuple(kept)
    return tuple(pauses)
