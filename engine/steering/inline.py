"""Inline steering: a request's own ``steering`` object, read before a model is loaded and aimed once SAEs are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.documents.binding import AttachedSae
from engine.documents.fields import as_number
from engine.errors import InvalidParameter, SaeNotAttached, described, shortened
from engine.steering.strengths import SteeredSet
from engine.steering.targets import listed, pairs, require_indices

PARAM = "steering"
_KEYS = ("sae_id", "features")
_FEATURE_KEYS = ("index", "strength")


@dataclass(frozen=True)
class InlineSteering:
    """A valid ``steering`` object: exactly these features. No features at all means explicitly unsteered."""

    sae_id: str | None
    features: tuple[tuple[int, float], ...]

    @property
    def is_unsteered(self) -> bool:
        """Whether the request asks for no steering; that needs no SAE."""
        return not self.features


def check_combination(*, steering: object, profile: object, steering_intensity: object) -> None:
    """Refuses ``steering`` beside ``profile`` or ``steering_intensity``, naming each that is there; None is absent."""
    if steering is None:
        return
    others = {"profile": profile, "steering_intensity": steering_intensity}
    present = [name for name, value in others.items() if value is not None]
    if present:
        names = " and ".join(f"'{name}'" for name in present)
        raise InvalidParameter(
            f"'steering' cannot be combined with {names}: it is the whole set already.",
            param=PARAM,
            remedy=f"Send either 'steering' or {names}.",
        )


def parse_inline(value: object) -> InlineSteering | None:
    """The ``steering`` field of a request; None when it is absent or null.

    Raises :class:`InvalidParameter` with the path of the offending part: unknown keys, wrong types, booleans, NaN,
    infinities, a feature named twice, ``sae_id`` beside an empty list.
    """
    if value is None:
        return None
    body = _object(value, PARAM, _KEYS)
    sae_id = body.get("sae_id")
    if sae_id is not None and (not isinstance(sae_id, str) or not sae_id):
        raise _invalid("steering.sae_id", f"expected the id of an SAE; received {described(sae_id)}")
    features = body.get("features")
    if not isinstance(features, list):
        raise _invalid("steering.features", f"expected a list of {{index, strength}}; received {described(features)}")
    if not features and sae_id is not None:
        raise _invalid("steering.sae_id", "an empty list of features is unsteered and names no SAE")
    found: dict[int, float] = {}
    for position, each in enumerate(features):
        index, strength = _feature(each, f"steering.features.{position}")
        if index in found:
            raise _invalid(f"steering.features.{position}.index", f"feature {index} is named twice")
        found[index] = strength
    return InlineSteering(sae_id, tuple(sorted(found.items())))


def aim(inline: InlineSteering, attached: Sequence[AttachedSae]) -> SteeredSet | None:
    """What ``inline`` adds and where: strengths beyond ±200 clamped and counted. None when it asks for no steering.

    Raises :class:`SaeNotAttached`, :class:`InvalidParameter` (several SAEs would do; all are listed) and
    :class:`InvalidFeatureIndex`.
    """
    if inline.is_unsteered:
        return None
    sae = _target(inline, attached)
    require_indices([index for index, _ in inline.features], sae, what="the request", param="steering.features")
    return SteeredSet.of(sae.sae_id, sae.layer, dict(inline.features))


def _target(inline: InlineSteering, attached: Sequence[AttachedSae]) -> AttachedSae:
    if not attached:
        raise SaeNotAttached(
            "The request carries steering and no SAE is attached.",
            param=PARAM,
            details={"attached": []},
            remedy="Attach an SAE first, or send an empty list of features to ask for no steering.",
        )
    fitting = [sae for sae in attached if inline.sae_id in (None, sae.sae_id)]
    details = {"attached": pairs(attached)}
    if not fitting:
        raise SaeNotAttached(
            f"The SAE {shortened(inline.sae_id or '')} is not attached. Attached: {listed(attached)}.",
            param="steering.sae_id",
            details=details,
            remedy="Attach it, or name one that is attached.",
        )
    if len(fitting) == 1:
        return fitting[0]
    if inline.sae_id is None:
        message = f"Several SAEs are attached ({listed(fitting)}); 'steering.sae_id' must name one."
        remedy = "Name one with 'steering.sae_id'."
    else:
        message = f"The SAE '{inline.sae_id}' is attached at several layers ({listed(fitting)}): no one place is named."
        remedy = "Detach it from all layers but one."
    raise InvalidParameter(message, param="steering.sae_id", details=details, remedy=remedy)


def _feature(value: object, path: str) -> tuple[int, float]:
    body = _object(value, path, _FEATURE_KEYS)
    index = body.get("index")
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise _invalid(f"{path}.index", f"expected a whole number, 0 or more; received {described(index)}")
    strength = as_number(body.get("strength"))
    if strength is None:
        raise _invalid(f"{path}.strength", f"expected a finite number; received {described(body.get('strength'))}")
    return index, strength


def _object(value: object, path: str, keys: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        expected = " and ".join(repr(key) for key in keys)
        raise _invalid(path, f"expected an object with {expected}; received {described(value)}")
    for key in value:
        if key not in keys:
            raise _invalid(f"{path}.{key}", f"not a field of {path}, which has {' and '.join(keys)}")
    return value


def _invalid(param: str, message: str) -> InvalidParameter:
    return InvalidParameter(f"Invalid value for '{param}': {message}.", param=param)
