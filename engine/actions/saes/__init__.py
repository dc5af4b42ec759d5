"""What is done with SAEs: import, check, attach, steer by hand, detach, delete.

Each is an object of its own that the engine hands out: the library's SAEs, what is attached, hand-set strengths,
reading a text, contrasting two. May import: every room of the engine below ``actions``. Rows, attachments on the desk,
events and frozen views go out.
"""

from __future__ import annotations

from engine.actions.saes.actions import SaeActions

__all__ = ["SaeActions"]
