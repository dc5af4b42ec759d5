"""Checks of the live monitor's arguments: each returns or passes what is allowed, and raises what is not."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import InvalidParameter
from engine.saes.attachment import Attachment
from engine.saes.errors import InvalidFeatureIndex


def check_whole(name: str, value: object, low: int, high: int) -> None:
    """A whole number from ``low`` to ``high``."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidParameter(
            f"Invalid value for '{name}': {value!r}; expected a whole number from {low} to {high}.", param=name
        )


def check_bool(name: str, value: object) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise InvalidParameter(f"Invalid value for '{name}': {value!r}; expected true or false.", param=name)


def feature_list(features: Sequence[int] | None) -> tuple[int, ...] | None:
    """Feature indices in their order, each once; None means all."""
    if features is None:
        return None
    whole = isinstance(features, list | tuple) and all(type(index) is int for index in features)
    if not whole or not features:
        raise InvalidParameter(
            "'features' must be a list of at least one whole number.",
            param="features",
            remedy="Name at least one feature, or leave it out for all.",
        )
    return tuple(dict.fromkeys(features))


def check_features(features: Sequence[int], attachments: Sequence[Attachment]) -> None:
    """Every one of ``attachments`` has every one of ``features``."""
    for each in attachments:
        for index in features:
            if not 0 <= index < each.sae.config.d_sae:
                raise _no_feature(index, each)


def check_features_of_any(features: Sequence[int], attachments: Sequence[Attachment]) -> None:
    """Every one of ``features`` is in one of ``attachments`` at least."""
    if attachments:
        check_features(features, [max(attachments, key=lambda each: each.sae.config.d_sae)])


def _no_feature(index: int, attachment: Attachment) -> InvalidFeatureIndex:
    d_sae = attachment.sae.config.d_sae
    return InvalidFeatureIndex(
        f"The SAE '{attachment.sae_id}' at layer {attachment.layer} has no feature {index}; "
        f"it has {d_sae}, numbered from 0.",
        param="features",
        details={"feature_idx": index, "d_sae": d_sae, "sae_id": attachment.sae_id, "layer": attachment.layer},
        remedy=f"Name features from 0 to {d_sae - 1}, or name the SAE they belong to.",
    )
