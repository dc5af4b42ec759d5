"""SAEs with their labels, profiles, circuits with their claims, and saved sets of SAEs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _saes()
    _profiles()
    _circuits()


def _saes() -> None:
    op.create_table(
        "saes",
        sa.Column("id", sa.String(100), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("repository_id", sa.String(255), nullable=True),
        sa.Column("revision", sa.String(100), nullable=True),
        sa.Column("source", sa.String(16), nullable=False),
        sa.Column("format", sa.String(32), nullable=True),
        sa.Column("architecture", sa.String(32), nullable=True),
        sa.Column("d_in", sa.Integer(), nullable=True),
        sa.Column("d_sae", sa.Integer(), nullable=True),
        sa.Column("k", sa.Integer(), nullable=True),
        sa.Column("trained_on", sa.Text(), nullable=True),
        sa.Column("trained_layer", sa.Integer(), nullable=True),
        sa.Column("hook_name", sa.Text(), nullable=True),
        sa.Column("width", sa.String(32), nullable=True),
        sa.Column("average_l0", sa.Float(), nullable=True),
        sa.Column("source_l0", sa.Float(), nullable=True),
        sa.Column("source_variance_explained", sa.Float(), nullable=True),
        sa.Column("measured_l0", sa.Float(), nullable=True),
        sa.Column("measured_variance_explained", sa.Float(), nullable=True),
        sa.Column("measured_at", sa.DateTime(), nullable=True),
        sa.Column("dead_share", sa.Float(), nullable=True),
        sa.Column("file_size_bytes", sa.Integer(), nullable=True),
        sa.Column("local_path", sa.Text(), nullable=True),
        sa.Column("copied", sa.Boolean(), nullable=False),
        sa.Column("files_sha256", sa.String(64), nullable=True),
        sa.Column("dtype", sa.String(32), nullable=True),
        sa.Column("normalize_activations", sa.String(64), nullable=True),
        sa.Column("apply_b_dec_to_input", sa.Boolean(), nullable=True),
        sa.Column("assumed", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("updated_at", sa.DateTime(), nullable=False),
        sa.CheckConstraint(
            "length(id) BETWEEN 1 AND 100 AND id NOT GLOB '*[^-A-Za-z0-9._@]*'", name=op.f("ck_saes_id")
        ),
        sa.CheckConstraint("source IN ('local', 'huggingface', 'demo')", name=op.f("ck_saes_source")),
        sa.CheckConstraint("status IN ('downloading', 'cached', 'attached', 'error')", name=op.f("ck_saes_status")),
        sa.CheckConstraint("copied IN (0, 1)", name=op.f("ck_saes_copied")),
        sa.CheckConstraint("apply_b_dec_to_input IN (0, 1)", name=op.f("ck_saes_apply_b_dec_to_input")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saes")),
    )
    op.create_index(op.f("ix_saes_files_sha256"), "saes", ["files_sha256"])
    op.create_table(
        "sae_labels",
        sa.Column("sae_id", sa.String(100), nullable=False),
        sa.Column("feature_idx", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=True),
        sa.Column("confidence", sa.Float(), nullable=True),
        sa.Column("density", sa.Float(), nullable=True),
        sa.Column("max_activation", sa.Float(), nullable=True),
        sa.Column("top_tokens", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["sae_id"], ["saes.id"], name=op.f("fk_sae_labels_sae_id_saes"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sae_id", "feature_idx", name=op.f("pk_sae_labels")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "attach_sets",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("items", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_attach_sets")),
    )


def _profiles() -> None:
    op.create_table(
        "profiles",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("model_id", sa.Text(), nullable=True),
        sa.Column("sae_id", sa.Text(), nullable=True),
        sa.Column("layer", sa.Integer(), nullable=True),
        sa.Column("steering", sa.Text(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("source_kind", sa.String(16), nullable=False),
        sa.Column("intensity", sa.Float(), nullable=False),
        sa.Column("sensing_enabled", sa.Boolean(), nullable=False),
        sa.Column("cluster_meta", sa.Text(), nullable=True),
        sa.Column("bound", sa.Boolean(), nullable=False),
        sa.Column("warnings", sa.Text(), nullable=False),
        sa.Column("hub_ref", sa.Text(), nullable=False),
        sa.Column("extras", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("updated_at", sa.DateTime(), nullable=False),
        sa.CheckConstraint("is_active IN (0, 1)", name=op.f("ck_profiles_is_active")),
        sa.CheckConstraint("source_kind IN ('manual', 'cluster')", name=op.f("ck_profiles_source_kind")),
        sa.CheckConstraint("sensing_enabled IN (0, 1)", name=op.f("ck_profiles_sensing_enabled")),
        sa.CheckConstraint("bound IN (0, 1)", name=op.f("ck_profiles_bound")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profiles")),
        sa.UniqueConstraint("name", name=op.f("uq_profiles_name")),
    )
    op.create_index(
        "uq_profiles_the_active_one", "profiles", ["is_active"], unique=True, sqlite_where=sa.text("is_active = 1")
    )


def _circuits() -> None:
    op.create_table(
        "circuits",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("definition", sa.Text(), nullable=False),
        sa.Column("rung", sa.Integer(), nullable=False),
        sa.Column("edge_count", sa.Integer(), nullable=False),
        sa.Column("layers", sa.Text(), nullable=False),
        sa.Column("per_sae_warnings", sa.Text(), nullable=False),
        sa.Column("serveable", sa.Boolean(), nullable=False),
        sa.Column("is_active", sa.Boolean(), nullable=False),
        sa.Column("serving_mode", sa.String(16), nullable=True),
        sa.Column("intensity", sa.Float(), nullable=True),
        sa.Column("slice_profile_id", sa.String(32), nullable=True),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("updated_at", sa.DateTime(), nullable=False),
        sa.CheckConstraint("rung BETWEEN 0 AND 3", name=op.f("ck_circuits_rung")),
        sa.CheckConstraint("is_active = (serving_mode IS NOT NULL)", name=op.f("ck_circuits_serving")),
        sa.CheckConstraint("serveable IN (0, 1)", name=op.f("ck_circuits_serveable")),
        sa.CheckConstraint("is_active IN (0, 1)", name=op.f("ck_circuits_is_active")),
        sa.CheckConstraint("serving_mode IN ('full', 'slice_fallback')", name=op.f("ck_circuits_serving_mode")),
        sa.ForeignKeyConstraint(
            ["slice_profile_id"],
            ["profiles.id"],
            name=op.f("fk_circuits_slice_profile_id_profiles"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_circuits")),
        sa.UniqueConstraint("name", name=op.f("uq_circuits_name")),
    )
    op.create_table(
        "circuit_claims",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("circuit_id", sa.String(32), nullable=False),
        sa.Column("layer", sa.Integer(), nullable=False),
        sa.Column("composed", sa.Boolean(), nullable=False),
        sa.Column("steering_keys", sa.Text(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(), nullable=False),
        sa.Column("released_at", sa.DateTime(), nullable=True),
        sa.CheckConstraint("composed IN (0, 1)", name=op.f("ck_circuit_claims_composed")),
        sa.ForeignKeyConstraint(
            ["circuit_id"], ["circuits.id"], name=op.f("fk_circuit_claims_circuit_id_circuits"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_circuit_claims")),
    )
    op.create_index(op.f("ix_circuit_claims_circuit_id"), "circuit_claims", ["circuit_id"])
    op.create_index(
        "uq_circuit_claims_one_holder_of_a_layer",
        "circuit_claims",
        ["layer"],
        unique=True,
        sqlite_where=sa.text("released_at IS NULL AND composed = 0"),
    )
    op.create_index(
        "uq_circuit_claims_one_claim_of_a_circuit",
        "circuit_claims",
        ["circuit_id", "layer"],
        unique=True,
        sqlite_where=sa.text("released_at IS NULL"),
    )


def downgrade() -> None:
    for table in ("circuit_claims", "circuits", "profiles", "attach_sets", "sae_labels", "saes"):
        op.drop_table(table)
