"""Stored selections as a rollout, and whose log-probabilities their ratio divides by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from anygrpo.core.rollout import Rollout
from anygrpo.core.task import Stored
from anygrpo.errors import ConfigError
from anygrpo.selection.changes import ndcg, regret
from anygrpo.selection.prompts import content_key, picks_of
from anygrpo.selection.settings import SelectorConfig
from anygrpo.spoken import Text


def padded(prompts: list[Any], stored: Stored, shots: int, stop: bool) -> tuple[Tensor, Tensor]:
    """Ragged lists of selections -> picks [P, G, K] and valid [P, G]; a short list repeats its first selection,
    marked invalid. A prompt without any gets an arbitrary choosable one, invalid too."""
    group = max(1, max(len(actions) for actions in stored.actions))
    rows, valid = [], []
    for prompt, actions in zip(prompts, stored.actions):
        own = [picks_of(prompt, action, shots, stop) for action in actions]
        filler = own[0] if own else picks_of(prompt, [_any_choosable(prompt)], shots, stop)
        rows.append(own + [filler] * (group - len(own)))
        valid.append([True] * len(own) + [False] * (group - len(own)))
    return torch.tensor(rows), torch.tensor(valid)


def _any_choosable(prompt: dict[str, Any]) -> int:
    excluded = set(prompt.get("excluded", ()))
    return next(i for i in range(len(prompt["candidates"])) if i not in excluded)


def with_behaviour(
    rollout: Rollout,
    prompts: list[Any],
    stored: Stored,
    valid: Tensor,
    config: SelectorConfig,
    met: dict[tuple[int, tuple[int, ...]], Tensor],
) -> Rollout:
    """The rollout with stored rewards and components, the asked-for behaviour log-probabilities, and what can be
    said of the present policy from these actions alone (`offline/...`).

    Raises:
        ConfigError: behaviour = "stored" with actions that have no propensity, or with single picks as decisions.
    """
    valid = valid.to(rollout.valid.device)
    info = support(rollout, stored, valid) | {"offline/padding": float((~valid).double().mean())}
    log_probs = rollout.log_probs
    if config.behaviour == "stored":
        log_probs = _propensities(stored, valid, config)
    elif config.behaviour == "first":
        log_probs = _first_met(rollout, prompts, met)
    return replace(
        rollout,
        log_probs=log_probs,
        valid=rollout.valid & valid,
        rewards=_pad(stored.rewards, valid) if stored.rewards is not None else rollout.rewards,
        components={name: _pad(part, valid) for name, part in stored.components.items()},
        info=info,
    )


def _pad(ragged: list[list[float]], valid: Tensor) -> Tensor:
    out = torch.zeros(valid.shape)
    for p, row in enumerate(ragged):
        out[p, : len(row)] = torch.tensor(row, dtype=torch.float32)
    return out.to(valid.device)


def _propensities(stored: Stored, valid: Tensor, config: SelectorConfig) -> Tensor:
    if config.decision == "pick":
        raise ConfigError(
            Text(
                'behaviour = "stored" needs log-probabilities of what is clipped, but files hold '
                "those of whole selections "
                'and decision = "pick"',
                'behaviour = "stored" 需要每次裁剪单位的对数概率，但文件中的是整个选择的，而 decision = "pick"',
            ),
            Text('set policy.decision = "sequence"', '请设 policy.decision = "sequence"'),
        )
    given = stored.log_probs or [[None] * len(row) for row in stored.actions]
    missing = sum(x is None for row in given for x in row)
    if missing:
        raise ConfigError(
            Text(
                f"{missing} of {int(valid.sum())} stored selections have no behaviour log-probability (beams and "
                "retrieval are deterministic: an importance weight for them does not exist)",
                f"{int(valid.sum())} 个存好的选择中有 {missing} 个没有行为对数概率（束搜索与检索是确定的："
                "没有相应的重要性权重）",
            ),
            Text(
                'set task.methods = ["sample"] and task.propensities = true, or policy.behaviour = "current"',
                '请设 task.methods = ["sample"] 和 task.propensities = true，或 policy.behaviour = "current"',
            ),
        )
    return _pad([[float(x) for x in row if x is not None] for row in given], valid)[..., None]


def _first_met(rollout: Rollout, prompts: list[Any], met: dict[tuple[int, tuple[int, ...]], Tensor]) -> Tensor:
    out = rollout.log_probs.clone()
    for p, (prompt, row) in enumerate(zip(prompts, rollout.samples["chosen"].tolist())):
        key = content_key(prompt)
        for g, action in enumerate(row):
            out[p, g] = met.setdefault((key, tuple(action)), rollout.log_probs[p, g].clone())
    return out


def support(rollout: Rollout, stored: Stored, valid: Tensor) -> dict[str, float]:
    """What stored actions tell about the present policy, by its own exact probabilities of them.

    offline/coverage: mean probability that the policy picks one of a query's stored selections.
    offline/value: mean reward the policy gets when it does (self-normalised; queries without mass left out).
    offline/ess: mean over queries of (sum w)^2 / sum w^2 with w those probabilities: how many stored selections
    the estimate really rests on.
    offline/ndcg_5, offline/regret: how well the policy's probabilities rank a query's candidates by reward (means).
    """
    total = rollout.log_probs.sum(-1).double().exp() * valid
    distinct = _first_of_each(rollout.samples["chosen"]) & valid
    weight = total * distinct
    mass = weight.sum(-1)
    out = {"offline/coverage": mass.mean().item()}
    seen = mass > 0
    if seen.any():
        out["offline/ess"] = (mass[seen] ** 2 / (weight[seen] ** 2).sum(-1)).mean().item()
        if stored.rewards is not None:
            value = (weight * _pad(stored.rewards, valid).double()).sum(-1)
            out["offline/value"] = (value[seen] / mass[seen]).mean().item()
            out |= _ranking(rollout.log_probs.sum(-1).tolist(), stored.rewards)
    return out


def _ranking(log_probs: list[list[float]], rewards: list[list[float]]) -> dict[str, float]:
    ranked = [(row[: len(own)], own) for row, own in zip(log_probs, rewards) if own]
    gains = [ndcg(row, [r - min(own) for r in own], 5) for row, own in ranked]
    losses = [regret(row, own) for row, own in ranked]
    return {"offline/ndcg_5": sum(gains) / len(gains), "offline/regret": sum(losses) / len(losses)}


def _first_of_each(chosen: Tensor) -> Tensor:
    """[P, G] bool: not a repetition of an earlier selection of the same prompt."""
    same = (chosen[:, :, None] == chosen[:, None, :]).all(-1)
    return ~same.tril(-1).any(-1)
