"""The field policy: what happens to each field of a request to the model. No field is ever lost.

A field is *honoured* (it has its effect), *reported* (named in ``X-miLLM-Ignored-Fields``, refused in strict mode) or
*refused* (400 ``field_not_honoured`` naming it, before anything loads). A field no row names is reported. Null always
asks for nothing. Each API has its own table, a :class:`Column` for each endpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from engine.errors import FieldNotHonoured, UnusedFieldsRefused
from engine.public.library import EngineKind

Body = Mapping[str, Any]


class Use(StrEnum):
    """What becomes of a field."""

    HONOURED = "honoured"
    REPORTED = "reported"
    REFUSED = "refused"


@dataclass(frozen=True)
class Rule:
    """What becomes of one field on one endpoint.

    Attributes:
        on_gguf: What becomes of it with a GGUF model, where that differs.
        neutral: Values that ask for nothing and pass even where the field is refused; compared with their JSON type.
        refused_when: A condition under which a field that is otherwise honoured is refused.
        when: That condition in words, for the documentation.
        remedy: What to do instead, for the message.
    """

    use: Use
    on_gguf: Use | None = None
    neutral: tuple[Any, ...] = ()
    refused_when: Callable[[Any, Body], bool] | None = None
    when: str = ""
    remedy: str = ""

    def use_with(self, engine: str = EngineKind.TRANSFORMERS) -> Use:
        """What becomes of it with a model of ``engine``."""
        return self.on_gguf if engine == EngineKind.LLAMACPP and self.on_gguf is not None else self.use


def _nothing(body: Body) -> list[str]:
    return []


def _none(body: Body) -> frozenset[str]:
    return frozenset()


@dataclass(frozen=True)
class Column:
    """The rules of one endpoint.

    Attributes:
        key: Its word in the program's log.
        name: What messages call it.
        rules: By the name of a field.
        writes: Whether it writes text, which not every model can.
        blank: Values that are null, by field.
        within: Fields that are objects, and the keys that are read of each.
        deeper: Locations of what nobody reads further inside a body.
        offered: The fields that merely offer a model tools, which an answer may leave alone.
    """

    key: str
    name: str
    rules: Mapping[str, Rule]
    writes: bool = True
    blank: Mapping[str, Any] = field(default_factory=dict)
    within: Mapping[str, frozenset[str]] = field(default_factory=dict)
    deeper: Callable[[Body], list[str]] = _nothing
    offered: Callable[[Body], frozenset[str]] = _none


def judge(
    column: Column,
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
        if value is not None and name not in passed_over and _is_refused(column, engine, name, value, body, declared)
    ]
    if refused:
        raise _refusal(column, refused, model=model, engine=engine)
    return tuple(dict.fromkeys(_unused_locations(column, engine, body, unused, passed_over)))


def refuse_unused(locations: Sequence[str]) -> None:
    """Strict mode. Raises :class:`UnusedFieldsRefused` naming every location."""
    if locations:
        raise UnusedFieldsRefused(
            f"These fields are not used by this server: {', '.join(locations)}.",
            param=locations[0],
            details={"fields": list(locations)},
            remedy="Leave them out, or send the request without X-miLLM-Strict.",
        )


def _is_refused(column: Column, engine: str, name: str, value: Any, body: Body, declared: frozenset[str]) -> bool:
    rule = column.rules.get(name)
    if rule is None:
        return False
    if any(_same(value, neutral) for neutral in rule.neutral):
        return False
    use = rule.use_with(engine)
    if use is Use.REFUSED or (use is Use.HONOURED and name not in declared):
        return True
    return use is Use.HONOURED and rule.refused_when is not None and rule.refused_when(value, body)


def _same(value: Any, neutral: Any) -> bool:
    if isinstance(value, Mapping):
        value = {key: item for key, item in value.items() if item is not None}
    # 0 == False in Python, not in JSON.
    return type(value) is type(neutral) and bool(value == neutral)


def _refusal(column: Column, refused: list[str], *, model: str, engine: str) -> FieldNotHonoured:
    first = refused[0]
    message = f"'{first}' cannot be honoured on {column.name} with the model {model!r} ({engine})."
    if others := refused[1:]:
        message += f" Neither can {', '.join(repr(name) for name in others)}."
    remedy = column.rules[first].remedy or "Leave it out, or send null."
    return FieldNotHonoured(message, param=first, details={"fields": refused}, remedy=remedy)


def _unused_locations(
    column: Column, engine: str, body: Body, unused: Sequence[str], passed_over: frozenset[str]
) -> list[str]:
    """Top-level fields in body order (with unknown keys of objects in their place), fields that this engine or this
    very request has no use for, then what lies deeper.
    """
    found: list[str] = []
    of_engine: list[str] = []
    for name, value in body.items():
        rule = column.rules.get(name)
        if value is None or (name in column.blank and value == column.blank[name]):
            continue
        if rule is None or name in passed_over or rule.use is Use.REPORTED:
            found.append(name)
        elif name in column.within and name not in unused:
            found.extend(f"{name}.{key}" for key in extra_keys(value, column.within[name]))
        elif rule.use_with(engine) is Use.REPORTED:
            of_engine.append(name)
    return [*found, *of_engine, *unused, *column.deeper(body)]


def items(value: Any) -> list[Any]:
    """``value`` where it is a list; nothing otherwise, which the schema has refused."""
    return value if isinstance(value, list) else []


def extra_keys(value: Any, known: frozenset[str]) -> list[str]:
    """The keys of an object that nobody knows and that hold anything."""
    if not isinstance(value, Mapping):
        return []
    return [key for key, item in value.items() if key not in known and item is not None]
