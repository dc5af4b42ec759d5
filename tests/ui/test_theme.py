"""Both palettes can be read, and the window follows the one in force."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from ui.kit import icons, theme
from ui.kit.basics import Button
from ui.kit.colours import DARK, LIGHT, MIN_TEXT_CONTRAST, TEXT_PAIRS, Colours, contrast


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [
        ("#000000", "#ffffff", 21.0),
        ("#ffffff", "#ffffff", 1.0),
        ("#777777", "#ffffff", 4.48),
        ("#0000ff", "#ffffff", 8.59),
    ],
)
def test_contrast_is_the_one_of_wcag(one: str, other: str, ratio: float) -> None:
    assert contrast(one, other) == pytest.approx(ratio, abs=0.005)
    assert contrast(other, one) == pytest.approx(ratio, abs=0.005)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("pair", TEXT_PAIRS, ids=lambda pair: "-on-".join(pair))
def test_every_text_can_be_read(palette: Colours, pair: tuple[str, str]) -> None:
    text, ground = (getattr(palette, name) for name in pair)
    assert contrast(text, ground) >= MIN_TEXT_CONTRAST


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_the_qt_palette_can_be_read_too(palette: Colours) -> None:
    built = theme.build_palette(palette)
    role = QPalette.ColorRole
    for text, ground in (
        (role.WindowText, role.Window),
        (role.Text, role.Base),
        (role.Text, role.AlternateBase),
        (role.ButtonText, role.Button),
        (role.PlaceholderText, role.Base),
        (role.HighlightedText, role.Highlight),
        (role.ToolTipText, role.ToolTipBase),
        (role.Link, role.Base),
    ):
        assert contrast(built.color(text).name(), built.color(ground).name()) >= MIN_TEXT_CONTRAST, (text, ground)


def test_a_change_of_scheme_reaches_palette_and_icons(qapp: QApplication, qtbot: QtBot) -> None:
    look = theme.current()
    button = Button("Add", icon="plus")
    qtbot.addWidget(button)
    before = button.icon().cacheKey()
    with qtbot.waitSignal(look.changed, timeout=30_000):
        look.force(Qt.ColorScheme.Dark)
    assert qapp.palette().color(QPalette.ColorRole.Window).name() == DARK.ground
    assert button.icon().cacheKey() != before
    assert DARK.accent in qapp.styleSheet()


def test_the_system_scheme_is_followed_live(qapp: QApplication, qtbot: QtBot) -> None:
    look = theme.install(qapp, Qt.ColorScheme.Dark)
    look.force(None)
    # Without a desktop the scheme is unknown, and the palette found at start decides: a light one here.
    assert look.colours == LIGHT
    qapp.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert look.colours == LIGHT, "the signal makes the theme ask again; it does not believe it blindly"


def test_body_text_is_never_small() -> None:
    look = theme.current()
    assert look.pixels("body") >= 14
    assert [look.pixels(role) for role in ("caption", "small", "body", "lead", "title", "display")] == sorted(
        look.pixels(role) for role in theme.SCALE
    )


@pytest.mark.parametrize("name", icons.names())
def test_every_icon_draws_something_in_its_colour(name: str) -> None:
    picture = icons.pixmap(name, "#ff0000", 24, 2.0).toImage()
    assert (picture.width(), picture.height()) == (48, 48)
    inked = [picture.pixelColor(x, y) for x in range(48) for y in range(48) if picture.pixelColor(x, y).alpha() > 200]
    assert len(inked) > 20
    assert all((colour.red(), colour.green(), colour.blue()) == (255, 0, 0) for colour in inked)


def test_icons_are_sharp_at_every_usual_scale() -> None:
    made = theme.current().icon("home")
    widths = [made.pixmap(QSize(18, 18), scale).width() for scale in (1.0, 1.25, 1.5, 1.75, 2.0)]
    assert widths == [18, 23, 27, 32, 36]
    assert {size.width() for size in made.availableSizes()} >= set(widths), "none of them is scaled"
