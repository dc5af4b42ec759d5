"""What becomes of each field on OpenAI's endpoints: one row a field, one column an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from engine.sampling import FIELDS
from server.fields import Body, Column, Rule, Use, extra_keys, items


@dataclass(frozen=True)
class Row:
    """A field on the three endpoints; the rest as in :class:`server.fields.Rule`.

    Attributes:
        embeddings: Most fields of the other endpoints say nothing about a vector, and are reported there.
        on_gguf: What becomes of it with a GGUF model, by endpoint, where that differs.
    """

    chat: Use
    completions: Use
    embeddings: Use = Use.REPORTED
    on_gguf: Mapping[str, Use] = field(default_factory=dict)
    neutral: tuple[Any, ...] = ()
    refused_when: Callable[[Any, Body], bool] | None = None
    when: str = ""
    remedy: str = ""

    def rule(self, endpoint: str) -> Rule:
        """What becomes of it on ``endpoint``."""
        use: Use = getattr(self, endpoint)
        return Rule(use, self.on_gguf.get(endpoint), self.neutral, self.refused_when, self.when, self.remedy)


def _both(use: Use, **more: Any) -> Row:
    return Row(use, use, **more)


def _everywhere(use: Use, **more: Any) -> Row:
    return Row(use, use, use, **more)


_H = _both(Use.HONOURED)
_TEXT_ONLY = _both(Use.HONOURED, embeddings=Use.REFUSED)
_CHAT_ONLY_REPORTED = Row(Use.HONOURED, Use.REPORTED)
_TEMPLATE = Row(Use.HONOURED, Use.REPORTED, on_gguf={"chat": Use.REPORTED})
_REPORTED = _everywhere(Use.REPORTED)
_REFUSED = _everywhere(Use.REFUSED)

SCORING = "Scoring (allowed_token_ids, or logprobs with an output cap of 1)"


def scores(body: Body) -> bool:
    """Whether ``body`` asks for probabilities of the next token and for no text: that is scoring.

    Who has the prompt repeated wants the figures of its tokens, as they are under steering: that never is.
    """
    if body.get("echo") is True:
        return False
    if body.get("allowed_token_ids") is not None:
        return True
    caps = (body.get("max_tokens"), body.get("max_completion_tokens"))
    # 0 asks for logprobs without alternatives.
    asked = body.get("logprobs") is not None and body.get("logprobs") is not False
    return asked and 1 in caps and body.get("n") in (None, 1) and body.get("stream") is not True


def fills_in(body: Body) -> bool:
    """Whether ``body`` asks for a gap to be filled in."""
    return bool(body.get("suffix"))


def _text_only(*idle: Any, **more: Any) -> Row:
    """Honoured where text is written; on scoring refused, but for values that ask for ``idle`` (and 1 is 1.0)."""
    refused = {"refused_when": lambda value, body: scores(body) and value not in idle, "when": "scoring"}
    return _both(Use.HONOURED, **{**refused, **more})


_STEERING = _text_only(
    embeddings=Use.REFUSED,
    remedy=f"{SCORING} is never steered, nor are embeddings: leave it out, or ask for two tokens or more.",
)
_ONE_TOKEN = f"{SCORING} reads one token and writes nothing, nor do embeddings: leave it out, or ask for text."

_TOOLS_NOW = "Send tools and tool_choice, which took its place."

TABLE: Mapping[str, Row] = MappingProxyType(
    {
        # what to answer, and how to send it
        "model": _everywhere(Use.HONOURED),
        "messages": _CHAT_ONLY_REPORTED,
        "prompt": Row(
            Use.REPORTED,
            Use.HONOURED,
            refused_when=lambda value, body: fills_in(body) and isinstance(value, list),
            when="a list, and `suffix` is sent",
            remedy="One gap is filled in at a time: send the text before it as a string.",
        ),
        "suffix": Row(
            Use.REFUSED,
            Use.HONOURED,
            Use.REFUSED,
            neutral=("",),
            refused_when=lambda value, body: scores(body),
            when="scoring",
            remedy="Only text completions fill in the middle, and scoring writes nothing.",
        ),
        "fim_mode": Row(Use.REFUSED, Use.HONOURED, Use.REFUSED),
        "add_special_tokens": Row(Use.REPORTED, Use.HONOURED),
        "chat_template_kwargs": _TEMPLATE,
        "enable_thinking": _TEMPLATE,
        "reasoning_effort": _TEMPLATE,
        "extra_messages": Row(
            Use.HONOURED,
            Use.REFUSED,
            neutral=([],),
            refused_when=lambda value, body: body.get("stream") is True,
            when="`stream` is true",
            remedy="Several conversations are answered as a whole: send it without stream, or one request for each.",
        ),
        "stream": _text_only(False, remedy=_ONE_TOKEN),
        "stream_options": _H,
        # sampling
        **{setting.name: _H for setting in FIELDS},
        "repeat_penalty": _H,
        # With logprobs and a cap of one it is how classifiers are asked; a set of candidates leaves it nothing to do.
        "logit_bias": _both(
            Use.HONOURED,
            embeddings=Use.REFUSED,
            neutral=({},),
            refused_when=lambda value, body: body.get("allowed_token_ids") is not None and value != {},
            when="`allowed_token_ids` is sent",
            remedy="Send one of the two.",
        ),
        "seed": _TEXT_ONLY,
        # how many, how long
        "n": _text_only(
            embeddings=Use.REFUSED,
            neutral=(1,),
            refused_when=lambda value, body: value != 1 and (scores(body) or fills_in(body)),
            when="scoring; `suffix` is sent",
            remedy=f"A gap is filled in once. {_ONE_TOKEN}",
        ),
        "best_of": _both(
            Use.HONOURED,
            refused_when=lambda value, body: value != 1 and (body.get("stream") is True or scores(body)),
            when="`stream` is true; scoring",
            remedy="Choices can only be ranked once all are written: send it without stream, and not with scoring.",
        ),
        "max_tokens": _H,
        "max_completion_tokens": _TEXT_ONLY,
        "min_tokens": _text_only(0, remedy=_ONE_TOKEN),
        "stop": _H,
        # vectors
        "input": Row(Use.REPORTED, Use.REPORTED, Use.HONOURED),
        "encoding_format": Row(Use.REPORTED, Use.REPORTED, Use.HONOURED),
        "pooling": Row(
            Use.REFUSED,
            Use.REFUSED,
            Use.HONOURED,
            on_gguf={"embeddings": Use.REFUSED},
            neutral=("mean",),
            remedy="Send mean, or leave it out.",
        ),
        "normalize": Row(Use.REFUSED, Use.REFUSED, Use.HONOURED, neutral=(False,)),
        # probabilities
        "logprobs": _both(
            Use.HONOURED,
            embeddings=Use.REFUSED,
            neutral=(False,),
            refused_when=lambda value, body: fills_in(body),
            when="`suffix` is sent",
        ),
        "top_logprobs": Row(
            Use.HONOURED, Use.REFUSED, Use.REFUSED, remedy="Text completions take an integer in logprobs."
        ),
        "return_tokens_as_token_ids": _H,
        "allowed_token_ids": _both(
            Use.HONOURED,
            embeddings=Use.REFUSED,
            refused_when=lambda value, body: body.get("echo") is True,
            when="`echo` is true",
            remedy="It narrows scoring, which repeats no prompt: leave one of the two out.",
        ),
        # form of the text
        "response_format": Row(
            Use.HONOURED,
            Use.REFUSED,
            Use.REFUSED,
            neutral=({"type": "text"},),
            refused_when=lambda value, body: scores(body),
            when="scoring",
            remedy="Only a chat's answer can be given a form, and scoring writes none.",
        ),
        **dict.fromkeys(
            (
                "guided_json",
                "guided_regex",
                "guided_choice",
                "guided_grammar",
                "structured_outputs",
                "grammar",
                "json_schema",
            ),
            _both(
                Use.REFUSED,
                remedy="A chat's answer is given a form by response_format: json_schema (also for a choice, with "
                "enum), regex or grammar.",
            ),
        ),
        # steering
        "profile": _STEERING,
        "steering": _STEERING,
        "steering_intensity": _STEERING,
        "return_sae_activations": _TEXT_ONLY,
        # tools
        "tools": Row(
            Use.HONOURED,
            Use.REFUSED,
            Use.REFUSED,
            neutral=([],),
            refused_when=lambda value, body: scores(body),
            when="scoring",
            remedy="Only a chat's answer can call anything, and scoring writes none.",
        ),
        "tool_choice": Row(Use.HONOURED, Use.REFUSED, Use.REFUSED, neutral=("auto", "none")),
        "parallel_tool_calls": Row(Use.HONOURED, Use.REPORTED),
        "functions": _both(Use.REFUSED, neutral=([],), remedy=_TOOLS_NOW),
        "function_call": _both(Use.REFUSED, neutral=("auto", "none"), remedy=_TOOLS_NOW),
        # what other servers or models do
        "audio": _REFUSED,
        "dimensions": _REFUSED,
        "echo": Row(
            Use.REFUSED,
            Use.HONOURED,
            neutral=(False,),
            refused_when=lambda value, body: fills_in(body),
            when="`suffix` is sent",
            remedy="A conversation is not repeated, nor is a text whose gap is filled in.",
        ),
        "lora_adapter": _REFUSED,
        "modalities": _both(Use.REFUSED, neutral=(["text"],)),
        "prediction": _REFUSED,
        "verbosity": _both(Use.REFUSED, neutral=("medium",), remedy="Say in the messages how long an answer shall be."),
        "web_search_options": _REFUSED,
        # about the caller, not about the text
        "metadata": _REPORTED,
        "moderation": _REPORTED,
        "prompt_cache_key": _REPORTED,
        "prompt_cache_options": _REPORTED,
        "prompt_cache_retention": _REPORTED,
        "routing_key": _REPORTED,
        "safety_identifier": _REPORTED,
        "service_tier": _REPORTED,
        "store": _REPORTED,
        "user": _REPORTED,
    }
)

_MESSAGE_KEYS = frozenset({"role", "content"})
_ROLE_KEYS: Mapping[str, frozenset[str]] = {
    "assistant": frozenset({"tool_calls", "reasoning_content", "reasoning"}),
    "tool": frozenset({"tool_call_id", "name"}),
    "function": frozenset({"name"}),
}
"""Further keys of a message that are read, by its role."""
_PART_KEYS = frozenset({"type", "text"})
_TOOL_KEYS = {
    "function": frozenset({"name", "description", "parameters", "strict"}),
    "custom": frozenset({"name", "description", "format"}),
}
_CALL_KEYS = {"function": frozenset({"name", "arguments"}), "custom": frozenset({"name", "input"})}
_STREAM_OPTION_KEYS = frozenset({"include_usage", "continuous_usage_stats"})


def _offered_tools(body: Body) -> frozenset[str]:
    """None where one has to be called."""
    choices = (body.get("tool_choice"), body.get("function_call"))
    if any(choice not in (None, "auto", "none") for choice in choices):
        return frozenset()
    return frozenset(name for name in ("tools", "functions") if isinstance(body.get(name), list) and body[name])


def _inside_messages(body: Body) -> list[str]:
    found = _message_locations("messages", body.get("messages"))
    for row, messages in enumerate(items(body.get("extra_messages"))):
        found.extend(_message_locations(f"extra_messages[{row}]", messages))
    return found


def _inside_chat(body: Body) -> list[str]:
    found: list[str] = []
    for place, tool in enumerate(items(body.get("tools"))):
        found.extend(_extra_of(f"tools[{place}]", tool, set(), _TOOL_KEYS))
        custom = tool.get("custom") if isinstance(tool, Mapping) else None
        form = custom.get("format") if isinstance(custom, Mapping) else None
        if isinstance(form, Mapping) and form.get("type", "text") != "text":
            # It is shown to the model, and not enforced.
            found.append(f"tools[{place}].format")
    return [*found, *_inside_messages(body)]


def _extra_of(where: str, item: Any, known: set[str], inner: Mapping[str, frozenset[str]]) -> list[str]:
    """Keys that nobody reads of a tool or a call, and of the object that its type names."""
    if not isinstance(item, Mapping):
        return []
    kind = item.get("type") or "function"
    if kind not in inner:
        return []  # reported whole
    found = [f"{where}.{key}" for key in extra_keys(item, frozenset({"type", kind, *known}))]
    return [*found, *(f"{where}.{key}" for key in extra_keys(item.get(kind), inner[kind]))]


def _message_locations(prefix: str, messages: Any) -> list[str]:
    found: list[str] = []
    for place, message in enumerate(items(messages)):
        if not isinstance(message, Mapping):
            continue
        known = _MESSAGE_KEYS | _ROLE_KEYS.get(str(message.get("role")), frozenset())
        found.extend(f"{prefix}[{place}].{key}" for key in extra_keys(message, known))
        if message.get("role") == "assistant":
            if message.get("reasoning") is not None and message.get("reasoning_content") is not None:
                found.append(f"{prefix}[{place}].reasoning")
            for number, call in enumerate(items(message.get("tool_calls"))):
                found.extend(_extra_of(f"{prefix}[{place}].tool_calls[{number}]", call, {"id"}, _CALL_KEYS))
        content = message.get("content")
        for number, part in enumerate(items(content)):
            found.extend(f"{prefix}[{place}].content[{number}].{key}" for key in extra_keys(part, _PART_KEYS))
    return found


def _column(key: str, name: str, **more: Any) -> Column:
    rules = MappingProxyType({field: row.rule(key) for field, row in TABLE.items()})
    # An empty text of template variables is null.
    blank = {"chat_template_kwargs": ""}
    return Column(key, name, rules, blank=blank, within={"stream_options": _STREAM_OPTION_KEYS}, **more)


CHAT = _column("chat", "chat completions", deeper=_inside_chat, offered=_offered_tools)
COMPLETIONS = _column("completions", "text completions")
EMBEDDINGS = _column("embeddings", "embeddings", writes=False)
