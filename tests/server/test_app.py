"""What the app does with an exception nobody foresaw: a 500 in the right shape that says nothing of its insides."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from engine.config import EngineSettings
from engine.engine import Engine
from engine.library.database import Library
from server.app import context_of, create_app
from server.config import ServerSettings


@pytest.mark.parametrize("path", ["/v1/broken", "/api/broken"])
def test_an_unforeseen_exception(tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str) -> None:
    library = Library.open(tmp_path / "millm.db")
    app = create_app(Engine(EngineSettings(), library), ServerSettings())

    @app.get(path)
    async def broken() -> str:
        raise ZeroDivisionError("an inside nobody should see")

    async def ask() -> tuple[int, dict[str, object]]:
        response = await app.test_client().get(path, headers={"Host": "localhost"})
        return response.status_code, await response.get_json()

    with caplog.at_level(logging.ERROR, "server"):
        status, body = asyncio.run(ask())
    context_of(app).close()
    library.close()
    message = "The server failed while answering this request. The log file has the full report."
    assert status == 500
    if path.startswith("/v1"):
        assert body == {"error": {"message": message, "type": "server_error", "param": None, "code": "server_error"}}
    else:
        assert body == {
            "success": False,
            "data": None,
            "error": {"code": "SERVER_ERROR", "message": message, "details": {}},
        }
    assert any(record.exc_info for record in caplog.records)
