"""Models: what is known of one before, while and after it is in memory, on what hardware."""

from engine.actions.durable_files import BLOCK
from engine.actions.models.disk_use import DiskUse
from engine.actions.models.importing import LocalModel
from engine.actions.models.views import ModelPlacement, ModelView
from engine.actions.standing import KeptState, PutBack
from engine.models.backends.engines import EngineState, gguf_engine
from engine.models.backends.llamacpp.availability import can_run
from engine.models.capabilities import ModelCapabilities, capabilities_of, template_of, window_of
from engine.models.hardware.gpus import NOT_MEASURED, GpuCard, GpuProcess, read_gpus
from engine.models.hardware.memory import LoadEstimate
from engine.models.hardware.unused_gpus import UnusedGpu, unused_gpu
from engine.models.hub.breaker import BreakerFigures, BreakerState
from engine.models.hub.client import MAIN, MAX_REPO_ID, MAX_REVISION, HubFound, is_plain_path
from engine.models.hub.repository_files import MAX_GGUF_FILES, MAX_LABEL
from engine.models.inspection.checkpoint import refuse_system_folder
from engine.models.inspection.local_caches import FoundModel
from engine.models.inspection.names import MAX_CUSTOM_NAME, check_generative
from engine.models.inspection.sampling_defaults import read_sampling_defaults
from engine.models.registry import LoadedModel, LoadingState, ModelShelf

__all__ = [
    "BLOCK",
    "MAIN",
    "MAX_CUSTOM_NAME",
    "MAX_GGUF_FILES",
    "MAX_LABEL",
    "MAX_REPO_ID",
    "MAX_REVISION",
    "NOT_MEASURED",
    "BreakerFigures",
    "BreakerState",
    "DiskUse",
    "EngineState",
    "FoundModel",
    "GpuCard",
    "GpuProcess",
    "HubFound",
    "KeptState",
    "LoadEstimate",
    "LoadedModel",
    "LoadingState",
    "LocalModel",
    "ModelCapabilities",
    "ModelPlacement",
    "ModelShelf",
    "ModelView",
    "PutBack",
    "UnusedGpu",
    "can_run",
    "capabilities_of",
    "check_generative",
    "gguf_engine",
    "is_plain_path",
    "read_gpus",
    "read_sampling_defaults",
    "refuse_system_folder",
    "template_of",
    "unused_gpu",
    "window_of",
]
