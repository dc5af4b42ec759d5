"""Models, steering, generation and the library: everything the program does, without Qt and without HTTP.

May import: only itself and third-party libraries; never ``server``, ``ui``, ``app``, PySide6 or quart. Data comes in
as :class:`engine.generation.request.GenerationRequest` and calls on :class:`engine.engine.Engine`; it goes out as
typed deltas (``engine.generation.request``) and events (``engine.events``).
"""
