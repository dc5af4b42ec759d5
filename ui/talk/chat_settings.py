"""The panel beside a chat: system prompt, sampling, length, seed, and how full the context window is."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt, Signal, Slot
from PySide6.QtWidgets import (
    QFrame,
    QLineEdit,
    QPlainTextEdit,
    QProgressBar,
    QScrollArea,
    QWidget,
)

from engine.errors import InvalidParameter
from engine.sampling import BY_NAME, fitting, sentence
from ui.kit import theme
from ui.kit.basics import Button, Surface, column, inset_text, label, line, rule, set_property
from ui.kit.chat_options import CHAT_SAMPLING, ChatOptions, Suggested, parse_seed
from ui.kit.number_field import WholeField
from ui.kit.sampling_fields import SamplingFields
from ui.kit.steady import Slider
from ui.kit.text import count, counted

PANEL_WIDTH = 290


class ChatSettings(Surface):
    """Holds :class:`ChatOptions` as the person sets them."""

    changed = Signal()
    inspect = Signal()

    def __init__(self) -> None:
        super().__init__("pageBody")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground, False)
        self.system = QPlainTextEdit()
        self.system.setObjectName("field")
        self.system.setPlaceholderText("How the model should behave, for this conversation")
        self.system.setAccessibleName("System prompt")
        self.system.setTabChangesFocus(True)
        self.system.setFixedHeight(120)
        self.fields = SamplingFields(CHAT_SAMPLING, apart=("temperature",))
        self.temperature = self.fields.number("temperature")
        self.temperature.setFixedWidth(64)
        self.slider = Slider()
        self.slider.setRange(round(self.temperature.minimum() * 100), round(self.temperature.maximum() * 100))
        self.slider.setAccessibleName("Temperature")
        self.also = label("", "caption", wrap=True)
        self.also.hide()
        self._suggested = Suggested()
        self.length = WholeField()
        self.length.setRange(0, 1_000_000)
        self.length.setSpecialValueText("Automatic")
        self.length.setSuffix(" tokens")
        self.length.setSingleStep(64)
        self.length.setAccessibleName("Longest answer")
        self.seed = QLineEdit()
        self.seed.setPlaceholderText("Random")
        self.seed.setAccessibleName("Seed")
        self.seed_error = label("", "bad", wrap=True)
        self.seed_error.hide()
        self.usage = label("", "small", wrap=True)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.bar.setRange(0, 1000)
        self.inspect_button = Button("Show the exact prompt", "plain", "text", self.inspect.emit)
        inset_text(self.length)
        body = self._build()
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(body)
        outer = column(spacing=0)
        outer.addWidget(scroll)
        self.setLayout(outer)
        self.restore({})
        self.show_usage(None, None)
        self.slider.valueChanged.connect(lambda value: self.temperature.setValue(value / 100))
        self.fields.changed.connect(self._on_sampling)
        self.length.valueChanged.connect(lambda _value: self.changed.emit())
        self.system.textChanged.connect(self.changed.emit)
        self.seed.textChanged.connect(self._on_seed)

    def options(self) -> ChatOptions:
        """What is set now. Raises InvalidParameter for an unusable seed or bias."""
        return ChatOptions(
            system_prompt=self.system.toPlainText().strip(),
            max_tokens=self.length.value() or None,
            sampling=self.fields.sampling(seed=parse_seed(self.seed.text())),
        )

    def own(self) -> dict[str, object]:
        """What the person has set, to be kept between starts; ``temperature`` None, and what is left out, follows the
        model. Raises as :meth:`options` does.
        """
        options = self.options()
        return {
            "temperature": None,
            "max_tokens": options.max_tokens,
            "seed": options.sampling.seed,
            **self.fields.chosen,
        }

    def restore(self, own: object) -> None:
        """Show what :meth:`own` gave; what cannot be used follows the model."""
        kept = ChatOptions.from_json(own)
        self.length.setValue(kept.max_tokens or 0)
        self.seed.setText("" if kept.sampling.seed is None else str(kept.sampling.seed))
        self.fields.set_chosen(fitting(own))
        self._tell_suggested()

    def suggest(self, suggested: Suggested) -> None:
        """Another model, which reads best like this: used where the person has not said otherwise, and told."""
        self._suggested = suggested
        self.fields.set_base(replace(CHAT_SAMPLING, **suggested.values))
        self._tell_suggested()

    def _tell_suggested(self) -> None:
        self._show_slider()
        suggested, chosen = self._suggested, self.fields.chosen
        used = {name: value for name, value in suggested.values.items() if name not in chosen}
        told = []
        if words := sentence({name: f"{value:g}" for name, value in used.items() if value != BY_NAME[name].off}):
            told.append(f"Also used: {', '.join(words)}.")
        if suggested.temperature is not None and "temperature" in chosen:
            told.append(f"The model's own temperature is {suggested.temperature:g}.")
        if told or "temperature" in used:
            told.append(suggested.source)
        self.also.setText(" ".join(told))
        self.also.setVisible(bool(told))

    def set_system_prompt(self, text: str) -> None:
        """Show another conversation's system prompt."""
        if self.system.toPlainText() != text:
            self.system.setPlainText(text)

    def show_usage(self, prompt_tokens: int | None, window: int | None) -> None:
        """How many tokens the next prompt has, of how many; None where that is not known."""
        if prompt_tokens is None or window is None:
            self.usage.setText("Shown once a model is loaded." if window is None else "Nothing to send yet.")
            self.bar.setValue(0)
            return
        self.usage.setText(f"The prompt takes {count(prompt_tokens)} of {counted(window, 'token')}.")
        self.bar.setValue(min(1000, round(1000 * prompt_tokens / max(1, window))))

    def _build(self) -> QWidget:
        body = QWidget()
        body.setObjectName("scrollBody")
        layout = column(spacing=theme.S, margins=(theme.L, theme.M + 4, theme.L, theme.L))

        def group(head: str, hint: str, *widgets: QWidget) -> None:
            layout.addWidget(label(head, "strong"))
            for widget in widgets:
                layout.addWidget(widget)
            if hint:
                layout.addWidget(label(hint, "caption", wrap=True))
            layout.addSpacing(theme.S)

        dial = QWidget()
        dial.setLayout(line(self.slider, self.temperature, spacing=theme.M))
        group("System prompt", "", self.system)
        group("Temperature", BY_NAME["temperature"].hint, dial, self.also)
        group("Longest answer", "Automatic leaves it to the model and its window.", self.length)
        group("Seed", BY_NAME["seed"].hint, self.seed, self.seed_error)
        layout.addWidget(self.fields)
        layout.addSpacing(theme.S)
        layout.addWidget(rule())
        layout.addSpacing(theme.S)
        group("Context window", "", self.usage, self.bar)
        layout.addWidget(self.inspect_button)
        layout.addStretch(1)
        body.setLayout(layout)
        return body

    @Slot()
    def _on_sampling(self) -> None:
        self._tell_suggested()
        self.changed.emit()

    def _show_slider(self) -> None:
        self.slider.blockSignals(True)
        self.slider.setValue(round(self.temperature.value() * 100))
        self.slider.blockSignals(False)

    @Slot()
    def _on_seed(self) -> None:
        try:
            parse_seed(self.seed.text())
        except InvalidParameter as error:
            self.seed_error.setText(error.message)
            self.seed_error.show()
            set_property(self.seed, "state", "bad")
            return
        self.seed_error.hide()
        set_property(self.seed, "state", "")
        self.changed.emit()
