"""A right click opens a menu about the row under the pointer, or nothing: it never chooses, opens or changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt, QUrl, Slot
from PySide6.QtGui import QContextMenuEvent, QDesktopServices, QMouseEvent
from PySide6.QtWidgets import QAbstractItemView, QApplication, QComboBox, QHeaderView, QMenu, QWidget
from pytestqt.qtbot import QtBot

from engine.library.records import ExperimentRecord
from tests.conftest import EngineMaker
from tests.engine.actions.steering.stage import cluster, member, raw
from tests.made_saes import make_sae
from tests.ui.conftest import StageMaker
from tests.ui.look import answer, chat_of, send, until
from tests.ui.stage import Stage
from ui.context.page_context import CHAT, CLUSTERS, GROUPS
from ui.kit.flow_text import FlowText
from ui.kit.rows_table import Column, RowsTable
from ui.kit.views import RowList, RowTable, RowTree
from ui.steer.circuit_drawing import CircuitCanvas
from ui.steer.item_list import Item, ItemList
from ui.talk.conversation_list import ConversationList
from ui.window.toast import Toast

LEFT, RIGHT, MIDDLE = Qt.MouseButton.LeftButton, Qt.MouseButton.RightButton, Qt.MouseButton.MiddleButton


def sent(widget: QWidget, kind: QEvent.Type, button: Qt.MouseButton, place: QPoint) -> None:
    """One event of the mouse. Not by Qt's helper: what nobody takes is as good here."""
    held = Qt.MouseButton.NoButton if kind == QEvent.Type.MouseButtonRelease else button
    where = QPointF(widget.mapToGlobal(place))
    event = QMouseEvent(kind, QPointF(place), where, button, held, Qt.KeyboardModifier.NoModifier)
    QApplication.sendEvent(widget, event)


def clicked(widget: QWidget, place: QPoint, button: Qt.MouseButton) -> None:
    """As a platform tells it: press, for the right button a wish for a menu, release."""
    sent(widget, QEvent.Type.MouseButtonPress, button, place)
    if button == RIGHT:
        wish = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, place, widget.mapToGlobal(place))
        QApplication.sendEvent(widget, wish)
    sent(widget, QEvent.Type.MouseButtonRelease, button, place)


def other_clicks(widget: QWidget, place: QPoint) -> None:
    """Once and twice, with every button but the left."""
    for button in (RIGHT, MIDDLE):
        clicked(widget, place, button)
        sent(widget, QEvent.Type.MouseButtonDblClick, button, place)
        sent(widget, QEvent.Type.MouseButtonRelease, button, place)


def row_of(view: QAbstractItemView, row: int) -> QPoint:
    return view.visualRect(view.model().index(row, 0)).center()


# --- lists and tables -------------------------------------------------------------------------------------------------


def test_a_list_of_documents_opens_nothing(qtbot: QtBot) -> None:
    items = ItemList("Clusters")
    qtbot.addWidget(items)
    items.resize(300, 400)
    items.show_items([Item("a", "Sea", ""), Item("b", "Food", ""), Item("c", "Law", "")])
    items.show()
    chosen: list[str] = []
    items.chosen.connect(chosen.append)
    other_clicks(items.list.viewport(), row_of(items.list, 2))
    assert (items.current, chosen) == ("a", [])
    qtbot.mouseClick(items.list.viewport(), LEFT, pos=row_of(items.list, 2))
    assert (items.current, chosen) == ("c", ["c"])


@pytest.mark.parametrize("many", [False, True])
def test_a_table_chooses_nothing_and_keeps_what_is_selected(qtbot: QtBot, many: bool) -> None:
    table: RowsTable[str] = RowsTable([Column("Name", lambda row: row)], "Rows")
    if many:
        table.select_many()
    qtbot.addWidget(table)
    table.resize(300, 300)
    table.set_rows(["one", "two", "three"])
    table.show()
    told: list[object] = []
    table.chosen.connect(told.append)
    table.doubleClicked.connect(told.append)
    qtbot.mouseClick(table.viewport(), LEFT, pos=row_of(table, 0))
    assert told == ["one"]
    other_clicks(table.viewport(), row_of(table, 2))
    assert told == ["one"] and table.selected() == ["one"] and table.current() == "one"
    qtbot.mouseDClick(table.viewport(), LEFT, pos=row_of(table, 0))
    assert len(told) > 1


@pytest.fixture
def stage(make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path) -> Stage:
    engine = make_engine()
    engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made-sae")
    engine.attachments.attach("made-sae")
    place = {"mistudio_sae_id": "made-sae", "layer": 1, "n_features": 64}
    for name, index in (("Harbour", 3), ("Kitchen", 5)):
        engine.clusters.import_document(raw(cluster(name, member(index, 8.0), sae=place)))
    return make_stage(engine)


def test_every_list_table_and_tree_of_the_window_is_of_that_kind(qtbot: QtBot, stage: Stage) -> None:
    window, seen = stage.window, set()
    for _group, specs in GROUPS:
        for spec in specs:
            window.show_page(spec.key)
    for view in window.findChildren(QAbstractItemView):
        above: QWidget | None = view
        while above is not None and not isinstance(above, QComboBox):
            above = above.parentWidget()
        completes = view.parentWidget() is None or view.isWindow()
        if above is None and not isinstance(view, QHeaderView) and not completes:
            assert isinstance(view, RowList | RowTable | RowTree), view
            seen.add(view.accessibleName())
    assert len(seen) >= 8, seen


def test_a_cluster_that_is_not_chosen_is_not_by_its_right_click(qtbot: QtBot, stage: Stage) -> None:
    stage.window.show_page(CLUSTERS)
    page = stage.window.page(CLUSTERS)
    until(qtbot, lambda: len(page.list.items()) == 2 and page.view is not None)  # type: ignore[attr-defined]
    before = page.record.name  # type: ignore[attr-defined]
    names = [each.title for each in page.list.items()]  # type: ignore[attr-defined]
    rows = page.list.list  # type: ignore[attr-defined]
    other_clicks(rows.viewport(), row_of(rows, 1 - names.index(before)))
    assert page.record.name == before  # type: ignore[attr-defined]
    assert stage.engine.desk.state.profile is None


def test_a_record_is_not_opened_by_it(qtbot: QtBot, stage: Stage) -> None:
    for title in ("Sea", "Garden"):
        made = {"model": "tiny-llama", "prompt": "p", "plain": "a", "steered": "b"}
        parts = ("settings", "steering", "evidence", "versions", "plain_details", "steered_details")
        empty: dict[str, object] = {name: {} for name in parts}
        stage.engine.experiments.add(ExperimentRecord(title=title, **made, **empty))  # type: ignore[arg-type]
    records = stage.window.records
    stage.window.show_page("records")
    until(qtbot, lambda: records.view.record is not None)
    before = records.view.record
    assert before is not None
    other_clicks(records.list.viewport(), row_of(records.list, 1 - records.titles().index(before.title)))
    assert records.list.currentItem().text() == before.title
    assert records.view.record is before


# --- conversations, whose rows have a menu ----------------------------------------------------------------------------


def test_the_menu_of_a_conversation_is_about_the_row_under_the_pointer(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=2)
    stage.window.show_page(CHAT)
    for words in ("the sea", "a garden"):
        send(chat, qtbot, words)
        until(qtbot, lambda: not chat.busy)
        if words == "the sea":
            chat.new_chat()
    panel = chat.conversations
    until(qtbot, lambda: sorted(panel.titles()) == ["a garden", "the sea"])
    rows, open_one = panel.list, rows_current(panel)
    assert open_one == "a garden"
    place = row_of(rows, panel.titles().index("the sea"))
    deleted: list[int] = []
    panel.delete_wanted.connect(deleted.append)
    wanted = rows.item(panel.titles().index("the sea")).data(Qt.ItemDataRole.UserRole)
    clicked(rows.viewport(), place, RIGHT)
    menu = rows.findChildren(QMenu)[-1]
    assert [each.text() for each in menu.actions()] == ["Rename", "Delete"]
    # The open one stays marked and open: the menu alone is about the other.
    assert rows_current(panel) == "a garden"
    other_clicks(rows.viewport(), place)
    assert rows_current(panel) == "a garden" and chat.session.messages[0].content == "a garden"
    menu.actions()[1].trigger()
    for each in rows.findChildren(QMenu):
        each.close()
    assert deleted == [wanted]
    until(qtbot, lambda: panel.titles() == ["a garden"])


def rows_current(panel: ConversationList) -> str:
    item = panel.list.currentItem()
    return "" if item is None else str(item.text())


# --- what is written, drawn and said ----------------------------------------------------------------------------------


class Opener(QObject):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []

    @Slot(QUrl)
    def open(self, url: QUrl) -> None:
        self.opened.append(url.toString())


def test_a_link_in_a_message_is_not_followed(qtbot: QtBot) -> None:
    opener = Opener()
    QDesktopServices.setUrlHandler("https", opener, "open")
    try:
        text = FlowText("body")
        qtbot.addWidget(text)
        text.resize(300, 80)
        text.set_markdown("[here](https://example.org)")
        text.show()
        place = text.cursorRect().center() + QPoint(6, 0)
        assert text.anchorAt(place) == "https://example.org"
        for button in (RIGHT, MIDDLE):
            sent(text.viewport(), QEvent.Type.MouseButtonPress, button, place)
            sent(text.viewport(), QEvent.Type.MouseButtonRelease, button, place)
        assert opener.opened == []
        qtbot.mouseClick(text.viewport(), LEFT, pos=place)
        assert opener.opened == ["https://example.org"]
    finally:
        QDesktopServices.unsetUrlHandler("https")


def test_the_menu_of_a_message_copies_and_does_nothing_else(qtbot: QtBot, stage: Stage) -> None:
    chat = chat_of(stage, qtbot, tokens=2)
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: not chat.busy)
    before = [(each.role, each.content) for each in chat.session.messages]
    for text in answer(chat, 1).findChildren(FlowText):
        menu = text.createStandardContextMenu()
        words = [each.text().replace("&", "").split("\t")[0] for each in menu.actions() if not each.isSeparator()]
        assert set(words) <= {"Copy", "Copy Link Location", "Select All"}, words
        sent(text.viewport(), QEvent.Type.MouseButtonPress, RIGHT, QPoint(4, 4))
        sent(text.viewport(), QEvent.Type.MouseButtonRelease, RIGHT, QPoint(4, 4))
        menu.deleteLater()
    assert [(each.role, each.content) for each in chat.session.messages] == before and not chat.busy


def test_a_word_in_passing_stays(qtbot: QtBot) -> None:
    around = QWidget()
    qtbot.addWidget(around)
    around.resize(600, 400)
    around.show()
    word = Toast(around)
    word.show_words("Saved.")
    assert word.isVisible()
    qtbot.mouseClick(word, RIGHT)
    assert word.isVisible()
    qtbot.mouseClick(word, LEFT)
    assert not word.isVisible()


def test_a_node_of_a_drawing_is_not_opened(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    view = CircuitCanvas()
    qtbot.addWidget(view)
    view.resize(300, 300)
    view.show()
    asked: list[QPointF] = []
    monkeypatch.setattr(view, "_open", lambda _item: asked.append(QPointF()))
    other_clicks(view.viewport(), QPoint(20, 20))
    assert asked == []
    qtbot.mouseDClick(view.viewport(), LEFT, pos=QPoint(20, 20))
    assert len(asked) == 1
