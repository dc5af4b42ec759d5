"""From messages or raw text to the exact tokens a model reads.

Knows chat templates and their failings; knows nothing of models or sampling. Two promises: the model reads exactly one
BOS where its tokenizer has a use for one, whatever the template does; and a conversation is never changed silently
(each change is a note, in words).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from engine.errors import InvalidParameter, NoChatTemplate
from engine.generation.request import ChatInput, Message, TextInput
from engine.generation.text.reasoning import OPEN, Beginning, prompt_beginning
from engine.generation.tools.probe import tool_form
from engine.generation.tools.turns import (
    NAME,
    NOTE_DESCRIBED,
    NOTE_UNREAD,
    TOOL_CALL_ID,
    TOOL_CALLS,
    Turn,
    description,
    other_ways,
    told_turns,
    variables_for,
    with_description,
)
from engine.generation.tools.values import Tool
from engine.models.backends.lengths import ALWAYS_WHOLE, TextTooLong
from engine.models.backends.templates.chat import REASONING, TemplateBroken, TemplateCostly, TemplateRaised

if TYPE_CHECKING:
    from engine.models.backends.backend import Tokenizer

NOTE_NO_TEMPLATE = "The model has no chat template; generic turns were written instead."
NOTE_FOLDED = (
    "The chat template refused the conversation as it was sent; the system text was moved into the first user turn and "
    "neighbouring turns of one role were merged."
)
NOTE_APPENDED = (
    "The chat template cannot leave a turn open; the unfinished answer was put after the opening of a new one."
)

GENERIC_TURN_END = "<end_of_turn>"
"""How a turn ends for a model without a template; it has no such token, so its text is a stop."""

_ROLES = {"developer": "system", "function": "tool"}
_PARAMETERS_THAT_ARE_VARIABLES = {"documents"}
"""Arguments of the renderer that only reach the template, so a request may set them."""

Turns = list[Turn]


@dataclass(frozen=True)
class PreparedPrompt:
    """What the model reads: the text as rendered (a BOS the tokenizer adds itself is not in it), and all token ids.

    ``beginning``: where in an answer the model's text begins; raw text has no reasoning. ``continued``: what of the
    answer stands in it already.
    """

    text: str
    token_ids: tuple[int, ...]
    beginning: Beginning = Beginning.NEVER
    continued: str = ""


class PromptTooLong(TextTooLong):
    """As :class:`TextTooLong`, of raw prompt number ``place``."""

    def __init__(self, tokens: int, place: int) -> None:
        super().__init__(tokens)
        self.place = place


def prepare_chat(
    tokenizer: Tokenizer, chat: ChatInput, most: int | None = None, tools: Sequence[Tool] = ()
) -> tuple[PreparedPrompt, tuple[str, ...], bool]:
    """Render and tokenize a conversation.

    ``most``: tokens the model can read; with them what is far longer is refused before it is made tokens of. ``tools``
    are shown to the model by its template, or described in the system text.

    Returns:
        The prompt; notes on what was changed to make it work; whether the last message, an assistant's, is continued
        (it is, unless it is blank: then it counts as not sent). One that is nothing but reasoning is continued in that.

    Raises:
        InvalidParameter: ``messages``: none to answer, not Unicode, or refused by the template even after folding.
            ``model``: its template can write no conversation. ``chat_template_kwargs.NAME``: a name that is not a
            variable but steers the renderer.
        NoChatTemplate: Template variables for a model without a template.
        TextTooLong: Certainly more than ``most`` tokens.
    """
    turns = _turns(chat)
    if most is not None:
        _check_turns(tokenizer, turns, most)
    continued = turns[-1]["role"] == "assistant" and not turns[-1].get(TOOL_CALLS)
    # Cut in its reasoning: no template can leave that open, so it is put behind what the template opens a turn with.
    thought = turns.pop()[REASONING] if continued and not turns[-1]["content"].strip() else ""
    if not turns:
        raise _nothing_to_answer()
    begun = turns[-1]["content"] if continued and not thought else ""
    turns, told, more = _with_tools(tokenizer, turns, tools)
    variables = chat.template_kwargs if tokenizer.takes_variables else {}
    _check_unicode(json.dumps(variables, ensure_ascii=False, default=str), "chat_template_kwargs")
    if not tokenizer.has_chat_template:
        if variables:
            raise NoChatTemplate(
                f"The request sets {_listed(variables)} for the chat template, but the model has none.",
                param="chat_template_kwargs",
                remedy="Leave chat_template_kwargs out, or use a model that has a chat template.",
            )
        text, notes = _generic(turns, continued and not thought)
    else:
        _check_variables(variables)
        text, notes = _rendered(tokenizer, turns, continued and not thought, {**variables, **told})
        if tokenizer.template_note is not None:
            notes.append(tokenizer.template_note)
        unread = unread_variables(tokenizer, variables)
        if unread:
            notes.append(f"The chat template does not read {_listed(unread)}.")
    notes += more
    beginning = prompt_beginning(text)
    if thought:
        opened = text if beginning is Beginning.OPENED else f"{text}{OPEN}\n"
        text, beginning = opened + thought, Beginning.INSIDE
    _check_unicode(text, "chat_template_kwargs")
    text, ids = _with_one_bos(tokenizer, text, most)
    if not ids:
        raise InvalidParameter("The chat template made an empty prompt of 'messages'.", param="messages")
    return PreparedPrompt(text, tuple(ids), beginning, begun), tuple(notes), continued


def prepare_text(
    tokenizer: Tokenizer, given: TextInput, most: int | None = None, readable: int | None = None
) -> list[PreparedPrompt]:
    """Tokenize raw prompts, in order. ``most`` as for :func:`prepare_chat`; ``readable``: where the token ids end that
    the model can read, by default where the tokenizer's do.

    With ``add_special_tokens`` the tokenizer puts its BOS first, once, also where the text has it written already; an
    end token it would append is left out, since the text is to be continued. Without, the text is taken as it stands,
    as token ids always are; their text has the written form of special tokens.

    Raises:
        PromptTooLong: Certainly more than ``most`` tokens.
        InvalidParameter: ``prompt``: there is none, one has no tokens, is not Unicode, or names a token there is not.
    """
    if not given.prompts:
        raise InvalidParameter("'prompt' is an empty list; expected at least one prompt.", param="prompt")
    prepared: list[PreparedPrompt] = []
    for place, text in enumerate(given.prompts):
        name = "prompt" if len(given.prompts) == 1 else f"prompt[{place}]"
        try:
            if isinstance(text, str):
                _check_unicode(text, "prompt", name)
                ids = _encoded(tokenizer, text, given.add_special_tokens, most)
            else:
                ids = _as_they_stand(text, name, most, tokenizer.vocab_size if readable is None else readable)
        except TextTooLong as error:
            raise PromptTooLong(error.tokens, place) from error
        if not ids:
            raise InvalidParameter(
                f"'{name}' is empty: it gives the model no token to start from.",
                param="prompt",
                remedy="Send at least one character." if isinstance(text, str) else "Send at least one token id.",
            )
        written = text if isinstance(text, str) else tokenizer.decode(ids, skip_special=False)
        prepared.append(PreparedPrompt(written, tuple(ids)))
    return prepared


def _as_they_stand(token_ids: Sequence[int], name: str, most: int | None, readable: int) -> list[int]:
    """Token ids of a prompt that came as such."""
    if most is not None and len(token_ids) > most:
        raise TextTooLong(len(token_ids))
    outside = next((token for token in token_ids if not 0 <= token < readable), None)
    if outside is not None:
        raise InvalidParameter(
            f"Invalid value for '{name}': token id {outside} is outside the model's vocabulary of {readable} tokens.",
            param="prompt",
            details={"token_id": outside, "readable_ids": readable},
            remedy=f"Use token ids from 0 to {readable - 1}, as the model's own tokenizer gives them.",
        )
    return list(token_ids)


def check_readable(tokenizer: Tokenizer, token_ids: Sequence[int], readable: int, param: str) -> None:
    """Raise :class:`InvalidParameter` for a token at or past ``readable``, the model's embedding's end.

    A tokenizer may have been given tokens that the weights were never given rows for.
    """
    outside = next((token for token in token_ids if token >= readable), None)
    if outside is not None:
        raise InvalidParameter(
            f"The text holds {tokenizer.token_text(outside)!r}, which is token {outside} of the tokenizer; the model "
            f"can read tokens 0 to {readable - 1} only.",
            param=param,
            details={"token_id": outside, "readable_ids": readable},
            remedy="Leave it out of the text, or load a checkpoint whose weights were made for this tokenizer.",
        )


def unread_variables(tokenizer: Tokenizer, variables: Mapping[str, object]) -> tuple[str, ...]:
    """Names in ``variables`` that the model's chat template never reads, in order; none where that cannot be told."""
    if not variables or not tokenizer.takes_variables:
        return ()
    read = tokenizer.template_variables()
    return () if read is None else tuple(name for name in variables if name not in read)


# --- messages ---------------------------------------------------------------------------------------------------------


def _turns(chat: ChatInput) -> Turns:
    """The messages a template gets: settled roles, text for every content, no blank answer at the end."""
    turns: Turns = []
    for place, message in enumerate(chat.messages):
        content = message.content or ""
        _check_unicode(content, f"messages.{place}.content")
        turn: Turn = {"role": _ROLES.get(message.role, message.role), "content": content}
        if message.reasoning.strip() and turn["role"] == "assistant":
            _check_unicode(message.reasoning, f"messages.{place}.{REASONING}")
            turn[REASONING] = message.reasoning
        if message.calls:
            turn[TOOL_CALLS] = list(message.calls)
        if turn["role"] == "tool":
            turn.update({key: value for key, value in _answered(message) if value})
        turns.append(turn)
    while turns and turns[-1]["role"] == "assistant" and not _said(turns[-1]):
        turns.pop()
    if not turns:
        raise _nothing_to_answer()
    return turns


def _nothing_to_answer() -> InvalidParameter:
    return InvalidParameter(
        "'messages' holds nothing to answer.", param="messages", remedy="Send at least one user message."
    )


def _said(turn: Turn) -> bool:
    return bool(turn["content"].strip() or turn.get(REASONING) or turn.get(TOOL_CALLS))


def _answered(message: Message) -> tuple[tuple[str, str | None], ...]:
    return (TOOL_CALL_ID, message.call_id), (NAME, message.name)


def _with_tools(
    tokenizer: Tokenizer, turns: Turns, tools: Sequence[Tool]
) -> tuple[Turns, Mapping[str, object], list[str]]:
    """The turns as the template can write them, the variables that tell it of ``tools``, and notes."""
    if not tools and not any(turn["role"] == "tool" or turn.get(TOOL_CALLS) for turn in turns):
        return turns, {}, []
    form = tool_form(tokenizer)
    made = told_turns(turns, form)
    for turn in made:
        _check_unicode(json.dumps(turn, ensure_ascii=False), "messages")
    if not tools:
        return made, {}, []
    _check_unicode(json.dumps([tool.told() for tool in tools], ensure_ascii=False), "tools")
    if form.native:
        return made, variables_for(tools), []
    note = NOTE_UNREAD if form.unread else NOTE_DESCRIBED
    return with_description(made, description(tools, form)), {}, [note]


def _check_turns(tokenizer: Tokenizer, turns: Turns, most: int) -> None:
    """Raise :class:`TextTooLong` before anything is rendered when the turns are several windows long.

    What is somewhat longer is rendered first: templates leave the thoughts of earlier turns out.
    """
    if sum(len(turn["content"]) for turn in turns) > 4 * max(most, ALWAYS_WHOLE):
        least = sum(tokenizer.at_least(turn["content"]) for turn in turns)
        if least > 4 * most:
            raise TextTooLong(least)


def _check_unicode(text: str, param: str, name: str | None = None) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidParameter(
            f"'{name or param}' is not Unicode text: character {error.start} is half of a surrogate pair.", param=param
        ) from error


def _check_variables(variables: Mapping[str, object]) -> None:
    for name in variables:
        if name in _renderer_parameters():
            raise InvalidParameter(
                f"'chat_template_kwargs.{name}' is no variable of the chat template but an argument of the renderer; "
                "a request may not set it.",
                param=f"chat_template_kwargs.{name}",
            )


@cache
def _renderer_parameters() -> frozenset[str]:
    from transformers import PreTrainedTokenizerBase
    from transformers.utils.chat_template_utils import render_jinja_template

    names = {"messages"}
    for function in (PreTrainedTokenizerBase.apply_chat_template, render_jinja_template):
        names |= set(inspect.signature(function).parameters)
    return frozenset(names - _PARAMETERS_THAT_ARE_VARIABLES)


def _listed(names: Mapping[str, object] | Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


# --- rendering --------------------------------------------------------------------------------------------------------


def _rendered(
    tokenizer: Tokenizer, turns: Turns, continued: bool, variables: Mapping[str, object]
) -> tuple[str, list[str]]:
    """Through the model's template: as sent, else folded."""
    try:
        return _attempt(tokenizer, turns, continued, variables)
    except TemplateRaised as error:
        refusal = error  # these words, about the conversation as it was sent, say most
    if not isinstance(refusal, TemplateCostly | TemplateBroken):
        for other, changes in [*other_ways(turns), (_merged(_system_moved(turns)), [NOTE_FOLDED])]:
            try:
                text, notes = _attempt(tokenizer, other, continued, variables)
            except TemplateRaised:
                continue
            return text, [*changes, *notes]
    if tokenizer.template_fault() is not None:
        # Blaming the conversation would send the person looking where nothing can be found.
        raise InvalidParameter(
            f"The model's chat template refused the conversation, as it does every other: {refusal}",
            param="model",
            remedy="Correct the template in the model's files, or send the prompt as plain text (/v1/completions).",
        ) from refusal
    raise InvalidParameter(
        f"The model's chat template refused the conversation: {refusal}",
        param="messages",
        remedy="Change the roles or their order as the template asks.",
    ) from refusal


def _attempt(
    tokenizer: Tokenizer, turns: Turns, continued: bool, variables: Mapping[str, object]
) -> tuple[str, list[str]]:
    if not continued:
        text = tokenizer.render_chat(turns, add_generation_prompt=True, continue_final=False, kwargs=variables)
        return text, []
    partial = turns[-1]["content"]
    try:
        text = tokenizer.render_chat(turns, add_generation_prompt=False, continue_final=True, kwargs=variables)
    except (TemplateCostly, TemplateBroken):
        raise
    except TemplateRaised:
        if len(turns) == 1:
            raise
        # Some templates rewrite what an assistant said, so the open end cannot be found in what they give.
        opening = tokenizer.render_chat(turns[:-1], add_generation_prompt=True, continue_final=False, kwargs=variables)
        return opening + partial, [NOTE_APPENDED]
    if not text.endswith(partial) and text.endswith(partial.rstrip()):
        text += partial[len(partial.rstrip()) :]  # the template trims; what is continued must be what was sent
    return text, []


def _system_moved(turns: Turns) -> Turns:
    """Without system turns: their text goes in front of the next user turn, or becomes one where none follows."""
    moved: Turns = []
    waiting: list[str] = []
    for turn in turns:
        if turn["role"] == "system":
            waiting.append(turn["content"])
        elif turn["role"] == "user" and waiting:
            moved.append({"role": "user", "content": _joined(*waiting, turn["content"])})
            waiting = []
        else:
            moved.append(turn)
    if any(text.strip() for text in waiting):
        # An unfinished answer stays last, since it is to be continued.
        place = len(moved) - (1 if turns[-1]["role"] == "assistant" else 0)
        moved.insert(place, {"role": "user", "content": _joined(*waiting)})
    return moved


def _merged(turns: Turns) -> Turns:
    """Without two neighbours of one role."""
    merged: Turns = []
    for turn in turns:
        if merged and merged[-1]["role"] == turn["role"] != "tool":
            before = merged.pop()
            merged.append({**before, "content": _joined(before["content"], turn["content"])})
            if REASONING in turn:
                merged[-1][REASONING] = _joined(before.get(REASONING, ""), turn[REASONING])
            if TOOL_CALLS in turn:
                merged[-1][TOOL_CALLS] = [*before.get(TOOL_CALLS, ()), *turn[TOOL_CALLS]]
        else:
            merged.append(turn)
    return merged


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text.strip())


def _generic(turns: Turns, continued: bool) -> tuple[str, list[str]]:
    """Turns in Gemma's form, for a model that brought no template."""
    parts: list[str] = []
    for turn in _system_moved(turns):
        speaker = "model" if turn["role"] == "assistant" else "user"
        parts.append(f"<start_of_turn>{speaker}\n{turn['content']}")
    if not continued:
        parts.append("<start_of_turn>model\n")
    return f"{GENERIC_TURN_END}\n".join(parts), [NOTE_NO_TEMPLATE]


# --- tokens -----------------------------------------------------------------------------------------------------------


def _with_one_bos(tokenizer: Tokenizer, text: str, most: int | None) -> tuple[str, list[int]]:
    """Token ids of a rendered chat; its BOS is written by the template or added by the tokenizer, never both."""
    bos = tokenizer.bos_text
    written = bool(bos) and text.lstrip().startswith(bos)
    if written:
        text = text.lstrip()
        while text.startswith(bos + bos):
            text = text[len(bos) :]
    ids = _encoded(tokenizer, text, not written, most)
    if ids[:2] == [tokenizer.bos_id] * 2:  # a tokenizer that adds its own without being asked
        del ids[0]
    return text, ids


def _encoded(tokenizer: Tokenizer, text: str, add_special_tokens: bool, most: int | None) -> list[int]:
    ids = tokenizer.encode(text, add_special_tokens, most)
    if not add_special_tokens:
        return ids
    appended = len(tokenizer.appended_ids)
    if appended:
        del ids[-appended:]
    if tokenizer.bos_id in tokenizer.prepended_ids:
        while ids[:2] == [tokenizer.bos_id] * 2:
            del ids[0]
    return ids


def encode_text(tokenizer: Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    """Token ids of a raw text as :func:`prepare_text` has them; none for an empty one. Raises as that does."""
    check_text(text, "text")
    return _encoded(tokenizer, text, add_special_tokens, None)


def check_text(text: str, param: str) -> None:
    """Raise :class:`InvalidParameter` for what is not Unicode text."""
    _check_unicode(text, param)
