"""The pages of the window: each joins widgets to the engine and owns what the person is doing there.

May import: the rest of ``ui`` and ``engine``. Data comes in as events from ``ui.bridge`` and goes out as calls on the
engine made through it.
"""
