"""A verifiers environment as it is: `environment = "verifiers"`, `turns.arguments = { id = ... }`.

The environment's own rollout runs in the sample's process, with its own tools, turns and scoring, and asks a model by
itself: here that model is the policy, turn by turn. So nothing of the environment is rebuilt, whatever its class. Both
of the package's interfaces are known: the classic one (`load_environment`, before 0.4) and tasksets (`verifiers.v1`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import importlib.util
import json
import os
from collections.abc import Iterator
from itertools import islice
from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.language.tools.chat_server import Asked, Endpoint
from anygrpo.spoken import Text

_KEY = "ANYGRPO_POLICY"
"""The variable whose value the package sends as a key; it is not looked at."""

SOURCE = "verifiers"
"""Column of a row: {id, arguments} of the environment whose data its `example` is a place in."""

Message = dict[str, Any]


def check_rows(rows: list[Any], given: dict[str, Any]) -> None:
    """What is asked and what is played must be rows of the same data.

    Args:
        given: the recipe's turns.arguments.

    Raises:
        ConfigError: rows of another environment, or of one with other arguments.
    """
    plays = {"id": given.get("id"), "arguments": given.get("arguments") or {}}
    for row in rows:
        asks = row.get(SOURCE, plays) if isinstance(row, dict) else plays
        if asks != plays:
            raise ConfigError(
                Text(
                    f"the task's rows are of the verifiers environment {_named(asks)}, but {_named(plays)} plays them: "
                    "row by row something else would be played than is asked",
                    f"任务的行属于 verifiers 环境 {_named(asks)}，而进行对话的是 {_named(plays)}："
                    "每一行所问与所玩都会不同",
                ),
                Text(
                    "give policy.turns.arguments the same id and arguments as the task",
                    "请给 policy.turns.arguments 与任务相同的 id 和 arguments",
                ),
            )


def _named(source: dict[str, Any]) -> str:
    return f"{source['id']!r} {json.dumps(source['arguments'], ensure_ascii=False, sort_keys=True)}"


class Verifiers:
    """Implements reset and step.

    Args:
        id: of the environment, as the package loads it: an installed package's name, or a module's.
        arguments: classic: of its `load_environment`. Tasksets: the environment's table ({taskset = {...}, agent =
            {...}}); an agent without a harness of its own only talks and calls the task's tools ("null").
    """

    def __init__(self, id: str, arguments: dict[str, Any] | None = None) -> None:
        self.id, self.arguments = id, arguments or {}
        self.endpoint = Endpoint()
        self.seen: list[Message] = []
        self.asked: Asked | None = None
        self.tools: list[Any] | None = None

    @classmethod
    def load_once(cls, id: str, arguments: dict[str, Any] | None = None) -> None:
        """In the process that samples are forked from: data and code are read once."""
        loaded(id, json.dumps(arguments or {}, sort_keys=True))

    async def reset(self, row: dict[str, Any]) -> tuple[list[Message] | None, list[Any]]:
        """The first request's messages, and the tools it offers. The row's `example` is the place in the data."""
        os.environ.setdefault(_KEY, "policy")
        await self.endpoint.open()
        source = loaded(self.id, json.dumps(self.arguments, sort_keys=True))
        self.running = asyncio.ensure_future(source.played(int(row["example"]), self.endpoint.url))
        messages = await self._next()
        if messages is None:
            await self._reward()
            raise RuntimeError("it ended before it asked anything")
        return messages, self.tools or []

    async def step(self, messages: list[Message], calls: list[dict[str, Any]]) -> tuple[Any, float | None, bool]:
        """The policy's turn, given to the environment; what it adds, and at the end its reward."""
        assert self.asked is not None
        said = next(m for m in reversed(messages) if m["role"] == "assistant")
        blank = "" if calls else " "  # an empty answer is the policy's own, and not the failed request it is taken for
        made: Message = {"role": "assistant", "content": said.get("content") or blank}
        if calls:
            made["tool_calls"] = [
                {
                    "id": f"call_{len(self.seen)}_{i}",
                    "type": "function",
                    "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
                }
                for i, call in enumerate(calls)
            ]
        self.seen = [*self.seen, made]
        self.asked.answer.set_result(made)
        more = await self._next()
        return (None, await self._reward(), True) if more is None else (more, None, False)

    async def _next(self) -> list[Message] | None:
        """What the environment's next request adds to all that was said; None where its rollout is over."""
        waiting = asyncio.ensure_future(self.endpoint.requests.get())
        await asyncio.wait({waiting, self.running}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            return None
        self.asked = waiting.result()
        messages, tools = self.asked.body["messages"], self.asked.body.get("tools") or []
        before = len(self.seen)
        if [_told(m) for m in messages[:before]] != [_told(m) for m in self.seen]:
            raise RuntimeError("the environment rewrites what was said before, or holds several conversations")
        if self.tools is not None and tools != self.tools:
            raise RuntimeError("the environment changes its tools on the way")
        self.tools, self.seen = tools, list(messages)
        names = {c["id"]: c["function"]["name"] for m in messages for c in m.get("tool_calls") or ()}
        return [_plain(m, names) for m in messages[before:]]

    async def _reward(self) -> float:
        return await self.running


def _told(message: Message) -> tuple[str, str, list[tuple[str, str]]]:
    """Of a message what must not change: role, text, calls."""
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
    return message["role"], _text(message), calls


def _plain(message: Message, names: dict[str, str]) -> Message:
    """As chat templates take it: text, and a tool's name beside its words."""
    made = {"role": message["role"], "content": _text(message)}
    if message["role"] == "tool":
        made["name"] = names.get(message.get("tool_call_id", ""), "tool")
    return made


def _text(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    if other := {str(part.get("type")) for part in content} - {"text"}:
        raise RuntimeError(f"a message holds {', '.join(sorted(other))}, and only text is understood")
    return "".join(part["text"] for part in content)


# -- the two interfaces of the package ------------------------------------------------------------------------------


@functools.cache
def loaded(id: str, arguments: str) -> Classic | Tasks:
    """The environment, read once.

    Raises:
        ImportError: no such environment, or the package is not installed.
    """
    given = json.loads(arguments)
    root = importlib.import_module("verifiers")
    return Classic(root, id, given) if _is_classic(root, id) else Tasks(id, given)


def _is_classic(root: Any, id: str) -> bool:
    """Whether the environment's module has `load_environment`; from 0.2 to 0.3 the package has both interfaces."""
    name = id.partition("@")[0].rpartition("/")[2].replace("-", "_")
    if not hasattr(root, "load_environment"):
        return False
    with contextlib.suppress(ModuleNotFoundError):  # of the older ones
        if importlib.util.find_spec(f"verifiers.v1.tasksets.{name.lower()}"):
            return False
    return hasattr(importlib.import_module(name), "load_environment")


class Classic:
    """`load_environment(id)` -> an Environment with a data set, a rollout and a rubric."""

    def __init__(self, package: Any, id: str, arguments: dict[str, Any]) -> None:
        self.package = package
        self.environment: Any = package.load_environment(id, **arguments)
        if getattr(self.environment, "requires_group_rollouts", False):
            raise ValueError("its rubric compares the samples of a group, and here each is played by itself")

    def rows(self) -> Iterator[dict[str, Any]]:
        """The training data's rows; `prompt` are messages."""
        yield from self.environment.get_dataset()

    async def played(self, example: int, url: str) -> float:
        """The reward of one rollout of row `example`, in which the model at `url` plays."""
        config = importlib.import_module("verifiers.types").ClientConfig
        client = config(api_base_url=url, api_key_var=_KEY, max_retries=0)
        row = self.environment.get_dataset()[example]
        made = await self.environment.run_rollout(row, client, "policy", {})
        if made.get("error"):
            raise RuntimeError(f"its rollout failed: {made['error']}")
        return float(made["reward"])


class Tasks:
    """`verifiers.v1`: a taskset, the agent that plays it, and rewards of each task."""

    def __init__(self, id: str, arguments: dict[str, Any]) -> None:
        loaders = importlib.import_module("verifiers.v1.utils.loaders")
        table = {**arguments, "taskset": {"id": id, **arguments.get("taskset", {})}}
        if "id" not in table:  # one agent, which stays on this machine
            table["agent"] = {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}} | table.get("agent", {})
        self.environment: Any = loaders.load_environment(loaders.resolve_env_config(table))

    def rows(self) -> Iterator[dict[str, Any]]:
        """The tasks' data, of tasksets without an end at most `MOST`."""
        yield from (task.data.model_dump(mode="json") for task in islice(iter(self.environment.taskset), MOST))

    async def played(self, example: int, url: str) -> float:
        """As `Classic.played`; of several agents see `earned`."""
        v1 = importlib.import_module("verifiers.v1")
        task = next(islice(iter(self.environment.taskset), example, None))
        model = v1.ModelContext(model="policy", client=v1.EvalClientConfig(base_url=url, api_key_var=_KEY))
        async with self.environment.serving():
            episode = await self.environment.run_episode(task, model)
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if errors:
            raise RuntimeError(f"its episode failed: {errors[0].type}: {errors[0].message}")
        return earned(episode.traces)


def earned(traces: list[Any]) -> float:
    """What the agents of an episode earned together: those that are trained, or all where none is. A judge or a user
    that the environment plays itself earns nothing for the policy (the package counts so too)."""
    trained = [trace for trace in traces if trace.agent.trainable]
    return float(sum(trace.reward for trace in trained or traces))


MOST = 100_000
"""Tasks that are read of a taskset without an end."""
