"""Making and editing a profile: a name, a place, and features as lines of text with their labels beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit

from engine.errors import InvalidParameter
from engine.public.library import (
    PROFILE_FIELDS,
    PROFILE_NAME_LIMIT,
    FeatureLabel,
    ProfileFields,
    ProfileRecord,
    SaeRecord,
)
from engine.public.steering import GENTLE, UNMEASURED_STRENGTH, AttachmentKey
from ui.kit import theme
from ui.kit.basics import Button, Card, Notice, column, inset_text, label, line
from ui.kit.choice import Choice
from ui.kit.number_field import WholeField
from ui.kit.steering_text import feature_lines, features, parse_features
from ui.kit.text import describe_error
from ui.steer.profile_card import WRITTEN, WrittenField

LOOK_UP_MS = 250
MOST_SHOWN = 24
"""Labels listed beside the lines."""
NO_LAYER = -1
WITHOUT = (
    f"A number alone gets the strength that adds {GENTLE:g} of the layer's typical norm, where the SAE is attached and "
    f"measured; else {UNMEASURED_STRENGTH:g}."
)


@dataclass(frozen=True)
class ProfileDraft(ProfileFields):
    """What is in the fields. ``profile_id`` is None for a new one, a strength where none is written."""

    steering: Mapping[int, float | None] = field(default_factory=dict)  # type: ignore[assignment]
    profile_id: str | None = None

    @classmethod
    def of(cls, record: ProfileRecord) -> ProfileDraft:
        """The fields of a stored profile."""
        return cls(**{name: getattr(record, name) for name in PROFILE_FIELDS}, profile_id=record.id)


class ProfileEditor(Card):
    """Shows a draft; says what the person wants with signals."""

    saved = Signal(object)
    """A :class:`ProfileDraft` that can be read."""
    cancelled = Signal()
    labels_wanted = Signal(str, object)
    """(sae_id, indices): their labels are to be shown with :meth:`show_labels`."""

    def __init__(self) -> None:
        super().__init__()
        self._draft = ProfileDraft("")
        self._labels: Mapping[int, FeatureLabel] = {}
        self.heading = label("", "lead")
        self.name = QLineEdit()
        self.name.setMaxLength(PROFILE_NAME_LIMIT)
        self.name.setAccessibleName("Name of the profile")
        self.written = {each.name: _text_field(each) for each in WRITTEN}
        self.sae = Choice(Qt.TextElideMode.ElideMiddle)
        self.sae.setAccessibleName("SAE of the profile")
        self.layer = WholeField()
        self.layer.setAccessibleName("Layer of the profile")
        self.layer.setRange(NO_LAYER, 999)
        self.layer.setSpecialValueText("any")
        self.layer.setFixedWidth(76)
        inset_text(self.layer)
        self.features = QPlainTextEdit()
        self.features.setObjectName("field")
        self.features.setFont(theme.current().mono("body"))
        self.features.setAccessibleName("Features of the profile")
        self.features.setPlaceholderText("1234:2.5")
        self.features.setTabChangesFocus(True)
        self.features.setMinimumHeight(160)
        self.known = label("", "small", wrap=True)
        self.count = label("", "small")
        self.error = Notice(closable=False)
        self.save_button = Button("Save", "primary", on_click=self._save)
        self.cancel_button = Button("Cancel", "quiet", on_click=self.cancelled.emit)
        self._look_up = QTimer(self)
        self._look_up.setSingleShot(True)
        self._look_up.setInterval(LOOK_UP_MS)
        self._look_up.timeout.connect(self._ask_labels)
        self.features.textChanged.connect(self._on_text)
        self.sae.currentIndexChanged.connect(lambda _row: self._look_up.start())
        self.sae.currentIndexChanged.connect(lambda _row: self._follow_sae())
        self._saes: dict[str, SaeRecord] = {}
        self._build()

    def edit(self, draft: ProfileDraft, saes: Sequence[SaeRecord], attached: Sequence[AttachmentKey]) -> None:
        """Begin with ``draft``; the SAEs to choose from are those of the library, the ``attached`` ones first."""
        self._draft = draft
        self._labels = {}
        self._saes = {each.id: each for each in saes}
        here = [sae_id for sae_id, _layer in attached]
        names = list(dict.fromkeys([*here, *self._saes, *([draft.sae_id] if draft.sae_id else [])]))
        self.heading.setText("Edit the profile" if draft.profile_id else "New profile")
        self.name.setText(draft.name)
        for key, part in self.written.items():
            words = getattr(draft, key) or ""
            part.setText(words) if isinstance(part, QLineEdit) else part.setPlainText(words)
        self.sae.blockSignals(True)
        self.sae.clear()
        self.sae.addItem("the one that is attached", "")
        for name in names:
            self.sae.addItem(name if name in self._saes else f"{name} (not in the library)", name)
        self.sae.setCurrentIndex(max(0, self.sae.findData(draft.sae_id or "")))
        self.sae.blockSignals(False)
        self.layer.setValue(NO_LAYER if draft.layer is None else draft.layer)
        written = {index: value for index, value in draft.steering.items() if value is not None}
        self.features.setPlainText(feature_lines(written))
        self.error.hide()
        self.save_button.setEnabled(True)
        self._ask_labels()
        self.name.setFocus()
        self.name.selectAll()

    def show_labels(self, labels: Mapping[int, FeatureLabel]) -> None:
        """Labels of the features that are written, where known."""
        self._labels = labels
        self._show_known()

    def say_error(self, error: Exception) -> None:
        """What was refused, in place; the fields stay."""
        self.save_button.setEnabled(True)
        self.error.show_words(describe_error(error))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        told = column(spacing=theme.XS)
        told.addWidget(label("Labels", "group"))
        told.addWidget(self.known)
        told.addStretch(1)
        lines = column(spacing=theme.XS)
        lines.addWidget(self.features, 1)
        lines.addWidget(self.count)
        both = line(spacing=theme.L)
        both.addLayout(lines, 2)
        both.addLayout(told, 3)
        self.body.addWidget(self.heading)
        for title, part in (("Name", self.name), *((each.title, self.written[each.name]) for each in WRITTEN)):
            self.body.addWidget(label(title, "group"))
            self.body.addWidget(part)
        self.body.addWidget(label("Made for", "group"))
        place = line(spacing=theme.M)
        place.addWidget(self.sae, 1)
        place.addWidget(label("at layer", "muted"))
        place.addWidget(self.layer)
        self.body.addLayout(place)
        self.body.addWidget(label("Features: number and strength at λ 1, one to a line", "group"))
        self.body.addWidget(label(WITHOUT, "small", wrap=True))
        self.body.addLayout(both, 1)
        self.body.addWidget(self.error)
        self.body.addLayout(line(self.save_button, self.cancel_button, None))

    def _follow_sae(self) -> None:
        """Another SAE was chosen: its own layer is the likely one."""
        record = self._saes.get(str(self.sae.currentData() or ""))
        if record is not None and record.trained_layer is not None:
            self.layer.setValue(record.trained_layer)

    def _on_text(self) -> None:
        self._look_up.start()
        self._show_known()

    def _written(self) -> dict[int, float | None] | None:
        try:
            return parse_features(self.features.toPlainText())
        except InvalidParameter:
            return None

    def _ask_labels(self) -> None:
        written = self._written()
        sae_id = str(self.sae.currentData() or "")
        if written and sae_id in self._saes:
            self.labels_wanted.emit(sae_id, tuple(written))
        else:
            self._labels = {}
            self._show_known()

    def _show_known(self) -> None:
        written = self._written()
        if written is None:
            self.count.setText("a line cannot be read")
            return
        self.count.setText(features(len(written)))
        shown = list(written)[:MOST_SHOWN]
        words = [f"#{index}  {self._labels[index].label if index in self._labels else 'no label'}" for index in shown]
        if len(written) > len(shown):
            words.append(f"and {len(written) - len(shown)} more")
        self.known.setText("\n".join(words) or "Written features are named here.")

    def _save(self) -> None:
        try:
            steering = parse_features(self.features.toPlainText())
            name = self.name.text().strip()
            if not name:
                raise InvalidParameter("The profile has no name.", param="name", remedy="Give it one.")
            written = {each.name: _text_of(each, self.written[each.name]) for each in WRITTEN}
        except InvalidParameter as error:
            self.say_error(error)
            return
        self.error.hide()
        self.save_button.setEnabled(False)
        layer = self.layer.value()
        self.saved.emit(
            replace(
                self._draft,
                name=name,
                sae_id=str(self.sae.currentData() or "") or None,
                layer=None if layer == NO_LAYER else layer,
                steering=steering,
                **written,
            )
        )


def _text_field(written: WrittenField) -> QLineEdit | QPlainTextEdit:
    if written.height is None:
        part: QLineEdit | QPlainTextEdit = QLineEdit()
    else:
        part = QPlainTextEdit()
        part.setObjectName("field")
        part.setTabChangesFocus(True)
        part.setFixedHeight(written.height)
    part.setAccessibleName(f"{written.title} of the profile")
    return part


def _text_of(written: WrittenField, part: QLineEdit | QPlainTextEdit) -> str | None:
    """What is in the field. Raises :class:`InvalidParameter` for too much."""
    text = (part.text() if isinstance(part, QLineEdit) else part.toPlainText()).strip()
    if len(text) > written.most:
        raise InvalidParameter(
            f"The {written.title.lower()} has {len(text)} characters.",
            param=written.name,
            remedy=f"Use at most {written.most}.",
        )
    return text or None
