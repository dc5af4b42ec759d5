"""Text to token ids and back for whoever asks, without the model: what a prompt would be read as.

The tokenizer of the loaded model is used as it is. That of another checkpoint is read from its folder alone; nothing is
loaded for it, and the queue is not asked.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config import EngineSettings
from engine.errors import InvalidParameter, MillmError, ModelNotLoaded, ModelNotResident
from engine.generation.prompts import encode_text, prepare_chat, unread_variables
from engine.generation.request import ChatInput
from engine.generation.tools.preparing import shown_tools
from engine.generation.tools.values import Tool, Tools
from engine.library.records import EngineKind, ModelRecord, ModelStatus
from engine.models.capabilities import window_of
from engine.models.registry import ModelShelf

if TYPE_CHECKING:
    from engine.models.backends.backend import Tokenizer

KEPT = 2
"""Tokenizers of models that are not loaded, which are kept for the next request."""

AT_ONCE = 100_000
"""Tokens that are decoded in one step: more would hold the interpreter, and with it every stream."""


@dataclass(frozen=True)
class Tokenized:
    """What a text or a conversation is read as.

    Attributes:
        window: Tokens the model reads and writes in all; None where that is not known.
        pieces: Each token as text, where they were asked for.
        prompt: A conversation as its chat template writes it.
        notes: What was changed to make that work, in words.
        unread: Template variables that the template never reads; ``tools`` among them.
    """

    token_ids: tuple[int, ...]
    window: int | None
    pieces: tuple[str, ...] | None = None
    prompt: str | None = None
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


class TokenReader:
    """Makes tokens and reads them. Any thread; takes as long as a text is long."""

    def __init__(self, shelf: ModelShelf, settings: EngineSettings) -> None:
        self._shelf = shelf
        self._settings = settings
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int], Tokenizer] = OrderedDict()

    def model(self, name: str | None) -> ModelRecord:
        """The model that ``name`` means; without one the loaded model.

        Raises :class:`ModelNotLoaded` where none is, :class:`ModelNotFound`, :class:`AmbiguousModelName`.
        """
        if name is not None:
            return self._shelf.resolve(name)
        resident = self._shelf.resident
        if resident is None:
            raise ModelNotLoaded(
                "No model is loaded, and the request names none.", remedy="Name a model, or load one.", retry_after=30
            )
        return resident.record

    def tokenize(
        self,
        record: ModelRecord,
        given: str | ChatInput,
        *,
        add_special_tokens: bool = True,
        tools: Tools | None = None,
        with_pieces: bool = False,
    ) -> Tokenized:
        """The tokens of a text, or of a conversation as its template writes it.

        ``add_special_tokens``: as for a raw prompt; a conversation's are its template's. ``tools``: shown as
        to a model that answers. Raises :class:`ModelNotResident`, and for the text as :func:`prepare_text` and
        :func:`prepare_chat`.
        """
        tokenizer = self._tokenizer(record)
        window = window_of(record, self._shelf.resident, self._settings)
        if isinstance(given, str):
            ids = tuple(encode_text(tokenizer, given, add_special_tokens))
            return Tokenized(ids, window, _pieces(tokenizer, ids, with_pieces))
        unread = unread_variables(tokenizer, given.template_kwargs)
        offered: tuple[Tool, ...] = ()
        told: tuple[str, ...] = ()
        if tools is not None:
            # What is not known of a model that is not loaded cannot leave anything out.
            most = self._settings.DESCRIBE_TOOLS_MAX_TOKENS
            shown = shown_tools(tools, tokenizer, window or 4 * most, most)
            offered, told = (() if shown.tools is None else shown.tools.offered), shown.notes
            if shown.left_out:
                unread = ("tools", *unread)
        prompt, notes, _ = prepare_chat(tokenizer, given, tools=offered)
        pieces = _pieces(tokenizer, prompt.token_ids, with_pieces)
        return Tokenized(prompt.token_ids, window, pieces, prompt.text, (*told, *notes), unread)

    def detokenize(self, record: ModelRecord, token_ids: Sequence[int]) -> str:
        """The text of tokens, markers as they are written. Raises :class:`ModelNotResident`, and
        :class:`InvalidParameter` for an id outside the vocabulary.
        """
        tokenizer = self._tokenizer(record)
        for place, token in enumerate(token_ids):
            # Vocabularies with gaps have ids past their number of entries.
            if token < 0 or (token >= tokenizer.vocab_size and not tokenizer.token_bytes(token)):
                raise InvalidParameter(
                    f"Invalid value for 'tokens.{place}': there is no token {token}; the vocabulary of "
                    f"{record.name!r} has {tokenizer.vocab_size} entries.",
                    param=f"tokens.{place}",
                )
        if len(token_ids) <= AT_ONCE or not tokenizer.exact_bytes:
            return tokenizer.decode(token_ids, skip_special=False)
        begun = tokenizer.decode(token_ids[:AT_ONCE], skip_special=False)
        whole = b"".join(map(tokenizer.token_bytes, token_ids)).decode("utf-8", "replace")
        # Some tokenizers drop the space in front of the first word.
        return whole[_blanks(whole) - _blanks(begun) :]

    def _tokenizer(self, record: ModelRecord) -> Tokenizer:
        resident = self._shelf.resident
        if resident is not None and resident.record.id == record.id:
            return resident.backend.tokenizer
        if record.engine is not EngineKind.TRANSFORMERS or record.status is ModelStatus.DOWNLOADING:
            raise self._not_resident(record)
        folder = Path(record.local_path or "")
        with self._lock:
            key = (str(folder), _changed(folder))
            if key not in self._kept:
                self._kept[key] = self._read(record, folder)
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return self._kept[key]

    def _read(self, record: ModelRecord, folder: Path) -> Tokenizer:
        # Imported here: this module is loaded before the window is painted.
        from engine.models.backends.tokenizer import CheckpointTokenizer

        try:
            return CheckpointTokenizer.load(folder, trust_remote_code=record.trust_remote_code)
        except MillmError as error:
            raise self._not_resident(record) from error

    def _not_resident(self, record: ModelRecord) -> ModelNotResident:
        resident = self._shelf.resident
        there = "no model is" if resident is None else f"{resident.record.name!r} is"
        return ModelNotResident(
            f"{record.name!r} is not loaded ({there}), and its tokenizer cannot be read without it.",
            param="model",
            details={"requested": record.name, "resident": None if resident is None else resident.record.name},
            remedy="Load the model first.",
        )


def _pieces(tokenizer: Tokenizer, ids: Sequence[int], wanted: bool) -> tuple[str, ...] | None:
    return tuple(map(tokenizer.token_text, ids)) if wanted else None


def _blanks(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _changed(folder: Path) -> int:
    """When the folder's tokenizer was written, so that another one is not taken for it."""
    times = []
    for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model"):
        try:
            times.append((folder / name).stat().st_mtime_ns)
        except OSError:
            continue
    return max(times, default=0)
