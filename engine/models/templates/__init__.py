"""Chat templates: programs that come with a model, run in a process of their own with a bound on time and memory.

May import: nothing of the engine. ``sandbox`` and ``worker`` run in that process and import neither torch nor
transformers; ``renderer`` starts, watches and ends it; ``chat`` is what the tokenizers use.
"""
