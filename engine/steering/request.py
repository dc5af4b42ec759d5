"""What a request says about steering, before any SAE is looked at."""

from __future__ import annotations

from dataclasses import dataclass

from engine.steering.dial import Dial
from engine.steering.inline import InlineSteering, check_combination


@dataclass(frozen=True)
class SteeringRequest:
    """A request's own steering fields; all None follows the live steering.

    Attributes:
        profile: Name of a profile or cluster to run instead of everything live.
        dial: λ, absolute.
        inline: Exactly these features; excludes the other two.
    """

    profile: str | None = None
    dial: Dial | None = None
    inline: InlineSteering | None = None

    def __post_init__(self) -> None:
        check_combination(steering=self.inline, profile=self.profile, steering_intensity=self.dial)

    @property
    def is_empty(self) -> bool:
        """Whether the request has no steering of its own."""
        return self.profile is None and self.dial is None and self.inline is None


FOLLOW_LIVE = SteeringRequest()
"""The steering of a request that says nothing about it."""
