"""The desktop face of the engine: PySide6 pages and widgets.

May import: ``engine`` and PySide6; never ``server`` or ``app``.
Data comes in through ``ui/bridge.py`` (events and finished background work, queued into the GUI thread) and goes out
as calls on :class:`engine.engine.Engine` made through the same bridge.
"""
