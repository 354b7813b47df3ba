"""From a framework's names to ours: which column of a log means what."""

from __future__ import annotations

import re
from functools import lru_cache

from anygrpo.doctor.minor_names import COUNTERS, MACHINE, MINOR
from anygrpo.doctor.names import CORES, MARKS, NAMES, SCALE
from anygrpo.doctor.synonyms import WORDS_METRIC

EXACT = {name: (concept, i) for concept, known in NAMES.items() for i, name in enumerate(known)}
WRAPPERS = re.compile(r"^(?:(?:metrics|train|logs?|data)/)+")
AGENT = re.compile(r"^(agg/(?:all|effective)/|env/)[^/]+/")  # prime-rl and tinker: one column an agent or tag
ACTOR = re.compile(r"^(?:grpo|gspo|dapo|rloo|cispo|reinforce)_actor/")  # AReaL: one heading an algorithm
HELD_OUT = re.compile(
    r"^(?:(?:eval(?:uation)?|valid(?:ation)?|val|test|val-core|val-aux|held_?out)[/_\-]|(?:验证|测试|评测|评估)集?(?:上的?)?)(.+)$"
)
WITNESS = re.compile(
    r"^(?:gold|oracle|ground_truth|true|human)_(?:\w+_)?(?:acc(?:uracy)?|score|reward|success|pass|win)(?:_rate|_mean|_avg)?$"
)
"""What is told beside the reward that is trained on, under no heading of evaluations: "gold_accuracy"."""
DISTANCE = r"fid|kid|lpips|mm_?dist(?:ance)?"  # however prefixed; MATCHING is a distance only as a whole name
MATCHING, LIKENESS = r"matching_(?:score|dist(?:ance)?)", r"psnr|ssim|r_?precision(?:[_/]?(?:top)?[_@]?[123])?"
QUALITY = re.compile(f"^(?:{DISTANCE}|{MATCHING}|{LIKENESS})$")
"""Measures of motions and pictures that are measured on held-out data wherever they are."""
COMPONENT = re.compile(r"^(?:reward/component|reward_component|rewards?)/(.+?)(?:/(mean|std|avg))?$")
BARE_COMPONENT = re.compile(
    r"^(\w+)_rewards?(?:/(mean|std)|_(mean|std|avg))?$|^rewards?_(\w+?)(?:/(mean|std)|_(mean|std))?$"
)
PREFERENCE = {"chosen", "rejected", "margins", "accuracies", "margin", "accuracy"}
NOT_PARTS = {
    "mean", "std", "max", "min", "all", "group_std", "std_within", "std_between", "median", "p10", "p90", "sum",
    "count", "total", "avg", "overall", "raw", "last", "best", "rolling", "scale", "weight", "baseline", "running",
    "threshold", "ema", "global", "step", "iter", "time", "timestamp", "epoch",
}  # fmt: skip
SETTING_WORDS = {
    "temperature", "lr", "alpha", "beta", "gamma", "coef", "coeff", "batch", "target", "latency", "tokens", "seconds",
    "timeout", "workers",
} | NOT_PARTS  # fmt: skip
ENDS_OF_SETTINGS = {
    "lr", "coef", "coeff", "alpha", "gamma", "temperature", "latency", "seconds", "timeout", "weight", "scale",
    "threshold",
}  # fmt: skip
"""Words behind "reward_" that make it a setting or a clock of the scoring, not a part of the reward."""
SECTION = re.compile(
    r"^(?:tokens?|stats|sampling|generation|gen|completions?|responses?|answers|policy|rl|algo|opt|optim|optimizer)/"
)
"""Headings under which trainers of nobody's framework put their numbers."""
MEANS = {"mean", "avg", "average", "train", "training", "batch", "ep", "rollout", "grpo"}
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
WIDE = str.maketrans("（）：，；／－＿　【】", "():,;/-_ []")
CHINESE = re.compile("[\u4e00-\u9fff]")
DOTTED = re.compile(r"(?<=[a-z_])\.(?=[a-z_])")
"""Levels of nested objects in a flattened table: "policy.kl_ref"."""
SPREAD = re.compile(r"(?<=\w)\s*(?:±|\+/-|\+-)\s*\w*$")
"""What a head says stands behind its numbers: "mean reward ± sd"."""
STEPS = (
    "step",
    "global_step",
    "training/global_step",
    "_step",
    "progress/step",
    "progress/batch",
    "iteration",
    "iter",
    "train/global_step",
    "update",
    "time/iterations",
    "training_iteration",
    "frames",
    "num_env_steps_sampled_lifetime",
    "timesteps_total",
    "episode",
    "time/total_timesteps",
)
TIMES = ("time", "runtime", "samples_per_second", "steps_per_second", "num_tokens", "epoch", "loss")


@lru_cache(maxsize=8192)
def normalise(key: str) -> str:
    """Lower case, wrappers such as "train/" dropped, blanks and dashes as underscores, "a / b" as "a/b"."""
    return WRAPPERS.sub("", plain_name(key))


@lru_cache(maxsize=8192)
def plain_name(key: str) -> str:
    """A name as the tables write it: lower case, full-width signs and blanks undone, dashes as underscores."""
    text = re.sub(r"\s*/\s*", "/", key.translate(WIDE).strip().strip("*`'\"↑↓⬆⬇ ").strip())
    text = SPREAD.sub("", text)
    return re.sub(r"\s+", "_", text.lower().replace("-", "_"))


def words_of(key: str) -> list[str]:
    """The words in a name: "AvgScore", "loss_pg" and "rollout/ep_rew_mean" taken apart."""
    split = CAMEL.sub("_", key.translate(WIDE))
    return [t for t in re.split(r"[_/.\s()\[\]%\-]+", split.lower()) if t]


def _unordered() -> dict[frozenset[str], str]:
    """Set of words -> concept, for names whose words come in another order ("loss_pg", "pg_loss")."""
    out: dict[frozenset[str], str] = {}
    for name, concept in (*CORES.items(), *WORDS_METRIC.items(), *((n, c) for n, (c, _) in EXACT.items())):
        parts = frozenset(t for t in re.split(r"[_/]", name) if t not in MEANS)
        if (
            2 <= len(parts) <= 3
            and concept not in MINOR
            and not concept.startswith("groups/")
            and "@" not in name
            and len(name) < 24
        ):
            out.setdefault(parts, concept)
    return out


UNORDERED = _unordered()
CHINESE_TAIL = re.compile(r"_?[(\[（].*$|_(?:mean|avg|std)$")


@lru_cache(maxsize=8192)
def concept(key: str) -> tuple[str, int] | None:
    """(canonical name, priority; lower is better) of a raw name, or None.

    Canonical names are those of anygrpo's own metrics.jsonl; parts of the reward come out as
    "reward/component/NAME" and "reward/component_std/NAME", evaluations as "eval/NAME".
    """
    name = ACTOR.sub("ppo_actor/", AGENT.sub(r"\g<1>all/", normalise(key)))
    if name in EXACT:
        return EXACT[name]
    if name.startswith(("groups/live_after/", "restoration/gate_effect/")):
        return name, 0
    if match := HELD_OUT.match(key.strip().lower().replace(" ", "_")):
        return held_out(match[1])
    if WITNESS.match(name) or QUALITY.match(name):
        return f"eval/{name}", 0
    if name in CORES:
        return CORES[name], 50
    if found := WORDS_METRIC.get(name) or WORDS_METRIC.get(plain_name(key)):
        return found, 55
    if match := COMPONENT.match(name):
        if name.startswith("reward/") and sets_scoring(match[1]):
            return None
        spread = match[2] == "std" or (name.startswith("reward/") and match[1].endswith("_std"))
        return part(match[1].removesuffix("_std") if spread else match[1], spread)
    tokens = words_of(WRAPPERS.sub("", key.strip()))
    kept = [t for t in tokens if t not in MEANS]
    core = "_".join(kept)
    if core in CORES:
        return CORES[core], 60 + len(tokens)
    if core in EXACT and not name.startswith(("rewards/", "reward/")):
        return EXACT[core][0], 80 + len(tokens)
    if found := WORDS_METRIC.get(core) or UNORDERED.get(frozenset(kept)):
        return found, 90 + len(tokens)
    if CHINESE.search(key) and (found := WORDS_METRIC.get(CHINESE_TAIL.sub("", plain_name(key)))):
        return found, 95
    for tail in () if name in COUNTERS else ("_step", "_epoch"):  # Lightning's: of a step, its mean over an epoch
        base = name.removesuffix(tail)
        if base != name and not base.endswith("_per") and (found := EXACT.get(base) or CORES.get(base)):
            return (found if isinstance(found, str) else found[0]), 96 + len(tail)
    if match := BARE_COMPONENT.match(name):
        groups = match.groups()
        if groups[3] and sets_scoring(groups[3]):
            return None
        return part(groups[0] or groups[3], "std" in groups)
    if (bare := SECTION.sub("", name)) != name and (found := concept(bare)):
        return found[0], found[1] + 100
    if "/" not in name and DOTTED.search(name) and (found := concept(DOTTED.sub("/", name))):
        return found[0], found[1] + 100
    return under_headings(name)


def under_headings(name: str) -> tuple[str, int] | None:
    """The concept of what is left when leading parts of a path are dropped ("learners/default_policy/entropy").

    Nothing under a heading that speaks of another model, of evaluations or of the machine; no parts of the reward.
    TensorBoard's exports write "/" as "_": such a name is found by what it would be.
    """
    if found := UNDERSCORED.get(name):
        return found, 110
    heads = name.split("/")
    for i in range(1, len(heads)):
        if of_another(heads[i - 1]):
            return None
        rest = "/".join(heads[i:])
        found = EXACT.get(rest, (CORES.get(rest) or WORDS_METRIC.get(rest), 0))[0]
        if found and not found.startswith("eval/") and not ("loss" in heads[i - 1] and found.startswith("reward/")):
            return found, 120 + i
    return None


def of_another(heading: str) -> bool:
    """Whether a heading, or a word of it ("critic_model", "timing_s", "q_net"), speaks of something else."""
    heading = heading.replace("actor_critic", "actor")
    return heading in OTHERS or "reward_model" in heading or bool(OTHERS & set(words_of(heading)))


OTHERS = {
    "critic", "value", "vf", "ref", "reference", "reward_model", "rm", "timing", "timings", "timers", "perf", "time",
    "system", "hardware", "memory", "gpu", "throughput", "old", "data", "env_runner_group", "eval",
    "evaluation", "val", "validation", "test", "advantage", "advantages", "returns", "groups", "length", "lengths",
    "kept", "stored", "offline", "lambda", "mismatch", "teacher", "disc", "discriminator", "baseline", "router", "moe",
    "latent", "vae", "world", "prompt", "prompts", "input", "inputs", "query", "queries", "adam", "optimizer", "config",
    "hparams", "args", "grad", "grads", "coef", "coefs", "coeff", "coeffs", "weight", "weights", "count", "counts",
    "init", "dev", "holdout", "ood", "critics", "target", "targets", "q", "values", "previous", "frozen",
    "fps", "queue", "cache", "hidden",
}  # fmt: skip
"""Headings under which "mean", "kl" or "entropy" are not the policy's, or not of all that was sampled."""
UNDERSCORED = {
    name.replace("/", "_"): concept
    for concept, known in NAMES.items()
    for name in known
    if "/" in name and name.replace("/", "_") not in EXACT and "@" not in name
}


def held_out(rest: str) -> tuple[str, int] | None:
    """Evaluations keep their own name; speeds, times and per-group detail are left out."""
    if any(word in rest for word in TIMES):
        return None
    inner = normalise(rest)
    found = EXACT.get(inner, (CORES.get(inner, WORDS_METRIC.get(inner, inner)), 0))[0]
    if found.startswith("reward/mean"):
        return "eval/reward", 0
    return f"eval/{found}", 0


def part(name: str, spread: bool) -> tuple[str, int] | None:
    pieces = set(re.split(r"[/_]", name))
    if name in PREFERENCE or name in NOT_PARTS or pieces <= NOT_PARTS or "group_std" in name:
        return None
    return f"reward/{'component_std' if spread else 'component'}/{name}", 0


def sets_scoring(name: str) -> bool:
    """Whether what stands behind "reward_" is a setting or a clock ("batch_size", "model_lr"): no part of a reward.

    "clip" alone may be a score of pictures; only its numbers tell (`columns.choose`).
    """
    pieces = re.split(r"[/_]", name.replace("batch_size", "batch"))
    return pieces[-1] in ENDS_OF_SETTINGS or (set(pieces) <= SETTING_WORDS | {"clip"} and pieces != ["clip"])


def label(key: str) -> str:
    """The raw name as it may stand beside scaled numbers: a complement says so ("1 - groups/live")."""
    return f"1 - {key}" if SCALE.get(normalise(key), "").startswith("complement") else key


def scale(key: str, x: float) -> float:
    """Percents and complements as plain shares."""
    match SCALE.get(normalise(key)):
        case "percent":
            return x / 100
        case "complement":
            return 1 - x
        case "square":
            return x * x
        case "complement of percent":
            return 1 - x / 100
        case _:
            return x


def names_outcome(key: str) -> bool:
    """Whether a row with this name can be a row of training metrics."""
    found = concept(key)
    if found is None:
        return False
    return found[0].startswith(
        ("reward/", "loss/", "kl/", "advantage/", "entropy", "grad_norm", "eval/", "ratio/", "log_ratio")
    )


def step_key(row: dict[str, float]) -> str | None:
    """The column that counts the steps of a row."""
    return next((name for name in STEPS if name in row), None)


def step_of(row: dict[str, float]) -> float | None:
    key = step_key(row)
    return None if key is None else row[key]


def counts(key: str) -> bool:
    """Whether a column only counts or times: steps, epochs, tokens, seconds."""
    name = normalise(key)
    return (
        key in STEPS
        or name in (*STEPS, *COUNTERS)
        or name.startswith(MACHINE)
        or any(word in name for word in TIMES if word != "loss")
    )


def framework_of(keys: set[str]) -> str:
    """The framework whose own words the log speaks, or "generic"."""
    for framework, marks in MARKS.items():
        if any(mark in keys for mark in marks):
            return framework
    return "generic"
