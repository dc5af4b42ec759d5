"""Sweeping the dial: the same prompts at several values of λ, side by side, with measures of topic and fluency."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import QSignalBlocker
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFileDialog,
    QProgressBar,
    QWidget,
)

from engine.errors import MillmError, NotFound, NothingToCancel
from engine.events import (
    CircuitsChanged,
    ClustersChanged,
    Event,
    ModelLoadComplete,
    ModelUnloadComplete,
    ProfilesChanged,
    SaeAttached,
    SaeDetached,
    SweepComplete,
    SweepProgress,
    SweepsChanged,
)
from engine.files import write_text
from engine.public.experiments import record_of_sweep
from engine.public.steering import Push, SteeredSet
from engine.public.sweeps import (
    BaseChoice,
    BaseKind,
    CellResult,
    SweepBase,
    SweepOutcome,
    SweepRun,
    SweepSettings,
    SweepState,
    as_csv,
    as_markdown,
)
from ui.bridge import Inbox
from ui.context.page import Page
from ui.context.page_context import STEERING, PageContext
from ui.context.record_keeping import RecordKeeper
from ui.kit import plots, theme
from ui.kit.basics import Button, Card, Notice, column, label, line
from ui.kit.choice import Choice
from ui.kit.scroll_page import FittedScroll, PageHead, page_ground, page_scroll
from ui.kit.sweep_answers import SweepAnswers
from ui.kit.text import counted, describe_error
from ui.steer.sweep_form import SweepForm

FORM_WIDTH = 324
TWO_COLUMNS = 900
"""From this width on the form stands beside the answers."""
QWIDGETSIZE_MAX = 16_777_215
"""Qt's own "no limit"; the binding does not hand it out."""
CONTENT_WIDTH = 1640
KEPT_WIDTH = 240
GATE = (
    "A sweep asks the same prompts at several values of λ and without steering, and measures each answer: how much of "
    "the topic is in it, and how fluent it is. Attach an SAE on the Steering page first, and choose here whose dial is "
    "turned."
)


class SweepPage(Page, QWidget):
    """Joins the form, the table and the plot to the engine's sweeps. What steers live is never touched.

    A sweep that was begun elsewhere, over the API, is taken up as if it were the page's own.
    """

    FOLLOWS = (
        ClustersChanged,
        ProfilesChanged,
        CircuitsChanged,
        SaeAttached,
        SaeDetached,
        ModelLoadComplete,
        ModelUnloadComplete,
        SweepProgress,
        SweepComplete,
        SweepsChanged,
    )

    def __init__(self, frame: PageContext) -> None:
        super().__init__()
        self._engine = frame.engine
        self._bridge = frame.bridge
        self._versions = frame.services.versions
        self._run: SweepRun | None = None
        self._own: str | None = None
        self._starting = False
        self._ending = False
        self.outcome: SweepOutcome | None = None
        self.setObjectName("page")
        self.form = SweepForm()
        self.form.base_chosen.connect(self._on_base)
        self.run_button = Button("Run", "primary", "play", self.run)
        self.cancel_button = Button("Cancel", "plain", "stop", self.cancel)
        self.progress = QProgressBar()
        self.progress.setTextVisible(False)
        self.status = label("", "small", wrap=True)
        self.notice = Notice()
        self.answers = SweepAnswers()
        self.table, self.plot = self.answers.table, self.answers.plot
        self.csv_button = Button("CSV…", "plain", "export", partial(self._pick, "csv", as_csv))
        self.markdown_button = Button("Markdown…", "plain", "export", partial(self._pick, "md", as_markdown))
        self.keep_button = Button("Save as record", "plain", "book", self.keep)
        self.keep_button.setToolTip("Keep this sweep with its answers, figures and settings under Records")
        self.records = RecordKeeper(frame, self._say_error, self)
        self.records.not_kept.connect(self._on_not_kept)
        self.records.kept.connect(lambda record: self.records.tell(self.notice, record))
        self._saved: object = None
        """The outcome that was saved last, or is being saved."""
        self.file_dialog: QFileDialog | None = None
        self.gate = Card("Sweep the dial")
        self.gate_button = Button("Go to Steering", "primary", on_click=partial(frame.go, STEERING))
        self._inbox = Inbox(parent=self)
        self._inbox.arrived.connect(self._on_moved)
        self.kept = Choice()
        self.kept.setAccessibleName("Sweeps of this session")
        self.kept.setToolTip("Sweeps of this session")
        self.kept.setSizeAdjustPolicy(Choice.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.kept.setMinimumContentsLength(16)
        self.kept.setMaximumWidth(KEPT_WIDTH)
        self.kept.activated.connect(lambda row: self._show_kept(str(self.kept.itemData(row))))
        self._build()
        self._show_running(False)
        self.refresh()
        kept = self._engine.sweeps.runs.list()
        if kept:
            self._take_up(kept[0])
        frame.bridge.run_in_background(plots.load, self.answers.draw_with, self._say_error, owner=self)

    def on_event(self, event: Event) -> None:
        """Follow what can be swept."""
        match event:
            case ClustersChanged() | ProfilesChanged() | CircuitsChanged():
                self._ask_choices()
            case SaeAttached() | SaeDetached() | ModelLoadComplete() | ModelUnloadComplete():
                self.refresh()
            case SweepProgress() | SweepComplete():
                # By way of the inbox, so that many short answers are shown in one go.
                self._inbox.put(event.sweep_id)
            case SweepsChanged():
                self._list_kept()

    def arrive(self, **what: object) -> None:
        """``kind`` (cluster, profile, circuit, live) and ``id`` choose whose dial is turned."""
        kind = what.get("kind")
        if isinstance(kind, str) and kind in set(BaseKind):
            self.form.wanted = (BaseKind(kind), str(what.get("id", "")))
        self.refresh()

    def prepare_to_close(self) -> None:
        """End a sweep that was begun here."""
        if self._starting or (self._run is not None and self._run.id == self._own):
            self.cancel()

    def refresh(self) -> None:
        """Offer what can be swept with what is attached now."""
        there = bool(self._engine.desk.state.attachments)
        self.gate.setVisible(not there)
        self._content.setVisible(there)
        self._ask_choices()

    # --- running ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Begin the sweep the form describes."""
        if self.running:
            return
        self.notice.hide()
        choice = self.form.choice
        if choice is None:
            return
        try:
            settings = self.form.settings()
        except MillmError as error:
            self._say_error(error)
            return
        self._starting, self._ending, self._run = True, False, None
        self._lay_out(settings)
        sweeps = self._engine.sweeps

        def begin() -> SweepRun:
            return sweeps.start(settings, sweeps.resolve(choice.kind, choice.id))

        self._bridge.run_in_background(begin, self._on_begun, self._on_failed, owner=self)

    def cancel(self) -> None:
        """End it; what was written stays in the table."""
        if not self.running:
            return
        self._ending = True
        self.status.setText("Ending…")
        if self._run is not None:
            # It may have ended by itself a moment ago: then its event is on the way.
            with contextlib.suppress(NothingToCancel, NotFound):
                self._engine.sweeps.runs.cancel(self._run.id)

    @property
    def running(self) -> bool:
        """Whether a sweep is under way."""
        return self._starting or (self._run is not None and self._run.state is SweepState.RUNNING)

    def _lay_out(self, settings: SweepSettings) -> None:
        """An empty table for a sweep that begins."""
        self.outcome = None
        self.answers.begin(settings)
        self.progress.setRange(0, settings.cells)
        self.progress.setValue(0)
        self.status.setText(f"{self._whose()}0 of {counted(settings.cells, 'answer')}")
        self._show_running(True)

    def _on_begun(self, run: SweepRun) -> None:
        self._starting, self._own, self._run = False, run.id, run
        if self._ending:
            self.cancel()
        self._on_moved([run.id])

    def _take_up(self, run: SweepRun) -> None:
        """Show a sweep that was begun elsewhere, or earlier."""
        self.notice.hide()
        self._ending, self._run = False, run
        self._lay_out(run.settings)
        self._follow(run)

    def _on_moved(self, ids: Sequence[str]) -> None:
        for sweep_id in dict.fromkeys(ids):
            if self._starting or (self.running and self._run is not None and self._run.id != sweep_id):
                continue
            try:
                run = self._engine.sweeps.runs.get(sweep_id)
            except NotFound:
                # Forgotten meanwhile; what is shown of it stays.
                if self.running and self._run is not None:
                    self._follow(replace(self._run, state=SweepState.CANCELLED, cells=tuple(self.answers.results)))
                continue
            if self._run is None or self._run.id != sweep_id:
                self._take_up(run)
            elif self.outcome is None:
                self._follow(run)

    def _follow(self, run: SweepRun) -> None:
        """Show what has come since; and the end, where it has ended."""
        self._run = run
        new = run.cells[len(self.answers.results) :]
        if new:
            self._show_cells(new)
        if run.state is not SweepState.RUNNING:
            self._on_ended(run)

    def _show_cells(self, cells: Sequence[CellResult]) -> None:
        self.answers.put(cells)
        self.progress.setValue(len(self.answers.results))
        if self.running and not self._ending:
            self.status.setText(
                f"{self._whose()}{len(self.answers.results)} of {counted(self.progress.maximum(), 'answer')}"
            )

    def _on_ended(self, run: SweepRun) -> None:
        outcome = self.outcome = run.outcome()
        words = f"{self._whose()}{len(outcome.cells)} of {counted(outcome.settings.cells, 'answer')}"
        if run.failed:
            words += f", {run.failed} of them failed"
        self.status.setText(words if outcome.complete else f"{words}; ended early")
        if run.error is not None:
            self._say_error(run.error)
        elif outcome.base.warnings:
            self.notice.show_words(" ".join(outcome.base.warnings), "warn")
        self._show_running(False)
        self._list_kept()

    def _on_failed(self, error: Exception) -> None:
        self._starting = False
        self.status.setText("")
        self._show_running(False)
        going = next((each for each in self._engine.sweeps.runs.list() if each.state is SweepState.RUNNING), None)
        if going is not None:
            self._take_up(going)
        self._say_error(error)

    def _whose(self) -> str:
        """Whose dial is turned, where the form does not say it."""
        return "" if self._run is None or self._run.id == self._own else f"{self._run.base.name}: "

    # --- sweeps of this session -------------------------------------------------------------------------------------

    def _list_kept(self) -> None:
        runs = self._engine.sweeps.runs.list()
        with QSignalBlocker(self.kept):
            self.kept.clear()
            for each in runs:
                words = "" if each.state is SweepState.COMPLETE else f" · {each.state.value}"
                self.kept.addItem(f"{each.base.name} · {each.started_at.astimezone():%H:%M:%S}{words}", each.id)
            if self._run is not None:
                self.kept.setCurrentIndex(self.kept.findData(self._run.id))
        self.kept.setVisible(len(runs) > 1)
        self.kept.setEnabled(not self.running)

    def _show_kept(self, sweep_id: str) -> None:
        if self.running:
            return
        try:
            self._take_up(self._engine.sweeps.runs.get(sweep_id))
        except NotFound as error:
            self._say_error(error)

    # --- choices ----------------------------------------------------------------------------------------------------

    def _ask_choices(self) -> None:
        self._bridge.run_in_background(self._engine.sweeps.choices, self.form.show_choices, self._say_error, owner=self)

    def _on_base(self, choice: BaseChoice | None) -> None:
        """Offer topic words for what was chosen, unless a person wrote their own."""
        if choice is None or not self._engine.desk.state.attachments:
            return
        sweeps, hand = self._engine.sweeps, self._engine.hand_steering

        def look() -> tuple[SweepBase | None, tuple[str, ...], str, tuple[Push, ...]]:
            try:
                base = sweeps.resolve(choice.kind, choice.id)
            except MillmError as error:
                return None, (), error.one_line(), ()
            pushes = hand.pushes([SteeredSet.of(*place, values) for place, values in base.authored.items()])
            return base, sweeps.suggested_words(base), "", pushes

        self._bridge.run_in_background(look, lambda found: self._on_looked(choice, *found), self._say_error, owner=self)

    def _on_looked(
        self,
        choice: BaseChoice,
        base: SweepBase | None,
        words: tuple[str, ...],
        why: str,
        pushes: tuple[Push, ...] = (),
    ) -> None:
        if choice == self.form.choice:
            self.form.show_base(base, words, why, pushes)
            self._show_running(self.running)

    # --- showing ----------------------------------------------------------------------------------------------------

    def _show_running(self, running: bool) -> None:
        self.run_button.setEnabled(not running and self.form.ready)
        self.cancel_button.setVisible(running)
        self.progress.setVisible(running)
        self.form.setEnabled(not running)
        self.kept.setEnabled(not running)
        outcome = self.outcome
        written = outcome is not None and bool(outcome.cells)
        for button in (self.csv_button, self.markdown_button):
            button.setEnabled(written)
        self.keep_button.setEnabled(written and outcome is not self._saved)

    def _say_error(self, error: Exception) -> None:
        self.notice.show_words(describe_error(error))

    def keep(self) -> None:
        """Save the sweep as a record, once."""
        outcome = self.outcome
        if outcome is not None and outcome is not self._saved:
            self._saved = outcome
            self.keep_button.setEnabled(False)
            self.records.add(lambda versions: record_of_sweep(outcome, versions), outcome)

    def _on_not_kept(self, outcome: object) -> None:
        if outcome is self._saved:
            self._saved = None
        self._show_running(self.running)

    # --- export -----------------------------------------------------------------------------------------------------

    def _pick(self, ending: str, form: Callable[..., str]) -> None:
        outcome = self.outcome
        if outcome is None:
            return
        dialog = QFileDialog(self, "Save the sweep")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix(ending)
        dialog.selectFile(f"sweep-{outcome.facts['Date'][:10]}.{ending}")
        dialog.fileSelected.connect(lambda name: self.save(Path(name), form))
        dialog.finished.connect(dialog.deleteLater)
        self.file_dialog = dialog
        dialog.open()

    def save(self, path: Path, form: Callable[..., str]) -> None:
        """Write the sweep to ``path`` as ``form`` makes it."""
        outcome, versions = self.outcome, self._versions
        if outcome is None:
            return

        def write() -> Path:
            # Line ends are in the text already, as each format wants them.
            write_text(path, form(outcome, versions))
            return path

        def failed(error: Exception) -> None:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.notice.show_words(f"{path} could not be written: {reason}. Choose another folder.")

        more = " What it ran on is in the Markdown." if form is as_csv else ""
        self._bridge.run_once(
            ("write", str(path)),
            write,
            lambda done: self.notice.show_words(f"Saved as {done}.{more}", "info"),
            failed,
            owner=self,
        )

    # --- layout -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        texts = column(spacing=1)
        texts.addWidget(label("Sweep", "title"))
        texts.addWidget(
            label("The same prompts at several values of λ. What steers live stays as it is.", "muted", wrap=True)
        )
        head = self._head = PageHead(texts, self.kept, self.keep_button, self.csv_button, self.markdown_button)
        self.kept.hide()
        self.gate.body.addWidget(label(GATE, "muted", wrap=True))
        self.gate.body.addLayout(line(self.gate_button, None))
        form = self._form_card = Card()
        self.form.setObjectName("scrollBody")
        self._fitted = FittedScroll(self.form)
        form.body.addWidget(self._fitted)
        form.body.addLayout(line(self.run_button, self.cancel_button, None))
        form.body.addWidget(self.progress)
        form.body.addWidget(self.status)
        form.body.addStretch(1)
        self._content = QWidget()
        columns = self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        columns.setContentsMargins(0, 0, 0, 0)
        columns.setSpacing(theme.M)
        columns.addWidget(form)
        columns.addWidget(self.answers, 1)
        self._content.setLayout(columns)
        inside = column(spacing=theme.M)
        inside.addLayout(head)
        inside.addWidget(self.notice)
        inside.addWidget(self.gate)
        inside.addWidget(self._content, 1)
        inside.addWidget(QWidget())
        whole = column(spacing=0)
        whole.addWidget(page_scroll(page_ground(inside, CONTENT_WIDTH)))
        self.setLayout(whole)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The form beside the answers where there is room, above them where there is not; then the page scrolls."""
        super().resizeEvent(event)
        self._head.fit(self.width())
        wide = self.width() >= TWO_COLUMNS
        across, down = QBoxLayout.Direction.LeftToRight, QBoxLayout.Direction.TopToBottom
        self._columns.setDirection(across if wide else down)
        self._form_card.setMinimumWidth(FORM_WIDTH if wide else 0)
        self._form_card.setMaximumWidth(FORM_WIDTH if wide else QWIDGETSIZE_MAX)
        self._fitted.setMinimumHeight(0 if wide else self.form.sizeHint().height())
