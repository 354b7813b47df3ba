"""The conversations of one rollout, each at its own pace: a turn is begun, its tools and environment work beside, and
what they say is put after the policy's tokens."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.language.generation import Generation, Reply
from anygrpo.language.tasks.answer import Message
from anygrpo.language.tasks.pictures import references
from anygrpo.language.tools.formats import Call
from anygrpo.language.tools.replies import Unfit as UnfitReply
from anygrpo.language.tools.sessions import wait_for
from anygrpo.language.turns.held import HEAD, Held, as_asked, call_of, said_by_environment, unfit, unsigned, why
from anygrpo.language.turns.opening import encoded, opened, told
from anygrpo.language.turns.talk import Talk
from anygrpo.scoring.outcome import Broken, Raised, Unfit
from anygrpo.spoken import Text

_GLANCE = 0.5
"""Seconds after which whoever waits looks whether it still should."""


class Turns:
    """Implements `generation.Turn`.

    Args:
        records: P prompt records. group_size: G; row p G + g belongs to record p.
        limit: tokens of a completion at most.
        outside: entered while a tool or an environment is waited for, so that others may work.
    """

    def __init__(
        self,
        talk: Talk,
        records: list[Any],
        group_size: int,
        limit: int,
        outside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.talk, self.limit, self.config, self._outside = talk, limit, talk.turns, outside
        self._unpaid = 0.0 if talk.kind == "class" else None  # a turn that was cut off is worth 0, not unknown
        self.patience, self._lock = talk.turns.patience, threading.Lock()
        self.records = [r if isinstance(r, dict) else {"prompt": r} for r in records]
        self.held = [Held(r, []) for r in self.records for _ in range(group_size)]
        if talk.kind == "class":
            self._reset(group_size)
        for i, one in enumerate(self.held):
            if not one.fault:
                one.first = talk.prompts.messages(self.records[i // group_size])

    # -- the beginning -----------------------------------------------------------------------------------------------

    def _reset(self, group_size: int) -> None:
        """A new environment for each sample; a group's must begin alike, for its samples to be compared."""
        for one in self.held:
            self._ask(one, {"op": "reset", "row": one.row})
        for p, record in enumerate(self.records):
            group = self.held[p * group_size : (p + 1) * group_size]
            begun = [self._begun(one) for one in group]
            good = [b for b in begun if b is not None]
            if any(b != good[0] for b in good[1:]):
                name = f"{self.talk.name}.reset"
                raise TrainingError(
                    Text(
                        f"{name} begins samples of one prompt differently, so that they cannot be compared",
                        f"{name} 使同一提示的样本开头不同，它们无法比较",
                    ),
                    Text("let reset(row) depend on the row alone", "请使 reset(row) 只取决于行"),
                )
            if good:
                self.records[p] = opened(self.talk, record, *good[0])

    def _begun(self, one: Held) -> tuple[Any, Any] | None:
        """(messages, tools) of a reset environment, None where it failed."""
        answer = self._waited(one)
        if "error" in answer:
            self._end(one, why(answer))
            return None
        messages, tools = answer["messages"], answer["tools"]
        if isinstance(messages, dict | list):
            try:
                messages = said_by_environment(messages, f"{self.talk.name}.reset", "reset")
            except UnfitReply as error:
                self._end(one, unfit(error.fault, HEAD))
                return None
            messages = unsigned(messages)
        one.own = frozenset(answer["run"])
        return messages, tools

    def ids(self) -> list[list[int]]:
        """Of each record's prompt, as the policy is given it."""
        size = len(self.held) // max(1, len(self.records))
        groups = [self.held[p * size : (p + 1) * size] for p in range(len(self.records))]
        return encoded(self.talk, self.records, groups, self.limit)

    def begun(self) -> list[Any]:
        """The prompts as environments begin them, for answers that are given; nothing is held on to."""
        for one in self.held:
            self.close(one)
            if isinstance(one.fault, Unfit):
                wanted = one.fault.wanted
                raise ConfigError(one.fault, Text(f"it has to return {wanted}", f"应当返回：{wanted}"))
            if one.fault:
                raise TrainingError(one.fault, Text("mend the environment", "请修正环境"))
        return self.records

    # -- a turn ------------------------------------------------------------------------------------------------------

    def start(self, row: int, ids: list[int]) -> None:
        """The policy has ended a turn of this row; `ids` are all of its completion."""
        with self._lock:
            self._take(self.held[row], ids, self.talk.message(ids[self.held[row].seen :]))

    def speak(self, row: int, text: str) -> None:
        """A turn that is given as a text, without tokens: of players that are no policy."""
        self._take(self.held[row], [], {"role": "assistant", "content": text})

    def _take(self, one: Held, ids: list[int], message: Message) -> None:
        one.ids, one.reply, one.said, one.theirs, one.asked = ids, None, [], [], ""
        message = {**message, "by": "policy"}
        one.messages, one.seen = [*one.messages, message], len(ids)
        one.rewards.append(self._unpaid)
        if one.fault:
            return self._over(one)
        calls = [call_of(c) for c in message.get("tool_calls", ())]
        mine = [c for c in calls if c.fault or self.talk.kind != "class" or c.name in self.talk.names | one.own]
        one.theirs = [c for c in calls if c not in mine]
        last = one.turns >= self.talk.config.max_turns
        one.calls += len(calls)
        if last and self.talk.kind != "class":
            return self._over(one)
        if mine and not last:
            return self._call(one, mine)
        return self._speak(one)

    def _call(self, one: Held, calls: list[Call]) -> None:
        one.ran = calls
        good = as_asked([c for c in calls if not c.fault])
        if not good:
            return self._called(one, {"results": []})
        one.asked = "call"
        self._ask(one, {"op": "call", "calls": good})

    def _called(self, one: Held, answer: dict[str, Any]) -> None:
        """What tools gave, as messages; faults of a call and of a tool are told to the model."""
        if answer.get("ended") and self.talk.kind == "class":
            return self._end(one, f"environment: {answer['error']}")
        failed = {"text": f"error: {answer.get('error')}", "failed": True}
        results = iter(answer.get("results", ()))
        for number, call in enumerate(one.ran):
            made = {"text": f"error: {call.fault}", "failed": True} if call.fault else next(results, failed)
            if not call.fault:
                self.talk.used(call.name, made.get("unfit"))
            one.failed += bool(made["failed"])
            message = {"role": "tool", "name": call.name, "content": made["text"], "by": "environment"}
            one.said.append(message | {"tool_call_id": f"call{one.turns:03d}{number:02d}"})
        if self.talk.kind == "class" and one.theirs:
            return self._speak(one)
        return self._put(one)

    def _speak(self, one: Held) -> None:
        """The environment's turn, where there is one."""
        if self.talk.kind is None:
            return self._over(one)
        given = unsigned([*one.first, *one.messages, *one.said])
        if self.talk.kind == "function":
            one.asked = "speak"
            return self._ask(one, {"op": "speak", "messages": given, "row": one.row})
        one.asked = "step"
        return self._ask(one, {"op": "step", "messages": given, "calls": as_asked(one.theirs)})

    def _spoken(self, one: Held, answer: dict[str, Any]) -> None:
        if "error" in answer:
            return self._end(one, why(answer))
        reward = answer.get("reward")
        if reward is not None and not math.isfinite(reward):
            return self._end(one, f"{HEAD}{self.talk.name}.step gave a reward of {reward}")
        if reward is not None:
            one.rewards[-1] = reward
        if given := answer["messages"]:
            by = self.talk.name + ".step" * (one.asked == "step")
            try:
                one.said += said_by_environment(given, by, one.asked)
            except UnfitReply as error:
                return self._end(one, unfit(error.fault, HEAD))
            if references(one.said):
                return self._end(one, f"{HEAD}it shows a picture after the beginning; only reset may show some")
        one.heard = True
        over = answer["done"] or one.turns >= self.talk.config.max_turns or not one.said
        return self._over(one) if over else self._put(one)

    def _put(self, one: Held) -> None:
        """The next turn's tokens, where they leave room for an answer."""
        calls = one.messages[-1].get("tool_calls") if one.ran or one.theirs else None
        tokens = self.talk.prompts.next_turn(one.said, calls)
        if any(token in self.talk.prompts.never for token in tokens):
            return self._end(one, f"{HEAD}its words hold the mark of a picture")
        if len(one.ids) + len(tokens) >= self.limit:
            one.reply = Reply([], ended=False)
            return self.close(one)
        one.messages = [*one.messages, *one.said]
        one.seen += len(tokens)
        one.ran, one.reply = [], Reply(tokens, ended=True)
        return None

    # -- waiting -----------------------------------------------------------------------------------------------------

    def settle(self, rows: list[int], seconds: float | None, one: bool = False) -> dict[int, Reply]:
        """Replies of those rows that have one: waits for all of them (or for `one`), at most `seconds`."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            with self._lock:  # tokenizers are not for several threads
                for row in rows:
                    self._advance(self.held[row])
            done = {row: reply for row in rows if (reply := self.held[row].reply) is not None}
            left = None if end is None else end - time.monotonic()
            if len(done) == len(rows) or (one and done) or (left is not None and left <= 0):
                return done
            waiting = [s for row in rows if row not in done and (s := self.held[row].session) is not None]
            with self._outside():
                wait_for(waiting, _GLANCE if left is None else min(left, _GLANCE))

    def _advance(self, one: Held) -> None:
        while one.reply is None and one.session is not None:
            answer = one.session.answer()
            if answer is None:
                return
            self._answered(one, answer)
            if one.spent > self.config.seconds and not one.fault:
                self._end(one, f"environment: took more than {self.config.seconds:g} s in all")
            elif one.asked == "call":
                self._called(one, answer)
            else:
                self._spoken(one, answer)

    def _ask(self, one: Held, request: dict[str, Any]) -> None:
        if one.session is None:
            one.session = self.talk.sessions.open()
        one.session.ask(request, self.config.timeout)

    def _answered(self, one: Held, answer: dict[str, Any]) -> None:
        assert one.session is not None
        one.spent += one.session.spent
        one.session.spent = 0.0
        if answer.get("ended"):
            one.session = None

    def _waited(self, one: Held) -> dict[str, Any]:
        assert one.session is not None
        while (answer := one.session.answer()) is None:
            with self._outside():
                wait_for([one.session], _GLANCE)
        self._answered(one, answer)
        return answer

    # -- the end -----------------------------------------------------------------------------------------------------

    def _over(self, one: Held) -> None:
        one.messages = [*one.messages, *one.said]
        one.said, one.reply = [], Reply([], ended=True)
        self.close(one)

    def _end(self, one: Held, fault: str) -> None:
        whole = fault if isinstance(fault, Raised | Unfit) else Broken(fault)
        one.fault, one.reply = whole, Reply([], ended=True)
        self.close(one)

    def close(self, one: Held) -> None:
        if one.session is not None:
            one.session.close()
            one.session = None

    def abandon(self) -> None:
        """Nobody will ask for these conversations: their processes end."""
        for one in self.held:
            self.close(one)

    def finish(self, made: Generation) -> list[Held]:
        """Every row's conversation, with what a turn that was cut off had said.

        Raises:
            TrainingError, ConfigError: the environment failed in every one of its first conversations.
        """
        self.talk.first.see(told(self.talk, self.held))
        self.talk.check_tools()
        for one, row, length in zip(self.held, made.ids.tolist(), made.lengths.tolist()):
            ids = row[:length]
            self.close(one)
            if len(ids) > one.seen:
                one.messages = [*one.messages, {**self.talk.message(ids[one.seen :]), "by": "policy"}]
                one.rewards.append(self._unpaid)
        return self.held
