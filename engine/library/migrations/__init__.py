"""The database's history, run by ``engine.library.migrate``; shipped as ``.py`` files, also in a bundle.

May import: ``engine.library.rows`` (env.py only). Each file in ``versions`` is frozen once released: it states its
own columns and words and imports nothing of ours, so that it still does what it did when the tables have moved on.
"""
