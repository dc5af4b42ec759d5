"""Model names and states, checkpoints on disk, and the backends that run them.

May import: ``engine.library`` and below. Data comes in as token ids and goes out as logits; the KV layout is private
to a backend.
"""
