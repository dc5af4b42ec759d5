"""One answer on its way into a message: nothing that was told of it is lost, whenever it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from engine.generation.prompts import NOTE_NO_TEMPLATE
from engine.generation.request import (
    ChatInput,
    ChoiceFinished,
    Delta,
    FinishReason,
    GenerationRequest,
    Message,
    Piece,
    RequestFinished,
    Started,
    TextDelta,
    TokenInfo,
    Usage,
)
from engine.generation.service import RequestHandle
from engine.generation.text.parts import Kind
from engine.library.conversations import CUT_OFF
from tests.conftest import CheckpointMaker, EngineMaker
from tests.ui.look import until
from ui.kit.chat_state import ConversationMessage
from ui.talk.answer_stream import AnswerStream, TurnState


def text(kind: Kind, words: str, token: int, written: int) -> TextDelta:
    return TextDelta(0, (Piece(kind, words, (TokenInfo(token),)),), written)


BEGUN: list[Delta] = [Started("cbm"), text(Kind.REASONING, "so", 5, 2), text(Kind.CONTENT, "yes", 6, 5)]
ENDED: list[Delta] = [ChoiceFinished(0, FinishReason.STOP, 7), RequestFinished(Usage(11, 7, 3), 0.5, 1.0, 2.0)]

Writing = Callable[..., AnswerStream]


@pytest.fixture
def writing(qtbot: QtBot) -> Writing:
    """A function that begins an answer in ``message`` and has it take deltas."""
    parents: list[QObject] = []

    def begin(message: ConversationMessage, deltas: list[Delta]) -> AnswerStream:
        parents.append(QObject())
        pen = AnswerStream(message, dict, parents[-1])
        for delta in deltas:
            pen.inbox.put(delta)
        last = TurnState.IDLE if deltas is not BEGUN else TurnState.WRITING
        until(qtbot, lambda: pen.state is last and (message.content.endswith("yes") or last is TurnState.IDLE))
        return pen

    return begin


def test_what_is_kept_while_it_is_written_holds_both_parts(writing: Writing) -> None:
    message = ConversationMessage("assistant")
    kept = writing(message, BEGUN).so_far()
    assert (kept.reasoning, kept.content, kept.details["finish_reason"]) == ("so", "yes", CUT_OFF)
    assert kept.details["pieces"] == [["so", [5], "reasoning"], ["yes", [6]]]
    assert kept.details["completion_tokens"] == 5
    assert message.details.get("finish_reason") is None


def test_what_goes_on_is_added_to_what_was_there(writing: Writing) -> None:
    details: dict[str, object] = {
        "pieces": [["a", [1], "reasoning"]],
        "completion_tokens": 4,
        "finish_reason": "length",
    }
    message = ConversationMessage("assistant", "", details, reasoning="a")
    writing(message, [*BEGUN, *ENDED])
    assert (message.reasoning, message.content) == ("aso", "yes")
    assert message.details["pieces"] == [["a", [1], "reasoning"], ["so", [5], "reasoning"], ["yes", [6]]]
    assert (message.details["completion_tokens"], message.details["finish_reason"]) == (11, "stop")


def test_reasoning_of_which_no_pieces_were_kept_has_none_later(writing: Writing) -> None:
    message = ConversationMessage("assistant", "", {"finish_reason": "length"}, reasoning="a")
    writing(message, [*BEGUN, *ENDED])
    assert "pieces" not in message.details


def test_one_that_has_ended_before_it_is_known_to_run_is_told_all_the_same(
    writing: Writing, make_engine: EngineMaker, checkpoint: CheckpointMaker
) -> None:
    message = ConversationMessage("assistant")
    pen = writing(message, [*BEGUN, *ENDED])
    assert "headers" not in message.details
    engine = make_engine(checkpoint("llama", chat_template=None))
    prepared = engine.generation.prepare(GenerationRequest("tiny-llama", ChatInput((Message("user", "x"),))))
    pen.take(prepared, RequestHandle(lambda: None))
    headers = message.details["headers"]
    assert isinstance(headers, dict) and headers["X-miLLM-Steering"] == "none"
    assert message.details["notes"] == [NOTE_NO_TEMPLATE]
    figures = {key: message.details[key] for key in ("prompt_tokens", "cached_tokens", "completion_tokens", "backend")}
    assert figures == {"prompt_tokens": 11, "cached_tokens": 3, "completion_tokens": 7, "backend": "cbm"}
