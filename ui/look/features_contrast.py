"""Contrasting two sets of texts on the Features page, and doing something with what was found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QLineEdit, QPlainTextEdit, QWidget

from engine.engine import Engine
from engine.public.documents import MAX_MEMBERS
from engine.public.experiments import record_of_contrast
from engine.public.library import FeatureLabel
from engine.public.saes import DENSITY_CAP, Attachment, Contrast, ContrastFeature, cluster_document
from engine.public.steering import GENTLE, ImportOutcome
from ui.bridge import Bridge
from ui.kit import theme
from ui.kit.basics import Button, Notice, column, inset_text, label, line
from ui.kit.feature_picker import density_words
from ui.kit.number_field import DecimalField
from ui.kit.rows_table import Column, RowsTable
from ui.kit.scroll_page import InOnePlace, reveal
from ui.kit.text import count, counted, describe_error

TRIED = 3
"""Features put on the dial at once when none is chosen."""
TWO_COLUMNS = 620
LEAST_WIDTH = 400
"""Everything one under the other."""
FIELD_HEIGHT = 96


@dataclass(frozen=True)
class Difference:
    """A feature that differs, with its label."""

    feature: ContrastFeature
    words: str


_COLUMNS: tuple[Column[Difference], ...] = (
    Column("#", lambda row: str(row.feature.index), 66, right=True, muted=True, sort=lambda row: row.feature.index),
    Column("Label", lambda row: row.words, sort=lambda row: row.words),
    Column(
        "Score",
        lambda row: f"{row.feature.score:.3g}",
        74,
        right=True,
        tip="(difference of means) × (difference of shares)",
        sort=lambda row: row.feature.score,
    ),
    Column(
        "Mean",
        lambda row: f"{row.feature.mean:.2f} | {row.feature.other_mean:.2f}",
        110,
        right=True,
        muted=True,
        tip="Mean activation in this set | in the other",
        sort=lambda row: row.feature.mean,
    ),
    Column(
        "On",
        lambda row: f"{row.feature.share:.0%} | {row.feature.other_share:.0%}".replace("%", " %"),
        112,
        right=True,
        muted=True,
        tip="Share of tokens at which it fires in this set | in the other",
        sort=lambda row: row.feature.share,
    ),
    Column(
        "Density",
        lambda row: density_words(row.feature.density),
        78,
        right=True,
        muted=True,
        tip="How often it fires in general: by its label, else in the other set",
        sort=lambda row: row.feature.density,
    ),
)


class ContrastTab(QWidget):
    """Two fields of texts, the features that differ, and two ways on: the dial, or a cluster document."""

    feature_picked = Signal(int)
    try_wanted = Signal(object)
    """index → strength."""
    keep_wanted = Signal(object, object)
    """What makes a record of what was found, given the versions, and what was found: see :meth:`RecordKeeper.add`."""
    compare_wanted = Signal(str)
    """The id of a cluster that was saved."""

    def __init__(self, engine: Engine, bridge: Bridge) -> None:
        super().__init__()
        self._engine = engine
        self._bridge = bridge
        self._place: Attachment | None = None
        self._future: Future[Contrast] | None = None
        self._found: Contrast | None = None
        self._labels: dict[int, FeatureLabel] = {}
        self._asked_of: tuple[list[list[str]], float] = ([[], []], DENSITY_CAP)
        """The texts and the cap of what was found; the fields may say others by now."""
        self._asked = 0
        self._toward_a = True
        self.first = _texts("Texts A", "Texts with what you look for, one to a line")
        self.second = _texts("Texts B", "Texts without it, otherwise alike, one to a line")
        self.cap = DecimalField()
        self.cap.setRange(0.1, 100.0)
        self.cap.setDecimals(1)
        self.cap.setSuffix(" %")
        self.cap.setValue(DENSITY_CAP * 100)
        self.cap.setFixedWidth(90)
        self.cap.setAccessibleName("Leave out features that fire more often than this")
        inset_text(self.cap)
        self.run_button = Button("Contrast", "primary", on_click=self.run)
        self.cancel_button = Button("Cancel", "quiet", on_click=self.cancel)
        self.notice = Notice()
        self.words = label("", "small", wrap=True)
        self.a_button, self.b_button = (Button(words, "plain") for words in ("More in A", "More in B"))
        for button, toward_a in ((self.a_button, True), (self.b_button, False)):
            button.setProperty("look", "tab")
            button.setCheckable(True)
            button.clicked.connect(lambda _on=False, side=toward_a: self._show_side(side))
        self.table: RowsTable[Difference] = RowsTable(_COLUMNS, "Features that differ", sortable=True)
        self.table.select_many()
        self.table.chosen.connect(lambda row: self.feature_picked.emit(row.feature.index))
        self.table.selectionModel().selectionChanged.connect(lambda *_what: self._show_choice())
        self.try_button = Button("Add to steering", "plain", "dials", self._try)
        self.save_button = Button("Save as cluster…", "plain", "cluster", self._begin_save)
        self.keep_button = Button("Save as record", "plain", "book", self._keep)
        self.keep_button.setToolTip("Keep both sets of texts and the features that differ under Records")
        self.choice = label("", "small", wrap=True)
        self.name = QLineEdit()
        self.name.setPlaceholderText("Name of the cluster")
        self.name.setAccessibleName("Name of the cluster")
        self.name.setMaxLength(120)
        self.name.returnPressed.connect(self._save)
        self.save_panel = QWidget()
        self._foot = QWidget()
        self._places = InOnePlace(self._foot, self.save_panel)
        self._build()
        self._show_busy(False)
        self._show_found()

    def set_place(self, place: Attachment | None) -> None:
        """Contrast with this SAE from now on; what was found with another is dropped."""
        if place is not self._place:
            self.cancel()
            self._place, self._found = place, None
            self._show_found()

    def run(self) -> None:
        """Read both sets and compare them."""
        place = self._place
        if place is None:
            return
        self.cancel()
        self._asked += 1
        asked, contrasts = self._asked, self._engine.contrasts
        sets = [_lines(field) for field in (self.first, self.second)]
        cap = self.cap.value() / 100
        self.notice.hide()
        self._show_busy(True)

        def begun(future: Future[Contrast]) -> None:
            if asked != self._asked:
                future.cancel()
                return
            self._future = future
            self._bridge.when_done(future, lambda found: self._on_found(found, asked, sets, cap), failed, owner=self)

        def failed(error: Exception) -> None:
            if asked == self._asked:
                self._future = None
                self._show_busy(False)
                self.notice.show_words(describe_error(error))

        self._bridge.run_in_background(
            lambda: contrasts.find(*sets, sae_id=place.sae_id, layer=place.layer, density_cap=cap),
            begun,
            failed,
            owner=self,
        )

    def cancel(self) -> None:
        """End what is being read."""
        self._asked += 1
        if self._future is not None:
            self._future.cancel()
            self._future = None
        self._show_busy(False)

    def chosen(self) -> list[ContrastFeature]:
        """The features that are selected; the first ones of the list where none is."""
        rows: Sequence[Difference] = self.table.selected() or self.table.rows.rows[:TRIED]
        return [row.feature for row in rows]

    # --- inside -----------------------------------------------------------------------------------------------------

    def _on_found(self, found: Contrast, asked: int, sets: list[list[str]], cap: float) -> None:
        if asked != self._asked:
            return
        engine = self._engine
        indices = {each.index for each in (*found.toward_a, *found.toward_b)}

        def shown(labels: dict[int, FeatureLabel]) -> None:
            if asked == self._asked:
                self._future, self._found, self._labels, self._asked_of = None, found, labels, (sets, cap)
                self._show_busy(False)
                self._show_found()

        self._bridge.run_in_background(lambda: engine.library.labels.of(found.sae_id, indices), shown, owner=self)

    def _show_found(self) -> None:
        found = self._found
        words = "Features that fire more in one set than in the other are listed here."
        if found is not None:
            words = (
                f"{counted(found.tokens_a, 'token')} in A, {count(found.tokens_b)} in B, read unsteered. "
                "These features go with the texts; whether they cause anything shows when you turn their dial."
            )
            if found.left_out:
                words += f" {found.left_out} were left out because they fire too often in general."
        self.words.setText(words)
        self._places.setCurrentWidget(self._foot)
        self.keep_button.setEnabled(found is not None)
        self.a_button.setText(f"More in A ({len(found.toward_a)})" if found is not None else "More in A")
        self.b_button.setText(f"More in B ({len(found.toward_b)})" if found is not None else "More in B")
        self._show_side(True)

    def _show_side(self, toward_a: bool) -> None:
        self._toward_a = toward_a
        self.a_button.setChecked(toward_a)
        self.b_button.setChecked(not toward_a)
        found = self._found
        features = () if found is None else found.toward_a if toward_a else found.toward_b
        self.table.clearSelection()
        self.table.set_rows(
            [
                Difference(each, self._labels[each.index].label if each.index in self._labels else "no label")
                for each in features
            ]
        )
        self._show_choice()

    def _show_choice(self) -> None:
        number = len(self.table.selected())
        some = bool(self.table.rows.rows)
        self.try_button.setEnabled(some)
        self.save_button.setEnabled(some)
        if not some:
            self.choice.setText("")
        elif number:
            self.choice.setText(f"{number} selected")
        else:
            self.choice.setText(f"Nothing selected: the first {min(TRIED, len(self.table.rows.rows))} are taken")

    def _try(self) -> None:
        found, features = self._found, self.chosen()
        if found is not None and features:
            self.try_wanted.emit({each.index: found.strength(each, GENTLE / len(features)) for each in features})

    def _keep(self) -> None:
        found, labels, ((texts_a, texts_b), cap) = self._found, dict(self._labels), self._asked_of
        if found is not None:
            self.keep_button.setEnabled(False)
            self.keep_wanted.emit(
                lambda versions: record_of_contrast(found, texts_a, texts_b, cap, labels, versions), found
            )

    def say_not_kept(self, found: object) -> None:
        """What was found could not be saved: it can be tried again."""
        self.keep_button.setEnabled(found is self._found)

    def _begin_save(self) -> None:
        if len(self.chosen()) > MAX_MEMBERS:
            self._say(f"A cluster holds at most {MAX_MEMBERS} features; select fewer.", "warn")
            return
        first = self.chosen()[0]
        known = self._labels.get(first.index)
        self.name.setText(known.label.capitalize()[:120] if known is not None else f"Feature {first.index}")
        self._places.setCurrentWidget(self.save_panel)
        reveal(self.save_panel)
        self.name.setFocus()
        self.name.selectAll()

    def _end_save(self) -> None:
        self._places.setCurrentWidget(self._foot)
        self.save_button.setFocus()

    def _say(self, words: str, tone: str = "bad", *actions: QWidget) -> None:
        """Say what became of something that was done down there, where it is seen."""
        self.notice.show_words(words, tone, *actions)
        reveal(self.notice)

    def _save(self) -> None:
        found, place, features, name = self._found, self._place, self.chosen(), self.name.text().strip()
        if found is None or place is None or not features or not name:
            return
        engine, labels = self._engine, self._labels
        resident = engine.shelf.resident
        model_id = resident.record.repo_id if resident is not None else None
        config = place.sae.config

        def save() -> ImportOutcome:
            document = cluster_document(
                found,
                features,
                name,
                labels=labels,
                model_id=model_id,
                n_features=config.d_sae,
                d_model=config.d_in,
            )
            return engine.clusters.import_document(json.dumps(document).encode("utf-8"))

        self._bridge.run_once(
            ("save cluster", name), save, self._on_saved, lambda error: self._say(describe_error(error)), owner=self
        )

    def _on_saved(self, outcome: ImportOutcome) -> None:
        item = outcome.results[0]
        if item.profile_id is None:
            self._say(item.error or "The cluster could not be saved.")
            return
        self._end_save()
        key = item.profile_id
        more = f" {' '.join(item.warnings)}" if item.warnings else ""
        self._say(
            f"Saved as the cluster “{item.name}”. You find it under Clusters.{more}",
            "info",
            Button("Compare with it", "quiet", on_click=lambda: self.compare_wanted.emit(key)),
        )

    def _show_busy(self, busy: bool) -> None:
        self.run_button.setEnabled(not busy)
        self.cancel_button.setVisible(busy)

    def _build(self) -> None:
        self._fields = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._fields.setSpacing(theme.M)
        for head, field in (("A · with it", self.first), ("B · without it", self.second)):
            part = column(spacing=theme.XS)
            part.addWidget(label(head, "group"))
            part.addWidget(field)
            self._fields.addLayout(part, 1)
        save = line(self.name, Button("Save", "primary", on_click=self._save))
        save.addWidget(Button("Cancel", "quiet", on_click=self._end_save))
        self.save_panel.setLayout(save)
        inside = column(spacing=theme.S)
        inside.addLayout(self._fields)
        caption = label("Leave out what fires at more than", "small")
        self._begin = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._begin.setSpacing(theme.S)
        self._begin.addLayout(line(self.run_button, self.cancel_button, None), 1)
        self._begin.addLayout(line(caption, self.cap, None))
        inside.addLayout(self._begin)
        inside.addWidget(self.notice)
        inside.addWidget(self.words)
        inside.addLayout(line(self.a_button, self.b_button, None, spacing=theme.L))
        inside.addWidget(self.table, 1)
        foot = self._foot_parts = line()
        foot.addLayout(line(self.try_button, self.save_button, None))
        foot.addLayout(line(self.keep_button, None))
        foot.addWidget(self.choice, 1)
        self._foot.setLayout(foot)
        inside.addWidget(self._places)
        self.setLayout(inside)

    def minimumSizeHint(self) -> QSize:
        """Narrower than side by side: a tab that is not in front does not know its width, and held the page open."""
        return QSize(LEAST_WIDTH, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The fields side by side where there is room, and what belongs together under them."""
        super().resizeEvent(event)
        wide = self.width() >= TWO_COLUMNS
        for parts in (self._fields, self._begin, self._foot_parts):
            parts.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)


def _texts(name: str, hint: str) -> QPlainTextEdit:
    field = QPlainTextEdit()
    field.setObjectName("field")
    field.setAccessibleName(name)
    field.setPlaceholderText(hint)
    field.setTabChangesFocus(True)
    field.setFixedHeight(FIELD_HEIGHT)
    return field


def _lines(field: QPlainTextEdit) -> list[str]:
    return [text.strip() for text in field.toPlainText().splitlines() if text.strip()]
