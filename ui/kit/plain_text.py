"""Words of others where Qt takes text for HTML as soon as it looks like it: kept as the letters they are. No widgets.

Tooltips have no switch for plain text: Qt guesses from the first tag (``Qt.mightBeRichText``), and rich text reads the
files its pictures name. A desktop's tray and its notifications do the same. Labels have the switch
(:func:`ui.kit.basics.label`), and lists, tables and fields draw letters only.
"""

from __future__ import annotations

import re

JOINER = "\u2060"
"""WORD JOINER: takes no room and is drawn by no font. A ``<`` before it begins no tag that Qt knows."""
_TAG = re.compile(f"<(?!{JOINER})")


def as_letters(text: str) -> str:
    """``text`` such that nothing takes it for markup; it looks the same. What was made of letters stays as it is."""
    return _TAG.sub(f"<{JOINER}", text).replace("&lt;", f"&{JOINER}lt;")


def on_button(text: str) -> str:
    """``text`` for a button, a tick box or a menu, where a single ``&`` would be swallowed and underline a letter."""
    return text.replace("&", "&&")
