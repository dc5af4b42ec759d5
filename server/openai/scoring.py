"""Answers of requests that score: probabilities of the next token, from one reading of each prompt. Nothing is written.

Never steered and never monitored, whatever steers the answers that are written at the same moment.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from quart import Response

from engine.public.generation import PreparedScoring, Scored, ScoredPrompt, ScoringRequest, TokenInfo
from engine.public.library import ModelRecord
from engine.public.steering import NO_STEERING
from server import headers, sse
from server.context import ServerContext
from server.generation.admission import common_headers, on_resident, result_of, with_unread_variables
from server.openai.formatting import millm_json, new_id, system_fingerprint, usage_json
from server.openai.schema import Parsed
from server.openai.shapes import Shapes

MODE = "scoring"
FINISH_REASON = "length"


async def answer(
    context: ServerContext,
    shapes: Shapes,
    parsed: Parsed,
    asked: ScoringRequest,
    record: ModelRecord,
    unused: tuple[str, ...],
) -> Response:
    """Score ``asked``, whose fields have been judged already."""
    service = context.engine.generation
    wanted = replace(asked, model=record.name)

    async def prepare() -> PreparedScoring:
        return await context.prepare(lambda: service.prepare_scoring(wanted))

    prepared = await on_resident(context, record.name, prepare)
    unused = with_unread_variables(unused, parsed, prepared)
    scored = await result_of(service.score(prepared))
    out = {
        **common_headers(context, prepared.loaded.info.word(solo=True), MODE, unused, (*parsed.notes, *prepared.notes)),
        headers.BATCH: str(parsed.generation.conversations),
        headers.STEERING: NO_STEERING.text(),
        headers.WARM: str(scored.usage.cached_tokens),
        "Content-Type": "application/json",
    }
    seed = parsed.generation.sampling.seed
    if seed is not None:
        # Nothing is drawn, so the promise holds without further ado.
        out[headers.SEED] = headers.seed(seed, "request")
    return Response(sse.dump(_whole(shapes, parsed, prepared, scored)), 200, out)


def _whole(shapes: Shapes, parsed: Parsed, prepared: PreparedScoring, scored: Scored) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "id": new_id(shapes.id_prefix),
        "object": shapes.object_name,
        "created": int(time.time()),
        "model": prepared.model_name,
        "choices": [_choice(shapes, parsed, prepared, place, found) for place, found in enumerate(scored.prompts)],
        "usage": usage_json(scored.usage),
        "system_fingerprint": system_fingerprint(prepared.loaded),
    }
    if scored.activations is not None:
        whole["millm"] = millm_json(scored.activations)
    return whole


def _choice(
    shapes: Shapes, parsed: Parsed, prepared: PreparedScoring, index: int, found: ScoredPrompt
) -> dict[str, Any]:
    wanted = prepared.request.logprobs
    chosen = found.chosen
    # With 0 only the chosen token itself is reported, without alternatives.
    token = TokenInfo(
        chosen.token_id, chosen.text, chosen.bytes, chosen.logprob, found.top[: wanted or 0], found.text_offset
    )
    choice = shapes.choice(
        index, found.text, None, [], [token], FINISH_REASON, logprobs=wanted is not None, as_ids=parsed.tokens_as_ids
    )
    # Whoever narrows the choice without asking for figures is told that there are none.
    choice.setdefault("logprobs", None)
    return choice
