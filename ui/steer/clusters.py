"""Clusters: steering that came as documents, each with one dial over all its features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from engine.events import (
    CircuitsChanged,
    ClustersChanged,
    Event,
    ModelLoadComplete,
    ModelUnloadComplete,
    ProfilesChanged,
    SaeAttached,
    SaeDetached,
    SaesChanged,
    SteeringUpdated,
)
from engine.public.library import FeatureLabel, ProfileRecord
from engine.public.saes import AttachResult
from engine.public.steering import ActivatedProfile, ClusterView, DeactivatedProfile, Push, SteeredSet
from ui.context.page_context import CLUSTERS, PageContext
from ui.kit.basics import label
from ui.steer.cluster_card import ClusterCard
from ui.steer.cluster_text import cluster_line, cluster_marks
from ui.steer.item_list import Item
from ui.steer.library_frame import LibraryFrame


@dataclass(frozen=True)
class LabelledCluster:
    """A cluster with the library's labels for those of its features that its document does not name.

    ``pushes``: what it adds where its dial stands, while its SAE is attached.
    """

    view: ClusterView
    labels: Mapping[int, FeatureLabel] = field(default_factory=dict)
    pushes: tuple[Push, ...] = ()


class ClustersPage(LibraryFrame[LabelledCluster]):
    """Joins the list and the card to the engine."""

    FOLLOWS = (
        ClustersChanged,
        ProfilesChanged,
        CircuitsChanged,
        SteeringUpdated,
        SaeAttached,
        SaeDetached,
        SaesChanged,
        ModelLoadComplete,
        ModelUnloadComplete,
    )

    key = CLUSTERS
    title = "Clusters"
    words = "Features that belong together, on one layer, under one dial. One cluster or profile is active at a time."
    noun = "cluster"

    def __init__(self, frame: PageContext) -> None:
        super().__init__(frame)
        self.card = ClusterCard()
        self.card.dialled.connect(self._dial)
        self.card.switch_wanted.connect(self._switch)
        self.card.export_wanted.connect(self._export)
        self.card.delete_wanted.connect(self._delete)
        self.card.attach_wanted.connect(self._attach)
        self.connect_uses(self.card.uses)
        self.gate_words.setText(
            "There are no clusters yet. Import a document (.cluster.json): with Import…, by pasting it, or by dropping "
            "the file anywhere on this page."
        )
        self.gate.body.insertWidget(0, label("No cluster is chosen", "lead"))
        self.lay_out(self.card)
        self.refresh()

    def on_event(self, event: Event) -> None:
        """Follow the engine, whoever acts on it."""
        self.refresh()

    def fetch(self) -> Sequence[tuple[str, LabelledCluster]]:
        """Every cluster as it stands now."""
        return [(each.summary.record.id, self._labelled(each)) for each in self._engine.clusters.views()]

    def row(self, key: str, view: LabelledCluster) -> Item:
        """Name, state words, and size with λ."""
        return Item(key, view.view.summary.record.name, cluster_line(view.view), cluster_marks(view.view))

    def is_active(self, view: LabelledCluster) -> bool:
        """Whether it steers."""
        return view.view.summary.record.is_active

    def show_view(self, view: LabelledCluster) -> None:
        """Show the chosen cluster."""
        self.card.show_view(view.view, view.labels, view.pushes)

    def _labelled(self, view: ClusterView) -> LabelledCluster:
        record = view.summary.record
        unnamed = [index for index, name, _strength in view.summary.members if not name]
        sae = None if view.verdict is None else view.verdict.binding.sae
        pushes: tuple[Push, ...] = ()
        if sae is not None:
            pushes = self._engine.hand_steering.pushes(
                [SteeredSet.of(sae.sae_id, sae.layer, record.steering, record.intensity)]
            )
        labels: Mapping[int, FeatureLabel] = {}
        if unnamed and record.sae_id is not None:
            labels = self._engine.library.labels.of(record.sae_id, unnamed)
        return LabelledCluster(view, labels, pushes)

    # --- doing ------------------------------------------------------------------------------------------------------

    @property
    def record(self) -> ProfileRecord | None:
        """The chosen cluster's row."""
        return None if self.view is None else self.view.view.summary.record

    def _dial(self, intensity: float) -> None:
        record = self.record
        if record is not None:
            self.turn(self.card.dial, partial(self._engine.clusters.set_intensity, record.id, intensity))

    def _switch(self, on: bool) -> None:
        record = self.record
        if record is None:
            return
        clusters = self._engine.clusters

        def done(result: ActivatedProfile | DeactivatedProfile) -> None:
            self.say_warnings(result.warnings)

        self.run(partial(clusters.activate if on else clusters.deactivate, record.id), done)

    def _attach(self) -> None:
        place = None if self.view is None else self.view.view.to_attach
        if place is None:
            return
        attachments, (sae_id, layer) = self._engine.attachments, place
        self.card.attach_button.setEnabled(False)

        def done(result: AttachResult) -> None:
            self.card.attach_button.setEnabled(True)
            self.say_warnings(result.warnings)

        def refused(error: Exception) -> None:
            self.card.attach_button.setEnabled(True)
            self.say_error(error)

        self.say(f"Attaching {sae_id}…")
        self.run(lambda: attachments.attach(sae_id, layer), done, refused, key=("attach", sae_id, layer))

    def _export(self) -> None:
        record = self.record
        if record is not None:
            self.export(record.name, partial(self._engine.clusters.export, record.id))

    def _delete(self) -> None:
        record = self.record
        if record is None:
            return
        engine = self._engine

        def done(result: DeactivatedProfile) -> None:
            words = " ".join((f"“{record.name}” is deleted.", *result.warnings))
            self.offer_undo(words, record.id, partial(engine.profiles.restore, record))

        self.run(lambda: engine.clusters.delete(record.id), done, key=("delete profile", record.id))
