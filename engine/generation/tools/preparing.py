"""What a request's tools come to for one model: which of them it is shown, and what its answer is held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.errors import MillmError
from engine.generation.errors import ResponseFormatUnsupported, ToolSchemaUnsupported
from engine.generation.response_format import ResponseFormat
from engine.generation.tools.grammar import CallGrammar
from engine.generation.tools.guard import CompiledCalls
from engine.generation.tools.probe import ToolForm, tool_form
from engine.generation.tools.schemas import ANY_OBJECT, enforced_arguments
from engine.generation.tools.turns import description
from engine.generation.tools.values import Tool, Tools

if TYPE_CHECKING:
    from engine.models.backends.backend import Tokenizer

Compile = Callable[[CallGrammar], CompiledCalls]
"""Compiles a grammar for the model, or finds it compiled. Raises :class:`ResponseFormatUnsupported`."""


@dataclass(frozen=True)
class Shown:
    """The tools that the model is shown.

    Attributes:
        tools: What the request comes to with them; None where none are left.
        left_out: Names of those that are not shown.
    """

    tools: Tools | None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def shown_tools(tools: Tools, tokenizer: Tokenizer, window: int, describe_at_most: int) -> Shown:
    """Which of ``tools`` the model is shown.

    Where the template has none, they would be described in words, which fill a small window and slow each chat. So
    tools that are merely offered are described in up to ``describe_at_most`` tokens, and a quarter of the window; those
    that have to be called, and strict ones, always are.
    """
    form = tool_form(tokenizer)
    if form.native or tools.insists:
        return Shown(tools)
    most = min(describe_at_most, window // 4)
    needed = _tokens(tokenizer, tools.offered, form)
    if needed <= most:
        return Shown(tools)
    strict = tuple(tool for tool in tools.offered if tool.strict)
    left_out = tuple(tool.name for tool in tools.offered if not tool.strict)
    if not left_out:
        return Shown(tools)
    note = (
        f"{len(left_out)} offered tools were left out: describing all of them takes {needed} tokens, and at most "
        f"{most} are spent on tools that need not be called."
    )
    if not strict:
        return Shown(None, left_out, (note,))
    return Shown(replace(tools, offered=strict), left_out, (note,))


def _tokens(tokenizer: Tokenizer, tools: tuple[Tool, ...], form: ToolForm) -> int:
    text = description(tools, form)
    try:
        return max(len(tokenizer.encode(text, False)), 1)
    except ValueError:
        # Not Unicode; rendering the conversation says so.
        return 1


def grammar_of(tools: Tools, form: ToolForm, response_format: ResponseFormat | None) -> CallGrammar:
    """What the answer is held to. Raises :class:`ToolSchemaUnsupported`."""
    schemas = {tool.name: enforced_arguments(tool).schema for tool in tools.to_call}
    for tool in tools.to_call:
        if tool.strict and (why := form.wire.cannot_hold(schemas[tool.name])) is not None:
            raise ToolSchemaUnsupported(
                f"The schema of the strict tool {tool.name!r} cannot be enforced in the form in which this model "
                f"writes calls: {why}.",
                param="tools",
                details={"tool": tool.name},
                remedy="Leave 'strict' out, or take what is named out of the schema.",
            )
    strict = frozenset(tool.name for tool in tools.to_call if tool.strict)
    return CallGrammar(form.wire, schemas, tools.most_calls, tools.insists, strict, response_format)


def compiled_calls(
    tools: Tools, tokenizer: Tokenizer, response_format: ResponseFormat | None, compile_: Compile
) -> tuple[CompiledCalls, tuple[str, ...]]:
    """The compiled grammar of an answer with ``tools``, and notes.

    A schema that cannot be compiled, of a tool that is not strict, is left to the model: its arguments are any object.

    Raises :class:`ToolSchemaUnsupported` for a strict tool, :class:`ResponseFormatUnsupported` for a vocabulary that
    cannot be constrained.
    """
    grammar = grammar_of(tools, tool_form(tokenizer), response_format)
    try:
        return compile_(grammar), ()
    except ResponseFormatUnsupported as error:
        whole_error = error
    arguments: dict[str, Mapping[str, Any]] = dict(grammar.arguments)
    failed: list[str] = []
    for tool in tools.to_call:
        alone = replace(grammar, arguments={tool.name: grammar.arguments[tool.name]}, document=None)
        try:
            compile_(alone)
        except ResponseFormatUnsupported as error:
            if tool.strict:
                raise _unsupported(tool, error) from error
            arguments[tool.name] = ANY_OBJECT
            failed.append(tool.name)
    if not failed:
        # Each goes, and all together are too much: those that need not fit give way.
        failed = [tool.name for tool in tools.to_call if not tool.strict]
        arguments.update(dict.fromkeys(failed, ANY_OBJECT))
    try:
        compiled = compile_(replace(grammar, arguments=arguments))
    except ResponseFormatUnsupported as error:
        strict = next((tool for tool in tools.to_call if tool.strict), None)
        if strict is not None:
            raise _unsupported(strict, error) from error
        raise whole_error from error
    listed = ", ".join(repr(name) for name in failed)
    return compiled, (f"The schemas of these tools could not be enforced; their arguments are any object: {listed}.",)


def _unsupported(tool: Tool, error: MillmError) -> ToolSchemaUnsupported:
    return ToolSchemaUnsupported(
        f"The schema of the strict tool {tool.name!r} cannot be enforced. {error.message}",
        param="parameters",
        details={**error.details, "tool": tool.name},
        remedy="Simplify the schema, or leave 'strict' out.",
    )


def marks_of(form: ToolForm, tokenizer: Tokenizer) -> frozenset[int]:
    """Tokens that calls are made of and that otherwise show nothing."""
    found: set[int] = set()
    for mark in form.wire.marks:
        ids = tokenizer.encode(mark, False)
        if len(ids) == 1 and ids[0] in tokenizer.hidden_ids and ids[0] not in tokenizer.eos_ids:
            found.add(ids[0])
    return frozenset(found)


def check_strict(tools: Tools, paths: Sequence[str]) -> None:
    """Refuse strict tools whose schemas cannot be enforced, without a model; ``paths`` name them in the request.

    Raises :class:`ToolSchemaUnsupported`.
    """
    for tool, path in zip(tools.offered, paths, strict=True):
        if not tool.strict:
            continue
        try:
            enforced_arguments(tool)
        except ToolSchemaUnsupported as error:
            raise ToolSchemaUnsupported(
                error.message, param=path, details={**error.details, "tool": tool.name}, remedy=error.remedy
            ) from error
