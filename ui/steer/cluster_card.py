"""One cluster: what it is, whether it can run, its dial, its features, and its author's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QLabel, QWidget

from engine.public.library import FeatureLabel
from engine.public.steering import ClusterView, Push
from ui.kit import theme
from ui.kit.basics import Button, Card, column, label, line, pill, rule
from ui.kit.flow import Flow
from ui.kit.intensity_dial import IntensityDial
from ui.kit.plain_text import as_letters
from ui.kit.steering_text import PUSH_TIP, push_words
from ui.steer.cluster_text import (
    binding_words,
    cluster_facts,
    cluster_marks,
    cluster_warnings,
    dial_words,
)
from ui.steer.member_chips import MemberChip, MemberChips, member_told
from ui.steer.use_buttons import UseButtons


class Remarks(QWidget):
    """Sentences, each on a line of its own; hidden while there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._lines = column(spacing=2)
        self.setLayout(self._lines)
        self._shown: tuple[str, ...] = ()
        self.hide()

    def show_words(self, words: tuple[str, ...]) -> None:
        """Show these instead."""
        if words == self._shown:
            return
        self._shown = words
        while (item := self._lines.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for each in words:
            self._lines.addWidget(label(f"⚠  {each}", "warn", wrap=True, selectable=True))
        self.setVisible(bool(words))

    def words(self) -> tuple[str, ...]:
        """What is said."""
        return self._shown


class Narrative(QFrame):
    """What an author says, marked as theirs: we cannot vouch for it."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("inset")
        self.text = label("", wrap=True, selectable=True)
        inside = column(spacing=theme.XS, margins=(theme.M, theme.S, theme.M, theme.S + 2))
        inside.addWidget(label("In the author's words", "group"))
        inside.addWidget(self.text)
        self.setLayout(inside)

    def show_text(self, text: str | None) -> None:
        """Show it; hidden without any."""
        self.text.setText(text or "")
        self.setVisible(bool(text))


def show_marks(flow: Flow, marks: tuple[tuple[str, str], ...]) -> None:
    """Fill a line of pills, unless it shows just these."""
    shown = tuple((each.text(), each.property("tone")) for each in flow.widgets() if isinstance(each, QLabel))
    if shown != marks:
        flow.show_all([pill(word, tone) for word, tone in marks])
    elif not marks:
        # Nothing was shown yet: an empty line of pills takes no room.
        flow.hide()


def show_push(line_of: QLabel, pushes: Sequence[Push], intensity: float) -> None:
    """How long what is added is, in a line of small print; none where it is not known."""
    words = push_words(pushes, intensity)
    line_of.setText(words)
    line_of.setToolTip(as_letters(PUSH_TIP))
    line_of.setVisible(bool(words))


class ClusterCard(Card):
    """Shows a cluster; says what the person wants with signals."""

    dialled = Signal(float)
    switch_wanted = Signal(bool)
    """Activate, or deactivate."""
    export_wanted = Signal()
    delete_wanted = Signal()
    attach_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._id = ""
        self.name = label("", "title", wrap=True, selectable=True)
        self.marks = Flow()
        self.facts = label("", "small", wrap=True, selectable=True)
        self.binding = label("", wrap=True, selectable=True)
        self.attach_button = Button("Attach its SAE", "plain", "plus", self.attach_wanted.emit)
        self.remarks = Remarks()
        self.dial = IntensityDial()
        self.dial.settled.connect(self.dialled)
        self.range = label("", "small", wrap=True)
        self.push = label("", "small", wrap=True)
        self.switch_button = Button("Activate", "primary", "play", self._on_switch)
        self.export_button = Button("Export…", "plain", "export", self.export_wanted.emit)
        self.uses = UseButtons(self.switch_button, self.export_button)
        self.delete_button = Button("Delete", "quiet", "bin", self.delete_wanted.emit)
        self.members = MemberChips()
        self.members_title = label("", "strong")
        self.narrative = Narrative()
        self._active = False
        for part in (self.name, self.marks, self.facts):
            self.body.addWidget(part)
        bound = line(spacing=theme.M)
        bound.addWidget(self.binding, 1)
        bound.addWidget(self.attach_button)
        self.body.addLayout(bound)
        self.body.addWidget(self.remarks)
        self.body.addWidget(rule())
        self.body.addWidget(self.dial)
        self.body.addWidget(self.range)
        self.body.addWidget(self.push)
        buttons = line()
        buttons.addWidget(self.uses, 1)
        buttons.addWidget(self.delete_button, 0, Qt.AlignmentFlag.AlignTop)
        self.body.addLayout(buttons)
        self.body.addWidget(rule())
        self.body.addWidget(self.members_title)
        self.body.addWidget(self.members)
        self.body.addWidget(self.narrative)

    def show_view(self, view: ClusterView, labels: Mapping[int, FeatureLabel], pushes: Sequence[Push] = ()) -> None:
        """Show a cluster; ``labels`` are the library's, for features its document does not name.

        ``pushes``: how long what it adds is where its dial stands, where that is known.
        """
        summary, record = view.summary, view.summary.record
        self.name.setText(record.name)
        show_marks(self.marks, cluster_marks(view))
        self.facts.setText(cluster_facts(view))
        self.binding.setText(binding_words(view))
        unbound = view.verdict is not None and not view.verdict.binding.serves
        self.attach_button.setVisible(unbound and view.to_attach is not None)
        self.uses.offer(view.verdict is not None and not unbound)
        self.remarks.show_words(cluster_warnings(view))
        default = None if view.document is None else view.document.intensity
        if record.id != self._id:
            self._id = record.id
            self.dial.let_go()
        self.dial.set_range(
            0.0,
            view.envelope.ceiling or 1.0,
            default=default,
            onset=view.advice.onset,
            sweet_spot=view.advice.sweet_spot,
            cliff=view.advice.cliff,
        )
        self.dial.set_value(record.intensity)
        self.range.setText(dial_words(summary.intensity_range, view.envelope, view.advice))
        show_push(self.push, pushes, record.intensity)
        self._active = record.is_active
        self.switch_button.setText(" Deactivate" if self._active else " Activate")
        self.switch_button.setAccessibleName(f"{'Deactivate' if self._active else 'Activate'} {record.name}")
        self.switch_button.set_icon("stop" if self._active else "play")
        self.switch_button.set_look("plain" if self._active else "primary")
        members = {each.feature_idx: each for each in view.document.definition.members} if view.document else {}
        chips = []
        for index, name, strength in summary.members:
            known = labels.get(index)
            member = members.get(index)
            told = () if member is None else member_told(member)
            chips.append(
                MemberChip(
                    index,
                    name or (known.label if known is not None else None),
                    strength,
                    told,
                    member is not None and member.pinned,
                )
            )
        self.members_title.setText("Features, with their strength at λ 1")
        self.members.show_chips(chips)
        self.narrative.show_text(record.description)

    def _on_switch(self) -> None:
        self.switch_wanted.emit(not self._active)
