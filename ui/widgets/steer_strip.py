"""Under a comparison: what steers the steered side, and its dial."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QFrame, QSizePolicy

from ui import theme
from ui.steer_targets import Kind, Shelf, Target
from ui.widgets.basics import Button, ElidedLabel, Notice, column, label, line
from ui.widgets.choice import Choice
from ui.widgets.intensity_dial import IntensityDial
from ui.widgets.rung_badge import RungBadge

LIVE = (Kind.NONE, "")
CHOICE_WIDTH = 260
FOLLOWS = (
    "The steered side follows the dial while it is written; the plain side never does. Other programs' answers that "
    "follow the live steering do too."
)
NOT_YET = "Nothing steers. Choose a cluster, a profile or a circuit, or turn up features on the Steering page."
_GROUPS = (("Clusters", "clusters"), ("Profiles", "profiles"), ("Circuits", "circuits"))


class SteerStrip(QFrame):
    """Shows; says what the person wants with signals."""

    chosen = Signal(object, str)
    """(kind, id of the row); the live steering is :data:`LIVE`."""
    turned = Signal(float)
    """While the dial is turned and when it is let go."""
    agreed = Signal()
    """The person knows that the chosen circuit is not validated."""
    attach_wanted = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self.choice = Choice()
        self.choice.setAccessibleName("Steer with")
        self.choice.setMinimumWidth(190)
        self.choice.setMaximumWidth(CHOICE_WIDTH + 80)
        self.choice.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.choice.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.choice.setMinimumContentsLength(26)
        self.now = ElidedLabel("", "muted", Qt.TextElideMode.ElideMiddle)
        self.badge = RungBadge()
        self.dial = IntensityDial("Intensity λ of the steered side")
        self.words = label("", "caption", wrap=True)
        self.notice = Notice()
        layout = column(spacing=theme.S, margins=(theme.M, theme.S + 2, theme.M, theme.S + 2))
        layout.addLayout(line(label("Steer with", "strong"), self.choice, self.now, None, self.badge, spacing=theme.M))
        layout.addWidget(self.dial)
        layout.addWidget(self.words)
        layout.addWidget(self.notice)
        layout.setStretchFactor(self.now, 1)
        self.setLayout(layout)
        self._keys: list[tuple[Kind, str]] = []
        self.choice.activated.connect(self._on_activated)
        self.dial.moved.connect(self.turned)
        self.dial.settled.connect(self.turned)
        self.show_shelf(Shelf(), LIVE)
        self.show_target(Target(Kind.NONE))

    def show_shelf(self, shelf: Shelf, current: tuple[Kind, str]) -> None:
        """What there is to choose from, and what is chosen."""
        wanted: list[tuple[str, tuple[Kind, str] | None]] = [("Live steering", LIVE)]
        for head, kind in _GROUPS:
            found: tuple[Target, ...] = getattr(shelf, kind)
            if found:
                wanted.append((head, None))
                wanted += [(each.name, (each.kind, each.key)) for each in found]
        there = [(self.choice.itemText(row), self.choice.itemData(row)) for row in range(self.choice.count())]
        if there != wanted:
            self.choice.clear()
            for words, key in wanted:
                self.choice.addItem(words, key)
                row = self.choice.count() - 1
                if key is None:
                    item = self.choice.model().item(row)  # type: ignore[attr-defined]
                    item.setFlags(Qt.ItemFlag.NoItemFlags)
                    item.setFont(theme.current().font("caption", bold=True))
                else:
                    self.choice.setItemData(row, words, Qt.ItemDataRole.ToolTipRole)
        keys = [self.choice.itemData(row) for row in range(self.choice.count())]
        self.choice.setCurrentIndex(keys.index(current) if current in keys else 0)
        self.choice.setToolTip(self.choice.currentText())

    def show_target(
        self,
        target: Target | None,
        now: str = "",
        rung: int | None = None,
        claim: str = "",
        *,
        only_persistence: bool = False,
    ) -> None:
        """What the dial acts on (None: several circuits at once), what steers now, and what may be claimed for it."""
        usable = target is not None and target.kind is not Kind.NONE
        self.dial.setEnabled(usable)
        if target is not None and usable:
            self.dial.set_range(
                0.0,
                target.top,
                default=target.default,
                onset=target.advice.onset,
                sweet_spot=target.advice.sweet_spot,
                cliff=target.advice.cliff,
            )
            self.dial.set_value(target.value)
        self.now.set_text(now)
        self.badge.show_rung(rung, only_persistence)
        if target is None:
            self.words.setText("Several circuits steer at once; choose one of them to turn its dial.")
        elif not usable:
            self.words.setText(NOT_YET)
        else:
            self.words.setText(f"{FOLLOWS} {claim}".strip())

    def ask(self, words: str) -> Button:
        """Ask for an acknowledgement before something steers."""
        button = Button("Steer with it all the same", on_click=self._agree)
        self.notice.show_words(words, "warn", button)
        return button

    def offer_set(self, words: str, name: str) -> Button:
        """Say why something cannot steer, with a button that attaches what it needs."""
        button = Button(f"Attach “{name}”", on_click=lambda: self._attach(name))
        self.notice.show_words(words, "warn", button)
        return button

    def _agree(self) -> None:
        self.notice.hide()
        self.agreed.emit()

    def _attach(self, name: str) -> None:
        self.notice.show_words(f"Attaching “{name}”…", "info")
        self.attach_wanted.emit(name)

    def _on_activated(self, row: int) -> None:
        key = self.choice.itemData(row)
        if key is not None:
            self.chosen.emit(Kind(key[0]), key[1])
