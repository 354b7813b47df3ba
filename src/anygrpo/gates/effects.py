"""What each gate does: to the output, to the reward, and how much better the best of its draws is than its mean."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from anygrpo.gates.choosing import Drawing
from anygrpo.gates.distributions import middle
from anygrpo.gates.policy import StochasticPolicy
from anygrpo.gates.sites import Choose
from anygrpo.spoken import Text

EVERY = "all"
"""Name of the row for all sites drawn together."""
LITTLE = 0.02
"""Headroom below this share of the reward's spread over pictures is lost beside the next supervised steps' noise."""
UNCHANGED = 1e-7
"""Largest change of an output that is rounding: below, the site's value reaches nothing."""
NARROW = 1e-3
"""Draws of a prompt nearer than this, in parts of the value, are one value: what another would do is not known."""


_DEAD: dict[str, Any] = {
    "status": "warning",
    "sentence": Text(
        "dead gates: {dead}. No drawn value changes the output of these prompts",
        "失效门控：{dead}。在这些样本上，任何取值都不改变输出",
    ),
    "cure": Text(
        "look at what its value goes through: a rounding that gives 0 at this size of crop (h // 128 x rate), "
        "a factor of 0, a branch that is not taken; or leave it out of policy.sites",
        "查看取值之后的计算：该裁剪尺寸下取整为 0（h // 128 × rate）、乘以 0、未执行的分支；或从 policy.sites 去掉",
    ),
    "certainty": "certain",
}

_IDLE: dict[str, Any] = {
    "status": "warning",
    "sentence": Text(
        "gates that change the output and not the reward: {idle}",
        "改变输出但不改变奖励的门控：{idle}",
    ),
    "cure": Text(
        "a wider distribution (spread, concentration), or a reward that sees what they change",
        "更宽的分布（spread、concentration），或能反映其变化的奖励",
    ),
}

_SETTLED: dict[str, Any] = {
    "status": "warning",
    "sentence": Text(
        "gates that drew one value alone: {settled}. What another value would do is not known",
        "只抽到一个取值的门控：{settled}。其他取值的作用未知",
    ),
    "cure": Text(
        "none where training has settled them; before training, a wider distribution (spread, concentration)",
        "若训练已使其收敛则无需处理；若在训练之前，请加宽分布（spread、concentration）",
    ),
}

_LITTLE: dict[str, Any] = {
    "status": "warning",
    "sentence": Text(
        "little to choose: the best of the draws is worth {headroom:+.2g} reward, while pictures differ by "
        "{between:.2g} (output in /255: {names}); z-scores will make a full step of it all the same",
        "几乎没有可选：抽样中最好的只值 {headroom:+.2g} 奖励，而图像之间相差 {between:.2g}"
        "（输出变化，/255：{names}）；z 分数仍会把它放大成完整的一步",
    ),
    "cure": Text(
        "gates at another place, or wider (spread, concentration); a warm-up that draws them, so that the body "
        "obeys; or supervision alone",
        "换门控位置或加宽分布（spread、concentration）；用抽样门控预热，使主体服从门控；或只用监督",
    ),
}

_FINE: dict[str, Any] = {
    "status": "ok",
    "sentence": Text(
        "all {sites} gates act (output in /255: {names}); best draws gain most with {best}: {headroom:+.3g} reward",
        "全部 {sites} 个门控有效（输出变化，/255：{names}）；抽样最优增益最大的是 {best}：奖励 {headroom:+.3g}",
    ),
}


def effects(
    policy: StochasticPolicy, task: Any, prompts: list[Any], draws: int = 8, seed: int = 0, together: bool = True
) -> list[dict[str, Any]]:
    """One row a site, and (if `together`) one for all of them together ("all").

    For each, that site alone is drawn `draws` times a prompt, the others at the policy's mean or mode:

    - effect: mean absolute change of the output against all gates at their mean (or mode); in /255 for pictures;
    - value_std: standard deviation of the site's value inside a prompt, mean over its numbers;
    - reward_std: standard deviation of the reward inside a prompt: what GRPO compares;
    - headroom: the best draw's reward above the deterministic one's, mean over prompts (best of `draws`);
    - mean_gain: the mean draw's reward above it: below 0, draws cost what the mean would have;
    - between: standard deviation of the deterministic reward over prompts (0 for one);
    - settled: every prompt drew one value alone, so what another would do is not known;
    - dead: different values were drawn, and none changed the output of any prompt.
    """
    base = policy.rollout_with(prompts, 1, lambda name, d: middle(d, policy.mode))
    names = [k.removeprefix("site/") for k in base.samples if k.startswith("site/")]
    plain = [row[0] for row in policy.decode(base.samples)]
    start = task.score(prompts, [[x] for x in plain]).rewards[:, 0]
    rows = []
    for name in [*names, *([EVERY] if together and len(names) > 1 else [])]:
        with policy.seeded(seed):
            drawn = policy.rollout_with(prompts, draws, _alone(name, policy.mode))
        outputs = policy.decode(drawn.samples)
        rewards = task.score(prompts, outputs).rewards
        row = _row(name, drawn.samples, plain, outputs, start, rewards)
        rows.append({"site": name, "between": float(start.std()) if len(start) > 1 else 0.0} | row)
    return rows


PROMPTS, DRAWS, MOST = 4, 4, 16
"""Of an evaluation's measurement: as dear as a few steps. A network with more sites is left to `anygrpo check`."""


def numbers_of(policy: StochasticPolicy, task: Any) -> dict[str, float]:
    """Of each site, on training prompts: the effect, the reward's spread and the headroom by `effects`, by metric.

    Nothing of a site that drew one value alone.
    """
    prompts = task.prompts(0, PROMPTS)
    sites = [k for k in policy.greedy(prompts[:1]).samples if k.startswith("site/")]
    if len(sites) > MOST:
        return {}
    rows = [r for r in effects(policy, task, prompts, DRAWS, together=False) if not r["settled"]]
    return {f"restoration/gate_{k}/{r['site']}": 0.0 if r["dead"] else r[k] for r in rows for k in MEASURED}


MEASURED = ("effect", "reward_std", "headroom")


def _alone(name: str, mode: str) -> Choose:
    drawing = Drawing()

    def choose(site: str, distribution: Distribution) -> Tensor:
        return drawing(site, distribution) if name in (site, EVERY) else middle(distribution, mode)

    return choose


def _row(
    name: str, samples: Any, plain: list[Tensor], outputs: list[list[Tensor]], start: Tensor, rewards: Tensor
) -> dict[str, Any]:
    changes = torch.stack([torch.stack([(x - a).abs().mean() for x in row]) for a, row in zip(plain, outputs)]).cpu()
    largest = max(float((x - a).abs().max()) for a, row in zip(plain, outputs) for x in row)
    value = samples.get(f"site/{name}")
    spread = float(value.float().std(1).mean()) if value is not None else float("nan")
    drawn = [x for key, x in samples.items() if key == f"site/{name}" or (name == EVERY and key.startswith("site/"))]
    settled = not any(map(_differs, drawn))
    return {
        "effect": 255 * float(changes.mean()),
        "value_std": spread,
        "reward_std": float(rewards.std(1).mean()),
        "headroom": float((rewards.amax(1) - start).mean()),
        "mean_gain": float((rewards.mean(1) - start).mean()),
        "settled": settled,
        "dead": largest <= UNCHANGED and not settled,
    }


def _differs(values: Tensor) -> bool:
    """Whether the draws [P, G, ...] of any prompt differ among themselves. Against the base alone a settled coin would
    differ too: its mean is a probability, its draws are 1."""
    low, high = values.float().aminmax(dim=1)
    return bool(((high - low) > NARROW * torch.maximum(low.abs(), high.abs())).any())


def told(rows: list[dict[str, Any]], trained: bool = False) -> dict[str, Any]:
    """The rows as an outcome of `anygrpo check`: status, sentences, cure, numbers. `trained`: the network has been
    supervised already, so what its draws cannot gain now they will hardly gain later."""
    sites = [r for r in rows if r["site"] != EVERY]
    dead = [r["site"] for r in sites if r["dead"]]
    settled = [r["site"] for r in sites if r["settled"]]
    idle = [r["site"] for r in sites if not r["dead"] and not r["settled"] and r["reward_std"] <= 1e-9]
    best = max(sites, key=lambda r: r["headroom"])
    numbers: dict[str, Any] = {
        "sites": len(sites),
        "dead": ", ".join(dead),
        "idle": ", ".join(idle),
        "settled": ", ".join(settled),
        "best": best["site"],
        "headroom": max(r["headroom"] for r in rows),
        "between": best["between"],
        "reward_std": max(r["reward_std"] for r in sites),
        "names": ", ".join(f"{r['site']} {r['effect']:.2g}" for r in sites),
    }
    if dead:
        return _DEAD | {"status": "serious" if len(dead) == len(sites) else "warning", "numbers": numbers}
    if idle:
        return _IDLE | {"numbers": numbers}
    if len(settled) == len(sites):
        return _SETTLED | {"numbers": numbers}
    if trained and numbers["headroom"] < LITTLE * best["between"]:
        return _LITTLE | {"numbers": numbers}
    if settled:
        return _SETTLED | {"numbers": numbers}
    return _FINE | {"numbers": numbers}


def probe(subject: Any) -> dict[str, Any] | None:
    """For `anygrpo check`: None for other policies."""
    if not isinstance(subject.policy, StochasticPolicy):
        return None
    prompts = subject.answers.prompts[:8]
    rows = effects(subject.policy, subject.task, prompts)
    return told(rows, bool(getattr(subject.run.recipe.policy, "model", None))) | {"rows": rows}
