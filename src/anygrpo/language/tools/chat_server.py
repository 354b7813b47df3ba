"""A chat endpoint of this process, for programs that ask a model by themselves (OpenAI's chat completions): a request
is handed to whoever plays the model, and answered with what it says. Standard library only."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

_HEAD = 1 << 16


@dataclass
class Asked:
    """A request: its JSON, and where the answer (an assistant message) is put."""

    body: dict[str, Any]
    answer: asyncio.Future[dict[str, Any]]


class Endpoint:
    """Attributes: url: what a client takes as its base URL. requests: those that nobody has taken yet."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: asyncio.Queue[Asked] = asyncio.Queue()

    async def open(self) -> None:
        """Listen on a free port of this machine alone."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ", 2)[1]
            lines = [line.partition(":") for line in head.split("\r\n")[1:]]
            length = next((int(value) for name, _, value in lines if name.lower() == "content-length"), 0)
            body = json.loads(await reader.readexactly(length) or b"{}")
            if path.endswith("/chat/completions"):
                asked = Asked(body, asyncio.get_running_loop().create_future())
                await self.requests.put(asked)
                made = _completion(body, await asked.answer)
                self._write(writer, 200, *(_streamed(made) if body.get("stream") else _whole(made)))
            else:
                self._write(writer, 404, *_whole({"error": {"message": f"{path}: only chat completions are answered"}}))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _write(self, writer: asyncio.StreamWriter, status: int, kind: str, body: bytes) -> None:
        head = (
            f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)


def _completion(body: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": "policy", "object": "chat.completion", "created": 0, "model": str(body.get("model", "policy")),
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }  # fmt: skip


def _whole(value: dict[str, Any]) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode()


def _streamed(made: dict[str, Any]) -> tuple[str, bytes]:
    """All of it as one event, for clients that want a stream."""
    choice = made["choices"][0]
    delta = dict(choice["message"])
    if calls := delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(calls)]
    base = {"id": made["id"], "object": "chat.completion.chunk", "created": 0, "model": made["model"]}
    parts = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {**base, "choices": [], "usage": made["usage"]},
    ]
    text = "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n"
    return "text/event-stream", text.encode()
