"""What is done with SAEs: import, check, attach, steer by hand, detach, delete.

May import: every room of the engine below ``actions``. Calls of a face come in through :class:`SaeActions`; rows,
attachments on the desk, events and frozen views go out.
"""

from __future__ import annotations

from engine.actions.saes.actions import SaeActions

__all__ = ["SaeActions"]
