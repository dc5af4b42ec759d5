"""Building blocks of the pages; each knows how to show one thing and says what the person did with signals.

May import: PySide6, ``ui.theme``, ``ui.icons``, ``ui.words`` and the engine's frozen values; never ``ui.pages``.
Data comes in through ``show_…``/``set_…`` calls on the GUI thread and goes out as signals.
"""
