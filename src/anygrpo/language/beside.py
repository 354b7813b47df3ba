"""A language model's second sampler: it generates beside the updates of the first, by weights of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from anygrpo.errors import ConfigError
from anygrpo.language.conversation import Conversations
from anygrpo.language.engine.builtin import BuiltinEngine
from anygrpo.language.turns.talk import Talk
from anygrpo.spoken import Text

if TYPE_CHECKING:
    from anygrpo.language.policy import CausalLM

_CURE = Text(
    "set training.max_staleness = 0; training.off_policy_steps = 1 samples one step ahead",
    "请设 training.max_staleness = 0；training.off_policy_steps = 1 提前一步采样",
)


def check(policy: CausalLM) -> None:
    """Raises: ConfigError where there can be no second sampler."""
    if not isinstance(policy.engine, BuiltinEngine) or policy.scorer.device.type != "cpu":
        where = f'engine = "{policy.config.engine}" on {policy.scorer.device}'
        raise ConfigError(
            Text(
                f"training.max_staleness needs the built-in engine on a CPU, found {where}",
                f"training.max_staleness 需要 CPU 上的内置引擎，现为 {where}",
            ),
            _CURE,
        )


def turns_of(policy: CausalLM) -> tuple[Callable[[], AbstractContextManager[None]], Callable[[], int] | None]:
    """(what to be in while others are waited for, what to call between two tokens: it gives the weights' version)."""
    turnstile = policy.turnstile
    if turnstile is None:
        return nullcontext, None

    def between() -> int:
        turnstile.give_way()
        return policy.version

    return turnstile.outside, between


def second_sampler(policy: CausalLM, prompts: list[Any]) -> CausalLM:
    """A sampler with merged weights, a tokenizer, tools and environments of its own. Weights may change between two of
    its tokens; keys and values of earlier ones stay, and log-probs are those that sampled.

    Raises:
        ConfigError: see `check`; or its log-probs are not the training pass's, and nothing corrects for that.
    """
    check(policy)
    if policy.trust_sampler is None:
        policy.sample(prompts[:1], 2, seed=0)
    if not (policy.trust_sampler or policy.corrects):
        raise ConfigError(
            Text(
                f"sampler and training pass differ by {policy.parity or 0:.2g} nats, and with training.max_staleness "
                "samples are not scored again by the weights that drew them",
                f"采样器与训练时的计算相差 {policy.parity or 0:.2g} nat，而使用 training.max_staleness 时，"
                "样本不会由采样它们的权重重新评分",
            ),
            Text('set algorithm.importance = "truncate"', '请设 algorithm.importance = "truncate"'),
        )
    made = copy.copy(policy)
    made.prompts = copy.deepcopy(policy.prompts)
    made.conversations, made.talk = Conversations(made.prompts), Talk.of(policy.config, made.prompts)
    if made.talk is not None:
        made.conversations.read = made.talk.message
    try:
        model = policy.weights.another_sampler()
    except Exception as error:  # whatever a model does when it is made without memory
        name, fault = type(policy.weights.base).__name__, f"{type(error).__name__}: {error}"
        what = Text(f"a second {name} cannot be made: {fault}", f"无法再构造一个 {name}：{fault}")
        raise ConfigError(what, _CURE) from error
    assert isinstance(policy.engine, BuiltinEngine)
    made.engine = policy.engine.with_model(model, policy.engine.dtype, made.prompts.text)
    made.held = made.trust_sampler = True
    made.follow(policy)
    return made
