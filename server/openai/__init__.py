"""The OpenAI dialect: ``/v1/models``, ``/v1/chat/completions``, ``/v1/completions``.

May import: ``engine``, ``server``.
Data comes in as JSON bodies, becomes the engine's one internal request, and goes out as JSON or server-sent events.
"""
