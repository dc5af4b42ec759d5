"""The style sheet, built from a palette and a type scale; widgets choose by object name or the ``look`` property."""

from __future__ import annotations

from collections.abc import Mapping

from ui.kit.colours import Colours


def build_stylesheet(c: Colours, px: Mapping[str, int], radius: int, mono: str) -> str:
    """Rules for the whole window. ``px``: type role → device-independent pixels; ``mono``: fixed-width family."""
    return f"""
QWidget#rail {{ background: {c.rail}; border: none; border-right: 1px solid {c.line}; }}
QFrame#upright {{ background: {c.line}; border: none; }}
QLabel#veil {{
    background: {c.accent_soft}; color: {c.on_accent_soft}; border: 2px dashed {c.accent};
    border-radius: {radius}px; font-size: {px["title"]}px;
}}
QWidget#topBar {{ background: {c.card}; border: none; border-bottom: 1px solid {c.line}; }}
QWidget#page, QScrollArea#page, QWidget#pageBody {{ background: {c.ground}; border: none; }}
QWidget#sidePanel {{ background: {c.card}; border: none; border-left: 1px solid {c.line}; }}
QWidget#listPanel {{ background: {c.card}; border: none; border-right: 1px solid {c.line}; }}
QScrollArea, QScrollArea > QWidget > QWidget#scrollBody {{ background: transparent; border: none; }}
QDialog, QMessageBox {{ background: {c.ground}; }}

QFrame#card {{ background: {c.card}; border: 1px solid {c.line}; border-radius: {radius}px; }}
QFrame#row {{ background: transparent; border: none; border-radius: {radius - 3}px; }}
QFrame#row:hover {{ background: {c.raised}; }}
QFrame#inset {{ background: {c.code}; border: 1px solid {c.line}; border-radius: {radius - 3}px; }}
QFrame#rule {{ background: {c.line}; border: none; max-height: 1px; min-height: 1px; }}
QFrame#bubble {{ background: {c.raised}; border: none; border-radius: {radius + 4}px; }}
QFrame#composer {{ background: {c.card}; border: 1px solid {c.line_strong}; border-radius: {radius + 4}px; }}
QFrame#composer[focused="true"] {{ border: 1px solid {c.accent}; }}
QFrame#coach {{ background: {c.card}; border: 1px solid {c.accent}; border-radius: {radius}px; }}
QFrame#toast {{ background: {c.raised}; border: none; border-bottom: 1px solid {c.line}; }}
QFrame#passing {{ background: {c.raised}; border: 1px solid {c.line_strong}; border-radius: {radius - 3}px; }}
QFrame#notice {{ border: none; border-radius: {radius - 3}px; background: {c.raised}; }}
QFrame#notice[tone="bad"] {{ background: {c.bad_soft}; }}
QFrame#notice[tone="warn"] {{ background: {c.warn_soft}; }}
QFrame#notice[tone="info"] {{ background: {c.accent_soft}; }}

QLabel {{ background: transparent; }}
QLabel[look="display"] {{ font-size: {px["display"]}px; font-weight: 600; }}
QLabel[look="title"] {{ font-size: {px["title"]}px; font-weight: 600; }}
QLabel[look="lead"] {{ font-size: {px["lead"]}px; font-weight: 600; }}
QLabel[look="strong"] {{ font-weight: 600; }}
QLabel[look="muted"] {{ color: {c.muted}; }}
QLabel[look="small"] {{ color: {c.muted}; font-size: {px["small"]}px; }}
QLabel[look="caption"] {{ color: {c.muted}; font-size: {px["caption"]}px; }}
QLabel[look="warn"] {{ color: {c.warn}; font-size: {px["small"]}px; }}
QLabel[look="bad"] {{ color: {c.bad}; font-size: {px["small"]}px; }}
QLabel[look="group"] {{ color: {c.muted}; font-size: {px["caption"]}px; font-weight: 600; }}
QLabel[look="mono"] {{ font-family: "{mono}"; font-size: {px["small"]}px; }}
QLabel[look="pill"] {{ font-size: {px["caption"]}px; font-weight: 600; padding: 3px 10px; border-radius: {radius}px; }}
QLabel[look="pill"][tone="good"] {{ color: {c.good}; background: {c.good_soft}; }}
QLabel[look="pill"][tone="bad"] {{ color: {c.bad}; background: {c.bad_soft}; }}
QLabel[look="pill"][tone="warn"] {{ color: {c.warn}; background: {c.warn_soft}; }}
QLabel[look="pill"][tone="info"] {{ color: {c.on_accent_soft}; background: {c.accent_soft}; }}
QLabel[look="pill"][tone="quiet"] {{ color: {c.muted}; background: {c.raised}; }}
QLabel[look="step"] {{ color: {c.on_accent_soft}; background: {c.accent_soft}; font-weight: 600; border-radius: 13px; }}
QLabel[look="step"][tone="done"] {{ color: {c.good}; background: {c.good_soft}; }}

QPushButton {{
    background: {c.card}; color: {c.text}; border: 1px solid {c.line_strong}; border-radius: {radius - 3}px;
    padding: 6px 14px; min-height: 20px;
}}
QPushButton, QToolButton {{ outline: none; }}
QPushButton:hover {{ background: {c.raised}; }}
QPushButton:pressed {{ background: {c.line}; }}
QPushButton:focus {{ border: 1px solid {c.accent}; }}
QPushButton:disabled {{ color: {c.disabled}; border-color: {c.line}; }}
QPushButton[look="primary"] {{
    background: {c.accent}; color: {c.on_accent}; border: 1px solid {c.accent}; font-weight: 600;
}}
QPushButton[look="primary"]:hover {{ background: {c.accent_hover}; border-color: {c.accent_hover}; }}
QPushButton[look="primary"]:focus {{ border: 1px solid {c.text}; }}
QPushButton[look="primary"]:disabled {{ background: {c.raised}; color: {c.disabled}; border-color: {c.raised}; }}
QPushButton[look="quiet"] {{ background: transparent; border: 1px solid transparent; }}
QPushButton[look="quiet"]:hover {{ background: {c.raised}; }}
QPushButton[look="quiet"]:focus {{ border: 1px solid {c.accent}; }}
QPushButton[look="toggle"] {{ background: transparent; padding: 4px 12px; }}
QPushButton[look="toggle"]:hover {{ background: {c.raised}; }}
QPushButton[look="toggle"]:checked {{
    background: {c.accent_soft}; color: {c.on_accent_soft}; border: 1px solid {c.accent};
}}
QPushButton[look="nav"] {{
    background: transparent; border: 1px solid transparent; text-align: left; padding: 7px 10px; color: {c.text};
}}
QPushButton[look="nav"][slim="true"] {{ text-align: center; padding: 8px 0; }}
QPushButton[look="nav"]:hover {{ background: {c.raised}; }}
QPushButton[look="nav"]:focus {{ border: 1px solid {c.accent}; }}
QPushButton[look="nav"]:checked {{ background: {c.accent_soft}; color: {c.on_accent_soft}; font-weight: 600; }}
QPushButton[look="tab"] {{
    background: transparent; border: none; border-bottom: 2px solid transparent; border-radius: 0; padding: 4px 2px;
    color: {c.muted};
}}
QPushButton[look="tile"] {{
    background: {c.ground}; border: 1px solid {c.line}; padding: 0; min-height: {px["body"] + px["small"] + 26}px;
}}
QPushButton[look="tile"]:hover {{ background: {c.raised}; }}
QPushButton[look="tile"]:focus {{ border: 1px solid {c.accent}; }}
QPushButton[look="tab"]:hover, QPushButton[look="tab"]:focus {{ color: {c.text}; }}
QPushButton[look="tab"]:checked {{ color: {c.text}; border-bottom: 2px solid {c.accent}; }}

QToolButton {{ background: transparent; border: 1px solid transparent; border-radius: {radius - 4}px; padding: 4px; }}
QToolButton:hover {{ background: {c.raised}; }}
QToolButton:pressed {{ background: {c.line}; }}
QToolButton:focus {{ border: 1px solid {c.accent}; }}
QToolButton:checked {{ background: {c.accent_soft}; }}
QToolButton[look="round"] {{ background: {c.accent}; border: 2px solid {c.accent}; border-radius: 17px; padding: 0; }}
QToolButton[look="round"]:hover {{ background: {c.accent_hover}; border-color: {c.accent_hover}; }}
QToolButton[look="round"]:focus {{ border: 2px solid {c.text}; }}
QToolButton[look="round"]:disabled {{ background: {c.raised}; border-color: {c.raised}; }}

QLineEdit, QSpinBox, QDoubleSpinBox, QPlainTextEdit#field {{
    background: {c.card}; color: {c.text}; border: 1px solid {c.line_strong}; border-radius: {radius - 3}px;
    padding: 5px 8px; selection-background-color: {c.accent}; selection-color: {c.on_accent};
    placeholder-text-color: {c.muted};
}}
QSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::up-button, QDoubleSpinBox::down-button {{
    width: 0; border: none;
}}
QLineEdit#qt_spinbox_lineedit {{ background: transparent; border: none; padding: 0 6px; }}
QLineEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus, QPlainTextEdit#field:focus {{ border: 1px solid {c.accent}; }}
QLineEdit:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled {{ color: {c.disabled}; border-color: {c.line}; }}
QComboBox {{
    background: {c.card}; color: {c.text}; border: 1px solid {c.line_strong}; border-radius: {radius - 3}px;
    padding: 5px 8px; min-height: 18px; combobox-popup: 0;
}}
QComboBox:hover {{ background: {c.raised}; }}
QComboBox:focus {{ border: 1px solid {c.accent}; }}
QComboBox:disabled {{ color: {c.disabled}; border-color: {c.line}; }}
QComboBox::drop-down {{ border: none; width: 24px; }}
QComboBox::down-arrow {{
    image: none; width: 0; height: 0; margin-right: 8px;
    border-left: 4px solid {c.card}; border-right: 4px solid {c.card}; border-top: 5px solid {c.muted};
}}
QComboBox QAbstractItemView {{
    background: {c.card}; color: {c.text}; border: 1px solid {c.line_strong}; outline: none; padding: 4px;
    selection-background-color: {c.accent_soft}; selection-color: {c.on_accent_soft};
}}
QCheckBox {{ spacing: 8px; }}
QLineEdit[state="bad"], QPlainTextEdit#field[state="bad"] {{ border: 1px solid {c.bad}; }}
QPlainTextEdit#bare, QTextBrowser#bare {{
    background: transparent; border: none; padding: 0; placeholder-text-color: {c.muted};
}}
QTextBrowser#bare[look="caption"] {{ color: {c.muted}; font-size: {px["caption"]}px; }}
QPlainTextEdit#code, QTextBrowser#code {{ background: transparent; border: none; color: {c.on_code}; }}

QListWidget {{ background: transparent; border: none; outline: none; }}
QTableView {{ background: transparent; border: none; outline: none; }}
QTableView::item {{ padding: 0 8px; }}
QTableView#sweep {{ gridline-color: {c.line}; }}
QTableCornerButton::section {{ background: transparent; border: none; }}
QTreeWidget {{ background: transparent; border: none; outline: none; }}
QTreeWidget::item {{ padding: 3px 0; }}
QTreeWidget::item:selected {{ background: {c.accent_soft}; color: {c.on_accent_soft}; }}
QTableView::item:selected {{ background: {c.accent_soft}; color: {c.on_accent_soft}; }}
QHeaderView {{ background: transparent; border: none; }}
QHeaderView::section {{
    background: transparent; color: {c.muted}; border: none; border-bottom: 1px solid {c.line}; padding: 4px 8px;
    font-size: {px["caption"]}px;
}}
QSplitter::handle {{ background: transparent; image: none; }}
QProgressBar {{ background: {c.raised}; border: none; border-radius: 3px; max-height: 6px; min-height: 6px; }}
QProgressBar::chunk {{ background: {c.accent}; border-radius: 3px; }}
QProgressBar#thin {{ border-radius: 0; max-height: 3px; min-height: 3px; background: transparent; }}
QProgressBar#thin::chunk {{ border-radius: 0; }}

QSlider {{ min-height: 24px; }}
QSlider::groove:horizontal {{ height: 4px; background: {c.line_strong}; border-radius: 2px; }}
QSlider::sub-page:horizontal {{ background: {c.accent}; border-radius: 2px; }}
QSlider::handle:horizontal {{
    width: 16px; height: 16px; margin: -7px 0; border-radius: 9px; background: {c.card}; border: 2px solid {c.accent};
}}
QSlider::handle:horizontal:hover, QSlider::handle:horizontal:focus {{ background: {c.accent_soft}; }}

QSlider#centred::groove:horizontal, QSlider#centred::sub-page:horizontal {{ background: transparent; }}

QAbstractScrollArea::corner {{ background: transparent; border: none; }}
QScrollBar:vertical {{ background: transparent; width: 10px; margin: 0; }}
QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 0; }}
QScrollBar::handle {{ background: {c.line_strong}; border-radius: 3px; margin: 2px; }}
QScrollBar::handle:vertical {{ min-height: 32px; }}
QScrollBar::handle:horizontal {{ min-width: 32px; }}
QScrollBar::handle:hover {{ background: {c.muted}; }}
QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}

QMenu {{ background: {c.card}; color: {c.text}; border: 1px solid {c.line_strong}; border-radius: 6px; padding: 4px; }}
QMenu::item {{ padding: 6px 20px 6px 12px; border-radius: 4px; }}
QMenu::item:selected {{ background: {c.accent_soft}; color: {c.on_accent_soft}; }}
QMenu::separator {{ height: 1px; background: {c.line}; margin: 4px 8px; }}
QToolTip {{ background: {c.raised}; color: {c.text}; border: 1px solid {c.line_strong}; padding: 4px 8px; }}
"""
