"""A change that has to wait for another holds nobody else up, and ends with its client and with the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.actions.models.importing import import_local_model
from server.context import MANAGEMENT_THREADS
from tests.server.management.conftest import Api, House
from tests.server.management.test_steering import generate
from tests.waiting import wait_until

WAITING = MANAGEMENT_THREADS + 4


@contextmanager
def somebody_changes(house: House) -> Iterator[None]:
    """The lock under which steering is managed is held by someone else."""
    with house.engine.steering_lock:
        yield


def ask(house: House, answers: list[Any], feature: int) -> threading.Thread:
    def call() -> None:
        api = Api(str(house.api.http.base_url))
        answers.append(api.call("POST", "/api/saes/steering", {"feature_idx": feature, "value": 1}))
        api.http.close()

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def workers() -> set[threading.Thread]:
    """Threads that make changes; a server starts one for each change until it has enough of them."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("server-management")}


def test_others_are_answered_meanwhile(steered: House) -> None:
    answers: list[Any] = []
    with somebody_changes(steered):
        threads = [ask(steered, answers, feature) for feature in range(WAITING)]
        # More often than there are threads for reads.
        for _ in range(WAITING):
            assert steered.api.ok("GET", "/api/saes/attachments")["count"] == 2
            assert steered.api.ok("GET", "/api/profiles")["total"] == 0
        assert steered.api.ok("GET", "/api/monitoring")["sae_attached"] is True
        assert generate(steered)[1] == "none"
        assert answers == []
    for thread in threads:
        thread.join(60)
    assert [answer.status_code for answer in answers] == [200] * WAITING
    assert len(steered.api.ok("GET", "/api/saes/steering")["values"]) == WAITING


def test_they_end_with_the_server(steered: House) -> None:
    answers: list[Any] = []
    with somebody_changes(steered):
        others = workers()
        threads = [ask(steered, answers, feature) for feature in range(MANAGEMENT_THREADS)]
        wait_until(lambda: len(workers() - others) == MANAGEMENT_THREADS, "every change to have begun")
        with steered.socket() as events:
            steered.thread.stop(5)
            assert steered.thread.state == "stopped"
            assert events.wait_closed() == 1001
        for thread in threads:
            thread.join(60)
    codes = {answer.json()["error"]["code"] for answer in answers}
    assert codes == {"SERVER_STOPPING"}
    assert {answer.status_code for answer in answers} == {503}


def test_loads_are_heard(stocked: House, tiny_checkpoint: Any) -> None:
    with stocked.socket() as events:
        record = import_local_model(stocked.engine.library, stocked.engine.events, tiny_checkpoint)
        events.wait_for("models:changed")
        stocked.engine.loader.load(record.id).result(120)
        assert events.wait_for("model:load:progress", model_id=record.id)["progress"] >= 0  # A296
        assert events.wait_for("model:load:complete")["model_id"] == record.id
