"""The card of other names of models: a line for each name, with the model, profile and dial that it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QLabel, QLineEdit, QSizePolicy, QWidget

from engine.errors import InvalidParameter
from ui.kit import theme
from ui.kit.basics import Button, Card, IconButton, Notice, column, label, line, set_property
from ui.kit.choice import Choice
from ui.kit.number_field import read_number

LEAST = 84
DIAL_WIDTH = 84
DIAL_WORDS = ("off", "min", "max")
GREATEST = 2.0
AS_LIVE = "—"
"""Names no profile: what steers the others steers it too."""

HEADS = ("Name", "Model", "Profile or cluster", "Dial")
WORDS = (
    "A program that lets you choose a model and nothing else is steered by the name it asks for. A name that ends with "
    "* stands for every name with that beginning."
)


class AliasRow(QWidget):
    """One name and what it stands for."""

    edited = Signal()
    removed = Signal(object)

    def __init__(self, name: str, meaning: Mapping[str, Any]) -> None:
        super().__init__()
        self._rest = {key: value for key, value in meaning.items() if key == "chat_template_kwargs" and value}
        self.name = QLineEdit(name)
        self.name.setPlaceholderText("a name, or a beginning and *")
        self.model = Choice()
        self.profile = Choice()
        self.dial = QLineEdit(_dial_text(meaning.get("steering_intensity")))
        self.dial.setPlaceholderText("its own")
        self.dial.setToolTip("0 to 2, off, min or max; empty: as the profile says")
        self.dial.setFixedWidth(DIAL_WIDTH)
        self.remove = IconButton("bin", "Take this name away", lambda: self.removed.emit(self))
        for field, called in zip((self.name, self.model, self.profile, self.dial), HEADS, strict=True):
            field.setAccessibleName(called)
        for wide in (self.name, self.model, self.profile):
            wide.setMinimumWidth(LEAST)
            wide.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._model, self._profile = str(meaning.get("model") or ""), meaning.get("profile")
        fields = line(spacing=theme.S)
        for field in (self.name, self.model, self.profile):
            fields.addWidget(field, 1)
        fields.addWidget(self.dial)
        fields.addWidget(self.remove)
        self.variables = label("With template variables, which stay as they are.", "caption", wrap=True)
        self.variables.setVisible(bool(self._rest))
        whole = column(spacing=2)
        whole.addLayout(fields)
        whole.addWidget(self.variables)
        self.setLayout(whole)
        self.offer((), ())
        self.name.textEdited.connect(self.edited)
        self.dial.textEdited.connect(self.edited)
        for choice in (self.model, self.profile):
            choice.activated.connect(lambda _index: self._on_chosen())

    def offer(self, models: Sequence[str], profiles: Sequence[str]) -> None:
        """What can be chosen; what is chosen stays so, also where it is gone."""
        _fill(self.model, models, self._model)
        _fill(self.profile, profiles, self._profile, none=AS_LIVE)

    @property
    def is_blank(self) -> bool:
        """Whether nobody has written anything here."""
        return not (self.name.text().strip() or self.dial.text().strip() or self._profile)

    def meaning(self) -> str | dict[str, Any]:
        """What the name stands for, as the setting writes it. Raises :class:`InvalidParameter` in words."""
        made: dict[str, Any] = {"model": self._model}
        if self._profile:
            made["profile"] = self._profile
        if (dial := self._read_dial()) is not None:
            made["steering_intensity"] = dial
        made |= self._rest
        return self._model if made.keys() == {"model"} else made

    def lock(self, locked: bool) -> None:
        """Whether it can only be looked at."""
        for field in (self.name, self.dial):
            field.setReadOnly(locked)
        for other in (self.model, self.profile, self.remove):
            other.setEnabled(not locked)

    def _on_chosen(self) -> None:
        self._model = str(self.model.currentData() or "")
        self._profile = self.profile.currentData()
        self.edited.emit()

    def _read_dial(self) -> float | str | None:
        text = self.dial.text().strip().lower()
        if not text or text in DIAL_WORDS:
            return text or None
        try:
            value = read_number(text, 0, GREATEST)
        except InvalidParameter as error:
            raise InvalidParameter(f"The dial of “{self.name.text().strip()}”: {error.one_line()}") from None
        return int(value) if value == int(value) else value


class AliasCard(Card):
    """Shows the names there are; says with a signal what they shall be."""

    saved = Signal(object)
    """The setting's new value, a mapping."""

    def __init__(self) -> None:
        super().__init__("Other names of models")
        self.rows: list[AliasRow] = []
        self._shown: Mapping[str, Any] = {}
        self._models: Sequence[str] = ()
        self._profiles: Sequence[str] = ()
        self._locked = False
        self.locked_words = label("", "small", wrap=True)
        self.heads = QWidget()
        heads = line(spacing=theme.S)
        self._heads: list[QLabel] = [label(text, "caption") for text in HEADS]
        for head in self._heads[:3]:
            head.setMinimumWidth(LEAST)
            head.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
            heads.addWidget(head, 1)
        self._heads[3].setFixedWidth(DIAL_WIDTH)
        heads.addWidget(self._heads[3])
        heads.addSpacing(IconButton("bin", "", lambda: None).sizeHint().width())
        self.heads.setLayout(heads)
        self._lines = column(spacing=theme.XS)
        self.add = Button("Add a name", "plain", "plus", self._on_add)
        self.save = Button("Save", "primary", on_click=self._on_save)
        self.undo = Button("Put back", "quiet", on_click=self._on_undo)
        self.notice = Notice()
        self.body.addWidget(label(WORDS, "small", wrap=True))
        self.body.addWidget(self.locked_words)
        self.body.addWidget(self.heads)
        self.body.addLayout(self._lines)
        self.body.addWidget(self.notice)
        self.body.addLayout(line(self.add, None, self.undo, self.save))
        self._show_state()

    @property
    def changed(self) -> bool:
        """Whether something is written here that is not saved."""
        try:
            return _plain(self._read()) != _plain(self._shown)
        except InvalidParameter:
            return True

    def show_aliases(self, value: Mapping[str, Any], *, locked: str) -> None:
        """The names as they are; ``locked`` says what sets them where something does. What is being written stays."""
        if value != self._shown and (not self.changed or locked or self._same(value)):
            self._shown = dict(value)
            self._refill()
        self._locked = bool(locked)
        self.locked_words.setText(f"They are set by {locked}." if locked else "")
        self._show_state()

    def offer(self, models: Sequence[str], profiles: Sequence[str]) -> None:
        """The models there are, and the profiles and clusters."""
        self._models, self._profiles = models, profiles
        for row in self.rows:
            row.offer(models, profiles)

    def show_error(self, words: str) -> None:
        """Why they were not taken."""
        self.notice.show_words(words)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _same(self, value: Mapping[str, Any]) -> bool:
        try:
            return _plain(self._read()) == _plain(value)
        except InvalidParameter:
            return False

    def _refill(self) -> None:
        self.notice.hide()
        for row in list(self.rows):
            self._drop(row)
        for name, meaning in self._shown.items():
            self._append(name, {"model": meaning} if isinstance(meaning, str) else meaning)

    def _append(self, name: str, meaning: Mapping[str, Any]) -> AliasRow:
        row = AliasRow(name, meaning)
        row.offer(self._models, self._profiles)
        row.edited.connect(self._on_edited)
        row.removed.connect(self._on_removed)
        self.rows.append(row)
        self._lines.addWidget(row)
        return row

    def _drop(self, row: AliasRow) -> None:
        self.rows.remove(row)
        self._lines.removeWidget(row)
        row.hide()
        row.deleteLater()

    def _show_state(self) -> None:
        changed = self.changed
        self.heads.setVisible(bool(self.rows))
        self.locked_words.setVisible(self._locked)
        self.add.setEnabled(not self._locked)
        self.save.setVisible(changed and not self._locked)
        self.undo.setVisible(changed and not self._locked)
        for row in self.rows:
            row.lock(self._locked)

    def _on_add(self) -> None:
        row = self._append("", {"model": self._models[0] if self._models else ""})
        self._show_state()
        row.name.setFocus()

    def _on_edited(self) -> None:
        self.notice.hide()
        for row in self.rows:
            set_property(row.name, "state", "")
        self._show_state()

    def _on_removed(self, row: AliasRow) -> None:
        self._drop(row)
        self._on_edited()

    def _on_undo(self) -> None:
        self._refill()
        self._show_state()

    def _on_save(self) -> None:
        try:
            value = self._read(complain=True)
        except InvalidParameter as error:
            self.notice.show_words(error.one_line())
            return
        self.notice.hide()
        self.saved.emit(value)

    def _read(self, *, complain: bool = False) -> dict[str, Any]:
        """What is written. Raises :class:`InvalidParameter` in words; ``complain`` marks the field."""
        made: dict[str, Any] = {}
        for row in self.rows:
            if row.is_blank:
                continue
            name = row.name.text().strip()
            if not name or name in made:
                if complain:
                    set_property(row.name, "state", "bad")
                why = f"The name “{name}” is there twice." if name else "Give each line a name."
                raise InvalidParameter(why)
            made[name] = row.meaning()
        return made


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """A value of the setting without the ways there are to write the same."""
    made: dict[str, Any] = {}
    for name, meaning in value.items():
        whole = (
            {"model": meaning}
            if isinstance(meaning, str)
            else {k: v for k, v in meaning.items() if v not in (None, {})}
        )
        if isinstance(dial := whole.get("steering_intensity"), str):
            word = dial.strip().lower()
            whole["steering_intensity"] = word if word in DIAL_WORDS else float(word)
        made[name] = whole
    return made


def _fill(choice: QComboBox, names: Sequence[str], chosen: str | None, none: str = "") -> None:
    choice.clear()
    if none:
        choice.addItem(none, None)
    for name in names:
        choice.addItem(name, name)
    if chosen and chosen not in names:
        choice.addItem(f"{chosen} (not there)", chosen)
    choice.setCurrentIndex(max(0, choice.findData(chosen) if chosen else 0))


def _dial_text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)
