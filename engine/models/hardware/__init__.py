"""Facts of this machine: its GPUs, which device a model goes to, and how much memory there is.

May import: ``engine.library`` and below. Nothing comes in but the settings; frozen facts go out.
"""
