"""How often gaps may be filled in: an editor asks at every pause of a person's typing."""

from __future__ import annotations

import math
import time

from server.config import ServerSettings
from server.errors import CompletionRateLimited


class FillRate:
    """A bucket of ``FIM_BURST`` requests that fills up again at ``FIM_RATE_PER_S``. Used on the server's loop alone."""

    def __init__(self, settings: ServerSettings) -> None:
        self._rate = settings.FIM_RATE_PER_S
        self._most = float(settings.FIM_BURST)
        self._left = self._most
        self._at = time.monotonic()

    def take(self) -> None:
        """Count a request. Raises :class:`CompletionRateLimited` where there are too many; that one is not counted."""
        if not self._rate:
            return
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            raise CompletionRateLimited(
                f"Gaps are filled in {self._rate:g} times a second here, {self._most:g} at once.",
                remedy="Ask again a little later, or raise FIM_RATE_PER_S in the settings.",
                retry_after=max(1, math.ceil((1 - self._left) / self._rate)),
            )
        self._left -= 1
