"""SQLite through SQLAlchemy: one file per aggregate (its records, tables and repository), Alembic migrations.

May import: ``engine.errors``. Frozen records come in and go out, a new row as the record with its defaults; no ORM
object leaves. ``records`` is the door to them. What the steering work keeps raises the types in
``engine.library.errors``. A change of a table needs a new file in ``migrations/versions``; a test compares the two.
"""
