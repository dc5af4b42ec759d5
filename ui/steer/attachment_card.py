"""The card of one attached SAE: its steered features with their sliders, and how to add more."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit, QWidget

from engine.errors import InvalidParameter
from engine.public.library import FeatureLabel
from engine.public.steering import UNMEASURED_END, UNMEASURED_STRENGTH, AttachmentKey, Entry
from ui.kit import theme
from ui.kit.basics import Button, Card, ElidedLabel, Notice, column, label, line
from ui.kit.plain_text import as_letters
from ui.kit.scroll_page import InOnePlace, reveal
from ui.kit.steering_text import PUSH_TIP, features, parse_features, place_words
from ui.kit.switch import Switch
from ui.kit.text import describe_error
from ui.steer.feature_row import FeatureRow

UNMEASURED = (
    f"The layer's typical norm is not known here: a feature is added with strength {UNMEASURED_STRENGTH:g}, and dials "
    f"end at ±{UNMEASURED_END:g}. Measuring on the SAEs page finds it."
)
FIELD_HEIGHT = 36
FINDER_HEIGHT = 260


class FeatureField(QPlainTextEdit):
    """Takes feature numbers, also several pasted lines; Enter adds them."""

    submitted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("field")
        self.setTabChangesFocus(True)
        self.setFixedHeight(FIELD_HEIGHT)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setPlaceholderText("Add features: 1234, 1234:2.5")
        self.setAccessibleName("Features to add")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Enter adds, Shift+Enter breaks the line; everything else edits."""
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.submitted.emit()
        else:
            super().keyPressEvent(event)


class AttachmentCard(Card):
    """Shows one place's values; says what the person wants with signals."""

    added = Signal(object)
    """index → strength, None for the one a feature is first tried with."""
    changed = Signal(int, float, object)
    removed = Signal(int)
    cleared = Signal()
    switched = Signal(bool)
    save_wanted = Signal(str)
    save_begun = Signal()
    find_wanted = Signal()
    """A list to search for features is to be put in with :meth:`put_finder`."""

    def __init__(self, place: AttachmentKey, d_sae: int) -> None:
        super().__init__()
        self.place = place
        self.rows: dict[int, FeatureRow] = {}
        self._labels: Mapping[int, FeatureLabel] = {}
        self._norms: Mapping[int, float] = {}
        self._typical: float | None = None
        self.heading = ElidedLabel(place[0], "lead")
        self.state = label("", "small", wrap=True)
        self._words = ""
        self._added: float | None = None
        self._size = f"layer {place[1]} · {features(d_sae)}"
        self.switch = Switch(f"Steering through {place_words(place)} on or off; values are kept")
        self.switch.clicked.connect(self.switched)
        self.shared = label("", "small", wrap=True)
        self.unmeasured = label(UNMEASURED, "small", wrap=True)
        self.unmeasured.hide()
        self._known = False
        self.field = FeatureField()
        self.add_button = Button("Add", on_click=self._add)
        self.find_button = Button("Find…", "plain", "search", self._on_find)
        self.find_button.setToolTip("Search the labels of this SAE's features")
        self.finder: QWidget | None = None
        self.field.submitted.connect(self._add)
        self.error = label("", "bad", wrap=True)
        self.notice = Notice()
        self.empty = label(
            f"Nothing is set by hand here yet. Add a feature by its number, 0 to {d_sae - 1}, and turn its dial: "
            "right for more of it, left for less.",
            "muted",
            wrap=True,
        )
        self.clear_button = Button("Clear", "quiet", on_click=self.cleared.emit)
        self.save_button = Button("Save as profile…", "plain", on_click=self.save_begun.emit)
        self.name = QLineEdit()
        self.name.setAccessibleName("Name of the profile")
        self.name.setPlaceholderText("Name of the profile")
        self.name.returnPressed.connect(self._save)
        self.save_panel = QWidget()
        self._foot = QWidget()
        self._places = InOnePlace(self._foot, self.save_panel)
        save = line(self.name, Button("Save", "primary", on_click=self._save))
        save.addWidget(Button("Cancel", "quiet", on_click=self._leave_save))
        self.save_panel.setLayout(save)
        self._list = column(spacing=theme.XS)
        self._build()
        self.show_entry(Entry(), set(), "")

    def show_entry(self, entry: Entry, pending: set[int], shared: str) -> None:
        """Show what holds; features in ``pending`` have a newer strength on its way. ``shared``: who else steers."""
        for index in [index for index in self.rows if index not in entry.values]:
            row = self.rows.pop(index)
            self._list.removeWidget(row)
            row.hide()
            row.deleteLater()
        for turn, (index, value) in enumerate(sorted(entry.values.items())):
            if index not in self.rows:
                self.rows[index] = self._make_row(index)
                self._list.insertWidget(turn, self.rows[index])
            if index not in pending:
                self.rows[index].show_value(value)
        on = entry.enabled
        any_value = bool(entry.values)
        number = features(len(entry.values))
        self._words = f"{number} steered" if on and any_value else f"{number} set, switched off" if any_value else ""
        self._show_state()
        self.switch.setEnabled(any_value or bool(shared))
        self.switch.setChecked(on)
        self.empty.setVisible(not any_value)
        self.clear_button.setEnabled(any_value)
        self.save_button.setEnabled(any_value)
        self.shared.setText(shared)
        self.shared.setVisible(bool(shared))

    def show_known(self, labels: Mapping[int, FeatureLabel], norms: Mapping[int, float], typical: float | None) -> None:
        """Labels, lengths of decoder rows, and the typical length of the residual stream, where known."""
        self._labels, self._norms, self._typical = labels, norms, typical
        self._known = True
        self.unmeasured.setVisible(typical is None)
        self._show_state()
        for row in self.rows.values():
            self._dress(row)

    def show_added(self, length: float | None) -> None:
        """How long the vector is that is added at this layer now, by whatever steers there; None where none is."""
        self._added = length
        self._show_state()

    def put_finder(self, finder: QWidget) -> None:
        """Show a list to search for features, from now on opened and closed by the button."""
        finder.setFixedHeight(FINDER_HEIGHT)
        self.finder = finder
        self._found.addWidget(finder)
        finder.show()
        reveal(finder)
        finder.setFocus()

    def show_activations(self, values: Mapping[int, float] | None) -> None:
        """What the steered features do at the last token that was read; one that is not named is silent."""
        for index, row in self.rows.items():
            row.show_activation(None if values is None else values.get(index, 0.0))

    def begin_save(self, name: str) -> None:
        """Ask for the profile's name, with a proposal."""
        self.name.setText(name)
        self._places.setCurrentWidget(self.save_panel)
        reveal(self.save_panel)
        self.name.setFocus()
        self.name.selectAll()

    def end_save(self, words: str, *actions: QWidget) -> None:
        """The profile is there; ``actions`` are what can be done with it now."""
        self._leave_save()
        self.notice.show_words(words, "info", *actions)
        reveal(self.notice)

    def say_error(self, error: Exception) -> None:
        """Show what was refused, in place."""
        self.notice.show_words(describe_error(error))
        reveal(self.notice)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        head = line(spacing=theme.M)
        texts = column(spacing=1)
        texts.addWidget(self.heading)
        texts.addWidget(self.state)
        head.addLayout(texts, 1)
        head.addWidget(self.switch, 0, Qt.AlignmentFlag.AlignVCenter)
        add = line()
        add.addWidget(self.field, 1)
        add.addWidget(self.add_button)
        add.addWidget(self.find_button)
        self.body.addLayout(head)
        for part in (self.shared, self.unmeasured, self.notice, self.empty):
            self.body.addWidget(part)
        self.body.addLayout(self._list)
        self.body.addLayout(add)
        self.body.addWidget(self.error)
        self._found = column()
        self.body.addLayout(self._found)
        self._foot.setLayout(line(self.save_button, self.clear_button, None))
        self.body.addWidget(self._places)
        self.error.hide()

    def _show_state(self) -> None:
        parts = [self._size, self._words]
        if self._added is not None:
            beside = "" if self._typical is None else f", {self._added / self._typical:.2g} × typical norm"
            parts.append(f"adds {self._added:.3g} in all{beside}")
        self.state.setText(" · ".join(part for part in parts if part))
        self.state.setToolTip(as_letters("" if self._added is None else PUSH_TIP))

    def _make_row(self, index: int) -> FeatureRow:
        row = FeatureRow(index)
        row.changed.connect(self.changed)
        row.removed.connect(self.removed)
        self._dress(row)
        return row

    def _dress(self, row: FeatureRow) -> None:
        row.show_label(self._labels.get(row.index))
        if self._known:
            row.show_norms(self._norms.get(row.index), self._typical)

    def _add(self) -> None:
        try:
            wanted = parse_features(self.field.toPlainText())
        except InvalidParameter as error:
            self.error.setText(describe_error(error))
            self.error.show()
            reveal(self.error)
            return
        self.error.hide()
        self.notice.hide()
        if wanted:
            self.added.emit(wanted)
            self.field.clear()

    def _on_find(self) -> None:
        if self.finder is None:
            self.find_wanted.emit()
        else:
            self.finder.setVisible(self.finder.isHidden())
            if not self.finder.isHidden():
                reveal(self.finder)
                self.finder.setFocus()

    def _leave_save(self) -> None:
        self._places.setCurrentWidget(self._foot)

    def _save(self) -> None:
        if self.name.text().strip():
            self.save_wanted.emit(self.name.text().strip())
