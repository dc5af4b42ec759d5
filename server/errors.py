"""How an engine error becomes an HTTP answer: one table from code to status. The envelope is each dialect's own.

The server's own refusals are error types here, so that the table and its test see them with the engine's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from engine.errors import MillmError, NothingToUnload

log = logging.getLogger(__name__)

INVALID_REQUEST = "invalid_request_error"
RATE_LIMIT = "rate_limit_error"
SERVER_ERROR = "server_error"
FALLBACK_RETRY_AFTER_S = 10
GENERIC_MESSAGE = "The server failed while answering this request. The log file has the full report."


class MethodNotAllowed(MillmError):
    """The route exists and does not take this method."""

    code = "method_not_allowed"


class PayloadTooLarge(MillmError):
    """The request's body is longer than ``MAX_BODY_BYTES``."""

    code = "payload_too_large"


class RequestTimedOut(MillmError):
    """The client did not send the body it announced in time."""

    code = "request_timeout"


class InvalidApiKey(MillmError):
    """An API key is set and the request carries none, or another."""

    code = "invalid_api_key"


class OriginNotAllowed(MillmError):
    """A browser page that is not on the allow-list made the request."""

    code = "origin_not_allowed"


class HostNotAllowed(MillmError):
    """The request names a host that is not ours, as a rebound DNS name would."""

    code = "host_not_allowed"


class TooManyEventSockets(MillmError):
    """``MAX_EVENT_SOCKETS`` clients listen to the events already."""

    code = "too_many_event_sockets"


class UnsupportedRuntime(MillmError):
    """A model is to be run by another engine than the one its files are for."""

    code = "unsupported_runtime"


class CompletionRateLimited(MillmError):
    """Gaps are to be filled in more often than ``FIM_RATE_PER_S`` allows."""

    code = "completion_rate_limited"


class RouteRetired(MillmError):
    """The route is one of another program's that has nothing to do here."""

    code = "route_retired"


class ServerStopping(MillmError):
    """The server is being stopped while the request is under way."""

    code = "server_stopping"

    def __init__(self) -> None:
        super().__init__("The server is being stopped.", remedy="Send the request again once it is back.")


@dataclass(frozen=True)
class ErrorSpec:
    """How one code is answered.

    Attributes:
        status: HTTP status on ``/v1``.
        type: OpenAI's error type.
        retry_after: Default seconds of the ``Retry-After`` of a 503 or 429.
        api_status: Status on ``/api``, where it differs.
        api_code: Code on ``/api``, where it differs; in lower case.
        generation_type: OpenAI's error type when it happens while an answer is written, where it differs.
    """

    status: int
    type: str = INVALID_REQUEST
    retry_after: int | None = None
    api_status: int | None = None
    api_code: str | None = None
    generation_type: str | None = None


def _server(status: int, **more: Any) -> ErrorSpec:
    return ErrorSpec(status, SERVER_ERROR, **more)


ERROR_TABLE: Mapping[str, ErrorSpec] = MappingProxyType(
    {
        # requests
        "invalid_parameter": ErrorSpec(400, api_status=422, api_code="validation_error"),
        "validation_error": ErrorSpec(400, api_status=422),
        "field_not_honoured": ErrorSpec(400),
        "unused_fields_refused": ErrorSpec(400),
        "context_length_exceeded": ErrorSpec(400),
        "no_chat_template": ErrorSpec(400),
        "not_found": ErrorSpec(404),
        "method_not_allowed": ErrorSpec(405),
        "request_timeout": ErrorSpec(408),
        "completion_rate_limited": ErrorSpec(429, RATE_LIMIT, retry_after=1),
        "route_retired": _server(501),
        "payload_too_large": ErrorSpec(413),
        # guards
        "invalid_api_key": ErrorSpec(401),
        "origin_not_allowed": ErrorSpec(403),
        "host_not_allowed": ErrorSpec(403),
        # queue and generation
        "queue_full": _server(503, retry_after=5),
        "too_many_event_sockets": _server(503, retry_after=5),
        "request_cancelled": _server(503, retry_after=5),
        "server_stopping": _server(503, retry_after=10),
        "server_error": _server(500),
        "generation_error": _server(500),
        "non_finite_logits": _server(500),
        "invalid_scoring_request": ErrorSpec(400),
        "response_format_unsupported": ErrorSpec(400),
        "tool_schema_unsupported": ErrorSpec(400),
        "unsupported_tool": ErrorSpec(400),
        "fim_unsupported": ErrorSpec(400),
        "constrained_output_invalid": _server(500),
        "embedding_vector_invalid": _server(500),
        # models
        "model_not_found": ErrorSpec(404),
        "ambiguous_model_name": ErrorSpec(400),
        "model_not_generative": ErrorSpec(400),
        "engine_unsupported": ErrorSpec(400),
        "checkpoint_invalid": ErrorSpec(400),
        "invalid_local_path": ErrorSpec(400),
        "model_already_loaded": ErrorSpec(400),
        "unsupported_quantization": ErrorSpec(400),
        "unsupported_runtime": ErrorSpec(400),
        "gpu_not_found": ErrorSpec(404),
        "split_not_honoured": ErrorSpec(409),
        "nothing_to_cancel": ErrorSpec(409),
        "model_locked": ErrorSpec(409),
        "model_not_resident": ErrorSpec(409),
        "model_already_exists": ErrorSpec(409),
        "load_cancelled": ErrorSpec(409),
        "model_loading": _server(503, retry_after=15, api_status=409),
        "model_busy": _server(503, retry_after=15, api_status=409),
        "model_not_loaded": _server(503, retry_after=30, api_status=400),
        "insufficient_memory": _server(503, retry_after=30, api_status=507, generation_type=INVALID_REQUEST),
        "model_load_failed": _server(500),
        # SAEs
        "sae_not_found": ErrorSpec(404),
        "sae_already_exists": ErrorSpec(409),
        "sae_already_attached": ErrorSpec(409),
        "sae_not_attached": ErrorSpec(400),
        "sae_format_unknown": ErrorSpec(400),
        "sae_not_steerable": ErrorSpec(400),
        "sae_incompatible": ErrorSpec(400),
        "sae_load_failed": _server(500),
        "sae_activations_refused": ErrorSpec(400),
        "invalid_feature_index": ErrorSpec(400),
        # documents, profiles, clusters, circuits
        "unknown_kind": ErrorSpec(400),
        "is_cluster_document": ErrorSpec(400),
        "profile_not_found": ErrorSpec(404),
        "profile_already_exists": ErrorSpec(409),
        "cluster_not_found": ErrorSpec(404),
        "circuit_not_found": ErrorSpec(404),
        "circuit_already_exists": ErrorSpec(409),
        "circuit_layer_contention": ErrorSpec(409),
        "sae_set_incomplete": ErrorSpec(422),
        "unvalidated_circuit": ErrorSpec(409),
        "no_active_cluster": ErrorSpec(409),
        "no_active_circuit": ErrorSpec(409),
        "ambiguous_active_circuit": ErrorSpec(409),
        "sweep_running": ErrorSpec(409),
        # files, library, process
        "data_directory_unusable": _server(500),
        "data_directory_in_use": _server(500),
        "library_unusable": _server(500),
        "library_lost": _server(500),
        "settings_invalid": _server(500),
        "unsafe_binding": _server(500),
        "port_in_use": ErrorSpec(409),
        "insufficient_disk": _server(507),
        "download_failed": _server(502),
        "checksum_mismatch": _server(502),
        "download_cancelled": ErrorSpec(499),
        "repo_not_found": ErrorSpec(404),
        "gated_model_no_token": ErrorSpec(401),
        "invalid_hf_token": ErrorSpec(401),
        "hub_offline": ErrorSpec(409),
        "hub_unavailable": _server(503, retry_after=60),
    }
)


ERRORS_BY_TYPE: Mapping[type[MillmError], ErrorSpec] = MappingProxyType({NothingToUnload: ErrorSpec(400)})
"""Types that are answered in another way than others of their code."""


def spec_of(error: MillmError) -> ErrorSpec:
    """The table's row; an error type nobody entered is a bug and is answered as a server error."""
    spec = ERRORS_BY_TYPE.get(type(error)) or ERROR_TABLE.get(error.code)
    if spec is None:
        log.error("the error code %s has no row in the error table", error.code)
        return ERROR_TABLE["server_error"]
    return spec


def message_of(error: MillmError) -> str:
    """What was wrong and what to do, as one text."""
    return error.message if not error.remedy else f"{error.message} {error.remedy}"


def retry_after_of(error: MillmError, status: int) -> int | None:
    """Seconds to wait; every 503 and 429 has a whole number of at least 1, other answers none."""
    if status not in (429, 503):
        return None
    seconds = error.retry_after if error.retry_after is not None else spec_of(error).retry_after
    if seconds is None:
        log.warning(
            "a %d with code %s states no Retry-After; answering %d s", status, error.code, FALLBACK_RETRY_AFTER_S
        )
        seconds = FALLBACK_RETRY_AFTER_S
    return max(1, seconds)


def error_type(error: MillmError, *, while_generating: bool = False) -> str:
    """OpenAI's error type."""
    spec = spec_of(error)
    return spec.generation_type if while_generating and spec.generation_type else spec.type
