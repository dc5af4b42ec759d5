"""Steering by hand: SAEs are attached on the right, features of the attached ones have their dials on the left."""

from __future__ import annotations

from datetime import date
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import QBoxLayout, QFileDialog, QFrame, QScrollArea

from engine.engine import Engine
from engine.events import (
    ActivationObserved,
    CircuitsChanged,
    Event,
    ModelLoadComplete,
    ModelUnloadComplete,
    SaeAttached,
    SaeDetached,
    SaesChanged,
    SteeringUpdated,
)
from engine.public.library import FeatureLabel, SaeRecord
from engine.public.saes import Attachment, AttachResult, DetachResult
from engine.public.steering import AttachmentKey, LiveState, ProfileSummary
from ui.context.page import Page
from ui.context.page_context import CHAT, HOME, PageContext
from ui.kit import theme
from ui.kit.basics import Button, Card, column, label, line
from ui.kit.feature_picker import FeaturePicker
from ui.kit.live_watch import LiveWatch, WatchState
from ui.kit.scroll_page import page_ground
from ui.kit.steer_targets import TargetKind
from ui.kit.steering_text import place_words
from ui.kit.switch import Switch
from ui.kit.text import describe_error
from ui.steer.attachment_card import AttachmentCard
from ui.steer.sae_shelf import SaeShelf

CONTENT_WIDTH = 1240
TWO_COLUMNS = 860
"""From this page width on, dials and SAEs stand side by side."""

STEPS = (
    (
        "Attach an SAE",
        "It was trained to take one layer's inner state apart into features: directions that each tend to stand for "
        "something.",
    ),
    (
        "Add a feature and turn its dial",
        "The strength times the feature's direction is added to that layer at every token. Right is more of it, left "
        "is less. Begin small: the note beside it says how much is added beside what is there, and the more it is, "
        "the sooner text falls apart.",
    ),
    (
        "Ask in Chat",
        "The answer says below what was really added to it. Switch steering off in the bar and ask again to see the "
        "difference.",
    ),
)
"""For those who have never steered."""

Known = tuple[dict[int, FeatureLabel], dict[int, float], float | None]


class SteeringPage(Page, QScrollArea):
    """Joins the cards to the engine; what steers is read from the desk, never kept here."""

    FOLLOWS = (
        SteeringUpdated,
        SaeAttached,
        SaeDetached,
        CircuitsChanged,
        ModelLoadComplete,
        ModelUnloadComplete,
        SaesChanged,
        ActivationObserved,
    )

    def __init__(self, frame: PageContext) -> None:
        super().__init__()
        self._engine = frame.engine
        self._bridge = frame.bridge
        self._go = frame.go
        self._hand = hand = frame.hand
        self.setObjectName("page")
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.cards: dict[AttachmentKey, AttachmentCard] = {}
        self.shelf = SaeShelf()
        self.undo_button = Button("Undo", "plain", "undo", hand.undo)
        self.undo_button.setToolTip("Take the last change made here back (Ctrl+Z)")
        shortcut = QShortcut(QKeySequence(QKeySequence.StandardKey.Undo), self)
        # While this page is in front, also with the keyboard in the navigation; a field takes Ctrl+Z for itself.
        shortcut.setContext(Qt.ShortcutContext.WindowShortcut)
        shortcut.activated.connect(self.undo_button.click)
        self.gate = Card()
        self.gate_words = label("", "muted", wrap=True)
        self.gate_button = Button("Go to Home", "primary", on_click=partial(frame.go, HOME))
        self.folder_dialog: QFileDialog | None = None
        self._asked: dict[AttachmentKey, frozenset[int]] = {}
        self.watch = LiveWatch.of(frame.engine, frame.bridge)
        self.live_switch = Switch("Live activations: read what the steered features do at every token")
        self.live_words = label("Live activations", "muted")
        self.live_button = Button("Watch these", "plain", on_click=self.watch.take_over)
        self.live_switch.clicked.connect(lambda _on: self._watch())
        self.watch.changed.connect(self._show_watch)
        self._build()
        self.shelf.attach.connect(self.attach)
        self.shelf.detach.connect(self.detach)
        self.shelf.add_folder.connect(self._pick_folder)
        hand.settled.connect(self.refresh)
        hand.failed.connect(self._on_refused)
        self._refresh_saes()
        self.refresh()

    def on_event(self, event: Event) -> None:
        """Follow the engine, whoever acts on it."""
        match event:
            case SteeringUpdated() | SaeAttached() | SaeDetached() | CircuitsChanged():
                self.refresh()
            case ModelLoadComplete() | ModelUnloadComplete():
                self._refresh_saes()
                self.refresh()
            case SaesChanged():
                self._asked.clear()
                self._refresh_saes()
                self.refresh()
            case ActivationObserved():
                self._light(event)

    def refresh(self) -> None:
        """Show what the desk says now."""
        now = self._engine.desk.now
        state, plan = now.state, now.plan
        attachments = {(each.sae_id, each.layer): each for each in state.attachments}
        for place in [place for place in self.cards if place not in attachments]:
            card = self.cards.pop(place)
            self._asked.pop(place, None)
            self._dials.removeWidget(card)
            card.hide()
            card.deleteLater()
        for place, attachment in attachments.items():
            if place not in self.cards:
                self.cards[place] = self._make_card(place, attachment.sae.config.d_sae)
                self._dials.insertWidget(self._dials.count() - 1, self.cards[place])
            entry = state.entry(place)
            pending = {index for index in entry.values if self._hand.pending(place, index)}
            self.cards[place].show_entry(entry, pending, _shared(state, place))
            self.cards[place].show_added(plan.lengths.get(place[1]))
            self._ask_known(place, attachment, frozenset(entry.values))
        loaded = self._engine.shelf.resident is not None
        self.shelf.show_state(attachments, loaded=loaded)
        self.gate.setVisible(not attachments)
        self.gate_button.setVisible(not loaded)
        self.gate_words.setText(
            "Attach an SAE on the right: its features get their dials here."
            if loaded
            else "No model is loaded. Load one first; then three steps lead to a steered answer."
        )
        self.undo_button.setEnabled(self._hand.can_undo)
        self.live_switch.setEnabled(bool(attachments))
        self._watch()

    def prepare_to_close(self) -> None:
        """Put the monitor back."""
        self.live_switch.setChecked(False)
        self.watch.release(self)

    # --- live activations -------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """While the switch is on, the monitor reads the features that are set by hand."""
        state = self._engine.desk.state
        wanted = {index for entry in state.entries.values() for index in entry.values}
        if self.live_switch.isChecked() and wanted and state.attachments:
            self.watch.want(self, wanted)
        else:
            self.watch.release(self)
        self._show_watch()

    def _show_watch(self) -> None:
        on, state = self.live_switch.isChecked(), self.watch.state
        words = "Live activations"
        if on and state is WatchState.OTHERS:
            words = "The monitor watches other features"
        elif on and state is WatchState.STRONGEST:
            words = "Live activations, while among the strongest"
        self.live_words.setText(words)
        self.live_button.setVisible(on and state is WatchState.OTHERS)
        if not on or state in (WatchState.IDLE, WatchState.OTHERS):
            for card in self.cards.values():
                card.show_activations(None)

    def _light(self, event: ActivationObserved) -> None:
        card = self.cards.get((event.sae_id, event.layer))
        live = self.watch.state in (WatchState.CHOSEN, WatchState.STRONGEST)
        if card is not None and live and self.live_switch.isChecked():
            card.show_activations({each.idx: each.value for each in event.features})

    # --- SAEs -------------------------------------------------------------------------------------------------------

    def attach(self, sae_id: str, layer: int | None) -> None:
        """Attach an SAE, at its own layer where ``layer`` is None."""
        attachments = self._engine.attachments
        self._begin(sae_id)
        self._bridge.run_once(
            ("attach", sae_id, layer),
            lambda: attachments.attach(sae_id, layer),
            self._on_attached,
            self._on_sae_error,
            owner=self,
        )

    def detach(self, sae_id: str) -> None:
        """Detach an SAE from every layer."""
        attachments = self._engine.attachments
        self._begin(sae_id)
        self._bridge.run_once(
            ("detach", sae_id), lambda: attachments.detach(sae_id), self._on_detached, self._on_sae_error, owner=self
        )

    def import_folder(self, folder: str) -> None:
        """Add the SAE in ``folder``, by reference; it is measured where the model fits."""
        saes = self._engine.saes
        self._begin("")
        self.shelf.notice.show_words(f"Reading {folder}…", "info")
        self._bridge.run_once(
            ("import SAE", folder),
            lambda: saes.import_local(Path(folder)),
            self._on_imported,
            self._on_sae_error,
            owner=self,
        )

    def _begin(self, sae_id: str) -> None:
        self.shelf.notice.hide()
        self.shelf.show_work(sae_id)

    def _on_attached(self, result: AttachResult) -> None:
        self.shelf.show_work(None)
        if result.warnings:
            self.shelf.notice.show_words(" ".join(result.warnings), "warn")
        self.refresh()

    def _on_detached(self, result: DetachResult) -> None:
        self.shelf.show_work(None)
        if not result.unused:
            self.shelf.notice.show_words(
                f"{result.sae_id} is detached; an answer that still runs with it finishes first.", "info"
            )
        self.refresh()

    def _on_imported(self, outcome: tuple[SaeRecord, bool]) -> None:
        record, new = outcome
        self.shelf.show_work(None)
        words = f"{record.id} is imported." if new else f"{record.id} is here already."
        if record.assumed:
            words += f" Assumed, since its files do not say: {', '.join(record.assumed)}."
        self.shelf.notice.show_words(words, "info")
        self._refresh_saes()

    def _on_sae_error(self, error: Exception) -> None:
        self.shelf.show_work(None)
        self.shelf.notice.show_words(describe_error(error))
        self._refresh_saes()

    def _pick_folder(self) -> None:
        dialog = QFileDialog(self, "Choose the folder of an SAE")
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly, True)
        dialog.fileSelected.connect(self.import_folder)
        dialog.finished.connect(dialog.deleteLater)
        self.folder_dialog = dialog
        dialog.open()

    def _refresh_saes(self) -> None:
        self._bridge.run_in_background(self._engine.saes.list, self.shelf.show_saes, self._on_list_error, owner=self)

    def _on_list_error(self, error: Exception) -> None:
        self.shelf.notice.show_words(describe_error(error))

    # --- dials ------------------------------------------------------------------------------------------------------

    def _make_card(self, place: AttachmentKey, d_sae: int) -> AttachmentCard:
        card = AttachmentCard(place, d_sae)
        hand = self._hand
        card.added.connect(partial(hand.set_values, place))
        card.changed.connect(partial(hand.set_value, place))
        card.removed.connect(partial(hand.remove, place))
        card.cleared.connect(partial(hand.clear, place))
        card.switched.connect(partial(hand.switch, place))
        card.save_begun.connect(partial(self._begin_save, card))
        card.save_wanted.connect(partial(self._save, card))
        card.find_wanted.connect(partial(self._open_finder, card, d_sae))
        return card

    def _open_finder(self, card: AttachmentCard, d_sae: int) -> None:
        place = card.place
        picker = FeaturePicker(self._engine, self._bridge)
        picker.set_place(place[0], place[1], d_sae)
        picker.picked.connect(lambda _sae_id, _layer, index: self._add_found(place, index))
        card.put_finder(picker)

    def _add_found(self, place: AttachmentKey, index: int) -> None:
        """A feature that was found is added; one that is there keeps its strength."""
        if index not in self._engine.desk.state.entry(place).values:
            self._hand.set_values(place, {index: None})

    def _on_refused(self, place: AttachmentKey | None, error: Exception) -> None:
        card = self.cards.get(place) if place is not None else None
        if card is not None:
            card.say_error(error)
        else:
            self._bridge.failed.emit(error)

    def _begin_save(self, card: AttachmentCard) -> None:
        resident = self._engine.shelf.resident
        model = resident.record.name if resident is not None else "model"
        card.begin_save(f"{model}-steering-{date.today().isoformat()}")

    def _save(self, card: AttachmentCard, name: str) -> None:
        profiles, (sae_id, layer) = self._engine.profiles, card.place

        def refused(error: Exception) -> None:
            if self.cards.get(card.place) is card:
                card.say_error(error)

        def saved(profile: ProfileSummary) -> None:
            if self.cards.get(card.place) is card:
                compare = partial(self._go, CHAT, compare=True, steer=(TargetKind.PROFILE.value, profile.record.id))
                card.end_save(f"Saved as the profile {name}.", Button("Compare with it", "quiet", on_click=compare))

        self._bridge.run_once(
            ("save profile", name),
            lambda: profiles.save_current(
                name, f"Set by hand on {place_words(card.place)}.", sae_id=sae_id, layer=layer
            ),
            saved,
            refused,
            owner=self,
        )

    def _ask_known(self, place: AttachmentKey, attachment: Attachment, indices: frozenset[int]) -> None:
        """Fetch labels and lengths when the features are others than those asked for last."""
        if self._asked.get(place) == indices:
            return
        self._asked[place] = indices

        def shown(known: Known) -> None:
            card = self.cards.get(place)
            if card is not None and self._asked.get(place) == indices:
                card.show_known(*known)

        self._bridge.run_in_background(
            partial(_known, self._engine, attachment, indices), shown, self._on_list_error, owner=self
        )

    # --- layout -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        self.gate.body.addWidget(label("Steer by hand", "lead"))
        self.gate.body.addWidget(self.gate_words)
        for number, (title, words) in enumerate(STEPS, 1):
            mark = label(str(number), "step")
            mark.setFixedSize(26, 26)
            mark.setAlignment(Qt.AlignmentFlag.AlignCenter)
            told = column(spacing=1)
            told.addWidget(label(title, "strong"))
            told.addWidget(label(words, "muted", wrap=True))
            step = line(spacing=theme.M)
            step.addWidget(mark, 0, Qt.AlignmentFlag.AlignTop)
            step.addLayout(told, 1)
            self.gate.body.addLayout(step)
        self.gate.body.addLayout(line(self.gate_button, None))
        texts = column(spacing=1)
        texts.addWidget(label("Steering", "title"))
        texts.addWidget(
            label(
                "What you set here is added to every answer that is being written, from its next token on.",
                "muted",
                wrap=True,
            )
        )
        head = line()
        head.addLayout(texts, 1)
        for part in (self.live_words, self.live_switch, self.live_button, self.undo_button):
            head.addWidget(part, 0, Qt.AlignmentFlag.AlignVCenter)
        self._dials = column(spacing=theme.L)
        self._dials.addWidget(self.gate)
        self._dials.addStretch(1)
        shelf = column(spacing=0)
        shelf.addWidget(self.shelf)
        shelf.addStretch(1)
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(theme.L)
        self._columns.addLayout(self._dials, 3)
        self._columns.addLayout(shelf, 2)
        inside = column(spacing=theme.L)
        inside.addLayout(head)
        inside.addLayout(self._columns)
        inside.addStretch(1)
        self.setWidget(page_ground(inside, CONTENT_WIDTH))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side where there is room, one under the other where there is not."""
        super().resizeEvent(event)
        wide = self.width() >= TWO_COLUMNS
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)


def _shared(state: LiveState, place: AttachmentKey) -> str:
    names = [one.name for one in state.circuits if place in one.authored]
    return f"Also steered here by the circuit {', '.join(names)}." if names else ""


def _known(engine: Engine, attachment: Attachment, indices: frozenset[int]) -> Known:
    """Labels, lengths of decoder rows, and the stream's typical length where it was measured at this very layer."""
    labels = engine.library.labels.of(attachment.sae_id, indices)
    norms = {index: float(attachment.sae.delta({index: 1.0}).norm()) for index in indices}
    return labels, norms, engine.hand_steering.typical_norm(attachment.sae_id, attachment.layer)
