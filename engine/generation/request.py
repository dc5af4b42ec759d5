"""The one internal request every dialect and the window map onto, and the typed deltas that answer it.

All values are frozen and checked on construction. Nothing here touches torch, so a route can build a request before the
heavy libraries are imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import uuid4

from engine.errors import FieldNotHonoured, InvalidParameter, MillmError
from engine.generation.errors import ResponseFormatUnsupported
from engine.generation.response_format import ResponseFormat
from engine.generation.text.parts import Call, Kind
from engine.generation.tools.values import PastCall, Tools
from engine.monitor.activation_spec import ActivationSpec
from engine.sampling import MAX_SEED, MIN_SEED, Sampling
from engine.steering.path import NO_PATH, SteeringPath
from engine.steering.report import NO_STEERING, SteeringReport
from engine.steering.request import FOLLOW_LIVE, SteeringRequest

MAX_STOPS = 16
MAX_TOP_LOGPROBS = 20
MAX_N, MAX_BEST_OF = 128, 20
MAX_CHOICES = 1024
"""Prompts × choices written of one request: it takes one queue place, so it must not be without end."""


class Effort(StrEnum):
    """How much a model shall reason: from none to the most there is."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class FinishReason(StrEnum):
    """Why a choice ended; the values are OpenAI's."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


def _check(condition: bool, name: str, value: object, expected: str) -> None:
    if not condition:
        raise InvalidParameter(f"Invalid value for '{name}': {value!r}; expected {expected}.", param=name)


@dataclass(frozen=True)
class Message:
    """One chat message: its role, its content and, for templates that read them, an assistant's former thoughts.

    A trailing assistant message with ``reasoning`` and without content was cut in its reasoning, which goes on.

    Attributes:
        calls: What an assistant's turn called. ``call_id``: the call that a tool's message answers, where it says so;
            ``name``: the tool's name.
    """

    role: str
    content: str | None
    reasoning: str = ""
    calls: tuple[PastCall, ...] = ()
    call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class ChatInput:
    """A conversation to answer. A non-blank trailing assistant message is continued, not answered.

    ``template_kwargs`` are variables for the chat template (``enable_thinking`` and the like); ``effort`` becomes one
    of them where the template reads any such.
    """

    messages: tuple[Message, ...]
    template_kwargs: Mapping[str, object] = field(default_factory=dict)
    effort: Effort | None = None


@dataclass(frozen=True)
class TextInput:
    """Raw prompts to continue, one or several; each gives its own choices, in order.

    A prompt is text, or token ids that are read as they stand: no BOS is added to those.
    """

    prompts: tuple[str | tuple[int, ...], ...]
    add_special_tokens: bool = True


@dataclass(frozen=True)
class GenerationRequest:
    """What to write: the input, how to sample, when to stop, and what to report.

    Attributes:
        model: Library name of the model, exactly as asked; used in messages.
        input: A conversation, or several (their answers come one behind another, as those of several prompts), or raw
            prompts.
        n: Choices returned per prompt or conversation. best_of: choices written per prompt (≥ n), the best n returned
            by cumulative logprob; only without streaming.
        max_tokens: Cap per choice; None is the rest of the window, at most ``DEFAULT_MAX_TOKENS``. 0 only with
            ``echo``: nothing is written.
        unlimited: With ``max_tokens`` None: the whole rest of the window.
        logprobs: None: not reported. k ≥ 0: each token's logprob with its k likeliest alternatives.
        echo: Each choice begins with its raw prompt; with ``logprobs`` the prompt's tokens come too, as likely as the
            model, steered as asked, takes each after those before it, and an end token is reported like any other.
        steering: The request's own steering; by default it follows the live one.
        activations: SAE activations to read along and give back with the last delta; one answer only.
        response_format: The form the answer must have; each choice is constrained on its own. Not with ``stop`` or
            ``ignore_eos``: a cut document would look finished, and one that cannot end never is.
        tools: What the model may, or must, call. Where it must, not with ``response_format`` or ``ignore_eos``.
        noise_seed: Requests with the same number draw the same noise and stay in the batch; the window's comparisons
            use it. Those sent together that differ in their steering only, and add the same, have the same answer to
            the letter (:mod:`engine.generation.comparing`); unlike with ``sampling.seed`` another time it may be
            another. Never on the wire.
        request_id: What monitoring calls it.
    """

    model: str
    input: ChatInput | tuple[ChatInput, ...] | TextInput
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    best_of: int | None = None
    max_tokens: int | None = None
    unlimited: bool = False
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    echo: bool = False
    steering: SteeringRequest = FOLLOW_LIVE
    activations: ActivationSpec | None = None
    response_format: ResponseFormat | None = None
    tools: Tools | None = None
    noise_seed: int | None = None
    request_id: str = field(default_factory=lambda: uuid4().hex)

    def __post_init__(self) -> None:
        _check(1 <= self.n <= MAX_N, "n", self.n, f"an integer from 1 to {MAX_N}")
        if self.best_of is not None:
            expected = f"an integer from 1 to {MAX_BEST_OF}"
            _check(1 <= self.best_of <= MAX_BEST_OF, "best_of", self.best_of, expected)
            _check(self.best_of >= self.n, "best_of", self.best_of, f"at least n ({self.n})")
        if self.max_tokens is not None:
            least = 0 if self.echo else 1
            _check(self.max_tokens >= least, "max_tokens", self.max_tokens, f"an integer of at least {least}")
            _check(
                self.sampling.min_tokens <= self.max_tokens,
                "min_tokens",
                self.sampling.min_tokens,
                f"at most max_tokens ({self.max_tokens})",
            )
        total = self.inputs * self.choices_written
        field = "prompt" if isinstance(self.input, TextInput) else "extra_messages"
        _check(total <= MAX_CHOICES, field, f"{total} choices in all", f"at most {MAX_CHOICES} inputs × choices")
        _check(len(self.stop) <= MAX_STOPS, "stop", f"{len(self.stop)} strings", f"at most {MAX_STOPS} strings")
        _check(all(self.stop), "stop", list(self.stop), "non-empty strings")
        if self.logprobs is not None:
            expected = f"an integer from 0 to {MAX_TOP_LOGPROBS}"
            _check(0 <= self.logprobs <= MAX_TOP_LOGPROBS, "logprobs", self.logprobs, expected)
        if self.noise_seed is not None:
            inside = MIN_SEED <= self.noise_seed <= MAX_SEED
            _check(inside, "noise_seed", self.noise_seed, "a signed 64-bit integer")
        _check(not self.echo or isinstance(self.input, TextInput), "echo", True, "raw prompts to repeat")
        if self.response_format is not None:
            self._check_constrainable()
        if self.tools is not None and self.tools.insists:
            self._check_callable()

    def _check_constrainable(self) -> None:
        for name, given, why in (
            ("stop", self.stop, "a stop string could cut a document, which would then look finished"),
            ("ignore_eos", self.sampling.ignore_eos, "a document ends with an end token"),
        ):
            if given:
                raise ResponseFormatUnsupported(
                    f"'response_format' cannot be combined with '{name}': {why}.",
                    param="response_format",
                    remedy=f"Leave '{name}' out.",
                )

    def _check_callable(self) -> None:
        if self.response_format is not None:
            raise InvalidParameter(
                "'tool_choice' asks for a call and 'response_format' for a document: an answer cannot be both.",
                param="tool_choice",
                remedy="Send one of the two, or let tool_choice be auto.",
            )
        if self.sampling.ignore_eos:
            raise FieldNotHonoured(
                "'ignore_eos' cannot be honoured: the answer is a call, and ends with it.",
                param="ignore_eos",
                remedy="Leave 'ignore_eos' out, or let tool_choice be auto.",
            )

    @property
    def inputs(self) -> int:
        """Prompts or conversations to answer."""
        if isinstance(self.input, TextInput):
            return len(self.input.prompts)
        return len(self.input) if isinstance(self.input, tuple) else 1

    @property
    def conversations(self) -> int:
        """Conversations of a chat; 1 for raw prompts, which are none."""
        return 1 if isinstance(self.input, TextInput) else self.inputs

    @property
    def label(self) -> str | None:
        """What one of several inputs is called in an error; None where there is one."""
        if self.inputs == 1:
            return None
        return "prompt" if isinstance(self.input, TextInput) else "conversation"

    @property
    def prompt_logprobs(self) -> int | None:
        """How many alternatives are asked for at each token of the prompt; None: its tokens are not reported."""
        return self.logprobs if self.echo else None

    @property
    def seed_binds(self) -> bool:
        """Whether its seed promises the same bytes again, for which it shares nothing with others.

        Who has a prompt repeated at temperature 0 draws nothing: evaluation harnesses send a seed with every request.
        """
        return self.sampling.seed is not None and not (self.echo and self.sampling.temperature == 0.0)

    @property
    def choices_written(self) -> int:
        """Choices generated per prompt: ``best_of`` where given, else ``n``."""
        return self.best_of if self.best_of is not None else self.n


# --- the answer -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alternative:
    """A candidate for one position: its id, its text, its bytes and its log-probability (natural log)."""

    token_id: int
    text: str
    bytes: bytes
    logprob: float


@dataclass(frozen=True)
class TokenInfo:
    """One token, generated or of a prompt that is repeated. ``logprob`` and ``top`` are filled when logprobs were asked
    for; ``top`` is in falling order. The first token of a prompt follows nothing, so it never has any.

    ``text_offset`` counts characters of prompt plus completion before the token.
    """

    token_id: int
    text: str = ""
    bytes: bytes = b""
    logprob: float | None = None
    top: tuple[Alternative, ...] = ()
    text_offset: int = 0


@dataclass(frozen=True)
class Piece:
    """A piece of an answer: what it is, its text, and the tokens whose text it completes.

    Text is whole UTF-8, never part of a stop, of a reasoning tag or of the white space around one. It is empty where
    tokens show nothing: such a token has the kind of what it stands in, a tag that of the reasoning.

    The text of a call is what was written of its arguments, which ``call`` says; with the piece that ``opens`` it, its
    name is known.
    """

    kind: Kind
    text: str
    tokens: tuple[TokenInfo, ...] = ()
    call: Call | None = None
    opens: bool = False


def joined(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """``pieces`` without empty ones, neighbours of one kind made one."""
    out: list[Piece] = []
    for piece in pieces:
        if out and _is_one(out[-1], piece):
            last = out[-1]
            out[-1] = Piece(
                piece.kind,
                last.text + piece.text,
                last.tokens + piece.tokens,
                last.call if piece.call is None else piece.call,
                last.opens or piece.opens,
            )
        elif piece.text or piece.tokens or piece.opens:
            out.append(piece)
    return tuple(out)


def _is_one(last: Piece, piece: Piece) -> bool:
    if last.kind is not piece.kind:
        return False
    # What is marked, before a call or behind it, joins either; two calls are never one.
    return last.call is None or piece.call is None or last.call == piece.call


def text_of(pieces: Iterable[Piece], kind: Kind) -> str:
    """The text of the pieces of ``kind``."""
    return "".join(piece.text for piece in pieces if piece.kind is kind)


@dataclass(frozen=True)
class Usage:
    """Token counts of a whole request; a prompt shared by ``n`` choices counts once."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt plus completion."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Delta:
    """Base of everything a running request emits."""


@dataclass(frozen=True)
class Started(Delta):
    """The request left the queue: its first lane is being read. Sent once, first.

    ``backend`` is cbm or serial; ``rung`` the evidence rung that may be claimed for what steers it now, None for none.
    """

    backend: str
    rung: int | None = None


@dataclass(frozen=True)
class TextDelta(Delta):
    """New text of choice ``index``; neighbouring pieces are of different kinds.

    ``completion_tokens`` is the choice's count so far: there may be more tokens than pieces, and pieces without any. A
    prompt that is repeated comes first, as one piece of content, and counts for nothing.
    """

    index: int
    pieces: tuple[Piece, ...]
    completion_tokens: int

    @property
    def content(self) -> str:
        """What it adds to the answer."""
        return text_of(self.pieces, Kind.CONTENT)

    @property
    def reasoning(self) -> str:
        """What it adds to the reasoning."""
        return text_of(self.pieces, Kind.REASONING)

    @property
    def tokens(self) -> tuple[TokenInfo, ...]:
        """The tokens of all its pieces, in order."""
        return tuple(token for piece in self.pieces for token in piece.tokens)


@dataclass(frozen=True)
class ChoiceFinished(Delta):
    """Choice ``index`` ended. All its text was sent before. ``cumulative_logprob`` ranks ``best_of``; ``path`` is what
    steered it from its first token to its last; ``reasoned`` whether there was evidence of reasoning, empty or not.
    """

    index: int
    reason: FinishReason
    completion_tokens: int
    cumulative_logprob: float = 0.0
    path: SteeringPath = NO_PATH
    reasoned: bool = False


@dataclass(frozen=True)
class RequestFinished(Delta):
    """The last delta of a request that went well.

    ``steering`` is what was really added at its last token, and ``rung`` the evidence rung that may be claimed for it;
    ``activations`` are in the shape of the wire.
    """

    usage: Usage
    seconds_queued: float
    seconds_to_first_token: float
    seconds_total: float
    steering: SteeringReport = NO_STEERING
    rung: int | None = None
    activations: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class RequestFailed(Delta):
    """The last delta of a request that did not; a cancelled one ends with ``RequestCancelled``.

    ``steering`` is what was really added up to then, and ``rung`` the evidence rung that may be claimed for it: what
    was written before the end was written under it. ``paths`` are those of the choices that had begun, by index.
    """

    error: MillmError
    steering: SteeringReport = NO_STEERING
    rung: int | None = None
    paths: Mapping[int, SteeringPath] = field(default_factory=dict)
