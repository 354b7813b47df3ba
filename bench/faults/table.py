"""The bench's results as a page: one row a case, and the score of every tool."""

from __future__ import annotations

from typing import Any

MEANS: dict[str, tuple[str, ...]] = {
    # rldoctor
    "advantage_collapse": (
        "constant_reward",
        "starved_groups",
        "mastered_groups",
        "advantage_compressed",
        "zero_gradient",
    ),
    "clip_saturation": ("clip_saturated", "clip_idle"),
    "entropy_collapse": ("entropy_collapse", "low_entropy_start"),
    "gradient_pathology": ("nonfinite", "grad_spikes", "zero_gradient", "log_ratio_explosion"),
    "kl_drift": ("kl_blowup", "lr_too_large", "wrong_reference", "sampler_mismatch"),
    "length_pathology": ("truncation", "length_explosion", "length_collapse"),
    "plateau": ("no_learning", "lr_too_small", "zero_gradient"),
    "reward_composition": ("dead_term", "aux_only_gain"),
    "reward_hacking": ("reward_hacking", "overfitting"),
    # rlprobe
    "KL_BLOWUP": ("kl_blowup", "lr_too_large", "wrong_reference", "sampler_mismatch"),
    "ENTROPY_COLLAPSE": ("entropy_collapse", "low_entropy_start"),
    "REWARD_HACK_LENGTH": ("length_explosion", "reward_hacking"),
    "FORMAT_GAMING": ("aux_only_gain", "dead_term"),
    "CLIP_SATURATION": ("clip_saturated",),
    "DEGENERATE_GROUPS": ("constant_reward", "starved_groups", "mastered_groups", "zero_gradient"),
    "ADV_COLLAPSE": ("advantage_compressed", "constant_reward", "zero_gradient"),
    "GRAD_PATHOLOGY": ("nonfinite", "grad_spikes", "zero_gradient"),
    "TRUNCATION_STARVE": ("truncation",),
    "REWARD_STD_DEATH": ("constant_reward", "starved_groups", "mastered_groups"),
    # rlwatch ("entropy_collapse" and "reward_hacking" are spelt as rldoctor's)
    "kl_explosion": ("kl_blowup", "lr_too_large", "wrong_reference", "sampler_mismatch"),
    "advantage_variance": ("advantage_compressed", "phantom_advantages"),
    "loss_nan": ("nonfinite",),
    "gradient_norm_spike": ("grad_spikes", "log_ratio_explosion", "lr_too_large"),
    "grad_norm_spike": ("grad_spikes", "log_ratio_explosion", "lr_too_large"),
    "reward_mean_drift": ("sign_inverted", "reward_hacking", "late_collapse"),
}
"""What the other tools' alerts are taken to mean, generously, in our rule ids."""


def markdown(results: list[Any]) -> str:
    """Score, then all cases."""
    faults, controls = [r for r in results if r.accepted], [r for r in results if not r.accepted]
    return "\n\n".join(part for part in (_score(faults, controls), _faults(faults), _controls(controls)) if part) + "\n"


def _score(faults: list[Any], controls: list[Any]) -> str:
    tools = [t for t in ("rldoctor", "rlprobe", "rlwatch") if any(t in r.peers for r in (*faults, *controls))]
    lines = [
        "| tool | right first finding | among its findings | controls with a false alarm |",
        "| --- | --- | --- | --- |",
    ]
    first = sum(r.right for r in faults)
    among = sum(r.right or bool(set(r.others) & set(r.accepted)) for r in faults)
    alarms = sum(not r.right for r in controls)
    lines.append(
        f"| **anygrpo doctor** (log and recipe) | {first}/{len(faults)} | {among}/{len(faults)} "
        f"| {alarms}/{len(controls)} |"
    )
    for key, what in (("alone", "log alone"), ("alone_trl", "log alone, in the columns of TRL")):
        said = [(getattr(r, key), r) for r in (*faults, *controls)]
        heads = sum(r.first_is_right(found[0] if found else "") for found, r in said if r.accepted)
        named = sum(bool(set(found) & set(r.accepted)) for found, r in said if r.accepted)
        false = sum(bool(found) for found, r in said if not r.accepted)
        lines.append(
            f"| **anygrpo doctor** ({what}) | {heads}/{len(faults)} | {named}/{len(faults)} | {false}/{len(controls)} |"
        )
    for tool in tools:
        right = sum(bool(r.peers[tool]) and _means(r.peers[tool][0], r.accepted) for r in faults)
        any_ = sum(any(_means(a, r.accepted) for a in r.peers[tool]) for r in faults)
        false = sum(bool(r.peers[tool]) for r in controls)
        lines.append(f"| {tool} | {right}/{len(faults)} | {any_}/{len(faults)} | {false}/{len(controls)} |")
    caught = sum(bool(r.check) for r in faults)
    false = sum(bool(r.check) for r in controls)
    lines.append(f"| anygrpo check (before the run) | {caught}/{len(faults)} named | | {false}/{len(controls)} |")
    either = sum(r.named for r in faults)
    alarms = sum(not r.right or bool(r.check) for r in controls)
    lines.append(f"| log or check | {either}/{len(faults)} named | | {alarms}/{len(controls)} |")
    return "\n".join(lines)


def _means(alert: str, accepted: tuple[str, ...]) -> bool:
    return bool(set(MEANS.get(alert, ())) & set(accepted))


def _faults(faults: list[Any]) -> str:
    if not faults:
        return ""
    heads = ["fault", "what was done", "first finding", "", "log alone", "named at row", "of", "check names it by"]
    heads += ["rldoctor", "rlprobe", "rlwatch"] if faults[0].peers else []
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    for r in faults:
        cells = [
            r.name,
            r.what,
            r.first,
            "right" if r.right else "**wrong**",
            r.alone[0] if r.alone else "-",
            str(r.named_at or "-"),
            str(r.rows),
        ]
        cells += [", ".join(r.check) or "-"]
        cells += [r.peers[t][0] if r.peers[t] else "-" for t in ("rldoctor", "rlprobe", "rlwatch") if r.peers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _controls(controls: list[Any]) -> str:
    if not controls:
        return ""
    heads = ["healthy control", "what it is", "doctor says", "check says"]
    heads += ["rldoctor", "rlprobe", "rlwatch"] if controls[0].peers else []
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    for r in controls:
        cells = [r.name, r.what, r.first, ", ".join(r.check) or "-"]
        cells += [", ".join(r.peers[t]) or "-" for t in ("rldoctor", "rlprobe", "rlwatch") if r.peers]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
