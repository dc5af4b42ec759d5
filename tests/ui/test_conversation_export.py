"""A conversation goes out whole: both sides of its comparisons, what steered each and when, how it was written."""

from __future__ import annotations

import json
from pathlib import Path

from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from tests.conftest import EngineMaker
from tests.ui.conftest import StageMaker
from tests.ui.look import chat_of, send, until
from ui.kit.chat_state import ConversationMessage
from ui.talk.conversation_export import as_json, as_markdown

PATH = [
    {"token": 0, "text": "profile", "items": [{"kind": "profile", "name": "Sea", "intensity": "1.0", "features": 3}]},
    {"token": 9, "text": "none", "items": [{"kind": "none"}]},
]
STEERED = {
    "model": "tiny",
    "sampling": {"temperature": 0.7, "max_tokens": None, "seed": None},
    "noise_seed": 5,
    "finish_reason": "stopped",
    "completion_tokens": 12,
    "steering": {"text": "none;changed", "changed": True, "items": [{"kind": "none"}], "path": PATH},
    "rung": None,
}
PLAIN = {**STEERED, "finish_reason": "length", "steering": {"text": "none", "changed": False, "items": []}}
MESSAGES = [
    ConversationMessage("user", "one\n# two"),
    ConversationMessage("assistant", "a harbour", STEERED, ConversationMessage("assistant", "a garden", PLAIN)),
    ConversationMessage("user", "more"),
    ConversationMessage("assistant", "half", {"model": "tiny"}),
]


def test_as_markdown() -> None:
    assert as_markdown("Sea  talk", "Be brief.", MESSAGES, {"miLLM Desktop": "0.1.0"}) == (
        "# Sea talk\n\n## System prompt\n\n> Be brief.\n\n"
        "## You\n\n> one\n> # two\n\n"
        "## tiny, plain\n\n> a garden\n\n"
        "*reached the length limit · 12 tokens*  \n*not steered*  \n*temperature 0.7, seed random*  \n\n"
        "## tiny, steered\n\n> a harbour\n\n"
        "*stopped by you · 12 tokens*  \n"
        "*steered by Sea at λ 1 → 0 (λ 0 from token 9)*  \n*temperature 0.7, seed random*  \n\n"
        "### Steering path\n\n"
        "- from the start: steered by Sea at λ 1: 3 features\n- from token 9: not steered\n\n"
        "*Both sides were written from the same noise (seed 5).*\n\n"
        "## You\n\n> more\n\n## tiny\n\n> half\n\n*still being written*  \n\n---\n\n- miLLM Desktop 0.1.0\n"
    )


def test_as_json_nothing_is_lost() -> None:
    told = json.loads(as_json("Sea", "", MESSAGES, {"a": "1"}))
    assert (told["kind"], told["schema_version"], told["title"]) == ("millm.conversation", "1", "Sea")
    assert [message["content"] for message in told["messages"]] == ["one\n# two", "a harbour", "more", "half"]
    assert told["messages"][1]["details"] == STEERED
    assert told["messages"][1]["plain"] == {"content": "a garden", "details": PLAIN}


def test_it_is_asked_where_and_written_there(
    qtbot: QtBot, make_engine: EngineMaker, make_stage: StageMaker, tmp_path: Path
) -> None:
    stage = make_stage(make_engine())
    chat = chat_of(stage, qtbot, tokens=4)
    assert not chat.export_button.isVisible()
    send(chat, qtbot, "the sea")
    until(qtbot, lambda: not chat.busy and chat.session.settled)
    chat.export_button.click()
    dialog = chat.exporting.dialog
    assert isinstance(dialog, QFileDialog)
    assert dialog.nameFilters() == ["Markdown (*.md)", "JSON (*.json)"] and dialog.defaultSuffix() == "md"
    dialog.filterSelected.emit("JSON (*.json)")
    assert dialog.defaultSuffix() == "json"
    for name in ("talk.md", "talk.json"):
        dialog.fileSelected.emit(str(tmp_path / name))
        until(qtbot, lambda name=name: chat.composer.notice.words() == f"Written to {tmp_path / name}.")
    dialog.reject()
    assert (
        (tmp_path / "talk.md").read_text("utf-8").startswith("# the sea\n\n## You\n\n> the sea\n\n## tiny-llama\n\n> ")
    )
    assert json.loads((tmp_path / "talk.json").read_text("utf-8"))["messages"][1]["details"]["completion_tokens"] == 4
    chat.exporting.write(str(tmp_path / "no" / "folder.md"), "x", "", [])
    until(qtbot, lambda: "No such file" in chat.composer.notice.words())
