"""Text as a stream: token ids to UTF-8 pieces, reasoning and stop strings, each with ``feed()`` and ``finish()``.

May import: nothing of the engine but the request types. Data comes in as token ids and goes out as typed pieces.
"""
