"""The WebSocket ``/api/events``: every event of the engine, one JSON object ``{"event", "data"}`` a message.

It carries what happens from the moment the connection is accepted; the state before that is read from the other routes.
Beside the engine's events it carries the machine's figures (see ``machine_feed.py``).
A page cannot set headers on a WebSocket, so beside them the API key may come as ``?key=``. What clients send is thrown
away. A client that reads too slowly loses the oldest events and is told how many (``events:dropped``): then it reads
the state anew, as after a new connection.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import Any

from quart import Quart, Response, websocket

from engine.counting import plural, so_many
from engine.errors import InvalidParameter
from engine.events import Event
from engine.wire import wire
from server import sse
from server.context import ServerContext
from server.errors import ServerStopping, TooManyEventSockets
from server.in_flight import current_exchange
from server.management.machine_feed import MachineFeed
from server.openapi.describe import describe

log = logging.getLogger(__name__)

PATH = "/api/events"
DROPPED = "events:dropped"
MAX_WAITING = 256
"""Events kept for a client that does not read."""

GOING_AWAY = 1001
INTERNAL_ERROR = 1011


class Outbox:
    """Events on their way to one client: put in on any thread, taken out on the server's loop.

    Args:
        loop: Where they are taken out.
        limit: How many may wait; past that the oldest go, and are counted.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int = MAX_WAITING) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._waiting: deque[Event] = deque(maxlen=limit)
        self._dropped = 0
        self._filled = asyncio.Event()

    def put(self, event: Event) -> None:
        """Add an event; returns at once."""
        with self._lock:
            wake = not self._waiting
            self._dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(event)
        if wake:
            try:
                self._loop.call_soon_threadsafe(self._filled.set)
            except RuntimeError:
                log.debug("the event %s came after the server's loop had ended", event.name)

    async def take(self) -> tuple[list[Event], int]:
        """Wait for events; returns all that wait, in order, and how many older ones were dropped."""
        await self._filled.wait()
        self._filled.clear()
        with self._lock:
            events, dropped = list(self._waiting), self._dropped
            self._waiting.clear()
            self._dropped = 0
        return events, dropped


class Messages:
    """Events as they travel, each written as JSON once for all its readers. Lives on the server's loop.

    Only the newest are remembered: a reader that lags further behind has its own written anew.
    """

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self._limit = limit
        # An event is kept with its text, so that no other one can have its identity meanwhile.
        self._texts: OrderedDict[int, tuple[Event, str | None]] = OrderedDict()

    def of(self, events: Sequence[Event], dropped: int) -> Iterator[str]:
        """``events``, behind a note about those that were dropped before them."""
        if dropped:
            yield _message(DROPPED, {"count": dropped})
        for event in events:
            if (text := self._text(event)) is not None:
                yield text

    def _text(self, event: Event) -> str | None:
        known = self._texts.get(id(event))
        if known is not None:
            return known[1]
        text = None
        try:
            text = _message(event.name, wire(event.data()))
        except (TypeError, ValueError):
            log.exception("the event %s has data that JSON cannot hold", event.name)
        self._texts[id(event)] = (event, text)
        if len(self._texts) > self._limit:
            self._texts.popitem(last=False)
        return text


def _message(name: str, data: dict[str, Any]) -> str:
    return sse.dump({"event": name, "data": data}).decode()


def register(app: Quart, context: ServerContext) -> None:
    """Add the socket to ``app``."""
    feed = MachineFeed(context)
    shared = Messages()
    limit = context.settings.MAX_EVENT_SOCKETS
    listening = 0

    def leave() -> None:
        nonlocal listening
        listening -= 1

    @app.websocket(PATH)
    async def events() -> None:
        nonlocal listening
        exchange = current_exchange()
        if listening >= limit:
            raise TooManyEventSockets(
                f"{so_many(limit, 'client')} {plural(limit, 'listens', 'listen')} to the events already.",
                details={"max_event_sockets": limit},
                remedy="Close one, or raise MAX_EVENT_SOCKETS.",
            )
        listening += 1
        exchange.on_close(leave)
        outbox = Outbox(asyncio.get_running_loop())
        # Before the client hears that it is connected, so that nothing that happens from then on is missed.
        subscription = context.engine.events.subscribe(outbox.put)
        exchange.on_close(subscription.close)
        leave_feed = feed.join(outbox.put)
        exchange.on_close(leave_feed)
        await websocket.accept()
        reading = asyncio.ensure_future(_discard_messages())
        try:
            while True:
                for message in shared.of(*await exchange.wait_for(outbox.take())):
                    await websocket.send(message)
        except ServerStopping as error:
            await websocket.close(GOING_AWAY, error.message)
        except Exception:
            log.exception("the event socket failed")
            await websocket.close(INTERNAL_ERROR, "The server failed.")
        finally:
            subscription.close()
            leave_feed()
            reading.cancel()

    @app.get(PATH)
    @describe(
        "Speaks WebSocket: each message is {event, data}. A plain request is refused.", only_refuses=True, errors=(422,)
    )
    async def plain_request() -> Response:
        raise InvalidParameter(f"{PATH} speaks WebSocket.", remedy="Connect to it with a WebSocket client.")


async def _discard_messages() -> None:
    """Take what the client sends, so that it does not pile up."""
    while True:
        await websocket.receive()
