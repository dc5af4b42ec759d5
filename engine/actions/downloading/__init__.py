"""Models and SAEs coming in from the Hugging Face hub: what to fetch, fetching and checking it, and the rows about it.

May import: everything of the engine but ``engine.engine``. Nothing is under its final name before it is whole.
"""
