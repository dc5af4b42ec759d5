"""The field policy: what happens to each field of a request to the model. No field is ever lost.

A field is *honoured* (it has its effect), *reported* (named in ``X-miLLM-Ignored-Fields``, refused in strict mode) or
*refused* (400 ``field_not_honoured`` naming it, before anything loads). A field no row names is reported. Null always
asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from engine.errors import FieldNotHonoured, UnusedFieldsRefused
from engine.library.records import EngineKind
from engine.sampling import FIELDS

Body = Mapping[str, Any]


class Endpoint(StrEnum):
    """The routes the table speaks about; the value is what messages call them."""

    CHAT = "chat completions"
    COMPLETIONS = "text completions"
    EMBEDDINGS = "embeddings"


class Use(StrEnum):
    """What becomes of a field."""

    HONOURED = "honoured"
    REPORTED = "reported"
    REFUSED = "refused"


@dataclass(frozen=True)
class Rule:
    """One row of the table.

    Attributes:
        embeddings: Most fields of the other endpoints say nothing about a vector, and are reported there.
        on_gguf: What becomes of it with a GGUF model, where that differs.
        neutral: Values that ask for nothing and pass even where the field is refused; compared with their JSON type.
        refused_when: A condition under which a field that is otherwise honoured is refused.
        when: That condition in words, for the documentation.
        remedy: What to do instead, for the message.
    """

    chat: Use
    completions: Use
    embeddings: Use = Use.REPORTED
    on_gguf: Mapping[Endpoint, Use] = field(default_factory=dict)
    neutral: tuple[Any, ...] = ()
    refused_when: Callable[[Any, Body], bool] | None = None
    when: str = ""
    remedy: str = ""

    def use(self, endpoint: Endpoint, engine: str = EngineKind.TRANSFORMERS) -> Use:
        """The row's word for ``endpoint`` with a model of ``engine``."""
        if engine == EngineKind.LLAMACPP and endpoint in self.on_gguf:
            return self.on_gguf[endpoint]
        match endpoint:
            case Endpoint.CHAT:
                return self.chat
            case Endpoint.COMPLETIONS:
                return self.completions
            case Endpoint.EMBEDDINGS:
                return self.embeddings


def _both(use: Use, **more: Any) -> Rule:
    return Rule(use, use, **more)


def _everywhere(use: Use, **more: Any) -> Rule:
    return Rule(use, use, use, **more)


_H = _both(Use.HONOURED)
_TEXT_ONLY = _both(Use.HONOURED, embeddings=Use.REFUSED)
_CHAT_ONLY_REPORTED = Rule(Use.HONOURED, Use.REPORTED)
_TEMPLATE = Rule(Use.HONOURED, Use.REPORTED, on_gguf={Endpoint.CHAT: Use.REPORTED})
_REPORTED = _everywhere(Use.REPORTED)
_REFUSED = _everywhere(Use.REFUSED)

SCORING = "Scoring (allowed_token_ids, or logprobs with an output cap of 1)"


def scores(body: Body) -> bool:
    """Whether ``body`` asks for probabilities of the next token and for no text: that is scoring."""
    if body.get("allowed_token_ids") is not None:
        return True
    caps = (body.get("max_tokens"), body.get("max_completion_tokens"))
    # 0 asks for logprobs without alternatives.
    asked = body.get("logprobs") is not None and body.get("logprobs") is not False
    return asked and 1 in caps and body.get("n") in (None, 1) and body.get("stream") is not True


def _text_only(*idle: Any, **more: Any) -> Rule:
    """Honoured where text is written; on scoring refused, but for values that ask for ``idle`` (and 1 is 1.0)."""
    refused = {"refused_when": lambda value, body: scores(body) and value not in idle, "when": "scoring"}
    return _both(Use.HONOURED, **{**refused, **more})


_STEERING = _text_only(
    embeddings=Use.REFUSED,
    remedy=f"{SCORING} is never steered, nor are embeddings: leave it out, or ask for two tokens or more.",
)
_ONE_TOKEN = f"{SCORING} reads one token and writes nothing, nor do embeddings: leave it out, or ask for text."

TABLE: Mapping[str, Rule] = MappingProxyType(
    {
        # what to answer, and how to send it
        "model": _everywhere(Use.HONOURED),
        "messages": _CHAT_ONLY_REPORTED,
        "prompt": Rule(Use.REPORTED, Use.HONOURED),
        "add_special_tokens": Rule(Use.REPORTED, Use.HONOURED),
        "chat_template_kwargs": _TEMPLATE,
        "enable_thinking": _TEMPLATE,
        "extra_messages": Rule(
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
        "n": _text_only(1, embeddings=Use.REFUSED, neutral=(1,), remedy=_ONE_TOKEN),
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
        "input": Rule(Use.REPORTED, Use.REPORTED, Use.HONOURED),
        "encoding_format": Rule(Use.REPORTED, Use.REPORTED, Use.HONOURED),
        "pooling": Rule(
            Use.REFUSED,
            Use.REFUSED,
            Use.HONOURED,
            on_gguf={Endpoint.EMBEDDINGS: Use.REFUSED},
            neutral=("mean",),
            remedy="Send mean, or leave it out.",
        ),
        "normalize": Rule(Use.REFUSED, Use.REFUSED, Use.HONOURED, neutral=(False,)),
        # probabilities
        "logprobs": _both(Use.HONOURED, embeddings=Use.REFUSED, neutral=(False,)),
        "top_logprobs": Rule(
            Use.HONOURED, Use.REFUSED, Use.REFUSED, remedy="Text completions take an integer in logprobs."
        ),
        "return_tokens_as_token_ids": _H,
        "allowed_token_ids": _TEXT_ONLY,
        # form of the text
        "response_format": Rule(
            Use.HONOURED,
            Use.REFUSED,
            Use.REFUSED,
            neutral=({"type": "text"},),
            refused_when=lambda value, body: scores(body),
            when="scoring",
            remedy="Only a chat's answer can be given a form, and scoring writes none.",
        ),
        # steering
        "profile": _STEERING,
        "steering": _STEERING,
        "steering_intensity": _STEERING,
        "return_sae_activations": _TEXT_ONLY,
        # tools
        "tools": _everywhere(
            Use.REFUSED,
            neutral=([],),
            remedy="Leave them out (in Open WebUI: set Function Calling to Legacy), or switch on IGNORE_OFFERED_TOOLS "
            "in the settings, and chats that offer tools are answered without them.",
        ),
        "tool_choice": _everywhere(Use.REFUSED, neutral=("auto", "none")),
        "functions": _both(Use.REFUSED, neutral=([],)),
        "function_call": _both(Use.REFUSED, neutral=("auto", "none")),
        # what other servers or models do
        "audio": _REFUSED,
        "dimensions": _REFUSED,
        "echo": _both(Use.REFUSED, neutral=(False,)),
        "fim_mode": _REFUSED,
        "lora_adapter": _REFUSED,
        "modalities": _both(Use.REFUSED, neutral=(["text"],)),
        "prediction": _REFUSED,
        "reasoning_effort": _REFUSED,
        "suffix": _REFUSED,
        # about the caller, not about the text
        "metadata": _REPORTED,
        "parallel_tool_calls": _REPORTED,
        "prompt_cache_key": _REPORTED,
        "safety_identifier": _REPORTED,
        "service_tier": _REPORTED,
        "store": _REPORTED,
        "user": _REPORTED,
    }
)

_MESSAGE_KEYS = frozenset({"role", "content"})
_PART_KEYS = frozenset({"type", "text"})
_STREAM_OPTION_KEYS = frozenset({"include_usage", "continuous_usage_stats"})


def offered_tools(endpoint: Endpoint, body: Body) -> frozenset[str]:
    """The fields that merely offer a chat tools, which an answer may leave alone; none where one has to be called."""
    choices = (body.get("tool_choice"), body.get("function_call"))
    if endpoint is not Endpoint.CHAT or any(choice not in (None, "auto", "none") for choice in choices):
        return frozenset()
    return frozenset(name for name in ("tools", "functions") if isinstance(body.get(name), list) and body[name])


def judge(
    endpoint: Endpoint,
    body: Body,
    declared: frozenset[str],
    unused: Sequence[str],
    *,
    model: str,
    engine: str,
    passed_over: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """Locations of the fields nobody uses, in order, each once.

    Args:
        body: The raw body, in the client's order.
        declared: Fields the endpoint's schema reads. A field the table honours but no schema reads is refused: it
            would otherwise be dropped in silence.
        unused: Declared fields this very request has no use for.
        model, engine: Named in the refusal.
        passed_over: Fields of this request that are reported although the table refuses them.

    Raises :class:`FieldNotHonoured` for the first field that would change the text and cannot, listing the others.
    """
    refused = [
        name
        for name, value in body.items()
        if value is not None and name not in passed_over and _is_refused(endpoint, engine, name, value, body, declared)
    ]
    if refused:
        raise _refusal(endpoint, refused, model=model, engine=engine)
    return tuple(dict.fromkeys(_unused_locations(endpoint, engine, body, unused, passed_over)))


def refuse_unused(locations: Sequence[str]) -> None:
    """Strict mode. Raises :class:`UnusedFieldsRefused` naming every location."""
    if locations:
        raise UnusedFieldsRefused(
            f"These fields are not used by this server: {', '.join(locations)}.",
            param=locations[0],
            details={"fields": list(locations)},
            remedy="Leave them out, or send the request without X-miLLM-Strict.",
        )


def _is_refused(endpoint: Endpoint, engine: str, name: str, value: Any, body: Body, declared: frozenset[str]) -> bool:
    rule = TABLE.get(name)
    if rule is None:
        return False
    if any(_same(value, neutral) for neutral in rule.neutral):
        return False
    use = rule.use(endpoint, engine)
    if use is Use.REFUSED or (use is Use.HONOURED and name not in declared):
        return True
    return use is Use.HONOURED and rule.refused_when is not None and rule.refused_when(value, body)


def _same(value: Any, neutral: Any) -> bool:
    if isinstance(value, Mapping):
        value = {key: item for key, item in value.items() if item is not None}
    # 0 == False in Python, not in JSON.
    return type(value) is type(neutral) and bool(value == neutral)


def _refusal(endpoint: Endpoint, refused: list[str], *, model: str, engine: str) -> FieldNotHonoured:
    first = refused[0]
    message = f"'{first}' cannot be honoured on {endpoint.value} with the model {model!r} ({engine})."
    if others := refused[1:]:
        message += f" Neither can {', '.join(repr(name) for name in others)}."
    remedy = TABLE[first].remedy or "Leave it out, or send null."
    return FieldNotHonoured(message, param=first, details={"fields": refused}, remedy=remedy)


def _unused_locations(
    endpoint: Endpoint, engine: str, body: Body, unused: Sequence[str], passed_over: frozenset[str]
) -> list[str]:
    """Top-level fields in body order (with unknown stream options in their place), fields that this engine or this very
    request has no use for, then message fields.
    """
    found: list[str] = []
    of_engine: list[str] = []
    for name, value in body.items():
        rule = TABLE.get(name)
        if value is None or (name == "chat_template_kwargs" and value == ""):
            # An empty text of template variables is null.
            continue
        if rule is None or name in passed_over or rule.use(endpoint) is Use.REPORTED:
            found.append(name)
        elif name == "stream_options" and "stream_options" not in unused:
            found.extend(f"stream_options.{key}" for key in _extra_keys(value, _STREAM_OPTION_KEYS))
        elif rule.use(endpoint, engine) is Use.REPORTED:
            of_engine.append(name)
    found.extend([*of_engine, *unused])
    if endpoint is Endpoint.CHAT:
        found.extend(_message_locations("messages", body.get("messages")))
        for row, messages in enumerate(_items(body.get("extra_messages"))):
            found.extend(_message_locations(f"extra_messages[{row}]", messages))
    return found


def _message_locations(prefix: str, messages: Any) -> list[str]:
    found: list[str] = []
    for place, message in enumerate(_items(messages)):
        found.extend(f"{prefix}[{place}].{key}" for key in _extra_keys(message, _MESSAGE_KEYS))
        content = message.get("content") if isinstance(message, Mapping) else None
        for number, part in enumerate(_items(content)):
            found.extend(f"{prefix}[{place}].content[{number}].{key}" for key in _extra_keys(part, _PART_KEYS))
    return found


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _extra_keys(value: Any, known: frozenset[str]) -> list[str]:
    if not isinstance(value, Mapping):
        return []
    return [key for key, item in value.items() if key not in known and item is not None]
