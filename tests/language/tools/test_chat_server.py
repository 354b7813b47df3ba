"""The chat endpoint of a process: what is asked is handed over, what is said goes back, whole or as a stream."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from anygrpo.language.tools.chat_server import Endpoint

CALL = {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def asked(path, body):
    """The text of the answer to a request, made in a thread while the loop plays the model."""

    async def both():
        endpoint = Endpoint()
        await endpoint.open()

        def request():
            url = endpoint.url + path
            with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())) as answer:
                return answer.headers["Content-Type"], answer.read().decode()

        running = asyncio.get_running_loop().run_in_executor(None, request)
        if path == "/chat/completions":
            one = await endpoint.requests.get()
            assert one.body == body
            one.answer.set_result({"role": "assistant", "content": "hm", "tool_calls": [CALL]})
        return await running

    return asyncio.run(both())


def test_a_request_is_answered_with_what_the_policy_says():
    kind, text = asked("/chat/completions", {"model": "policy", "messages": [{"role": "user", "content": "é"}]})
    assert kind == "application/json"
    choice = json.loads(text)["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "hm", "tool_calls": [CALL]}
    assert choice["finish_reason"] == "tool_calls"


def test_a_stream_holds_the_same():
    kind, text = asked("/chat/completions", {"messages": [], "stream": True})
    assert kind == "text/event-stream"
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    first, second, _ = map(json.loads, events[:-1])
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "hm", "tool_calls": [{"index": 0, **CALL}]}
    assert second["choices"][0]["finish_reason"] == "tool_calls"


def test_other_paths_are_not_answered():
    with pytest.raises(urllib.error.HTTPError, match="404"):
        asked("/embeddings", {})
