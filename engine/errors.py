"""Typed errors of the engine: each has a code, a message, details and a remedy.

Codes are protocol (lower-case on ``/v1``, upper-case on ``/api``). This module knows nothing about HTTP: the server
maps a code to a status. A message says what was asked and what is possible; ``remedy`` says what to do about it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from engine.counting import so_many

MAX_MESSAGE = 8000
"""Characters of a message; the longest lists of ours have fewer."""
MAX_PARAM = 300

_SHOWN_CHARACTERS = 40
_SHOWN_DIGITS = 20
_SECRET = re.compile(
    r"^(messages|extra_messages|prompts?|stop|input|text|system)\b"
    r"|(^|[._-])(api_?key|key|(hf_?|access_?)?token|secret|password|authorization)$",
    re.IGNORECASE,
)


def described(value: object, name: str = "") -> str:
    """What was received in place of something else, in a few words of JSON: its type, and itself where it is short.

    Args:
        name: The field's path; what somebody says, and a key, token or password, is never repeated.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            # More digits than this are not even turned into text: Python refuses that beyond 4,300.
            return f"the number {value}" if abs(value) < 10**_SHOWN_DIGITS else "a number of very many digits"
        case float():
            return f"the number {value!r}"
        case str():
            if not value:
                return "an empty string"
            if len(value) > _SHOWN_CHARACTERS or _SECRET.search(name):
                return f"a string of {so_many(len(value), 'character')}"
            return f"the string {json.dumps(value, ensure_ascii=False)}"
        case list() | tuple():
            return f"a list of {so_many(len(value), 'item')}"
        case Mapping():
            return f"an object with {so_many(len(value), 'key')}"
    return f"a {type(value).__name__}"


def unicode_of(text: str) -> str:
    """``text`` as Unicode: halves of surrogate pairs, which UTF-8 cannot hold, are written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def shortened(text: str, most: int = 100) -> str:
    """``text`` in quotes, cut to what fits a message: what comes from outside may be megabytes long."""
    return repr(text) if len(text) <= most else f"{text[:most]!r}…"


def _bounded(text: str, most: int, end: int) -> str:
    """``text`` where it has at most ``most`` characters; else its beginning and its last ``end`` characters."""
    return text if len(text) <= most else f"{text[: most - end - 3]} … {text[len(text) - end :]}"


class MillmError(Exception):
    """Base of every error this program raises on purpose.

    Args:
        message: What was asked and why it cannot be done, in one or two sentences for a person.
        param: The request field or header at fault, dotted (``messages.0.role``), or None.
        details: Machine-readable figures and names; JSON-serialisable.
        remedy: What the person can do now; shown in the window and appended on the command line.
        retry_after: Seconds after which the same request may succeed, where that is known.
    """

    code: ClassVar[str] = "server_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        details: Mapping[str, Any] | None = None,
        remedy: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        # Words of a file or a library may hold half of a surrogate pair, which no database and no socket takes.
        # They may also be megabytes long: whatever a message repeats, it stays one that can be read.
        message = _bounded(unicode_of(message), MAX_MESSAGE, 500)
        remedy = None if remedy is None else _bounded(unicode_of(remedy), MAX_MESSAGE, 500)
        super().__init__(message)
        self.message = message
        self.param = None if param is None else _bounded(unicode_of(param), MAX_PARAM, 50)
        self.details: dict[str, Any] = dict(details or {})
        self.remedy = remedy
        self.retry_after = retry_after

    def one_line(self) -> str:
        """The error as one line for a terminal or a status bar: message, then remedy."""
        text = self.message if not self.remedy else f"{self.message} {self.remedy}"
        return " ".join(text.split())


# --- requests ---------------------------------------------------------------------------------------------------------


class InvalidParameter(MillmError):
    """A field or header of a request has a value outside its documented type or bounds."""

    code = "invalid_parameter"


class FieldNotHonoured(MillmError):
    """A field would change the output, and the engine cannot do what it asks."""

    code = "field_not_honoured"


class UnusedFieldsRefused(MillmError):
    """Strict mode: the request carries fields nobody uses."""

    code = "unused_fields_refused"


class ContextLengthExceeded(MillmError):
    """Prompt plus output cap do not fit the model's context window."""

    code = "context_length_exceeded"


class NoChatTemplate(MillmError):
    """The request needs a chat template and the model has none."""

    code = "no_chat_template"


class QueueFull(MillmError):
    """The admission queue has no place left."""

    code = "queue_full"


class GenerationFailed(MillmError):
    """A forward pass or the sampler failed in a way that was not foreseen."""

    code = "generation_error"


class NonFiniteLogits(MillmError):
    """The model produced NaN or infinite logits where a probability was needed."""

    code = "non_finite_logits"


class RequestCancelled(MillmError):
    """The request was cancelled by its owner before it finished."""

    code = "request_cancelled"


# --- models -----------------------------------------------------------------------------------------------------------


class ModelNotFound(MillmError):
    """No model of that name or id is in the library."""

    code = "model_not_found"


class AmbiguousModelName(MillmError):
    """A bare name fits several quantisations."""

    code = "ambiguous_model_name"


class ModelNotGenerative(MillmError):
    """The model is an encoder or classifier: it cannot write text."""

    code = "model_not_generative"


class ModelNotLoaded(MillmError):
    """The operation needs a loaded model and none is."""

    code = "model_not_loaded"


class NothingToUnload(ModelNotLoaded):
    """The model that is to be unloaded is not in memory: waiting changes nothing about that."""


class ModelNotResident(MillmError):
    """Another model is in memory, and what was asked loads none."""

    code = "model_not_resident"


class ModelLoading(MillmError):
    """The model asked for is being loaded."""

    code = "model_loading"


class ModelBusy(MillmError):
    """A load, unload or download of a model is under way and excludes this operation."""

    code = "model_busy"


class ModelLocked(MillmError):
    """Another model is locked for steering, so this one may not be loaded by a request."""

    code = "model_locked"


class ModelAlreadyExists(MillmError):
    """The library has a model under that name or from that place."""

    code = "model_already_exists"


class ModelLoadFailed(MillmError):
    """Loading the weights failed; the message carries the cause."""

    code = "model_load_failed"


class LoadCancelled(MillmError):
    """A person cancelled the load."""

    code = "load_cancelled"


class InsufficientMemory(MillmError):
    """The device has not enough memory for a load or a generation."""

    code = "insufficient_memory"


class EngineUnsupported(MillmError):
    """The engine that would be needed is not installed or cannot do this for this model."""

    code = "engine_unsupported"


class CheckpointInvalid(MillmError):
    """A model folder lacks something or holds something unreadable; ``details['problems']`` lists each."""

    code = "checkpoint_invalid"


class InvalidLocalPath(CheckpointInvalid):
    """There is nothing at the path that was to be imported."""

    code = "invalid_local_path"


class ModelAlreadyLoaded(MillmError):
    """The model that was to be loaded is in memory."""

    code = "model_already_loaded"


class UnsupportedQuantization(MillmError):
    """The model cannot be held at that level of precision on this machine."""

    code = "unsupported_quantization"


class GpuNotFound(MillmError):
    """The machine has no such GPU; ``details['gpus']`` lists those it has."""

    code = "gpu_not_found"


class SplitNotHonoured(MillmError):
    """A model was to be spread over several GPUs, which this engine does not do."""

    code = "split_not_honoured"


class NothingToCancel(MillmError):
    """No download and no load of that model or SAE is under way."""

    code = "nothing_to_cancel"


# --- SAEs -------------------------------------------------------------------------------------------------------------


class SaeNotAttached(MillmError):
    """The operation needs an SAE that is not attached; ``details['attached']`` lists those that are."""

    code = "sae_not_attached"


# --- files, library, process ------------------------------------------------------------------------------------------


class DataDirectoryUnusable(MillmError):
    """The data directory cannot be created, read or written."""

    code = "data_directory_unusable"


class InsufficientDisk(MillmError):
    """The data directory's disk has no room for a copy; ``details`` hold ``needed_mb`` and ``free_mb``."""

    code = "insufficient_disk"


class DataDirectoryInUse(MillmError):
    """Another process of this program holds the data directory."""

    code = "data_directory_in_use"


class LibraryUnusable(MillmError):
    """The database cannot be opened or was made by a newer version."""

    code = "library_unusable"


class LibraryFull(LibraryUnusable):
    """The database's disk has no room for a change; what was asked for did not happen."""

    code = "insufficient_disk"


class LibraryLost(LibraryUnusable):
    """While the program runs, its database was deleted, replaced or damaged: nothing is confirmed any more."""

    code = "library_lost"


class PortInUse(MillmError):
    """Another program listens on the port asked for."""

    code = "port_in_use"


class UnsafeBinding(MillmError):
    """Asked to listen beyond this machine without an API key."""

    code = "unsafe_binding"


class DownloadFailed(MillmError):
    """Something could not be fetched; the message names what and from where."""

    code = "download_failed"


class ChecksumMismatch(MillmError):
    """A downloaded file is not the one that was expected."""

    code = "checksum_mismatch"


class DownloadCancelled(MillmError):
    """A person cancelled the download."""

    code = "download_cancelled"


class RepoNotFound(MillmError):
    """The hub has no such repository, revision or file, or hides it from whoever asks."""

    code = "repo_not_found"


class GatedRepo(MillmError):
    """The repository is there, and its authors give it only to people who asked for it."""

    code = "gated_model_no_token"


class InvalidHfToken(MillmError):
    """The hub refuses the token."""

    code = "invalid_hf_token"


class HubUnavailable(MillmError):
    """The hub cannot be reached, or failed several times in a row and is left alone for a while."""

    code = "hub_unavailable"


class HubOffline(MillmError):
    """The program was told not to use the hub."""

    code = "hub_offline"


class SettingsInvalid(MillmError):
    """A setting has a value that cannot be used; the message names the setting and where it came from."""

    code = "settings_invalid"


class NotFound(MillmError):
    """A row that is not a model was asked for and is not there."""

    code = "not_found"
