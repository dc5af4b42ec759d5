"""What the dial under a chat may act on: the live steering, or a document of the library with a dial. No widgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.engine import Engine
from engine.public.documents import GREATEST_INTENSITY, is_validated
from engine.public.library import ProfileKind
from engine.public.steering import Advice, AttachmentKey, Snapshot, circuit_steers

NO_ADVICE = Advice()


class TargetKind(StrEnum):
    """What a target is."""

    NONE = "none"
    HAND = "hand"
    CLUSTER = "cluster"
    PROFILE = "profile"
    CIRCUIT = "circuit"


@dataclass(frozen=True)
class Target:
    """Something with a dial.

    Attributes:
        key: Id of the row; empty for hand-set values and for nothing.
        value: Where its dial stands.
        top: The dial's end; ``default`` and ``advice`` are marks on it.
        rung: A circuit's evidence rung by its document.
        only_persistence: Whether every one of its edges is persistence.
        wants: Ids of the SAEs its document names.
        base: Hand-set values at λ 1, by place.
    """

    kind: TargetKind
    key: str = ""
    name: str = ""
    value: float = 1.0
    top: float = GREATEST_INTENSITY
    default: float | None = None
    advice: Advice = NO_ADVICE
    rung: int | None = None
    wants: tuple[str, ...] = ()
    base: Mapping[AttachmentKey, Mapping[int, float]] = field(default_factory=dict)
    only_persistence: bool = False

    @property
    def gated(self) -> bool:
        """Whether the engine asks for an acknowledgement first."""
        return self.rung is not None and not is_validated(self.rung)


NOTHING = Target(TargetKind.NONE)


@dataclass(frozen=True)
class Targets:
    """What there is to choose from, by kind, each by name."""

    clusters: tuple[Target, ...] = ()
    profiles: tuple[Target, ...] = ()
    circuits: tuple[Target, ...] = ()

    def find(self, kind: TargetKind, key: str) -> Target | None:
        """The target of that kind and id."""
        everything = {
            TargetKind.CLUSTER: self.clusters,
            TargetKind.PROFILE: self.profiles,
            TargetKind.CIRCUIT: self.circuits,
        }
        return next((each for each in everything.get(kind, ()) if each.key == key), None)


def read_shelf(engine: Engine) -> Targets:
    """Everything in the library that has a dial. Reads the database; for a background thread."""
    clusters = []
    for cluster in engine.clusters.views():
        if cluster.slice_of is not None:
            continue
        record, document = cluster.summary.record, cluster.document
        reference = None if document is None else document.reference.sae_id
        clusters.append(
            Target(
                TargetKind.CLUSTER,
                record.id,
                record.name,
                record.intensity,
                cluster.envelope.ceiling,
                None if document is None else document.intensity,
                cluster.advice,
                wants=() if reference is None else (reference,),
            )
        )
    profiles = [
        Target(
            TargetKind.PROFILE,
            each.record.id,
            each.record.name,
            each.record.intensity,
            default=1.0,
            wants=() if each.record.sae_id is None else (each.record.sae_id,),
        )
        for each in engine.profiles.list(ProfileKind.MANUAL).profiles
    ]
    circuits = []
    for circuit in engine.circuits.views():
        row, written = circuit.summary.record, circuit.document
        if written is None:
            continue
        own = row.intensity if row.intensity is not None else written.intensity
        circuits.append(
            Target(
                TargetKind.CIRCUIT,
                row.id,
                row.name,
                1.0 if own is None else own,
                circuit.envelope.ceiling,
                written.intensity,
                circuit.advice,
                row.rung,
                tuple(each.reference.sae_id for each in circuit.saes if each.reference.sae_id is not None),
                only_persistence=written.only_persistence,
            )
        )
    return Targets(
        tuple(clusters), tuple(profiles), tuple(sorted(circuits, key=lambda each: (each.name.casefold(), each.key)))
    )


def live_target(now: Snapshot, shelf: Targets, hand: Target | None) -> Target | None:
    """What a dial over the live steering acts on, in the order a request's dial has: the one serving circuit, else the
    active profile or cluster, else the hand-set values.

    ``hand`` is what the hand-set values were at λ 1, while they still are a multiple of that. None where several
    circuits serve, so that one dial cannot be all of theirs.
    """
    state = now.state
    serving = [one for one in state.circuits if circuit_steers(state, one) or one.intensity == 0]
    if len(serving) > 1:
        return None
    if serving:
        return shelf.find(TargetKind.CIRCUIT, serving[0].circuit_id) or NOTHING
    if state.profile is not None and state.profile.place is not None:
        kind = TargetKind.CLUSTER if state.profile.is_cluster else TargetKind.PROFILE
        found = shelf.find(kind, state.profile.profile_id)
        if found is not None:
            return found
    return _by_hand(now, hand)


def _by_hand(now: Snapshot, known: Target | None) -> Target:
    values = {place: dict(entry.values) for place, entry in now.state.entries.items() if entry.enabled and entry.values}
    if not values:
        return NOTHING
    if known is not None and _scaled(known.base, known.value) == values:
        return known
    return Target(TargetKind.HAND, name="values set by hand", default=1.0, base=values)


def _scaled(base: Mapping[AttachmentKey, Mapping[int, float]], factor: float) -> dict[AttachmentKey, dict[int, float]]:
    return {place: scaled(values, factor) for place, values in base.items()}


def scaled(values: Mapping[int, float], factor: float) -> dict[int, float]:
    """Hand-set values times λ, held inside what may be applied, without needless digits."""
    return {index: round(max(-200.0, min(200.0, value * factor)), 4) for index, value in values.items()}


def in_force(now: Snapshot, target: Target) -> bool:
    """Whether a document is the active one."""
    state = now.state
    if target.kind is TargetKind.CIRCUIT:
        return any(one.circuit_id == target.key for one in state.circuits)
    return state.profile is not None and state.profile.profile_id == target.key


def apply_value(engine: Engine, target: Target, value: float, *, acknowledged: bool) -> tuple[str, ...]:
    """Turn the dial of what is in force; returns warnings. Raises what the action raises. For a background thread."""
    match target.kind:
        case TargetKind.CLUSTER:
            engine.clusters.set_intensity(target.key, value)
        case TargetKind.PROFILE:
            engine.profiles.set_intensity(target.key, value)
        case TargetKind.CIRCUIT:
            dialled = engine.circuits.set_intensity(value, circuit_id=target.key, acknowledge_unvalidated=acknowledged)
            return dialled.warnings
        case TargetKind.HAND:
            engine.hand_steering.alone(lambda: _scale_hand(engine, target, value))
    return ()


def _scale_hand(engine: Engine, target: Target, value: float) -> None:
    with engine.desk.changes():
        for (sae_id, layer), values in target.base.items():
            engine.hand_steering.set_values(scaled(values, value), sae_id=sae_id, layer=layer)


def put_in_force(
    engine: Engine, target: Target, former: Target | None, value: float | None, *, acknowledged: bool
) -> Sequence[str]:
    """Make ``target`` what steers, in the place of ``former`` where that one was chosen here; returns warnings.

    ``value`` sets its dial first. Raises what the actions raise; ``former`` then steers no more. For a background
    thread.
    """
    if former is not None and former.key != target.key and in_force(engine.desk.now, former):
        if former.kind is TargetKind.CIRCUIT:
            engine.circuits.deactivate(former.key)
        else:
            engine.profiles.deactivate(former.key)
    if target.kind is TargetKind.CIRCUIT:
        if in_force(engine.desk.now, target) and value is None:
            return ()
        done = engine.circuits.activate(target.key, acknowledge_unvalidated=acknowledged, intensity=value)
        return done.warnings
    if value is not None:
        engine.profiles.set_intensity(target.key, value, reapply=False)
    if in_force(engine.desk.now, target) and value is None:
        return ()
    return engine.profiles.activate(target.key).warnings


def sets_that_serve(engine: Engine, target: Target) -> tuple[str, ...]:
    """Names of saved sets that hold every SAE ``target`` names. For a background thread."""
    wanted = set(target.wants)
    if not wanted:
        return ()
    return tuple(
        each.name for each in engine.library.attach_sets.list() if wanted <= {item.sae_id for item in each.items}
    )
