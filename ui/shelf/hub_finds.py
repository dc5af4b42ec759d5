"""What is offered from the hub besides an exact name: what a search found, and pairs that belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from engine.public.downloads import PAIRS, UNTRIED, KnownPair
from engine.public.models import HubFound
from ui.kit import theme
from ui.kit.basics import Button, ElidedLabel, column, label, line, pill
from ui.kit.scroll_page import reveal
from ui.kit.text import count, parameters


def found_words(found: HubFound) -> str:
    """Size, downloads and age of a repository, as far as the hub says."""
    parts = [] if found.parameters is None else [f"{parameters(found.parameters)} parameters"]
    parts.append(f"{count(found.downloads)} downloads a month")
    if found.last_modified is not None:
        parts.append(f"changed {found.last_modified}")
    return " · ".join(parts)


class HubFinds(QWidget):
    """Repositories that a search found, each with a button to look at it."""

    chosen = Signal(str)
    """A repository."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[QWidget] = []
        self._rows = column(spacing=0)
        self.setLayout(self._rows)
        self.hide()

    def show_found(self, found: Sequence[HubFound]) -> None:
        """Show these in place of what was shown."""
        self.clear()
        for each in found:
            row = _row(each.repo_id, found_words(each), each.gated, "Look", self._choose(each.repo_id))
            self.rows.append(row)
            self._rows.addWidget(row)
        self.setVisible(bool(found))
        if found:
            reveal(self.rows[0])

    def clear(self) -> None:
        """Show nothing."""
        for row in self.rows:
            self._rows.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = []
        self.hide()

    def _choose(self, repo_id: str) -> Callable[[], None]:
        return lambda: self.chosen.emit(repo_id)


class Pairs(QWidget):
    """Models with an SAE that was trained on them; opened by a button."""

    fetch = Signal(object)
    """A :class:`KnownPair`."""

    def __init__(self) -> None:
        super().__init__()
        self.button = Button("Models with SAEs…", "plain", on_click=self._toggle)
        self.button.setToolTip("Pairs of a model and an SAE that are known to belong together, fetched at once")
        self.buttons: dict[str, Button] = {}
        inside = column(spacing=0)
        for pair in PAIRS:
            about = f"with {pair.sae_repo}, layer {pair.layer} · {pair.about}"
            row = _row(pair.model_repo, about, pair.gated, "Fetch both", self._take(pair))
            self.buttons[pair.key] = row.findChildren(Button)[0]
            inside.addWidget(row)
        inside.addWidget(label(UNTRIED, "small", wrap=True))
        self.setLayout(inside)
        self.hide()

    def _take(self, pair: KnownPair) -> Callable[[], None]:
        return lambda: self.fetch.emit(pair)

    def _toggle(self) -> None:
        self.setVisible(self.isHidden())
        reveal(self)


def _row(name: str, about: str, gated: bool, does: str, act: Callable[[], None]) -> QWidget:
    row = QWidget()
    texts = column(spacing=1)
    texts.addWidget(ElidedLabel(name, "strong"))
    texts.addWidget(label(about, "small", wrap=True))
    across = line(spacing=theme.M)
    across.setContentsMargins(0, theme.S, 0, theme.S)
    across.addLayout(texts, 1)
    if gated:
        across.addWidget(pill("gated", "warn"))
    button = Button(does, "plain", on_click=act)
    button.setAccessibleName(f"{does}: {name}")
    across.addWidget(button)
    row.setLayout(across)
    return row
