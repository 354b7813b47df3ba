"""What a comparison of two runs says, sentence by sentence."""

from __future__ import annotations

from typing import Any

from anygrpo.spoken import Text, colon, say


def sentences(report: dict[str, Any], lang: str) -> list[str]:
    """The comparison in words, one statement a line."""
    lines = [told_settings(report["settings"], lang)]
    if report.get("no_effect"):
        names = report["no_effect"].get("names", "?")
        lines.append(
            say(
                f"no_effect: the curves are equal although settings differ ({names}): the knob is not wired",
                f"no_effect：两次运行的曲线完全相同，尽管设置不同（{names}）：该开关没有接上",
                lang,
            )
        )
    if "results" in report:
        lines += _results(report["results"], lang)
    if "agreement" in report:
        lines += _agreement(report["agreement"], lang)
    if "policy" in report:
        lines += _policy(report["policy"], lang)
    lines += [f"{say('left out', '未比较', lang)} {name}: {why}" for name, why in report["left_out"].items()]
    return lines


def measure(name: str, lang: str) -> str:
    """A held-out measure's name as a person reads it."""
    return {"reward": Text("reward", "奖励"), "accuracy": Text("accuracy", "正确率")}.get(name, Text(name, name)).said(
        lang
    )


def told_settings(rows: list[dict[str, Any]], lang: str) -> str:
    if not rows:
        return say("settings: equal", "设置相同", lang)
    changes = ", ".join(f"{r['setting']} {r['a']} | {r['b']}" for r in rows)
    return (say("settings that differ (A | B): ", "不同的设置（A | B）：", lang)) + changes


def _results(found: dict[str, Any], lang: str) -> list[str]:
    lines = []
    for name in ("reward", "accuracy"):
        if name not in found:
            continue
        x = found[name]
        sure = x["low"] > 0 or x["high"] < 0
        verdict = say("differs" if sure else "no difference shown", "有差异" if sure else "无法判定有差异", lang)
        interval = f"{x['mean_a']:.4f} | {x['mean_b']:.4f}, {x['difference']:+.4f} [{x['low']:+.4f}, {x['high']:+.4f}]"
        over = say(f" ({x['n']} prompts): ", f"（{x['n']} 个提示）：", lang)
        lines.append(f"{measure(name, lang)}{over}{interval}{colon(lang)}{verdict}")
        least = say("  smallest difference these prompts could show: ", "  这些提示可检出的最小差异：", lang)
        shown = say(
            f"; to show the measured one: {x['needed']} prompts", f"；要证实所测差异需 {x['needed']} 个提示", lang
        )
        lines.append(f"{least}{x['detectable']:.4f}{'' if x['needed'] is None else shown}")
    lines.append(
        say(
            "  the interval covers prompts, not seeds: for recipes run three seeds or more and compare A/* B/*",
            "  区间只覆盖提示，不覆盖种子：每个配方跑三个以上种子后用 anygrpo compare A/* B/*",
            lang,
        )
    )
    steps = {"A": found["step_a"], "B": found["step_b"]}
    lines += rests_on({"steps": steps, "prompts_left_out": found["prompts_left_out"]}, lang)
    if "accuracy" in found:
        m = found["accuracy"]["mcnemar"]
        words = say("only A right", "仅 A 对", lang), say("only B right", "仅 B 对", lang)
        lines.append(f"  McNemar: {words[0]} {m['only_a']}, {words[1]} {m['only_b']}, p = {m['p']:.3g}")
    return lines


def rests_on(found: dict[str, Any], lang: str) -> list[str]:
    """Evaluations of different steps, and prompts that were left out, where there are such."""
    lines, steps = [], found["steps"]
    if len(set(steps.values())) > 1:
        each = ", ".join(f"{run} {step}" for run, step in steps.items())
        lines.append(say(f"  last evaluated at different steps: {each}", f"  最后一次评测的步数不同：{each}", lang))
    if count := found["prompts_left_out"]:
        lines.append(
            say(
                f"  {count} held-out prompts are not in all of these evaluations and were left out",
                f"  {count} 个留出提示并非每次评测都有，未参与比较",
                lang,
            )
        )
    return lines


def _agreement(found: dict[str, Any], lang: str) -> list[str]:
    words = {
        "a_start_to_end": Text("A: start and end", "A 的起点与终点"),
        "b_start_to_end": Text("B: start and end", "B 的起点与终点"),
        "a_to_b": Text("A and B", "A 与 B"),
        "a_to_second_seed": Text("A and a second seed of A", "A 与其另一随机种子"),
    }
    head = say("greedy answers that agree", "贪心回答一致率", lang)
    parts = [f"{words[k].said(lang)} {v['same']:.1%}" for k, v in found.items() if v["same"] is not None]
    return [f"{head}{colon(lang)}" + say("; ", "；", lang).join(parts)]


def _policy(found: dict[str, Any], lang: str) -> list[str]:
    lines = []
    for key, name in (("kl_a_to_b", "KL(A || B)"), ("kl_b_to_a", "KL(B || A)")):
        x = found[key]
        sample = f"{x['per_sample']:.3g} [{x['per_sample_low']:.2g}, {x['per_sample_high']:.2g}]"
        decision = f"{x['per_decision']:.3g}"
        exact = (
            ""
            if x["exact_per_decision"] is None
            else say(", exact ", "，精确值 ", lang) + f"{x['exact_per_decision']:.3g}"
        )
        unit = say("a sample", "每样本", lang), say("a decision", "每决策", lang)
        stored = "" if x["own_samples"] else say(" (of stored actions: no KL)", "（用存储的动作估计，不是 KL）", lang)
        comma = say(", ", "，", lang)
        lines.append(f"{name}{colon(lang)}{sample} {unit[0]}{comma}{decision} {unit[1]}{exact}{stored}")
    top = found["modules"][:5]
    moves = "; ".join(f"{r['module']} {r['a']:.1e} | {r['b']:.1e} | {r['between']:.1e}" for r in top)
    lines.append(say("relative change of weights (A | B | between): ", "权重相对变化（A | B | 之间）：", lang) + moves)
    flip = found.get("cannot_flip")
    if flip and flip.get("decisions") is not None:
        lines.append(
            say(
                f"most likely choice provably the same: {flip['decisions']:.1%} of decisions, "
                f"{flip['prompts']:.1%} of prompts",
                f"可证明首选不变的决策 {flip['decisions']:.1%}，提示 {flip['prompts']:.1%}",
                lang,
            )
        )
    return lines
