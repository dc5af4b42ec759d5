"""Tools as OpenAI's clients send them: what may be called, what has to be, and calls inside a conversation.

Shapes are pydantic's; what they come to is the engine's. A path in a refusal is dotted, as everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from engine.checked import there
from engine.errors import InvalidParameter, MillmError
from engine.public.generation import (
    MAX_TOOLS,
    Message,
    PastCall,
    Tool,
    ToolKind,
    Tools,
    ToolUse,
    UnsupportedTool,
    check_strict,
)
from server.validators import complain

_HOSTED = "\0"
"""What stands before the type of a tool that a server runs, where a choice names one; no name begins so."""

NAME_PATTERN = r"^[A-Za-z0-9_.:-]{1,128}$"


class FunctionSpec(BaseModel):
    """A function that the model may call."""

    model_config = ConfigDict(strict=True)
    name: str = Field(pattern=NAME_PATTERN)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomSpec(BaseModel):
    """A tool that takes one text."""

    model_config = ConfigDict(strict=True)
    name: str = Field(pattern=NAME_PATTERN)
    description: str | None = None
    format: dict[str, Any] | None = None


class ToolItem(BaseModel):
    """One tool. Other types than these two are run by a server, not by a model."""

    model_config = ConfigDict(strict=True)
    type: str | None = None
    function: FunctionSpec | None = None
    custom: CustomSpec | None = None

    def model_post_init(self, context: object, /) -> None:
        """What the type says has to be there."""
        if self.kind == "function" and self.function is None:
            raise complain("tool", "a tool of type function needs its function")
        if self.kind == "custom" and self.custom is None:
            raise complain("tool", "a tool of type custom needs its custom")

    @property
    def kind(self) -> str:
        """The type; function where it is left out."""
        return self.type or "function"


ToolList = Annotated[list[ToolItem], Field(max_length=MAX_TOOLS)]


class _Name(BaseModel):
    model_config = ConfigDict(strict=True)
    name: str


class NamedFunction(BaseModel):
    """The one function to call."""

    model_config = ConfigDict(strict=True)
    type: Literal["function"]
    function: _Name


class NamedCustom(BaseModel):
    """The one custom tool to call."""

    model_config = ConfigDict(strict=True)
    type: Literal["custom"]
    custom: _Name


class AllowedTools(BaseModel):
    """Some of the tools, and whether one has to be called."""

    model_config = ConfigDict(strict=True)
    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


class ChooseAllowed(BaseModel):
    """A choice among some of the tools."""

    model_config = ConfigDict(strict=True)
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _as_sent(value: object) -> object:
    return value


_Choice = Literal["auto", "none", "required"] | NamedFunction | NamedCustom | ChooseAllowed | None
ToolChoice = Annotated[Any, BeforeValidator(_as_sent, json_schema_input_type=_Choice)]


@dataclass(frozen=True)
class AskedTools:
    """What a request's tools come to. ``unused``: locations of what is not used of them."""

    tools: Tools | None
    unused: tuple[str, ...] = ()


def asked_tools(items: Sequence[ToolItem], choice: object, parallel: bool | None) -> AskedTools:
    """Tools, choice and whether calls may come together.

    Raises :class:`InvalidParameter` for a choice that cannot be met, two tools of a name or a schema out of bounds,
    :class:`UnsupportedTool`, and :class:`ToolSchemaUnsupported` for a strict tool.
    """
    hosted = [place for place, item in enumerate(items) if item.kind not in ("function", "custom")]
    use, names = _choice(choice)
    asks_hosted = isinstance(names, str) and names.startswith(_HOSTED)
    if asks_hosted or (hosted and len(hosted) == len(items) and use != "none"):
        raise _unsupported(items, hosted, names[1:] if isinstance(names, str) and asks_hosted else None)
    tools: list[Tool] = []
    places: dict[str, int] = {}
    for place, item in enumerate(items):
        if place in hosted:
            continue
        tool = _tool(item, place)
        if tool.name in places:
            raise InvalidParameter(
                f"Two tools are called {tool.name!r}: tools.{places[tool.name]} and tools.{place}.",
                param=f"tools.{place}.{item.kind}.name",
            )
        places[tool.name] = place
        tools.append(tool)
    unused = [f"tools[{place}]" for place in hosted]
    if not tools:
        if use not in ("auto", "none"):
            raise _bad_choice("it asks for a call, and the request has no tools to call")
        if parallel is not None:
            unused.append("parallel_tool_calls")
        return AskedTools(None, tuple(unused))
    wanted = [names] if isinstance(names, str) else names
    unknown = next((name for name in wanted or () if name not in places), None)
    if unknown is not None:
        raise _bad_choice(f"no tool is called {unknown[:128]!r}")
    if use == "none":
        return AskedTools(None, tuple(unused))
    if wanted is not None and not wanted:
        raise _bad_choice("it allows no tool at all")
    made = Tools(
        tuple(tools),
        ToolUse(use),
        callable=None if wanted is None else frozenset(wanted),
        parallel=parallel is not False,
    )
    return AskedTools(made, tuple(unused))


def refuse_unenforceable(tools: Tools, items: Sequence[ToolItem]) -> None:
    """Refuse strict tools whose schema cannot be enforced. Large ones take a while. Raises
    :class:`ToolSchemaUnsupported`.
    """
    places = [place for place, item in enumerate(items) if item.kind in ("function", "custom")]
    check_strict(tools, [f"tools.{place}.function.parameters" for place in places])


def _tool(item: ToolItem, place: int) -> Tool:
    spec = there(item.function) if item.kind == "function" else there(item.custom)
    try:
        if isinstance(spec, CustomSpec):
            asked = spec.format if (spec.format or {}).get("type", "text") != "text" else None
            shown = {} if asked is None else {"format": asked}
            return Tool(spec.name, spec.description or "", kind=ToolKind.CUSTOM, shown=shown)
        return Tool(spec.name, spec.description or "", spec.parameters, bool(spec.strict))
    except InvalidParameter as error:
        where = f"tools.{place}.{item.kind}.{error.param}"
        raise InvalidParameter(f"Invalid value for '{where}': {error.message}", param=where) from error


def _choice(choice: object) -> tuple[str, str | list[str] | None]:
    """What has to be done, and the one name that has to be called or the names that may be."""
    if choice is None:
        return "auto", None
    if isinstance(choice, str) and choice in ("auto", "none", "required"):
        return choice, None
    if isinstance(choice, Mapping):
        kind = choice.get("type")
        if kind in ("function", "custom"):
            named = choice.get(kind)
            if isinstance(named, Mapping) and isinstance(named.get("name"), str) and named["name"]:
                return "named", str(named["name"])
        elif kind == "allowed_tools":
            allowed = choice.get("allowed_tools")
            if isinstance(allowed, Mapping) and allowed.get("mode") in ("auto", "required"):
                names = [_allowed(each) for each in _list(allowed.get("tools"))]
                if isinstance(allowed.get("tools"), list) and all(names):
                    return str(allowed["mode"]), [name for name in dict.fromkeys(names) if name is not None]
        elif isinstance(kind, str):
            # The type of a tool that a server would run.
            return "named", f"{_HOSTED}{kind}"
    raise _bad_choice(
        "auto, none or required is expected, or an object that names a function, a custom tool or the tools allowed"
    )


def _allowed(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return None
    inner = value.get(str(value.get("type", "function")), value)
    name = inner.get("name") if isinstance(inner, Mapping) else None
    return name if isinstance(name, str) and name else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _bad_choice(why: str) -> InvalidParameter:
    return InvalidParameter(f"Invalid value for 'tool_choice': {why}.", param="tool_choice")


def _unsupported(items: Sequence[ToolItem], hosted: list[int], kind: str | None) -> MillmError:
    asked = [place for place in hosted if kind is None or items[place].kind == kind]
    if not asked:
        return _bad_choice(f"the request has no tool of type {kind!r:.80}")
    place = asked[0]
    return UnsupportedTool(
        f"'tools.{place}' is of type {items[place].kind[:64]!r}, which a server runs and not a model; nothing else can "
        "be called.",
        param=f"tools.{place}",
        remedy="Offer functions, and run what the model calls.",
    )


# --- calls in a conversation ------------------------------------------------------------------------------------------


class CalledFunction(BaseModel):
    """What was called, and with what: text, or an object."""

    model_config = ConfigDict(strict=True)
    name: str = Field(min_length=1)
    arguments: str | dict[str, Any] | None = None


class CalledCustom(BaseModel):
    """A custom tool that was called, and its text."""

    model_config = ConfigDict(strict=True)
    name: str = Field(min_length=1)
    input: str | None = None


class CallItem(BaseModel):
    """A call that the assistant made."""

    model_config = ConfigDict(strict=True)
    id: str = Field(min_length=1)
    type: Literal["function", "custom"] = "function"
    function: CalledFunction | None = None
    custom: CalledCustom | None = None

    def model_post_init(self, context: object, /) -> None:
        """What the type says has to be there."""
        if (self.function if self.type == "function" else self.custom) is None:
            raise complain("call", f"a call of type {self.type} needs its {self.type}")

    def past(self) -> PastCall:
        """The engine's own."""
        if self.type == "custom":
            custom = there(self.custom)
            return PastCall(self.id, custom.name, json.dumps({"input": custom.input or ""}))
        function = there(self.function)
        arguments = function.arguments
        if arguments is None:
            return PastCall(self.id, function.name)
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return PastCall(self.id, function.name, text)


@dataclass
class _Asked:
    """A call of a conversation and whether it was answered."""

    call: PastCall
    answered: bool = False


class Conversation:
    """The messages of a conversation in order, each answer held against the calls before it.

    Args:
        path: Where its messages stand in the request, dotted.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._calls: list[_Asked] = []
        self.messages: list[Message] = []

    def add(self, message: Message) -> None:
        """The next message. Raises :class:`InvalidParameter` for an answer to what was not asked."""
        self._calls += [_Asked(call) for call in message.calls]
        self.messages.append(message)

    def add_answer(self, content: str | None, call_id: str | None, name: str | None) -> None:
        """What a tool said: to the call of that id, or to the only one without an answer. Raises as :meth:`add`."""
        where = f"{self._path}.{len(self.messages)}.tool_call_id"
        if call_id is not None:
            found = next((each for each in reversed(self._calls) if each.call.id == call_id), None)
            if found is None:
                raise InvalidParameter(
                    f"Invalid value for '{where}': no earlier assistant message has a call {call_id[:80]!r}.",
                    param=where,
                )
        else:
            waiting = [each for each in self._calls if not each.answered]
            if len(waiting) != 1:
                raise InvalidParameter(
                    f"'{where}' is missing, and {len(waiting)} calls are without an answer: which one this is for "
                    "cannot be told.",
                    param=where,
                    remedy="Send the id of the call.",
                )
            found = waiting[0]
        self._answer(found, content, name)

    def add_function(self, content: str | None, name: str | None) -> None:
        """What a function said: to the earliest call of it without an answer."""
        found = next((each for each in self._calls if not each.answered and each.call.name == name), None)
        if found is None:
            self.messages.append(Message("tool", content, name=name))
        else:
            self._answer(found, content, name)

    def _answer(self, asked: _Asked, content: str | None, name: str | None) -> None:
        asked.answered = True
        self.messages.append(Message("tool", content, call_id=asked.call.id, name=name or asked.call.name))
