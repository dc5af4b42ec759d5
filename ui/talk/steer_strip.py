"""Above the composer: what steers, and its dial."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtWidgets import QComboBox, QFrame, QSizePolicy, QWidget

from ui.context.page_context import CIRCUITS, SAES, STEERING
from ui.kit import theme
from ui.kit.basics import Button, ElidedLabel, Notice, column, label, line
from ui.kit.choice import Choice
from ui.kit.intensity_dial import IntensityDial
from ui.kit.overlay_place import KEEP_CLEAR
from ui.kit.plain_text import as_letters
from ui.kit.rung_badge import RungBadge
from ui.kit.steer_targets import Target, TargetKind, Targets

LIVE = (TargetKind.NONE, "")
CHOICE_WIDTH = 220
LEAST_CHOICE = 150
FOLLOWS = (
    "The steered side follows the dial while it is written; the plain side never does. Other programs' answers that "
    "follow the live steering do too."
)
NOT_YET = "Nothing steers. Choose a cluster, a profile or a circuit, or turn up features by hand."
NOT_ATTACHED = "Nothing steers: no SAE is attached, and an answer is steered through one."
SEVERAL = "Several circuits steer at once; choose one of them to turn its dial."
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
    page_wanted = Signal(str)
    """The page where what is missing can be done."""
    released = Signal()
    """A person is done with it by the mouse: the keys may go where one would type."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        # Its dial is turned and its words are read while something else has been said.
        self.setProperty(KEEP_CLEAR, True)
        self._comparing = False
        self._claim = ""
        self._by_mouse = False
        self._page = STEERING
        self.choice = Choice()
        self.choice.turned_by_wheel = False
        self.choice.setAccessibleName("Steer with")
        self.choice.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.choice.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.choice.setMinimumContentsLength(12)
        self.now = ElidedLabel("", "caption")
        self.badge = RungBadge()
        self.dial = IntensityDial("Intensity λ of what steers")
        self.missing = label("", "small", wrap=True)
        self.way = Button("", "plain", on_click=lambda: self.page_wanted.emit(self._page))
        self.words = label("", "caption", wrap=True)
        self.notice = Notice()
        who = QWidget()
        who.setMinimumWidth(LEAST_CHOICE)
        who.setMaximumWidth(CHOICE_WIDTH)
        whom = column(spacing=2)
        whom.addWidget(self.choice)
        whom.addWidget(self.now)
        who.setLayout(whom)
        row = line(spacing=theme.M)
        row.addWidget(who, 2)
        row.addWidget(self.missing, 5)
        row.addWidget(self.way)
        row.addWidget(self.dial, 5)
        layout = column(spacing=theme.XS, margins=(theme.M, theme.S, theme.S, theme.S))
        layout.addLayout(row)
        layout.addWidget(self.badge, 0, Qt.AlignmentFlag.AlignLeft)
        layout.addWidget(self.words)
        layout.addWidget(self.notice)
        self.setLayout(layout)
        self.choice.installEventFilter(self)
        self.choice.activated.connect(self._on_activated)
        self.dial.moved.connect(self.turned)
        self.dial.settled.connect(self.turned)
        self.dial.released.connect(self.released)
        self.show_shelf(Targets(), LIVE)
        self.show_target(Target(TargetKind.NONE))
        # Not known yet; until it is, nothing is said of it.
        self.missing.hide()
        self.way.hide()

    def set_comparing(self, on: bool) -> None:
        """Whether the next answer is written twice: then it says which side follows the dial."""
        self._comparing = on
        self._show_words()

    def show_shelf(self, shelf: Targets, current: tuple[TargetKind, str]) -> None:
        """What there is to choose from, and what is chosen."""
        wanted: list[tuple[str, tuple[TargetKind, str] | None]] = [("Live steering", LIVE)]
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
                    self.choice.setItemData(row, as_letters(words), Qt.ItemDataRole.ToolTipRole)
        keys = [self.choice.itemData(row) for row in range(self.choice.count())]
        self.choice.setCurrentIndex(keys.index(current) if current in keys else 0)
        self.choice.setToolTip(as_letters(self.choice.currentText()))

    def show_target(
        self,
        target: Target | None,
        now: str = "",
        rung: int | None = None,
        claim: str = "",
        *,
        attached: bool = False,
        only_persistence: bool = False,
    ) -> None:
        """What the dial acts on (None: several circuits at once), what steers now, and what may be claimed for it;
        whether an SAE is ``attached`` to steer through.
        """
        usable = target is not None and target.kind is not TargetKind.NONE
        self.dial.setEnabled(usable)
        self.dial.setVisible(usable)
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
        # With nothing to turn, the words beside it say so at length.
        self.now.setVisible(usable or target is None)
        self.badge.show_rung(rung, only_persistence)
        self._claim = claim
        self._show_missing(target, attached)
        self._show_words()

    def _show_missing(self, target: Target | None, attached: bool) -> None:
        usable = target is not None and target.kind is not TargetKind.NONE
        several = target is None
        words, way, self._page = (
            (SEVERAL, "Open Circuits", CIRCUITS)
            if several
            else (NOT_YET, "Open Steering", STEERING)
            if attached
            else (NOT_ATTACHED, "Attach an SAE", SAES)
        )
        self.missing.setText(words)
        self.way.setText(way)
        self.way.setAccessibleName(way)
        self.missing.setVisible(not usable)
        self.way.setVisible(not usable)

    def _show_words(self) -> None:
        told = f"{FOLLOWS if self._comparing and not self.dial.isHidden() else ''} {self._claim}".strip()
        self.words.setText(told)
        self.words.setVisible(bool(told))

    def ask(self, words: str) -> Button:
        """Ask for an acknowledgement before something steers."""
        button = Button("Steer with it all the same", on_click=self._agree)
        self.notice.show_words(words, "warn", button)
        return button

    def offer_set(self, words: str, name: str) -> Button:
        """Say why something cannot steer, with a button that attaches what it needs."""
        # The words need the room more than the set's name does.
        button = Button("Attach its SAEs", on_click=lambda: self._attach(name))
        button.setToolTip(as_letters(f"Attaches “{name}”"))
        self.notice.show_words(words, "warn", button)
        return button

    def say_zero(self, words: str) -> Button:
        """Say that what was chosen adds nothing, with the way back to where it does."""
        home = self.dial.home
        back = home.toolTip() if home.isEnabled() else "Turn it to λ 1"
        button = Button(back, on_click=self._let_go)
        button.clicked.connect(lambda: home.click() if home.isEnabled() else self.dial.turn_to(1.0))
        self.notice.show_words(words, "info", button)
        return button

    def _agree(self) -> None:
        self._let_go()
        self.notice.hide()
        self.agreed.emit()

    def _let_go(self) -> None:
        """A button is about to go that may have the keys; left alone they would go to whatever comes next."""
        self.released.emit()

    def _attach(self, name: str) -> None:
        self._let_go()
        self.notice.show_words(f"Attaching “{name}”…", "info")
        self.attach_wanted.emit(name)

    def _on_activated(self, row: int) -> None:
        key = self.choice.itemData(row)
        if key is not None:
            self.chosen.emit(TargetKind(key[0]), key[1])
        if self._by_mouse:
            # Letters typed now are a message, not a search among what could steer.
            self.released.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Whether the list is used by the mouse or by keys; those who use keys stay where they are."""
        if event.type() in (QEvent.Type.MouseButtonPress, QEvent.Type.KeyPress):
            self._by_mouse = event.type() == QEvent.Type.MouseButtonPress
        return super().eventFilter(watched, event)
