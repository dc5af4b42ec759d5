"""The one question of the first start: where everything shall be kept. Shown before there is an engine or a window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QDialog, QFileDialog, QLabel, QLineEdit, QVBoxLayout, QWidget

from ui.kit import icons, theme
from ui.kit.basics import Button, Notice, column, label, line
from ui.kit.text import megabytes

WIDTH = 600
ASK = "Where should everything be kept?"
WORDS = (
    "Models, SAEs, conversations, settings and logs go into one folder. "
    "Models are large, so choose a disk with some gigabytes free. The folder offered is fine for most people."
)


class FolderDialog(QDialog):
    """Offers a folder; accepted once ``settle`` has made it.

    Args:
        default: What is offered.
        settle: Makes a folder the data folder; words for a person when that fails, else None.
        inside: The folder that is proposed for one picked in the file dialog.
        free: Bytes free on the disk of a folder; None when unknown.
        missing: A folder chosen earlier that is not there.
    """

    def __init__(
        self,
        default: Path,
        settle: Callable[[Path], str | None],
        *,
        inside: Callable[[Path], Path],
        free: Callable[[Path], int | None],
        missing: Path | None = None,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("miLLM Desktop")
        self.setWindowIcon(icons.window_icon(theme.current().colours.accent))
        self._settle, self._inside, self._free = settle, inside, free
        self.folder_dialog: QFileDialog | None = None
        self.notice = Notice(closable=False)
        self.field = QLineEdit(str(default))
        self.field.setAccessibleName("Data folder")
        self.browse_button = Button("Browse…", "plain", "folder", self._browse)
        self.room = label("", "small")
        self.go_button = Button("Continue", "primary", on_click=self.accept)
        self.quit_button = Button("Quit", "quiet", on_click=self.reject)
        self.go_button.setDefault(True)
        for other in (self.browse_button, self.quit_button):
            other.setAutoDefault(False)
        self._build()
        self.field.textChanged.connect(self._show_room)
        self._show_room()
        if missing is not None:
            self.notice.show_words(
                f"The folder {missing} is not there any more. If it is on a disk that can be connected, quit, connect "
                "it and start again; everything is still on it.",
                "warn",
            )

    @property
    def folder(self) -> Path:
        """What the field says."""
        return Path(self.field.text().strip()).expanduser()

    def accept(self) -> None:
        """Make the folder; stay open and say why where that fails."""
        if not self.field.text().strip():
            self.notice.show_words("Name a folder.")
            return
        problem = self._settle(self.folder)
        if problem is not None:
            self.notice.show_words(problem)
            return
        super().accept()

    def pick(self, folder: str) -> None:
        """A folder was picked in the file dialog."""
        self.field.setText(str(self._inside(Path(folder))))

    def _browse(self) -> None:
        dialog = QFileDialog(self, "Choose a folder")
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly, True)
        dialog.fileSelected.connect(self.pick)
        dialog.finished.connect(dialog.deleteLater)
        self.folder_dialog = dialog
        dialog.open()

    def _show_room(self) -> None:
        free = self._free(self.folder) if self.field.text().strip() else None
        self.room.setText("" if free is None else f"{megabytes(free / 1e6)} free on this disk")

    def _build(self) -> None:
        mark = QLabel()
        side = 40
        mark.setPixmap(theme.current().icon("mark", "accent", side).pixmap(QSize(side, side), self.devicePixelRatioF()))
        self.setObjectName("page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground, True)
        layout = column(spacing=theme.M, margins=(theme.XL, theme.XL, theme.XL, theme.L))
        layout.addStrut(WIDTH - 2 * theme.XL)
        layout.addLayout(line(mark, label(ASK, "title"), None, spacing=theme.M))
        layout.addWidget(label(WORDS, "muted", wrap=True))
        layout.addWidget(self.notice)
        row = line(spacing=theme.S)
        row.addWidget(self.field, 1)
        row.addWidget(self.browse_button)
        layout.addLayout(row)
        layout.addWidget(self.room)
        layout.addSpacing(theme.M)
        layout.addLayout(line(None, self.quit_button, self.go_button))
        self.setLayout(layout)
        # Grows when there is something to say.
        layout.setSizeConstraint(QVBoxLayout.SizeConstraint.SetMinimumSize)
