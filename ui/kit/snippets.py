"""Ready-made snippets for other programs, filled with the real address, model and key. Pure text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlsplit

NO_KEY = "not-needed"


@dataclass(frozen=True)
class Snippet:
    """One way to connect: the tab's title, a sentence, and the text to copy."""

    title: str
    hint: str
    text: str


def snippets(address: str, model: str, key: str | None = None) -> list[Snippet]:
    """For the openai SDK, curl, Open WebUI and LangChain.

    Args:
        address: The base URL that ends in ``/v1``.
        key: The API key the server asks for, None where it asks for none.
    """
    shown = key or NO_KEY
    python = f'''from openai import OpenAI

client = OpenAI(
    base_url="{address}", api_key={_quoted(shown)}
)
answer = client.chat.completions.create(
    model={_quoted(model)},
    messages=[{{"role": "user", "content": "Hello!"}}],
)
print(answer.choices[0].message.content)'''
    body = f"""{{
    "model": {_quoted(model)},
    "messages": [{{"role": "user", "content": "Hello!"}}]
  }}"""
    bearer = f"  -H {_in_shell(f'Authorization: Bearer {key}')} \\\n" if key else ""
    curl = f"""curl {address}/chat/completions \\
  -H "Content-Type: application/json" \\
{bearer}  -d {_in_shell(body)}"""
    langchain = f'''from langchain_openai import ChatOpenAI

llm = ChatOpenAI(
    base_url="{address}",
    api_key={_quoted(shown)},
    model={_quoted(model)},
)
print(llm.invoke("Hello!").content)'''
    return [
        Snippet("Python", "Anything that speaks OpenAI's API will do; this is the openai package.", python),
        Snippet("curl", "From a terminal, to see that it answers.", curl),
        Snippet(
            "Open WebUI",
            "In Open WebUI: Settings → Admin → Connections → OpenAI API, then paste these two. "
            "Where Open WebUI runs in Docker, use the second address. It offers tools with every chat; a model whose "
            "template has none answers without them, and the list of requests says so.",
            f"Address   {address}\nIn Docker {_for_docker(address)}\nKey       {shown}",
        ),
        Snippet("LangChain", "The package langchain-openai takes any base URL.", langchain),
    ]


def _quoted(text: str) -> str:
    """As a string of Python and of JSON, whatever letters a name has."""
    return json.dumps(text, ensure_ascii=False)


def _in_shell(text: str) -> str:
    """As one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _for_docker(address: str) -> str:
    parts = urlsplit(address)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://host.docker.internal{port}{parts.path}"
