"""The window around the pages: navigation, top bar, tray, tour, messages, and files dropped onto it.

May import: every room of ``ui``. Events come in from ``ui.bridge`` and are handed to the pages that are built.
"""
