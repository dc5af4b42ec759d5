"""What the scheduler and an observer tell each other: the rows of one pass, and the tensors of one layer of it.

Structural on purpose: the hooks belong to ``engine/models``, the passes to ``engine/generation``, and neither is known
here. Knows no torch at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RowInfo:
    """One row of a pass.

    Attributes:
        request_id: Whose row it is.
        first_position: Position of its first token, 0-based over prompt then answer.
        token_ids: The tokens the pass feeds to it: one in a decode pass, a chunk of the prompt in a prefill pass.
        choice: Which choice of the request.
        prompt_tokens: Length of its prompt. With it an observer knows a chunk that ends the prompt from one that does
            not; 0 (not known) treats every chunk as the last.
    """

    request_id: str
    first_position: int
    token_ids: tuple[int, ...]
    choice: int = 0
    prompt_tokens: int = 0

    @property
    def end_position(self) -> int:
        """One past the position of its last token."""
        return self.first_position + len(self.token_ids)

    @property
    def reaches_prompt_end(self) -> bool:
        """Whether nothing of the prompt is left to be read after this pass."""
        return self.end_position >= self.prompt_tokens


class StreamReader(Protocol):
    """Reads one layer's output in one pass."""

    def observe(self, layer: int, before: Tensor, after: Tensor) -> None:
        """``before`` and ``after`` this layer's own steering, both [rows, width, d_model]; on the engine thread."""
        ...


Observers = Mapping[int, tuple[StreamReader, ...]]
"""Layer → who reads its output, for one pass."""

NO_OBSERVERS: Observers = MappingProxyType({})
"""Nobody reads: the pass costs nothing more than without a monitor."""
