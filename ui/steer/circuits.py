"""Circuits: features on several layers with their evidence, one dial over all, a drawing that lights up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from engine.counting import so_many
from engine.events import (
    ActivationObserved,
    CircuitsChanged,
    ClustersChanged,
    Event,
    ModelLoadComplete,
    ModelUnloadComplete,
    SaeAttached,
    SaeDetached,
    SaesChanged,
    SteeringUpdated,
)
from engine.public.library import CircuitRecord, ProfileRecord, ServingMode
from engine.public.saes import AttachSetResult
from engine.public.steering import (
    ActivatedCircuit,
    CircuitLayerContention,
    CircuitView,
    Claim,
    DeactivatedCircuit,
    DeletedCircuit,
    DialledCircuit,
    Hazard,
    Push,
    SteeredSet,
    by_place,
    flatten,
    hazards,
)
from ui.context.page_context import CIRCUITS, FEATURES, PageContext
from ui.kit.basics import Button, label
from ui.kit.flow import Flow
from ui.kit.live_watch import LiveWatch, WatchState
from ui.steer.circuit_card import DRAWING, CircuitCard
from ui.steer.circuit_graph import CircuitGraph, graph_of
from ui.steer.circuit_text import circuit_line, circuit_marks, claim_marks
from ui.steer.cluster_card import show_marks
from ui.steer.contention_dialog import ContentionChoice, ContentionDialog
from ui.steer.item_list import Item
from ui.steer.library_frame import LibraryFrame

LIVE_WORDS = {
    WatchState.IDLE: "Nodes light up once its SAEs are attached.",
    WatchState.CHOSEN: "Nodes light up by their activation at the last token that was read.",
    WatchState.STRONGEST: "Nodes light up while they are among the strongest features that the monitor reads.",
    WatchState.OTHERS: "The monitor watches other features, so nodes do not light up.",
}


@dataclass(frozen=True)
class ShownCircuit:
    """A circuit with its graph, the dangers of what it adds now, the cluster that serves its slice, and how hard it
    pushes where its dial stands, while its SAEs are attached.
    """

    view: CircuitView
    graph: CircuitGraph | None
    hazards: tuple[Hazard, ...] = ()
    cluster: ProfileRecord | None = None
    claims: tuple[Claim, ...] = field(default=())
    pushes: tuple[Push, ...] = ()

    @property
    def record(self) -> CircuitRecord:
        """Its row."""
        return self.view.summary.record

    @property
    def served_by_cluster(self) -> ProfileRecord | None:
        """The cluster whose dial it has now."""
        return self.cluster if self.record.serving_mode is ServingMode.SLICE_FALLBACK else None

    @property
    def intensity(self) -> float:
        """Where its dial stands: the cluster's while that serves, else its own, else what its author wrote."""
        if self.served_by_cluster is not None:
            return self.served_by_cluster.intensity
        if self.record.intensity is not None:
            return self.record.intensity
        authored = self.view.document.intensity if self.view.document is not None else None
        return 1.0 if authored is None else authored

    @property
    def places(self) -> Mapping[tuple[str, int], int]:
        """(sae_id, layer) of what serves each of its layers, to that layer."""
        return {(each.attached, each.layer): each.layer for each in self.view.saes if each.attached is not None}


class CircuitsPage(LibraryFrame[ShownCircuit]):
    """Joins the list, the card and the drawing to the engine."""

    FOLLOWS = (
        CircuitsChanged,
        ClustersChanged,
        SteeringUpdated,
        SaeAttached,
        SaeDetached,
        SaesChanged,
        ModelLoadComplete,
        ModelUnloadComplete,
        ActivationObserved,
    )

    key = CIRCUITS
    title = "Circuits"
    words = "Features on several layers that were found to belong together, how sure anyone is of it, and one dial."
    noun = "circuit"

    def __init__(self, frame: PageContext) -> None:
        super().__init__(frame)
        self.card = CircuitCard()
        self.claims = Flow()
        self.watch = LiveWatch.of(frame.engine, frame.bridge)
        self.watch_button = Button("Watch these", "plain", on_click=self.watch.take_over)
        self.contention: ContentionDialog | None = None
        self._dials: dict[str, float] = {}
        self._closing = False
        self.card.drawing.foot.addWidget(self.watch_button)
        self.card.dialled.connect(self._dial)
        self.card.switch_wanted.connect(self._switch)
        self.card.attach_wanted.connect(self._attach)
        self.card.export_wanted.connect(self._export)
        self.card.delete_wanted.connect(self._delete)
        self.card.drawing.view.opened.connect(self._open_feature)
        self.connect_uses(self.card.uses)
        self.card.tab_changed.connect(lambda _tab: self._watch_chosen())
        self.watch.changed.connect(self._show_watch)
        self.gate_words.setText(
            "There are no circuits yet. Import a document (.circuit.json): with Import…, by pasting it, or by dropping "
            "the file anywhere on this page."
        )
        self.gate.body.insertWidget(0, label("No circuit is chosen", "lead"))
        self.lay_out(self.card, scrolls=False, strip=self.claims)
        self._show_watch()
        self.refresh()

    def on_event(self, event: Event) -> None:
        """Follow the engine, whoever acts on it, and what fires."""
        if isinstance(event, ActivationObserved):
            self._light(event)
        else:
            self.refresh()

    def prepare_to_close(self) -> None:
        """Put the monitor back."""
        self._closing = True
        self.watch.release(self)

    def fetch(self) -> Sequence[tuple[str, ShownCircuit]]:
        """Every circuit as it stands now."""
        engine = self._engine
        claims = engine.circuits.claims()
        return [(each.summary.record.id, self._shown(each, claims)) for each in engine.circuits.views()]

    def row(self, key: str, view: ShownCircuit) -> Item:
        """Name, evidence and state, layers and edges."""
        return Item(key, view.record.name, circuit_line(view.view), circuit_marks(view.view))

    def is_active(self, view: ShownCircuit) -> bool:
        """Whether it serves."""
        return view.record.is_active

    def show_view(self, view: ShownCircuit) -> None:
        """Show the chosen circuit."""
        record = view.record
        if record.is_active:
            self._dials.pop(record.id, None)
        intensity = self._dials.get(record.id, view.intensity)
        cluster = None if view.cluster is None else view.cluster.name
        # What was computed goes by the stored dial; while another stands there, nothing is said.
        pushes = view.pushes if intensity == view.intensity else ()
        self.card.show_view(view.view, view.graph, intensity, view.hazards, cluster, pushes)

    def _show_chosen(self) -> None:
        super()._show_chosen()
        first = next(iter(self.views.values()), None)
        show_marks(self.claims, claim_marks(first.claims) if first is not None else ())
        self._watch_chosen()

    def _shown(self, view: CircuitView, claims: tuple[Claim, ...]) -> ShownCircuit:
        record, engine = view.summary.record, self._engine
        cluster = None
        if record.slice_profile_id is not None:
            cluster = engine.library.profiles.get(record.slice_profile_id)
        if view.document is None:
            return ShownCircuit(view, None, (), cluster, claims)
        serving = next((one for one in engine.desk.state.circuits if one.circuit_id == record.id), None)
        found: tuple[Hazard, ...] = ()
        if serving is not None:
            applied = {each.layer: each.values for each in serving.steered()}
            found = hazards(applied, view.document.definition.edges)
        shown = ShownCircuit(view, graph_of(view.document, self._labels(view)), found, cluster, claims)
        return replace(shown, pushes=self._pushes(shown))

    def _pushes(self, shown: ShownCircuit) -> tuple[Push, ...]:
        """What it adds at each layer where its dial stands, once all of them have their SAE."""
        view = shown.view
        if view.document is None or view.verdict is None or any(each.attached is None for each in view.saes):
            return ()
        authored = by_place(flatten(view.document), view.verdict.bindings)
        if shown.served_by_cluster is not None:
            return ()
        return self._engine.hand_steering.pushes(
            [SteeredSet.of(*place, values, shown.intensity) for place, values in authored.items()]
        )

    def _labels(self, view: CircuitView) -> dict[tuple[int, int], str]:
        """The library's labels for features that the document does not name."""
        if view.document is None:
            return {}
        found: dict[tuple[int, int], str] = {}
        for each in view.saes:
            sae_id = each.attached or each.available
            if sae_id is None:
                continue
            unnamed = [
                feature.feature_idx
                for member in view.document.definition.members
                if member.layer == each.layer
                for feature in member.features
                if not feature.label
            ]
            if unnamed:
                labels = self._engine.library.labels.of(sae_id, unnamed)
                found |= {(each.layer, index): known.label for index, known in labels.items()}
        return found

    # --- live light -------------------------------------------------------------------------------------------------

    def _watch_chosen(self) -> None:
        """The monitor reads the features of the drawing that is open, and nothing for its sake when none is."""
        view = self.view
        drawn = self.card.pages.currentIndex() == DRAWING and self.stack.currentIndex() == 1
        if self._closing or view is None or view.graph is None or not drawn or not view.places:
            self.watch.release(self)
        else:
            layers = set(view.places.values())
            wanted = {
                node.index for node in view.graph.nodes.values() if node.index is not None and node.layer in layers
            }
            self.watch.want(self, wanted)
        self._show_watch()

    def _show_watch(self) -> None:
        state = self.watch.state
        self.card.drawing.show_live(LIVE_WORDS[state])
        self.watch_button.setVisible(state is WatchState.OTHERS)
        if state in (WatchState.IDLE, WatchState.OTHERS):
            for item in self.card.drawing.view.nodes.values():
                item.light(None)

    def _light(self, event: ActivationObserved) -> None:
        view = self.view
        layer = None if view is None else view.places.get((event.sae_id, event.layer))
        if layer is not None and self.watch.state in (WatchState.CHOSEN, WatchState.STRONGEST):
            self.card.drawing.view.light(layer, {each.idx: each.value for each in event.features})

    # --- in force ---------------------------------------------------------------------------------------------------

    def _dial(self, intensity: float) -> None:
        view = self.view
        if view is None:
            return
        record, cluster = view.record, view.served_by_cluster
        if not record.is_active:
            # Nothing of it is stored before it serves: what is on the dial goes along with the activation.
            self._dials[record.id] = intensity
            return
        if cluster is not None:
            self.turn(self.card.dial, partial(self._engine.clusters.set_intensity, cluster.id, intensity))
            return

        def done(result: DialledCircuit) -> None:
            self.say_warnings(result.warnings)

        self.turn(
            self.card.dial,
            partial(
                self._engine.circuits.set_intensity,
                intensity,
                circuit_id=record.id,
                acknowledge_unvalidated=self.card.acknowledged,
            ),
            done,
        )

    def _switch(self, on: bool) -> None:
        view = self.view
        if view is None:
            return
        if on:
            self.activate(view)
        else:

            def done(_result: DeactivatedCircuit) -> None:
                self.notice.hide()

            self.run(partial(self._engine.circuits.deactivate, view.record.id), done)

    def activate(self, view: ShownCircuit, *, share: bool = False, stopped: tuple[str, ...] = ()) -> None:
        """Serve a circuit at what its dial says; where layers are taken, ask. ``stopped`` are those that made way."""
        record = view.record
        intensity = self._dials.get(record.id, view.intensity)
        task: Callable[[], ActivatedCircuit] = partial(
            self._engine.circuits.activate,
            record.id,
            acknowledge_unvalidated=self.card.acknowledged,
            allow_layer_overlap=share,
            intensity=intensity,
        )

        def done(result: ActivatedCircuit) -> None:
            self._dials.pop(record.id, None)
            gone = (f"Deactivated for it: {', '.join(stopped)}.",) if stopped else ()
            self.say_warnings((*gone, *result.warnings))

        def refused(error: Exception) -> None:
            if isinstance(error, CircuitLayerContention):
                self._ask(view, error, stopped)
            else:
                self.say_error(error)

        self.run(task, done, refused)

    def _ask(self, view: ShownCircuit, error: CircuitLayerContention, stopped: tuple[str, ...]) -> None:
        dialog = ContentionDialog(error, stopped, self)

        def decided() -> None:
            if dialog.choice is ContentionChoice.DEACTIVATE:
                self._make_way(view, dialog.incumbents, stopped)
            elif dialog.choice is ContentionChoice.COMPOSE:
                self.activate(view, share=True, stopped=stopped)
            elif stopped:
                self.say(f"Not activated. Stopped meanwhile: {', '.join(stopped)}.", "warn")
            dialog.deleteLater()

        dialog.finished.connect(decided)
        self.contention = dialog
        dialog.open()

    def _make_way(self, view: ShownCircuit, incumbents: tuple[tuple[str, str], ...], stopped: tuple[str, ...]) -> None:
        circuits = self._engine.circuits

        def task() -> None:
            for circuit_id, _name in incumbents:
                circuits.deactivate(circuit_id)

        def done(_none: object) -> None:
            self.activate(view, stopped=(*stopped, *(name for _id, name in incumbents)))

        self.run(task, done)

    def _open_feature(self, layer: int, index: int) -> None:
        """Show a node's feature, where its layer has its SAE."""
        places = {} if self.view is None else {found: sae_id for (sae_id, _at), found in self.view.places.items()}
        if layer in places:
            self._frame.go(FEATURES, sae_id=places[layer], layer=layer, feature=index)
        else:
            self.say(f"Attach the SAE of layer {layer} first; then its features can be looked at.", "warn")

    # --- SAEs and documents -----------------------------------------------------------------------------------------

    def _attach(self) -> None:
        view = self.view
        if view is None:
            return
        attachments, items, missing = self._engine.attachments, view.view.to_attach, view.view.missing
        self.card.attach_button.setEnabled(False)
        self.say(f"Attaching {so_many(len(items), 'SAE')}…")

        def done(result: AttachSetResult) -> None:
            self.card.attach_button.setEnabled(True)
            warnings = [each for entry in result.entries for each in entry.warnings]
            if missing:
                layers = ", ".join(str(each.layer) for each in missing)
                warnings.append(f"Nothing in the library fits layer {layers}.")
            self.say_warnings(warnings)

        def refused(error: Exception) -> None:
            self.card.attach_button.setEnabled(True)
            self.say_error(error)

        self.run(lambda: attachments.attach_set(items), done, refused, key=("attach set", *items))

    def _export(self) -> None:
        if self.view is not None:
            record = self.view.record
            self.export(record.name, partial(self._engine.circuits.export, record.id))

    def _delete(self) -> None:
        view = self.view
        if view is None:
            return
        circuits, record, cluster = self._engine.circuits, view.record, view.cluster

        def done(result: DeletedCircuit) -> None:
            also = cluster if result.slice_profile_id is not None else None
            words = f"“{record.name}” is deleted."
            if also is not None:
                words += f" The cluster that was cut from it, “{also.name}”, went with it."
            self.offer_undo(words, record.id, partial(circuits.restore, record, also))

        self.run(lambda: circuits.delete(record.id), done, key=("delete circuit", record.id))
