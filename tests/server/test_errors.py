"""Every error code: its status, its OpenAI type, its Retry-After, and the two envelopes."""

from __future__ import annotations

import json
import logging
import math

import pytest

from engine.documents.errors import DocumentInvalid, DocumentTooLarge, IsClusterDocument, UnknownKind
from engine.errors import (
    ContextLengthExceeded,
    InsufficientMemory,
    InvalidParameter,
    MillmError,
    ModelAlreadyExists,
    NothingToUnload,
    QueueFull,
)
from engine.library.errors import ClaimConflict
from engine.steering.errors import (
    AmbiguousActiveCircuit,
    CircuitLayerContention,
    NoActiveCircuit,
    NoActiveCluster,
    SteeringInvalid,
    UnvalidatedCircuit,
)
from server.dialects import answer_for, owner_of
from server.errors import (
    ERROR_TABLE,
    PayloadTooLarge,
    ServerStopping,
)
from server.openai.dialect import OpenAI, stream_error_event
from tests.program_errors import program_error_types

EXPECTED: dict[str, tuple[int, str, str | None]] = {
    "invalid_parameter": (400, "invalid_request_error", None),
    "field_not_honoured": (400, "invalid_request_error", None),
    "unused_fields_refused": (400, "invalid_request_error", None),
    "context_length_exceeded": (400, "invalid_request_error", None),
    "no_chat_template": (400, "invalid_request_error", None),
    "not_found": (404, "invalid_request_error", None),
    "method_not_allowed": (405, "invalid_request_error", None),
    "request_timeout": (408, "invalid_request_error", None),
    "completion_rate_limited": (429, "rate_limit_error", "1"),
    "route_retired": (501, "server_error", None),
    "fim_unsupported": (400, "invalid_request_error", None),
    "unsupported_runtime": (400, "invalid_request_error", None),
    "model_not_resident": (409, "invalid_request_error", None),
    "payload_too_large": (413, "invalid_request_error", None),
    "invalid_api_key": (401, "invalid_request_error", None),
    "origin_not_allowed": (403, "invalid_request_error", None),
    "host_not_allowed": (403, "invalid_request_error", None),
    "queue_full": (503, "server_error", "5"),
    "request_cancelled": (503, "server_error", "5"),
    "server_stopping": (503, "server_error", "10"),
    "too_many_event_sockets": (503, "server_error", "5"),
    "server_error": (500, "server_error", None),
    "generation_error": (500, "server_error", None),
    "non_finite_logits": (500, "server_error", None),
    "invalid_scoring_request": (400, "invalid_request_error", None),
    "response_format_unsupported": (400, "invalid_request_error", None),
    "tool_schema_unsupported": (400, "invalid_request_error", None),
    "unsupported_tool": (400, "invalid_request_error", None),
    "constrained_output_invalid": (500, "server_error", None),
    "embedding_vector_invalid": (500, "server_error", None),
    "model_not_found": (404, "invalid_request_error", None),
    "ambiguous_model_name": (400, "invalid_request_error", None),
    "model_not_generative": (400, "invalid_request_error", None),
    "engine_unsupported": (400, "invalid_request_error", None),
    "checkpoint_invalid": (400, "invalid_request_error", None),
    "invalid_local_path": (400, "invalid_request_error", None),
    "model_already_loaded": (400, "invalid_request_error", None),
    "unsupported_quantization": (400, "invalid_request_error", None),
    "gpu_not_found": (404, "invalid_request_error", None),
    "split_not_honoured": (409, "invalid_request_error", None),
    "nothing_to_cancel": (409, "invalid_request_error", None),
    "model_locked": (409, "invalid_request_error", None),
    "model_already_exists": (409, "invalid_request_error", None),
    "load_cancelled": (409, "invalid_request_error", None),
    "model_loading": (503, "server_error", "15"),
    "model_busy": (503, "server_error", "15"),
    "model_not_loaded": (503, "server_error", "30"),
    "insufficient_memory": (503, "server_error", "30"),
    "model_load_failed": (500, "server_error", None),
    "validation_error": (400, "invalid_request_error", None),
    "sae_not_found": (404, "invalid_request_error", None),
    "sae_already_exists": (409, "invalid_request_error", None),
    "sae_already_attached": (409, "invalid_request_error", None),
    "sae_not_attached": (400, "invalid_request_error", None),
    "sae_format_unknown": (400, "invalid_request_error", None),
    "sae_not_steerable": (400, "invalid_request_error", None),
    "sae_incompatible": (400, "invalid_request_error", None),
    "sae_load_failed": (500, "server_error", None),
    "sae_activations_refused": (400, "invalid_request_error", None),
    "invalid_feature_index": (400, "invalid_request_error", None),
    "unknown_kind": (400, "invalid_request_error", None),
    "is_cluster_document": (400, "invalid_request_error", None),
    "profile_not_found": (404, "invalid_request_error", None),
    "profile_already_exists": (409, "invalid_request_error", None),
    "cluster_not_found": (404, "invalid_request_error", None),
    "circuit_not_found": (404, "invalid_request_error", None),
    "circuit_already_exists": (409, "invalid_request_error", None),
    "circuit_layer_contention": (409, "invalid_request_error", None),
    "sae_set_incomplete": (422, "invalid_request_error", None),
    "unvalidated_circuit": (409, "invalid_request_error", None),
    "no_active_cluster": (409, "invalid_request_error", None),
    "no_active_circuit": (409, "invalid_request_error", None),
    "ambiguous_active_circuit": (409, "invalid_request_error", None),
    "sweep_running": (409, "invalid_request_error", None),
    "data_directory_unusable": (500, "server_error", None),
    "data_directory_in_use": (500, "server_error", None),
    "library_unusable": (500, "server_error", None),
    "library_lost": (500, "server_error", None),
    "settings_invalid": (500, "server_error", None),
    "unsafe_binding": (500, "server_error", None),
    "port_in_use": (409, "invalid_request_error", None),
    "insufficient_disk": (507, "server_error", None),
    "download_failed": (502, "server_error", None),
    "checksum_mismatch": (502, "server_error", None),
    "download_cancelled": (499, "invalid_request_error", None),
    "repo_not_found": (404, "invalid_request_error", None),
    "gated_model_no_token": (401, "invalid_request_error", None),
    "invalid_hf_token": (401, "invalid_request_error", None),
    "hub_offline": (409, "invalid_request_error", None),
    "hub_unavailable": (503, "server_error", "60"),
}


OF_TYPE = {NothingToUnload: (400, "invalid_request_error", None)}


def _plain(error_type: type[MillmError]) -> MillmError:
    return ServerStopping() if error_type is ServerStopping else error_type("What was asked.")


TYPES = program_error_types()


def test_the_walk_finds_types_that_nobody_imported() -> None:
    modules = {
        "engine.errors",
        "engine.actions.saes.errors",
        "engine.documents.errors",
        "engine.library.errors",
        "engine.monitor.errors",
        "engine.saes.errors",
        "engine.steering.errors",
        "server.errors",
    }
    assert modules <= {error_type.__module__ for error_type in TYPES}


def test_the_table_and_the_types_name_the_same_codes() -> None:
    assert {error_type.code for error_type in TYPES} == set(EXPECTED)
    assert set(ERROR_TABLE) == set(EXPECTED)


@pytest.mark.parametrize("error_type", TYPES, ids=lambda t: t.code)
def test_each_code_on_v1(error_type: type[MillmError]) -> None:
    status, kind, retry_after = OF_TYPE.get(error_type, EXPECTED[error_type.code])
    answer = answer_for(_plain(error_type), "/v1/chat/completions")
    assert answer.status == status
    assert answer.body["error"].keys() == {"message", "type", "param", "code"}
    assert answer.body["error"]["type"] == kind
    assert answer.body["error"]["code"] == error_type.code
    assert answer.body["error"]["param"] is None
    assert answer.headers.get("Retry-After") == retry_after


@pytest.mark.parametrize("error_type", TYPES, ids=lambda t: t.code)
def test_each_code_on_api(error_type: type[MillmError]) -> None:
    answer = answer_for(_plain(error_type), "/api/models")
    assert answer.body.keys() == {"success", "data", "error"}
    assert answer.body["success"] is False
    assert answer.body["data"] is None
    assert answer.body["error"].keys() == {"code", "message", "details"}
    expected = "VALIDATION_ERROR" if error_type.code == "invalid_parameter" else error_type.code.upper()
    assert answer.body["error"]["code"] == expected
    assert ("Retry-After" in answer.headers) == (answer.status in (429, 503))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("invalid_parameter", 422),
        ("model_busy", 409),
        ("model_loading", 409),
        ("model_not_loaded", 400),
        ("insufficient_memory", 507),
        ("queue_full", 503),
    ],
)
def test_statuses_that_differ_on_api(code: str, status: int) -> None:
    error_type = next(t for t in TYPES if t.code == code)
    assert answer_for(_plain(error_type), "/api/models/1/load").status == status


@pytest.mark.parametrize(
    "error_type",
    [
        DocumentInvalid,
        DocumentTooLarge,
        UnknownKind,
        IsClusterDocument,
        UnvalidatedCircuit,
        CircuitLayerContention,
        ClaimConflict,
        NoActiveCluster,
        NoActiveCircuit,
        AmbiguousActiveCircuit,
    ],
)
def test_well_formed_refusals_are_200_on_api(error_type: type[MillmError]) -> None:
    answer = answer_for(_plain(error_type), "/api/circuits/x/activate")
    assert (answer.status, answer.body["success"]) == (200, False)
    assert answer_for(_plain(error_type), "/v1/chat/completions").status >= 400


def test_the_same_codes_for_a_request_s_own_fields_are_not() -> None:
    assert answer_for(SteeringInvalid("No."), "/api/saes/steering").status == 422
    assert answer_for(PayloadTooLarge("No."), "/api/saes/steering").status == 413


def test_a_validation_error_on_api_lists_its_errors() -> None:
    own = SteeringInvalid("It is too strong.", param="value")
    assert answer_for(own, "/api/saes/steering").body["error"]["details"]["errors"] == [
        {"param": "value", "message": "It is too strong."}
    ]
    listed = DocumentInvalid("It is bad.", details={"errors": [{"pointer": "/name", "message": "is required"}]})
    assert answer_for(listed, "/api/circuits/import").body["error"]["details"]["errors"] == [
        {"pointer": "/name", "message": "is required"}
    ]


def test_the_message_ends_with_what_to_do_and_param_is_kept() -> None:
    error = InvalidParameter("It is too big.", param="messages.0.role", remedy="Send less.")
    assert answer_for(error, "/v1/completions").body == {
        "error": {
            "message": "It is too big. Send less.",
            "type": "invalid_request_error",
            "param": "messages.0.role",
            "code": "invalid_parameter",
        }
    }
    assert answer_for(error, "/api/x").body["error"]["details"] == {
        "errors": [{"param": "messages.0.role", "message": "It is too big."}],
        "param": "messages.0.role",
        "remedy": "Send less.",
    }


def test_details_that_json_cannot_hold_become_text() -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    error = ModelAlreadyExists("It is there.", details={"existing_model_id": 3, "odd": Odd()})
    assert answer_for(error, "/api/models").body["error"]["details"] == {"existing_model_id": 3, "odd": "odd"}


def test_numbers_that_json_has_none_for_become_text() -> None:
    figures = {"nan": math.nan, "inside": [math.inf, {"low": -math.inf}], "plain": 1.5}
    details = answer_for(ModelAlreadyExists("It is there.", details=figures), "/api/models").body["error"]["details"]
    assert details == {"nan": "NaN", "inside": ["Infinity", {"low": "-Infinity"}], "plain": 1.5}
    json.dumps(details, allow_nan=False)


def test_a_known_retry_after_wins_and_is_at_least_one() -> None:
    assert answer_for(QueueFull("Full.", retry_after=17), "/v1/models").headers["Retry-After"] == "17"
    assert answer_for(QueueFull("Full.", retry_after=0), "/v1/models").headers["Retry-After"] == "1"


def test_running_out_of_memory_while_generating_is_the_request_s_fault() -> None:
    error = InsufficientMemory("cuda:0 is full.")
    assert answer_for(error, "/v1/x").body["error"]["type"] == "server_error"
    assert answer_for(error, "/v1/x", while_generating=True).body["error"]["type"] == "invalid_request_error"  # A203
    assert answer_for(error, "/v1/x", while_generating=True).headers["Retry-After"] == "30"


def test_a_code_nobody_entered_is_a_server_error(caplog: pytest.LogCaptureFixture) -> None:
    class Forgotten(MillmError):
        code = "forgotten_for_this_test"

    with caplog.at_level(logging.ERROR, "server.errors"):
        answer = answer_for(Forgotten("Hm."), "/v1/x")
    assert answer.status == 500
    assert "forgotten_for_this_test" in caplog.text


def test_stream_events_carry_retry_after_where_http_would_be_503() -> None:
    assert stream_error_event(QueueFull("Full.", retry_after=4)) == {
        "error": {"message": "Full.", "type": "server_error", "code": "queue_full", "retry_after": 4}
    }
    assert stream_error_event(ContextLengthExceeded("Too long.")) == {
        "error": {"message": "Too long.", "type": "invalid_request_error", "code": "context_length_exceeded"}
    }


@pytest.mark.parametrize(
    ("path", "openai"),
    [("/v1", True), ("/v1/x", True), ("/v1x", False), ("/api/health", False), ("/", False), ("/v2/x", False)],
)
def test_which_paths_speak_openai(path: str, openai: bool) -> None:
    assert isinstance(owner_of(path), OpenAI) is openai
