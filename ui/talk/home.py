"""The first page: the model, the server, and what to do first."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Slot
from PySide6.QtGui import QResizeEvent, QShowEvent
from PySide6.QtWidgets import QApplication, QBoxLayout, QFileDialog, QFrame, QScrollArea, QWidget

from engine.errors import LoadCancelled, ModelAlreadyExists
from engine.events import (
    ConversationsChanged,
    Event,
    ModelLoadComplete,
    ModelLoadError,
    ModelLoadProgress,
    ModelsChanged,
    ModelUnloadComplete,
    ServerStateChanged,
)
from engine.public.library import ConversationSummary
from engine.public.models import LoadedModel, ModelView
from ui.context.page import Page
from ui.context.page_context import CHAT, MODELS, STEERING, PageContext
from ui.kit import theme
from ui.kit.basics import Button, Surface, column
from ui.kit.first_steps import FirstSteps
from ui.kit.ports import free_port_after
from ui.kit.server_card import ServerCard
from ui.kit.shelf_text import detaching
from ui.kit.text import describe_error
from ui.talk.first_steps import FirstStepsGuide
from ui.talk.model_card import ModelCard
from ui.talk.recent_card import RecentCard

CONTENT_WIDTH = 1240
TRAFFIC_MS = 1000
TWO_COLUMNS = 940
"""From this page width on, the cards stand side by side."""

INSTALLED = "The demo model and its pack are installed."
READY = "The demo model and its SAEs are installed and ready."

TALL = 940
"""From this page height on, there is room for the conversations written last."""


class HomePage(Page, QScrollArea):
    """Joins the three cards to the engine and the server."""

    FOLLOWS = (*FirstStepsGuide.FOLLOWS, ServerStateChanged)

    def __init__(self, frame: PageContext) -> None:
        super().__init__()
        self._frame = frame
        self._services = services = frame.services
        self._engine = frame.engine
        self._bridge = frame.bridge
        self.setObjectName("page")
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.model = ModelCard()
        self.server = ServerCard(services.configured_port)
        self.steps = FirstSteps()
        self.recent = RecentCard()
        self._ordered: bool | None = None
        """Whether all was done when the cards got their places; None until it is known."""
        self.folder_dialog: QFileDialog | None = None
        # The snippets carry the key.
        self._end = services.settings.subscribe(lambda _names: self._bridge.post(self._fill_steps, owner=self))
        self._build()
        self.model.load.connect(self._load)
        self.model.unload.connect(self._unload)
        self.model.cancel.connect(self._cancel)
        self.model.add_folder.connect(self._pick_folder)
        self.model.install_demo.connect(frame.demo.begin)
        self.server.start.connect(self._start_server)
        self.server.stop.connect(self._stop_server)
        self.steps.chat.connect(partial(frame.go, CHAT))
        self.steps.steering.connect(partial(frame.go, STEERING))
        self.steps.tour.connect(frame.show_around)
        self.guide = FirstStepsGuide(frame, self.steps, self)
        self.guide.load_wanted.connect(self._load)
        self.guide.known.connect(self._on_known)
        self.guide.failed.connect(self._say_error)
        self.recent.opened.connect(self._open_conversation)
        frame.demo.changed.connect(self._show_install)
        frame.demo.ended.connect(self._on_installed)
        self._pulse = QTimer(self)
        self._pulse.setInterval(TRAFFIC_MS)
        self._pulse.timeout.connect(self._refresh_traffic)
        self._pulse.start()
        self.refresh_models()
        self._refresh_recent()
        self._refresh_server()

    def prepare_to_close(self) -> None:
        """Follow the settings no more."""
        self._end()

    def on_event(self, event: Event) -> None:
        """Follow the engine and the server."""
        self.guide.on_event(event)
        match event:
            case ModelLoadProgress():
                self._refresh_state()
            case ModelLoadError():
                if event.code != LoadCancelled.code:
                    self._say_load_failed(event.model_id, event.message)
                self.refresh_models()
            case ModelLoadComplete():
                if self.model.notice.words() not in (INSTALLED, READY):
                    self.model.notice.hide()
                self.refresh_models()
            case ModelUnloadComplete() | ModelsChanged():
                self.refresh_models()
            case ServerStateChanged():
                self._refresh_server()
            case ConversationsChanged():
                self._refresh_recent()

    # --- what stands first ------------------------------------------------------------------------------------------

    @Slot()
    def _on_known(self) -> None:
        if self._ordered is None:
            self._order()

    def _order(self) -> None:
        """While there is something to do first it stands first, so that each of its steps is in view."""
        done = self.guide.all_done
        if done is not None and done != self._ordered:
            self._ordered = done
            self._inside.removeWidget(self.steps)
            self._inside.insertWidget(1 if done else 0, self.steps)

    def showEvent(self, event: QShowEvent) -> None:
        """Nothing changes its place while a person looks at it."""
        super().showEvent(event)
        self._order()

    def _open_conversation(self, conversation_id: int) -> None:
        self._frame.go(CHAT, conversation=conversation_id)

    # --- models -----------------------------------------------------------------------------------------------------

    def refresh_models(self) -> None:
        """Read the shelf anew."""
        self._refresh_state()
        self._bridge.run_in_background(self._engine.shelf.list, self.model.show_models, self._say_error, owner=self)

    def _refresh_state(self) -> None:
        shelf = self._engine.shelf
        self.model.show_state(shelf.resident, shelf.loading)
        self._fill_steps()

    def _load(self, model_id: int) -> None:
        """Load a model; where that takes SAEs away, once the person has agreed."""
        if words := detaching(self._engine, model_id):
            agree = Button("Load it", "primary", on_click=lambda: self._load_now(model_id))
            self.model.notice.show_words(words, "warn", agree)
        else:
            self._load_now(model_id)

    def _load_now(self, model_id: int) -> None:
        self.model.notice.hide()
        models = self._engine.models

        def started(future: Future[LoadedModel]) -> None:
            self._refresh_state()
            # What a load ends with is an event.
            self._bridge.when_done(future, None, lambda _error: self._refresh_state(), owner=self)

        self._bridge.run_once(
            ("load", model_id), lambda: models.begin_load(model_id), started, self._say_error, owner=self
        )

    def _say_load_failed(self, model_id: int, words: str) -> None:
        """Where a model's row says what can be done about it, lead there."""
        self.model.notice.show_words(
            words, "bad", Button("Open Models", on_click=lambda: self._frame.go(MODELS, model=model_id))
        )

    def _cancel(self) -> None:
        self.model.stage.setText("Cancelling…")
        self._bridge.run_in_background(self._engine.models.cancel_load, owner=self)

    def _unload(self) -> None:
        self.model.notice.hide()
        models, resident = self._engine.models, self._engine.shelf.resident
        if resident is None:
            self._refresh_state()
            return
        model_id = resident.record.id
        self.model.unload_button.setEnabled(False)

        def settled(_outcome: object = None) -> None:
            self.model.unload_button.setEnabled(True)
            self.refresh_models()

        def failed(error: Exception) -> None:
            settled()
            self._say_error(error)

        self._bridge.run_once(("unload", model_id), lambda: models.unload(model_id), settled, failed, owner=self)

    def _pick_folder(self) -> None:
        dialog = QFileDialog(self, "Choose a folder with a transformers checkpoint")
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly, True)
        dialog.fileSelected.connect(self.import_folder)
        dialog.finished.connect(dialog.deleteLater)
        self.folder_dialog = dialog
        dialog.open()

    def import_folder(self, folder: str) -> None:
        """Put a checkpoint folder on the shelf, by reference."""
        models = self._engine.models
        self.model.add_button.setEnabled(False)
        self.model.notice.show_words(f"Checking {folder}…", "info")

        self._bridge.run_once(
            ("import model", folder, False),
            lambda: models.import_local(Path(folder)),
            self._on_imported,
            self._on_import_error,
            owner=self,
        )

    def _on_imported(self, record: ModelView) -> None:
        self.model.add_button.setEnabled(True)
        self.model.notice.show_words(
            f"{record.name} is on the shelf.", "info", Button("Load it", on_click=lambda: self._load(record.id))
        )
        self.refresh_models()

    def _on_import_error(self, error: Exception) -> None:
        self.model.add_button.setEnabled(True)
        tone = "info" if isinstance(error, ModelAlreadyExists) else "bad"
        self.model.notice.show_words(describe_error(error), tone)

    def _say_error(self, error: Exception) -> None:
        self.model.notice.show_words(describe_error(error))
        self._refresh_state()

    # --- the demo model ---------------------------------------------------------------------------------------------

    @Slot()
    def _show_install(self) -> None:
        demo = self._frame.demo
        if demo.running:
            self.model.notice.hide()
            self.model.show_install(demo.progress, demo.stage)
        else:
            self.model.show_install(None, "")

    @Slot(object)
    def _on_installed(self, error: Exception | None) -> None:
        if error is not None:
            self._say_error(error)
            self.guide.refresh()
        else:
            # What is offered then needs the pack's cluster, which the guide has not seen yet.
            self.guide.refresh(self._say_installed)
        self.refresh_models()

    def _say_installed(self) -> None:
        notice = self.model.notice
        if self._engine.desk.state.attachments:
            # The step's own button may be out of sight; this one is where the person looked on.
            compare = Button("Compare in Chat", "primary", on_click=self._compare)
            notice.show_words(READY, "info", compare)
            where = QApplication.focusWidget()
            if self.isVisible() and (where is None or where.focusPolicy() == Qt.FocusPolicy.NoFocus):
                # The button that began it has gone; nothing else has the focus.
                compare.setFocus(Qt.FocusReason.OtherFocusReason)
        elif self._engine.shelf.resident is None:
            notice.show_words(f"{INSTALLED} Load it from the shelf below.", "info")
        else:
            notice.show_words(INSTALLED, "info")

    def _compare(self) -> None:
        self.model.notice.hide()
        self.guide.compare()

    # --- conversations ----------------------------------------------------------------------------------------------

    def _refresh_recent(self) -> None:
        conversations = self._engine.library.conversations
        self._bridge.run_in_background(lambda: conversations.list(), self._show_recent, self._say_error, owner=self)

    def _show_recent(self, summaries: list[ConversationSummary]) -> None:
        self.recent.show_summaries(summaries)
        self._arrange()

    # --- the server -------------------------------------------------------------------------------------------------

    def _refresh_server(self) -> None:
        server = self._services.server
        state = server.state
        self.server.show_state(state, server.address, server.error, shared=server.shared)
        self._refresh_traffic()
        if state == "error":
            tried = self.server.port.value()
            self._bridge.run_in_background(lambda: free_port_after(tried), self.server.offer_port, owner=self)
        self._fill_steps()

    def _refresh_traffic(self) -> None:
        if self.isVisible():
            stats = self._engine.generation.stats()
            self.server.show_traffic(stats.in_flight, stats.queue_waiting)

    def _start_server(self, port: int) -> None:
        server = self._services.server
        self.server.show_state("starting", None, None)
        self._bridge.run_once(
            ("start server", port), lambda: server.start(port), None, self._on_server_error, owner=self
        )

    def _stop_server(self) -> None:
        self.server.stop_button.setEnabled(False)
        self._bridge.run_in_background(
            self._services.server.stop, lambda _nothing: self._after_stop(), self._on_server_error, owner=self
        )

    def _after_stop(self) -> None:
        self.server.stop_button.setEnabled(True)
        self._refresh_server()

    def _on_server_error(self, error: Exception) -> None:
        self.server.stop_button.setEnabled(True)
        self._refresh_server()
        self.server.notice.show_words(describe_error(error))

    def _fill_steps(self) -> None:
        resident = self._engine.shelf.resident
        key = str(self._services.settings.get("API_KEY").value or "").strip() or None
        self.steps.fill(self._services.server.address, resident.record.name if resident else None, key)

    # --- layout -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        body = Surface("pageBody")
        self._content = QWidget()
        self._content.setMaximumWidth(CONTENT_WIDTH)
        inside = self._inside = column(spacing=theme.L)
        self._cards = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._cards.setSpacing(theme.L)
        self._cards.addWidget(self.model, 3)
        self._cards.addWidget(self.server, 2)
        inside.addWidget(self.steps)
        inside.addLayout(self._cards)
        inside.addWidget(self.recent)
        self._content.setLayout(inside)
        across = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        across.addStretch(1)
        across.addWidget(self._content, 1000)
        across.addStretch(1)
        outer = column(margins=(theme.XL, theme.L + 4, theme.XL, theme.L + 4), spacing=0)
        outer.addStretch(2)
        outer.addLayout(across)
        outer.addStretch(3)
        body.setLayout(outer)
        self.setWidget(body)

    def focusNextPrevChild(self, onward: bool) -> bool:
        """Where the control in focus has gone, the focus stays at its place, and with it what is in view."""
        gone = QApplication.focusWidget()
        if gone is None or (gone.isVisible() and gone.isEnabled()) or not self.isAncestorOf(gone):
            return super().focusNextPrevChild(onward)
        place = gone.parentWidget()
        while place is not None and place is not self and not (place.isVisible() and place.isEnabled()):
            place = place.parentWidget()
        (place or self).setFocus(Qt.FocusReason.OtherFocusReason)
        return True

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side where there is room, one under the other where there is not."""
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        wide = self.width() >= TWO_COLUMNS
        self._cards.setDirection(QBoxLayout.Direction.LeftToRight if wide else QBoxLayout.Direction.TopToBottom)
        self.steps.set_wide(wide)
        self.recent.setVisible(bool(self.recent.tiles) and self.viewport().height() >= TALL)
