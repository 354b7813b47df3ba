"""What every text task shares: scoring, held-out accuracy, stored answers."""

from __future__ import annotations

from typing import Any

from anygrpo.core.task import Scores, Stored, Success, Task
from anygrpo.errors import ConfigError, suggestion
from anygrpo.language.task_settings import TextTaskConfig
from anygrpo.language.tasks.answer import Answer
from anygrpo.language.tasks.messages import SYSTEM, Messages, clean_prompt, with_system
from anygrpo.language.tasks.payment import inserted_alone, paid_alone
from anygrpo.scoring.attacks import Tried
from anygrpo.scoring.build import build_rewards
from anygrpo.scoring.reward import Attackable, Reward
from anygrpo.scoring.scorer import Handle, Scorer, flatten
from anygrpo.scoring.workers import Pool
from anygrpo.spoken import Text

Prompt = dict[str, Any]
"""{"prompt": text or messages, column: value, ...}."""

FULL_MARKS = 1.0 - 1e-6

TRIED = 8
"""Held-out conversations of which the environment's words are scored alone."""


def in_context(config: TextTaskConfig, prompt: str | Messages) -> str | Messages:
    """The prompt with the task's system message and worked examples before it; unchanged where it has neither."""
    if not config.system and not config.examples:
        return prompt
    turns = [
        {"role": role, "content": text}
        for example in config.examples
        for role, text in (("user", example.question), ("assistant", example.answer))
    ]
    asked: Messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    # A system message of the row's own stays the only one, and first.
    own = [m for m in asked if m["role"] in SYSTEM]
    return with_system(config.system, [*own, *turns, *(m for m in asked if m["role"] not in SYSTEM)])


class TextTask(Task):
    """Subclasses give `prompts` and `held_out`, and call `judge_by` once their rewards exist.

    `score` never outlives its rewards' time-outs and raises for no bad sample, only for a reward that is broken;
    `score_async` is the same in the background.
    """

    demonstration = "answer"
    """The column that holds gold answers."""

    def __init__(self, config: TextTaskConfig, seed: int) -> None:
        self.seed = seed
        self.pool = Pool(config.workers, config.worker_memory_mb)
        self._evaluation_rewards, self._judged = config.evaluation_rewards, set[str]()
        self._scored: tuple[list[Prompt], list[list[str]], Scores] | None = None

    def judge_by(self, rewards: list[Reward], accuracy: str | None) -> None:
        """Score by `rewards`, and held-out prompts by the evaluation's rewards where the recipe has them; count
        eval/accuracy by the one called `accuracy`, or the first that judges correctness.

        Raises:
            ConfigError: no reward of that name, or an evaluation reward that cannot work.
        """
        self.scorer = Scorer(rewards)
        if self._evaluation_rewards:
            held_out: list[Prompt] = self.held_out()
            columns = {key for prompt in held_out for key in prompt} - {"prompt"}
            rewards = build_rewards(self._evaluation_rewards, self.pool, columns)
            self._judged = {str(prompt["prompt"]) for prompt in held_out}
        self.evaluation_scorer = Scorer(rewards) if self._evaluation_rewards else self.scorer
        names = [reward.name for reward in rewards]
        if accuracy is not None and accuracy not in names:
            raise ConfigError(
                Text(
                    f"accuracy = {accuracy!r} names no reward; {suggestion(accuracy, names)}",
                    f"accuracy = {accuracy!r} 不是任何奖励的名称；{suggestion(accuracy, names)}",
                )
            )
        judges = [reward.name for reward in rewards if reward.judges]
        self.accuracy = accuracy or (judges[0] if judges else None)
        lowest = self.evaluation_scorer.lowest
        self.lowest_reward = 0.0 if lowest is None else lowest
        self.success = None if self.accuracy is None else Success(self.accuracy, FULL_MARKS)

    def score(self, prompts: list[Prompt], outputs: list[list[str]]) -> Scores:
        scorer = self._scorer_of(prompts)
        scores = scorer.score(prompts, outputs)
        scorer.check()
        self._scored = (prompts, outputs, scores)
        return scores

    def score_async(self, prompts: list[Prompt], outputs: list[list[str]]) -> Handle:  # type: ignore[override]
        """Start scoring in the background; `.result()` waits for the scores."""
        return self._scorer_of(prompts).score_async(prompts, outputs, check=True)

    def _scorer_of(self, prompts: list[Prompt]) -> Scorer:
        """The evaluation's for held-out prompts, which are never trained on."""
        evaluates = bool(self._judged) and all(str(prompt["prompt"]) in self._judged for prompt in prompts)
        return self.evaluation_scorer if evaluates else self.scorer

    def measure(self, prompts: list[Prompt], outputs: list[list[str]]) -> dict[str, float]:
        """{"eval/accuracy": share of outputs with full marks}, of conversations "eval/turns" too. An output that could
        not be scored counts as wrong. Outputs that `score` has just seen are not scored again.
        """
        talks = [answer for row in outputs for answer in row if isinstance(answer, Answer)]
        known = self._scored  # before anything else is scored
        turns = self._of_conversations(prompts, outputs, talks) if talks else {}
        if self.accuracy is None or not outputs:
            return turns
        seen = known is not None and known[0] == prompts and known[1] == outputs
        scores = known[2] if known and seen else self.score(prompts, outputs)
        assert scores.valid is not None
        marks = scores.components[self.accuracy]
        asked = ~(scores.valid & marks.isnan())  # where that reward does not apply, it says nothing
        right = (marks >= FULL_MARKS) & scores.valid
        return turns | ({"eval/accuracy": right[asked].float().mean().item()} if bool(asked.any()) else {})

    def _of_conversations(
        self, prompts: list[Prompt], outputs: list[list[str]], talks: list[Answer]
    ) -> dict[str, float]:
        """How many turns there were, and whether the environment's words alone earn something."""
        made = {"eval/turns": sum(answer.turns for answer in talks) / len(talks)}
        asked, said = inserted_alone(prompts, outputs)
        if said and (paid := paid_alone(self, asked[:TRIED], said[:TRIED])).cases:
            made["eval/environment_paid"] = paid.share
        return made

    def attacked(self, prompts: list[Prompt]) -> list[Tried]:
        """What attacks and constant answers earn from these prompts' tests, where a reward runs generated code."""
        rows = flatten(prompts, [[""] for _ in prompts], [(p, 0) for p in range(len(prompts))])
        attackable = [reward for reward in self.scorer.rewards if isinstance(reward, Attackable)]
        return [one for reward in attackable for one in reward.attacked(rows)]

    def stored(self, prompts: list[Prompt]) -> Stored:
        """Candidates with their rewards where the prompts have a column "candidates", else gold answers.

        Raises:
            ConfigError: neither exists for any of these prompts.
        """
        if any(prompt.get("candidates") for prompt in prompts):
            rows = [prompt.get("candidates") or [] for prompt in prompts]
            texts = [[candidate["text"] for candidate in row] for row in rows]
            if not all("reward" in candidate for row in rows for candidate in row):
                return Stored(actions=texts)
            return Stored(texts, rewards=[[float(candidate["reward"]) for candidate in row] for row in rows])
        gold = [_gold(prompt.get(self.demonstration)) for prompt in prompts]
        if all(answer is None for answer in gold):
            raise ConfigError(
                Text(
                    f"these prompts have neither gold answers (column {self.demonstration!r}) nor candidates",
                    f"这些提示既没有标准答案（{self.demonstration!r} 列），也没有候选",
                ),
                Text(
                    "a supervised or RCE stage needs one of them; a grpo stage with source = 'policy' does not",
                    "监督或 RCE 阶段需要其中之一；source = 'policy' 的 grpo 阶段不需要",
                ),
            )
        return Stored(actions=[[] if answer is None else [answer] for answer in gold])

    def close(self) -> None:
        """Stop the reward workers."""
        self.scorer.close()
        if self.evaluation_scorer is not self.scorer:
            self.evaluation_scorer.close()
        self.pool.close()


def _gold(answer: Any) -> str | None:
    """A demonstration: a text, the first of a list of them, or a conversation (messages from the assistant's on)."""
    if isinstance(answer, list) and answer and isinstance(answer[0], dict):
        made = clean_prompt(answer, "a demonstration")
        who = {"assistant": "policy"}
        return Answer([{**m, "by": who.get(m["role"], "environment")} for m in made if isinstance(m, dict)])
    answer = answer[0] if isinstance(answer, list) and answer else answer
    return None if answer is None else str(answer)
