"""The fields by which an answer is sampled, made from their declaration; most are folded away under "More"."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QCheckBox, QPlainTextEdit, QWidget

from engine.errors import InvalidParameter
from engine.sampling import FIELDS, TOLD, Kind, Sampling, SamplingField, as_json, sentence
from ui.kit import theme
from ui.kit.basics import Button, column, inset_text, label, line, set_property
from ui.kit.chat_options import biases_text, parse_biases
from ui.kit.number_field import DecimalField, WholeField
from ui.kit.plain_text import as_letters
from ui.kit.scroll_page import reveal

MOST_WHOLE = 1_000_000
"""Of a whole number without a bound of its own."""
LEAST_DIGITS, MOST_DIGITS = 2, 4
NUMBER_WIDTH = 84
BIASES_HEIGHT = 64


def title(setting: SamplingField) -> str:
    """What a setting's field is called."""
    return setting.words[:1].upper() + setting.words[1:]


class ShortDecimal(DecimalField):
    """A number that shows two digits behind the point, and up to four where it has them."""

    def __init__(self) -> None:
        super().__init__()
        self.setDecimals(MOST_DIGITS)

    def textFromValue(self, value: float) -> str:
        """As few digits as say it."""
        whole, _, digits = f"{value:.{MOST_DIGITS}f}".partition(".")
        return f"{whole}.{digits[:LEAST_DIGITS]}{digits[LEAST_DIGITS:].rstrip('0')}"


Control = ShortDecimal | WholeField | QCheckBox | QPlainTextEdit


def _control(setting: SamplingField) -> Control:
    made: Control
    match setting.kind:
        case Kind.NUMBER:
            made = ShortDecimal()
            # The least number a field can hold stands for one that is only excluded.
            made.setRange((setting.low or 0.0) + (0.01 if setting.above else 0.0), setting.high or 0.0)
            made.setSingleStep(setting.step)
        case Kind.SWITCH:
            made = QCheckBox(title(setting))
        case Kind.BIASES:
            made = QPlainTextEdit()
            made.setObjectName("field")
            made.setPlaceholderText("198: -100, one token id and its bias to a line")
            made.setTabChangesFocus(True)
            made.setFixedHeight(BIASES_HEIGHT)
        case _:
            made = WholeField()
            made.setRange(int(setting.low or 0), MOST_WHOLE if setting.high is None else int(setting.high))
            made.setSingleStep(int(setting.step))
    if isinstance(made, ShortDecimal | WholeField):
        inset_text(made)
    made.setAccessibleName(title(setting))
    made.setToolTip(as_letters(setting.hint))
    return made


class SamplingFields(QWidget):
    """All of :class:`Sampling` but the seed: what a person sets wins, one by one, over what holds otherwise.

    Args:
        base: What holds where a person has set nothing.
        apart: Settings whose control the page lays out itself; the others are folded away here.
    """

    changed = Signal()

    def __init__(self, base: Sampling, apart: Collection[str]) -> None:
        super().__init__()
        self._base = base
        self._apart = frozenset(apart)
        self._chosen: dict[str, Any] = {}
        self.controls = {each.name: _control(each) for each in FIELDS if each.kind is not Kind.SEED}
        for name, control in self.controls.items():
            self._listen(name, control)
        self.more = Button("More", "plain", "plus", self.toggle)
        self.more.setAccessibleName("More sampling settings")
        self.mine = label("", "caption", wrap=True)
        self.bias_error = label("", "bad", wrap=True)
        self.reset = Button("Reset all", "text", "undo", self.forget)
        self.reset.setToolTip("Take back what you set")
        self.panel = QWidget()
        self._build()
        self._show()

    def number(self, name: str) -> ShortDecimal:
        """The control of a number, for a page that lays it out itself."""
        control = self.controls[name]
        if not isinstance(control, ShortDecimal):
            raise TypeError(f"{name} is no number")
        return control

    # --- values -----------------------------------------------------------------------------------------------------

    @property
    def chosen(self) -> Mapping[str, Any]:
        """What a person has set and can be read, by name, as JSON has it."""
        given = self._chosen.items()
        return {name: as_json(value) for name, value in given if not isinstance(value, InvalidParameter)}

    def sampling(self, **own: Any) -> Sampling:
        """What holds now, with ``own``. Raises :class:`InvalidParameter` for biases that cannot be read."""
        biases = self._chosen.get("logit_bias")
        if isinstance(biases, InvalidParameter):
            raise biases
        return replace(self._base, **self._chosen, **own)

    def set_base(self, base: Sampling) -> None:
        """Another model: what holds where a person has set nothing."""
        self._base = base
        self._show()

    def set_chosen(self, values: Mapping[str, Any]) -> None:
        """Take what a person had set before; tells nobody."""
        self._chosen = {name: value for name, value in values.items() if name in self.controls}
        self._show()

    def forget(self) -> None:
        """Nothing is set by the person any more."""
        self.set_chosen({})
        self.changed.emit()

    # --- what is seen -----------------------------------------------------------------------------------------------

    def toggle(self) -> None:
        """Open or close what is folded away."""
        opens = self.panel.isHidden()
        self.panel.setVisible(opens)
        self.more.setText(f" {'Less' if opens else 'More'}")
        self.more.setAccessibleName(f"{'Less' if opens else 'More'} sampling settings")
        self.more.set_icon("minus" if opens else "plus")
        if opens:
            reveal(self.panel)

    def _show(self) -> None:
        """Show what holds; of what cannot be read, what was typed stays."""
        for name, control in self.controls.items():
            value = self._chosen.get(name, getattr(self._base, name))
            with QSignalBlocker(control):
                match control:
                    case QCheckBox():
                        control.setChecked(bool(value))
                    case QPlainTextEdit():
                        if isinstance(value, Mapping):
                            control.setPlainText(biases_text(value))
                    case WholeField():
                        control.setValue(min(int(value), control.maximum()))
                    case ShortDecimal():
                        control.setValue(value)
        self._tell()

    def _tell(self) -> None:
        wrong = self._chosen.get("logit_bias")
        unreadable = isinstance(wrong, InvalidParameter)
        self.bias_error.setText(wrong.message if isinstance(wrong, InvalidParameter) else "")
        self.bias_error.setVisible(unreadable)
        set_property(self.controls["logit_bias"], "state", "bad" if unreadable else "")
        words = sentence({name: value for name, value in self.chosen.items() if name not in self._apart})
        self.mine.setText(f"Set by you: {', '.join(words)}." if words else "")
        self.mine.setVisible(bool(words))
        self.reset.setVisible(bool(self._chosen))

    def _listen(self, name: str, control: Control) -> None:
        match control:
            case QCheckBox():
                control.toggled.connect(lambda on: self._take(name, on))
            case QPlainTextEdit():
                control.textChanged.connect(lambda: self._take_biases(name, control.toPlainText()))
            case WholeField() | ShortDecimal():
                control.valueChanged.connect(lambda value: self._take(name, value))

    def _take_biases(self, name: str, text: str) -> None:
        try:
            self._take(name, parse_biases(text))
        except InvalidParameter as error:
            self._take(name, error)

    def _take(self, name: str, value: Any) -> None:
        if isinstance(value, bool | Mapping) and value == getattr(self._base, name):
            # Switched back, or emptied: nothing is set.
            self._chosen.pop(name, None)
        else:
            self._chosen[name] = round(value, MOST_DIGITS) if isinstance(value, float) else value
        self._tell()
        self.changed.emit()

    def _build(self) -> None:
        inside = column(spacing=theme.XS, margins=(0, theme.S, 0, 0))
        for setting in TOLD:
            if setting.name in self._apart:
                continue
            control = self.controls[setting.name]
            match control:
                case QCheckBox():
                    inside.addWidget(control)
                case QPlainTextEdit():
                    inside.addWidget(label(title(setting), "strong"))
                    inside.addWidget(control)
                    inside.addWidget(self.bias_error)
                case _:
                    control.setFixedWidth(NUMBER_WIDTH)
                    inside.addLayout(line(label(title(setting), "strong"), None, control))
            inside.addWidget(label(setting.hint, "caption", wrap=True))
            inside.addSpacing(theme.S)
        self.panel.setLayout(inside)
        self.panel.hide()
        outer = column(spacing=theme.XS)
        outer.addLayout(line(self.more, None, self.reset))
        outer.addWidget(self.mine)
        outer.addWidget(self.panel)
        self.setLayout(outer)
