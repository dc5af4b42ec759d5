"""Whether an SAE fits a model and a layer: pure judgement, before anything is loaded. Knows no torch."""

from __future__ import annotations

from dataclasses import dataclass

from engine.saes.config import SaeConfig
from engine.saes.errors import SaeIncompatible


@dataclass(frozen=True)
class Fit:
    """What speaks against an attachment (``errors``) and what the person should know (``warnings``)."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def require(self, sae_id: str) -> None:
        """Raise :class:`SaeIncompatible` with both lists in its details when there are errors."""
        if self.errors:
            raise SaeIncompatible(
                f"The SAE {sae_id!r} cannot be attached here. {' '.join(self.errors)}",
                details={"errors": list(self.errors), "warnings": list(self.warnings)},
                remedy="Choose an SAE made for this model, or load the model it was made for.",
            )


def judge_fit(config: SaeConfig, *, layer: int, d_model: int, n_layers: int, model_name: str) -> Fit:
    """How ``config`` fits block ``layer`` of a model of width ``d_model`` with ``n_layers`` blocks.

    Errors: what it reads is no block's output, another width, a layer the model has not. Warnings: trained for another
    layer, or for a model whose name neither contains this one's nor is contained in it.
    """
    errors, warnings = [], []
    if config.steering_refusal is not None:
        errors.append(config.steering_refusal)
    if config.d_in != d_model:
        errors.append(f"It reads vectors of width {config.d_in}; this model's are {d_model} wide.")
    if not 0 <= layer < n_layers:
        errors.append(f"There is no layer {layer}: this model has layers 0 to {n_layers - 1}.")
    if config.layer is not None and config.layer != layer:
        warnings.append(f"It was trained for layer {config.layer}, not {layer}.")
    if config.model_name and not _same_model(config.model_name, model_name):
        warnings.append(f"It was trained for {config.model_name}, not {model_name}.")
    return Fit(tuple(errors), tuple(warnings))


def _same_model(trained: str, loaded: str) -> bool:
    first, second = (name.lower().rpartition("/")[2] for name in (trained, loaded))
    return first in second or second in first
