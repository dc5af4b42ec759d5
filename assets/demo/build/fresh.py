"""The SAEs' figures on texts that come from no source of theirs: ``fresh.json`` in the pack.

    python -m assets.demo.build.fresh NEWS.txt      # one text a line

The held-out texts are of the same kinds as the training texts, so the figures on them say how well the SAEs do at home.
The shipped file was made with the Lee background corpus (300 news articles, one a line) as gensim 4.4.0 brings it in
``gensim/test/test_data/lee_background.cor``; the texts themselves are not shipped. The chats are answers to the
questions below, written as the Chat page writes them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assets.demo.build.model import Model
from assets.demo.build.settings import Build, full_build
from assets.demo.build.shared import load_saes, write_json
from engine.saes.checks import measure

NAME = "fresh.json"
WIDTH = 128
"""Tokens of each article that are read."""
ANSWER = 96
QUESTIONS = (
    "Plan a weekend for two friends who have never met.",
    "My neighbour plays the trumpet at midnight. What should I say?",
    "Compare a bus and a tram.",
    "What would you pack for a week in the rain?",
    "Write the opening of a detective novel.",
    "Explain how to tie a tie.",
    "Is it better to read in the morning or in the evening?",
    "What is the difference between a hill and a mountain?",
    "Write a thank-you note to a plumber.",
    "Invent a holiday and say how it is celebrated.",
    "Why is the sky blue?",
    "Give me a slogan for a shop that sells umbrellas.",
    "Describe the smell of an old cellar.",
    "How do I remove a stain of ink?",
    "What makes a good neighbour?",
    "Write four lines about waiting for a lift.",
    "Suggest a name for a small boat and a reason for it.",
    "What did people do before there were clocks?",
    "How does a zip work?",
    "Tell me about a colour without naming it.",
    "What should one ask at a job interview?",
    "Write a review of an imaginary hotel.",
    "How long does it take to learn to juggle?",
    "Describe a quarrel between a pen and a pencil.",
)


def run(build: Build, news: Path) -> dict[str, Any]:
    """Measure, and write the figures into the pack."""
    torch.set_num_threads(build.threads)
    model, saes = Model(build), load_saes(build)
    lines = [line.strip() for line in news.read_text(encoding="utf-8").splitlines() if line.strip()]
    articles = [(model.ids(line)[:WIDTH], 1) for line in lines]
    asked = [model.chat_ids(question) for question in QUESTIONS]
    answers = model.write(
        asked,
        ANSWER,
        generator=torch.Generator().manual_seed(build.seed),
        temperature=0.7,
        top_p=0.95,
    )
    chats = [([*ids, *answer.ids], len(ids)) for ids, answer in zip(asked, answers, strict=True)]
    found: dict[str, Any] = {
        "news": f"{len(articles)} articles of the Lee background corpus, {WIDTH} tokens of each at most",
        "chats": f"{len(chats)} answers to questions that no training text answers, {ANSWER} tokens at most",
        "layers": {},
    }
    for kind, rows in (("news", articles), ("chats", chats)):
        for layer, stream in _streams(model, build, rows).items():
            quality = measure(saes[layer], stream)
            found["layers"].setdefault(str(layer), {})[kind] = {
                "tokens": quality.n_tokens,
                "variance_explained": round(quality.variance_explained, 4),
                "l0": round(quality.l0, 2),
            }
    write_json(build.pack / NAME, found)
    return found


def _streams(model: Model, build: Build, rows: list[tuple[list[int], int]]) -> dict[int, Tensor]:
    """By layer the residual stream of every row from its given place on, one row behind the other."""
    parts: dict[int, list[Tensor]] = {layer: [] for layer in build.layers}
    for ids, start in rows:
        streams, _ = model.read([ids], build.layers)
        for layer, stream in streams.items():
            parts[layer].append(stream[0, start:])
    return {layer: torch.cat(each) for layer, each in parts.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("news", type=Path, help="texts, one a line")
    print(run(full_build(), parser.parse_args().news))
