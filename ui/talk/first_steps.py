"""The first steps of the first page: what is done, what comes next, and the one click for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal, Slot
from PySide6.QtWidgets import QWidget

from engine.counting import plural
from engine.engine import Engine
from engine.events import (
    ClustersChanged,
    ConversationsChanged,
    Event,
    ModelLoadComplete,
    ModelLoadError,
    ModelLoadProgress,
    ModelsChanged,
    ModelUnloadComplete,
    SaeAttached,
    SaeDetached,
    SaesChanged,
)
from engine.public.library import ModelRecord, ModelSource
from ui.context.demo_install import suggestion
from ui.context.page_context import CHAT, GROUPS, SAES, STEERING, PageContext
from ui.context.services import DemoFacts
from ui.kit.first_steps import FirstSteps
from ui.kit.text import describe_error
from ui.talk.report_dialog import ReportDialog

COMPARED_KEY = "has_compared"
"""Set in the library's state once a comparison was written."""
SETTLE_MS = 80


@dataclass(frozen=True)
class StepsStanding:
    """What the library holds of what the steps need. ``cluster`` is the id of the one that shows the dial.

    ``older_pack``: the demo's SAEs and documents there are of an earlier version than the program's.
    """

    models: tuple[ModelRecord, ...]
    demo_set: bool
    older_pack: bool
    cluster: str | None
    compared: bool

    @property
    def demo_model(self) -> ModelRecord | None:
        """The demo model that can be steered, where it is installed."""
        there = [each for each in self.models if each.source is ModelSource.DEMO]
        return suggestion(there)


def read_standing(engine: Engine, facts: DemoFacts | None) -> StepsStanding:
    """Ask the library; for a background thread."""
    there = facts is not None and engine.library.attach_sets.get(facts.attach_set) is not None
    older = facts is not None and facts.is_older is not None and facts.is_older(engine.library)
    cluster = None
    if facts is not None:
        found = {each.record.name: each.record.id for each in engine.clusters.list().clusters}
        cluster = found.get(facts.cluster)
    return StepsStanding(
        tuple(engine.shelf.list()), there, older, cluster, bool(engine.library.state.get(COMPARED_KEY))
    )


class FirstStepsGuide(QObject):
    """Fills the card and carries its buttons out; loading is the page's, installing the window's."""

    FOLLOWS = (
        ModelLoadComplete,
        ModelLoadError,
        ModelLoadProgress,
        ModelUnloadComplete,
        ModelsChanged,
        SaeAttached,
        SaeDetached,
        SaesChanged,
        ClustersChanged,
        ConversationsChanged,
    )

    load_wanted = Signal(int)
    known = Signal()
    """How things stand was read."""
    failed = Signal(object)

    def __init__(self, frame: PageContext, card: FirstSteps, page: QWidget) -> None:
        super().__init__(page)
        self._frame = frame
        self._engine = frame.engine
        self._bridge = frame.bridge
        self._facts = frame.services.demo
        self._demo = frame.demo
        self._card = card
        self._page = page
        self._standing: StepsStanding | None = None
        self._attaching = False
        self._asked = 0
        self._then: list[Callable[[], None]] = []
        self.dialog: ReportDialog | None = None
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SETTLE_MS)
        self._timer.timeout.connect(lambda: self.refresh())
        card.load.wanted.connect(self._on_load)
        card.attach.wanted.connect(self._on_attach)
        card.dial.wanted.connect(self.compare)
        card.report.connect(self.show_report)
        self._demo.changed.connect(self._show)
        self._show()
        self.refresh()

    def on_event(self, event: Event) -> None:
        """Look again when something a step needs has changed."""
        if isinstance(event, self.FOLLOWS):
            self._show()
            self._timer.start()

    def refresh(self, then: Callable[[], None] | None = None) -> None:
        """Ask the library anew; ``then`` is called once how things stand is known."""
        if then is not None:
            self._then.append(then)
        self._asked += 1
        asked, engine, facts = self._asked, self._engine, self._facts

        def told(standing: StepsStanding) -> None:
            if asked == self._asked:
                self._standing = standing
                self._show()
                self.known.emit()
                waiting, self._then = self._then, []
                for each in waiting:
                    each()

        self._bridge.run_in_background(lambda: read_standing(engine, facts), told, self.failed.emit, owner=self)

    @property
    def all_done(self) -> bool | None:
        """Whether there is nothing left to do first; None until that is known."""
        return None if self._standing is None else self._standing.compared

    def show_report(self) -> None:
        """Open what was measured of the demo pack."""
        report = None if self._facts is None else self._facts.report
        if report is None:
            return
        dialog = ReportDialog("The demo pack: what was measured", report.parent, self._page)
        self.dialog = dialog
        dialog.show()
        self._bridge.run_in_background(
            lambda: report.read_text(encoding="utf-8"),
            dialog.show_text,
            lambda error: dialog.show_problem(describe_error(error)),
            owner=dialog,
        )

    # --- what the buttons do ----------------------------------------------------------------------------------------

    def _to_load(self) -> ModelRecord | None:
        standing = self._standing
        return None if standing is None else standing.demo_model or suggestion(list(standing.models))

    def _on_load(self) -> None:
        record = self._to_load()
        if record is not None:
            self.load_wanted.emit(record.id)
        else:
            self._demo.begin()

    def _on_attach(self) -> None:
        if self._pack_missing or self._pack_older:
            self._demo.begin(ready=False)
            return
        if self._facts is None or not self._fits_demo:
            self._frame.go(SAES if SAES in _pages() else STEERING)
            return
        attachments, name = self._engine.attachments, self._facts.attach_set
        self._attaching = True
        self._show()

        def ended(error: Exception | None) -> None:
            self._attaching = False
            if error is not None:
                self.failed.emit(error)
            self.refresh()

        self._bridge.run_once(
            ("attach set", name),
            lambda: attachments.attach_saved_set(name),
            lambda _result: ended(None),
            ended,
            owner=self,
        )

    def compare(self) -> None:
        """Open the chat for a comparison, with the demo's question and cluster where they fit."""
        standing, facts = self._standing, self._facts
        if facts is not None and standing is not None and standing.cluster is not None and self._fits_demo:
            self._frame.go(
                CHAT,
                compare=True,
                steer=("cluster", standing.cluster),
                intensity=facts.intensity,
                prompt=facts.prompt,
            )
        else:
            self._frame.go(CHAT, compare=True)

    # --- how things stand -------------------------------------------------------------------------------------------

    @property
    def _fits_demo(self) -> bool:
        """Whether the resident model is the demo's and its pack is in the library."""
        resident, standing = self._engine.shelf.resident, self._standing
        if resident is None or standing is None or not standing.demo_set:
            return False
        demo = standing.demo_model
        return demo is not None and resident.record.id == demo.id

    @property
    def _pack_missing(self) -> bool:
        """Whether the demo model is here without its pack."""
        standing = self._standing
        return (
            self._facts is not None
            and standing is not None
            and standing.demo_model is not None
            and not standing.demo_set
        )

    @property
    def _pack_older(self) -> bool:
        """Whether the demo model is here with an earlier pack than the program's."""
        standing = self._standing
        return standing is not None and standing.demo_model is not None and standing.older_pack

    @Slot()
    def _show(self) -> None:
        shelf, state = self._engine.shelf, self._engine.desk.state
        resident, attached = shelf.resident, state.attachments
        card, standing = self._card, self._standing
        card.report_button.setVisible(self._facts is not None and self._facts.report is not None)
        if resident is not None:
            card.load.show_step(f"{resident.record.name} is loaded.", None, done=True)
        elif shelf.loading is not None:
            card.load.show_step(f"Loading {shelf.loading.model_name}: {shelf.loading.stage}…", None)
        elif self._demo.running:
            card.load.show_step(self._demo.in_words, None)
        else:
            record = self._to_load()
            if record is not None:
                words = "It takes memory only while it is loaded; everything runs on this computer."
                card.load.show_step(words, f"Load {record.name}", first=True)
            else:
                bundled = self._facts is not None and self._facts.bundled
                fetched = "it came with this program" if bundled else "93 MB to fetch"
                words = f"The demo model is small: {fetched}, and it has SAEs to steer it."
                card.load.show_step(words, "Install the demo model", able=standing is not None, first=True)
        if self._attaching:
            card.attach.show_step("Attaching…", None)
        elif attached:
            layers = sorted({each.layer for each in attached})
            where = f"{plural(len(layers), 'layer')} {', '.join(map(str, layers))}"
            card.attach.show_step(f"Attached on {where}.", None, done=True)
        elif self._demo.running:
            words = self._demo.in_words if resident is not None else "The demo model's SAEs are attached by themselves."
            card.attach.show_step(words, None)
        elif self._pack_missing:
            words = "The demo model is here without its SAEs, clusters and circuits. They come with this program."
            card.attach.show_step(words, "Add the demo pack", first=resident is not None)
        elif self._pack_older:
            words = "The demo's SAEs and documents here are of an older version. What you made yourself stays."
            card.attach.show_step(words, "Update the demo pack", first=resident is not None)
        elif self._fits_demo and self._facts is not None:
            words = "SAEs split what happens inside the model into features that can be turned up and down."
            card.attach.show_step(words, f"Attach “{self._facts.attach_set}”", first=True)
        else:
            words = "An SAE that was trained on this model, so that single features of it can be steered."
            card.attach.show_step(words, "Choose SAEs", able=resident is not None)
        done = standing is not None and standing.compared
        shown = self._fits_demo and standing is not None and standing.cluster is not None
        where = f" towards {self._facts.topic}" if shown and self._facts is not None else ""
        words = f"Two answers side by side, one plain, one steered{where}. Move λ while they are written."
        card.dial.show_step(words, "Compare in Chat", done=done, able=bool(attached), first=bool(attached) and not done)


def _pages() -> set[str]:
    return {spec.key for _group, specs in GROUPS for spec in specs}
