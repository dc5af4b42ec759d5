"""The card through which SAEs come in: a folder of this computer, or files of a hub repository, several at once."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLineEdit, QTreeWidgetItem

from engine.public.downloads import HubSaeFile, SaePreview
from engine.public.models import HubFound
from ui.kit import shelf_text as words
from ui.kit.basics import Button, Card, Notice, label, line
from ui.kit.scroll_page import reveal
from ui.kit.text import count, counted
from ui.kit.views import RowTree
from ui.shelf.hub_finds import HubFinds, Pairs

TREE_HEIGHT = 260
PATH = Qt.ItemDataRole.UserRole


class AddSaes(Card):
    """Shows what a repository holds; says what the person wants with signals."""

    search_wanted = Signal(str)
    """Words to search the hub for."""
    preview_wanted = Signal(str, str)
    download = Signal(str, str, list)
    """(repository, revision, paths of weight files)."""
    pick_folder = Signal()

    def __init__(self) -> None:
        super().__init__("Add SAEs")
        self._preview: SaePreview | None = None
        self.repo = QLineEdit()
        self.repo.setPlaceholderText("Search the hub, or owner/name: google/gemma-scope-2b-pt-res")
        self.repo.setAccessibleName("Repository on the Hugging Face hub")
        self.revision = QLineEdit()
        self.revision.setPlaceholderText("main")
        self.revision.setAccessibleName("Revision")
        self.revision.setFixedWidth(120)
        self.finds = HubFinds()
        self.finds.chosen.connect(self._look_at)
        self.pairs = Pairs()
        self.preview_button = Button("Look", "primary", "search", self._ask)
        self.folder_button = Button("Import a folder…", "plain", "folder", self.pick_folder.emit)
        self.repo.returnPressed.connect(self._ask)
        self.revision.returnPressed.connect(self._ask)
        self.about = label("", "muted", wrap=True)
        self.filter = QLineEdit()
        self.filter.setPlaceholderText("Filter by layer, width or path")
        self.filter.setAccessibleName("Filter the files")
        self.filter.setClearButtonEnabled(True)
        self.filter.textChanged.connect(self._on_filter)
        self.tree = RowTree()
        self.tree.setHeaderLabels(["Layer, width and file", "Size"])
        self.tree.setAccessibleName("SAEs in the repository")
        self.tree.setFixedHeight(TREE_HEIGHT)
        self.tree.setUniformRowHeights(True)
        self.tree.header().setStretchLastSection(False)
        self.tree.header().setSectionResizeMode(0, self.tree.header().ResizeMode.Stretch)
        self.tree.itemChanged.connect(lambda *_what: self._count())
        self.chosen = label("", "small")
        self.download_button = Button("Download", "primary", "download", self._download)
        self.notice = Notice()
        across = line()
        across.addWidget(self.repo, 1)
        for part in (self.revision, self.preview_button):
            across.addWidget(part)
        self.body.addWidget(
            label(
                "From the hub, or a folder of this computer in any of the layouts in use (SAELens, Gemma Scope, "
                "sparsify, …). A folder stays where it is; you can also drop it anywhere on this page.",
                "muted",
                wrap=True,
            )
        )
        self.body.addLayout(across)
        self.body.addLayout(line(self.pairs.button, self.folder_button, None))
        for widget in (self.pairs, self.about, self.finds, self.notice, self.filter, self.tree):
            self.body.addWidget(widget)
        self.body.addLayout(line(self.chosen, None, self.download_button))
        self._show_tree(False)

    def show_looking(self) -> None:
        """The hub is being asked."""
        self.notice.hide()
        self.preview_button.setEnabled(False)
        self.about.setText("Asking the hub…")
        self.finds.clear()
        self._show_tree(False)

    def show_search(self, found: Sequence[HubFound]) -> None:
        """What a search found; each can be looked at."""
        self.preview_button.setEnabled(True)
        self.about.setText("" if found else "The hub has nothing of that name. Try fewer or other words.")
        self.finds.show_found(found)

    def _look_at(self, repo_id: str) -> None:
        self.repo.setText(repo_id)
        self._ask()

    def show_preview(self, found: SaePreview) -> None:
        """The SAEs of a repository, by layer and width."""
        self._preview = found
        self.preview_button.setEnabled(True)
        model = f" for {found.model_id}" if found.model_id else ""
        self.about.setText(f"{found.repository_id}: {counted(found.total_files, 'SAE')}{model}.")
        self.tree.blockSignals(True)
        self.tree.clear()
        for layer, widths in _grouped(found).items():
            top = self._branch(self.tree.invisibleRootItem(), "layer unknown" if layer is None else f"Layer {layer}")
            for width, files in widths.items():
                parent = self._branch(top, f"Width {width}") if width is not None else top
                for file in files:
                    leaf = self._branch(parent, file.path, words.size(file.size_bytes))
                    leaf.setData(0, PATH, file.path)
            if len(_grouped(found)) <= 2:
                top.setExpanded(True)
        self.tree.blockSignals(False)
        self._show_tree(bool(found.files))
        self._count()
        if found.files:
            reveal(self.tree)
        if not found.files:
            self.notice.show_words("There is no weight file of an SAE in it.", "warn")

    def show_error(self, said: str) -> None:
        """Why there is nothing to show."""
        self.preview_button.setEnabled(True)
        self.about.setText("")
        self.notice.show_words(said)

    def leaves(self) -> list[QTreeWidgetItem]:
        """The files, as they stand in the tree."""
        found: list[QTreeWidgetItem] = []

        def walk(item: QTreeWidgetItem) -> None:
            if item.data(0, PATH):
                found.append(item)
            for child in _children(item):
                walk(child)

        walk(self.tree.invisibleRootItem())
        return found

    def paths(self) -> list[str]:
        """The files that are ticked."""
        return [str(leaf.data(0, PATH)) for leaf in self.leaves() if leaf.checkState(0) is Qt.CheckState.Checked]

    def _branch(self, parent: QTreeWidgetItem, text: str, size: str = "") -> QTreeWidgetItem:
        item = QTreeWidgetItem(parent, [text, size])
        item.setFlags(item.flags() | Qt.ItemFlag.ItemIsUserCheckable | Qt.ItemFlag.ItemIsAutoTristate)
        item.setCheckState(0, Qt.CheckState.Unchecked)
        item.setTextAlignment(1, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        return item

    def _count(self) -> None:
        paths = self.paths()
        sizes = {each.path: each.size_bytes for each in self._preview.files} if self._preview else {}
        total = sum(sizes.get(path, 0) for path in paths)
        self.chosen.setText(f"{count(len(paths))} chosen, {words.size(total)}" if paths else "Tick what you want.")
        self.download_button.setEnabled(bool(paths))

    def _on_filter(self, text: str) -> None:
        wanted = text.lower().split()

        def shown(item: QTreeWidgetItem, above: str) -> bool:
            here = f"{above} {item.text(0).lower()}"
            children = _children(item)
            # Each child is looked at: all of them have to be shown or hidden.
            seen = [shown(child, here) for child in children]
            visible = any(seen) if children else all(word in here for word in wanted)
            item.setHidden(not visible)
            if wanted and visible and children:
                item.setExpanded(True)
            return visible

        for top in _children(self.tree.invisibleRootItem()):
            shown(top, "")

    def _show_tree(self, there: bool) -> None:
        for part in (self.filter, self.tree, self.chosen, self.download_button):
            part.setVisible(there)

    def _ask(self) -> None:
        repo = self.repo.text().strip().removeprefix("https://huggingface.co/").strip("/")
        if repo and "/" not in repo:
            self.search_wanted.emit(repo)
        elif repo:
            self.preview_wanted.emit(repo, self.revision.text().strip() or "main")

    def _download(self) -> None:
        if self._preview is not None and (paths := self.paths()):
            self.download.emit(self._preview.repository_id, self._preview.revision, paths)


def _children(item: QTreeWidgetItem) -> list[QTreeWidgetItem]:
    return [child for place in range(item.childCount()) if (child := item.child(place)) is not None]


def _grouped(found: SaePreview) -> dict[int | None, dict[str | None, list[HubSaeFile]]]:
    """Layer → width → files, in the order of the preview."""
    groups: dict[int | None, dict[str | None, list[HubSaeFile]]] = {}
    for file in found.files:
        groups.setdefault(file.layer, {}).setdefault(file.width, []).append(file)
    return groups
