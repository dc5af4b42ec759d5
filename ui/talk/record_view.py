"""One record, as what it holds: a comparison, a sweep, or a contrast."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFrame, QScrollArea, QStackedWidget, QWidget

from engine.public.experiments import KeptDifference, contrast_of, contrast_rows, setting_rows, steered_words, sweep_of
from engine.public.library import ExperimentRecord, RecordKind
from engine.public.sweeps import facts_of
from ui.kit import theme
from ui.kit.basics import Card, CopyButton, ElidedLabel, Surface, column, label, line
from ui.kit.facts import Facts
from ui.kit.feature_picker import density_words
from ui.kit.flow_text import FlowText
from ui.kit.markdown_view import MarkdownView
from ui.kit.reasoning_fold import ReasoningFold
from ui.kit.rows_table import Column, RowsTable
from ui.kit.scroll_page import page_scroll
from ui.kit.steering_text import report_lines
from ui.kit.sweep_answers import SweepAnswers
from ui.kit.text import counted

CONTENT_WIDTH = 1180
SIDE_BY_SIDE = 640
ANSWERS_HEIGHT = 620
TABLE_HEIGHT = 280
_LONG = ("Steered side", "Steering report", "Steering report, at its end")
"""Said in full elsewhere in the view."""

_DIFFERENCES: tuple[Column[KeptDifference], ...] = (
    Column("#", lambda row: str(row.index), 62, right=True, muted=True, sort=lambda row: row.index),
    Column("Label", lambda row: row.label or "no label", sort=lambda row: row.label or ""),
    Column("Score", lambda row: f"{row.score:.3g}", 70, right=True, sort=lambda row: row.score),
    Column(
        "Mean",
        lambda row: f"{row.mean:.2f} | {row.other_mean:.2f}",
        100,
        right=True,
        muted=True,
        tip="Mean activation in this set | in the other",
        sort=lambda row: row.mean,
    ),
    Column("Density", lambda row: density_words(row.density), 78, right=True, muted=True, sort=lambda row: row.density),
)


class RecordView(QStackedWidget):
    """Shows ``record``; None before the first."""

    feature_wanted = Signal(str, int, int)
    """(sae_id, layer, index) of a feature that was chosen in a contrast."""

    def __init__(self) -> None:
        super().__init__()
        self.record: ExperimentRecord | None = None
        self.comparison = ComparisonView()
        self.sweep = SweepView()
        self.contrast = ContrastView()
        self.contrast.feature_wanted.connect(self.feature_wanted)
        self._views: dict[RecordKind, ComparisonView | SweepView | ContrastView] = {
            RecordKind.COMPARISON: self.comparison,
            RecordKind.SWEEP: self.sweep,
            RecordKind.CONTRAST: self.contrast,
        }
        for view in self._views.values():
            self.addWidget(view)

    def show_record(self, record: ExperimentRecord) -> None:
        """Show it from the top."""
        self.record = record
        view = self._views[record.kind]
        view.show_record(record)
        self.setCurrentWidget(view)

    def minimumSizeHint(self) -> QSize:
        """Each of the views scrolls."""
        return QSize(240, 160)


class _View(QWidget):
    """A title, a line under it, and what a subclass puts below, in a page that scrolls."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ElidedLabel("", "title")
        self.told = label("", "muted", wrap=True)
        self.inside = column(spacing=theme.L, margins=(theme.XL, theme.L, theme.XL, theme.L))
        self.inside.addWidget(self.title)
        self.inside.addWidget(self.told)
        body = Surface("pageBody")
        body.setLayout(self.inside)
        body.setMaximumWidth(CONTENT_WIDTH)
        self.area: QScrollArea = page_scroll(body)
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        around = column(spacing=0)
        around.addWidget(self.area)
        self.setLayout(around)

    def show_head(self, title: str, told: str) -> None:
        """The title and what it is about; the page from its top."""
        self.title.set_text(title)
        self.told.setText(told)
        self.area.verticalScrollBar().setValue(0)


class ComparisonView(_View):
    """Prompt, both answers, what was set."""

    def __init__(self) -> None:
        super().__init__()
        self._record: ExperimentRecord | None = None
        self.prompt = FlowText()
        self.plain = MarkdownView()
        self.steered = MarkdownView()
        self.reasoning = {"plain": ReasoningFold(), "steered": ReasoningFold()}
        self.facts = Facts()
        # Breaks anywhere: hashes and names of SAEs have no spaces.
        self.report = FlowText("caption")
        self.inside.addWidget(_card("Prompt", self.prompt, lambda: self._text("prompt")))
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(theme.L)
        for head, answer, name in (("Plain", self.plain, "plain"), ("Steered", self.steered, "steered")):
            card = _card(head, answer, partial(self._text, name))
            card.body.insertWidget(1, self.reasoning[name])
            self._columns.addWidget(card, 1)
        self.inside.addLayout(self._columns)
        written = _card("How they were written", self.facts)
        written.body.insertWidget(written.body.count() - 1, self.report)
        self.inside.addWidget(written)
        self.inside.addStretch(1)

    def show_record(self, record: ExperimentRecord) -> None:
        """Show a comparison."""
        self._record = record
        self.show_head(record.title, f"{record.model} · {steered_words(record)}")
        self.prompt.set_plain(record.prompt)
        self.plain.set_text(record.plain)
        self.steered.set_text(record.steered)
        for name, details in (("plain", record.plain_details), ("steered", record.steered_details)):
            self.reasoning[name].show_text(str(details.get("reasoning") or ""))
        self.facts.show_facts([row for row in setting_rows(record) if row[0] not in _LONG])
        self.report.set_plain(report_lines(record.steering))

    def _text(self, name: str) -> str:
        return str(getattr(self._record, name)) if self._record is not None else ""

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side where there is room."""
        super().resizeEvent(event)
        wide = self.width() >= SIDE_BY_SIDE
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)


class SweepView(_View):
    """The table, the curves and the answers of a kept sweep."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = SweepAnswers()
        self.answers.setMinimumHeight(ANSWERS_HEIGHT)
        self.facts = FlowText("caption")
        self.inside.addWidget(self.answers, 1)
        self.inside.addWidget(_card("What it ran on", self.facts))

    def show_record(self, record: ExperimentRecord) -> None:
        """Show a sweep."""
        outcome = sweep_of(record)
        number = f"{len(outcome.cells)} of {counted(outcome.settings.cells, 'answer')}"
        self.show_head(record.title, f"{record.model} · {number if outcome.complete else f'{number}; ended early'}")
        self.answers.begin(outcome.settings)
        self.answers.put(outcome.cells)
        self.facts.set_plain("\n".join(f"{name}: {value}" for name, value in facts_of(outcome, record.versions)))

    def draw_with(self, pg: Any) -> None:
        """The plotting library is there."""
        self.answers.draw_with(pg)


class ContrastView(_View):
    """The features that differed, either way, and the texts they differed in."""

    feature_wanted = Signal(str, int, int)

    def __init__(self) -> None:
        super().__init__()
        self._place: tuple[str, int] | None = None
        self.tables: list[RowsTable[KeptDifference]] = []
        self.heads = [label("", "lead"), label("", "lead")]
        self.texts = [FlowText(), FlowText()]
        self.facts = Facts()
        self._tables = self._pair()
        for head, name in zip(self.heads, ("Features more in A", "Features more in B"), strict=True):
            table: RowsTable[KeptDifference] = RowsTable(_DIFFERENCES, name, sortable=True)
            table.setMinimumHeight(TABLE_HEIGHT)
            table.chosen.connect(self._choose)
            card = Card()
            card.body.addWidget(head)
            card.body.addWidget(table, 1)
            self._tables.addWidget(card, 1)
            self.tables.append(table)
        self._pairs = [self._tables, self._pair()]
        for words, text in zip(("Texts A · with it", "Texts B · without it"), self.texts, strict=True):
            self._pairs[1].addWidget(_card(words, text, text.toPlainText), 1)
        self.inside.addWidget(_card("How it was read", self.facts))
        self.inside.addStretch(1)

    def _pair(self) -> QBoxLayout:
        made = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        made.setSpacing(theme.L)
        self.inside.addLayout(made)
        return made

    def show_record(self, record: ExperimentRecord) -> None:
        """Show a contrast."""
        found = contrast_of(record)
        self._place = (found.sae_id, found.layer)
        self.show_head(record.title, f"{record.model} · {found.sae_id} @ layer {found.layer}, read unsteered")
        for head, table, name, rows in zip(
            self.heads, self.tables, ("A", "B"), (found.toward_a, found.toward_b), strict=True
        ):
            head.setText(f"More in {name} ({len(rows)})")
            table.set_rows(rows)
        for text, lines in zip(self.texts, (found.texts_a, found.texts_b), strict=True):
            text.set_plain("\n".join(lines))
        self.facts.show_facts(contrast_rows(record, found))

    def _choose(self, row: KeptDifference) -> None:
        if self._place is not None:
            self.feature_wanted.emit(*self._place, row.index)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side where there is room."""
        super().resizeEvent(event)
        wide = self.width() >= SIDE_BY_SIDE * 1.5
        for pair in self._pairs:
            pair.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)


def _card(head: str, content: QWidget, text: Callable[[], str] | None = None) -> Card:
    card = Card()
    heads = line(label(head, "lead"), None)
    if text is not None:
        heads.addWidget(CopyButton(text, f"Copy: {head}"))
    card.body.addLayout(heads)
    card.body.addWidget(content)
    card.body.addStretch(1)
    return card
