"""One circuit: its evidence first, then whether it can serve, its dial, its drawing, and everything that is known."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QCheckBox,
    QFrame,
    QLabel,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from engine.public.documents import is_validated
from engine.public.steering import CircuitView, Hazard, Push
from ui.kit import theme
from ui.kit.basics import Button, Card, Surface, column, label, line, pill
from ui.kit.flow import Flow
from ui.kit.intensity_dial import IntensityDial
from ui.kit.plain_text import as_letters
from ui.kit.rung_badge import RungBadge, next_words
from ui.steer.circuit_drawing import CircuitDrawing
from ui.steer.circuit_graph import CircuitGraph, graph_of
from ui.steer.circuit_text import (
    acknowledge_words,
    circuit_facts,
    circuit_line,
    evidence_paragraphs,
    hazard_remarks,
    layer_words,
    only_persistence,
    slice_words,
    state_marks,
    whole_words,
)
from ui.steer.cluster_card import Narrative, Remarks, show_push
from ui.steer.cluster_text import dial_words
from ui.steer.use_buttons import UseButtons

TABS = ("Drawing", "Evidence", "Layers and remarks", "Author's words")
DRAWING, EVIDENCE, LAYERS, AUTHOR = range(4)
LEAST_DRAWING = 200
"""Lower than this the page scrolls."""


class CircuitCard(Card):
    """Shows a circuit; says what the person wants with signals."""

    dialled = Signal(float)
    switch_wanted = Signal(bool)
    attach_wanted = Signal()
    export_wanted = Signal()
    delete_wanted = Signal()
    tab_changed = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._id = ""
        self._active = False
        self.validated = False
        self._evidence_of: object = None
        self.body.setSpacing(theme.S)
        self.name = label("", "title", wrap=True, selectable=True)
        self.badge = RungBadge()
        self.facts = label("", "small", selectable=True)
        self.next_step = label("", "small", wrap=True)
        self.slice_note = label("", "warn", wrap=True)
        self.layers = Flow()
        self.attach_button = Button("Attach its SAEs", "plain", "plus", self.attach_wanted.emit)
        self.dial = IntensityDial()
        self.dial.settled.connect(self.dialled)
        self.range = label("", "small", wrap=True)
        self.push = label("", "small", wrap=True)
        self.check = QCheckBox()
        self.check_words = label("", "body", wrap=True)
        self.check_row = QWidget()
        self.check.toggled.connect(lambda _on: self._show_switch())
        self.switch_button = Button("Activate", "primary", "play", self._on_switch)
        self.export_button = Button("Export…", "plain", "export", self.export_wanted.emit)
        self.uses = UseButtons(self.switch_button, self.attach_button, self.export_button)
        self.delete_button = Button("Delete", "quiet", "bin", self.delete_wanted.emit)
        self.tabs = QButtonGroup(self)
        self.pages = QStackedWidget()
        self.drawing = CircuitDrawing()
        self.no_drawing = label("", "muted", wrap=True)
        self.evidence = column(spacing=theme.M)
        self.layer_list = column(spacing=theme.XS)
        self.remarks = Remarks()
        self.hazards = Remarks()
        self.narrative = Narrative()
        self._build()

    @property
    def acknowledged(self) -> bool:
        """Whether the person said that they know what the evidence is."""
        return self.check.isChecked()

    def show_view(
        self,
        view: CircuitView,
        graph: CircuitGraph | None,
        intensity: float,
        hazards: Sequence[Hazard],
        cluster_name: str | None,
        pushes: Sequence[Push] = (),
    ) -> None:
        """Show a circuit. ``intensity`` is where its dial stands; ``cluster_name`` that of the slice that serves.

        ``pushes``: how long what it adds there is, layer by layer, where that is known.
        """
        record = view.summary.record
        if record.id != self._id:
            self._id = record.id
            self.dial.let_go()
            self.check.setChecked(False)
        self._active = record.is_active
        self.validated = is_validated(record.rung)
        self.name.setText(record.name)
        self.badge.show_rung(record.rung, only_persistence(view))
        self.facts.setText(circuit_line(view))
        self.name.setToolTip(as_letters(circuit_facts(view)))
        self.next_step.setText(next_words(record.rung))
        note = view.problem or slice_words(record, cluster_name)
        self.slice_note.setText(note)
        self.slice_note.setVisible(bool(note))
        self._show_layers(view)
        self._show_dial(view, intensity)
        show_push(self.push, pushes, intensity)
        self.check_row.setVisible(not self.validated)
        self.check_words.setText(acknowledge_words(record.rung, only_persistence(view)))
        self.check.setAccessibleName(self.check_words.text())
        self._show_switch()
        self._show_drawing(graph)
        self._show_evidence(view)
        bound = "Layer "
        warnings = () if view.verdict is None else view.verdict.warnings
        self.remarks.show_words(tuple(each for each in warnings if not each.startswith(bound)))
        self.hazards.show_words(hazard_remarks(hazards))
        self.narrative.show_text(record.description or "The author wrote nothing.")

    def open_tab(self, which: int) -> None:
        """Show one of the tabs."""
        self.tabs.button(which).setChecked(True)
        self.pages.setCurrentIndex(which)
        self.tab_changed.emit(which)

    # --- parts ------------------------------------------------------------------------------------------------------

    def _show_layers(self, view: CircuitView) -> None:
        wanted = {each.layer: each for each in view.saes}
        verdicts = () if view.verdict is None else view.verdict.layers
        told = [layer_words(each, wanted.get(each.layer)) for each in verdicts]
        chips: list[QWidget] = [pill(word, tone) for word, tone in state_marks(view)]
        for short, tone, whole in told:
            chip = pill(short, tone)
            chip.setToolTip(as_letters(whole))
            chip.setAccessibleName(whole)
            chips.append(chip)
        self.layers.show_all(chips)
        self.attach_button.setVisible(bool(view.to_attach))
        self.uses.offer(view.verdict is not None and view.verdict.serveable)
        _refill(self.layer_list, [label(whole, "body", wrap=True, selectable=True) for _s, _t, whole in told])

    def layer_sentences(self) -> list[str]:
        """What is said of each layer."""
        return [name for chip in self.layers.widgets() if (name := chip.accessibleName())]

    def marks(self) -> list[str]:
        """The state words."""
        return [chip.text() for chip in self.layers.widgets() if isinstance(chip, QLabel) and not chip.accessibleName()]

    def _show_dial(self, view: CircuitView, intensity: float) -> None:
        document = view.document
        self.dial.set_range(
            0.0,
            view.envelope.ceiling or 1.0,
            default=None if document is None else document.intensity,
            onset=view.advice.onset,
            sweet_spot=view.advice.sweet_spot,
            cliff=view.advice.cliff,
        )
        self.dial.set_value(intensity)
        declared = None if document is None else document.intensity_range
        self.range.setText(dial_words(declared, view.envelope, view.advice))

    def _show_switch(self) -> None:
        on = self._active
        self.switch_button.setText(" Deactivate" if on else " Activate")
        self.switch_button.setAccessibleName(f"{'Deactivate' if on else 'Activate'} {self.name.text()}")
        self.switch_button.set_icon("stop" if on else "play")
        self.switch_button.set_look("plain" if on else "primary")
        able = on or self.validated or self.check.isChecked()
        self.switch_button.setEnabled(able)
        self.switch_button.setToolTip("" if able else "Say first that you know what its evidence is")

    def _show_drawing(self, graph: CircuitGraph | None) -> None:
        self.drawing.setVisible(graph is not None)
        self.no_drawing.setVisible(graph is None)
        if graph is not None:
            self.drawing.show_graph(graph)

    def _show_evidence(self, view: CircuitView) -> None:
        document = view.document
        if document is None or (view.summary.record.id, document.raw) == self._evidence_of:
            return
        self._evidence_of = (view.summary.record.id, document.raw)
        graph = graph_of(document)
        rows: list[QWidget] = []
        for edge in graph.edges:
            ends, _phrase, *told = edge.said(graph.nodes).split(" · ")
            row = QWidget()
            inside = column(spacing=1)
            own = line(label(ends, "strong", selectable=True), label("this edge:", "small"), RungBadge(edge.rung), None)
            inside.addLayout(own)
            inside.addWidget(label(" · ".join(told), "muted", wrap=True, selectable=True))
            row.setLayout(inside)
            rows.append(row)
        if rows:
            rows.insert(0, label(whole_words(document), "body", wrap=True, selectable=True))
        else:
            rows.append(label("It has no edges, so there is no evidence that its parts belong together.", wrap=True))
        for heading, lines in evidence_paragraphs(document):
            part = QWidget()
            inside = column(spacing=1)
            inside.addWidget(label(heading, "group"))
            for each in lines:
                inside.addWidget(label(each, "muted", wrap=True, selectable=True))
            part.setLayout(inside)
            rows.append(part)
        _refill(self.evidence, rows)

    def _on_switch(self) -> None:
        self.switch_wanted.emit(not self._active)

    # --- layout -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        said = line(self.check, spacing=theme.S)
        said.addWidget(self.check_words, 1)
        self.check_row.setLayout(said)
        bar = line(spacing=theme.L)
        for place, words in enumerate(TABS):
            tab = QPushButton(words)
            tab.setProperty("look", "tab")
            tab.setCheckable(True)
            self.tabs.addButton(tab, place)
            bar.addWidget(tab)
        bar.addStretch(1)
        self.tabs.button(DRAWING).setChecked(True)
        self.tabs.idClicked.connect(self.open_tab)
        drawn = QWidget()
        inside = column()
        inside.addWidget(self.no_drawing)
        inside.addWidget(self.drawing, 1)
        drawn.setLayout(inside)
        self.no_drawing.setText("Its stored document can no longer be read, so it cannot be drawn.")
        remarks = column(spacing=theme.S)
        remarks.addWidget(label("Layers", "group"))
        remarks.addLayout(self.layer_list)
        remarks.addWidget(self.remarks)
        remarks.addWidget(label("Pairs that are steered together now", "group"))
        remarks.addWidget(self.hazards)
        author = column()
        author.addWidget(self.narrative)
        for part in (drawn, _scrolled(self.evidence), _scrolled(remarks), _scrolled(author)):
            self.pages.addWidget(part)
        self.pages.setMinimumHeight(LEAST_DRAWING)
        self.body.addWidget(self.name)
        # The evidence has a line of its own: with persistence it is too long to stand beside the state words.
        self.body.addLayout(line(self.badge, None))
        known = line(spacing=theme.M)
        known.addWidget(self.layers, 1)
        known.addWidget(self.facts)
        self.body.addLayout(known)
        self.body.addWidget(self.next_step)
        self.body.addWidget(self.slice_note)
        self.body.addWidget(self.dial)
        self.body.addWidget(self.range)
        self.body.addWidget(self.push)
        self.body.addWidget(self.check_row)
        buttons = line()
        buttons.addWidget(self.uses, 1)
        buttons.addWidget(self.delete_button, 0, Qt.AlignmentFlag.AlignTop)
        self.body.addLayout(buttons)
        self.body.addLayout(bar)
        self.body.addWidget(self.pages, 1)


def _scrolled(layout: QVBoxLayout) -> QScrollArea:
    inside = Surface("scrollBody")
    around = column(margins=(0, theme.XS, theme.S, theme.XS))
    around.addLayout(layout)
    around.addStretch(1)
    inside.setLayout(around)
    area = QScrollArea()
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setWidget(inside)
    # It scrolls: how much is in it says nothing about how high it should be.
    area.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)
    return area


def _refill(layout: QVBoxLayout, widgets: Sequence[QWidget]) -> None:
    while (item := layout.takeAt(0)) is not None:
        if (widget := item.widget()) is not None:
            widget.hide()
            widget.deleteLater()
    for widget in widgets:
        layout.addWidget(widget)
