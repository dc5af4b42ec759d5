"""What several groups of pages use: widgets, text formatting, colours, and values that pages hand to each other.

May import: ``ui.bridge``, PySide6 and the engine's frozen values; never a page. Data comes in through ``show_…`` and
``set_…`` calls on the GUI thread and goes out as signals.
"""
