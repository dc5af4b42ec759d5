"""The database's history: from nothing, from an older version, and against the tables as they are now."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import create_engine, inspect

from engine.errors import LibraryUnusable
from engine.library import migrate
from engine.library.conversations import StoredMessage
from engine.library.database import Library
from engine.library.records import FeatureLabel, ModelStatus, ProfileRecord, SaeRecord, SaeSource
from engine.library.rows import Base

OLD_ROW = (
    "INSERT INTO models (name, source, engine, local_path, trust_remote_code, status, locked, created_at, updated_at) "
    "VALUES ('old', 'local', 'transformers', '/models/old', 0, 'ready', 1, '2026-01-02 03:04:05.678900', "
    "'2026-01-02 03:04:05.678900')"
)


def make_old(path: Path, revision: str = "0001") -> None:
    """A database as the version with ``revision`` left it, with a model and a remembered value."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        migrate.upgrade_connection(connection, revision)
    engine.dispose()
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(OLD_ROW)
        raw.execute("INSERT INTO state (key, value, updated_at) VALUES ('last_model', '1', '2026-01-02 03:04:05')")
        raw.commit()


def described(path: Path) -> dict[str, Any]:
    """Constraints and indexes of every table, for comparison; what ``compare_metadata`` does not look at."""
    engine = create_engine(f"sqlite:///{path}")
    looking = inspect(engine)
    found = {
        table: {
            "checks": sorted((check["name"], check["sqltext"]) for check in looking.get_check_constraints(table)),
            "keys": [looking.get_pk_constraint(table), looking.get_foreign_keys(table)],
            "unique": sorted(str(unique) for unique in looking.get_unique_constraints(table)),
            "indexes": sorted(
                (str(index["name"]), str(index["column_names"]), str(index["dialect_options"].get("sqlite_where")))
                for index in looking.get_indexes(table)
            ),
            "autoincrement": "AUTOINCREMENT" in sql(engine, table),
            "rowid": "WITHOUT ROWID" not in sql(engine, table),
        }
        for table in looking.get_table_names()
        if table not in ("alembic_version", "sqlite_sequence")
    }
    engine.dispose()
    return found


def sql(engine: Any, table: str) -> str:
    with engine.connect() as connection:
        statement = f"SELECT sql FROM sqlite_master WHERE name = '{table}'"
        return str(connection.exec_driver_sql(statement).scalar_one())


def test_the_history_is_known() -> None:
    assert migrate.known_revisions() == ["0001", "0002", "0003", "0004", "0005", "0006", "0007"]


def test_the_history_ends_at_the_tables_as_they_are(tmp_path: Path) -> None:
    Library.open(tmp_path / "millm.db").close()
    engine = create_engine(f"sqlite:///{tmp_path / 'millm.db'}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    engine.dispose()
    direct = create_engine(f"sqlite:///{tmp_path / 'direct.db'}")
    Base.metadata.create_all(direct)
    direct.dispose()
    migrated = described(tmp_path / "millm.db")
    assert migrated == described(tmp_path / "direct.db")
    assert sorted(migrated) == [
        "attach_sets",
        "circuit_claims",
        "circuits",
        "conversations",
        "experiments",
        "messages",
        "models",
        "profiles",
        "sae_labels",
        "saes",
        "state",
    ]
    assert ("ck_models_locked", "locked IN (0, 1)") in migrated["models"]["checks"]
    assert {table: len(found["checks"]) for table, found in migrated.items() if found["checks"]} == {
        "circuit_claims": 1,
        "circuits": 5,
        "messages": 1,
        "models": 5,
        "profiles": 4,
        "saes": 5,
    }
    assert ("uq_models_the_locked_one", "['locked']", "locked = 1") in migrated["models"]["indexes"]
    assert migrated["profiles"]["indexes"] == [("uq_profiles_the_active_one", "['is_active']", "is_active = 1")]
    assert migrated["circuit_claims"]["indexes"] == [
        ("ix_circuit_claims_circuit_id", "['circuit_id']", "None"),
        ("uq_circuit_claims_one_claim_of_a_circuit", "['circuit_id', 'layer']", "released_at IS NULL"),
        ("uq_circuit_claims_one_holder_of_a_layer", "['layer']", "released_at IS NULL AND composed = 0"),
    ]
    assert [table for table, found in migrated.items() if not found["rowid"]] == ["sae_labels"]


def test_a_previous_database_is_upgraded_with_its_rows_and_copied_first(tmp_path: Path) -> None:
    path = tmp_path / "millm.db"
    make_old(path)
    with Library.open(path) as library:
        (model,) = library.models.list()
        assert (model.name, model.local_path, model.status, model.locked) == (
            "old",
            "/models/old",
            ModelStatus.READY,
            True,
        )
        assert model.created_at.isoformat() == "2026-01-02T03:04:05.678900+00:00"
        assert library.state.get("last_model") == 1
        assert library.conversations.create("new").id == 1
    assert sorted(os.listdir(tmp_path)) == ["millm.db", "millm.db.bak-0001"]
    with closing(sqlite3.connect(tmp_path / "millm.db.bak-0001")) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
        assert raw.execute("SELECT name FROM models").fetchall() == [("old",)]
    Library.open(path).close()


def test_the_version_before_is_upgraded_with_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "millm.db"
    make_old(path, "0002")
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(
            "INSERT INTO conversations (title, system_prompt, created_at, updated_at) "
            "VALUES ('Häfen', 'kurz', '2026-01-02 03:04:05', '2026-01-02 03:04:06')"
        )
        raw.execute(
            "INSERT INTO messages (conversation_id, position, role, content, details) "
            "VALUES (1, 0, 'user', 'What is a quay?', '{\"tokens\": [3]}')"
        )
        raw.commit()
    with Library.open(path) as library:
        assert [model.name for model in library.models.list()] == ["old"]
        saved = library.conversations.get(1)
        assert saved is not None and (saved.title, saved.system_prompt) == ("Häfen", "kurz")
        assert saved.messages == (StoredMessage("user", "What is a quay?", {"tokens": [3]}),)
        assert library.state.get("last_model") == 1
        assert (library.saes.list(), library.profiles.list(), library.attach_sets.list()) == ([], [], [])
        assert (library.circuits.list().total, library.claims.live()) == (0, [])
        library.saes.add(SaeRecord("sea--layer_3", "sea", SaeSource.LOCAL, d_sae=64))
        assert library.labels.upsert("sea--layer_3", [FeatureLabel(7, "ships")]) == 1
        assert library.profiles.add(ProfileRecord("harbour", steering={7: 2.5})).steering == {7: 2.5}
        assert library.reset_after_restart() == ()
        assert library.models.list()[0].locked is False
    assert sorted(os.listdir(tmp_path)) == ["millm.db", "millm.db.bak-0002"]
    with closing(sqlite3.connect(tmp_path / "millm.db.bak-0002")) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [("0002",)]
        assert raw.execute("SELECT title FROM conversations").fetchall() == [("Häfen",)]


def test_the_step_for_steering_fails_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "millm.db"
    make_old(path, "0002")
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE circuit_claims (id INTEGER)")  # made last by that step
        raw.commit()
    with pytest.raises(LibraryUnusable, match="left as it was"):
        Library.open(path)
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [("0002",)]
        tables = {row[0] for row in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not tables & {"saes", "sae_labels", "attach_sets", "profiles", "circuits"}


def test_rows_still_in_the_log_reach_the_copy(tmp_path: Path) -> None:
    """A killed program leaves its last commits in the write-ahead log beside the file."""
    path = tmp_path / "millm.db"
    make_old(path)
    running = sqlite3.connect(path)
    running.execute("PRAGMA journal_mode=WAL")
    running.execute("INSERT INTO state (key, value, updated_at) VALUES ('late', '2', '2026-01-02 03:04:05')")
    running.commit()
    copied = migrate.back_up(path, "0001")
    running.close()
    with closing(sqlite3.connect(copied)) as raw:
        assert raw.execute("SELECT value FROM state WHERE key = 'late'").fetchone() == ("2",)


def test_a_newer_database_is_left_untouched(tmp_path: Path) -> None:
    path = tmp_path / "millm.db"
    make_old(path, "0002")
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '0009'")
        raw.commit()
    before = path.read_bytes()
    with pytest.raises(LibraryUnusable) as caught:
        Library.open(path)
    assert "newer version" in caught.value.message and "0009" in caught.value.message
    assert caught.value.details["newest_known"] == "0007"
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["millm.db"]


def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "millm.db"
    make_old(path)
    with closing(sqlite3.connect(path)) as raw:
        # The second step makes this table last, so the first of its tables was made already.
        raw.execute("CREATE TABLE messages (id INTEGER)")
        raw.commit()
    with pytest.raises(LibraryUnusable, match="left as it was") as caught:
        Library.open(path)
    assert caught.value.details["backup"] == str(tmp_path / "millm.db.bak-0001")
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [("0001",)]
        tables = {row[0] for row in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert "conversations" not in tables
        assert raw.execute("SELECT name FROM models").fetchall() == [("old",)]
        raw.execute("DROP TABLE messages")
        raw.commit()
    with Library.open(path) as library:
        assert library.models.by_name("old") is not None


def test_a_damaged_older_database_is_not_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "millm.db"
    make_old(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 // 4096 * 4096])
    with pytest.raises(LibraryUnusable, match="damaged"):
        Library.open(path)
    assert not (tmp_path / "millm.db.bak-0001").exists()


def test_rows_that_refer_to_nothing_stop_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "millm.db"
    make_old(path)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE child (parent INTEGER REFERENCES models(id))")
        raw.execute("INSERT INTO child VALUES (99)")
        raw.commit()
    with pytest.raises(LibraryUnusable, match="has 1 row referring to missing ones"):
        Library.open(path)
    assert migrate.read_revision(path) == "0001"
