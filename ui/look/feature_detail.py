"""The panel about one feature: what is known of it, where it fired in this session, and how to try it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from engine.public.library import FeatureLabel
from engine.public.steering import GENTLE, STEERING_RANGE, UNMEASURED_STRENGTH
from ui.kit import theme
from ui.kit.basics import Button, Card, column, inset_text, label, line
from ui.kit.feature_picker import confidence_words, density_words, number_words
from ui.kit.number_field import DecimalField
from ui.kit.steering_text import strength
from ui.look.feature_facts import FeatureFacts, visible

SHOWN = 8
"""Tokens of this session that are listed."""
OTHERS = 3
"""Further labels of a feature that are listed."""


class FeatureDetail(Card):
    """Shows one feature; says what the person wants with signals."""

    try_wanted = Signal(int, float)
    """(feature, strength)."""
    colour_wanted = Signal(int)

    def __init__(self) -> None:
        super().__init__("Feature")
        self.facts: FeatureFacts | None = None
        self.hint = label("Choose a feature on the left to see what is known about it.", "muted", wrap=True)
        self.index = label("", "mono", selectable=True)
        self.title = label("", "strong", wrap=True, selectable=True)
        self.figures = label("", "small", wrap=True)
        self.tokens = label("", "small", wrap=True, selectable=True)
        self.others = label("", "small", wrap=True, selectable=True)
        self.multiple = DecimalField()
        self.multiple.setDecimals(2)
        self.multiple.setFixedWidth(168)
        self.multiple.setAccessibleName("How much is added")
        inset_text(self.multiple)
        self._measured: bool | None = None
        self.multiple.valueChanged.connect(lambda _value: self._show_strength())
        self.strength = label("", "small", wrap=True)
        self.try_button = Button("Add to steering", "primary", on_click=self._try)
        self.colour_button = Button("Colour text", "plain", on_click=self._colour)
        self.seen = label("", "small", wrap=True, selectable=True)
        self.seen.setTextFormat(Qt.TextFormat.RichText)
        self._body = QWidget()
        inside = column(spacing=theme.S)
        for part in (self.index, self.title, self.figures, self.tokens, self.others):
            inside.addWidget(part)
        inside.addSpacing(theme.XS)
        inside.addWidget(label("Try it", "group"))
        inside.addLayout(line(self.multiple, None))
        inside.addWidget(self.strength)
        inside.addLayout(line(self.try_button, self.colour_button, None))
        inside.addSpacing(theme.XS)
        self._seen_head = label("Seen this session", "group")
        inside.addWidget(self._seen_head)
        inside.addWidget(self.seen)
        self._body.setLayout(inside)
        self.body.addWidget(self.hint)
        self.body.addWidget(self._body)
        self.body.addStretch(1)
        self._body.hide()
        theme.current().changed.connect(self._redraw)

    def show_facts(self, facts: FeatureFacts | None) -> None:
        """Show a feature; None: none is chosen."""
        self.facts = facts
        if facts is not None:
            self._set_unit(facts.typical_norm is not None)
        self.hint.setVisible(facts is None)
        self._body.setVisible(facts is not None)
        if facts is not None:
            self._redraw()

    def _redraw(self) -> None:
        facts = self.facts
        if facts is None:
            return
        known = facts.label
        self.index.setText(f"#{facts.index} · layer {facts.layer}")
        self.title.setText(known.label if known is not None and known.label else "no label")
        self.figures.setText(_figures(facts, known))
        tokens = "  ".join(visible(token).strip() for token in known.top_tokens) if known is not None else ""
        _show(self.tokens, f"Fires most at: {tokens}" if tokens else "")
        others = known.extra.get("others", ()) if known is not None else ()
        named = [str(each) for each in others][:OTHERS] if isinstance(others, list | tuple) else []
        _show(self.others, f"Also called: {'; '.join(named)}" if named else "")
        lines = [
            f'<span style="color:{theme.current().colours.muted}">{seen.value:.3g}</span>&nbsp; '
            f"{_escaped(visible(seen.before[-48:]))}<b>{_escaped(visible(seen.token))}</b>"
            for seen in facts.seen[:SHOWN]
        ]
        self.seen.setText("<br>".join(lines))
        self.seen.setVisible(bool(lines))
        self._seen_head.setVisible(bool(lines))
        self._show_strength()

    def _set_unit(self, measured: bool) -> None:
        """Ask for multiples of the typical norm where it was measured, for a plain strength where it was not."""
        if measured == self._measured:
            return
        self._measured = measured
        most, step, first, unit = (
            (2.0, 0.05, GENTLE, " × typical norm")
            if measured
            else (STEERING_RANGE, 0.5, UNMEASURED_STRENGTH, " strength")
        )
        self.multiple.setRange(-most, most)
        self.multiple.setSingleStep(step)
        self.multiple.setSuffix(unit)
        self.multiple.setValue(first)

    def _wanted(self) -> float | None:
        facts = self.facts
        if facts is None:
            return None
        return facts.strength(self.multiple.value()) if self._measured else round(self.multiple.value(), 2)

    def _show_strength(self) -> None:
        wanted, facts = self._wanted(), self.facts
        if wanted is None or facts is None:
            return
        if facts.typical_norm is None:
            words = "How much that is beside what is there is not known: the SAE was not measured at this layer."
        else:
            words = f"A strength of {strength(wanted)} at this layer."
        if abs(wanted) > STEERING_RANGE:
            words += f" Strengths end at ±{STEERING_RANGE:g}."
        self.strength.setText(words)
        self.try_button.setEnabled(wanted != 0 and abs(wanted) <= STEERING_RANGE)

    def _try(self) -> None:
        wanted = self._wanted()
        if self.facts is not None and wanted is not None:
            self.try_wanted.emit(self.facts.index, wanted)

    def _colour(self) -> None:
        if self.facts is not None:
            self.colour_wanted.emit(self.facts.index)


def _figures(facts: FeatureFacts, known: FeatureLabel | None) -> str:
    parts = []
    if known is not None:
        if known.density is not None:
            parts.append(f"fires at {density_words(known.density)} of tokens")
        if known.max_activation is not None:
            parts.append(f"up to {number_words(known.max_activation)}")
        if known.confidence is not None:
            parts.append(f"confidence {confidence_words(known.confidence)}")
        if known.source:
            parts.append(f"label from {known.source}")
    parts.append(f"decoder row {number_words(facts.row_norm)} long")
    if facts.typical_norm is not None:
        parts.append(f"typical norm {number_words(facts.typical_norm)}")
    return " · ".join(parts)


def _show(part: QWidget, words: str) -> None:
    part.setText(words)  # type: ignore[attr-defined]
    part.setVisible(bool(words))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
