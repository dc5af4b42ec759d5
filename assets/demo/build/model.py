"""The demo model as the build uses it: in float32 on the CPU, read and steered through the engine's hooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assets.demo.build.settings import Build
from engine.models.backends.residual import Intervention, ResidualHooks


class Reader:
    """Keeps what a pass leaves at each layer, before the layer's own delta."""

    def __init__(self) -> None:
        self.seen: dict[int, Tensor] = {}

    def observe(self, layer: int, before: Tensor, after: Tensor) -> None:
        """Called by the hook."""
        self.seen[layer] = before


@dataclass(frozen=True)
class Written:
    """What was sampled for one row."""

    ids: tuple[int, ...]
    text: str


class Model:
    """Tokenizer and decoder. ``depth`` cuts the decoder after so many blocks and drops the head, for reading only."""

    def __init__(self, build: Build, *, depth: int | None = None) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(build.threads)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(str(build.checkpoint))
        self.model: Any = AutoModelForCausalLM.from_pretrained(str(build.checkpoint), dtype=torch.float32)
        self.model.eval()
        self.n_layers = int(self.model.config.num_hidden_layers)
        if depth is not None and depth < self.n_layers:
            self.model.model.layers = self.model.model.layers[:depth]
            self.n_layers = depth
        self.d_model = int(self.model.config.hidden_size)
        self.hooks = ResidualHooks(self.model, self.n_layers)
        self.pad = self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else 0
        ends = {self.tokenizer.eos_token_id, self.tokenizer.convert_tokens_to_ids("<|im_end|>")}
        self.ends = frozenset(int(each) for each in ends if each is not None)

    # --- text to ids ----------------------------------------------------------------------------------------------

    def ids(self, text: str) -> list[int]:
        """The tokens of a plain text."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def chat_ids(self, prompt: str) -> list[int]:
        """The tokens of a chat with one question, up to where the answer begins."""
        messages = [{"role": "user", "content": prompt}]
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self.ids(text)

    # --- passes ---------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def read(self, rows: Sequence[Sequence[int]], layers: Sequence[int]) -> tuple[dict[int, Tensor], Tensor]:
        """Residual streams {layer: [rows, width, d_model]} of ``rows``, padded right, and the mask [rows, width]."""
        ids, mask = self._padded(rows)
        reader = Reader()
        with self.hooks.working(Intervention(observers=dict.fromkeys(layers, (reader,)))):
            self.model.model(input_ids=ids, attention_mask=mask, use_cache=False)
        return reader.seen, mask.bool()

    @torch.inference_mode()
    def logits(self, rows: Sequence[Sequence[int]], work: Intervention | None = None) -> tuple[Tensor, Tensor]:
        """Logits [rows, width, vocab] of ``rows``, padded right, and the mask [rows, width]."""
        ids, mask = self._padded(rows)
        with self.hooks.working(work):
            return self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits, mask.bool()

    @torch.inference_mode()
    def run_from(
        self, layer: int, hidden: Tensor, read_layers: Sequence[int] = (), *, head: bool = False
    ) -> tuple[dict[int, Tensor], Tensor | None]:
        """Go on from ``hidden`` [rows, width, d_model], the stream after block ``layer``, all rows of full width.

        Returns the streams after ``read_layers`` and, with ``head``, the logits [rows, width, vocab].
        """
        inner = self.model.model
        positions = torch.arange(hidden.shape[1])[None]
        rotary = inner.rotary_emb(hidden, position_ids=positions)
        last = self.n_layers - 1 if head else max(read_layers, default=layer)
        seen: dict[int, Tensor] = {}
        for number in range(layer + 1, last + 1):
            # Without a mask the attention is causal, which is all that unpadded rows need.
            out = inner.layers[number](hidden, position_embeddings=rotary, position_ids=positions, attention_mask=None)
            hidden = out[0] if isinstance(out, tuple) else out
            if number in read_layers:
                seen[number] = hidden
        return seen, self.model.lm_head(inner.norm(hidden)) if head else None

    @torch.inference_mode()
    def write(
        self,
        prompts: Sequence[Sequence[int]],
        tokens: int,
        *,
        deltas: Mapping[int, Tensor] | None = None,
        generator: torch.Generator | None = None,
        temperature: float = 0.0,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        reader: Reader | None = None,
        read_layers: Sequence[int] = (),
        on_pass: Any = None,
        places: tuple[int, Sequence[int]] | None = None,
    ) -> list[Written]:
        """Sample up to ``tokens`` for each prompt, all in one batch, padded left.

        ``deltas`` ({layer: [rows, d_model]}) are added at every position but each row's first, as the program does.
        ``on_pass(mask [rows, width], ids [rows, width], live [rows])`` is called after every pass while ``reader``
        holds its streams. ``places`` (rows of a larger batch, where these stood in it) draws what that batch drew for
        them, so that some of its rows can be written again without the rest.
        """
        width = max(map(len, prompts))
        ids = torch.full((len(prompts), width), self.pad)
        mask = torch.zeros((len(prompts), width), dtype=torch.long)
        for number, prompt in enumerate(prompts):
            ids[number, width - len(prompt) :] = torch.tensor(list(prompt))
            mask[number, width - len(prompt) :] = 1
        if deltas and len({len(prompt) for prompt in prompts}) > 1:
            raise ValueError("steered rows must be of one length: the first position of each is left alone")
        observers = dict.fromkeys(read_layers, (reader,)) if reader is not None else {}
        seen = torch.zeros((len(prompts), self.model.config.vocab_size), dtype=torch.bool)
        seen.scatter_(1, ids, mask.bool())
        live = torch.ones(len(prompts), dtype=torch.bool)
        written: list[list[int]] = [[] for _ in prompts]
        cache = None
        step = ids
        for turn in range(tokens):
            positions = (mask.cumsum(1) - 1).clamp_min(0)[:, -step.shape[1] :]
            work = Intervention(deltas=deltas or {}, unsteered=1 if turn == 0 else 0, observers=observers)
            with self.hooks.working(work):
                hidden = self.model.model(
                    input_ids=step, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True
                )
            cache = hidden.cache
            if on_pass is not None:
                on_pass(mask[:, -step.shape[1] :].bool(), step, live)
            logits = self.model.lm_head(hidden.last_hidden_state[:, -1]).float()
            chosen = _choose(logits, seen, generator, temperature, top_p, repetition_penalty, places)
            live = live & ~torch.isin(chosen, torch.tensor(sorted(self.ends)))
            for number in torch.nonzero(live).flatten().tolist():
                written[number].append(int(chosen[number]))
            if not bool(live.any()):
                break
            seen.scatter_(1, chosen[:, None], True)
            step = torch.where(live, chosen, torch.tensor(self.pad))[:, None]
            mask = torch.cat([mask, torch.ones((len(prompts), 1), dtype=torch.long)], dim=1)
        return [Written(tuple(row), self.tokenizer.decode(row)) for row in written]

    def _padded(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        width = max(map(len, rows))
        ids = torch.full((len(rows), width), self.pad)
        mask = torch.zeros((len(rows), width), dtype=torch.long)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(list(row))
            mask[number, : len(row)] = 1
        return ids, mask


def row_losses(logits: Tensor, rows: Sequence[Sequence[int]], start: Sequence[int]) -> list[float]:
    """Mean −log p of each row's tokens from ``start`` on, given the ones before; NaN where there are none."""
    found = []
    for number, row in enumerate(rows):
        first = max(1, start[number])
        target = torch.tensor(list(row[first:]), dtype=torch.long)
        spread = torch.log_softmax(logits[number, first - 1 : len(row) - 1].float(), dim=-1)
        found.append(float(-spread.gather(1, target[:, None]).mean()) if len(target) else float("nan"))
    return found


def _choose(
    logits: Tensor,
    seen: Tensor,
    generator: torch.Generator | None,
    temperature: float,
    top_p: float,
    repetition_penalty: float,
    places: tuple[int, Sequence[int]] | None,
) -> Tensor:
    if repetition_penalty != 1.0:
        scaled = torch.where(logits > 0, logits / repetition_penalty, logits * repetition_penalty)
        logits = torch.where(seen[:, : logits.shape[1]], scaled, logits)
    if temperature == 0.0:
        return logits.argmax(dim=-1)
    values, order = (logits / temperature).topk(min(100, logits.shape[1]), dim=-1)
    shares = values.softmax(dim=-1)
    shares = shares * ((shares.cumsum(dim=-1) - shares) < top_p)
    if places is None:
        picked = torch.multinomial(shares, 1, generator=generator)
    else:
        # Each row takes its own stretch of the generator's numbers, so rows that are not here must take theirs.
        whole = torch.ones((places[0], shares.shape[1]))
        whole[list(places[1])] = shares
        picked = torch.multinomial(whole, 1, generator=generator)[list(places[1])]
    return order.gather(1, picked)[:, 0]
