"""An OpenEnv server as an environment, as it is: `environment = "openenv"`, `turns.arguments = { url = ... }`.

Runs in the samples' processes. The package openenv-core speaks to the server; each sample has a session of its own.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

ACT = "act"
"""The tool whose arguments are the environment's action."""


class OpenEnv:
    """Implements reset and step.

    Args:
        url: of the server, http://host:port.
        field: the action's field that holds what the model says. Without it, the model calls the tool "act", whose
            arguments are the action as the server describes it.
        columns: columns of the data that are given to the server's reset (seed, episode_id ...).
        seconds: longest wait for the server.
    """

    def __init__(
        self, url: str, field: str | None = None, columns: tuple[str, ...] = (), seconds: float = 60.0
    ) -> None:
        from openenv.core import GenericEnvClient  # pyright: ignore[reportMissingImports]

        self.url, self.field, self.columns, self.seconds = url.rstrip("/"), field, columns, seconds
        self.client = GenericEnvClient(base_url=self.url, message_timeout_s=seconds)
        self.done = False

    async def reset(self, row: dict[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
        """What the server shows first, after the row's prompt; and the tool."""
        await self.client.connect()
        result = await self.client.reset(**{name: row[name] for name in self.columns if name in row})
        tools = [] if self.field else [{"name": ACT, "description": "Acts.", "parameters": self._action()}]
        return _words(result.observation), tools

    async def step(self, messages: list[dict[str, Any]], calls: list[dict[str, Any]]) -> tuple[Any, float | None, bool]:
        """The action of the last turn; of several calls all in order, as long as it goes on."""
        if self.field:
            actions = [{self.field: messages[-1]["content"]}]
        elif not calls:
            return f"Call {ACT}.", None, False
        else:
            actions = [call["arguments"] for call in calls]
        said, reward = [], None
        for action in actions:
            if self.done:
                break
            result = await self.client.step(action)
            self.done = bool(result.done)
            reward = result.reward if reward is None else reward + (result.reward or 0.0)
            said.append(_words(result.observation))
        if self.field:
            return said[-1], reward, self.done
        return [{"role": "tool", "name": ACT, "content": text} for text in said], reward, self.done

    def _action(self) -> dict[str, Any]:
        """The action's JSON schema."""
        with urllib.request.urlopen(f"{self.url}/schema", timeout=self.seconds) as answer:
            schema = json.loads(answer.read())["action"]
        own = {name: what for name, what in schema.get("properties", {}).items() if name != "metadata"}
        return {"type": "object", "properties": own, "required": [n for n in schema.get("required", []) if n in own]}


def _words(observation: Any) -> str:
    """An observation as the model reads it: the text of its only text, else JSON."""
    if not isinstance(observation, dict):
        return str(observation)
    told = {k: v for k, v in observation.items() if k not in ("metadata", "done", "reward") and v is not None}
    if len(told) == 1 and isinstance(next(iter(told.values())), str):
        return next(iter(told.values()))
    return json.dumps(told, ensure_ascii=False, default=str)
