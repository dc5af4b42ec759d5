"""Refusals of steering: typed values, activation gates, layer claims.

The management API answers :class:`UnvalidatedCircuit`, :class:`CircuitLayerContention`, :class:`NoActiveCluster`,
:class:`NoActiveCircuit` and :class:`AmbiguousActiveCircuit` with status 200 and ``success: false``.
"""

from __future__ import annotations

from engine.errors import MillmError


class SteeringInvalid(MillmError):
    """A strength, an intensity or a set of features that may not be applied as it stands."""

    code = "validation_error"


class UnvalidatedCircuit(MillmError):
    """The circuit is below rung 2 and nobody has said that this is known."""

    code = "unvalidated_circuit"


class CircuitLayerContention(MillmError):
    """Another circuit holds a layer this one needs; ``details['overridable']`` says whether they may share it."""

    code = "circuit_layer_contention"


class SaeSetIncomplete(MillmError):
    """The attached SAEs cannot serve every member of a circuit; ``details['offenders']`` lists those they cannot."""

    code = "sae_set_incomplete"


class NoActiveCluster(MillmError):
    """The active cluster was addressed and none is active."""

    code = "no_active_cluster"


class NoActiveCircuit(MillmError):
    """The active circuit was addressed and none is serving."""

    code = "no_active_circuit"


class AmbiguousActiveCircuit(MillmError):
    """The active circuit was addressed and several are serving; ``details['active_circuits']`` lists them."""

    code = "ambiguous_active_circuit"
