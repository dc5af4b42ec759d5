"""Features as chips: number, label and strength, with what the author says of each in its tooltip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from engine.public.documents import Member
from ui.kit.basics import pill
from ui.kit.flow import Flow
from ui.kit.plain_text import as_letters
from ui.kit.steering_text import signed

LABEL_LIMIT = 44


@dataclass(frozen=True)
class MemberChip:
    """One feature. ``told`` are lines for the tooltip."""

    index: int
    label: str | None
    strength: float
    told: tuple[str, ...] = ()
    pinned: bool = False

    def words(self) -> str:
        """The chip's text."""
        name = self.label or "no label"
        name = name if len(name) <= LABEL_LIMIT else f"{name[: LABEL_LIMIT - 1]}…"
        return f"#{self.index}  {name}  {signed(self.strength)}"


def member_told(member: Member) -> tuple[str, ...]:
    """What a document says of a feature, marked as the author's."""
    meta = member.meta
    told = []
    if meta is not None and meta.description:
        told.append(f"In the author's words: {meta.description}")
    if meta is not None and meta.top_tokens:
        told.append(f"Strongest on: {', '.join(token.strip() or '␣' for token in meta.top_tokens)}")
    if member.max_activation is not None:
        told.append(f"Largest activation the author saw: {member.max_activation:g}")
    if member.activation_frequency is not None:
        told.append(f"Fires on {member.activation_frequency:.2%} of tokens, the author says")
    if meta is not None and meta.label_source:
        told.append(f"Label from: {meta.label_source}")
    return tuple(told)


class MemberChips(Flow):
    """Shows chips, as many to a line as there is room for."""

    def show_chips(self, chips: Sequence[MemberChip]) -> None:
        """Show these instead."""
        self.show_all([self._chip(each) for each in chips])

    def texts(self) -> list[str]:
        """What is on the chips."""
        return [widget.text() for widget in self.widgets() if isinstance(widget, QLabel)]

    @staticmethod
    def _chip(each: MemberChip) -> QWidget:
        made = pill(each.words(), "info" if each.strength >= 0 else "warn")
        made.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        full = f"#{each.index} {each.label or 'no label'}, strength {signed(each.strength)} at λ 1"
        made.setToolTip(as_letters("\n".join((full, *(("Pinned by the author",) if each.pinned else ()), *each.told))))
        made.setAccessibleName(full)
        return made
