"""Live activations: settings, records, figures."""

from engine.monitor.activation_spec import FIELD, ActivationSpec, require_one_answer
from engine.monitor.live import MAX_HISTORY, MAX_TOP_FEATURES, MAX_TOP_K
from engine.monitor.records import (
    ActivationRecord,
    FeatureStatistics,
    Metric,
    MonitoringCost,
    MonitoringState,
    MonitoringStatistics,
)
from engine.monitor.top_tokens import Peak

__all__ = [
    "FIELD",
    "MAX_HISTORY",
    "MAX_TOP_FEATURES",
    "MAX_TOP_K",
    "ActivationRecord",
    "ActivationSpec",
    "FeatureStatistics",
    "Metric",
    "MonitoringCost",
    "MonitoringState",
    "MonitoringStatistics",
    "Peak",
    "require_one_answer",
]
