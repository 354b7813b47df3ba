"""What conversations add to `anygrpo check`: may the environment's words, or a player who does nothing, be paid?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anygrpo.core.probe_outcome import Outcome, not_applicable
from anygrpo.language.tasks.answer import Answer, Message
from anygrpo.language.tasks.payment import Paid, inserted_alone, paid_alone
from anygrpo.language.turns.driver import Turns
from anygrpo.spoken import Text

PLAYED = 16
"""Prompts that a player plays."""
ECHO = "anygrpo echo 7193"


def paid_for_environment(subject: Any) -> Outcome:
    """Does the reward pay for words that the environment or a tool wrote, where the policy says nothing? Tried with
    what they said in sampled conversations, and with the right answer as a tool's words."""
    name, config = "paid_for_environment", getattr(subject.policy, "config", None)
    tools: tuple[str, ...] = tuple(getattr(config, "tools", ()))
    if getattr(config, "environment", None) is None and not tools:
        return not_applicable(name, Text("there is no environment and no tool", "没有环境，也没有工具"))
    prompts, said = inserted_alone(subject.answers.prompts, subject.answers.outputs)
    if tools:
        asked, gold = _gold(subject)
        prompts, said = [*prompts, *asked], [*said, *gold]
    if not prompts:
        return not_applicable(name, Text("no sample had a second turn", "没有样本进入第二轮"))
    paid = paid_alone(subject.task, prompts, said)
    echo = [tool for tool in tools if echoes(subject.policy, tool)] if tools else []
    return _judged(name, paid, echo)


def _judged(name: str, paid: Paid, echo: list[str]) -> Outcome:
    if not paid.cases:
        return not_applicable(name, Text("no conversation could be scored so", "没有对话可以这样打分"))
    numbers: dict[str, Any] = {"paid": paid.paid, "cases": paid.cases, "most": paid.most, "echo": ", ".join(echo)}
    if not paid.paid:
        text = Text(
            "in {cases} conversations the environment's words alone earn nothing",
            "{cases} 段对话中，环境的话本身不得分",
        )
        return Outcome(name, "ok", text, numbers=numbers)
    text = Text(
        "in {paid} of {cases} conversations the environment's words alone earn up to {most:.3g}, with a silent policy"
        + ("; the tool {echo} gives back what it is given, so that the policy can write them itself" if echo else ""),
        "{cases} 段对话中有 {paid} 段，策略不说话而环境的话得到至多 {most:.3g} 分"
        + ("；工具 {echo} 会原样返回输入，策略可借此自己写出这些话" if echo else ""),
    )
    cure = Text(
        'judge the policy\'s own text (str(output)), or the messages with by = "policy"',
        '只评策略自己的文本（str(output)），或 by = "policy" 的消息',
    )
    return Outcome(name, "serious", text, cure, numbers, certainty="certain")


def _gold(subject: Any) -> tuple[list[Any], list[list[Message]]]:
    """Prompts whose right answer is known, with it as a tool's words."""
    prompts = subject.task.prompts(0, PLAYED)
    try:
        actions = subject.task.stored(prompts).actions
    except Exception:  # no stored answers
        return [], []
    known = [(p, str(row[0])) for p, row in zip(prompts, actions) if row and str(row[0]).strip()]
    return [p for p, _ in known], [[{"role": "tool", "content": text, "by": "environment"}] for _, text in known]


def echoes(policy: Any, tool: str) -> bool:
    """Whether a tool's text has in it what it was given."""
    made = next((one for one in policy.talk.schemas if one["function"]["name"] == tool.rpartition(":")[2]), None)
    if made is None:
        return False
    properties = made["function"]["parameters"].get("properties", {})
    texts = [key for key, value in properties.items() if value.get("type") == "string"]
    if not texts:
        return False
    filler: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}
    given = {key: ECHO if key in texts else filler.get(value.get("type"), 1) for key, value in properties.items()}
    session = policy.talk.sessions.open()
    answer = session.asked({"op": "call", "calls": [{"name": made["function"]["name"], "arguments": given}]}, 5.0)
    session.close()
    results = answer.get("results", [])
    return bool(results) and not results[0]["failed"] and ECHO in results[0]["text"]


def trivial_players(subject: Any) -> Outcome:
    """Games of players who know nothing: one is silent, one repeats what was last said to it. And is it worth playing?
    A sample that talks until its tokens end has taken no turn, and earns 0."""
    name, talk = "trivial_players", getattr(subject.policy, "talk", None)
    if talk is None or talk.kind != "class":
        return not_applicable(name, Text("there is no environment of rewards", "没有给出奖励的环境"))
    prompts = subject.task.prompts(0, PLAYED)
    shown = _demonstrated(subject, prompts)
    players = PLAYERS | ({"the demonstrations": shown} if shown else {})
    games = {who: played(subject.policy, prompts, speak) for who, speak in players.items()}
    means = {who: sum(earned) / len(earned) for who, earned in games.items() if earned}
    sampled = [a.reward for row in subject.answers.outputs for a in row if isinstance(a, Answer) and a.turns > 1]
    honest = [r for r in sampled if r is not None]
    best = max([*honest, means.pop("the demonstrations", 0.0)], default=0.0)
    below = [r for r in [*honest, *games.get("the demonstrations", [])] if r < 0]
    return _of_players(name, means, best, below, len(prompts))


def _of_players(name: str, means: dict[str, float], best: float, below: list[float], games: int) -> Outcome:
    """The verdict: mean of each player who knows nothing, the best that is known, and games that ended below 0."""
    if not means:
        return not_applicable(name, Text("no game could be played", "没有一局能够进行"))
    who = max(means, key=lambda one: means[one])
    numbers: dict[str, Any] = {"best": best, "games": games, "who": who, "most": means[who]} | means
    numbers |= {"below": len(below), "lowest": min(below, default=0.0)}
    rows = [{"player": w, "mean": m} for w, m in means.items()]
    if means[who] > 0 and means[who] >= 0.9 * best:
        text = Text(
            "a player who is {who} earns {most:.3g} a game; the best known earns {best:.3g}",
            "{who} 的玩家每局得 {most:.3g} 分；已知最好的得 {best:.3g} 分",
        )
        cure = Text(
            "let the environment pay for what only the task's solution does", "让环境只为真正解决任务的行为付分"
        )
        return Outcome(name, "serious", text, cure, numbers, rows)
    if below:
        text = Text(
            "{below} games that are played end below 0 (down to {lowest:.3g}), and a sample that talks until its "
            "tokens end earns 0: not to play pays more",
            "{below} 局正常进行的游戏得分低于 0（最低 {lowest:.3g}），而一直说到 token 用完的样本得 0 分："
            "不玩反而更划算",
        )
        cure = Text(
            "let no game be worth less than 0: pay less for a late success, and nothing for a failure",
            "任何一局都不应低于 0：成功越晚得分越少，失败得 0",
        )
        return Outcome(name, "serious", text, cure, numbers, rows, certainty="certain")
    text = Text(
        "players who know nothing earn at most {most:.3g} a game ({who}); the best known earns {best:.3g}",
        "一无所知的玩家每局至多得 {most:.3g} 分（{who}）；已知最好的得 {best:.3g} 分",
    )
    return Outcome(name, "ok", text, numbers=numbers)


Player = Callable[[int, list[Message]], str]
"""(number of the prompt, all that was said) -> the next turn."""
PLAYERS: dict[str, Player] = {
    "silent": lambda row, said: "",
    "an echo": lambda row, said: next((m["content"] for m in reversed(said) if m["role"] != "assistant"), ""),
}


def _demonstrated(subject: Any, prompts: list[Any]) -> Player | None:
    """A player who says what the demonstrations of these prompts say, in order."""
    try:
        actions = [row[0] if row else "" for row in subject.task.stored(prompts).actions]
    except Exception:  # there are none
        return None
    turns = [[m["content"] for m in a.messages if m["role"] == "assistant"] for a in actions if isinstance(a, Answer)]
    if len(turns) < len(prompts):
        return None

    def speak(row: int, said: list[Message]) -> str:
        taken = sum(m.get("by") == "policy" for m in said)
        return turns[row][taken] if taken < len(turns[row]) else ""

    return speak


def played(policy: Any, prompts: list[Any], speak: Player) -> list[float]:
    """What a player earns in each game that pays anything."""
    turns = Turns(policy.talk, prompts, 1, 1 << 20)
    over = [bool(one.fault) for one in turns.held]
    while not all(over):
        rows = [row for row, done in enumerate(over) if not done]
        for row in rows:
            one = turns.held[row]
            turns.speak(row, speak(row, [*one.first, *one.messages]))
        for row, reply in turns.settle(rows, None).items():
            over[row] = not reply.tokens
    for one in turns.held:
        turns.close(one)
    games = [Answer(one.messages, one.rewards).reward for one in turns.held if not one.fault]
    return [game for game in games if game is not None]
