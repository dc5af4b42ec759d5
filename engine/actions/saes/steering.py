"""Hand-set values of attached SAEs: what a person typed is checked, not clamped; all of a batch counts, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.actions.saes.context import SaeContext
from engine.actions.saes.pushing import pushes_now, typical_norm, with_first_strengths
from engine.actions.saes.views import SteeringView, Viewer
from engine.steering import transitions
from engine.steering.errors import SteeringInvalid
from engine.steering.live import AttachmentKey, LiveState
from engine.steering.push import Push
from engine.steering.strengths import SteeredSet, check_typed
from engine.steering.targets import require_indices

MOST_VALUES = 1000
"""Values in one batch."""


class HandSteering:
    """Sets and clears values of the first attached SAE, or of the one that is named.

    Everything raises :class:`SaeNotAttached` when it is not there.
    """

    def __init__(self, context: SaeContext, viewer: Viewer) -> None:
        self._context = context
        self._viewer = viewer

    def view(self, sae_id: str | None = None, layer: int | None = None) -> SteeringView:
        """The values of the first attached SAE, or of the one named."""
        return self._viewer.steering(sae_id, layer)

    def set_value(
        self, feature_idx: int, value: float, *, sae_id: str | None = None, layer: int | None = None
    ) -> SteeringView:
        """Set one strength and switch the SAE on.

        Raises :class:`SteeringInvalid` for a value that is no number from −200 to 200, :class:`InvalidFeatureIndex`.
        """
        checked = {_index(feature_idx, "feature_idx"): _strength(value, "value")}
        return self._set(checked, sae_id, layer)

    def set_values(
        self,
        steering: Mapping[int, float] | Mapping[str, float],
        *,
        sae_id: str | None = None,
        layer: int | None = None,
    ) -> SteeringView:
        """Merge up to 1000 strengths, by index or index as text, into what is set, and switch the SAE on.

        An empty batch changes nothing. Raises as :meth:`set_value`; then nothing is changed.
        """
        if not isinstance(steering, Mapping):
            raise SteeringInvalid("'steering' must be an object of feature indices and strengths.", param="steering")
        if len(steering) > MOST_VALUES:
            raise SteeringInvalid(
                f"A batch has at most {MOST_VALUES} strengths; this one has {len(steering)}.",
                param="steering",
                remedy="Send several batches.",
            )
        checked: dict[int, float] = {}
        for name, value in steering.items():
            index = _index(name, f"steering.{str(name)[:40]}")
            if index in checked:
                raise SteeringInvalid(f"The batch names feature {index} twice.", param=f"steering.{index}")
            checked[index] = _strength(value, f"steering.{index}")
        return self._set(checked, sae_id, layer)

    def remove_value(self, feature_idx: int, *, sae_id: str | None = None, layer: int | None = None) -> SteeringView:
        """Take one feature out; the last one leaving switches the SAE off. Raises :class:`InvalidFeatureIndex`."""
        index = _index(feature_idx, "feature_idx")
        with self._context.lock:
            place = self._place(sae_id, layer)
            self._require_index(index, place)
            self._context.desk.apply(transitions.remove_value(place, index))
            return self._viewer.steering(*place)

    def clear(self, *, sae_id: str | None = None, layer: int | None = None) -> SteeringView:
        """Take every value out and switch the SAE off."""
        with self._context.lock:
            place = self._place(sae_id, layer)
            self._context.desk.apply(transitions.clear(place))
            return self._viewer.steering(*place)

    def set_enabled(self, enabled: bool = True, *, sae_id: str | None = None, layer: int | None = None) -> SteeringView:
        """Switch the SAE on or off; its values stay."""
        with self._context.lock:
            place = self._place(sae_id, layer)
            self._context.desk.apply(transitions.set_enabled(place, enabled))
            return self._viewer.steering(*place)

    def typical_norm(self, sae_id: str, layer: int) -> float | None:
        """The layer's median norm, where it is known; see :func:`engine.actions.saes.pushing.typical_norm`."""
        return typical_norm(self._context, sae_id, layer)

    def with_first_strengths(self, sae_id: str, layer: int, values: Mapping[int, float | None]) -> dict[int, float]:
        """Fill in what was given without a strength; see :func:`engine.actions.saes.pushing.with_first_strengths`."""
        return with_first_strengths(self._context, sae_id, layer, values)

    def pushes(self, sets: Sequence[SteeredSet]) -> tuple[Push, ...]:
        """How long the vectors are that ``sets`` add; see :func:`engine.actions.saes.pushing.pushes_now`."""
        return pushes_now(self._context, sets)

    def alone(self, change: Callable[[], object]) -> tuple[LiveState, LiveState]:
        """Run ``change`` while nobody else manages steering; returns the live state before and after it.

        For a caller whose change looks at the state first, or is several changes. It may take the desk's own lock
        inside, never the other way round. Raises what ``change`` raises.
        """
        with self._context.lock:
            before = self._context.desk.state
            change()
            return before, self._context.desk.state

    def _set(self, values: Mapping[int, float], sae_id: str | None, layer: int | None) -> SteeringView:
        with self._context.lock:
            place = self._place(sae_id, layer)
            if values:
                self._context.desk.apply(transitions.set_values(place, values))
            return self._viewer.steering(*place)

    def _place(self, sae_id: str | None, layer: int | None) -> AttachmentKey:
        found = self._context.desk.attachment(sae_id, layer)
        return found.sae_id, found.layer

    def _require_index(self, index: int, place: AttachmentKey) -> None:
        attached = next(each for each in self._context.desk.state.attached if (each.sae_id, each.layer) == place)
        require_indices([index], attached, what="the change", param="feature_idx")


def _index(value: object, param: str) -> int:
    """A feature index, also as text in JSON's keys."""
    # The length keeps out numbers that are too long to be read.
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        number = int(value)
        if str(number) == value:
            return number
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise SteeringInvalid(
        f"A feature index is a whole number from 0, not {str(value)[:40]!r}.", param=param, remedy="Name a feature."
    )


def _strength(value: object, param: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise SteeringInvalid(f"A strength is a number, not {str(value)[:40]!r}.", param=param)
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    return check_typed(number, param=param)
