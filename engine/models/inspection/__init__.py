"""What a model's files say before anything is loaded: names, checkpoints, GGUF headers, what is wrong with them.

May import: ``engine.library`` and below, ``engine.models.hardware``. Paths come in, frozen reports go out; every
length and number of a file is checked before it is believed.
"""
