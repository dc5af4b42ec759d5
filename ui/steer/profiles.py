"""Profiles: features and strengths set by hand and kept under a name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial

from PySide6.QtWidgets import QMenu

from engine.events import (
    CircuitsChanged,
    ClustersChanged,
    Event,
    ProfilesChanged,
    SaeAttached,
    SaeDetached,
    SaesChanged,
    SteeringUpdated,
)
from engine.public.library import PROFILE_FIELDS, FeatureLabel, ProfileKind, ProfileRecord, SaeRecord
from engine.public.steering import (
    UNMEASURED_STRENGTH,
    ActivatedProfile,
    AttachmentKey,
    DeactivatedProfile,
    ProfileSummary,
    Push,
    SteeredSet,
    profile_steers,
)
from ui.context.page_context import PROFILES, PageContext
from ui.kit.basics import Button, label
from ui.kit.plain_text import on_button
from ui.kit.steering_text import features, place_words, strength
from ui.steer.item_list import Item
from ui.steer.library_frame import LibraryFrame
from ui.steer.profile_card import ProfileCard, profile_marks
from ui.steer.profile_editor import ProfileDraft, ProfileEditor

EDITOR = 2
"""The editor's place in the stack."""


@dataclass(frozen=True)
class ProfileView:
    """A profile, whether it adds anything now, the library's labels for its features, and how hard it pushes."""

    record: ProfileRecord
    steers: bool
    labels: Mapping[int, FeatureLabel] = field(default_factory=dict)
    pushes: tuple[Push, ...] = ()


def fitting_place(places: Sequence[AttachmentKey], sae_id: str | None, layer: int | None) -> AttachmentKey | None:
    """The first of the attached ``places`` that a profile for this SAE (None: any) and layer would run on."""
    return next((place for place in places if sae_id in (None, place[0]) and layer in (None, place[1])), None)


class ProfilesPage(LibraryFrame[ProfileView]):
    """Joins the list, the card and the editor to the engine."""

    FOLLOWS = (
        ProfilesChanged,
        ClustersChanged,
        CircuitsChanged,
        SteeringUpdated,
        SaeAttached,
        SaeDetached,
        SaesChanged,
    )

    key = PROFILES
    title = "Profiles"
    words = "Features and strengths of your own under a name. One profile or cluster is active at a time."
    noun = "profile"

    def __init__(self, frame: PageContext) -> None:
        super().__init__(frame)
        self.card = ProfileCard()
        self.editor = ProfileEditor()
        self.new_button = Button("New…", "plain", "plus", self.new_profile)
        self.current_button = Button("From current features…", "plain", "dials", self._from_current)
        self.places = QMenu(self)
        self.card.dialled.connect(self._dial)
        self.card.switch_wanted.connect(self._switch)
        self.card.edit_wanted.connect(self._edit)
        self.card.export_wanted.connect(self._export)
        self.card.delete_wanted.connect(self._delete)
        self.connect_uses(self.card.uses)
        self.editor.saved.connect(self._save)
        self.editor.cancelled.connect(self._end_edit)
        self.editor.labels_wanted.connect(self._ask_labels)
        self._editing = False
        self.gate_words.setText(
            "There are no profiles yet. Turn dials on the Steering page and keep them here, write one with New…, or "
            "import a document: with Import…, by pasting it, or by dropping the file anywhere on this page."
        )
        self.gate.body.insertWidget(0, label("No profile is chosen", "lead"))
        self.lay_out(self.card, self.new_button, self.current_button)
        self.stack.addWidget(self.editor)
        self._look_at_current()
        self.refresh()

    def on_event(self, event: Event) -> None:
        """Follow the engine, whoever acts on it."""
        self._look_at_current()
        self.refresh()

    def fetch(self) -> Sequence[tuple[str, ProfileView]]:
        """Every hand-made profile as it stands now."""
        engine = self._engine
        state = engine.desk.state
        active = state.profile.profile_id if state.profile is not None and profile_steers(state) else None
        found = []
        for each in engine.profiles.list(ProfileKind.MANUAL).profiles:
            record = each.record
            known: Mapping[int, FeatureLabel] = {}
            if record.sae_id is not None and record.steering:
                known = engine.library.labels.of(record.sae_id, list(record.steering))
            found.append((record.id, ProfileView(record, record.id == active, known, self._pushes(record))))
        return found

    def _pushes(self, record: ProfileRecord) -> tuple[Push, ...]:
        """What it adds where its dial stands, through the attached SAE that it names; else nothing is said."""
        place = None if record.sae_id is None else fitting_place(self._places(), record.sae_id, record.layer)
        if place is None:
            return ()
        return self._engine.hand_steering.pushes([SteeredSet.of(*place, record.steering, record.intensity)])

    def row(self, key: str, view: ProfileView) -> Item:
        """Name, whether it is active, size and λ."""
        record = view.record
        parts = [features(len(record.steering))]
        if record.layer is not None:
            parts.append(f"layer {record.layer}")
        parts.append(f"λ {strength(record.intensity)}")
        return Item(key, record.name, " · ".join(parts), profile_marks(record, view.steers))

    def is_active(self, view: ProfileView) -> bool:
        """Whether it steers."""
        return view.steers

    def show_view(self, view: ProfileView) -> None:
        """Show the chosen profile."""
        self.card.show_profile(view.record, view.steers, view.labels, view.pushes)

    def _show_chosen(self) -> None:
        super()._show_chosen()
        if self._editing:
            # What a person is writing is not taken from under their hands.
            self.stack.setCurrentIndex(EDITOR)

    # --- making and editing -----------------------------------------------------------------------------------------

    def new_profile(self) -> None:
        """Write a profile from nothing, for the attached SAE where there is just one."""
        places = self._places()
        place = places[0] if len(places) == 1 else None
        sae_id, layer = place if place is not None else (None, None)
        self._begin(ProfileDraft("", model_id=self._model(), sae_id=sae_id, layer=layer))

    def from_place(self, place: AttachmentKey) -> None:
        """Write a profile from what is set by hand at a place."""
        values = dict(self._engine.desk.state.entry(place).values)
        model = self._model()
        name = f"{model or 'model'}-steering-{date.today().isoformat()}"
        self._begin(
            ProfileDraft(
                name,
                description=f"Set by hand on {place_words(place)}.",
                model_id=model,
                sae_id=place[0],
                layer=place[1],
                steering=values,
            )
        )

    def _from_current(self) -> None:
        steered = self._steered()
        if len(steered) == 1:
            self.from_place(steered[0])
            return
        self.places.clear()
        for place in steered:
            number = features(len(self._engine.desk.state.entry(place).values))
            self.places.addAction(on_button(f"{place_words(place)}: {number}"), partial(self.from_place, place))
        self.places.popup(self.current_button.mapToGlobal(self.current_button.rect().bottomLeft()))

    def _edit(self) -> None:
        if self.view is not None:
            self._begin(ProfileDraft.of(self.view.record))

    def _begin(self, draft: ProfileDraft) -> None:
        places = self._places()

        def ready(saes: list[SaeRecord]) -> None:
            self._editing = True
            self.list.setEnabled(False)
            self.stack.setCurrentIndex(EDITOR)
            self.editor.edit(draft, saes, places)

        self._frame.bridge.run_in_background(self._engine.saes.list, ready, self.say_error, owner=self)

    def _end_edit(self) -> None:
        self._editing = False
        self.list.setEnabled(True)
        self._show_chosen()

    def _save(self, draft: ProfileDraft) -> None:
        profiles = self._engine.profiles

        def task() -> ProfileSummary:
            values = {name: getattr(draft, name) for name in PROFILE_FIELDS} | {"steering": self._filled(draft)}
            return profiles.create(**values) if draft.profile_id is None else profiles.update(draft.profile_id, values)

        def done(summary: ProfileSummary) -> None:
            self._end_edit()
            self.select(summary.id)
            self.notice.hide()
            if summary.is_active:
                again = Button("Apply now", "plain", on_click=lambda: self._switch(True))
                self.say("Saved. What steers now is still what it was before.", "info", again)

        self.run(task, done, self.editor.say_error, key=("save profile", draft.profile_id, draft.name))

    def _filled(self, draft: ProfileDraft) -> dict[int, float]:
        """Its strengths, where none is written the one a feature is first tried with."""
        if None not in draft.steering.values():
            return {index: value for index, value in draft.steering.items() if value is not None}
        place = fitting_place(self._places(), draft.sae_id, draft.layer)
        if place is None:
            return {index: UNMEASURED_STRENGTH if value is None else value for index, value in draft.steering.items()}
        return self._engine.hand_steering.with_first_strengths(*place, draft.steering)

    def _ask_labels(self, sae_id: str, indices: tuple[int, ...]) -> None:
        labels = self._engine.library.labels
        self._frame.bridge.run_in_background(
            lambda: labels.of(sae_id, indices), self.editor.show_labels, self.editor.say_error, owner=self
        )

    # --- doing ------------------------------------------------------------------------------------------------------

    @property
    def record(self) -> ProfileRecord | None:
        """The chosen profile."""
        return None if self.view is None else self.view.record

    def _dial(self, intensity: float) -> None:
        record = self.record
        if record is not None:
            self.turn(self.card.dial, partial(self._engine.profiles.set_intensity, record.id, intensity))

    def _switch(self, on: bool) -> None:
        record = self.record
        if record is None:
            return
        profiles = self._engine.profiles

        def done(result: ActivatedProfile | DeactivatedProfile) -> None:
            self.say_warnings(result.warnings)

        self.run(partial(profiles.activate if on else profiles.deactivate, record.id), done)

    def _export(self) -> None:
        record = self.record
        if record is not None:
            self.export(record.name, partial(self._engine.profiles.export, record.id))

    def _delete(self) -> None:
        record = self.record
        if record is None:
            return
        profiles = self._engine.profiles

        def done(result: DeactivatedProfile) -> None:
            words = " ".join((f"“{record.name}” is deleted.", *result.warnings))
            self.offer_undo(words, record.id, partial(profiles.restore, record))

        self.run(lambda: profiles.delete(record.id), done, key=("delete profile", record.id))

    # --- what is set now --------------------------------------------------------------------------------------------

    def _look_at_current(self) -> None:
        steered = self._steered()
        self.current_button.setEnabled(bool(steered))
        self.current_button.setToolTip(
            "Keep what is set by hand now as a profile"
            if steered
            else "Nothing is set by hand: turn a dial on the Steering page first"
        )

    def _places(self) -> list[AttachmentKey]:
        return [(each.sae_id, each.layer) for each in self._engine.desk.state.attachments]

    def _steered(self) -> list[AttachmentKey]:
        state = self._engine.desk.state
        return [place for place in self._places() if state.entry(place).values]

    def _model(self) -> str | None:
        resident = self._engine.shelf.resident
        return None if resident is None else resident.record.name
