"""Words of models, documents and files: nothing in the window takes them for HTML, and nothing is read because of them."""

from __future__ import annotations

import ast
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QAbstractItemModel, QAbstractListModel, QEvent, QModelIndex, Qt, QUrl
from PySide6.QtGui import QAction, QGuiApplication, QHelpEvent, QTextCharFormat, QTextDocument
from PySide6.QtGui import Qt as QtGuiNames
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QComboBox,
    QGraphicsItem,
    QGraphicsTextItem,
    QGraphicsView,
    QHeaderView,
    QLabel,
    QMenu,
    QPlainTextEdit,
    QTextEdit,
    QToolTip,
    QWidget,
)
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.full import PAGES, full_stage, open_page
from tests.ui.stage import Stage
from ui.kit.basics import Button
from ui.kit.flow_text import FlowText
from ui.kit.markdown_view import MarkdownView
from ui.kit.plain_text import as_letters, on_button
from ui.talk.report_dialog import ReportDialog
from ui.window.tray import Tray

TRAP = "trap.png"
NAME = f'<img src="{TRAP}"> <a href="file:///etc/hostname">a</a> <b>b</b> &lt;i> A & B'
UI = Path(__file__).parents[2] / "ui"


class Trap:
    """A pipe called :data:`TRAP` in the folder the process stands in. ``opened`` is set once anybody reads from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened = threading.Event()
        os.mkfifo(path)
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        # Opening for writing waits for a reader; that reader then gets an end of file and is not held up.
        os.close(os.open(self.path, os.O_WRONLY))
        self.opened.set()

    def close(self) -> bool:
        """Whether somebody had opened it."""
        opened = self.opened.is_set()
        end = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        self._thread.join(30)
        os.close(end)
        return opened


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trap]:
    if sys.platform == "win32":
        pytest.skip("there are no named pipes in folders here")
    monkeypatch.chdir(tmp_path)
    made = Trap(tmp_path / TRAP)
    yield made
    assert not made.close(), "something opened the file that foreign words name"


def rich(words: str) -> bool:
    return bool(QtGuiNames.mightBeRichText(words))


@pytest.mark.parametrize(
    "words",
    [NAME, "<b>x", " <p>x", "&lt;b&gt;", "<?xml version='1'?><svg/>", "<!DOCTYPE html>", "<IMG SRC=x>", "a < b <i>"],
)
def test_words_stay_letters(words: str) -> None:
    assert not rich(as_letters(words))
    assert as_letters(words).replace("\u2060", "") == words
    # Nor where somebody reads it as HTML without asking.
    document = QTextDocument()
    document.setHtml(as_letters(words))
    assert pictures(document) == []


def test_words_without_tags_are_left_alone() -> None:
    assert as_letters("Q&A: 1 & 2 > 0\nnext") == "Q&A: 1 & 2 > 0\nnext"
    assert on_button("Q&A") == "Q&&A"


def test_a_button_shows_every_letter_of_a_name(qtbot: QtBot) -> None:
    button = Button("Attach “A&B”")
    qtbot.addWidget(button)
    assert (button.text(), button.accessibleName(), button.shortcut().toString()) == (
        "Attach “A&&B”",
        "Attach “A&B”",
        "",
    )


def formats(document: QTextDocument) -> Iterator[QTextCharFormat]:
    block = document.begin()
    while block.isValid():
        walker = block.begin()
        while not walker.atEnd():
            yield walker.fragment().charFormat()
            walker += 1
        block = block.next()


def pictures(document: QTextDocument) -> list[str]:
    return [each.toImageFormat().name() for each in formats(document) if each.isImageFormat()]


def tips(document: QTextDocument) -> list[str]:
    return [each.toolTip() for each in formats(document)]


PICTURES = [
    f"![x]({TRAP})",
    f"![x](./{TRAP})",
    "![x]({folder}/" + TRAP + ")",
    "![x](file://{folder}/" + TRAP + ")",
    f"[![x]({TRAP})](https://example.org)",
    f"![x][1]\n\n[1]: {TRAP}",
    f"| a |\n|---|\n| ![x]({TRAP}) |",
    f"- [ ] ![x]({TRAP}) ![x]({TRAP})",
    f"# ![x]({TRAP})\n\n> ![x]({TRAP})",
    f'[link](https://example.org "<img src={TRAP}>")',
    f"<img src='{TRAP}'>",
]


@pytest.mark.parametrize("written", PICTURES)
def test_what_a_model_writes_reads_no_file(qtbot: QtBot, trap: Trap, tmp_path: Path, written: str) -> None:
    view = MarkdownView()
    qtbot.addWidget(view)
    text = written.replace("{folder}", str(tmp_path))
    for end in (*range(1, len(text), 3), len(text)):
        view.set_text(text[:end])
    view.resize(600, 400)
    view.show()
    view.grab()
    (part,) = view.findChildren(FlowText)
    assert pictures(part.document()) == []
    assert not [tip for tip in tips(part.document()) if rich(tip)]
    part.selectAll()
    part.copy()
    assert pictures_of_html(QGuiApplication.clipboard().mimeData().html()) == []


def pictures_of_html(html: str) -> list[str]:
    document = QTextDocument()
    document.setHtml(html)
    return pictures(document)


def test_a_picture_is_shown_as_what_was_written(qtbot: QtBot) -> None:
    text = FlowText()
    qtbot.addWidget(text)
    text.set_markdown(f"see ![a tree](file:///tree.png), {'![d](data:image/png;base64,' + 'A' * 100_000 + ')'} end")
    words = text.toPlainText()
    assert words.startswith("see ![a tree](file:///tree.png), ![d](data:image/png;base64,AAA")
    assert words.endswith("…) end") and len(words) < 250


def test_even_a_picture_that_got_in_is_not_looked_for(qtbot: QtBot, trap: Trap) -> None:
    text = FlowText()
    qtbot.addWidget(text)
    given = text.loadResource(QTextDocument.ResourceType.ImageResource.value, QUrl(TRAP))
    assert (given.width(), given.height(), given.isNull()) == (1, 1, False)  # type: ignore[attr-defined]
    text.document().setHtml(f'<img src="{TRAP}">')
    text.resize(300, 200)
    text.show()
    text.grab()


def test_a_link_tells_where_it_leads(qtbot: QtBot) -> None:
    text = FlowText()
    qtbot.addWidget(text)
    text.set_markdown('[safe](https://example.org/a "https://other.example")')
    assert "https://example.org/a" in tips(text.document())
    assert "https://other.example" not in tips(text.document())


def test_a_report_shows_its_own_pictures_and_no_other(qtbot: QtBot, trap: Trap, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    (folder / "plot.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"/>')
    dialog = ReportDialog("A report", folder)
    qtbot.addWidget(dialog)
    dialog.show_text(f"![p](plot.svg) ![x]({TRAP}) ![y](../{TRAP}) ![z]({tmp_path}/{TRAP})")
    dialog.show()
    dialog.grab()
    assert pictures(dialog.text.document()) == ["plot.svg"]


# --- every page -----------------------------------------------------------------------------------------------------


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path, qtbot: QtBot) -> Stage:
    engine = make_engine()
    resident = engine.shelf.resident
    assert resident is not None
    return full_stage(make_stage, engine, tmp_path / "saes", NAME)


def told(model: QAbstractItemModel, parent: QModelIndex | None = None) -> Iterator[str]:
    parent = parent or QModelIndex()
    role = Qt.ItemDataRole.ToolTipRole
    columns = 1 if isinstance(model, QAbstractListModel) else model.columnCount(parent)
    for row in range(model.rowCount(parent)):
        for column in range(columns):
            index = model.index(row, column, parent)
            yield str(model.data(index, role) or "")
            if columns > 1 and model.rowCount(index):
                yield from told(model, index)
    for orientation, number in (
        (Qt.Orientation.Horizontal, columns),
        (Qt.Orientation.Vertical, model.rowCount(parent)),
    ):
        for section in range(number):
            yield str(model.headerData(section, orientation, role) or "")


def rich_words(widget: QWidget) -> Iterator[str]:
    """What of a widget Qt would take for HTML though it is somebody's words."""
    for words in (widget.toolTip(), widget.statusTip(), widget.whatsThis()):
        if rich(words):
            yield words
    if isinstance(widget, QLabel) and widget.text():
        if widget.textFormat() == Qt.TextFormat.RichText:
            document = QTextDocument()
            document.setHtml(widget.text())
            if pictures(document) or "href" in document.toHtml():
                yield widget.text()
        elif widget.textFormat() != Qt.TextFormat.PlainText and rich(widget.text()):
            yield widget.text()
    if isinstance(widget, QTextEdit):
        yield from pictures(widget.document())
        yield from (tip for tip in tips(widget.document()) if rich(tip))
    if isinstance(widget, QComboBox | QAbstractItemView) and not isinstance(widget, QHeaderView) and widget.model():
        yield from (tip for tip in told(widget.model()) if rich(tip))
    if isinstance(widget, QGraphicsView) and widget.scene() is not None:
        for item in widget.scene().items():
            if isinstance(item, QGraphicsItem) and rich(item.toolTip()):
                yield item.toolTip()
            if isinstance(item, QGraphicsTextItem):
                yield from pictures(item.document())
    for action in widget.findChildren(QAction):
        yield from (words for words in (action.toolTip(), action.statusTip()) if rich(words))


def problems(window: QWidget) -> list[str]:
    return [
        f"{type(each).__name__} {each.objectName()}: {words[:80]}"
        for each in (window, *window.findChildren(QWidget))
        for words in rich_words(each)
    ]


def hover(window: QWidget) -> None:
    """Ask every visible widget for its tip, as the pointer does that rests on it."""
    for widget in window.findChildren(QWidget):
        if widget.isVisible():
            middle = widget.rect().center()
            help_event = QHelpEvent(QEvent.Type.ToolTip, middle, widget.mapToGlobal(middle))
            QApplication.sendEvent(widget, help_event)
            assert "<img" not in QToolTip.text(), widget
    QToolTip.hideText()


def test_names_are_names_on_every_page(qtbot: QtBot, stage: Stage, trap: Trap) -> None:
    window = stage.window
    seen = ""
    for key in PAGES:
        page = open_page(stage, qtbot, key)
        window.grab()
        assert problems(window) == [], key
        hover(window)
        seen += "\n".join(each.text() for each in page.findChildren(QLabel))
    assert NAME in seen, "the walk saw no such name at all"


def test_messages_are_words(qtbot: QtBot, stage: Stage, trap: Trap) -> None:
    window = stage.window
    window.say(NAME, lasting=True)
    window.say_error(OSError(NAME))
    tray = Tray(window, stage.services)
    stage.engine.clusters.activate(stage.engine.clusters.list().clusters[0].record.id)
    tray.refresh()
    assert "<\u2060img" in tray.icon.toolTip()
    assert not rich(tray.icon.toolTip())
    assert problems(window) == []
    hover(window)
    tray.remove()


def test_what_is_pasted_comes_as_letters(qtbot: QtBot, stage: Stage, trap: Trap) -> None:
    from PySide6.QtCore import QMimeData

    data = QMimeData()
    data.setHtml(f'<img src="{TRAP}"><b>bold</b>')
    data.setText("bold")
    QGuiApplication.clipboard().setMimeData(data)
    for key in PAGES:
        page = open_page(stage, qtbot, key)
        for field in page.findChildren(QPlainTextEdit):
            if field.isVisible() and field.isEnabled() and not field.isReadOnly():
                field.setPlainText("")
                field.paste()
                assert field.toPlainText() == "bold"
                assert pictures(field.document()) == []
        # What takes rich text takes none from outside.
        assert all(edit.isReadOnly() for edit in page.findChildren(QTextEdit))


def test_every_tip_in_the_code_is_a_literal_or_kept_as_letters() -> None:
    """A new tip with somebody's words in it has to say that they are letters."""
    open_tips = []
    for path in sorted(UI.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            words = ast.unparse(node)
            if node.func.attr in ("setToolTip", "setWhatsThis", "setStatusTip"):
                given = node.args[-1]
            elif ast.unparse(node.func) == "QToolTip.showText" or (
                node.func.attr == "setItemData" and "ToolTipRole" in words
            ):
                given = node.args[1]
            else:
                continue
            if not (is_ours(given) or ast.unparse(given).startswith("as_letters(")):
                open_tips.append(f"{path.name}:{node.lineno}: {words}")
    assert open_tips == [
        # Titles of pages and keys, which are in the program.
        *(each for each in open_tips if each.split(":")[0] in ("navigation.py", "settings.py", "composer.py"))
    ]
    assert len(open_tips) == 3


def is_ours(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return is_ours(node.body) and is_ours(node.orelse)
    return isinstance(node, ast.Constant)


def test_no_menu_swallows_a_letter(qtbot: QtBot, stage: Stage) -> None:
    page = open_page(stage, qtbot, "profiles")
    stage.engine.hand_steering.set_values({4: 1.0}, sae_id="sae-two", layer=2)
    page._from_current()  # type: ignore[attr-defined]
    menu = page.places  # type: ignore[attr-defined]
    assert isinstance(menu, QMenu)
    assert [action.text() for action in menu.actions()] == [
        "sae-one @ layer 1: 2 features",
        "sae-two @ layer 2: 1 feature",
    ]
    menu.close()
