"""The badge: the four phrases, and nothing where there is no rung."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from engine.documents.evidence import claims_causation
from ui.kit.rung_badge import RungBadge, next_words


@pytest.mark.parametrize(
    ("rung", "phrase", "tone"),
    [
        (0, "associated", "quiet"),
        (1, "suggested (attribution-supported)", "warn"),
        (2, "causally validated (edge)", "info"),
        (3, "faithfulness-tested (circuit)", "good"),
    ],
)
def test_the_phrase_is_shown_word_for_word(qtbot: QtBot, rung: int, phrase: str, tone: str) -> None:
    home = QWidget()
    qtbot.addWidget(home)
    badge = RungBadge(rung)
    QVBoxLayout(home).addWidget(badge)
    home.show()
    assert badge.isVisible() and badge.text() == phrase and badge.property("tone") == tone
    assert badge.accessibleName() == f"Evidence: {phrase}"
    badge.show_rung(None)
    assert badge.isHidden() and badge.text() == "" and badge.toolTip() == ""
    badge.show_rung(rung)
    assert badge.isVisible() and badge.rung == rung


def test_persistence_is_said_beside_the_phrase(qtbot: QtBot) -> None:
    badge = RungBadge()
    qtbot.addWidget(badge)
    badge.show_rung(2, only_persistence=True)
    assert badge.text() == "causally validated (edge) · persistence only: carried on, not computed"
    assert "Every edge of this circuit is persistence" in badge.toolTip()
    badge.show_rung(2)
    assert badge.text() == "causally validated (edge)" and "persistence" not in badge.toolTip()


def test_without_a_parent_it_is_no_window(qtbot: QtBot) -> None:
    badge = RungBadge(2)
    qtbot.addWidget(badge)
    badge.show_rung(None)
    badge.show_rung(1)
    assert not badge.isVisible()


def test_what_would_raise_a_rung_says_nothing_that_is_not_earned() -> None:
    assert next_words(0).startswith("To reach rung 1: run an attribution pass. This program does not test circuits")
    assert next_words(1).startswith("To reach rung 2: run intervention validation. This program does not test circuits")
    assert next_words(2).startswith("To reach rung 3: run circuit-level faithfulness. This program does not test")
    assert all("miStudio" in next_words(rung) and "import the document again" in next_words(rung) for rung in range(3))
    assert next_words(3) == "This is the top rung."
    for rung in (0, 1):
        assert not claims_causation(next_words(rung)) and not claims_causation(RungBadge(rung).toolTip())
