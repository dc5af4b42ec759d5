"""SAEs small enough to work out by hand, attached to a made-up residual stream of width 4.

Feature i adds 1 + i // 4 to coordinate i % 4, times its strength: feature 0 is [1, 0, 0, 0], feature 5 is [0, 2, 0, 0].
"""

from __future__ import annotations

from typing import Any

import torch

from engine.events import Event, EventBus, SteeringUpdated
from engine.saes.attachment import Attachment
from engine.saes.config import Architecture, HookKind, SaeConfig, SourceFormat
from engine.saes.sae import Sae
from engine.steering import transitions
from engine.steering.desk import SteeringDesk
from engine.steering.live import ServingCircuit, ServingProfile
from engine.steering.plan import ResidualSpec

WIDTH = 4
FEATURES = 48


def make_sae(*, features: int = FEATURES, width: int = WIDTH, layer: int = 0, scale: float = 1.0) -> Sae:
    decoder = torch.zeros(features, width)
    for index in range(features):
        decoder[index, index % width] = scale * (1 + index // width)
    config = SaeConfig(
        architecture=Architecture.STANDARD,
        d_in=width,
        d_sae=features,
        source_format=SourceFormat.SAELENS,
        layer=layer,
        hook=HookKind.RESID_POST,
    )
    zeros = torch.zeros(features)
    return Sae(config, {"W_enc": decoder.T.contiguous(), "W_dec": decoder, "b_enc": zeros, "b_dec": torch.zeros(width)})


def attachment(sae_id: str, layer: int, **options: Any) -> Attachment:
    return Attachment(sae_id, layer, make_sae(layer=layer, **options), f"model.layers.{layer}", 1)


def stream(**changes: Any) -> ResidualSpec:
    values: dict[str, Any] = {
        "model_name": "tiny",
        "d_model": WIDTH,
        "n_layers": 12,
        "device": torch.device("cpu"),
        "dtype": torch.float32,
        "steer_first": False,
        "blocks_path": "model.layers",
    }
    return ResidualSpec(**{**values, **changes})


def make_desk(*places: tuple[str, int], events: EventBus | None = None, **changes: Any) -> SteeringDesk:
    """A desk with a model and SAEs at ``places``; its plan has the number 1 when there are any, else 0."""
    desk = SteeringDesk(events or EventBus())
    desk.apply(transitions.open_for(stream(**changes)))
    desk.apply(transitions.attach([attachment(sae_id, layer) for sae_id, layer in places]))
    return desk


def deltas(desk: SteeringDesk) -> dict[int, list[float]]:
    return {layer: delta.tolist() for layer, delta in desk.live_plan.deltas.items()}


def values(desk: SteeringDesk, place: tuple[str, int]) -> dict[int, float]:
    return dict(desk.state.entry(place).values)


def serving_profile(place: tuple[str, int] | None, authored: dict[int, float], **changes: Any) -> ServingProfile:
    fields: dict[str, Any] = {
        "profile_id": "prof_1",
        "name": "calm",
        "is_cluster": False,
        "place": place,
        "authored": authored,
        "intensity": 1.0,
    }
    return ServingProfile(**{**fields, **changes})


def serving_circuit(
    circuit_id: str, authored: dict[tuple[str, int], dict[int, float]], **changes: Any
) -> ServingCircuit:
    fields: dict[str, Any] = {"name": f"the {circuit_id}", "intensity": 1.0, "rung": 2}
    return ServingCircuit(circuit_id, authored=authored, **{**fields, **changes})


def heard(events: EventBus) -> list[Event]:
    """What is published from now on."""
    found: list[Event] = []
    events.subscribe(found.append)
    return found


def updates(found: list[Event]) -> list[SteeringUpdated]:
    return [each for each in found if isinstance(each, SteeringUpdated)]
