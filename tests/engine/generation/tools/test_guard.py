"""What an answer with tools may go on with: free until a call begins, held within it, free behind it."""

from __future__ import annotations

import pytest
import torch

from engine.errors import MillmError
from engine.generation.errors import ConstrainedOutputInvalid
from engine.generation.request import TokenInfo
from engine.generation.response_format import ResponseFormat
from engine.generation.text.reasoning import Beginning
from engine.generation.text.stream import ChoiceText
from engine.generation.tools.grammar import CallGrammar
from engine.generation.tools.guard import CallGuard, CompiledCalls
from engine.generation.tools.json_wires import Hermes
from engine.generation.tools.schemas import enforced_arguments
from engine.generation.tools.values import Tools, ToolUse
from tests.engine.generation.tools.made_tools import PLAIN
from tests.engine.generation.tools.test_wires import plain

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


class Written:
    """An answer written token by token, as a lane writes it: each token has to be allowed."""

    def __init__(self, tools: Tools = PLAIN, document: ResponseFormat | None = None, **text: object) -> None:
        self.tokenizer, vocabulary = plain()
        schemas = {tool.name: enforced_arguments(tool).schema for tool in tools.to_call}
        strict = frozenset(tool.name for tool in tools.to_call if tool.strict)
        grammar = CallGrammar(Hermes(), schemas, tools.most_calls, tools.insists, strict, document)
        compiled: CompiledCalls = grammar.compile(vocabulary, self.tokenizer.eos_ids)
        self.guard = CallGuard(compiled, tools, self.tokenizer.vocab_size, torch.device("cpu"))
        self.text = ChoiceText(self.tokenizer, calls=self.guard.reader, **text)  # type: ignore[arg-type]
        self.guard.follow(answering=self.text.answering)
        self.held: list[bool] = []

    def write(self, text: str) -> Written:
        for token in self.tokenizer.encode(text, False):
            self.held.append(self.guard.holds)
            mask = self.guard.mask()
            if mask is not None:
                assert bool(mask[token]), self.tokenizer.token_text(token)
            self.guard.take(token)
            self.guard.show(self.text.feed(TokenInfo(token)).pieces)
            self.guard.follow(answering=self.text.answering)
        return self

    def may_write(self, text: str) -> bool:
        mask = self.guard.mask()
        return mask is None or bool(mask[self.tokenizer.encode(text, False)[0]])

    @property
    def may_end(self) -> bool:
        mask = self.guard.mask()
        return mask is None or any(bool(mask[token]) for token in self.tokenizer.eos_ids)


def test_a_free_answer_is_held_within_its_calls() -> None:
    answer = Written().write("Looking up. <tool_call>")
    assert not any(answer.held)
    assert answer.guard.holds
    assert not answer.may_end
    assert not answer.may_write("x")
    answer.write('\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>')
    assert not answer.guard.holds
    assert answer.may_write("x")
    assert answer.guard.called
    assert not answer.guard.done
    # And again.
    answer.write(" " + CALL)
    assert answer.guard.reader.closed == 2


def test_what_only_began_like_a_mark_stays_free() -> None:
    answer = Written().write("a <tool and <tool_calls> or <tool")
    assert not any(answer.held)
    assert not answer.guard.holds


def test_an_answer_that_has_to_call_is_held_from_its_first_token() -> None:
    answer = Written(Tools(PLAIN.offered, ToolUse.REQUIRED))
    assert answer.guard.holds
    assert not answer.may_end
    answer.write(CALL)
    assert answer.may_end
    assert answer.may_write("<")
    assert not answer.may_write("x")


def test_behind_reasoning_that_the_prompt_opened() -> None:
    answer = Written(Tools(PLAIN.offered, ToolUse.REQUIRED), beginning=Beginning.OPENED)
    assert not answer.guard.holds
    answer.write("Which city? <tool_call> no.\n</think>")
    assert not any(answer.held)
    assert answer.guard.holds
    answer.write("\n\n" + CALL)
    assert answer.guard.reader.closed == 1
    assert answer.may_end


def test_an_answer_with_one_call_is_over_behind_it() -> None:
    assert Written(Tools(PLAIN.offered, ToolUse.AUTO, parallel=False)).write(CALL).guard.done
    named = Tools(PLAIN.offered, ToolUse.NAMED, frozenset({"get_weather"}))
    answer = Written(named)
    assert answer.write(CALL).guard.done


def test_what_may_not_be_called_cannot_be_written() -> None:
    answer = Written(Tools(PLAIN.offered, ToolUse.REQUIRED, frozenset({"get_time"})))
    answer.write('<tool_call>\n{"name": "get_')
    assert not answer.may_write("w")
    assert answer.may_write("t")


@pytest.mark.parametrize("begun", ["Sure. <tool_call>", '<tool_call>\n{"name": "get_wea', "<tool_c"])
def test_a_call_that_was_begun_goes_on(begun: str) -> None:
    answer = Written(begun=begun)
    assert answer.guard.holds == ("<tool_call>" in begun)
    rest = CALL[len(begun.partition("Sure. ")[2] or begun) :]
    answer.write(rest)
    assert answer.guard.reader.closed == 1


def test_a_form_or_a_call() -> None:
    form = ResponseFormat({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}, "n")
    assert Written(document=form).write(CALL).may_end
    answer = Written(document=form).write('{"ok":true')
    assert not answer.may_end
    with pytest.raises(ConstrainedOutputInvalid):
        answer.guard.complete()
    answer.write("}").guard.complete()
    Written(document=form).write(CALL).guard.complete()


def test_a_grammar_that_is_none_is_refused() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 4}}, "required": ["a"]}
    _, vocabulary = plain()
    with pytest.raises(MillmError):
        CallGrammar(Hermes(), {"f": schema}, 1, True).compile(vocabulary, [0])
