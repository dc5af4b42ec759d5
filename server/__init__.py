"""The HTTP face of the engine: one package per API dialect, on Quart and Hypercorn, in a thread of its own.

May import: ``engine``; never ``ui``, ``app`` or PySide6.
Data comes in as HTTP requests and goes out as JSON or server-sent events, both made from the engine's typed deltas.
"""
