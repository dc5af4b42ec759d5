"""Routes that profiles, clusters and circuits have alike: they differ in the words, the types and whom they ask.

What only looks alike stays apart: a circuit's activation wants acknowledgements, a profile's export has an envelope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from quart import Quart, Response

from server.context import ServerContext
from server.management.envelope import bare, success
from server.management.validation import Body, NoQuery, read_json, read_nothing, read_query
from server.openapi.describe import describe

B = TypeVar("B", bound=Body)


class Kept(Protocol):
    """Actions on things that are kept under an id."""

    def get(self, key: str, /) -> Any:
        """One of them."""
        ...

    def delete(self, key: str, /) -> Any:
        """Delete it; one in force is taken out of force first."""
        ...

    def deactivate(self, key: str, /) -> Any:
        """Take it out of force."""
        ...

    def export(self, key: str, /) -> Any:
        """Its document."""
        ...


class AlikeRoutes:
    """Adds the routes of one kind (``cluster``, ``circuit``, ``profile``) to ``app``, one at a call."""

    def __init__(self, app: Quart, context: ServerContext, kind: str, actions: Kept) -> None:
        self._app = app
        self._context = context
        self._kind = kind
        self._actions = actions
        self._all = f"/api/{kind}s"
        self._one = f"/api/{kind}s/<{kind}_id>"

    def one(self, answer: Any) -> None:
        """``GET`` of one."""
        kind, context, actions = self._kind, self._context, self._actions

        @self._app.get(self._one, endpoint=kind)
        @describe(f"One {kind}.", query=NoQuery, data=answer, errors=(404,))
        async def get_one(**path: str) -> Response:
            read_query(NoQuery)
            return success(await context.quick(lambda: actions.get(*path.values())))

    def delete(self, answer: Any, *, errors: tuple[int, ...] = (404,)) -> None:
        """``DELETE`` of one."""
        kind, context, actions = self._kind, self._context, self._actions

        @self._app.delete(self._one, endpoint=f"delete_{kind}")
        @describe(f"Delete a {kind}; an active one is deactivated first.", query=NoQuery, data=answer, errors=errors)
        async def delete_one(**path: str) -> Response:
            read_query(NoQuery)
            return success(await context.manage(lambda: actions.delete(*path.values())))

    def deactivate(self, answer: Any) -> None:
        """``POST …/deactivate``."""
        kind, context, actions = self._kind, self._context, self._actions

        @self._app.post(f"{self._one}/deactivate", endpoint=f"deactivate_{kind}")
        @describe(f"Take a {kind} out of force.", query=NoQuery, data=answer, errors=(404, 409))
        async def deactivate_one(**path: str) -> Response:
            read_query(NoQuery)
            await read_nothing(context)
            return success(await context.manage(lambda: actions.deactivate(*path.values())))

    def export(self) -> None:
        """``GET …/export``: the document, bare."""
        kind, context, actions = self._kind, self._context, self._actions

        @self._app.get(f"{self._one}/export", endpoint=f"export_{kind}")
        @describe("The author's document, as it came.", query=NoQuery, answer=dict[str, Any], errors=(404,))
        async def export_one(**path: str) -> Response:
            read_query(NoQuery)
            return bare(await context.quick(lambda: actions.export(*path.values())))

    def dial(self, body: type[B], answer: Any, turn: Callable[[str, B], object]) -> None:
        """``PUT …/intensity`` of one."""
        kind, context = self._kind, self._context

        @self._app.put(f"{self._one}/intensity", endpoint=f"set_{kind}_intensity")
        @describe(f"Set a {kind}'s dial.", query=NoQuery, body=body, data=answer, errors=(400, 404, 409))
        async def set_intensity(**path: str) -> Response:
            read_query(NoQuery)
            (key,) = path.values()
            asked = await read_json(context, body)
            return success(await context.manage(lambda: turn(key, asked)))

    def active_dial(self, body: type[B], answer: Any, turn: Callable[[B], object]) -> None:
        """``PUT /active/intensity``, of the one in force."""
        kind, context = self._kind, self._context

        @self._app.put(f"{self._all}/active/intensity", endpoint=f"set_active_{kind}_intensity")
        @describe(f"Set the active {kind}'s dial.", query=NoQuery, body=body, data=answer, errors=(400, 404, 409))
        async def set_active_intensity() -> Response:
            read_query(NoQuery)
            asked = await read_json(context, body)
            return success(await context.manage(lambda: turn(asked)))
