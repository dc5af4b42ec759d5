"""The steering actions on a library and a desk of their own, without a model: the SAEs are made by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from engine.actions.lock import SteeringLock
from engine.actions.steering.circuits import CircuitActions
from engine.actions.steering.clusters import ClusterActions
from engine.actions.steering.profiles import ProfileActions
from engine.config import EngineSettings
from engine.errors import MillmError
from engine.events import Event, EventBus
from engine.library.database import Library
from engine.steering.desk import Snapshot, SteeringDesk
from tests.engine.steering.made import heard, make_desk

SIX, ELEVEN = ("sae_a", 6), ("sae_b", 11)
"""The SAEs of the circuits below; they have 48 features."""

Rows = tuple[Any, ...]


@dataclass(frozen=True)
class Stage:
    """All actions, and everything they change."""

    library: Library
    events: EventBus
    desk: SteeringDesk
    profiles: ProfileActions
    clusters: ClusterActions
    circuits: CircuitActions
    found: list[Event]

    def everything(self) -> tuple[Snapshot, Rows]:
        """The live steering and every row that says who steers: equal before and after what was refused."""
        rows = (
            self.library.profiles.list(),
            self.library.circuits.list(limit=200).circuits,
            self.library.claims.live(),
        )
        return self.desk.now, rows

    def agrees(self) -> None:
        """What the rows say and what the desk holds must be the same."""
        active = self.library.profiles.active()
        live = self.desk.state.profile
        assert (active.id if active else None) == (live.profile_id if live else None)
        full = [each.id for each in self.library.circuits.active() if each.serving_mode == "full"]
        assert sorted(one.circuit_id for one in self.desk.state.circuits) == full
        composed = {claim.circuit_id for claim in self.library.claims.live() if claim.composed}
        assert {one.circuit_id for one in self.desk.state.circuits if one.composed} == composed & set(full)

    def names(self) -> list[str]:
        """The wire names of what was published since the last call."""
        names = [each.name for each in self.found]
        self.found.clear()
        return names


def make_stage(library: Library, *places: tuple[str, int], **settings: Any) -> Stage:
    """The actions with SAEs attached at ``places``; see :func:`tests.engine.steering.made.make_desk`."""
    events = EventBus()
    desk = make_desk(*places, events=events)
    shared = EngineSettings(**settings), library, desk, events, SteeringLock()
    profiles = ProfileActions(*shared)
    return Stage(
        library, events, desk, profiles, ClusterActions(*shared, profiles), CircuitActions(*shared), heard(events)
    )


def refused(error: MillmError) -> tuple[str, str | None]:
    """What a client sees of a refusal first."""
    return error.code, error.param


# --- documents --------------------------------------------------------------------------------------------------------


def member(index: int, strength: float, **more: Any) -> dict[str, Any]:
    return {"feature_idx": index, "strength": strength, **more}


def cluster(name: str = "Harbour", *members: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A cluster for sae_a at layer 6 with unknown keys; its dial is 0.5 in a range from 0.25 to 1.75."""
    return {
        "kind": "mistudio.cluster-definition",
        "schema_version": "1",
        "name": name,
        "narrative": "Words of the sea.",
        "display_token": "quay",
        "model": {"hf_id": "acme/tiny-1b"},
        "sae": {"mistudio_sae_id": "sae_a", "layer": 6, "n_features": 48, "x_sae": True},
        "members": list(members)
        or [member(1, 4.0, label="ships", x=[1e3]), member(2, -6.0, sign=-1), member(3, 2.0, sign=-1)],
        "budget": {"B": 18.5, "formula_id": "demo@1", "intensity": 0.5, "intensity_range": [0.25, 1.75]},
        "x_top": {"deep": [None, False, "ü", {"a/b": "~"}]},
        **changes,
    }


def bundle(*definitions: Any) -> dict[str, Any]:
    return {"kind": "mistudio.cluster-bundle", "schema_version": "1", "definitions": list(definitions)}


def circuit(name: str = "question → hedge", *, rung: Any = 2, **changes: Any) -> dict[str, Any]:
    """A circuit over layers 6 and 11 whose one edge is at ``rung``; its dial is 0.5 in a range from 0.25 to 1.5."""
    return {
        "kind": "mistudio.circuit-definition",
        "schema_version": "1",
        "name": name,
        "narrative": "Questions make the answer careful.",
        "saes": [
            {"mistudio_sae_id": "sae_a", "layer": 6, "n_features": 48, "x_sae": "six"},
            {"mistudio_sae_id": "sae_b", "layer": 11, "n_features": 48},
        ],
        "members": [
            {"layer": 6, "feature": member(1, 8.0, label="question", x_member=[1])},
            {"layer": 11, "member_kind": "cluster_ref", "expanded_members": [member(2, 4.0), member(3, -2.0)]},
        ],
        "edges": [
            {
                "up": {"layer": 6, "feature_idx": 1},
                "down": {"layer": 11, "feature_idx": 2},
                "rung": rung,
                "effect_size": 0.25,
                "x_edge": {"y": 1},
            }
        ],
        "budget": {"layers": {"6": {"B_dir": 9.0}}, "intensity": 0.5, "intensity_range": [0.25, 1.5]},
        "x_top": None,
        **changes,
    }


def one_layer(name: str, layer: int, index: int, strength: float = 4.0, *, rung: int = 2) -> dict[str, Any]:
    """A circuit of one feature at one layer."""
    return circuit(
        name,
        saes=[{"layer": layer}],
        members=[{"layer": layer, "feature": member(index, strength)}],
        edges=[
            {"up": {"layer": layer, "feature_idx": index}, "down": {"layer": layer, "feature_idx": index}, "rung": rung}
        ],
        budget={"intensity": 1.0},
    )


def raw(document: Any) -> bytes:
    """The document as it arrives."""
    return json.dumps(document, ensure_ascii=False).encode()
