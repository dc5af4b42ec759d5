"""Answers of the model itself as training text: sampled in its own template, their activations kept on the way.

The prompts are made from the subjects and forms below. The system prompt, the same in every chat, is read once in
thirty; a chat is held out whole. Writes chunks ``chat-…`` and ``chats.jsonl`` with the texts.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any

import torch
from torch import Tensor

from assets.demo.build.chunks import ChunkWriter
from assets.demo.build.corpus import is_held_out
from assets.demo.build.model import Model, Reader
from assets.demo.build.settings import Build, from_arguments

ROWS = 48
TOKENS = 120
SYSTEM_EVERY = 30
PIECE_OFFSET = 1_000_000
"""Chats are numbered from here, packages' pieces from 0."""

SUBJECTS = """
a sailor and the sea; a storm on the ocean; a harbour at dawn; a fishing boat; a lighthouse keeper; whales and
dolphins; a pirate ship; a coral reef; a long voyage; a beach in winter; a doctor and a patient; a hospital at night;
a new medicine; how vaccines work; a broken leg; a nurse's day; the flu; blood pressure; a surgeon; a visit to the
dentist; a judge in court; a trial; a lawyer's advice; a contract; a theft and its punishment; the police; a new law;
human rights; a jury; a prison; baking bread; a recipe for soup; a restaurant; a birthday cake; cooking pasta; fruit
and vegetables; breakfast; a farmer's market; cheese; chocolate; coffee and tea; a wedding dinner; a bank; saving
money; taxes; a loan; the stock market; the price of a house; a poor family; a rich merchant; a budget; buying a car;
an army at war; a soldier's letter home; a battle; a general; a castle under siege; peace talks; weapons; a spy; the
navy; a prayer; a church; a monk in his monastery; an angel; the temple; a holy book; a pilgrim; faith and doubt; a
funeral; heaven; a dog; a cat and a mouse; horses; birds in the garden; a lion in the savanna; bees; a wolf in the
forest; elephants; a zoo; insects; an old violin; a concert; a singer; learning the piano; a jazz band; a song about
home; a choir; a drummer; a computer; a programming language; a bug in a program; the internet; a robot; a database; a
password; an algorithm; artificial intelligence; a telephone; a sad goodbye; loneliness; a broken heart; tears; a lost
child; joy and laughter; a happy surprise; anger; fear of the dark; courage; love at first sight; friendship; the moon
and the stars; a journey to Mars; the sun; a telescope; gravity; a comet; an astronaut; a mountain; a river; a
volcano; rain; snow; a desert; a forest; flowers in spring; a thunderstorm; the weather; a school; a teacher; an
examination; a library; a book; a poem; a painter; a museum; a football match; running; chess; swimming; the Olympic
games; a train journey; an aeroplane; a bicycle; a road through the hills; a city at night; a village; a house with a
garden; a bridge; a tailor and a coat; shoes; a king and a queen; a princess; a dragon; a wizard; a knight; an old
woman; a baby; a grandfather; brothers and sisters; a family dinner; work and rest; a factory; a strike; an election;
a president; a speech; history of Rome; ancient Egypt; the French revolution; a map; numbers; geometry; fractions;
chemistry; atoms; electricity; a magnet; the human brain; the heart; sleep; dreams; memory; language; grammar; a
letter; a dictionary
"""
FORMS = (
    "Write a short story about {}.",
    "Tell me something interesting about {}.",
    "Describe {} in a few sentences.",
    "Write a short poem about {}.",
    "What should I know about {}?",
    "Write a dialogue between two people about {}.",
    "Explain {} to a child.",
    "Make a list of five facts about {}.",
    "Write a news report about {}.",
    "Give me three tips concerning {}.",
    "Ask me a few questions about {}.",
    "Why do people care about {}?",
)
PLAIN = (
    "How are you today?",
    "Introduce yourself.",
    "What can you do?",
    "Tell me a joke.",
    "Write a haiku.",
    "What is the capital of France?",
    "How many days are in a year?",
    "Give me advice for a good life.",
    "Write an e-mail to a colleague asking for a meeting.",
    "Translate 'good morning' into Spanish.",
    "Write a Python function that adds two numbers.",
    "Explain what a loop is in programming.",
    "What is 17 plus 25?",
    "Continue the story: Once upon a time there was",
    "Summarise the plot of a famous play.",
)


def prompts(build: Build) -> list[str]:
    """Every prompt, shuffled."""
    subjects = [each.strip() for each in " ".join(SUBJECTS.split()).split(";")]
    found = [form.format(subject) for subject in subjects for form in FORMS] + list(PLAIN) * 3
    random.Random(f"{build.seed} chats").shuffle(found)
    return found


def make(build: Build) -> int:
    """Sample chats until there are ``chat_tokens``; the number there are afterwards."""
    progress = build.state / "chats.json"
    build.state.mkdir(parents=True, exist_ok=True)
    done = json.loads(progress.read_text()) if progress.exists() else {"chats": 0, "tokens": 0}
    if done["tokens"] >= build.chat_tokens:
        return int(done["tokens"])
    model = Model(build)
    system = _shared_start(model)
    writer = ChunkWriter(build.activations, "chat", build.layers)
    every = prompts(build)
    rows, length = (4, 24) if build.test else (ROWS, TOKENS)
    began, since = time.monotonic(), 0
    while done["tokens"] < build.chat_tokens:
        start = int(done["chats"])
        asked = [every[(start + i) % len(every)] for i in range(rows)]
        keeper = _Keeper(build, [model.chat_ids(each) for each in asked], asked, start, system)
        written = model.write(
            keeper.prompts,
            length,
            generator=torch.Generator().manual_seed(build.seed + start),
            temperature=0.8,
            top_p=0.95,
            repetition_penalty=1.1,
            reader=keeper.reader,
            read_layers=build.layers,
            on_pass=keeper.on_pass,
        )
        kept = keeper.hand_over(writer)
        with (build.state / "chats.jsonl").open("a", encoding="utf-8") as file:
            for prompt, answer in zip(asked, written, strict=True):
                file.write(json.dumps({"prompt": prompt, "answer": answer.text}, ensure_ascii=False) + "\n")
        writer.flush(force=True)
        since += kept
        done = {"chats": start + rows, "tokens": done["tokens"] + kept}
        progress.write_text(json.dumps(done))
        print(f"chats: {done['tokens']} tokens, {since / (time.monotonic() - began):.0f} a second", flush=True)
    return int(done["tokens"])


def _shared_start(model: Model) -> int:
    """How many tokens every chat begins with."""
    first, second = model.chat_ids("Hello"), model.chat_ids("Goodbye, friend")
    return next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)


class _Keeper:
    """Collects the streams of one batch of chats while they are written."""

    def __init__(self, build: Build, prompt_ids: list[list[int]], asked: list[str], start: int, system: int) -> None:
        self.prompts = prompt_ids
        self.reader = Reader()
        self._layers = build.layers
        self._streams: dict[int, list[Tensor]] = {layer: [] for layer in build.layers}
        self._rest: list[Tensor] = []
        self._at = torch.zeros(len(prompt_ids), dtype=torch.long)
        self._piece = PIECE_OFFSET + start + torch.arange(len(prompt_ids))
        # By the prompt's words, so that one prompt asked twice never stands on both sides.
        self._held = torch.tensor([is_held_out(f"chat {each}", build.held_out_share) for each in asked])
        whole = torch.tensor([(start + i) % SYSTEM_EVERY == 0 for i in range(len(prompt_ids))])
        self._from = torch.where(whole, torch.tensor(1), torch.tensor(system))

    def on_pass(self, mask: Tensor, ids: Tensor, live: Tensor) -> Any:
        """After each pass: ``mask`` and ``ids`` [rows, width], ``live`` [rows]."""
        positions = self._at[:, None] + mask.long().cumsum(1) - 1
        keep = mask & live[:, None] & (positions >= self._from[:, None])
        for layer in self._layers:
            self._streams[layer].append(self.reader.seen[layer][keep].to(torch.float16))
        piece = self._piece[:, None].expand_as(mask)
        held = self._held[:, None].expand_as(mask)
        self._rest.append(torch.stack([ids[keep], piece[keep], positions[keep], held[keep].long()]))
        self._at = self._at + mask.long().sum(1)

    def hand_over(self, writer: ChunkWriter) -> int:
        """Everything collected, to the writer; how many tokens."""
        ids, piece, position, held = torch.cat(self._rest, dim=1)
        # In the order of the texts, so that a piece's tokens stand together.
        order = (piece * 10_000 + position).argsort()
        streams = {layer: torch.cat(parts)[order] for layer, parts in self._streams.items()}
        writer.add(streams, ids[order], piece[order], position[order], held[order])
        return len(order)


if __name__ == "__main__":
    make(from_arguments(__doc__ or ""))
