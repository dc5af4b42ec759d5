"""The desktop face of the engine: pages by the navigation's groups, each with the widgets that only it uses.

May import: ``engine`` and PySide6; never ``server`` or ``app``. ``window`` builds the groups ``talk``, ``steer``,
``look``, ``shelf``, ``serve`` and ``program``, which do not know each other; all of them use ``context``, and that
uses ``kit``. Data comes in through ``ui/bridge.py`` (events and finished background work, queued into the GUI thread)
and goes out as calls on :class:`engine.engine.Engine` made through the same bridge.
"""
