"""One setting: what it does, its value with an editor that fits its kind, where it comes from, and when it counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QComboBox, QLineEdit, QWidget

from engine.checked import of_kind
from ui.context.services import SettingInfo, SettingKind, SettingOrigin
from ui.kit import theme
from ui.kit.basics import IconButton, column, label, line, pill, set_pill, set_property
from ui.kit.choice import Choice
from ui.kit.plain_text import as_letters
from ui.kit.switch import Switch

LEAST_TEXT = 160
EDITOR_WIDTH = 260
BESIDE = 560
"""From this width of a row on its field stands beside its words."""


def shown(value: Any) -> str:
    """A value as it is typed and read: lists with commas, nothing for none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list | tuple):
        return ", ".join(str(each) for each in value)
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False) if value else ""
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)


def facts_of(info: SettingInfo) -> str:
    """The small line under a setting: default, what it takes, its variable, and when a change counts."""
    default = "none" if info.default in (None, [], {}) else shown(info.default)
    parts = [f"default {default}"]
    if info.kind in (SettingKind.WHOLE, SettingKind.NUMBER):
        parts.append(info.allowed)
    if info.kind is SettingKind.LIST:
        parts.append("with commas between them")
    if info.kind is SettingKind.OBJECT:
        parts.append(info.allowed)
    parts.append(info.environment)
    parts.append(f"counts {info.applies.value}")
    return " · ".join(parts)


class SettingRow(QWidget):
    """Shows a :class:`SettingInfo`; says with signals what the person wants."""

    changed = Signal(str, object)
    """(name, value as typed)."""
    reset = Signal(str)

    def __init__(self, info: SettingInfo, title: str | None = None) -> None:
        super().__init__()
        self.info = info
        self.title = label(title or info.name, "strong")
        self.description = label(info.description, "muted", wrap=True)
        self.facts = label("", "caption", wrap=True)
        self.error = label("", "bad", wrap=True)
        self.origin = pill()
        self.editor: Switch | QComboBox | QLineEdit
        self.undo = IconButton("undo", f"Put {info.name} back to its default", lambda: self.reset.emit(self.info.name))
        name = title or info.name
        if info.kind is SettingKind.SWITCH:
            self.editor = Switch(name)
            self.editor.clicked.connect(lambda on: self.changed.emit(self.info.name, on))
        elif info.kind is SettingKind.CHOICE:
            self.editor = Choice()
            self.editor.addItems(list(info.choices))
            self.editor.setFixedWidth(EDITOR_WIDTH)
            self.editor.textActivated.connect(lambda text: self.changed.emit(self.info.name, text))
        else:
            self.editor = QLineEdit()
            self.editor.setFixedWidth(EDITOR_WIDTH)
            self.editor.editingFinished.connect(self._on_typed)
        self.editor.setAccessibleName(name)
        texts = column(spacing=2)
        head = line(self.title, self.origin, None, spacing=theme.M)
        texts.addLayout(head)
        for part in (self.description, self.facts, self.error):
            # The names of variables have no place to break: they must not hold the page open.
            part.setMinimumWidth(LEAST_TEXT)
            texts.addWidget(part)
        layout = self._across = line(spacing=theme.L)
        layout.setContentsMargins(0, theme.S, 0, theme.S)
        layout.addLayout(texts, 1)
        self._field = line(self.editor, self.undo, spacing=theme.L)
        layout.addLayout(self._field)
        self.setLayout(layout)
        self.error.hide()
        self.show_info(info)

    def minimumSizeHint(self) -> QSize:
        """Narrower than side by side: then the field goes under the words."""
        return QSize(EDITOR_WIDTH + 60, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """The field beside the words where there is room, else under them."""
        super().resizeEvent(event)
        beside = self.width() >= BESIDE
        way = QBoxLayout.Direction.LeftToRight if beside else QBoxLayout.Direction.TopToBottom
        self._across.setDirection(way)
        self._across.setSpacing(theme.L if beside else theme.S)
        self._across.setAlignment(self._field, Qt.AlignmentFlag(0) if beside else Qt.AlignmentFlag.AlignLeft)

    def show_info(self, info: SettingInfo) -> None:
        """Show how it stands now; what is being typed stays."""
        self.info = info
        text = shown(info.value)
        if isinstance(self.editor, Switch):
            self.editor.setChecked(bool(info.value))
        elif isinstance(self.editor, QComboBox):
            self.editor.setCurrentText(str(info.value))
        else:
            if info.secret:
                self.editor.setEchoMode(QLineEdit.EchoMode.Password)
            self.editor.setReadOnly(info.locked)
            if not self.editor.isModified():
                self.editor.setText(text)
                self.editor.setCursorPosition(0)
            self.editor.setPlaceholderText("none" if info.default is None else shown(info.default) or "none")
        if not isinstance(self.editor, QLineEdit):
            self.editor.setEnabled(not info.locked)
        self.facts.setText(facts_of(info))
        self._show_origin(info)
        policy = self.undo.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self.undo.setSizePolicy(policy)
        self.undo.setVisible(info.origin is SettingOrigin.FILE)

    def show_error(self, words: str) -> None:
        """Say why the value was refused, in place; empty takes that away."""
        self.error.setText(words)
        self.error.setVisible(bool(words))
        if isinstance(self.editor, QLineEdit):
            set_property(self.editor, "state", "bad" if words else "")

    def settle(self) -> None:
        """What was typed has been taken: the editor follows the setting again."""
        if isinstance(self.editor, QLineEdit):
            self.editor.setModified(False)
        self.show_error("")

    def matches(self, words: str) -> bool:
        """Whether every word occurs in its name, title, description or variable."""
        text = f"{self.info.name} {self.title.text()} {self.info.description} {self.info.environment}".lower()
        return all(word in text for word in words.lower().split())

    def _show_origin(self, info: SettingInfo) -> None:
        if info.locked:
            set_pill(self.origin, f"{info.origin.value}, cannot be changed here", "warn")
            self.origin.setToolTip(as_letters(f"Set by {info.origin_words}, which wins over the settings file"))
        elif info.waiting:
            set_pill(self.origin, "waits for a restart", "info")
            self.origin.setToolTip("")
        else:
            set_pill(self.origin, "changed" if info.origin is SettingOrigin.FILE else "default", "quiet")
            self.origin.setToolTip(as_letters(f"From {info.origin_words}"))
        self.origin.setVisible(info.locked or info.waiting or info.origin is SettingOrigin.FILE)

    def _on_typed(self) -> None:
        editor = of_kind(QLineEdit, self.editor)
        if editor.isReadOnly() or not editor.isModified():
            return
        text = editor.text().strip()
        if text == shown(self.info.value):
            self.settle()
            return
        empty_is_value = self.info.kind in (SettingKind.LIST, SettingKind.OBJECT)
        self.changed.emit(self.info.name, text if text or empty_is_value else None)
