"""One hand-made profile: where it belongs, its dial, its features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal

from engine.public.documents import STEERING_RANGE
from engine.public.library import FeatureLabel, ProfileRecord
from engine.public.steering import Push
from ui.kit.basics import Button, Card, label, line, rule
from ui.kit.flow import Flow
from ui.kit.intensity_dial import IntensityDial
from ui.kit.steering_text import features, strength
from ui.steer.cluster_card import Remarks, show_marks, show_push
from ui.steer.member_chips import MemberChip, MemberChips
from ui.steer.use_buttons import UseButtons


@dataclass(frozen=True)
class WrittenField:
    """A field of :class:`ProfileFields` that a person writes as text, ``most`` characters; the card says it as
    ``shown``.
    """

    name: str
    title: str
    most: int
    height: int | None = None
    """Of a text of several lines, in pixels; None for one line."""
    shown: str = "{}"


WRITTEN = (WrittenField("description", "Description", 500, height=60),)
"""All of them, in the order in which the editor and the card have them."""

GREATEST = 2.0
MOST_CHIPS = 60


def profile_marks(record: ProfileRecord, steers: bool) -> tuple[tuple[str, str], ...]:
    """The state words of a profile."""
    if not record.is_active:
        return ()
    return (("active", "good"),) if steers else (("active, adds nothing", "warn"),)


def profile_facts(record: ProfileRecord) -> str:
    """Where it belongs and how much it holds."""
    parts = [features(len(record.steering))]
    parts.append("for whichever SAE is attached" if record.sae_id is None else record.sae_id)
    if record.layer is not None:
        parts.append(f"layer {record.layer}")
    if record.model_id is not None:
        parts.append(record.model_id)
    return " · ".join(parts)


def profile_remarks(record: ProfileRecord) -> tuple[str, ...]:
    """What would be clamped at the top of the dial, or now."""
    now = [index for index, value in record.steering.items() if abs(value) * record.intensity > STEERING_RANGE]
    if not now:
        return ()
    which = ", ".join(f"#{index}" for index in sorted(now)[:10])
    return (f"At λ {strength(record.intensity)} these are clamped to ±{STEERING_RANGE:g}: {which}.",)


class ProfileCard(Card):
    """Shows a profile; says what the person wants with signals."""

    dialled = Signal(float)
    switch_wanted = Signal(bool)
    edit_wanted = Signal()
    export_wanted = Signal()
    delete_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._id = ""
        self._active = False
        self.name = label("", "title", wrap=True, selectable=True)
        self.marks = Flow()
        self.facts = label("", "small", wrap=True, selectable=True)
        self.written = {each.name: label("", "muted", wrap=True, selectable=True) for each in WRITTEN}
        self.remarks = Remarks()
        self.dial = IntensityDial()
        self.dial.set_range(0.0, GREATEST, default=1.0)
        self.dial.settled.connect(self.dialled)
        self.push = label("", "small", wrap=True)
        self.switch_button = Button("Activate", "primary", "play", self._on_switch)
        self.edit_button = Button("Edit…", "plain", "pencil", self.edit_wanted.emit)
        self.export_button = Button("Export…", "plain", "export", self.export_wanted.emit)
        self.uses = UseButtons(self.switch_button, self.edit_button, self.export_button)
        self.delete_button = Button("Delete", "quiet", "bin", self.delete_wanted.emit)
        self.members = MemberChips()
        self.members_title = label("", "strong")
        for part in (self.name, self.marks, self.facts, *self.written.values(), self.remarks):
            self.body.addWidget(part)
        self.body.addWidget(rule())
        self.body.addWidget(self.dial)
        self.body.addWidget(self.push)
        buttons = line()
        buttons.addWidget(self.uses, 1)
        buttons.addWidget(self.delete_button, 0, Qt.AlignmentFlag.AlignTop)
        self.body.addLayout(buttons)
        self.body.addWidget(rule())
        self.body.addWidget(self.members_title)
        self.body.addWidget(self.members)

    def show_profile(
        self, record: ProfileRecord, steers: bool, labels: Mapping[int, FeatureLabel], pushes: Sequence[Push] = ()
    ) -> None:
        """Show a profile; ``steers`` says whether it adds anything now, ``pushes`` how long that is, where known."""
        if record.id != self._id:
            self._id = record.id
            self.dial.let_go()
        self._active = record.is_active
        self.name.setText(record.name)
        show_marks(self.marks, profile_marks(record, steers))
        self.facts.setText(profile_facts(record))
        for each in WRITTEN:
            words = getattr(record, each.name)
            self.written[each.name].setText(each.shown.format(words) if words else "")
            self.written[each.name].setVisible(bool(words))
        self.remarks.show_words(profile_remarks(record))
        self.dial.set_value(record.intensity)
        show_push(self.push, pushes, record.intensity)
        self.switch_button.setText(" Deactivate" if self._active else " Activate")
        self.switch_button.setAccessibleName(f"{'Deactivate' if self._active else 'Activate'} {record.name}")
        self.switch_button.set_icon("stop" if self._active else "play")
        self.switch_button.set_look("plain" if self._active else "primary")
        shown: Sequence[tuple[int, float]] = sorted(record.steering.items())[:MOST_CHIPS]
        more = len(record.steering) - len(shown)
        title = "Features, with their strength at λ 1" + (f" (the first {MOST_CHIPS}; {more} more)" if more else "")
        self.members_title.setText(title if shown else "It has no features: active, it steers nothing.")
        self.members.show_chips(
            [MemberChip(index, labels[index].label if index in labels else None, value) for index, value in shown]
        )

    def _on_switch(self) -> None:
        self.switch_wanted.emit(not self._active)
