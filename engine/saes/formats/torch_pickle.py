"""What the pickle in a torch file would have done, told without doing it.

torch's restricted loader runs no code, and still lets a pickle of thirty bytes build as much memory as it asks for
(``bytearray``), or a key whose hash takes for ever. So its few instructions are followed here first, on the kinds of
values alone: only what a dict of tensors and plain settings needs is let through.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

MAX_STEPS = 1_000_000
"""Instructions of one pickle. A checkpoint of ten thousand tensors has half of that."""

_CALLED = frozenset(
    {
        "collections.OrderedDict",
        "torch._utils._rebuild_tensor",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_parameter",
        "torch.Size",
        "torch.device",
    }
)
_ITEM_BYTES = {
    "ByteStorage": 1,
    "CharStorage": 1,
    "BoolStorage": 1,
    "ShortStorage": 2,
    "HalfStorage": 2,
    "BFloat16Storage": 2,
    "IntStorage": 4,
    "FloatStorage": 4,
    "LongStorage": 8,
    "DoubleStorage": 8,
    "ComplexFloatStorage": 8,
    "ComplexDoubleStorage": 16,
}
_DTYPES = frozenset(
    f"torch.{name}"
    for name in (
        *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"),
        *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "bool", "complex64", "complex128"),
    )
)
_PLAIN = {
    "NONE": None,
    "NEWTRUE": True,
    "NEWFALSE": False,
    "EMPTY_TUPLE": (),
}
_NUMBERS_AND_TEXTS = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Unsafe(Exception):
    """The pickle asks for something to be called that a dict of tensors has no need of; the text is its name."""


class Damaged(Exception):
    """The pickle is none that torch writes."""


class Oversized(Exception):
    """The pickle claims more values than the file has bytes."""


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass(frozen=True)
class _Thing:
    """A value that is built; ``kind`` is ``dict``, ``list``, ``tensor`` or ``value``."""

    kind: str


_MARK = object()


@dataclass
class _Claims:
    """Bytes of the storages that pickles name, each counted once."""

    room: int
    seen: set[str] = field(default_factory=set)

    def take(self, key: str, nbytes: int) -> None:
        if key not in self.seen:
            self.seen.add(key)
            self.room -= nbytes
        if self.room < 0 or nbytes < 0:
            raise Oversized


def check_pickles(file: IO[bytes], size: int, count: int) -> None:
    """Follow ``count`` pickles that stand one after the other in ``file``, a file of ``size`` bytes.

    Raises :class:`Unsafe`, :class:`Damaged`, :class:`Oversized`.
    """
    claims = _Claims(size)
    bounded = _Bounded(file, size)
    for _ in range(count):
        _Follower(claims).follow(_instructions(bounded))


class _Bounded:
    """A file from which nobody can ask for more than it has: a reader makes room for what it is asked for first."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def read(self, count: int) -> bytes:
        if count > self._left:
            raise Damaged("is cut short")
        self._left -= count
        return self._file.read(count)

    def readline(self) -> bytes:
        line = self._file.readline(4096)
        self._left -= len(line)
        return line

    def tell(self) -> int:
        return self._file.tell()


def _instructions(file: _Bounded) -> Iterator[tuple[str, Any]]:
    steps = 0
    try:
        for opcode, argument, _ in pickletools.genops(file):  # type: ignore[arg-type]
            steps += 1
            if steps > MAX_STEPS:
                raise Damaged("has more instructions than any checkpoint")
            yield opcode.name, argument
    except (ValueError, EOFError, OverflowError, UnicodeError) as error:
        raise Damaged("is damaged") from error


class _Follower:
    """The stack and the memo of one pickle."""

    def __init__(self, claims: _Claims) -> None:
        self._claims = claims
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def follow(self, instructions: Iterator[tuple[str, Any]]) -> None:
        try:
            for name, argument in instructions:
                self._step(name, argument)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise Damaged("is damaged") from error

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _NUMBERS_AND_TEXTS:
            stack.append(argument)
        elif name in _PLAIN:
            stack.append(_PLAIN[name])
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[-count:] = [tuple(stack[-count:])]
        else:
            match name:
                case "PROTO" | "STOP":
                    pass
                case "MARK":
                    stack.append(_MARK)
                case "TUPLE":
                    stack.append(tuple(self._since_mark()))
                case "EMPTY_DICT":
                    stack.append(_Thing("dict"))
                case "EMPTY_LIST":
                    stack.append(_Thing("list"))
                case "BINPUT" | "LONG_BINPUT":
                    self._memo[argument] = stack[-1]
                case "BINGET" | "LONG_BINGET":
                    stack.append(self._memo[argument])
                case "SETITEM":
                    pair = stack[-2:]
                    del stack[-2:]
                    self._set(pair)
                case "SETITEMS":
                    self._set(self._since_mark())
                case "APPEND":
                    stack.pop()
                    self._require("list")
                case "APPENDS":
                    self._since_mark()
                    self._require("list")
                case "GLOBAL":
                    stack.append(_global(argument))
                case "REDUCE":
                    arguments, called = stack.pop(), stack.pop()
                    stack.append(_result(called, arguments))
                case "BUILD":
                    # What a state dict says about its modules.
                    state = stack.pop()
                    if not isinstance(state, _Thing) or state.kind != "dict":
                        raise Damaged("is damaged")
                    self._require("dict")
                case "BINPERSID":
                    stack.append(self._storage(stack.pop()))
                case _:
                    raise Damaged("was not written by torch.save")

    def _since_mark(self) -> list[Any]:
        items: list[Any] = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _require(self, kind: str) -> None:
        target = self._stack[-1]
        if not isinstance(target, _Thing) or target.kind != kind:
            raise Damaged("is damaged")

    def _set(self, pairs: list[Any]) -> None:
        self._require("dict")
        for key in pairs[::2]:
            # A tuple of tuples that repeat takes for ever to hash and to write out.
            if key is not None and not isinstance(key, str | int | float):
                raise Damaged("has a key that is neither a text nor a number")

    def _storage(self, named: Any) -> _Thing:
        if not isinstance(named, tuple) or len(named) not in (5, 6):
            raise Damaged("is damaged")
        word, kind, key, location, count = named[:5]
        if word != "storage" or not isinstance(kind, _Global) or not isinstance(count, int):
            raise Damaged("is damaged")
        if not isinstance(key, str) or not isinstance(location, str):
            raise Damaged("is damaged")
        self._claims.take(key, count * _ITEM_BYTES[kind.name.removeprefix("torch.")])
        return _Thing("storage")


def _global(argument: Any) -> _Global:
    name = str(argument).replace(" ", ".", 1)
    storage = name.startswith("torch.") and name.removeprefix("torch.") in _ITEM_BYTES
    if name not in _CALLED and name not in _DTYPES and not storage:
        raise Unsafe(name)
    return _Global(name)


def _result(called: Any, arguments: Any) -> _Thing:
    if not isinstance(called, _Global) or not isinstance(arguments, tuple):
        raise Damaged("is damaged")
    if called.name not in _CALLED:
        raise Unsafe(called.name)
    if called.name == "collections.OrderedDict":
        if arguments:
            raise Damaged("is damaged")
        return _Thing("dict")
    return _Thing("tensor" if "_rebuild" in called.name else "value")
