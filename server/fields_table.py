"""Writes ``docs/api-fields.md``: what becomes of each field of a request, made from the field policy and the schemas.

``python -m server.fields_table`` writes it, ``--check`` says whether it is current. Nothing in it is typed by hand but
the words for values that are not numbers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from engine.public.documents import GREATEST_INTENSITY, LEAST_INTENSITY
from engine.public.generation import MAX_ALLOWED, MAX_CHOICES, MAX_STOPS, MAX_TOOLS, MAX_TOP_LOGPROBS, Pooling
from engine.public.library import EngineKind
from engine.public.steering import DialWord
from engine.sampling import BY_NAME, GREATEST_BIAS, LEAST_BIAS, MAX_LOGIT_BIAS
from server.fields import Column, Rule, Use
from server.openai import fields, memory, tokens
from server.openai.embeddings import EmbeddingsBody
from server.openai.schema import IDLE_WHEN_SCORING, ChatBody, CompletionBody

PAGE = Path(__file__).parents[1] / "docs" / "api-fields.md"

SCHEMAS: dict[str, tuple[Column, type[BaseModel]]] = {
    "POST /v1/chat/completions": (fields.CHAT, ChatBody),
    "POST /v1/completions": (fields.COMPLETIONS, CompletionBody),
    "POST /v1/embeddings": (fields.EMBEDDINGS, EmbeddingsBody),
    "POST /v1/tokenize": (tokens.TOKENIZE, tokens.TokenizeBody),
    "POST /v1/detokenize": (tokens.DETOKENIZE, tokens.DetokenizeBody),
    "POST /v1/models/load": (memory.LOAD, memory.LoadBody),
    "POST /v1/models/unload": (memory.UNLOAD, memory.UnloadBody),
}

_YES_NO = "`true` or `false`"
VALUES: dict[str, str] = {
    "model": "a name of `GET /v1/models`; required",
    "messages": "a list of messages; required. Content is text or a list of text parts",
    "prompt": "a string or a list of strings; required",
    "input": "a string, token ids, or a list of either; required",
    "extra_messages": f"a list of lists of messages; conversations × choices at most {MAX_CHOICES}",
    "chat_template_kwargs": "an object, JSON text of one, or a list of either",
    "stream_options": "`include_usage`, `continuous_usage_stats`",
    "seed": f"{BY_NAME['seed'].expected}; −1 and null are none",
    "max_tokens": "at least 1; −1 is no limit but the window's",
    "max_completion_tokens": "at least 1; −1 is no limit but the window's",
    "top_k": "at least 0; −1 and 0 are no limit",
    "logit_bias": f"an object of at most {MAX_LOGIT_BIAS} token ids, each with a number from "
    f"−{-LEAST_BIAS} to {GREATEST_BIAS}",
    "stop": f"a string or a list of at most {MAX_STOPS}; none empty",
    "allowed_token_ids": f"1 to {MAX_ALLOWED} token ids",
    "response_format": "`text`, `json_object`, `json_schema`, `regex` or `grammar`",
    "tools": f"at most {MAX_TOOLS}: functions, custom tools; of other types see [clients](clients.md)",
    "tool_choice": "`auto`, `none`, `required`, or a tool that is named or allowed",
    "encoding_format": "`float` or `base64`",
    "pooling": ", ".join(f"`{kind.value}`" for kind in Pooling),
    "suffix": "a string: what follows the gap that is filled in",
    "fim_mode": "`psm` or `spm`; with `suffix`",
    "top_logprobs": f"0 to {MAX_TOP_LOGPROBS}; needs `logprobs`",
    "profile": "a profile's name",
    "steering": "`features` (`index`, `strength`), `sae_id`",
    "steering_intensity": f"{LEAST_INTENSITY:g} to {GREATEST_INTENSITY:g}, or {', '.join(f'`{w}`' for w in DialWord)}",
    "return_sae_activations": "`top_k`, `positions`; `sae_id`, `features`, `read_point`",
}
"""What a field may hold, where that is no plain number or switch."""

_TEXT = "a string; one of `text`, `content`, `prompt` and `messages` is needed"
_NAME = "a name of `GET /v1/models`; one of `id`, `model` and `name` is needed"
_RESIDENT = "a name of `GET /v1/models`; the loaded model where it is left out"
_NAMES = dict.fromkeys(("id", "model", "name"), _NAME)
HERE: dict[str, dict[str, str]] = {
    "POST /v1/tokenize": {
        "model": _RESIDENT,
        **dict.fromkeys(tokens.TEXTS, _TEXT),
        "messages": "a list of messages, as in a chat",
        "tools": "a list of objects, for the chat template; with `messages`",
    },
    "POST /v1/detokenize": {"model": _RESIDENT, "tokens": "a list of token ids; required"},
    "POST /v1/models/load": {**_NAMES, "runtime": "the `runtime.id` that `GET /v1/models` has for it"},
    "POST /v1/models/unload": _NAMES,
}
"""As :data:`VALUES`, where a field is another thing on one route."""

_OPENING = """# Fields of a request

Made from the program's field policy by `python -m server.fields_table`; do not edit it by hand.

What happens to a field, for a model in transformers' format and for a GGUF model:

- **honoured**: it has its effect, or the request is refused with a 400 that names it (`invalid_parameter` for a value
  outside its bounds);
- **reported**: it has no effect here; the answer names it in `X-miLLM-Ignored-Fields`, and under `X-miLLM-Strict: true`
  the request is refused (400 `unused_fields_refused`);
- **refused**: it would change the answer and cannot; 400 `field_not_honoured` names it before anything is loaded.

Under *but* stands when something else happens to it. `null` asks for nothing anywhere, and so do the values under *asks
for nothing*. A field that no row names is reported. *Scoring* is a request with `allowed_token_ids`, or with `logprobs`
and an output cap of 1: it reads one token and writes none.

With the setting `IGNORE_OFFERED_TOOLS` the `tools` and `functions` that a chat offers are reported and not used, unless
the request insists that one is called.
"""


def page() -> str:
    """The whole page."""
    parts = [_OPENING]
    for route, (column, schema) in SCHEMAS.items():
        parts.append(f"\n## `{route}`\n\n")
        parts.append("| field | transformers | GGUF | values | but | asks for nothing |\n")
        parts.append("|---|---|---|---|---|---|\n")
        parts.extend(_rows(column, schema, HERE.get(route, {})))
    return "".join(parts)


def _rows(column: Column, schema: type[BaseModel], here_is: dict[str, str]) -> Iterator[str]:
    """The endpoint's rows: honoured fields first, then reported, then refused, each by name."""
    order = list(Use)

    def place(item: tuple[str, Rule]) -> tuple[int, str]:
        return order.index(item[1].use), item[0]

    for name, rule in sorted(column.rules.items(), key=place):
        here, gguf = rule.use, rule.use_with(EngineKind.LLAMACPP)
        honoured = Use.HONOURED in (here, gguf)
        values = here_is.get(name) or values_of(name, schema.model_fields[name]) if honoured else ""
        but = _exception(name, rule) if honoured else ""
        neutral = ", ".join(f"`{json.dumps(value)}`" for value in rule.neutral)
        yield f"| `{name}` | {here} | {gguf} | {values} | {but} | {neutral} |\n"


def _exception(name: str, rule: Rule) -> str:
    if rule.when:
        return f"refused: {rule.when}"
    return "reported: scoring" if name in IDLE_WHEN_SCORING else ""


def values_of(name: str, field: FieldInfo) -> str:
    """What the field may hold, in words; bounds are those of the schema."""
    if name in VALUES:
        return VALUES[name]
    low, high, above = (_bound(field, kind) for kind in ("ge", "le", "gt"))
    if low is None and high is None and above is None:
        return _YES_NO
    if high is None:
        return f"at least {low:g}"
    return f"{low:g} to {_whole(high)}" if low is not None else f"above {above:g}, at most {_whole(high)}"


def _bound(field: FieldInfo, kind: str) -> float | None:
    """A numeric bound of the field, however deep in its type it is declared."""
    found: list[Any] = list(field.metadata)
    for part in getattr(field.annotation, "__args__", ()):
        found.extend(getattr(part, "__metadata__", ()))
    for each in found:
        inner = each.metadata if isinstance(each, FieldInfo) else [each]
        for bound in inner:
            if (value := getattr(bound, kind, None)) is not None:
                return float(value)
    return None


def _whole(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() else f"{value:g}"


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or with ``--check`` say whether it is current."""
    parser = argparse.ArgumentParser(prog="python -m server.fields_table", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is not current")
    wanted = parser.parse_args(arguments)
    text = page()
    if wanted.check:
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
        if not current:
            sys.stderr.write(f"{PAGE} is not current: run python -m server.fields_table\n")
        return 0 if current else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
