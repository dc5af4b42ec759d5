"""What a sweep is to do: whose dial, which prompts, which values, how to sample, what counts as the topic."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QLineEdit, QPlainTextEdit, QWidget

from engine.public.steering import Push
from engine.public.sweeps import (
    MOST_TOKENS,
    PLAIN,
    SWEEP_SAMPLING,
    BaseChoice,
    BaseKind,
    SweepBase,
    SweepSettings,
    parse_intensities,
    topic_words,
)
from ui.kit import theme
from ui.kit.basics import column, inset_text, label, line
from ui.kit.chat_options import parse_seed
from ui.kit.choice import Choice
from ui.kit.number_field import WholeField
from ui.kit.plain_text import as_letters
from ui.kit.sampling_fields import SamplingFields
from ui.kit.steering_text import features, push_words, strength
from ui.kit.sweep_text import INTENSITIES, PROMPTS, choice_words

PROMPTS_HEIGHT = 88
TOPIC_HEIGHT = 76


class SweepForm(QWidget):
    """The fields; :meth:`settings` reads them."""

    base_chosen = Signal(object)
    """A :class:`BaseChoice`, or None."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Choice()
        self.base.setAccessibleName("Whose dial is turned")
        self.base.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.base.setMinimumContentsLength(12)
        self.base_words = label("", "small", wrap=True)
        self.prompts = _texts("Prompts, one to a line", PROMPTS_HEIGHT)
        self.prompts.setPlainText(PROMPTS)
        self.intensities = QLineEdit(INTENSITIES)
        self.intensities.setAccessibleName("Values of λ")
        self.intensities.setToolTip("Values like 0.5, 1, 1.5, or from–to–step like 0..2 by 0.25")
        self.plain = QCheckBox("Plain too")
        self.plain.setToolTip("Also ask without steering")
        self.plain.setChecked(True)
        self.tokens = WholeField()
        self.tokens.setRange(1, MOST_TOKENS)
        self.tokens.setValue(40)
        self.tokens.setAccessibleName("Tokens per answer")
        self.sampling = SamplingFields(SWEEP_SAMPLING, apart=("temperature", "repetition_penalty"))
        self.temperature, self.penalty = map(self.sampling.number, ("temperature", "repetition_penalty"))
        self.temperature.setSpecialValueText("greedy")
        self.temperature.setAccessibleName("Temperature; 0 is greedy")
        self.seed = QLineEdit("0")
        self.seed.setPlaceholderText("Random")
        self.seed.setAccessibleName("Seed")
        inset_text(self.tokens)
        self.topic = _texts("Topic words", TOPIC_HEIGHT)
        self.topic.setPlaceholderText("Words a text on the topic is counted by, separated by spaces")
        self.wanted: tuple[BaseKind, str] | None = None
        """What is to be chosen as soon as it is offered."""
        self.ready = False
        self._choices: tuple[BaseChoice, ...] = ()
        self._suggested = ""
        self._build()
        self.base.currentIndexChanged.connect(self._on_chosen)
        self.sampling.changed.connect(lambda: self.seed.setEnabled(self.temperature.value() > 0))
        self.seed.setEnabled(False)

    def show_choices(self, choices: Sequence[BaseChoice]) -> None:
        """Offer these; keeps what was chosen."""
        before = self.choice
        wanted = self.wanted or ((before.kind, before.id) if before is not None else None)
        self._choices = tuple(choices)
        self.base.blockSignals(True)
        self.base.clear()
        for each in self._choices:
            self.base.addItem(choice_words(each))
        places = [place for place, each in enumerate(self._choices) if (each.kind, each.id) == wanted]
        self.base.setCurrentIndex(places[0] if places else 0)
        self.base.blockSignals(False)
        if places:
            self.wanted = None
        self._on_chosen()

    @property
    def choice(self) -> BaseChoice | None:
        """Whose dial is turned."""
        index = self.base.currentIndex()
        return self._choices[index] if 0 <= index < len(self._choices) else None

    def show_base(self, base: SweepBase | None, words: Sequence[str], why: str, pushes: Sequence[Push] = ()) -> None:
        """What the choice comes to, and how long what it adds at λ 1 is; ``why`` it cannot be swept without a base."""
        self.ready = base is not None
        self.base_words.setProperty("look", "small" if base is not None else "bad")
        self.base_words.style().polish(self.base_words)
        told = () if base is None else (_described(base), push_words(pushes, 1.0))
        self.base_words.setText(why if base is None else "\n".join(each for each in told if each))
        places = () if base is None else base.authored
        self.base_words.setToolTip(as_letters("\n".join(f"layer {layer}: {sae_id}" for sae_id, layer in places)))
        self.base_words.setVisible(True)
        if self.topic.toPlainText() == self._suggested:
            self._suggested = " ".join(words)
            self.topic.setPlainText(self._suggested)

    def settings(self) -> SweepSettings:
        """What the fields say. Raises :class:`InvalidParameter`."""
        values = parse_intensities(self.intensities.text())
        seed = parse_seed(self.seed.text())
        prompts = tuple(text.strip() for text in self.prompts.toPlainText().splitlines() if text.strip())
        return SweepSettings(
            prompts,
            (PLAIN, *values) if self.plain.isChecked() else values,
            max_tokens=self.tokens.value(),
            sampling=self.sampling.sampling(seed=secrets.randbits(32) if seed is None else seed),
            topic=topic_words(self.topic.toPlainText()),
        )

    def _on_chosen(self) -> None:
        self.ready = False
        self.base.setToolTip(as_letters(self.base.currentText()))
        self.base_chosen.emit(self.choice)

    def _build(self) -> None:
        inside = column(spacing=theme.XS, margins=(0, 0, theme.S, 0))
        inside.addWidget(label("Dial", "group"))
        inside.addWidget(self.base)
        inside.addWidget(self.base_words)
        inside.addSpacing(theme.S)
        inside.addWidget(label("Prompts, one to a line", "group"))
        inside.addWidget(self.prompts)
        inside.addSpacing(theme.S)
        inside.addWidget(label("Values of λ", "group"))
        values = line()
        values.addWidget(self.intensities, 1)
        # The focused look takes a little more room than the size hint says.
        self.plain.setMinimumWidth(self.plain.sizeHint().width() + theme.M)
        values.addWidget(self.plain)
        inside.addLayout(values)
        inside.addSpacing(theme.S)
        pairs = (
            (("Tokens per answer", self.tokens), ("Repetition penalty", self.penalty)),
            (("Temperature", self.temperature), ("Seed", self.seed)),
        )
        for row in pairs:
            both = line(spacing=theme.S)
            for name, field in row:
                part = column(spacing=theme.XS)
                part.addWidget(label(name, "group"))
                part.addWidget(field)
                both.addLayout(part, 1)
            inside.addLayout(both)
            inside.addSpacing(theme.S)
        inside.addWidget(self.sampling)
        inside.addSpacing(theme.S)
        inside.addWidget(label("Topic words", "group"))
        inside.addWidget(self.topic)
        inside.addStretch(1)
        self.base_words.hide()
        self.setLayout(inside)


def _described(base: SweepBase) -> str:
    parts = []
    for (_sae_id, layer), values in base.authored.items():
        named = [f"#{index} {strength(value)}" for index, value in list(values.items())[:4]]
        more = f" and {len(values) - 4} more" if len(values) > 4 else ""
        parts.append(f"{features(len(values))} at layer {layer}: {', '.join(named)}{more}")
    return "; ".join(parts)


def _texts(name: str, height: int) -> QPlainTextEdit:
    field = QPlainTextEdit()
    field.setObjectName("field")
    field.setAccessibleName(name)
    field.setTabChangesFocus(True)
    field.setFixedHeight(height)
    return field
