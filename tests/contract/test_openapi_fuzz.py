"""Requests made up from the API's own description: none may fail the server, and every answer is as described.

About 25 made-up requests an operation, from a fixed seed, half of them against the description. Sizes are bounded here
and not in the description, so that a run takes about a minute: few tokens, few choices, short lists.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from engine.actions.models.importing import import_local_model
from engine.actions.sweeping.settings import BaseKind, SweepSettings
from engine.errors import ModelNotFound
from engine.library.records import ExperimentRecord
from engine.models.hub.breaker import HUB
from server.config import ServerSettings
from server.thread import ServerThread
from tests.contract.conftest import MODEL, READY_S, Live, start_engine, stop_engine
from tests.made_saes import make_sae
from tests.server.management.documents import circuit, cluster

CHAPTERS = (
    "/v1/chat",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/models",
    "/v1/tokenize",
    "/v1/detokenize",
    "/api/models",
    "/api/saes",
    "/api/profiles",
    "/api/clusters",
    "/api/circuits",
    "/api/monitoring",
    "/api/sweeps",
    "/api/experiments",
    "/",
)
"""First parts of paths; a path belongs to the first that fits."""

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 13
"""Of each kind, with and against the description."""

Document = dict[str, Any]


@dataclass(frozen=True)
class Fuzzed:
    """A server of its own, since made-up requests change and delete what they find."""

    live: Live
    checkpoint: Path
    saes: dict[str, Path]

    def furnish(self) -> dict[str, list[str]]:
        """Put back what requests can name, and give its ids: a loaded model, two SAEs of which one is attached, a
        profile, a cluster, a circuit, a sweep and a saved comparison.
        """
        engine = self.live.engine
        try:
            record = engine.shelf.resolve(MODEL)
        except ModelNotFound:
            record = import_local_model(engine.library, engine.events, self.checkpoint)
        self.live.wait_idle()
        engine.loader.load(record.id).result(120)
        known = {each.id for each in engine.saes.list()}
        for name, folder in self.saes.items():
            if name not in known:
                engine.saes.import_local(folder, sae_id=name)
        engine.attachments.attach_set([("a", 1)])
        profiles = {each.record.name: each.record.id for each in engine.profiles.list().profiles}
        if "calm" not in profiles:
            profiles["calm"] = engine.profiles.create("calm", steering={3: 2.0}, sae_id="a", layer=1).record.id
        if not (clusters := engine.clusters.list().clusters):
            engine.clusters.import_document(json.dumps(cluster()).encode())
            clusters = engine.clusters.list().clusters
        if not (circuits := engine.circuits.list().circuits):
            engine.circuits.import_document(json.dumps(circuit()).encode())
            circuits = engine.circuits.list().circuits
        if not engine.experiments.list():
            engine.experiments.add(ExperimentRecord("Sea", MODEL, "Where?", "A garden.", "A harbour."))
        if not (sweeps := engine.sweeps.runs.list()):
            base = engine.sweeps.resolve(BaseKind.PROFILE, profiles["calm"])
            engine.sweeps.start(SweepSettings(("the sea",), (0.0, 1.0), max_tokens=2), base)
            sweeps = engine.sweeps.runs.list()
        return {
            "circuit_id": [circuits[0].record.id, "nobody"],
            "cluster_id": [clusters[0].record.id, "nobody"],
            "experiment_id": [str(engine.experiments.list()[0].id), "9999"],
            "index": ["3", "99", "x"],
            "key": ["gpt2-small", "nobody"],
            "model_id": [str(record.id), "9", "x"],
            "name": [MODEL, HUB, "nobody"],
            "profile_id": [profiles["calm"], "nobody"],
            "sae_id": [*self.saes, "nobody"],
            "slot": ["0"],
            "sweep_id": [sweeps[0].id, "nobody"],
        }


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Iterator[Fuzzed]:
    folder = tmp_path_factory.mktemp("fuzzed")
    engine = start_engine(None, folder / "millm.db")
    thread = ServerThread(engine, ServerSettings(PORT=0, MAX_BODY_BYTES=1 << 20))
    thread.start()
    saes = {name: make_sae(folder / name, layer=layer, seed=layer) for name, layer in (("a", 1), ("b", 2))}
    yield Fuzzed(Live(engine, thread, thread.wait_ready(READY_S)), tiny_checkpoint, saes)
    thread.stop(5)
    stop_engine(engine)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_made_up_requests(fuzzed: Fuzzed, chapter: str) -> None:
    live = fuzzed.live
    with live.http() as client:
        document = client.get("/openapi.json").json()
    ids = {**fuzzed.furnish(), "path": [str(each) for each in fuzzed.saes.values()]}
    schema = schemathesis.openapi.from_dict(_bounded(document, ids))
    found = [each.ok() for each in schema.get_all_operations()]
    found = [each for each in found if _chapter(each.path) == chapter]
    assert found
    with requests.Session() as session:
        # What deletes comes last, so that the others have something to work on.
        for operation in sorted(found, key=lambda each: each.method == "delete"):
            fuzzed.furnish()
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                # A text in a path has no wrong value.
                if mode is GenerationMode.POSITIVE or operation.body or operation.query:
                    _try(operation.as_strategy(generation_mode=mode), live.base, session)
    fuzzed.furnish()
    assert live.chat().status_code == 200


def _try(strategy: Any, base: str, session: requests.Session) -> None:
    @seed(7)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def run(case: Case) -> None:
        response = case.call(base_url=base, session=session, timeout=60)
        retired = (501,) if case.path.startswith("/slots/") else ()
        assert response.status_code not in {500, 501} - {*retired}, case.as_curl_command()
        # A stream is text by its description; the library would have each of its events be what the text is.
        streamed = "text/event-stream" in str(response.headers.get("content-type"))
        checks = [each for each in CHECKS if not streamed or each is not response_schema_conformance]
        case.validate_response(response, checks=checks)

    run()


def _chapter(path: str) -> str:
    return next(each for each in CHAPTERS if path.startswith(each))


def _bounded(document: Document, ids: dict[str, list[str]]) -> Document:
    """``document`` with names that exist and sizes that end soon."""
    out = copy.deepcopy(document)
    schemas = out["components"]["schemas"]
    for name in ("ChatBody", "CompletionBody"):
        body = schemas[name]
        few: dict[str, Any] = {
            "model": {"enum": [MODEL, "nobody"]},
            "max_tokens": {"type": "integer", "minimum": 1, "maximum": 4},
            "n": {"enum": [None, 1, 2]},
            "best_of": {"enum": [None, 1, 2]},
            "profile": {"enum": [None, "calm", "nobody"]},
        }
        body["properties"].update(few)
        body["properties"].pop("max_completion_tokens")
        body["required"] = [*body["required"], "max_tokens"]
    schemas["ChatBody"]["properties"]["messages"]["maxItems"] = 3
    schemas["EmbeddingsBody"]["properties"]["model"] = {"const": MODEL}
    schemas["ImportSaeBody"]["properties"]["path"] = {"enum": [*ids["path"], "/nowhere"]}
    schemas["SweepBaseBody"]["properties"]["id"] = {"enum": [*ids["profile_id"], *ids["circuit_id"], ""]}
    schemas["SweepBody"]["properties"]["max_tokens"] = {"type": "integer", "minimum": 1, "maximum": 4}
    schemas["SweepBody"]["required"] = [*schemas["SweepBody"]["required"], "max_tokens"]
    for name in ("prompts", "intensities"):
        schemas["SweepBody"]["properties"][name]["maxItems"] = 3
    for item in out["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path" or parameter["name"] == "circuit_id":
                    parameter["schema"] = {"enum": ids[parameter["name"]]}
    return out


def test_every_chapter_has_paths(fuzzed: Fuzzed) -> None:
    with fuzzed.live.http() as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert {_chapter(path) for path in paths} == set(CHAPTERS)
