"""The ways documents come into a page: a file dialog, a field to paste into, and Ctrl+V."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QGuiApplication, QKeySequence, QShortcut
from PySide6.QtWidgets import QDialog, QFileDialog, QPlainTextEdit, QWidget

from ui.kit import theme
from ui.kit.basics import Button, column, label, line

SUFFIX = ".json"


class PasteDialog(QDialog):
    """A field for a document; what the clipboard holds is in it where it looks like one."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Paste a document")
        self.resize(640, 420)
        self.field = QPlainTextEdit()
        self.field.setObjectName("field")
        self.field.setAccessibleName("The document")
        self.field.setPlaceholderText('{"kind": "mistudio.cluster-definition", …}')
        self.field.setFont(theme.current().mono("small"))
        self.field.setTabChangesFocus(True)
        self.import_button = Button("Import", "primary", on_click=self.accept)
        self.import_button.setDefault(True)
        self.cancel_button = Button("Cancel", "quiet", on_click=self.reject)
        layout = column(spacing=theme.M, margins=(theme.L, theme.L, theme.L, theme.L))
        layout.addWidget(label("Paste a profile, cluster, bundle or circuit as JSON.", "muted", wrap=True))
        layout.addWidget(self.field, 1)
        layout.addLayout(line(None, self.cancel_button, self.import_button))
        self.setLayout(layout)
        text = QGuiApplication.clipboard().text()
        if text.lstrip().startswith("{"):
            self.field.setPlainText(text)
        self.field.textChanged.connect(self._look)
        self._look()

    def _look(self) -> None:
        self.import_button.setEnabled(bool(self.field.toPlainText().strip()))


class DocumentDoor(QObject):
    """Watches a page and says what came: :attr:`files` or :attr:`text`."""

    files = Signal(list)
    """Paths of files a person chose."""
    text = Signal(str)
    """A document that was pasted."""

    def __init__(self, page: QWidget) -> None:
        super().__init__(page)
        self._page = page
        self.file_dialog: QFileDialog | None = None
        self.paste_dialog: PasteDialog | None = None
        shortcut = QShortcut(QKeySequence(QKeySequence.StandardKey.Paste), page)
        # While this page is in front, also with the keyboard in the navigation; a field takes Ctrl+V for itself.
        shortcut.setContext(Qt.ShortcutContext.WindowShortcut)
        shortcut.activated.connect(self.paste_at_once)

    def pick(self) -> None:
        """Ask for files."""
        dialog = QFileDialog(self._page, "Import documents")
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.setNameFilters([f"Documents (*{SUFFIX})", "All files (*)"])
        dialog.filesSelected.connect(self._on_files)
        dialog.finished.connect(dialog.deleteLater)
        self.file_dialog = dialog
        dialog.open()

    def paste(self) -> None:
        """Offer a field to paste into."""
        dialog = PasteDialog(self._page)
        dialog.accepted.connect(lambda: self.text.emit(dialog.field.toPlainText()))
        dialog.finished.connect(dialog.deleteLater)
        self.paste_dialog = dialog
        dialog.open()

    def paste_at_once(self) -> None:
        """Import what the clipboard holds, files or text; offer the field where it holds no document."""
        clipboard = QGuiApplication.clipboard()
        data = clipboard.mimeData()
        paths = [Path(url.toLocalFile()) for url in data.urls() if url.isLocalFile()] if data.hasUrls() else []
        if paths:
            self.files.emit(paths)
        elif clipboard.text().lstrip().startswith("{"):
            self.text.emit(clipboard.text())
        else:
            self.paste()

    def _on_files(self, names: list[str]) -> None:
        self.files.emit([Path(name) for name in names])
