"""What an answer says of itself in headers: their names and grammar (RFC 8941, by ``http_sf``), and their values.

The server sends them; the window shows the ones a client would have got. Both read them here.
"""

from __future__ import annotations

from collections.abc import Sequence

import http_sf

from engine.documents.evidence import rung_header
from engine.generation.prepared import PreparedRequest
from engine.steering.report import SteeringReport

BACKEND = "X-miLLM-Backend"
BATCH = "X-miLLM-Batch"
CIRCUIT_RUNG = "X-miLLM-Circuit-Rung"
MODE = "X-miLLM-Mode"
NOTES = "X-miLLM-Notes"
SEED = "X-miLLM-Seed"
STEERING = "X-miLLM-Steering"
STEERING_INTENSITY = "X-miLLM-Steering-Intensity"
WARM = "X-miLLM-Warm"

GENERATION = "generation"
"""The mode of an answer that is written, as opposed to scoring."""
LIST_BYTES = 1024
"""Longest list of strings, where nothing else is set."""


def percent_encode(text: str) -> str:
    """``text`` as printable ASCII: ``%`` and every byte outside 0x20–0x7E become ``%XX`` with upper-case digits.

    Lone surrogates, which UTF-8 cannot hold, are written as the bytes they would have.
    """
    raw = text.encode("utf-8", "surrogatepass")
    return "".join(chr(b) if 0x20 <= b <= 0x7E and b != 0x25 else f"%{b:02X}" for b in raw)


def string_list(texts: Sequence[str], max_bytes: int) -> str:
    """An RFC 8941 list of strings of at most ``max_bytes`` bytes; a last ``"+N more"`` counts what does not fit."""
    members: list[str] = []
    length = 0
    for text in texts:
        member = http_sf.ser(percent_encode(text))
        length += len(member) + (2 if members else 0)
        if length > max_bytes:
            break
        members.append(member)
    else:
        return ", ".join(members)
    while members and len(_cut(members, len(texts))) > max_bytes:
        members.pop()
    return _cut(members, len(texts))


def _cut(members: list[str], total: int) -> str:
    return ", ".join([*members, http_sf.ser(f"+{total - len(members)} more")])


def seed(value: int, scope: str) -> str:
    """The seed that was applied and how far its promise of equal bytes reaches."""
    # Written by hand: RFC 8941 gives an integer 15 digits, and a seed may have 19.
    return f"{value};scope={http_sf.ser(scope)}"


def steering_headers(prepared: PreparedRequest, rung: int | None) -> dict[str, str]:
    """The dial's value where it changed the plan, and the rung where one may be claimed."""
    out: dict[str, str] = {}
    if prepared.steering.echo is not None:
        out[STEERING_INTENSITY] = prepared.steering.echo
    if rung is not None:
        out[CIRCUIT_RUNG] = rung_header(rung)
    return out


def answer_headers(
    prepared: PreparedRequest,
    backend: str,
    report: SteeringReport,
    rung: int | None,
    *,
    warm: int | None = None,
    list_bytes: int = LIST_BYTES,
) -> dict[str, str]:
    """The headers of one whole answer to one conversation: ``backend`` as its start said, the rest as its end said.

    ``warm``: prompt tokens that were not read anew; None where the answer had no end that tells.
    """
    out = {BACKEND: backend, MODE: GENERATION, BATCH: "1"}
    if prepared.notes:
        out[NOTES] = string_list(prepared.notes, list_bytes)
    if prepared.request.sampling.seed is not None:
        out[SEED] = seed(prepared.request.sampling.seed, "request")
    if warm is not None:
        out[WARM] = str(warm)
    return {**out, STEERING: report.text(), **steering_headers(prepared, rung)}
