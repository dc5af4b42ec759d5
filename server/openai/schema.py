"""The request bodies of the dialect, and how each becomes the engine's one internal request.

Fields nobody declares here are not lost: ``server/fields.py`` reports or refuses them from the raw body.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from engine.errors import InvalidParameter
from engine.public.generation import (
    MAX_BEST_OF,
    MAX_N,
    MAX_TOP_LOGPROBS,
    ChatInput,
    Effort,
    FillInput,
    FillOrder,
    GenerationRequest,
    Message,
    ResponseFormat,
    ScoringRequest,
    Syntax,
    TextInput,
)
from engine.public.monitor import ActivationSpec
from engine.public.steering import SteeringRequest, parse_inline
from engine.sampling import BY_NAME, Sampling
from server.body import validate
from server.generation.endpoint import Asked
from server.openai import fields
from server.sampling import CHOOSING, bounds, dialect_fields, sampling_of, with_fields
from server.tools import CallItem, Conversation, ToolChoice, ToolItem, ToolList, asked_tools, refuse_unenforceable
from server.validators import (
    NO_LIMIT,
    ActivationsObject,
    AnyCap,
    CompletionLogprobs,
    Content,
    Integer,
    Intensity,
    LogitBias,
    Number,
    Prompt,
    ResponseFormatBlock,
    Seed,
    SteeringObject,
    Stop,
    StreamOptions,
    TemplateKwargs,
    TokenCap,
    TokenIds,
    complain,
)

_ROLES = {"developer": "system"}
"""Roles that are another role's newer name."""

IDLE_WHEN_SCORING = (
    *(setting.name for setting in CHOOSING if setting.name != "temperature"),
    "repeat_penalty",
    "ignore_eos",
    "stop",
)
"""Fields about choosing and ending, of which scoring does neither."""


@dataclass(frozen=True)
class Parsed(Asked):
    """A body that passed its schema. Where ``scoring`` is there, that is done, and nothing is written.

    Attributes:
        response_format: The form asked for. It is looked at later, see :meth:`constrained`.
        tool_items: The tools as they were sent.
        include_usage: OpenAI's stream option; None where it was not sent, which is not the same as false.
        continuous_usage: Each chunk of text says what was used so far.
        tokens_as_ids: Logprobs name tokens as ``token_id:N``.
    """

    include_usage: bool | None = None
    continuous_usage: bool = False
    tokens_as_ids: bool = False
    scoring: ScoringRequest | None = None
    response_format: ResponseFormatBlock | None = None
    tool_items: tuple[ToolItem, ...] = ()

    @property
    def steers(self) -> bool:
        """As in the base."""
        return self.scoring is None

    @property
    def has_form(self) -> bool:
        """As in the base."""
        return self.response_format is not None or self.generation.tools is not None

    def constrained(self) -> GenerationRequest:
        """As in the base."""
        if self.generation.tools is not None:
            refuse_unenforceable(self.generation.tools, self.tool_items)
        asked = self.response_format
        if asked is None or asked.type == "text":
            return self.generation
        return replace(self.generation, response_format=form_of(asked))

    def rewritten(self, generation: GenerationRequest) -> Self:
        """As in the base; what is scored is what would be written."""
        scoring = self.scoring
        if scoring is not None:
            given = generation.input
            scoring = replace(scoring, input=(given,) if isinstance(given, ChatInput) else given)
        return replace(self, generation=generation, scoring=scoring)


class ChatMessage(BaseModel):
    """One message. Of other keys than these the template sees nothing; they are reported."""

    model_config = ConfigDict(strict=True)
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content = None
    tool_calls: list[CallItem] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    def add_to(self, conversation: Conversation) -> None:
        """Add it. Raises :class:`InvalidParameter` for an answer to what was not asked."""
        if self.role == "tool":
            conversation.add_answer(self.content, self.tool_call_id, self.name)
        elif self.role == "function":
            conversation.add_function(self.content, self.name)
        elif self.role == "assistant":
            thoughts = self.reasoning if self.reasoning_content is None else self.reasoning_content
            calls = tuple(call.past() for call in self.tool_calls or ())
            conversation.add(Message(self.role, self.content, thoughts or "", calls))
        else:
            conversation.add(Message(_ROLES.get(self.role, self.role), self.content))

    def model_post_init(self, context: object, /) -> None:
        """Calls are an assistant's, and only a tool answers one."""
        if self.tool_calls and self.role != "assistant":
            raise complain("tool_calls", "tool_calls are the assistant's alone")
        if self.tool_call_id is not None and self.role != "tool":
            raise complain("tool_call_id", "a tool_call_id goes with the role tool alone")


class _Opening(BaseModel):
    """What stands before the sampling fields: of several faults, the first in this order is named."""

    model_config = ConfigDict(strict=True)
    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None


if TYPE_CHECKING:
    _Sampled = _Opening
else:
    _Sampled = with_fields("_Sampled", _Opening, dialect_fields())


class GenerationBody(_Sampled):
    """Fields that chat and text completions share."""

    repeat_penalty: Number | None = Field(None, **bounds(BY_NAME["repetition_penalty"]))
    n: Integer | None = Field(None, ge=1, le=MAX_N)
    best_of: Integer | None = Field(None, ge=1, le=MAX_BEST_OF)
    max_tokens: TokenCap = None
    max_completion_tokens: TokenCap = None
    min_tokens: Integer | None = Field(None, **bounds(BY_NAME["min_tokens"]))
    ignore_eos: bool | None = None
    stop: Stop = ()
    seed: Seed = None
    logit_bias: LogitBias = Field(default_factory=dict)
    allowed_token_ids: TokenIds | None = None
    return_tokens_as_token_ids: bool | None = None
    profile: str | None = None
    steering: SteeringObject | None = None
    steering_intensity: Intensity = None
    return_sae_activations: ActivationsObject | None = None

    def wants_logprobs(self) -> int | None:
        """How many alternatives are asked for at each token; None: no logprobs."""
        raise NotImplementedError

    def sampling(self) -> Sampling:
        """The sampling fields with their defaults."""
        return sampling_of(self, Sampling(), repetition_penalty=_one_of(self, "repetition_penalty", "repeat_penalty"))

    def steered(self) -> SteeringRequest:
        """The request's own steering. Raises :class:`InvalidParameter`."""
        return SteeringRequest(self.profile, self.steering_intensity, parse_inline(self.steering))

    def activations(self) -> ActivationSpec | None:
        """The activations asked back. Raises :class:`SaeActivationsRefused`."""
        wanted = self.return_sae_activations
        return None if wanted is None else ActivationSpec.from_wire(wanted)

    def parsed(self, given: TextInput | tuple[ChatInput, ...], unused: list[str], *, echo: bool = False) -> Parsed:
        """The internal request for ``given``; ``unused`` names declared fields found without use so far."""
        options = self.stream_options or StreamOptions()
        logprobs = self.wants_logprobs()
        if self.stream_options is not None and not self.stream:
            unused.append("stream_options")
        if self.return_tokens_as_token_ids and logprobs is None:
            unused.append("return_tokens_as_token_ids")
        scoring = self._scoring(given, logprobs, unused)
        cap = _one_of(self, "max_tokens", "max_completion_tokens")
        generation = GenerationRequest(
            model=self.model,
            input=given[0] if isinstance(given, tuple) and len(given) == 1 else given,
            sampling=self.sampling(),
            n=_default(self.n, 1),
            best_of=self.best_of,
            max_tokens=None if cap == NO_LIMIT else cap,
            unlimited=cap == NO_LIMIT,
            stop=self.stop,
            logprobs=logprobs,
            echo=echo,
            steering=self.steered(),
            activations=self.activations(),
        )
        return Parsed(
            generation=generation,
            stream=bool(self.stream),
            include_usage=options.include_usage,
            continuous_usage=bool(options.continuous_usage_stats),
            tokens_as_ids=bool(self.return_tokens_as_token_ids),
            unused=tuple(unused),
            scoring=scoring,
            notes=tuple(
                f"{name} -1 is taken as no limit"
                for name in ("max_tokens", "max_completion_tokens", "top_k")
                if getattr(self, name) == NO_LIMIT
            ),
        )

    def _scoring(
        self, given: TextInput | tuple[ChatInput, ...], logprobs: int | None, unused: list[str]
    ) -> ScoringRequest | None:
        """The scoring request, where the body asks for one. Raises :class:`InvalidParameter`."""
        sent = {name: getattr(self, name) for name in self.model_fields_set}
        if not fields.scores(sent):
            return None
        if _one_of(self, "max_tokens", "max_completion_tokens") != 1:
            raise InvalidParameter(
                "Invalid value for 'max_tokens': scoring (allowed_token_ids is sent) reads one token and writes none, "
                "so the output cap must be 1.",
                param="max_tokens",
            )
        unused.extend(name for name in IDLE_WHEN_SCORING if sent.get(name) is not None and sent[name] != ())
        sampling = self.sampling()
        return ScoringRequest(
            model=self.model,
            input=given,
            allowed_token_ids=None if self.allowed_token_ids is None else tuple(self.allowed_token_ids),
            logprobs=logprobs,
            temperature=sampling.temperature,
            logit_bias=sampling.logit_bias,
            activations=self.activations(),
        )


class ChatBody(GenerationBody):
    """``POST /v1/chat/completions``."""

    messages: list[ChatMessage]
    extra_messages: list[list[ChatMessage]] | None = None
    chat_template_kwargs: TemplateKwargs = Field(default_factory=dict)
    enable_thinking: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    logprobs: bool | None = None
    top_logprobs: Integer | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    response_format: ResponseFormatBlock | None = None
    tools: ToolList | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None

    def wants_logprobs(self) -> int | None:
        """As in the base; ``top_logprobs`` alone is refused."""
        if not self.logprobs:
            if self.top_logprobs is not None:
                raise InvalidParameter(
                    "Invalid value for 'top_logprobs': it needs logprobs to be true.", param="top_logprobs"
                )
            return None
        return self.top_logprobs or 0

    def to_parsed(self) -> Parsed:
        """The internal request."""
        unused: list[str] = []
        variables = dict(self.chat_template_kwargs)
        shorthands: dict[str, str] = {}
        if self.enable_thinking is not None:
            # An explicit template variable wins over the shorthand, which then has no use.
            chosen = variables.setdefault("enable_thinking", self.enable_thinking)
            if chosen is not self.enable_thinking:
                unused.append("enable_thinking")
            elif "enable_thinking" not in self.chat_template_kwargs:
                shorthands["enable_thinking"] = "enable_thinking"
        effort = None if self.reasoning_effort is None else Effort(self.reasoning_effort)
        if effort is not None and "reasoning_effort" in variables:
            if variables["reasoning_effort"] != effort:
                unused.append("reasoning_effort")
            effort = None
        elif effort is not None:
            shorthands["reasoning_effort"] = "reasoning_effort"
        rows = [_conversation("messages", self.messages, variables, effort)]
        for place, messages in enumerate(self.extra_messages or ()):
            rows.append(_conversation(f"extra_messages.{place}", messages, variables, effort))
        offered = asked_tools(self.tools or (), self.tool_choice, self.parallel_tool_calls)
        parsed = self.parsed(tuple(rows), [*unused, *offered.unused])
        asked = self.response_format
        form = None if asked is None or asked.type == "text" else asked
        if form is not None and offered.tools is not None and offered.tools.insists:
            raise InvalidParameter(
                "'tool_choice' asks for a call and 'response_format' for a document: an answer cannot be both.",
                param="tool_choice",
                remedy="Send one of the two, or let tool_choice be auto.",
            )
        return replace(
            parsed,
            generation=replace(parsed.generation, tools=offered.tools),
            response_format=asked,
            tool_items=tuple(self.tools or ()),
            shorthands=shorthands,
        )


class CompletionBody(GenerationBody):
    """``POST /v1/completions``."""

    prompt: Prompt
    add_special_tokens: bool | None = None
    echo: bool | None = None
    max_tokens: AnyCap = None
    max_completion_tokens: AnyCap = None
    logprobs: CompletionLogprobs = None
    suffix: str | None = None
    fim_mode: Literal["psm", "spm"] | None = None

    def wants_logprobs(self) -> int | None:
        """As in the base."""
        return self.logprobs

    def to_parsed(self) -> Parsed:
        """The internal request."""
        if not self.echo:
            for name in ("max_tokens", "max_completion_tokens"):
                if getattr(self, name) == 0:
                    raise InvalidParameter(
                        f"Invalid value for '{name}': an integer of at least 1, or -1 for no limit, is expected; "
                        "received 0.",
                        param=name,
                        remedy="With echo true, 0 reads the prompt and writes nothing.",
                    )
        unused: list[str] = []
        if self.add_special_tokens is not None and not any(isinstance(each, str) for each in self.prompt):
            unused.append("add_special_tokens")
        special = self.add_special_tokens is not False
        if self.suffix:
            gap = FillInput(self.prompt, special, suffix=self.suffix, order=FillOrder(self.fim_mode or "psm"))
            return self.parsed(gap, unused)
        if self.fim_mode is not None:
            raise InvalidParameter("Invalid value for 'fim_mode': there is no suffix to fill in to.", param="fim_mode")
        return self.parsed(TextInput(self.prompt, special), unused, echo=bool(self.echo))


def parse_chat(body: dict[str, Any]) -> Parsed:
    """A chat body as a request. Raises :class:`InvalidParameter` and :class:`SaeActivationsRefused`."""
    return validate(ChatBody, body).to_parsed()


def parse_completion(body: dict[str, Any]) -> Parsed:
    """A text completion body as a request. Raises as :func:`parse_chat`."""
    return validate(CompletionBody, body).to_parsed()


def _conversation(
    path: str, messages: list[ChatMessage], variables: dict[str, Any], effort: Effort | None
) -> ChatInput:
    conversation = Conversation(path)
    for message in messages:
        message.add_to(conversation)
    return ChatInput(tuple(conversation.messages), variables, effort)


def form_of(asked: ResponseFormatBlock) -> ResponseFormat:
    """The form as the engine takes it. Raises :class:`ResponseFormatUnsupported`."""
    if asked.type == "regex":
        return ResponseFormat(regex=asked.regex)
    if asked.type == "grammar":
        return ResponseFormat(grammar=asked.grammar, syntax=Syntax(asked.syntax or Syntax.LARK))
    block = asked.json_schema
    return ResponseFormat() if block is None else ResponseFormat(block.json_schema, block.name)


def _default(value: Any, default: Any) -> Any:
    return default if value is None else value


def _one_of(body: GenerationBody, first: str, second: str) -> Any:
    """The value of two names for one thing. Raises :class:`InvalidParameter` when both are sent and differ."""
    one, other = getattr(body, first), getattr(body, second)
    if one is not None and other is not None and one != other:
        # The conflict lies between two fields, so no single one is named as the parameter.
        raise InvalidParameter(f"'{first}' and '{second}' mean the same and have different values; send one of them.")
    return one if one is not None else other
