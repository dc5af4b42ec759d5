"""What SAEs see in a chat: colours for finished answers, read unsteered, and the features of the last token, live."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QDialog, QVBoxLayout, QWidget

from engine.engine import Engine
from engine.events import ActivationObserved, Event, MonitoringStateChanged, SaeAttached, SaeDetached, SaesChanged
from engine.public.generation import GenerationRequest
from engine.public.library import FeatureLabel
from engine.public.saes import TextReading
from engine.public.steering import AttachmentKey
from ui.context.page_context import PageContext
from ui.kit import theme
from ui.kit.basics import Button, label, line
from ui.kit.chat_state import ConversationMessage
from ui.kit.choice import Choice
from ui.kit.feature_picker import FeaturePicker
from ui.kit.text import describe_error
from ui.kit.token_text import Coloured, TokenPiece
from ui.talk.lens_panel import LensPanel, LiveRow


@dataclass(frozen=True)
class Feature:
    """The feature answers are coloured by. ``most`` is the largest activation its label tells of, where it does."""

    sae_id: str
    layer: int
    index: int
    label: str
    most: float | None

    @property
    def name(self) -> str:
        """Its number and label."""
        return f"#{self.index} {self.label}".strip()


class FeatureDialog(QDialog):
    """Chooses a feature of an attached SAE."""

    picked = Signal(str, int, int)

    def __init__(self, frame: PageContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Choose a feature")
        self.resize(560, 560)
        self.picker = FeaturePicker(frame.engine, frame.bridge)
        self.place = Choice(Qt.TextElideMode.ElideMiddle)
        self.place.setAccessibleName("SAE")
        for each in frame.engine.desk.state.attachments:
            self.place.addItem(f"Layer {each.layer} · {each.sae_id}", (each.sae_id, each.layer, each.sae.config.d_sae))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(theme.L, theme.L, theme.L, theme.L)
        layout.setSpacing(theme.M)
        layout.addWidget(label("Colour words by a feature", "title"))
        layout.addWidget(self.place)
        layout.addWidget(self.picker, 1)
        layout.addLayout(line(None, Button("Cancel", on_click=self.reject)))
        self.place.currentIndexChanged.connect(self._on_place)
        self.picker.picked.connect(self._on_picked)
        self._on_place(0)
        self.picker.setFocus()

    def _on_place(self, _row: int) -> None:
        place = self.place.currentData()
        if place is not None:
            self.picker.set_place(*place)

    def _on_picked(self, sae_id: str, layer: int, index: int) -> None:
        self.picked.emit(sae_id, layer, index)
        self.accept()


class Lens(QObject):
    """Joins the panel to the engine. ``prompt_of`` gives the request behind an answer of the chat on screen."""

    FOLLOWS = (ActivationObserved, SaeAttached, SaeDetached, MonitoringStateChanged, SaesChanged)

    feature_changed = Signal()
    coloured = Signal(object, object)
    """(a :class:`ConversationMessage`, its :class:`Coloured`)."""

    def __init__(self, frame: PageContext, panel: LensPanel, page: QWidget) -> None:
        super().__init__(page)
        self._frame = frame
        self._engine = frame.engine
        self._bridge = frame.bridge
        self._panel = panel
        self._page = page
        self.feature: Feature | None = None
        self.dialog: FeatureDialog | None = None
        self._live: dict[AttachmentKey, list[LiveRow]] = {}
        self._labels: dict[tuple[str, int], str] = {}
        self._asked = 0
        panel.choose.connect(self.choose)
        panel.clear.connect(self.clear)
        panel.read_along.connect(self._read_along)
        self.refresh()

    # --- colours ----------------------------------------------------------------------------------------------------

    def choose(self) -> None:
        """Open the dialog in which a feature is chosen."""
        if not self._engine.desk.state.attachments:
            self._panel.notice.show_words("No SAE is attached. Attach one first.", "warn")
            return
        dialog = FeatureDialog(self._frame, self._page)
        dialog.finished.connect(dialog.deleteLater)
        dialog.picked.connect(self.take)
        self.dialog = dialog
        dialog.open()

    def take(self, sae_id: str, layer: int, index: int) -> None:
        """Colour answers by this feature from now on."""
        labels = self._engine.library.labels

        def found(known: FeatureLabel | None) -> None:
            words, most = ("", None) if known is None else (known.label or "", known.max_activation)
            self.feature = Feature(sae_id, layer, index, words, most)
            self._panel.show_feature(self.feature.name, f"layer {layer} · {sae_id}")
            self.feature_changed.emit()

        self._bridge.run_in_background(lambda: labels.get(sae_id, index), found, self._say_error, owner=self)

    def clear(self) -> None:
        """Colour nothing."""
        self.feature = None
        self._panel.show_feature("", "")
        self.feature_changed.emit()

    def read(self, message: ConversationMessage, prompt_ids: Callable[[], tuple[int, ...]]) -> None:
        """Read an answer unsteered and say its colours with :attr:`coloured`.

        ``prompt_ids`` gives the tokens before the answer; it runs in the background.
        """
        feature, pieces = self.feature, message.details.get("pieces")
        if feature is None or not isinstance(pieces, list) or not pieces:
            return
        reader = self._engine.reading
        # The answer is read behind its reasoning, as it was written, and coloured alone.
        answer = [token for _text, tokens, *_kind in pieces for token in tokens]

        def begin() -> tuple[object, int]:
            before = prompt_ids()
            future = reader.read(
                (*before, *answer), sae_id=feature.sae_id, layer=feature.layer, top_k=0, features=[feature.index]
            )
            return future, len(before)

        def begun(outcome: tuple[object, int]) -> None:
            future, start = outcome
            self._bridge.when_done(
                future,  # type: ignore[arg-type]
                lambda reading: self._show(message, feature, pieces, reading, start),
                self._say_error,
                owner=self,
            )

        self._bridge.run_in_background(begin, begun, self._say_error, owner=self)

    def _show(
        self,
        message: ConversationMessage,
        feature: Feature,
        pieces: list[list[object]],
        reading: TextReading,
        start: int,
    ) -> None:
        if feature != self.feature:
            return
        values = reading.values(feature.index)[start:]
        found: list[TokenPiece] = []
        place = 0
        for text, tokens, *kind in pieces:
            here = values[place : place + len(tokens)]  # type: ignore[arg-type]
            place += len(tokens)  # type: ignore[arg-type]
            if kind:
                continue
            found.append(TokenPiece(str(text), max(here) if here else None))
        most = max((piece.value for piece in found if piece.value is not None), default=0.0)
        words = f"{feature.name} at layer {feature.layer}, from an unsteered reading; strongest here {most:.1f}"
        if feature.most is not None:
            words += f", in its SAE's data {feature.most:.1f}"
        self.coloured.emit(message, Coloured(tuple(found), max(most, feature.most or 0.0), feature.name, f"{words}."))

    # --- the last token ---------------------------------------------------------------------------------------------

    def on_event(self, event: Event, request_ids: tuple[str, ...]) -> None:
        """Follow the monitor; of a comparison, the steered side's tokens."""
        if isinstance(event, ActivationObserved):
            if request_ids and event.request_id == request_ids[0]:
                self._observe(event)
        elif isinstance(event, SaeAttached | SaeDetached | MonitoringStateChanged):
            self.refresh()
        elif isinstance(event, SaesChanged):
            self._labels.clear()

    def begin(self) -> None:
        """An answer begins: the last one's features are not its."""
        self._live.clear()
        self._panel.show_live("", {})
        self.refresh()

    def refresh(self) -> None:
        """Say whether there is something to read with, and whether it reads along."""
        attached = self._engine.desk.state.attachments
        places = {(each.sae_id, each.layer) for each in attached}
        self._live = {place: rows for place, rows in self._live.items() if place in places}
        if self.feature is not None and (self.feature.sae_id, self.feature.layer) not in places:
            self.clear()
        self._panel.show_state(attached=bool(attached), on=self._engine.monitor.state().enabled)

    def _observe(self, event: ActivationObserved) -> None:
        place = (event.sae_id, event.layer)
        missing = [each.idx for each in event.features if (event.sae_id, each.idx) not in self._labels]
        self._live[place] = [
            LiveRow(each.idx, self._labels.get((event.sae_id, each.idx), ""), each.value) for each in event.features
        ]
        resident = self._engine.shelf.resident
        token = resident.backend.tokenizer.token_text(event.token_id) if resident is not None else ""
        self._panel.show_live(token.replace("\n", "↵"), self._live)
        if missing:
            labels, sae_id = self._engine.library.labels, event.sae_id

            def known(found: dict[int, FeatureLabel]) -> None:
                for index in missing:
                    one = found.get(index)
                    self._labels[sae_id, index] = (one.label or "") if one is not None else ""
                self._name(place)

            self._bridge.run_in_background(lambda: labels.of(sae_id, missing), known, self._say_error, owner=self)

    def _name(self, place: AttachmentKey) -> None:
        rows = self._live.get(place)
        if rows is not None:
            self._live[place] = [
                LiveRow(row.index, self._labels.get((place[0], row.index), ""), row.value) for row in rows
            ]
            self._panel.show_live(self._panel.token.full_text().strip("“”"), self._live)

    def _read_along(self, on: bool) -> None:
        monitor = self._engine.monitor
        self._bridge.run_in_background(
            lambda: monitor.set_enabled(on), lambda _state: self.refresh(), self._say_error, owner=self
        )

    def _say_error(self, error: Exception) -> None:
        self._panel.notice.show_words(describe_error(error))
        self.refresh()


def prompt_ids(engine: Engine, request: GenerationRequest) -> tuple[int, ...]:
    """The tokens before an answer. For a background thread."""
    return engine.generation.prepare(replace(request, max_tokens=1)).prompts[0].token_ids
