"""What all conversations of a policy share: its tools, its environment, and how calls are written."""

from __future__ import annotations

from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.language.prompts import Prompts
from anygrpo.language.settings import CausalLMConfig
from anygrpo.language.tools.formats import READERS, Read, found
from anygrpo.language.tools.replies import WANTED, Fault
from anygrpo.language.tools.schema import schemas_of
from anygrpo.language.tools.sessions import Sessions
from anygrpo.language.tools.verifiers import check_rows
from anygrpo.language.turns.held import unfit
from anygrpo.scoring.outcome import FirstCall, Unfit
from anygrpo.spoken import Text


class Talk:
    """Attributes:
    sessions: where tools and environment run. schemas: of the recipe's tools.
    name: of the environment, in its file. kind: "class" or "function" of the environment, None where there is none.
    first: whether the environment works at all. begins: it has begun a conversation well.
    format: how calls are written; None where there are no tools.
    """

    def __init__(self, config: CausalLMConfig, prompts: Prompts) -> None:
        self.config, self.prompts, self.turns = config, prompts, config.turns
        self.sessions = Sessions(config.tools, config.environment, config.turns)
        self.kind = self.sessions.check()
        self.name = (config.environment or "").rpartition(":")[2]
        named = Text(f"the environment {config.environment}", f"环境 {config.environment}")
        self.first = FirstCall(named, WANTED["step"])
        self.begins = False
        self._tools: dict[str, FirstCall] = {}
        self._told: dict[str, list[Unfit | None]] = {}
        self.schemas = schemas_of(config.tools)
        self.names = {one["function"]["name"] for one in self.schemas}
        self.format: str | None = None
        if self.schemas or self.kind == "class":
            self.format = self._format()
            prompts.equip(self.schemas)

    @staticmethod
    def of(config: CausalLMConfig, prompts: Prompts) -> Talk | None:
        """None where a completion is one turn.

        Raises:
            ConfigError: tools or an environment that cannot be loaded; a call format that is not known.
        """
        return Talk(config, prompts) if config.tools or config.environment is not None else None

    def check(self, prompts: list[Any]) -> None:
        """Raises: ConfigError where the environment would play other rows than these."""
        if self.config.environment == "verifiers":
            check_rows(prompts, self.turns.arguments)

    def used(self, tool: str, fault: Fault | None) -> None:
        """A tool was called; `fault` is what it returned that no model can read."""
        self._told.setdefault(tool, []).append(None if fault is None else unfit(fault))

    def check_tools(self) -> None:
        """After a rollout's conversations.

        Raises:
            ConfigError: a tool has returned at every call what no model can read.
        """
        told, self._told = self._told, {}
        for tool, outcomes in told.items():
            self._tools.setdefault(tool, FirstCall(Text(f"the tool {tool}", f"工具 {tool}"), WANTED["tool"])).see(
                outcomes
            )

    def _format(self) -> str:
        """As named, or as the template writes a call; hermes where it knows none."""
        own = found(self.prompts.render_as_is) if self.prompts.chat else None
        if own is None and self.prompts.knows_tools() and self.turns.format == "auto":
            raise ConfigError(
                Text(
                    "the chat template writes calls in a form that is not known here", "对话模板写调用的格式此处不认识"
                ),
                Text(
                    f"name it: turns.format = one of {', '.join(READERS)}",
                    f"请指名：turns.format 为 {', '.join(READERS)} 之一",
                ),
            )
        return self.turns.format if self.turns.format != "auto" else own or "hermes"

    def read(self, ids: list[int]) -> Read:
        """(the text of a turn without its calls, its calls)."""
        if self.format is None:
            return self.prompts.text(ids), []
        text, calls = READERS[self.format](self.prompts.full(ids))
        return (text, calls) if calls else (self.prompts.text(ids), [])

    def message(self, ids: list[int]) -> dict[str, Any]:
        """A turn of the policy as a message, calls parsed."""
        text, calls = self.read(ids)
        made: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            made["tool_calls"] = [{**call.message(), **({"fault": call.fault} if call.fault else {})} for call in calls]
        return made
