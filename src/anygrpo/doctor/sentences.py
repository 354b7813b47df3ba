"""Claims that a note makes in words, each answered by arithmetic on the note's own numbers, and quoted from it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from anygrpo.doctor.argument import Autopsy
from anygrpo.doctor.bounds import Stated, stated
from anygrpo.doctor.claims import Answer, Claim
from anygrpo.doctor.printed import measured
from anygrpo.doctor.rate_claims import rate_claims
from anygrpo.spoken import Text

NUM = r"[-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?%?|[-+]?\.\d+%?"
SENTENCE = re.compile(r"[^。！？!?\n；;]+")


def words(*parts: str) -> re.Pattern[str]:
    return re.compile("|".join(parts), re.I)


_SIGNAL = "(?:有效|信号|差异|活|学习|非零|方差)"
_UPTO = r"[^\d，。,]{0,8}"
_OF = r"(?:(?:out )?of (?:all |the )*(?:\d+ )?)?"  # "4 of 640 groups"
GROUPS_ALIVE = re.compile(
    rf"(\d+)\s*个?组内?(?:有|还有|是|存在)?{_SIGNAL}(?!的)|(?<![没无非])(?:有信号的|有差异的|有效)组数?{_UPTO}(\d+)"
    rf"|(\d+)\s*{_OF}(?:live )?groups?\s*(?:are |have |with )?(?:live|a signal|signal|alive|any)",
    re.I,
)
GROUPS_DEAD = re.compile(
    rf"(?:没有?|无|缺乏|缺少)(?:任何)?(?:信号|差异|梯度|方差)的?组数?{_UPTO}(\d+)|(?:无效|死)组数?{_UPTO}(\d+)"
    r"|(\d+)\s*个?组内?(?:都|全)?(?:没有?|无|缺乏)(?:任何)?(?:信号|差异|梯度|方差)"
    rf"|(\d+)\s*{_OF}(?:dead groups?|groups?\s*(?:are dead|(?:have no|without(?: an?y?)?) (?:signal|spread)))",
    re.I,
)
ALL_ALIVE = words(
    "(?:所有|全部|每个)的?(?:组|查询|提示)都?有(?:效|信号|差异|梯度)", "all (?:the )?groups have (?:a )?signal"
)
DENIED = re.compile(r"(?:并非|不是|不一定|未必|非|\bnot\s|n['’]t\s)(?:是|只有|只|\s|necessarily |only )*$", re.I)
ASKED = words("是否|是不是|能否|whether|[?？]")
CLAMPED = words("钳制|钳位|截到", "clamp")
_DOES = "(?:对[^，。,]{0,6}?)?(?:做|被|作|加|任何|进行|使用|设置?|触发|到|过)*(?:钳制|钳位)"
UNCLAMPED = words(
    f"(?:没有?|未|从不|从未|不){_DOES}|无(?:任何)?(?:钳制|钳位)",
    "(?:并非|不是)(?:所有|全部|每个)[^，。,]{0,8}(?:钳制|钳位)",
    r"\bunclamp|\bwithout (?:an?y? )?clamp|(?:\b(?:no|not|never)|n['’]t)\s+(?:(?!only|just)\w+\s+)?clamp",
    "\\bnot (?:all|every)[^.,]{0,20}clamp",
)
NONE_FREE = words(r"(?:没有|无)[^，。,]{0,6}[不未]被?(?:钳制|钳位)", r"\bno \w+[^.,]{0,12} (?:not|un-?)\s*clamp")
"""No ratio that is not clamped: all are."""
POWER = re.compile(r"e\s*\^\s*\(?(\d+)|exp\((\d+)\)")
CLIP, NONE = words("裁剪", "clip"), words(r"为\s*0|是\s*0|0%|\b0\b|没有|恒为", "zero|never")
BLAMED = words("没有?生效|没起作用|无效|有问题|有错|出错|异常", "bug|broken|no effect|does nothing|not working|wrong")
LOSS = words("损失", "loss")
NOT_LEARNING = words(
    "没有?在?(?:学|训练|更新)|学不到|无法学|不学|没有梯度|停滞",
    "not learn|no learning|nothing is learn|no gradient|does not train",
)
NO_SIGNAL = words(r"(?:没有|无|缺乏|缺少|消失)\S{0,4}信号|信号\S{0,3}消失", "no (?:learning )?signal|nothing to learn")
ENTROPY, COLLAPSED = words("熵", "entropy"), words("坍缩|坍塌|塌缩|崩溃|崩塌", "collaps")
IMPOSSIBLE = words("错|问题|异常|不可能", "bug|wrong|impossible|error")
SQUARED, PLAIN = words("k3|k2|非负估计|schulman"), words("k1|对数概率比|对数概率之?差", "log[- ]?ratio")
WON = re.compile(r"(\d+)\s*个(?:样本)?(?:答对|正确|为\s*1|得分|成功)|(\d+)\s*(?:is|are)\s*(?:right|correct)", re.I)
ADVANTAGE = re.compile(
    r"优势(?:值)?\s*(?:是|为|等于|=|约为?)\s*(" + NUM + r")|advantage\s*(?:is|of|=)\s*(" + NUM + ")", re.I
)


def spoken(a: Autopsy, text: str) -> list[Claim]:
    """The claims of every sentence, in order; a claim made twice is answered once."""
    out: list[Claim] = []
    for match in SENTENCE.finditer(text):
        said = match[0].strip(" \t#>*-|").strip()
        for check in CHECKS if said else ():
            if (found := check(a, said)) and found not in out:
                out.append(found)
    return [*out, *rate_claims(text)]


def claim(said: str, answer: Answer, why: Text) -> Claim:
    return Claim(said if len(said) <= 80 else said[:79] + "…", answer, why)


def first_group(match: re.Match[str]) -> str:
    return next(x for x in match.groups() if x)


def signal_of_groups(a: Autopsy, said: str) -> Claim | None:
    """ "Only 4 groups have a signal", "636 have none", "not all have one" against what std and queries allow."""
    live, queries, every = a.inferred["live_groups"], a.given.get("queries"), ALL_ALIVE.search(said)
    if live is None or ASKED.search(said):
        return None
    if every is not None and queries is not None:
        same = live >= queries.value - 0.5
        same = not same if DENIED.search(said[: every.start()]) else same
    else:
        found = groups_said(said)
        if found is None or (found[1] and queries is None):
            return None
        count, dead = found
        bound = math.isinf(count.low) or math.isinf(count.high)  # "fewer than 20" is meant; "20" may be about 20
        slack = 0.5 if bound else max(0.5, 0.1 * live)
        same = count.allows((queries.value if queries else 0) - live if dead else live, slack)
    return claim(
        said,
        "holds" if same else "fails",
        Text(
            f"the spread of the advantages over the queries leaves {live:g} groups with any",
            f"由优势标准差与查询数推出：有信号的组是 {live:g} 个",
        ),
    )


def groups_said(said: str) -> tuple[Stated, bool] | None:
    """How many groups a sentence says to have a signal, or (True) none; None where it says no number, or denies it."""
    dead, alive = GROUPS_DEAD.search(said), GROUPS_ALIVE.search(said)
    found = dead or alive
    if found is None or found.lastindex is None:
        return None
    count = stated(said, found.start(found.lastindex), float(found[found.lastindex]))
    denied = any(DENIED.search(said[:at]) for at in (found.start(), count.start))
    return None if denied else (count, dead is not None)


def all_clamped(a: Autopsy, said: str) -> Claim | None:
    """ "The ratio is clamped at e^10": only if the ratio is that number."""
    name = "mean_ratio" if "mean_ratio" in a.given else "max_ratio"
    top, power, clamp = a.given.get(name), POWER.search(said), a.inferred["clamp"]
    if not CLAMPED.search(said) or top is None or (power is None and clamp is None):
        return None
    at = float(first_group(power)) if power else float(clamp or 0)
    edge = f"e^{at:g} = {math.exp(min(at, 700)):.8g}; {name} = {top.value:.8g}"
    there = clamp is not None and at == clamp
    free = UNCLAMPED.search(said) is not None and not NONE_FREE.search(said)
    return claim(said, "holds" if there is not free else "fails", Text(edge, edge.replace("; ", "；")))


def nothing_clipped(a: Autopsy, said: str) -> Claim | None:
    """ "Nothing is clipped, so the update does nothing": with one update a rollout nothing can be."""
    ratio = a.given.get("mean_ratio")
    if ratio is None or not all(p.search(said) for p in (CLIP, NONE, BLAMED)):
        return None
    if abs(ratio.value - 1) > max(1e-4, ratio.half):
        head = Text(f"the mean ratio is {ratio.value:g}", f"平均比率为 {ratio.value:g}")
        return claim(said, "open", head + Text(": how far single ratios go was not given", "：没有给出单个比率的范围"))
    return claim(
        said,
        "fails",
        Text(
            "the mean ratio is 1: with one update a rollout every ratio is 1 and nothing can be clipped; the "
            "gradient is"
            " there all the same",
            "平均比率是 1：每个 rollout 只更新一次时比率恒为 1，本来就不会裁剪；梯度照样存在",
        ),
    )


def loss_is_zero(a: Autopsy, said: str) -> Claim | None:
    """ "The loss is 0, so nothing is learnt": on policy its value is about 0 whatever its gradient."""
    loss, spread = a.given.get("policy_loss") or a.given.get("loss"), a.given.get("std_reward")
    if loss is None or abs(loss.value) > 1e-2 or not LOSS.search(said) or not NOT_LEARNING.search(said):
        return None
    if spread is not None and spread.value <= 1e-9:
        none = Text("no reward varies, so no advantage and no gradient", "奖励没有差异，优势为 0，没有梯度")
        return claim(said, "holds", none)
    grad = a.given.get("grad_norm")
    if grad is not None and grad.value <= 1e-9:
        return claim(said, "holds", Text("the gradient norm is 0: no update at all", "梯度范数为 0：没有任何更新"))
    en = "on policy the loss is -mean(advantage) = 0 by construction, whatever its gradient"
    zh = "同策略时损失等于负的平均优势，必然约为 0，与梯度无关"
    if grad is None:
        return claim(
            said,
            "open",
            Text(f"{en}: the gradient norm was not given, and it decides", f"{zh}；没有给出梯度范数，由它决定"),
        )
    return claim(
        said,
        "fails",
        Text(f"{en}; the gradient norm is {grad.value:g}, not 0", f"{zh}；梯度范数是 {grad.value:g}，不为 0"),
    )


def no_spread(a: Autopsy, said: str) -> Claim | None:
    """ "No signal to learn from": holds where the rewards of a group do not vary, and does not where they do."""
    spread = a.given.get("std_reward")
    if spread is None or not NO_SIGNAL.search(said):
        return None
    none = spread.value <= 1e-9
    return claim(
        said,
        "holds" if none else "fails",
        Text(
            f"reward std = {spread.value:g}: " + ("every advantage is 0" if none else "advantages are not all 0"),
            f"奖励标准差 = {spread.value:g}：" + ("所有优势都是 0" if none else "优势不全为 0"),
        ),
    )


def entropy_fell(a: Autopsy, said: str) -> Claim | None:
    """ "The entropy fell, so it collapsed": a task with one right answer ends without entropy."""
    if not ENTROPY.search(said) or not COLLAPSED.search(said):
        return None
    return claim(
        said,
        "open",
        Text(
            "entropy that falls while the reward rises is learning; it is a collapse where the reward gains "
            "nothing after"
            " it and more groups lose their spread: give both over the steps",
            "奖励上升时熵下降是学习；之后奖励不再上升、无差异的组增多才是坍缩：需要这两条曲线",
        ),
    )


def sign_of_kl(a: Autopsy, said: str) -> Claim | None:
    """ "KL is negative, so something is wrong": k3 (and the true KL) cannot be; a mean of log-ratios (k1) can."""
    kl = a.given.get("kl")
    if kl is None or kl.value >= 0 or "KL" not in said.upper() or not IMPOSSIBLE.search(said):
        return None
    which = estimator(said) or estimator(a.text)
    if which == "k3":
        return claim(
            said,
            "holds",
            Text(
                "r - 1 - log r (k3) and (log r)^2 / 2 (k2) are never negative",
                "r − 1 − log r（k3）与 (log r)²/2（k2）不可能为负",
            ),
        )
    if which == "k1":
        return claim(
            said,
            "fails",
            Text(
                "a mean of log-ratios (k1) over a few samples may be negative; only its expectation is not",
                "对数概率比的样本均值（k1）可以为负，只有期望不为负",
            ),
        )
    return claim(
        said,
        "open",
        Text(
            "a mean of log-ratios (k1) may be negative, k3 may not: say which was logged",
            "k1（对数概率比的均值）可以为负，k3 不会：先说明用的是哪一种估计",
        ),
    )


def estimator(text: str) -> str:
    return "k3" if SQUARED.search(text) else "k1" if PLAIN.search(text) else ""


def of_a_group(a: Autopsy, said: str) -> Claim | None:
    """ "One of four is right; its advantage is 1.5": z-scores of 0/1 rewards by hand."""
    size, won, stated = a.given.get("group_size"), WON.search(said) or WON.search(a.text), ADVANTAGE.search(said)
    if size is None or won is None or stated is None or size.value < 2:
        return None
    p, n = float(first_group(won)) / size.value, size.value
    if not 0 < p < 1:
        return None
    value = measured(first_group(stated))
    spreads = {"n - 1": math.sqrt(p * (1 - p) * n / (n - 1)), "n": math.sqrt(p * (1 - p))}
    both = {by: ((1 - p) / s, -p / s) for by, s in spreads.items()}
    fits = any(abs(value.value - x) <= value.half + 1e-6 for pair in both.values() for x in pair)
    en = "; ".join(f"std over {by}: {x:.4g}, {y:.4g}" for by, (x, y) in both.items())
    zh = "；".join(f"标准差除以 {by}：{x:.4g}、{y:.4g}" for by, (x, y) in both.items())
    return claim(said, "holds" if fits else "fails", Text(en, zh))


Check = Callable[[Autopsy, str], Claim | None]
CHECKS: tuple[Check, ...] = (
    signal_of_groups,
    all_clamped,
    nothing_clipped,
    loss_is_zero,
    no_spread,
    entropy_fell,
    sign_of_kl,
    of_a_group,
)
