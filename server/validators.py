"""Types of request fields: strict where JSON is loose (booleans are not numbers, text is not a number).

Each is an ``Annotated`` type whose complaint carries the field's own path; what was received is added by
``server/body.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictStr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError, from_json

from engine.errors import InvalidParameter, described
from engine.public.documents import GREATEST_INTENSITY, LEAST_INTENSITY
from engine.public.generation import MAX_ALLOWED, MAX_STOPS, MAX_TOP_LOGPROBS
from engine.public.steering import Dial, DialWord, parse_dial
from engine.sampling import GREATEST_BIAS, LEAST_BIAS, MAX_LOGIT_BIAS, MAX_SEED, MIN_SEED, NO_SEED, read_biases

NO_LIMIT = -1
"""What other programs send for no limit."""
MAX_INTEGER = 2**53
"""Largest integer JSON clients agree on; a cap above it would mean nothing anyway."""


def complain(kind: str, message: str) -> PydanticCustomError:
    """A complaint about a field, in our own words."""
    return PydanticCustomError(kind, "{message}", {"message": message})


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise complain("number", "a number is expected")
    try:
        number = float(value)
    except OverflowError:
        raise complain("number", "a finite number is expected") from None
    if not math.isfinite(number):
        raise complain("number", "a finite number is expected")
    return number


def _integer(value: object) -> int | None:
    number = _whole(value)
    if number is not None and abs(number) > MAX_INTEGER:
        raise complain("integer", "an integer of at most 2**53 is expected")
    return number


def _whole(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise complain("integer", "an integer is expected")
    if isinstance(value, float):
        if not value.is_integer():
            raise complain("integer", "an integer is expected")
        value = int(value)
    return value


def _seed(value: object) -> int | None:
    number = _whole(value)
    if number is not None and not MIN_SEED <= number <= MAX_SEED:
        raise complain("seed", "a signed 64-bit integer is expected")
    return None if number == NO_SEED else number


def _limit(least: int) -> Callable[[object], int | None]:
    def read(value: object) -> int | None:
        number = _integer(value)
        if number is not None and number != NO_LIMIT and number < least:
            raise complain("limit", f"an integer of at least {least}, or -1 for no limit, is expected")
        return number

    return read


Number = Annotated[float, BeforeValidator(_number)]
Integer = Annotated[int, BeforeValidator(_integer)]
Seed = Annotated[
    int | None,
    BeforeValidator(_seed, json_schema_input_type=Annotated[int, Field(ge=MIN_SEED, le=MAX_SEED)] | None),
]
TokenCap = Annotated[
    int | None,
    BeforeValidator(_limit(1), json_schema_input_type=Annotated[int, Field(ge=1)] | Literal[-1] | None),
]
AnyCap = Annotated[
    int | None,
    BeforeValidator(_limit(0), json_schema_input_type=Annotated[int, Field(ge=0)] | Literal[-1] | None),
]
TopK = Annotated[
    int | None,
    BeforeValidator(_limit(0), json_schema_input_type=Annotated[int, Field(ge=0)] | Literal[-1] | None),
]


# --- text -------------------------------------------------------------------------------------------------------------


class TextPart(BaseModel):
    """A piece of a message's content. Only text can be read here."""

    model_config = ConfigDict(strict=True)
    type: Literal["text", "input_text"]
    text: str


_PARTS = TypeAdapter(list[TextPart])
_TEXTS = TypeAdapter(list[StrictStr])


def _content(value: object) -> object:
    if isinstance(value, list):
        # An error inside keeps its path: pydantic puts the field's own in front of it.
        return "".join(part.text for part in _PARTS.validate_python(value))
    if value is not None and not isinstance(value, str):
        raise complain("content", "a string or a list of text parts is expected")
    return value


Content = Annotated[str | None, BeforeValidator(_content, json_schema_input_type=str | list[TextPart] | None)]


def _stop(value: object) -> object:
    if value is None:
        return ()
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise complain("stop", "a string or a list of strings is expected")
    if len(texts) > MAX_STOPS:
        raise complain("stop", f"at most {MAX_STOPS} strings are possible, {len(texts)} were sent")
    for number, text in enumerate(texts):
        if not (isinstance(text, str) and text):
            raise complain("stop", f"non-empty strings are expected; item {number} is {described(text)}")
    return tuple(texts)


_StopString = Annotated[str, Field(min_length=1)]
_StopStrings = Annotated[list[_StopString], Field(max_length=MAX_STOPS)]
Stop = Annotated[tuple[str, ...], BeforeValidator(_stop, json_schema_input_type=_StopString | _StopStrings | None)]


def _prompt(value: object) -> object:
    """Texts, or token ids: one list of them is one prompt, so the first item says which of the two they are."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise complain("prompt", "a string, a list of strings, a list of token ids or a list of such lists is expected")
    if not value:
        raise complain("prompt", "at least one prompt is expected")
    if isinstance(value[0], list):
        return tuple(_token_ids(each, f"item {place} of the list") for place, each in enumerate(value))
    if isinstance(value[0], int | float):
        return (_token_ids(value, "the list"),)
    return tuple(_TEXTS.validate_python(value))


def _token_ids(value: object, name: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise complain("prompt", f"prompts of one kind are expected; {name} is {described(value)}, not token ids")
    # Most are plain integers, and there may be very many of them.
    if all(type(each) is int for each in value):
        return tuple(value)
    try:
        ids = tuple(_whole(each) for each in value)
    except PydanticCustomError:
        ids = (None,)
    if None in ids:
        raise complain("prompt", f"{name} holds what is no token id; prompts of one kind are expected")
    return tuple(each for each in ids if each is not None)


_Prompts = Annotated[list[str], Field(min_length=1)]
_PromptIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Prompt = Annotated[
    tuple[str | tuple[int, ...], ...],
    BeforeValidator(
        _prompt,
        json_schema_input_type=str | _Prompts | _PromptIds | Annotated[list[_PromptIds], Field(min_length=1)],
    ),
]


# --- sampling ---------------------------------------------------------------------------------------------------------


def _logit_bias(value: object) -> dict[int, float]:
    try:
        return {} if value is None else read_biases(value)
    except ValueError as error:
        raise complain("logit_bias", str(error)) from None


_TokenId = Annotated[str, Field(pattern="^[0-9]{1,10}$")]
_Biases = Annotated[
    dict[_TokenId, Annotated[float, Field(ge=LEAST_BIAS, le=GREATEST_BIAS)]], Field(max_length=MAX_LOGIT_BIAS)
]
LogitBias = Annotated[dict[int, float], BeforeValidator(_logit_bias, json_schema_input_type=_Biases | None)]


def _completion_logprobs(value: object) -> object:
    # Chat clients send false here; it asks for nothing.
    return None if value is False else _integer(value)


CompletionLogprobs = Annotated[
    int | None,
    Field(ge=0, le=MAX_TOP_LOGPROBS),
    BeforeValidator(
        _completion_logprobs,
        json_schema_input_type=Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | Literal[False] | None,
    ),
]
TokenIds = Annotated[list[Annotated[Integer, Field(ge=0)]], Field(min_length=1, max_length=MAX_ALLOWED)]


# --- steering ---------------------------------------------------------------------------------------------------------


_DIAL_WORDS = " or ".join(", ".join(DialWord).rsplit(", ", 1))
_DIAL = f"a number from {LEAST_INTENSITY:g} to {GREATEST_INTENSITY:g}, or {_DIAL_WORDS}"


def _intensity(value: object) -> Dial | None:
    try:
        return parse_dial(value)
    except InvalidParameter:
        raise complain(
            "steering_intensity",
            f"{_DIAL} is expected",
        ) from None


_DialValue = Annotated[float, Field(ge=LEAST_INTENSITY, le=GREATEST_INTENSITY)] | Literal["off", "min", "max"] | None
Intensity = Annotated[Dial | None, BeforeValidator(_intensity, json_schema_input_type=_DialValue)]


def _as_sent(value: object) -> object:
    return value


class InlineFeature(BaseModel):
    """A feature and how strongly it is added."""

    model_config = ConfigDict(extra="forbid")
    index: int = Field(ge=0)
    strength: float


class InlineSteeringField(BaseModel):
    """A request's own steering; an empty list of features means unsteered.

    The engine reads it; this only describes it.
    """

    model_config = ConfigDict(extra="forbid")
    features: list[InlineFeature]
    sae_id: str | None = None


class PositionRangeField(BaseModel):
    """Positions from ``start`` up to, not including, ``end``."""

    model_config = ConfigDict(extra="forbid")
    start: int = Field(ge=0)
    end: int = Field(gt=0)


class WantedActivations(BaseModel):
    """Which activations are to be given back.

    The engine reads it; this only describes it.
    """

    model_config = ConfigDict(extra="forbid")
    top_k: int = Field(ge=1)
    positions: Literal["last", "prompt", "completion", "all"] | PositionRangeField
    sae_id: str | None = None
    features: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = None
    read_point: Literal["post_steering", "pre_steering"] | None = None


SteeringObject = Annotated[dict[str, Any], BeforeValidator(_as_sent, json_schema_input_type=InlineSteeringField)]
ActivationsObject = Annotated[dict[str, Any], BeforeValidator(_as_sent, json_schema_input_type=WantedActivations)]


# --- templates and formats --------------------------------------------------------------------------------------------


def _template_kwargs(value: object) -> dict[str, Any]:
    """An object, JSON text of one, or a list of either (merged, the later wins); an empty string is nothing."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            value = from_json(value, allow_inf_nan=False)
        except ValueError:
            raise complain("chat_template_kwargs", "the text is not valid JSON") from None
        if not isinstance(value, dict):
            raise complain("chat_template_kwargs", f"the JSON text must hold an object; it holds {described(value)}")
    if isinstance(value, list):
        merged: dict[str, Any] = {}
        for number, item in enumerate(value):
            if not isinstance(item, dict | str):
                expected = "list items must be objects or JSON text of objects"
                raise complain("chat_template_kwargs", f"{expected}; item {number} is {described(item)}")
            merged.update(_template_kwargs(item))
        return merged
    if not isinstance(value, dict):
        raise complain("chat_template_kwargs", "an object, JSON text of one, or a list of them is expected")
    return value


_Variables = dict[str, Any] | str
TemplateKwargs = Annotated[
    dict[str, Any],
    BeforeValidator(_template_kwargs, json_schema_input_type=_Variables | list[_Variables] | None),
]


class JsonSchemaFormat(BaseModel):
    """The ``json_schema`` block of a response format."""

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    json_schema: dict[str, Any] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


_FORM_KEYS = {"regex": ("regex",), "grammar": ("grammar", "syntax")}


class ResponseFormatBlock(BaseModel):
    """What form the text must have; ``text`` asks for nothing."""

    model_config = ConfigDict(strict=True, extra="forbid")
    type: Literal["text", "json_object", "json_schema", "regex", "grammar"]
    json_schema: JsonSchemaFormat | None = None
    regex: str | None = None
    grammar: str | None = None
    syntax: Literal["lark", "ebnf"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _has_its_keys(cls, value: object) -> object:
        """A regular expression and a grammar name what is missing by its own path."""
        if isinstance(value, dict):
            missing = [key for key in _FORM_KEYS.get(str(value.get("type")), ()) if value.get(key) is None]
            if missing:
                raise ValidationError.from_exception_data(
                    "response_format", [{"type": "missing", "loc": (key,), "input": value} for key in missing]
                )
        return value

    def model_post_init(self, context: object, /) -> None:
        """Each block belongs to its own type and to nothing else."""
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise complain("response_format", "json_schema goes with type json_schema and only with it")
        for key, of in (("regex", "regex"), ("grammar", "grammar"), ("syntax", "grammar")):
            if getattr(self, key) is not None and self.type != of:
                raise complain("response_format", f"{key} goes with type {of} and only with it")


class StreamOptions(BaseModel):
    """What a stream says about its own cost."""

    model_config = ConfigDict(strict=True)
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
