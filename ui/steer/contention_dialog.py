"""Two circuits want one layer: who holds it, what is known of the danger, and the choices there are. No others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from PySide6.QtWidgets import QDialog, QWidget

from engine.counting import plural
from engine.public.steering import MEASURED_HAZARD, CircuitLayerContention
from ui.kit import theme
from ui.kit.basics import Button, column, label, line, rule

WIDTH = 560
NAME_LIMIT = 32
CONCURRENT = "CIRCUIT_ALLOW_CONCURRENT"


class ContentionChoice(Enum):
    """What a person decided."""

    CANCEL = "cancel"
    DEACTIVATE = "deactivate"
    COMPOSE = "compose"


class ContentionDialog(QDialog):
    """Shows a refusal; :attr:`choice` is what was chosen once it is finished."""

    def __init__(self, error: CircuitLayerContention, stopped: Sequence[str], parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("A layer is taken")
        details = error.details
        self.choice = ContentionChoice.CANCEL
        self.incumbents: tuple[tuple[str, str], ...] = tuple(
            (str(each["id"]), str(each["name"])) for each in details.get("all_incumbents", [])
        )
        self.words: list[str] = [error.message, *_facts(details)]
        if stopped:
            self.words.append(f"Stopped already in this attempt: {', '.join(stopped)}.")
        layout = column(spacing=theme.M, margins=(theme.L, theme.L, theme.L, theme.L))
        layout.addWidget(label(error.message, "strong", wrap=True, selectable=True))
        for each in self.words[1:]:
            layout.addWidget(label(each, "muted", wrap=True, selectable=True))
        hazard = details.get("measured_hazard")
        if isinstance(hazard, Mapping) and details.get("contended_layers"):
            layout.addWidget(rule())
            layout.addWidget(label("What is known of steering two layers at once", "group"))
            told = hazard_lines(hazard)
            self.words += told
            for each in told:
                layout.addWidget(label(each, "small", wrap=True, selectable=True))
        overridable = details.get("overridable") is True
        if not overridable:
            why = _why_not(details)
            self.words.append(why)
            layout.addWidget(rule())
            layout.addWidget(label(why, "muted", wrap=True))
        else:
            self.words.append("While layers are shared no evidence rung is claimed for an answer.")
            layout.addWidget(label(self.words[-1], "muted", wrap=True))
        names = (
            f"“{_short(self.incumbents[0][1])}”" if len(self.incumbents) == 1 else f"all {len(self.incumbents)} of them"
        )
        self.cancel_button = Button("Cancel", "plain", on_click=self.reject)
        self.deactivate_button = Button(f"Deactivate {names}", "plain", on_click=self._deactivate)
        self.compose_button = Button("Compose anyway", "plain", on_click=self._compose) if overridable else None
        buttons = line(None, self.cancel_button, self.deactivate_button)
        if self.compose_button is not None:
            buttons.addWidget(self.compose_button)
        layout.addSpacing(theme.XS)
        layout.addLayout(buttons)
        self.setLayout(layout)
        # Wrapped words know their height only for a width.
        self.resize(WIDTH, layout.totalHeightForWidth(WIDTH))
        self.setMinimumSize(WIDTH, layout.totalHeightForWidth(WIDTH))
        self.cancel_button.setDefault(True)
        self.cancel_button.setFocus()

    def _deactivate(self) -> None:
        self.choice = ContentionChoice.DEACTIVATE
        self.accept()

    def _compose(self) -> None:
        self.choice = ContentionChoice.COMPOSE
        self.accept()


def _short(name: str) -> str:
    return name if len(name) <= NAME_LIMIT else f"{name[: NAME_LIMIT - 1]}…"


def hazard_lines(hazard: Mapping[str, Any]) -> list[str]:
    """The published measurement with its caveat."""
    one, two = hazard.get("one_layer_at_strength_5"), hazard.get("two_layers_at_strength_5")
    found = [f"One layer at strength 5: {one}. Two layers at strength 5: {two}."]
    found.append(f"Source: {hazard.get('source')}. {hazard.get('note', MEASURED_HAZARD['note'])}")
    return found


def _facts(details: Mapping[str, Any]) -> list[str]:
    found = []
    layers = details.get("contended_layers", [])
    if layers:
        found.append(f"{plural(len(layers), 'Layer')} in question: {', '.join(map(str, layers))}.")
    names = [str(each["name"]) for each in details.get("all_incumbents", [])]
    if names:
        found.append(f"Held by: {', '.join(names)}.")
    keys = details.get("colliding_keys", [])
    if keys:
        listed = ", ".join(f"#{each['feature_idx']} on layer {each['layer']}" for each in keys[:10])
        more = f" and {len(keys) - 10} more" if len(keys) > 10 else ""
        found.append(f"Both steer the same features: {listed}{more}.")
    return found


def _why_not(details: Mapping[str, Any]) -> str:
    if details.get("colliding_keys"):
        return "They cannot be composed: two circuits cannot steer one feature."
    if details.get("reason") == "slice_fallback_is_single_active":
        return "They cannot be composed: one slice serves at a time."
    return f"They cannot be composed: the setting {CONCURRENT} is off, so each layer has one circuit."
