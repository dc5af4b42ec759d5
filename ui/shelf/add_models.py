"""The card through which models come in: files of this computer, what other programs keep, and the hub."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QLineEdit, QPushButton, QWidget

from engine.public.downloads import DownloadRequest, ModelPreview
from engine.public.models import FoundModel, HubFound, LocalModel
from ui.kit import shelf_text as words
from ui.kit import theme
from ui.kit.basics import Button, Card, ElidedLabel, Notice, column, label, line, pill
from ui.kit.plain_text import as_letters
from ui.kit.scroll_page import reveal
from ui.kit.text import counted, megabytes
from ui.shelf.hub_finds import HubFinds, Pairs

HUB, FOUND, FILES = 0, 1, 2
AS_STORED = "as stored"


class OfferRow(QWidget):
    """Something that can be had: a name, a line about it, and the buttons to have it, the usual one first."""

    def __init__(self, name: str, about: str, *buttons: Button, note: str = "") -> None:
        super().__init__()
        self.name, self.about, self.note, self.buttons = name, about, note, buttons
        self.button = buttons[0] if buttons else None
        texts = column(spacing=1)
        texts.addWidget(ElidedLabel(name, "strong"))
        texts.addWidget(label(about, "small", wrap=True))
        layout = line(spacing=theme.M)
        layout.setContentsMargins(0, theme.XS, 0, theme.XS)
        layout.addLayout(texts, 1)
        if note:
            layout.addWidget(pill(note, "quiet"))
        for button in buttons:
            layout.addWidget(button)
        self.setLayout(layout)


class AddModels(Card):
    """Shows what was found; says what the person wants with signals."""

    search_wanted = Signal(str)
    """Words to search the hub for."""
    preview_wanted = Signal(str, str)
    """(repository, revision)."""
    download = Signal(object)
    """A :class:`DownloadRequest`."""
    look = Signal()
    take = Signal(str, bool)
    """A path to import; whether its files are copied into the data folder."""
    cancel_copy = Signal()
    pick_folder = Signal()
    pick_file = Signal()

    def __init__(self) -> None:
        super().__init__("Add a model")
        self.tabs = QButtonGroup(self)
        self.tabs.setExclusive(True)
        self._ways: tuple[QWidget, ...] = ()
        self.notice = Notice()
        self.repo = QLineEdit()
        self.repo.setPlaceholderText("Search the hub, or owner/name: HuggingFaceTB/SmolLM2-360M-Instruct")
        self.repo.setAccessibleName("Repository on the Hugging Face hub")
        self.revision = QLineEdit()
        self.revision.setPlaceholderText("main")
        self.revision.setAccessibleName("Revision")
        self.revision.setFixedWidth(120)
        self.finds = HubFinds()
        self.finds.chosen.connect(self._look_at)
        self.pairs = Pairs()
        self.preview_button = Button("Look", "primary", "search", self._preview)
        self.repo.returnPressed.connect(self._preview)
        self.revision.returnPressed.connect(self._preview)
        self.hub_about = label("", "muted", wrap=True)
        self.offers: list[OfferRow] = []
        self.found: list[OfferRow] = []
        self.found_words = label("", "muted", wrap=True)
        self.look_button = Button("Look again", "plain", "again", self.look.emit)
        self.local: list[OfferRow] = []
        self.copy_stage = ElidedLabel("", "small", Qt.TextElideMode.ElideMiddle)
        self.copy_cancel = Button("Cancel", on_click=self.cancel_copy.emit)
        self.copy_cancel.setAccessibleName("Cancel the copy")
        self._offers = column(spacing=0)
        self._found = column(spacing=0)
        self._local = column(spacing=0)
        self._build()

    def show_tab(self, place: int) -> None:
        """Open one of the three ways."""
        self.tabs.button(place).setChecked(True)
        for index, way in enumerate(self._ways):
            way.setVisible(index == place)

    # --- the hub ----------------------------------------------------------------------------------------------------

    def show_looking(self) -> None:
        """The hub is being asked."""
        self.notice.hide()
        self.preview_button.setEnabled(False)
        self.hub_about.setText("Asking the hub…")
        self.finds.clear()
        self._fill(self._offers, self.offers, [])

    def show_preview(self, found: ModelPreview) -> None:
        """What a repository holds, with a button for each thing that can be downloaded."""
        self.preview_button.setEnabled(True)
        parts = [found.repo_id]
        parts += words.header_facts(found)
        parts.append(f"{counted(len(found.files), 'file')}, {words.size(found.total_bytes)}")
        if found.gated:
            parts.append("gated: its authors ask for consent first")
        self.hub_about.setText(words.in_line(parts))
        rows: list[OfferRow] = []
        if found.has_checkpoint and found.problem is None:
            for level in (None, *(each.quantization for each in found.estimates if each.quantization in ("Q8", "Q4"))):
                rows.append(self._checkpoint_offer(found, level))
        for quant in found.gguf_quants:
            asked = DownloadRequest(found.repo_id, found.revision, gguf_label=quant.label, gguf_files=quant.files)
            parts_words = f", {counted(len(quant.files), 'file')}" if quant.is_split else ""
            about = f"GGUF · {words.size(quant.total_bytes)} to download{parts_words} · {words.hub_terms(quant.memory)}"
            rows.append(OfferRow(quant.label, about, self._download_button(quant.label, asked)))
        self._fill(self._offers, self.offers, rows)
        if found.problem is not None:
            self.notice.show_words(f"The checkpoint there cannot be run: {found.problem}", "warn")
        elif not rows:
            self.notice.show_words("There is no model in it that this program can run.", "warn")

    def show_hub_error(self, said: str) -> None:
        """Why there is nothing to show."""
        self.preview_button.setEnabled(True)
        self.hub_about.setText("")
        self.notice.show_words(said)

    def _checkpoint_offer(self, found: ModelPreview, level: str | None) -> OfferRow:
        estimates = {each.quantization: each for each in found.estimates}
        stored = next(iter(found.estimates), None)
        shown = estimates.get(level or "FP16", stored)
        size = words.size(found.download_bytes)
        about = f"transformers · {size} to download"
        if shown is not None:
            about += f" · {words.hub_terms(shown.memory)}"
        name = f"Checkpoint, {AS_STORED}" if level is None else f"Checkpoint, held as {level}"
        asked = DownloadRequest(found.repo_id, found.revision, quantization=level)
        return OfferRow(name, about, self._download_button(name, asked))

    def _download_button(self, name: str, asked: DownloadRequest) -> Button:
        made = Button("Download", "plain", "download", lambda: self.download.emit(asked))
        made.setAccessibleName(f"Download {name}")
        return made

    def _preview(self) -> None:
        repo = self.repo.text().strip().removeprefix("https://huggingface.co/").strip("/")
        if repo and "/" not in repo:
            self.search_wanted.emit(repo)
        elif repo:
            self.preview_wanted.emit(repo, self.revision.text().strip() or "main")

    def show_search(self, found: Sequence[HubFound]) -> None:
        """What a search found; each can be looked at."""
        self.preview_button.setEnabled(True)
        self.hub_about.setText("" if found else "The hub has no such model. Try fewer or other words.")
        self.finds.show_found(found)

    def _look_at(self, repo_id: str) -> None:
        self.repo.setText(repo_id)
        self._preview()

    # --- this computer ----------------------------------------------------------------------------------------------

    def show_looking_around(self) -> None:
        """Other programs' folders are being looked through."""
        self.look_button.setEnabled(False)
        self.found_words.setText("Looking in the Hugging Face cache and the folders of LM Studio and Ollama…")
        self.found_words.show()

    def show_found(self, found: Sequence[FoundModel]) -> None:
        """Models that other programs keep."""
        self.look_button.setEnabled(True)
        rows = []
        for each in found:
            kind = "GGUF" if each.kind == "gguf" else "transformers"
            about = f"{each.origin} · {kind} · {words.size(each.size_bytes)}"
            if each.on_shelf:
                rows.append(OfferRow(each.name, about, note="on the shelf"))
            else:
                rows.append(OfferRow(each.name, about, self._take_button("Add", each.name, each.path)))
        self._fill(self._found, self.found, rows)
        self.found_words.setText(
            "They stay where they are and take no more room on the disk."
            if rows
            else "Nothing was found in the Hugging Face cache and the folders of LM Studio and Ollama."
        )

    def show_local(self, found: LocalModel | None) -> None:
        """What lies where a person pointed, and the two ways to have it; None: nothing."""
        rows = []
        if found is not None:
            name, about = found.row.name, words.local_facts(found)
            if found.known_as is not None:
                rows.append(OfferRow(name, about, note=f"on the shelf as {found.known_as}"))
            else:
                copy = self._take_button("Add a copy", name, found.path, copy=True)
                copy.setToolTip(
                    as_letters(f"Copy {megabytes(found.row.disk_size_mb)} into the data folder, and use that")
                )
                rows.append(OfferRow(name, about, self._take_button("Add", name, found.path), copy))
        self._fill(self._local, self.local, rows)

    def show_copying(self, stage: str | None) -> None:
        """How far a copy into the data folder is; None: none is under way."""
        self.copy_stage.set_text(stage or "")
        for part in (self.copy_stage, self.copy_cancel):
            part.setVisible(stage is not None)
        for row in self.local:
            for button in row.buttons:
                button.setEnabled(stage is None)

    def _take_button(self, verb: str, name: str, path: Path, *, copy: bool = False) -> Button:
        made = Button(verb, on_click=partial(self.take.emit, str(path), copy))
        made.setAccessibleName(f"{verb} {name}" if not copy else f"Add a copy of {name}")
        return made

    # --- layout -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _fill(layout: object, rows: list[OfferRow], made: Sequence[OfferRow]) -> None:
        for row in rows:
            layout.removeWidget(row)  # type: ignore[attr-defined]
            row.hide()
            row.deleteLater()
        rows[:] = made
        for row in made:
            layout.addWidget(row)  # type: ignore[attr-defined]
        if made:
            reveal(made[0])

    def _build(self) -> None:
        tab_line = line(spacing=theme.M)
        for place, title in ((HUB, "From the hub"), (FOUND, "Found on this computer"), (FILES, "A folder or file")):
            tab = QPushButton(title)
            tab.setProperty("look", "tab")
            tab.setCheckable(True)
            tab.setCursor(Qt.CursorShape.PointingHandCursor)
            self.tabs.addButton(tab, place)
            tab_line.addWidget(tab)
        tab_line.addStretch(1)
        self.tabs.idClicked.connect(self.show_tab)
        hub, found, files = QWidget(), QWidget(), QWidget()
        inside = column()
        across = line()
        across.addWidget(self.repo, 1)
        across.addWidget(self.revision)
        across.addWidget(self.preview_button)
        inside.addLayout(across)
        inside.addLayout(line(self.pairs.button, None))
        inside.addWidget(self.pairs)
        inside.addWidget(self.hub_about)
        inside.addWidget(self.finds)
        inside.addLayout(self._offers)
        hub.setLayout(inside)
        inside = column()
        inside.addWidget(self.found_words)
        inside.addLayout(self._found)
        inside.addLayout(line(self.look_button, None))
        found.setLayout(inside)
        inside = column()
        inside.addWidget(
            label(
                "A folder with a transformers checkpoint, or a GGUF file. It stays where it is and is never changed, "
                "unless you have it copied. Dropped anywhere on this page it is added at once.",
                "muted",
                wrap=True,
            )
        )
        folder = Button("Choose a folder…", "plain", "folder", self.pick_folder.emit)
        file = Button("Choose a GGUF file…", "plain", "folder", self.pick_file.emit)
        inside.addLayout(line(folder, file, None))
        inside.addLayout(self._local)
        copying = line()
        copying.addWidget(self.copy_stage, 1)
        copying.addWidget(self.copy_cancel)
        inside.addLayout(copying)
        files.setLayout(inside)
        self.show_copying(None)
        self.body.addLayout(tab_line)
        self.body.addWidget(self.notice)
        # Not a stack, which is as high as its highest page.
        self._ways = (hub, found, files)
        for way in self._ways:
            self.body.addWidget(way)
        self.show_tab(HUB)
