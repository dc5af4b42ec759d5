"""Drawings made for white paper, in the window's colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from ui.kit import theme
from ui.kit.colours import DARK, LIGHT, Colours, contrast
from ui.talk.report_dialog import ReportDialog, picture
from ui.talk.svg_colours import dressed

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20"><rect width="100%" height="100%" fill="#ffffff"/>'
    '<rect x="10" y="5" width="20" height="10" fill="#2563eb"/></svg>'
)


@pytest.mark.parametrize(
    ("colours", "given", "made"),
    [
        (LIGHT, 'fill="#ffffff" stroke="#374151"', 'fill="#f5f6f7" stroke="#374151"'),
        (LIGHT, "stroke:#2563eb", "stroke:#2563eb"),
        # Paper, and greys turned over: what was nearly black is nearly white.
        (DARK, 'fill="#FFF"', 'fill="#15181b"'),
        (DARK, 'fill="#333333" stroke="#000"', 'fill="#cccccc" stroke="#ffffff"'),
        # A colour that can be told from the dark stays itself; one that cannot gets lighter.
        (DARK, "stroke:#d97706", "stroke:#d97706"),
        # A name is no colour.
        (DARK, "fill:url(#fff)", "fill:url(#fff)"),
    ],
)
def test_its_paper_is_the_ground_and_its_ink_is_seen(colours: Colours, given: str, made: str) -> None:
    assert dressed(given, colours) == made


def test_a_line_too_dark_for_a_dark_window_keeps_its_hue_and_can_be_told() -> None:
    made = dressed("#0000aa", DARK)
    red, green, blue = (int(made[i : i + 2], 16) for i in (1, 3, 5))
    assert blue > red and abs(red - green) <= 1
    assert contrast(made, DARK.ground) >= 3.0


def test_a_report_follows_the_window_into_the_dark(qtbot: QtBot, tmp_path: Path) -> None:
    (tmp_path / "plot.svg").write_text(SVG, encoding="utf-8")
    dialog = ReportDialog("A report", tmp_path)
    qtbot.addWidget(dialog)
    dialog.show_text("Before\n\n![plot](plot.svg)\n\nAfter")
    dialog.show()

    def corner() -> QColor:
        shown = dialog.text.document().resource(2, "plot.svg")
        return QColor(shown.pixel(2, 2))

    assert corner() == QColor("#f5f6f7")
    theme.current().force(Qt.ColorScheme.Dark)
    QApplication.processEvents()
    assert corner() == QColor("#15181b")
    theme.current().force(Qt.ColorScheme.Light)
    assert corner() == QColor("#f5f6f7")
    dialog.close()


def test_the_demo_plots_have_no_white_paper_and_no_faint_ink_in_the_dark() -> None:
    folder = Path(__file__).parents[2] / "assets" / "demo"
    theme.current().force(Qt.ColorScheme.Dark)
    for name in ("report-dial.svg", "report-edges.svg"):
        drawn = (folder / name).read_text(encoding="utf-8")
        inks = set(re.findall(r"#[0-9a-f]{6}", drawn)) - {"#ffffff"}
        assert len(inks) > 4
        for ink in inks:
            assert contrast(dressed(ink, DARK), DARK.ground) >= min(3.0, contrast(ink, "#ffffff")), ink
        assert QColor(picture(folder / name).pixel(3, 3)) == QColor("#15181b")
    theme.current().force(Qt.ColorScheme.Light)


def test_a_file_that_is_no_drawing_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "x.svg").write_bytes(b"\xff\xfe\x00")
    assert picture(tmp_path / "x.svg").isNull()
