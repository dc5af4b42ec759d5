"""Fields nobody uses: reported in a header, refused in strict mode, their values logged nowhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from http.client import HTTPConnection

import http_sf
import pytest

from engine.actions.models.importing import import_local_model
from engine.engine import Engine
from tests.conftest import CheckpointMaker
from tests.contract.conftest import Live, chat_body

IGNORED = "X-miLLM-Ignored-Fields"


def test_an_unknown_field_is_named(live: Live) -> None:
    assert live.chat(foo=1).headers[IGNORED] == '"foo"'  # A041
    assert live.text(foo=1).headers[IGNORED] == '"foo"'
    assert live.chat(foo=1).json().keys() == live.chat().json().keys()


def test_several_in_order(live: Live) -> None:
    messages = [{"role": "user", "content": "hi", "name": "Ann"}]
    response = live.chat(zeta=1, messages=messages, alpha={"beta": 1})  # A044
    assert response.headers[IGNORED] == '"zeta", "alpha", "messages[0].name"'
    assert len(response.headers.get_list(IGNORED)) == 1
    raw = json.dumps(chat_body()).replace("{", '{"zeta": 1, "alpha": 2, "zeta": 3, ', 1)
    with live.http() as client:
        twice = client.post("/v1/chat/completions", content=raw, headers={"Content-Type": "application/json"})
    assert twice.headers[IGNORED] == '"zeta", "alpha"'  # A044: no duplicates


def test_user_is_reported_and_strict_refuses_it(live: Live) -> None:
    assert live.chat(user="ann").headers[IGNORED] == '"user"'  # A046
    refused = live.chat(user="ann", headers={"X-miLLM-Strict": "true"})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "unused_fields_refused"


def test_strict_names_every_location(live: Live) -> None:
    messages = [{"role": "user", "content": "hi", "name": "Ann"}]
    refused = live.chat(foo=1, bar=2, messages=messages, headers={"X-miLLM-Strict": "true"})
    error = refused.json()["error"]  # A049
    assert error["param"] == "foo"
    assert all(location in error["message"] for location in ("foo", "bar", "messages[0].name"))


@pytest.mark.parametrize("value", ["1", "TRUE"])
def test_words_for_strict(live: Live, value: str) -> None:
    assert live.chat(foo=1, headers={"X-miLLM-Strict": value}).status_code == 400  # A050
    assert live.chat(headers={"X-miLLM-Strict": value}).status_code == 200


def test_space_around_the_word_for_strict(live: Live) -> None:
    # Other clients do not send it.
    connection = HTTPConnection("127.0.0.1", live.port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps(chat_body(foo=1)), {"X-miLLM-Strict": " true "})
    assert connection.getresponse().status == 400  # A050
    connection.close()


def test_words_against_strict(live: Live) -> None:
    assert live.chat(foo=1, headers={"X-miLLM-Strict": "false"}).status_code == 200
    refused = live.chat(headers={"X-miLLM-Strict": "yes"})  # A052
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "invalid_parameter"
    assert refused.json()["error"]["param"] == "X-miLLM-Strict"


def test_names_that_would_break_a_header(live: Live) -> None:
    response = live.chat(**{'a"b\\c': 1, "x\r\nX-Evil: 1": 1, "naïve": 1})
    assert response.headers[IGNORED] == '"a\\"b\\\\c", "x%0D%0AX-Evil: 1", "na%C3%AFve"'  # A053, A055
    assert "x-evil" not in response.headers


def test_five_hundred_names(live: Live) -> None:
    response = live.chat(**{f"unknown_{i}": i for i in range(500)})  # A056
    value = response.headers[IGNORED]
    assert len(value) <= 1024
    members = [member[0] for member in http_sf.parse(value.encode(), tltype="list")]
    assert members[:2] == ["unknown_0", "unknown_1"]
    assert members[-1] == f"+{500 - (len(members) - 1)} more"


def test_the_log_has_locations_and_no_values(live: Live, caplog: pytest.LogCaptureFixture) -> None:
    secret = "xyzzy-secret-value"
    with caplog.at_level(logging.DEBUG, "server"):
        live.chat(
            user=secret,
            metadata={"k": secret},
            messages=[{"role": "user", "content": secret, "name": secret}],
            stop=[secret],
        )
        live.chat(user=secret, temperature=9, stop=[[secret]])
        live.wait_idle()
    lines = "\n".join(record.getMessage() for record in caplog.records)
    assert 'request_fields_unused endpoint=chat fields="user", "metadata", "messages[0].name"' in lines  # A058
    assert secret not in lines


def test_a_refusal_never_loads_the_named_model(
    own_engine: Callable[..., Engine], serve: Callable[..., Live], checkpoint: CheckpointMaker
) -> None:
    engine = own_engine(checkpoint("llama"))
    import_local_model(engine.library, engine.events, checkpoint("qwen2"))
    live = serve(engine)
    strict = live.chat(model="tiny-qwen2", foo=1, headers={"X-miLLM-Strict": "true"})  # A061
    field = live.chat(model="tiny-qwen2", tools=[{}])
    malformed = live.chat(model="tiny-qwen2", temperature=9)
    assert [r.status_code for r in (strict, field, malformed)] == [400, 400, 400]
    assert engine.shelf.resident is not None
    assert engine.shelf.resident.record.name == "tiny-llama"
    assert engine.shelf.loading is None


def test_a_variable_the_template_never_reads_is_named(live: Live) -> None:
    response = live.chat(foo=1, chat_template_kwargs={"nonsense": 1}, enable_thinking=False)
    assert response.headers[IGNORED] == '"foo", "chat_template_kwargs.nonsense", "enable_thinking"'
    refused = live.chat(chat_template_kwargs={"nonsense": 1}, headers={"X-miLLM-Strict": "true"})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "unused_fields_refused"
    assert refused.json()["error"]["param"] == "chat_template_kwargs.nonsense"
