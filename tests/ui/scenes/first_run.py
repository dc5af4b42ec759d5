"""The first start: the question for the folder, the welcome, the steps of the tour, a crash report that is offered."""

from __future__ import annotations

from pathlib import Path

from tests.ui.scenes.studio import Scene, Studio
from ui.context.page_context import HOME
from ui.program.folder_dialog import FolderDialog


def folder(studio: Studio) -> None:
    dialog = FolderDialog(
        Path("/home/ada/.local/share/miLLM Desktop"),
        lambda _folder: None,
        inside=lambda picked: picked,
        free=lambda _folder: 214_000_000_000,
        parent=studio.window,
    )
    dialog.show()
    studio.take("first-run-folder", dialog)
    dialog.close()
    dialog.deleteLater()


def welcome(studio: Studio) -> None:
    studio.window.show_page(HOME)
    studio.window.tour.welcome(with_demo=not studio.demo)
    studio.take("first-run-welcome")
    studio.window.tour.panel.end()


def tour(studio: Studio) -> None:
    studio.load_model()
    studio.attach_demo_set()
    studio.window.show_around()
    panel = studio.window.tour.panel
    for name in ("dial", "compare", "address"):
        studio.take(f"tour-{name}")
        panel.next_button.click()


def report(studio: Studio) -> None:
    studio.window.show_page(HOME)
    studio.window.offer_report(Path("crash-20260301-120000-7-1.txt"))
    # Not studio.take, which says something else in the bar first.
    studio.camera.take(studio.window, "crash-report")
    studio.window.say("")


SCENES = (
    Scene("first-run-folder", folder),
    Scene("first-run-welcome", welcome),
    Scene("tour", tour),
    Scene("crash-report", report),
)
