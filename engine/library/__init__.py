"""SQLite through SQLAlchemy: tables, one repository per aggregate, Alembic migrations.

May import: ``engine.errors``. Data comes in as frozen ``New…`` values and goes out as frozen records; no ORM object
leaves. What the steering work keeps raises the types in ``engine.library.errors``.
"""
