"""The grammar of each wire against its reader: whatever the one lets a model write, the other finds as calls that fit."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache

import jsonschema
import numpy as np
import pytest

from engine.generation.constraints.grammar import Vocabulary
from engine.generation.tools.grammar import CallGrammar
from engine.generation.tools.json_wires import Hermes, Llama3, MistralArgs, MistralList
from engine.generation.tools.raw_wires import Pythonic, QwenXml
from engine.generation.tools.reader import CallReader
from engine.generation.tools.schemas import enforced_arguments
from engine.generation.tools.values import Tool, ToolKind, Tools, ToolUse
from engine.generation.tools.wire import Wire
from engine.models.backends.tokenizer import CheckpointTokenizer
from tests.engine.generation.tools.made_tools import PLAIN, of_servers
from tests.tiny import build_tokenizer

WIRES: list[Callable[[], Wire]] = [
    Hermes,
    Llama3,
    MistralList,
    MistralArgs,
    QwenXml,
    Pythonic,
    lambda: Pythonic(bare=True),
]


@cache
def marked(special: bool) -> tuple[CheckpointTokenizer, Vocabulary]:
    """A vocabulary in which the marks are tokens of their own, special or not."""
    tokenizer = build_tokenizer()
    marks = sorted({mark for make in WIRES for mark in make().marks})
    tokenizer.add_tokens(marks, special_tokens=special)
    made = CheckpointTokenizer(tokenizer)
    return made, Vocabulary(made)


@cache
def plain() -> tuple[CheckpointTokenizer, Vocabulary]:
    made = CheckpointTokenizer(build_tokenizer())
    return made, Vocabulary(made)


def grammar(wire: Wire, tools: Tools) -> CallGrammar:
    schemas = {tool.name: enforced_arguments(tool).schema for tool in tools.to_call}
    return CallGrammar(wire, schemas, tools.most_calls, tools.insists)


def written(wire: Wire, tools: Tools, where: tuple[CheckpointTokenizer, Vocabulary], seed: int, most: int) -> str:
    """An answer of tokens drawn at random among those allowed; strings are ended early, so that it ends."""
    tokenizer, vocabulary = where
    matcher = grammar(wire, tools).compile(vocabulary, tokenizer.eos_ids).compiled.matcher()
    draw = random.Random(seed)
    text = b""
    for _ in range(most):
        bits = np.unpackbits(np.frombuffer(matcher.allowed(), dtype=np.uint8), bitorder="little")
        allowed = [int(token) for token in np.flatnonzero(bits)]
        others = [token for token in allowed if token not in tokenizer.eos_ids]
        if not others or (len(others) < len(allowed) and draw.random() < 0.7):
            return text.decode()
        ends = [token for token in others if tokenizer.token_text(token)[:1] in '"<}])\n']
        token = draw.choice(ends) if ends and draw.random() < 0.5 else draw.choice(others)
        matcher.take(token)
        text += tokenizer.token_bytes(token)
    return ""


@pytest.mark.parametrize("vocabulary", ["plain", "added", "special"])
@pytest.mark.parametrize("make", WIRES)
def test_what_the_grammar_lets_through_the_reader_finds(make: Callable[[], Wire], vocabulary: str) -> None:
    where = plain() if vocabulary == "plain" else marked(vocabulary == "special")
    tools = Tools(PLAIN.offered, ToolUse.REQUIRED)
    whole = 0
    for seed in range(12):
        text = written(make(), tools, where, seed, 400)
        if not text:
            continue
        whole += 1
        calls = calls_in(make(), tools, text)
        assert calls, text
        for name, arguments in calls:
            tool = tools.tool(name)
            jsonschema.validate(json.loads(arguments), tool.schema)
    assert whole > 3


def calls_in(wire: Wire, tools: Tools, text: str) -> list[tuple[str, str]]:
    reader = CallReader(wire, tools, lambda asked: True)
    calls: dict[int, tuple[str, str]] = {}
    for part in [*reader.feed(text), *reader.finish()]:
        if part.call is not None:
            said = calls.get(part.call.number, (part.call.name, ""))[1]
            calls[part.call.number] = (part.call.name, said + part.told)
    assert reader.closed == reader.begun
    return list(calls.values())


@pytest.mark.parametrize("make", WIRES)
def test_tools_of_the_shapes_that_servers_send(make: Callable[[], Wire]) -> None:
    tools = of_servers(use=ToolUse.REQUIRED)
    assert sum(len(json.dumps(tool.schema)) for tool in tools.offered) > 50_000
    where = plain()
    whole = 0
    for seed in range(6):
        text = written(make(), tools, where, seed, 600)
        if text:
            whole += 1
            for _, arguments in calls_in(make(), tools, text):
                assert isinstance(json.loads(arguments), dict)
    assert whole


@pytest.mark.parametrize("make", WIRES)
def test_each_of_them_alone_writes_what_it_was_asked_for(make: Callable[[], Wire]) -> None:
    for tool in of_servers(8).offered:
        tools = Tools((tool,), ToolUse.NAMED)
        texts = [text for seed in range(5) if (text := written(make(), tools, plain(), seed, 500))]
        for text in texts:
            ((name, arguments),) = calls_in(make(), tools, text)
            assert name == tool.name
            jsonschema.validate(json.loads(arguments), dict(enforced_arguments(tool).schema))


@pytest.mark.parametrize("make", WIRES)
def test_a_custom_tool(make: Callable[[], Wire]) -> None:
    tools = Tools((Tool("run", kind=ToolKind.CUSTOM),), ToolUse.NAMED)
    texts = [text for seed in range(12) if (text := written(make(), tools, plain(), seed, 200))]
    if isinstance(make(), QwenXml):
        # No chance writes the tag that ends a raw text.
        texts = [make().written("run", {"input": "a <b>\nc"})]
        tokenizer, vocabulary = plain()
        assert grammar(make(), tools).compile(vocabulary, tokenizer.eos_ids).compiled.matcher().fits(texts[0])
    assert texts
    for text in texts:
        assert [name for name, _ in calls_in(make(), tools, text)] == ["run"]


@pytest.mark.parametrize("make", WIRES)
def test_a_call_as_it_is_written_into_a_conversation_is_read_as_one(make: Callable[[], Wire]) -> None:
    text = make().written("get_weather", {"city": 'Os"lo', "unit": "c"})
    ((name, arguments),) = calls_in(make(), PLAIN, text)
    assert (name, json.loads(arguments)) == ("get_weather", {"city": 'Os"lo', "unit": "c"})


@pytest.mark.parametrize("make", WIRES)
def test_a_free_answer_is_held_from_the_mark_on(make: Callable[[], Wire]) -> None:
    tokenizer, vocabulary = plain()
    compiled = grammar(make(), PLAIN).compile(vocabulary, tokenizer.eos_ids).compiled
    whole = make().written("get_time", {})
    assert compiled.matcher().fits(whole)
    assert compiled.matcher().fits(whole + " and text behind it")
    assert compiled.matcher().fits(whole[: len(whole) // 2])
    assert not compiled.matcher().fits(make().written("unknown", {}))
