"""The panel beside a chat: system prompt, temperature, length, seed, and how full the context window is."""

from __future__ import annotations

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
from ui.kit import theme
from ui.kit.basics import Button, Surface, column, inset_text, label, line, rule, set_property
from ui.kit.chat_state import TEMPERATURE, ChatOptions, Suggested, parse_seed
from ui.kit.number_field import DecimalField, WholeField
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
        self.temperature = DecimalField()
        self.temperature.setRange(0.0, 2.0)
        self.temperature.setSingleStep(0.05)
        self.temperature.setAccessibleName("Temperature")
        self.temperature.setFixedWidth(64)
        self.slider = Slider()
        self.slider.setRange(0, 200)
        self.slider.setAccessibleName("Temperature")
        self.also = label("", "caption", wrap=True)
        self.also.hide()
        self._suggested = Suggested()
        self._chose_temperature = False
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
        for field in (self.temperature, self.length):
            inset_text(field)
        body = self._build()
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(body)
        outer = column(spacing=0)
        outer.addWidget(scroll)
        self.setLayout(outer)
        self.set_options(ChatOptions())
        self.show_usage(None, None)
        self.slider.valueChanged.connect(lambda value: self.temperature.setValue(value / 100))
        self.temperature.valueChanged.connect(self._on_temperature)
        self.length.valueChanged.connect(lambda _value: self.changed.emit())
        self.system.textChanged.connect(self.changed.emit)
        self.seed.textChanged.connect(self._on_seed)

    def options(self) -> ChatOptions:
        """What is set now. Raises InvalidParameter for an unusable seed."""
        return ChatOptions(
            system_prompt=self.system.toPlainText().strip(),
            temperature=round(self.temperature.value(), 2),
            max_tokens=self.length.value() or None,
            seed=parse_seed(self.seed.text()),
            top_p=self._suggested.top_p,
            top_k=self._suggested.top_k,
            min_p=self._suggested.min_p,
            repetition_penalty=self._suggested.repetition_penalty,
        )

    def own(self) -> dict[str, object]:
        """What the person has set, to be kept between starts; ``temperature`` None follows the model. Raises as
        :meth:`options` does.
        """
        options = self.options()
        temperature = options.temperature if self._chose_temperature else None
        return {"temperature": temperature, "max_tokens": options.max_tokens, "seed": options.seed}

    def suggest(self, suggested: Suggested) -> None:
        """Another model, which reads best like this: used where the person has not said otherwise, and told."""
        self._suggested = suggested
        if not self._chose_temperature:
            self.temperature.blockSignals(True)
            self.temperature.setValue(TEMPERATURE if suggested.temperature is None else suggested.temperature)
            self.temperature.blockSignals(False)
            self._show_slider()
        told = []
        if words := suggested.words():
            told.append(f"Also used: {words}.")
        if suggested.temperature is not None and self._chose_temperature:
            told.append(f"The model's own temperature is {suggested.temperature:g}.")
        if told or suggested.temperature is not None:
            told.append(suggested.source)
        self.also.setText(" ".join(told))
        self.also.setVisible(bool(told))

    def set_options(self, options: ChatOptions) -> None:
        """Show these options."""
        self.set_system_prompt(options.system_prompt)
        self.temperature.setValue(options.temperature)
        self.slider.setValue(round(options.temperature * 100))
        self.length.setValue(options.max_tokens or 0)
        self.seed.setText("" if options.seed is None else str(options.seed))
        self._chose_temperature = options.temperature != TEMPERATURE

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
        group("Temperature", "0 always takes the likeliest word; higher is freer.", dial, self.also)
        group("Longest answer", "Automatic leaves it to the model and its window.", self.length)
        group("Seed", "The same seed and settings give the same answer.", self.seed, self.seed_error)
        layout.addWidget(rule())
        layout.addSpacing(theme.S)
        group("Context window", "", self.usage, self.bar)
        layout.addWidget(self.inspect_button)
        layout.addStretch(1)
        body.setLayout(layout)
        return body

    @Slot(float)
    def _on_temperature(self, _value: float) -> None:
        self._chose_temperature = True
        self._show_slider()
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
