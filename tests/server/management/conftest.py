"""A running server over a real socket, on an engine of the test's own, and clients for both of its doors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from server.config import ServerSettings
from server.thread import ServerThread
from tests.conftest import EngineMaker
from tests.contract.conftest import start_engine, stop_engine
from tests.made_saes import make_sae
from tests.server.management.sockets import EventSocket

READY_S = 30.0


class Api:
    """An HTTP client that knows the envelope."""

    def __init__(self, base: str) -> None:
        self.http = httpx.Client(base_url=base, timeout=120)

    def ok(self, method: str, path: str, body: Any = None, *, status: int = 200, **options: Any) -> Any:
        """The data of an answer that must be a success."""
        response = self.call(method, path, body, **options)
        envelope = response.json()
        assert response.status_code == status, envelope
        assert envelope.keys() == {"success", "data", "error"}, envelope
        assert envelope["success"] is True and envelope["error"] is None, envelope
        return envelope["data"]

    def refused(
        self, status: int, code: str, method: str, path: str, body: Any = None, **options: Any
    ) -> dict[str, Any]:
        """The error of an answer that must be this refusal."""
        response = self.call(method, path, body, **options)
        envelope = response.json()
        assert response.status_code == status, envelope
        assert envelope.keys() == {"success", "data", "error"}, envelope
        assert envelope["success"] is False and envelope["data"] is None, envelope
        error: dict[str, Any] = envelope["error"]
        assert error.keys() == {"code", "message", "details"}
        assert error["code"] == code, error
        assert error["message"]
        return error

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """One request; ``body`` is sent as JSON, bytes as they are."""
        if isinstance(body, bytes):
            options["content"] = body
        elif body is not None:
            options["json"] = body
        return self.http.request(method, path, **options)


@dataclass(frozen=True)
class House:
    """An engine, its server and a client."""

    engine: Engine
    thread: ServerThread
    api: Api

    @property
    def port(self) -> int:
        address = self.thread.address
        assert address is not None
        return int(address.removesuffix("/v1").rsplit(":", 1)[1])

    def socket(self, path: str = "/api/events", **options: Any) -> EventSocket:
        """A connection to the event socket."""
        return EventSocket(self.port, path, **options)


Serve = Callable[..., House]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that serves an engine; settings of the server may be given."""
    with _servers() as start:
        yield start


@contextmanager
def _servers() -> Iterator[Serve]:
    houses: list[House] = []

    def start(engine: Engine, **settings: Any) -> House:
        thread = ServerThread(engine, ServerSettings(**{"PORT": 0, **settings}))
        thread.start()
        address = thread.wait_ready(READY_S)
        houses.append(House(engine, thread, Api(address.removesuffix("/v1"))))
        return houses[-1]

    yield start
    for house in houses:
        house.api.http.close()
        house.thread.stop(5)
        assert house.thread.state == "stopped"


@pytest.fixture
def bare(make_engine: EngineMaker, serve: Serve) -> House:
    """A server whose engine has an empty library: no model, no SAE."""
    return serve(make_engine(None))


@pytest.fixture(scope="session")
def sae_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two made-up SAEs on disk: ``a`` for layer 1, ``b`` for layer 2."""
    root = tmp_path_factory.mktemp("saes")
    return {"a": make_sae(root / "a", layer=1), "b": make_sae(root / "b", layer=2, seed=1)}


@pytest.fixture
def stocked(bare: House, sae_folders: dict[str, Path]) -> House:
    """As ``bare``, with both SAEs in the library, not measured."""
    return stock(bare, sae_folders)


@pytest.fixture
def loaded(stocked: House, tiny_checkpoint: Path) -> House:
    """As ``stocked``, with the tiny model loaded."""
    return load(stocked, tiny_checkpoint)


@pytest.fixture
def steered(loaded: House) -> House:
    """As ``loaded``, with both SAEs attached, ``a`` first."""
    return attach(loaded)


@pytest.fixture(scope="session")
def shared(
    tmp_path_factory: pytest.TempPathFactory, sae_folders: dict[str, Path], tiny_checkpoint: Path
) -> Iterator[House]:
    """As ``steered``, for the whole session: for tests that only ask what is refused."""
    engine = start_engine(None, tmp_path_factory.mktemp("shared") / "millm.db")
    with _servers() as start:
        yield attach(load(stock(start(engine), sae_folders), tiny_checkpoint))
    stop_engine(engine)


def stock(house: House, folders: dict[str, Path]) -> House:
    for sae_id, folder in folders.items():
        house.engine.saes.import_local(folder, sae_id=sae_id)
    return house


def load(house: House, checkpoint: Path) -> House:
    record = import_local_model(house.engine.library, house.engine.events, checkpoint)
    house.engine.loader.load(record.id).result(120)
    return house


def attach(house: House) -> House:
    house.engine.attachments.attach_set([("a", None), ("b", None)])
    return house
