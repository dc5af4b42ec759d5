"""Finding and reading rows for the actions: what is missing, or can no longer be read, is a typed error."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from engine.documents.circuit import CircuitDocument, read_circuit
from engine.documents.errors import ClusterNotFound, DocumentRefused
from engine.documents.fields import MAX_INDEX, as_number, as_whole
from engine.errors import InvalidParameter
from engine.library.circuits import CircuitRepository
from engine.library.errors import CircuitNotFound, ProfileNotFound
from engine.library.profiles import ProfileRepository
from engine.library.records import CircuitRecord, ProfileKind, ProfileRecord
from engine.steering.errors import SteeringInvalid

log = logging.getLogger(__name__)


def require_profile(profiles: ProfileRepository, profile_id: str) -> ProfileRecord:
    """The profile or cluster of that id. Raises :class:`ProfileNotFound`."""
    record = profiles.get(profile_id)
    if record is None:
        raise ProfileNotFound(
            f"There is no profile with the id {profile_id[:100]!r}.",
            param="profile_id",
            details={"profile_id": profile_id[:100]},
            remedy="List the profiles to see their ids.",
        )
    return record


def require_cluster(profiles: ProfileRepository, cluster_id: str) -> ProfileRecord:
    """The cluster of that id. Raises :class:`ClusterNotFound`, also for a profile that is none."""
    record = profiles.get(cluster_id)
    if record is None or record.source_kind is not ProfileKind.CLUSTER:
        raise ClusterNotFound(
            f"There is no cluster with the id {cluster_id[:100]!r}.",
            param="profile_id",
            details={"profile_id": cluster_id[:100]},
            remedy="List the clusters to see their ids.",
        )
    return record


def require_circuit(circuits: CircuitRepository, circuit_id: str) -> CircuitRecord:
    """The circuit of that id. Raises :class:`CircuitNotFound`."""
    record = circuits.get(circuit_id)
    if record is None:
        raise CircuitNotFound(
            f"There is no circuit with the id {circuit_id[:100]!r}.",
            param="circuit_id",
            details={"circuit_id": circuit_id[:100]},
            remedy="List the circuits to see their ids.",
        )
    return record


def stored_circuit(record: CircuitRecord) -> CircuitDocument:
    """The document of a circuit's row. Raises :class:`SteeringInvalid` when it can no longer be read, and logs that."""
    try:
        return read_circuit(json.loads(record.definition))
    except (ValueError, DocumentRefused) as error:
        log.error("the stored document of circuit %s cannot be read: %s", record.id, error)
        errors = error.details.get("errors", []) if isinstance(error, DocumentRefused) else []
        raise SteeringInvalid(
            f"The stored document of the circuit {record.name!r} can no longer be read: {error}",
            details={"circuit_id": record.id, "errors": errors},
            remedy="Delete the circuit and import its document again.",
        ) from error


def checked_steering(value: object) -> dict[int, float]:
    """Strengths by feature index, as a profile stores them: at intensity 1, of any finite size.

    Raises :class:`SteeringInvalid` for what is no index from 0 with a finite number; booleans are no numbers.
    """
    if not isinstance(value, Mapping):
        raise SteeringInvalid("steering must be an object of feature indices and strengths.", param="steering")
    found: dict[int, float] = {}
    for key, strength in value.items():
        index = int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10 else key
        index, number = as_whole(index), as_number(strength)
        if index is None or not 0 <= index <= MAX_INDEX or number is None or index in found:
            raise SteeringInvalid(
                f"steering holds {str(key)[:40]!r}: {str(strength)[:40]!r}, which is no feature index from 0, named "
                "once, with a finite strength.",
                param=f"steering.{str(key)[:40]}",
                remedy='Write strengths as {"<feature index>": <number>}.',
            )
        found[index] = number + 0.0
    return found


def may_rename(on_conflict: str) -> bool:
    """Whether a taken name is to be changed (``rename``) or refused (``fail``). Raises :class:`InvalidParameter`."""
    if on_conflict not in ("rename", "fail"):
        raise InvalidParameter(
            f"Invalid value for 'on_conflict': expected 'rename' or 'fail', not {on_conflict[:40]!r}.",
            param="on_conflict",
        )
    return on_conflict == "rename"
