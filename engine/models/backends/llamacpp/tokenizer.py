"""The tokenizer inside a GGUF file, by llama.cpp's own code, with the same face as ``backends.tokenizer``.

Pieces come as bytes and are joined by the text stream as for any tokenizer. The chat template is the file's own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.errors import InvalidParameter
from engine.models.backends.constraint_vocabulary import vocabulary_of
from engine.models.backends.lengths import at_least, check_length
from engine.models.backends.llamacpp.binding import library
from engine.models.backends.llamacpp.model import LlamaModel
from engine.models.backends.templates.chat import ChatTemplate, TemplateRaised
from engine.models.inspection.fill_marks import FAMILIES, find_marks

_LONGEST_PIECE = 256
MOST_ROOM = 1 << 28
"""Tokens or bytes that room is made for; what asks for more says that it cannot be."""


class GgufTokenizer:
    """A thread-safe face over the vocabulary of a loaded model. Attributes are those of ``backends.tokenizer``.

    ``exact_bytes`` holds for every vocabulary llama.cpp knows: a text is the bytes of its pieces, one after the other.
    """

    exact_bytes = True
    template_note: str | None = None
    takes_variables = False

    def __init__(self, model: LlamaModel) -> None:
        llama = library()
        self._model = model
        self.vocab_size = model.vocab_size
        vocab = model.vocab
        with model.held():
            ids = range(self.vocab_size)
            self._pieces = [_piece(llama, vocab, token) for token in ids]
            end = [token for token in ids if llama.llama_vocab_is_eog(vocab, token)]
            control = [token for token in ids if llama.llama_vocab_is_control(vocab, token)]
            bos, eos = int(llama.llama_vocab_bos(vocab)), int(llama.llama_vocab_eos(vocab))
            self._named = {
                name: self._written_form(llama, token)
                for name, token in (
                    ("bos_token", bos),
                    ("eos_token", eos),
                    ("pad_token", int(llama.llama_vocab_pad(vocab))),
                    ("sep_token", int(llama.llama_vocab_sep(vocab))),
                    ("mask_token", int(llama.llama_vocab_mask(vocab))),
                )
                if token >= 0
            }
            self.fill_marks = find_marks(self._marks(llama).get)
        self.bos_id: int | None = bos if bos >= 0 else None
        self.bos_text: str = self._named.get("bos_token", "")
        self.eos_ids: frozenset[int] = frozenset(end) | ({eos} if eos >= 0 else set())
        """Every token the file marks as ending a generation: end of text, of a turn, of a message."""
        self.special_ids: frozenset[int] = frozenset(control)
        self.hidden_ids: frozenset[int] = self.special_ids | self.eos_ids
        source = self.chat_template = model.chat_template or None
        self._template = ChatTemplate(source, self._named) if source else None
        # The others normalise: a text may become shorter before it is split.
        keeps_all = llama.llama_vocab_type(vocab) in (llama.LLAMA_VOCAB_TYPE_SPM, llama.LLAMA_VOCAB_TYPE_BPE)
        self._longest = max(map(len, self._pieces), default=1) if keeps_all else None
        self.prepended_ids, self.appended_ids = self._added_around()

    # --- text to tokens -----------------------------------------------------------------------------------------------

    def encode(self, text: str, add_special_tokens: bool, most: int | None = None) -> list[int]:
        """The token ids of ``text``, all of them. Marker tokens written in the text become those tokens.

        Raises ValueError for half of a surrogate pair, :class:`ModelBusy` when the model has been unloaded,
        :class:`TextTooLong` for certainly more than ``most``, told without making tokens of a long text.
        """
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("The text holds half of a surrogate pair.") from error
        if most is not None:
            check_length(text, most, self.at_least, lambda piece: len(self.encode_bytes(piece.encode())))
        return self.encode_bytes(data, add_special_tokens)

    def at_least(self, text: str) -> int:
        """How many tokens ``text`` has at least, told by its length; 0 where that cannot be told."""
        return at_least(text, self._longest)

    def encode_bytes(self, data: bytes, add_special_tokens: bool = False) -> list[int]:
        """As :meth:`encode`, for UTF-8."""
        llama = library()

        def fill(room: int) -> tuple[int, Any]:
            buffer = (llama.llama_token * room)()
            vocab = self._model.vocab
            return int(llama.llama_tokenize(vocab, data, len(data), buffer, room, add_special_tokens, True)), buffer

        with self._model.held():
            count, buffer = _filled(fill, len(data) + 8)
        return list(buffer[:count])

    # --- tokens to text -----------------------------------------------------------------------------------------------

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of ``ids``; bytes that are no UTF-8 become U+FFFD. Ids outside the vocabulary show nothing."""
        llama = library()
        known = [int(i) for i in ids if 0 <= i < self.vocab_size]
        tokens = (llama.llama_token * len(known))(*known)

        def fill(room: int) -> tuple[int, Any]:
            buffer = ctypes.create_string_buffer(room)
            vocab = self._model.vocab
            return int(llama.llama_detokenize(vocab, tokens, len(known), buffer, room, False, not skip_special)), buffer

        with self._model.held():
            count, buffer = _filled(fill, 64 + 16 * len(known))
        return bytes(buffer.raw[:count]).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token, a leading space included; a special token gives its written form."""
        return self._pieces[token_id] if 0 <= token_id < self.vocab_size else b""

    def token_text(self, token_id: int) -> str:
        """One token as text. Bytes that are no whole characters are written as hexadecimal escapes, never as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "backslashreplace")

    def _written_form(self, llama: Any, token: int) -> str:
        found = llama.llama_vocab_get_text(self._model.vocab, token)
        return found.decode("utf-8", "replace") if found else ""

    def _marks(self, llama: Any) -> dict[str, int]:
        """The marks of gaps that are in the vocabulary. Pieces have a blank where a vocabulary writes its own sign."""
        marks = {mark for family in FAMILIES for mark in (*family.required, *family.others)}
        spelt = {form for mark in marks for form in (mark.encode(), mark.replace("▁", " ").encode())}
        candidates = [token for token, piece in enumerate(self._pieces) if piece in spelt]
        written = {self._written_form(llama, token): token for token in candidates}
        return {mark: token for mark, token in written.items() if mark in marks}

    def _added_around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        plain = self.encode("a", add_special_tokens=False)
        full = self.encode("a", add_special_tokens=True)
        for start in range(len(full) - len(plain) + 1):
            if plain and full[start : start + len(plain)] == plain:
                return tuple(full[:start]), tuple(full[start + len(plain) :])
        return (), ()

    # --- chat template ------------------------------------------------------------------------------------------------

    @property
    def has_chat_template(self) -> bool:
        """Whether the file holds a chat template."""
        return self._template is not None

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final: bool,
        kwargs: Mapping[str, object],
    ) -> str:
        """The conversation as the file's own template writes it. As in ``engine.models.backends.tokenizer``.

        Raises :class:`TemplateRaised`: there is no template, or it refused these messages or variables.
        """
        if self._template is None:
            raise TemplateRaised("The file holds no chat template.")
        return self._template.render(
            messages, add_generation_prompt=add_generation_prompt, continue_final=continue_final, kwargs=kwargs
        )

    def template_fault(self) -> str | None:
        """Why the chat template can write no conversation at all; None where it can, or there is none."""
        return None if self._template is None else self._template.fault()

    def template_variables(self) -> frozenset[str] | None:
        """Names the chat template reads from outside; None where that cannot be told."""
        return None if self._template is None else self._template.variables()

    def template_levels(self, name: str) -> frozenset[str]:
        """Words the chat template holds the variable ``name`` against."""
        return frozenset() if self._template is None else self._template.levels(name)

    # --- structured output --------------------------------------------------------------------------------------------

    def constraint_vocabulary(self) -> tuple[Any, int]:
        """The vocabulary as llguidance takes it, and the one end token it knows."""
        end = min(self.eos_ids)
        return vocabulary_of(self, end), end


def _piece(llama: Any, vocab: Any, token: int) -> bytes:
    def fill(room: int) -> tuple[int, Any]:
        buffer = ctypes.create_string_buffer(room)
        return int(llama.llama_token_to_piece(vocab, token, buffer, room, 0, True)), buffer

    count, buffer = _filled(fill, _LONGEST_PIECE)
    return bytes(buffer.raw[:count])


def _filled(fill: Callable[[int], tuple[int, Any]], room: int) -> tuple[int, Any]:
    """How much was written, and where. What finds no room says with a negative number how much it needs.

    Raises :class:`InvalidParameter` where what it asked for is not enough either, or is more than there can be.
    """
    count, buffer = fill(room)
    if -MOST_ROOM < count < 0:
        count, buffer = fill(-count)
    if count < 0:
        raise InvalidParameter(
            f"llama.cpp cannot make tokens of the text, or text of its tokens (code {count}).",
            param="model",
            remedy="Send a shorter text, or use another file of the model.",
        )
    return count, buffer
