"""Requests to the API in words; pure functions, one spelling for table and detail."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from urllib.parse import unquote

from engine.events import RequestRecorded
from engine.public.documents import evidence_words
from ui.kit.steering_text import since
from ui.kit.text import count, counted

_ITEM = re.compile(r"(profile|circuit|manual|inline)((?:;[a-z_]+(?:=(?:\"[^\"]*\"|[^;,\"]*))?)+)")
_VALUE = re.compile(r";([a-z_]+)(?:=(?:\"([^\"]*)\"|([^;,\"]*)))?")
"""An item of a steering report, and its values; names are quoted, and quotes in them are encoded."""

KINDS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text",
    "/v1/embeddings": "embeddings",
    "/v1/models": "models",
    "/v1/messages": "messages",
    "/v1/responses": "responses",
    "/v1/tokenize": "tokens",
    "/v1/detokenize": "tokens",
}
"""What a path is for, in the word that programs' makers use for it."""

MEANINGS = {
    "title": "a title for the conversation",
    "tags": "tags for the conversation",
    "follow-up": "questions to ask next",
    "search query": "words to search for",
    "image prompt": "a prompt for a picture",
    "autocomplete": "a completion of what is being typed",
    "emoji": "an emoji",
    "tool choice": "a choice of tools",
    "merge": "a summary of several answers",
    "summary": "a summary of the conversation so far",
    "helper task": "a task of its own",
}


def moment(entry: RequestRecorded) -> str:
    """When it arrived, by this machine's clock."""
    return f"{datetime.fromisoformat(entry.at).astimezone():%H:%M:%S}"


def asked_for(entry: RequestRecorded) -> str:
    """What kind of request it is, and which side call."""
    kind = KINDS.get(entry.path, f"{entry.method} {entry.path}")
    if entry.mode == "scoring":
        kind = "scoring"
    return f"{kind} · {entry.side_call}" if entry.side_call else kind


def written(entry: RequestRecorded) -> str:
    """What became of the answer, beside its text: calls, the form it was held to, the cap it ended at."""
    found = [counted(entry.calls, "call")] if entry.calls else []
    if entry.constrained is not None and not entry.calls:
        found.append("constrained")
    if entry.capped:
        found.append("cut")
    return ", ".join(found)


def status(entry: RequestRecorded) -> str:
    """How it stands or how it ended."""
    if entry.status is None:
        return "under way…"
    if entry.error is not None:
        return f"{entry.status} {entry.error}" if entry.status else entry.error
    if entry.cut_short:
        return "broken off"
    return str(entry.status)


def tone(entry: RequestRecorded) -> str:
    """The colour of its status: quiet, good, warn or bad."""
    if entry.status is None:
        return "muted"
    if entry.error is not None or entry.status >= 400:
        return "bad" if entry.status >= 500 or entry.status < 400 else "warn"
    return "warn" if entry.cut_short else "good"


def steering(entry: RequestRecorded, clusters: Collection[str] = ()) -> str:
    """What steered the answer, in words, from the report the client got; a dash where there was none.

    The report calls a cluster a profile, as the API does; ``clusters`` are the names of those that are clusters.
    """
    if not entry.steering:
        return "–"
    found = [_item(kind, _VALUE.findall(values), clusters) for kind, values in _ITEM.findall(entry.steering)]
    return ", ".join(found) or entry.steering


def _item(kind: str, values: list[tuple[str, str, str]], clusters: Collection[str]) -> str:
    told = {key: unquote(quoted) if quoted else plain for key, quoted, plain in values}
    dial = f" λ {told['intensity']}" if "intensity" in told else ""
    name = told.get("name", told.get("id", ""))
    if kind == "profile" and name in clusters:
        kind = "cluster"
    elif kind in ("manual", "inline"):
        kind = {"manual": "by hand", "inline": "values of the request"}[kind]
    return " ".join(f"{kind} {name}{dial}".split())


def speed(entry: RequestRecorded) -> str:
    """Tokens a second; a dash where none were written."""
    return "–" if entry.tokens_per_second is None else f"{entry.tokens_per_second:.1f}"


def ignored(entry: RequestRecorded) -> str:
    """The fields nobody used."""
    return ", ".join(entry.ignored_fields)


def details(entry: RequestRecorded) -> list[tuple[str, str]]:
    """Everything that is known of it, head by head; what is not known is left out."""
    rows: list[tuple[str, str | None]] = [
        ("Arrived", f"{datetime.fromisoformat(entry.at).astimezone():%d %b %Y %H:%M:%S}"),
        ("Request", f"{entry.method} {entry.path}{' (streamed)' if entry.stream else ''}"),
        ("Client", f"{entry.client} at {entry.remote}"),
        ("Side call", f"asks for {MEANINGS.get(entry.side_call, entry.side_call)}" if entry.side_call else None),
        ("Model", entry.model),
        ("Status", status(entry)),
        ("Field at fault", entry.param),
        ("Took", None if entry.seconds is None else f"{entry.seconds:.2f} s"),
        ("Waited in the queue", _seconds(entry.seconds_queued)),
        ("To the first token", _seconds(entry.seconds_to_first_token)),
        ("Tokens read", None if entry.prompt_tokens is None else count(entry.prompt_tokens)),
        ("Tokens written", None if entry.completion_tokens is None else count(entry.completion_tokens)),
        ("Calls written", count(entry.calls) if entry.calls else None),
        ("Held to", entry.constrained),
        ("Cut", "by its cap" if entry.capped else None),
        ("Tokens a second", None if entry.tokens_per_second is None else speed(entry)),
        ("Written by", None if entry.backend is None else _backend(entry)),
        ("Steering", entry.steering),
        *_path(entry),
        ("Evidence", None if entry.rung is None else evidence_words(entry.rung, entry.only_persistence is True)),
        ("Ignored fields", ignored(entry) or None),
    ]
    return [(head, value) for head, value in rows if value]


def _path(entry: RequestRecorded) -> list[tuple[str, str | None]]:
    """Each steering of an answer that was turned while it was written."""
    several = len({step["choice"] for step in entry.steering_path}) > 1
    seen: set[object] = set()
    rows: list[tuple[str, str | None]] = []
    for step in entry.steering_path:
        begun = since(step, first=step["choice"] not in seen)
        seen.add(step["choice"])
        rows.append((f"{begun}, choice {step['choice']}" if several else begun, str(step["steering"])))
    return rows


def as_text(entry: RequestRecorded) -> str:
    """The details as lines, for copying."""
    return "\n".join(f"{head}: {value}" for head, value in details(entry))


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f} s"


def _backend(entry: RequestRecorded) -> str:
    words = {"cbm": "a shared batch (cbm)", "serial": "a pass of its own (serial)", "llamacpp": "llama.cpp"}
    return words.get(entry.backend or "", entry.backend or "")
