"""The model shelf and the remembered values."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "models",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("engine", sa.String(16), nullable=False),
        sa.Column("repo_id", sa.String(255), nullable=True),
        sa.Column("local_path", sa.Text(), nullable=True),
        sa.Column("params", sa.Integer(), nullable=True),
        sa.Column("architecture", sa.Text(), nullable=True),
        sa.Column("quantization", sa.String(8), nullable=True),
        sa.Column("gguf_label", sa.String(64), nullable=True),
        sa.Column("revision", sa.String(100), nullable=True),
        sa.Column("pipeline_tag", sa.String(64), nullable=True),
        sa.Column("context_length", sa.Integer(), nullable=True),
        sa.Column("disk_size_mb", sa.Float(), nullable=True),
        sa.Column("estimated_memory_mb", sa.Float(), nullable=True),
        sa.Column("trust_remote_code", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("locked", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("updated_at", sa.DateTime(), nullable=False),
        sa.Column("loaded_at", sa.DateTime(), nullable=True),
        sa.Column("last_used_at", sa.DateTime(), nullable=True),
        sa.CheckConstraint("source IN ('huggingface', 'local', 'demo')", name=op.f("ck_models_source")),
        sa.CheckConstraint("engine IN ('transformers', 'llamacpp')", name=op.f("ck_models_engine")),
        sa.CheckConstraint(
            "status IN ('downloading', 'ready', 'loading', 'loaded', 'error')", name=op.f("ck_models_status")
        ),
        sa.CheckConstraint("trust_remote_code IN (0, 1)", name=op.f("ck_models_trust_remote_code")),
        sa.CheckConstraint("locked IN (0, 1)", name=op.f("ck_models_locked")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_models_local_path"), "models", ["local_path"])
    op.create_index("uq_models_the_locked_one", "models", ["locked"], unique=True, sqlite_where=sa.text("locked = 1"))
    op.create_table(
        "state",
        sa.Column("key", sa.String(100), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_state")),
    )


def downgrade() -> None:
    op.drop_table("state")
    op.drop_table("models")
