"""Looking at features: find them by label, see where they fire, find those that tell texts apart, import labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QFileDialog, QFrame, QScrollArea, QStackedWidget, QWidget

from engine.events import Event, ModelLoadComplete, ModelUnloadComplete, SaeAttached, SaeDetached, SaesChanged
from engine.public.saes import Attachment, LabelsResult
from ui.context.page import Page
from ui.context.page_context import CHAT, MONITOR, STEERING, PageContext
from ui.context.record_keeping import RecordKeeper
from ui.kit import theme
from ui.kit.basics import Button, Card, Notice, column, label, line
from ui.kit.feature_picker import FeaturePicker
from ui.kit.scroll_page import PageHead, page_ground, page_scroll, reveal
from ui.kit.steer_targets import TargetKind
from ui.kit.text import counted, describe_error
from ui.look.feature_detail import FeatureDetail
from ui.look.feature_facts import FeatureFacts, facts_of
from ui.look.features_contrast import ContrastTab
from ui.look.features_reading import ReadingTab
from ui.look.features_seen import SeenTab
from ui.look.place_box import PlaceBox

TABS = ("Labels", "Read a text", "Contrast", "Seen live")
LABELS, READ, CONTRAST, SEEN = range(4)
DETAIL_WIDTH = 344
TWO_COLUMNS = 860
LEAST_CARD, LEAST_DETAIL = 430, 320
"""Heights below which the page scrolls; the second where the panel stands under the lists."""
CONTENT_WIDTH = 1560
ENDINGS = (".csv", ".json", ".jsonl", ".ndjson", ".gz")
GATE = (
    "An SAE takes one layer's inner state apart into features. Attach one on the Steering page: here you then search "
    "its labels, see token by token what fires in a text, and find the features in which two sets of texts differ."
)


class FeaturesPage(Page, QWidget):
    """Four ways to a feature on the left, what is known about the chosen one on the right."""

    FOLLOWS = (SaeAttached, SaeDetached, ModelLoadComplete, ModelUnloadComplete, SaesChanged)

    def __init__(self, frame: PageContext) -> None:
        super().__init__()
        self._engine = frame.engine
        self._bridge = frame.bridge
        self._hand = frame.hand
        self._frame = frame
        self._asked = 0
        self.setObjectName("page")
        self.places = PlaceBox()
        self.places.place_chosen.connect(self._on_place)
        self.import_button = Button("Import labels…", "plain", "folder", self._pick_file)
        self.notice = Notice()
        self.picker = FeaturePicker(frame.engine, frame.bridge, wide=True)
        self.reading = ReadingTab(frame.engine, frame.bridge)
        self.contrast = ContrastTab(frame.engine, frame.bridge)
        self.seen = SeenTab(frame.engine, frame.bridge)
        self.detail = FeatureDetail()
        self.tabs = [Button(name) for name in TABS]
        self.stack = QStackedWidget()
        self.gate = Card("Features")
        self.gate_button = Button("Go to Steering", "primary", on_click=partial(frame.go, STEERING))
        self.file_dialog: QFileDialog | None = None
        self._build()
        self.picker.picked.connect(lambda _sae, _layer, index: self._pick(index))
        for tab in (self.reading, self.contrast, self.seen):
            tab.feature_picked.connect(self._pick)
        self.contrast.try_wanted.connect(self._try)
        self.contrast.compare_wanted.connect(
            lambda key: frame.go(CHAT, compare=True, steer=(TargetKind.CLUSTER.value, key))
        )
        self.records = RecordKeeper(frame, self._say_error, self)
        self.contrast.keep_wanted.connect(self.records.add)
        self.records.not_kept.connect(self.contrast.say_not_kept)
        self.records.kept.connect(lambda record: self.records.tell(self.notice, record))
        self.seen.monitor_wanted.connect(partial(frame.go, MONITOR))
        self.detail.try_wanted.connect(lambda index, strength: self._try({index: strength}))
        self.detail.colour_wanted.connect(self._colour)
        self._hand.failed.connect(self._on_refused)
        self.open_tab(LABELS)
        self.refresh()

    def on_event(self, event: Event) -> None:
        """Follow what is attached and what is known."""
        match event:
            case SaeAttached() | SaeDetached() | ModelLoadComplete() | ModelUnloadComplete():
                self.refresh()
            case SaesChanged():
                self.picker.refresh()
                if self.detail.facts is not None:
                    self.show_feature(self.detail.facts.index)

    def arrive(self, **what: object) -> None:
        """``sae_id`` and ``layer`` choose the SAE, ``feature`` opens one, ``text`` is put up for
        reading, ``files`` are labels that were dropped.
        """
        self.refresh()
        sae_id, layer = what.get("sae_id"), what.get("layer")
        if isinstance(sae_id, str) and isinstance(layer, int):
            self.places.choose(sae_id, layer)
        feature, text = what.get("feature"), what.get("text")
        if isinstance(feature, int):
            self.show_feature(feature)
        if isinstance(text, str):
            self.reading.field.setPlainText(text)
            self.open_tab(READ)
        files = what.get("files")
        if isinstance(files, tuple) and files:
            self._take_labels(files)

    def prepare_to_close(self) -> None:
        """End what is being read."""
        self.reading.cancel()
        self.contrast.cancel()

    def refresh(self) -> None:
        """Offer what is attached now."""
        attachments = self._engine.desk.state.attachments
        self.places.show_places(attachments)
        there = bool(attachments)
        self.gate.setVisible(not there)
        self._content.setVisible(there)
        self.places.setVisible(there)
        self.import_button.setVisible(there)

    def open_tab(self, place: int) -> None:
        """Bring one of the four ways to the front."""
        self.stack.setCurrentIndex(place)
        for number, tab in enumerate(self.tabs):
            tab.setChecked(number == place)

    def _pick(self, index: int) -> None:
        """Show a feature that a person chose; where its panel stands under the lists, it comes into sight."""
        self.show_feature(index)
        reveal(self.detail)

    def show_feature(self, index: int) -> None:
        """Show what is known about a feature of the chosen SAE."""
        place = self.places.place
        if place is None or not 0 <= index < place.sae.config.d_sae:
            return
        self._asked += 1
        asked, engine = self._asked, self._engine

        def shown(facts: FeatureFacts) -> None:
            if asked == self._asked and self.places.place is place:
                self.detail.show_facts(facts)

        self._bridge.run_in_background(lambda: facts_of(engine, place, index), shown, self._say_error, owner=self)

    def _take_labels(self, files: Sequence[Path]) -> None:
        """Import the first of them; several files of one export come as their folder."""
        self.import_labels(files[0])
        if len(files) > 1:
            self._frame.say(
                f"{len(files)} files of labels were dropped; {files[0].name} is read. Drop their folder to read all."
            )
        if self.places.place is None:
            self._frame.say(f"Attach the SAE that the labels in {files[0].name} belong to, then drop them again.")

    def import_labels(self, path: Path) -> None:
        """Store the labels in a file or folder for the chosen SAE."""
        place = self.places.place
        if place is None:
            self.notice.show_words("Attach the SAE these labels belong to first.", "warn")
            return
        saes, sae_id = self._engine.saes, place.sae_id
        self.notice.show_words(f"Reading {path.name}…", "info")
        self.import_button.setEnabled(False)
        self._bridge.run_once(
            ("labels", sae_id, path),
            lambda: saes.import_label_file(sae_id, path),
            self._on_labels,
            self._on_import_error,
            owner=self,
        )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _on_place(self, place: Attachment | None) -> None:
        self._asked += 1
        self.detail.show_facts(None)
        if place is not None:
            self.picker.set_place(place.sae_id, place.layer, place.sae.config.d_sae)
        for tab in (self.reading, self.contrast, self.seen):
            tab.set_place(place)

    def _colour(self, index: int) -> None:
        self.open_tab(READ)
        self.reading.colour(index)

    def _try(self, values: Mapping[int, float]) -> None:
        place = self.places.place
        if place is None:
            return
        self._hand.set_values((place.sae_id, place.layer), values)
        names = ", ".join(f"#{index}" for index in values)
        self.notice.show_words(
            f"{names} {'steers' if len(values) == 1 else 'steer'} every answer from its next token on.",
            "info",
            Button("Open Steering", "quiet", on_click=partial(self._frame.go, STEERING)),
        )
        reveal(self.notice)

    def _on_refused(self, place: object, error: Exception) -> None:
        mine = self.places.place
        if mine is not None and place == (mine.sae_id, mine.layer) and self.isVisible():
            self._say_error(error)

    def _pick_file(self) -> None:
        dialog = QFileDialog(self, "Choose a file of labels")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters(["Labels (*.csv *.tsv *.json *.jsonl *.ndjson *.gz)", "All files (*)"])
        dialog.fileSelected.connect(lambda name: self.import_labels(Path(name)))
        dialog.finished.connect(dialog.deleteLater)
        self.file_dialog = dialog
        dialog.open()

    def _on_labels(self, result: LabelsResult) -> None:
        self.import_button.setEnabled(True)
        words = f"Labels of {counted(result.imported, 'feature')} of {result.sae_id} are stored."
        if result.skipped:
            words += f" {counted(result.skipped, 'row')} had none."
        self.notice.show_words(words, "info")
        self.picker.refresh()

    def _on_import_error(self, error: Exception) -> None:
        self.import_button.setEnabled(True)
        self._say_error(error)

    def _say_error(self, error: Exception) -> None:
        self.notice.show_words(describe_error(error))

    def _build(self) -> None:
        texts = column(spacing=1)
        texts.addWidget(label("Features", "title"))
        texts.addWidget(label("What the directions of an SAE stand for, and where they fire.", "muted", wrap=True))
        head = self._head = PageHead(texts, self.places, self.import_button)
        self.gate.body.addWidget(label(GATE, "muted", wrap=True))
        self.gate.body.addLayout(line(self.gate_button, None))
        bar = line(spacing=theme.L)
        for number, tab in enumerate(self.tabs):
            tab.setProperty("look", "tab")
            tab.setCheckable(True)
            tab.clicked.connect(lambda _on=False, place=number: self.open_tab(place))
            bar.addWidget(tab)
        bar.addStretch(1)
        for part in (self.picker, self.reading, self.contrast, self.seen):
            self.stack.addWidget(part)
        card = Card()
        card.setMinimumHeight(LEAST_CARD)
        card.body.addLayout(bar)
        card.body.addWidget(self.stack, 1)
        side = QScrollArea()
        side.setAccessibleName("The chosen feature")
        side.setWidgetResizable(True)
        side.setFrameShape(QFrame.Shape.NoFrame)
        side.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        side.setWidget(self.detail)
        self._side = side
        self._content = QWidget()
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(theme.L)
        self._columns.setContentsMargins(0, 0, 0, 0)
        self._columns.addWidget(card, 1)
        self._columns.addWidget(side)
        self._content.setLayout(self._columns)
        inside = column(spacing=theme.M)
        inside.addLayout(head)
        inside.addWidget(self.notice)
        inside.addWidget(self.gate)
        inside.addWidget(self._content, 1)
        self._below = QWidget()
        inside.addWidget(self._below)
        # While the gate stands for all of it, what is there keeps its height.
        inside.addStretch(0)
        whole = column(spacing=0)
        whole.addWidget(page_scroll(page_ground(inside, CONTENT_WIDTH)))
        self.setLayout(whole)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The panel beside the lists where there is room, below them where there is not."""
        super().resizeEvent(event)
        self._head.fit(self.width())
        wide = self.width() >= TWO_COLUMNS
        self._columns.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)
        self._side.setMinimumWidth(DETAIL_WIDTH if wide else 0)
        self._side.setMaximumWidth(DETAIL_WIDTH if wide else 16_777_215)
        self._side.setMinimumHeight(0 if wide else LEAST_DETAIL)
