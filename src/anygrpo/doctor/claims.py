"""What a note claims, one by one: holds, does not hold, cannot be told. Each is arithmetic on its own numbers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from anygrpo.doctor.argument import Autopsy
from anygrpo.spoken import Text

Answer = Literal["holds", "fails", "open"]
ANSWERS: dict[Answer, Text] = {
    "holds": Text("holds", "成立"),
    "fails": Text("does not hold", "不成立"),
    "open": Text("cannot be told", "无法判定"),
}


BLAME = (
    r"问题|异常|不对|错|故障|不正常|学不到|没有学习|说明|导致|原因|正常|wrong|fault|bug|problem|broken|because|normal"
    r"|expected|should|symptom|cause"
)
"""Words that make a number of a note a complaint."""


KNOB = r"learning[_ ]rate|\blr\b|学习率|\bKL\b|\bbeta\b|KL[_ ]?(?:beta|权重|系数)"
TURNED = (
    r"降低|减小|调小|减半|缩小|降到|改小|提高|增大|加大|调大|增加|过大|太大|过高|太高|过小|太小|不足|lower|reduc|decreas|smaller|halve"
    r"|increas|raise|larger|higher|more|too (?:large|high|small|low)"
)
"""What is turned, and how: a cure that a note proposes or a cause that it names."""


@dataclass(frozen=True)
class Claim:
    """One claim: what was said, the answer, and why."""

    said: str
    answer: Answer
    why: Text


def judge_claims(a: Autopsy, text: str = "") -> list[Claim]:
    """Claims that the numbers themselves make (stated against inferred), then those of the note's sentences."""
    stated = (
        group_size,
        largest_advantage,
        stated_beta,
        kl_is_difference,
        log_ratio_and_ratio,
        loss_of_terms,
        rank_of_std,
    )
    spoken = (advantage_zero, rate_or_kl_mends, kl_share, sum_of_dimensions)
    found = [claim for check in stated if (claim := check(a))]
    return found + [claim for check in spoken if (claim := check(a, text))]


def group_size(a: Autopsy) -> Claim | None:
    given, found = a.given.get("group_size"), a.inferred["group_size"]
    if given is None or found is None:
        return None
    same = given.value == found
    return Claim(
        f"group_size = {given.value:g}",
        "holds" if same else "fails",
        Text(
            f"the advantages were normalised over {found} samples"
            + ("" if same else ": another axis, or groups were split"),
            f"优势是在 {found} 个样本上归一化的" + ("" if same else "：归一化的轴不对，或组被拆开了"),
        ),
    )


WITHIN = (
    r"组内(?:做了?|进行)?\S{0,2}(?:标准化|归一化)|z[-_ ]?scor|group[- ]normali[sz]ed"
    r"|normali[sz]ed (?:with)?in (?:the |each )?group"
)


def largest_advantage(a: Autopsy) -> Claim | None:
    """The largest advantage that a group of the stated size can have, normalised by its own std.

    More is refuted only where that normaliser was named: another scale has another bound, or none.
    """
    size, top = a.given.get("group_size"), a.given.get("advantage_max")
    if size is None or top is None or size.value < 2 or top.value <= 0 or a.normaliser in ("rank", "centred"):
        return None
    n = size.value
    unbiased, biased = (n - 1) / math.sqrt(n), math.sqrt(n - 1)
    least = top.value - top.half
    named = a.normaliser == "zscore" or (speaks(a.text, WITHIN) and not a.other_scale)
    answer: Answer = "holds" if least <= unbiased else "fails" if least > biased and named else "open"
    en = f"z-scores over {n:g} samples reach at most (n - 1)/sqrt(n) = {unbiased:.4g} (biased std: {biased:.4g})"
    zh = f"{n:g} 个样本的标准化值最大为 (n − 1)/√n = {unbiased:.4g}（有偏标准差：{biased:.4g}）"
    if least > biased:
        en, zh = en + ": another group size, or another normaliser", zh + "：组大小不是它，或不是组内标准化"
    return Claim(f"max advantage = {top.value:g}, group_size = {n:g}", answer, Text(en, zh))


def stated_beta(a: Autopsy) -> Claim | None:
    given, found = a.given.get("beta"), a.inferred["beta"]
    if given is None or found is None:
        return None
    low, high = a.beta_range or (found, found)
    same = low * (1 - 1e-3) <= given.value <= high * (1 + 1e-3)
    loss, policy, kl = (a.given.get(k) for k in ("loss", "policy_loss", "kl"))
    if not same and loss and policy and kl and kl.value:  # as the numbers stand, whatever was rounded
        found = float(f"{(loss.value - policy.value) / kl.value:.3g}")
    return Claim(
        f"beta = {given.value:g}",
        "holds" if same else "fails",
        Text(f"(loss - policy loss) / KL = {found:g}", f"（损失 − 策略损失）/ KL = {found:g}"),
    )


def kl_is_difference(a: Autopsy) -> Claim | None:
    """log-prob under the current policy minus that under the reference, against the stated KL."""
    now, ref, stated, kl = (a.given.get(k) for k in ("log_prob_current", "log_prob_ref", "log_prob_gap", "kl"))
    if kl is None:
        return None
    if now is not None and ref is not None:
        gap, slack = now.value - ref.value, 2 * (now.half + ref.half + kl.half)
    elif stated is not None:
        gap, slack = stated.value, 2 * (stated.half + kl.half)
    else:
        return None
    same = abs(gap - kl.value) <= slack
    return Claim(
        f"KL = {kl.value:.8g}",
        "holds" if same else "fails",
        Text(
            f"current - reference = {gap:.8g}" + (": the KL is the plain difference of log-probs (k1)" if same else ""),
            f"当前 − 参考 = {gap:.8g}" + ("：这个 KL 就是对数概率之差（k1）" if same else "，与所写的 KL 不符"),
        ),
    )


def log_ratio_and_ratio(a: Autopsy) -> Claim | None:
    """All ratios at e^c: every log-ratio is at least c."""
    log, clamp = a.given.get("mean_log_ratio"), a.inferred["clamp"]
    if log is None or clamp is None or log.value >= clamp:
        return None
    return Claim(
        f"mean log-ratio = {log.value:g}",
        "fails",
        Text(
            f"with every ratio at e^{clamp:g} each log-ratio is at least {clamp:g}: the two numbers were not "
            f"made from the"
            " same difference (old - new, or another pair of policies)",
            f"所有比率都等于 e^{clamp:g} 时，每个对数概率比至少是 {clamp:g}：这两个数不是同一个差得来的（符号相反，或"
            f"是另一对策略）",
        ),
    )


def loss_of_terms(a: Autopsy) -> Claim | None:
    """loss = policy loss + beta x KL, all four stated.

    Where only the last tenth of all roundings together makes it so, it is not told.
    """
    loss, policy, beta, kl = (a.given.get(k) for k in ("loss", "policy_loss", "beta", "kl"))
    if loss is None or policy is None or beta is None or kl is None:
        return None
    total = policy.value + beta.value * kl.value
    slack = loss.half + policy.half + abs(kl.value) * beta.half + abs(beta.value) * kl.half + 1e-6 * abs(loss.value)
    gap = abs(loss.value - total)
    same = gap <= 0.9 * slack
    return Claim(
        f"loss = {loss.value:.9g}",
        "holds" if same else "fails" if gap > slack else "open",
        Text(
            f"policy loss + beta x KL = {total:.9g}"
            + ("" if same else f"; the difference is {loss.value - total:.4g}"),
            f"策略损失 + beta × KL = {total:.9g}" + ("" if same else f"，差 {loss.value - total:.4g}"),
        ),
    )


def rank_of_std(a: Autopsy) -> Claim | None:
    spread = a.given.get("advantage_std")
    if a.normaliser != "rank" or spread is None:
        return None
    size = a.given.get("group_size")
    least, said = 1 / math.sqrt(3), f"{spread.value:g}"
    en = f"ranks in [-1, 1] without ties have std >= {least:.3f} in a live group"
    zh = f"[-1, 1] 上没有并列的名次在有信号的组内标准差 ≥ {least:.3f}"
    if size is not None and size.value > 1:
        tied = 1 / math.sqrt(size.value - 1)
        en += f", with ties >= 1/sqrt(n-1) = {tied:.3f}"
        zh += f"，有并列时 ≥ 1/sqrt(n-1) = {tied:.3f}"
    return Claim(
        "rank-normalised advantages / 排名归一化优势",
        "open",
        Text(
            f"{en}; {said} was logged: below that, groups without spread or a later scale; their share was not given",
            f"{zh}；记录的是 {said}：更小就需要没有差异的组或之后的缩放，而没有给出这些组的比例",
        ),
    )


def advantage_zero(a: Autopsy, text: str) -> Claim | None:
    centre = a.given.get("mean_advantage")
    if centre is None or abs(centre.value) > 1e-3 or not speaks(text, r"advantage|优势"):
        return None
    if (spread := a.given.get("std_reward")) and spread.value <= 1e-9:
        return None  # no reward varies: that is said of the spread
    parts = re.split(r"[。！？!?\n；;]", text)
    blamed = any(speaks(s, r"advantage|优势") and speaks(s, BLAME) for s in parts)
    if not blamed and not speaks(text, r"\|.*(?:正常|normal|expected)"):
        return None
    return Claim(
        "mean advantage 0 is the fault / 优势均值为 0 是问题",
        "fails",
        Text("subtracting the group's mean makes it 0; it is no symptom", "减去组均值后，平均优势必然为 0，不是异常"),
    )


def rate_or_kl_mends(a: Autopsy, text: str) -> Claim | None:
    impossible = any(f.rule in ("markov_bound", "saturated_clamp") and f.severity == "serious" for f in a.findings)
    if not impossible or not any(speaks(s, KNOB) and speaks(s, TURNED) for s in re.split(r"[。！？!?\n；;]", text)):
        return None
    return Claim(
        "a smaller rate or more KL mends it / 调小学习率或加大 KL 就能解决",
        "fails",
        Text(
            "ratios on their clamp have no gradient, and no drift makes such ratios: mend the scoring first",
            "比率压在钳制上没有梯度，策略漂移也造不出这样的比率：先修打分",
        ),
    )


def kl_share(a: Autopsy, text: str) -> Claim | None:
    if "kl" not in a.given or not speaks(text, r"KL[^\n。]{0,20}(?:占|主导|dominat|share|%)"):
        return None
    return Claim(
        "the KL term dominates / KL 项占主导",
        "open",
        Text(
            "its share of the loss's value says nothing: on policy the policy loss is about 0. Compare gradients",
            "占损失数值的份额说明不了什么：同策略时策略损失的数值本来约为 0。要比较梯度",
        ),
    )


def sum_of_dimensions(a: Autopsy, text: str) -> Claim | None:
    """A summed log-prob is as large as it has dimensions."""
    dims = a.given.get("dimensions")
    total = a.given.get("log_prob_current") or a.given.get("mean_log_ratio")
    if dims is None or total is None or dims.value < 100:
        return None
    each = total.value / dims.value
    return Claim(
        f"{total.value:g} / {dims.value:g}",
        "open" if abs(each) > 5 else "holds",
        Text(
            f"a sum over {dims.value:g} dimensions is {each:.4g} each: the size comes from the sum; take the mean",
            f"对 {dims.value:g} 维求和，每维只有 {each:.4g}：数值之大来自求和，应取平均",
        ),
    )


def speaks(text: str, pattern: str) -> bool:
    return bool(re.search(pattern, text, re.I))
