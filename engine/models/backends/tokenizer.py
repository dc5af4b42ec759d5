"""The tokenizer of a loaded model, safe to use from several threads.

Knows transformers' tokenizers; knows nothing of weights, prompts' policy or streams. Text comes in and token ids go
out, and the other way round. Nothing is ever cut or padded: a prompt that is too long is the caller's to refuse.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from engine.errors import CheckpointInvalid, InvalidParameter, MillmError
from engine.models.backends.constraint_vocabulary import vocabulary_of
from engine.models.backends.lengths import at_least, check_length, longest_token, settings_of
from engine.models.backends.templates.chat import ChatTemplate, TemplateRaised, chosen
from engine.models.inspection.fill_marks import find_marks

_METASPACE = "▁"
_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")
_PROBE = "Well, naïve 東京 🙂 — a  b\n\n  c\td"
"""Text with accents, CJK, an emoji, a dash and runs of white space: what a wrong byte mapping would garble."""


class CheckpointTokenizer:
    """A thread-safe face over one transformers tokenizer, which nobody else may use.

    A fast tokenizer may not be changed while another thread uses it (older versions raise "Already borrowed"), and
    transformers sets truncation and padding on the shared object when a call asks for them. So both are switched off
    once, here, and calls that go through transformers are serialised. Encoding and decoding have a lock each when the
    tokenizer is a fast one, so that a long prompt being read does not hold up the text of the lanes.

    Args:
        inner: A transformers tokenizer, fast or slow.
        extra_eos: End tokens the model's generation config declares; joined with the tokenizer's own.
    """

    takes_variables = True
    """Whether a request may set variables of the chat template."""

    def __init__(self, inner: Any, extra_eos: Iterable[int] = ()) -> None:
        self._inner = inner
        self._backend: Any = getattr(inner, "backend_tokenizer", None) if getattr(inner, "is_fast", False) else None
        self._encode_lock = threading.Lock()
        self._decode_lock = threading.Lock() if self._backend is not None else self._encode_lock
        if self._backend is not None:
            # A tokenizer.json may ship with either switched on.
            self._backend.no_truncation()
            self._backend.no_padding()
        self._direct = self._is_direct()

        self.vocab_size: int = len(inner)
        """Entries, added ones included. A model's logits may be wider (padded)."""
        self.bos_id: int | None = inner.bos_token_id
        self.bos_text: str = str(inner.bos_token) if inner.bos_token else ""
        own_eos = () if inner.eos_token_id is None else (inner.eos_token_id,)
        self.eos_ids: frozenset[int] = frozenset(int(i) for i in (*extra_eos, *own_eos))
        """The generation config's end tokens and the tokenizer's."""
        flagged = {int(i) for i, token in inner.added_tokens_decoder.items() if token.special}
        # A marker that is configured as an empty text has no id.
        named = {int(i) for i in inner.all_special_ids if i is not None}
        self.special_ids: frozenset[int] = frozenset(flagged | named)
        self.hidden_ids: frozenset[int] = self.special_ids | self.eos_ids
        """Tokens that show nothing in a text."""

        self._bytes: dict[int, bytes] = {}
        self._literal: dict[int, str] = {
            int(i): token.content for i, token in inner.added_tokens_decoder.items() if not token.content.isascii()
        }
        """Added tokens that are written as they are, in letters a byte-level vocabulary would take for bytes."""
        self._style = _style_of(self._backend)
        self.exact_bytes: bool = self._style is not None and self._bytes_agree()
        """Whether a text is the bytes of its tokens, one after the other (but for a space dropped at the start)."""
        if not self.exact_bytes:
            self._style = None
            self._bytes.clear()
        self.chat_template, self.template_note = chosen(inner.chat_template)
        source = self.chat_template
        self._template = None if source is None else ChatTemplate(source, _special_names(inner))
        self.fill_marks = find_marks(self._token_id)
        self.prepended_ids, self.appended_ids = self._added_around()
        """What ``encode(…, add_special_tokens=True)`` puts before a text (a BOS) and after it (in some, an EOS)."""

    @classmethod
    def load(
        cls, folder: Path, extra_eos: Iterable[int] = (), *, trust_remote_code: bool = False
    ) -> CheckpointTokenizer:
        """Read the tokenizer of a checkpoint folder; never touches the network.

        Raises:
            CheckpointInvalid: The folder has no tokenizer, or one that cannot be read.
        """
        from transformers import AutoTokenizer

        try:
            inner = AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=trust_remote_code
            )
        except Exception as error:  # the library raises nearly anything for a file it cannot read
            raise _unreadable(folder, error) from error
        if inner is None or len(inner) == 0:
            raise _unreadable(folder, None)
        return cls(inner, extra_eos)

    def constraint_vocabulary(self) -> tuple[Any, int]:
        """The vocabulary as llguidance takes it, and the one end token it knows. Raises whatever the library does."""
        from llguidance.hf import from_tokenizer

        if self._style == "byte-level" and self._literal:
            # The library takes the letters of added tokens for bytes.
            end = min(self.eos_ids)
            return vocabulary_of(self, end), end
        with self._encode_lock:
            inner = copy.deepcopy(self._inner)
        if inner.eos_token_id is None:
            inner.eos_token = inner.convert_ids_to_tokens(min(self.eos_ids))
        return from_tokenizer(inner), int(inner.eos_token_id)

    # --- text to tokens -----------------------------------------------------------------------------------------------

    def encode(self, text: str, add_special_tokens: bool, most: int | None = None) -> list[int]:
        """The token ids of ``text``, all of them. Marker tokens written in the text become those tokens.

        Raises:
            ValueError: ``text`` holds half of a surrogate pair and is not Unicode text.
            TextTooLong: There are certainly more than ``most``; told without making tokens of a long text.
            InvalidParameter: The vocabulary has a hole where the text needs a token.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("The text holds half of a surrogate pair.") from error
        if most is not None:
            # Blanks at a cut may belong to a marker that swallows them.
            check_length(text, most, self.at_least, lambda piece: len(self._ids(piece.strip(), False)))
        return self._ids(text, add_special_tokens)

    def encode_bytes(self, data: bytes) -> list[int]:
        """As :meth:`encode`, for UTF-8 and without special tokens."""
        return self._ids(data.decode("utf-8", "replace"), False)

    def at_least(self, text: str) -> int:
        """How many tokens ``text`` has at least, told by its length; 0 where that cannot be told."""
        longest, blanks_count = self._longest
        return at_least(text, longest, blanks_count=blanks_count)

    def _ids(self, text: str, add_special_tokens: bool) -> list[int]:
        try:
            return self._ids_unchecked(text, add_special_tokens)
        except (MillmError, ValueError):
            raise
        except Exception as error:  # vocabularies with holes in them raise whatever their library raises
            words = " ".join(str(error).split())[:300]
            raise InvalidParameter(
                f"The model's tokenizer cannot make tokens of the text: {words}",
                param="model",
                remedy="Use other characters, or a model whose tokenizer knows them.",
            ) from error

    def _ids_unchecked(self, text: str, add_special_tokens: bool) -> list[int]:
        if self._direct:
            # Without the lock of Python's interpreter, and without a list of offsets for every character.
            (found,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
            return list(found.ids)
        return self._ids_by_library(text, add_special_tokens)

    def _ids_by_library(self, text: str, add_special_tokens: bool) -> list[int]:
        with self._encode_lock:
            encoded = self._inner(
                text, add_special_tokens=add_special_tokens, truncation=False, padding=False, verbose=False
            )
        return [int(i) for i in encoded["input_ids"]]

    def _is_direct(self) -> bool:
        """Whether asking the fast tokenizer itself gives what transformers gives, which some classes change."""
        if self._backend is None or getattr(self._inner, "split_special_tokens", False):
            return False
        own = type(self._inner)
        if not all(getattr(own, name).__module__.startswith("transformers.") for name in ("__call__", "_encode_plus")):
            return False
        marked = f"{_PROBE}{self._inner.eos_token or ''}"
        return all(
            list(self._backend.encode_batch_fast([marked], add_special_tokens=special)[0].ids)
            == self._ids_by_library(marked, special)
            for special in (False, True)
        )

    @cached_property
    def _longest(self) -> tuple[int | None, bool]:
        if self._style is None:
            return None, True
        pieces = self._backend.get_vocab(with_added_tokens=True)
        bytes_of = _byte_level_bytes if self._style == "byte-level" else _metaspace_bytes
        alphabet = _BYTE_OF if self._style == "byte-level" else [f"<0x{byte:02X}>" for byte in range(256)]
        if not all(piece in pieces for piece in alphabet):
            return None, True  # what has no token is left out, or any number of such characters is one
        # An added token stands for its own letters, which may be more bytes than their reading as bytes.
        sizes = ((piece, max(len(bytes_of(piece)), len(piece.encode()))) for piece in pieces)
        return longest_token(sizes, settings_of(self._backend))

    # --- tokens to text -----------------------------------------------------------------------------------------------

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """The text of ``ids``; bytes that are no UTF-8 become U+FFFD. Ids outside the vocabulary show nothing."""
        known = [int(i) for i in ids if self._may_know(i)]
        if self._style == "byte-level" and any(i in self._literal for i in known):
            # The library would take the letters of an added token for bytes.
            shown = (self.token_bytes(i) for i in known if not (skip_special and i in self.special_ids))
            return b"".join(shown).decode("utf-8", "replace")
        with self._decode_lock:
            return str(self._inner.decode(known, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False))

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of one token, a leading space included; a special token gives its written form.

        Where the tokenizer has no exact bytes, the UTF-8 of the token decoded alone. Unknown ids give ``b""``.
        """
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._compute_bytes(token_id)
        return known

    def token_text(self, token_id: int) -> str:
        """One token as text. Bytes that are no whole characters are written as hexadecimal escapes, never as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "backslashreplace")

    def _compute_bytes(self, token_id: int) -> bytes:
        if not self._may_know(token_id):
            return b""
        if self._style is None:
            return self.decode([token_id], skip_special=False).encode("utf-8")
        if self._style == "byte-level" and token_id in self._literal:
            return self._literal[token_id].encode("utf-8")
        with self._decode_lock:
            piece = self._backend.id_to_token(token_id)
        if piece is None:
            return b""
        return _byte_level_bytes(piece) if self._style == "byte-level" else _metaspace_bytes(piece)

    def _token_id(self, piece: str) -> int | None:
        """The token written as ``piece`` in the vocabulary."""
        found = self._inner.get_vocab().get(piece) if self._backend is None else self._backend.token_to_id(piece)
        return None if found is None else int(found)

    def _may_know(self, token_id: int) -> bool:
        # A fast tokenizer answers any id and may have gaps, so its ids may go past its length; a slow one may raise.
        return token_id >= 0 and (self._backend is not None or token_id < self.vocab_size)

    def _bytes_agree(self) -> bool:
        """Whether joined token bytes spell what the tokenizer decodes, tried on a text with every kind of character."""
        ids = self.encode(_PROBE, add_special_tokens=False)
        joined = b"".join(self.token_bytes(i) for i in ids).decode("utf-8", "replace")
        decoded = self.decode(ids, skip_special=False)
        return joined.endswith(decoded) and not joined[: len(joined) - len(decoded)].strip(" ")

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
        """Whether the checkpoint came with a chat template."""
        return self._template is not None

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        continue_final: bool,
        kwargs: Mapping[str, object],
    ) -> str:
        """The conversation as the model's own template writes it, with everything that was said in it.

        Args:
            messages: ``role`` and ``content`` of each turn, and what else templates read of one (``reasoning_content``,
                ``tool_calls``, ``tool_call_id``, ``name``); nothing else reaches the template.
            add_generation_prompt: End with the opening of an assistant turn.
            continue_final: Leave the last message open, so that the model goes on with it.
            kwargs: Variables for the template.

        Raises:
            TemplateRaised: There is no template, it refused these messages or variables, left out something, took too
                much, or works for no conversation.
        """
        if self._template is None:
            raise TemplateRaised("The model has no chat template.")
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


def _special_names(inner: Any) -> dict[str, str]:
    return {name: str(token) for name, token in inner.special_tokens_map.items() if not isinstance(token, list)}


def _unreadable(folder: Path, error: Exception | None) -> CheckpointInvalid:
    names = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", "vocab.txt", "tekken.json")
    if not any((folder / name).is_file() for name in names):
        problem = f"no tokenizer in it (looked for {', '.join(names)})"
    elif error is None:
        problem = "a tokenizer without a single token"
    else:
        cause = " ".join(str(error).split())[:300]
        problem = f"a tokenizer that cannot be read ({type(error).__name__}: {cause})"
    return CheckpointInvalid(
        f"The model folder '{folder}' has {problem}.",
        details={"problems": [problem]},
        remedy="Copy the tokenizer files of the original model into the folder, or download the model again.",
    )


# --- bytes of a token -------------------------------------------------------------------------------------------------


def _byte_alphabet() -> dict[str, int]:
    """The character each byte is written as in a byte-level vocabulary (GPT-2's table), turned round.

    Printable Latin-1 stands for itself; the other 68 bytes are written as U+0100 and up, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in printable}
    others = [b for b in range(256) if b not in printable]
    table.update({chr(0x100 + place): b for place, b in enumerate(others)})
    return table


_BYTE_OF = _byte_alphabet()


def _byte_level_bytes(piece: str) -> bytes:
    try:
        return bytes(_BYTE_OF[character] for character in piece)
    except KeyError:  # an added token, written as it is
        return piece.encode("utf-8")


def _metaspace_bytes(piece: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(piece)
    if byte:
        return bytes.fromhex(byte[1])
    return piece.replace(_METASPACE, " ").encode("utf-8")


def _style_of(backend: Any) -> str | None:
    """How tokens spell bytes: ``byte-level``, ``metaspace`` (SentencePiece), or None where only decoding can tell."""
    if backend is None or backend.decoder is None:
        return None
    outer = json.loads(backend.decoder.__getstate__())
    chain = outer["decoders"] if outer["type"] == "Sequence" else [outer]
    if [step["type"] for step in chain if step["type"] != "Fuse"] == ["ByteLevel"]:
        return "byte-level"
    return "metaspace" if _is_metaspace_chain(chain) else None


def _is_metaspace_chain(chain: Sequence[Mapping[str, Any]]) -> bool:
    spaces = False
    for step in chain:
        match step["type"]:
            case "Metaspace":
                spaces = step.get("replacement") == _METASPACE
            case "Replace":
                if step.get("pattern") != {"String": _METASPACE} or step.get("content") != " ":
                    return False
                spaces = True
            case "ByteFallback" | "Fuse":
                continue
            case "Strip":
                if step.get("content") != " " or step.get("stop", 0) != 0:
                    return False
            case _:
                return False
    return spaces
