"""`anygrpo compare A B`, or `anygrpo compare A/* B/*` over seeds: did the policy change, did the result?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from anygrpo.cli.compare_sentences import measure, rests_on, sentences, told_settings
from anygrpo.errors import AnygrpoError, ConfigError, DataError
from anygrpo.files import run_of
from anygrpo.spoken import LANGUAGES, Text, colon, current, say

TWO = Text("compare needs two runs", "compare 需要两次运行")
RATES = "--a .578 --b .573 --n 800"
GIVE = Text(f"give RUN_A RUN_B, or bare rates: {RATES}", f"请给出 RUN_A RUN_B，或只给比率：{RATES}")


def add_parser(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "compare",
        help="did the policy change, and did the result?",
        description=say(
            "Pairs the held-out answers of two runs, prompt by prompt, and compares their weights.",
            "逐个提示配对两次运行的留出集回答，并比较权重。",
        ),
    )
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help=say(
            "two run folders, or two of one run's checkpoints/...; the runs of two recipes over their seeds (A/* B/*); "
            "or logs of any framework",
            "两个运行文件夹，或同一运行的两个 checkpoints/...；两个配方各自多个种子的运行（A/* B/*）；或任何框架的日志",
        ),
    )
    parser.add_argument(
        "--arm",
        action="append",
        default=[],
        metavar="NAME=GLOB",
        help=say(
            "logs that are seeds of one arm; else they are found by wandb groups, settings, names or folders",
            "属于同一组的多个种子的日志；否则按 wandb 组、设置、名称或文件夹归组",
        ),
    )
    parser.add_argument(
        "--a",
        type=float,
        dest="rate_a",
        metavar="X",
        help=say("a rate, as .578: no runs needed", "比例，如 .578：不需要运行"),
    )
    parser.add_argument(
        "--b", type=float, dest="rate_b", metavar="X", help=say("the rate to compare it with", "与之比较的比例")
    )
    parser.add_argument(
        "--n", type=int, metavar="N", help=say("questions that each rate was measured on", "每个比例所依据的提示数")
    )
    parser.add_argument(
        "--noise",
        metavar="RUN",
        help=say("A with another seed: what chance alone changes", "换了种子的 A：仅由偶然造成的变化"),
    )
    parser.add_argument(
        "--weights",
        choices=("newest", "best", "none"),
        help=say("checkpoints to compare (newest)", "要比较的检查点（newest）"),
    )
    parser.add_argument("--lang", choices=LANGUAGES, default=current())
    parser.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Compare and print. A part that these runs do not allow is left out with its reason."""
    if args.rate_a is not None or args.rate_b is not None:
        return two_rates(args)
    if args.arm:
        return logs(args)
    if len(args.runs) < 2 and not (args.runs and Path(args.runs[0]).is_file()):
        raise ConfigError(TWO, GIVE)
    if not all(_opens(Path(path)) for path in args.runs):
        return logs(args)
    from anygrpo.probes import compare

    if len(args.runs) != 2:
        return _recipes([Path(run) for run in args.runs], args)
    refuse(args, Text("two runs", "两次运行"), ("n",))
    a, b = map(Path, args.runs)
    if args.weights in ("newest", "best") and (run_of(a) != a or run_of(b) != b):
        raise ConfigError(
            Text(
                f"a checkpoint is given, and --weights {args.weights} asks for one of its run",
                f"已给出检查点，而 --weights {args.weights} 又要求运行中的另一个",
            ),
            Text("leave --weights out, or give run folders", "去掉 --weights，或给出运行文件夹"),
        )
    noise = Path(args.noise) if args.noise else None
    report: dict[str, Any] = {"a": str(a), "b": str(b), "settings": compare.settings_that_differ(a, b), "left_out": {}}
    parts = {
        "no_effect": lambda: compare.inert_setting(a, b),
        "results": lambda: compare.results(a, b),
        "agreement": lambda: compare.greedy_agreement(a, b, noise),
    }
    weights = args.weights or "newest"
    if weights != "none":
        from anygrpo.probes.policies import compare_weights

        parts["policy"] = lambda: compare_weights(a, b, weights)
    for name, part in parts.items():
        try:
            report[name] = part()
        except AnygrpoError as error:
            report["left_out"][name] = error.what
    if args.json:
        print(json.dumps(report, ensure_ascii=False, indent=2))
    else:
        print("\n".join(sentences(report, args.lang)))
    return 0


def _opens(path: Path) -> bool:
    """A run folder, or one of its checkpoints."""
    return (run_of(path) / "config.toml").is_file()


def refuse(args: argparse.Namespace, what: Text, flags: tuple[str, ...]) -> None:
    """No flag is parsed and ignored.

    Raises:
        ConfigError: a flag was given that this comparison has no use for.
    """
    given = [f for f in flags if getattr(args, f) not in (None, [])]
    if not given:
        return
    names = ", ".join("RUN" if f == "runs" else f"--{f}" for f in given)
    uses = Text(
        "--noise and --weights belong to two run folders, --n to --a and --b, RUN and --arm to runs and logs",
        "--noise 和 --weights 用于两个运行文件夹，--n 用于 --a 和 --b，RUN 和 --arm 用于运行和日志",
    )
    raise ConfigError(
        Text(f"a comparison of {what.en} does not use {names}", f"比较{what.zh}用不到 {names}"),
        Text(f"leave {names} out: {uses.en}", f"去掉 {names}：{uses.zh}"),
    )


def _recipes(runs: list[Path], args: argparse.Namespace) -> int:
    """Two recipes over their seeds."""
    refuse(args, Text("recipes over seeds", "多个种子的配方"), ("n", "noise", "weights"))
    from anygrpo.probes import compare

    found = compare.recipes(runs)
    _one_of_each_run(found)
    if len(found) != 2:
        sides = "; ".join(", ".join(run.name for run in side) for side in found)
        raise ConfigError(
            Text(
                f"{len(runs)} runs of {len(found)} recipe(s): {sides}",
                f"{len(runs)} 次运行属于 {len(found)} 个配方：{sides}",
            ),
            Text(
                "give two runs, or the runs of two recipes that differ in nothing but their seeds",
                "请给出两次运行，或两个仅种子不同的配方的多次运行",
            ),
        )
    settings = compare.settings_that_differ(found[0][0], found[1][0])
    settings = [row for row in settings if row["setting"] != "seed"]
    both = compare.results_of_recipes(*found)
    results, compared = both["measures"], both["compared"]
    names = [[str(run) for run in side] for side in found]
    if args.json:
        report = {"a": names[0], "b": names[1], "settings": settings, "results": results, "compared": compared}
        print(json.dumps(report, ensure_ascii=False, indent=2))
        return 0
    lang = args.lang
    print(told_settings(settings, lang))
    print("\n".join(_of_recipes(results, lang) + rests_on(compared, lang)))
    return 0


def _one_of_each_run(recipes: list[list[Path]]) -> None:
    """Raises: ConfigError where two of a recipe are one run (its checkpoints share a seed), or two runs of one seed
    (a copy, or the same again: the spread between seeds would be told too small)."""
    from anygrpo.probes.compare import seed_of

    for side in recipes:
        first: dict[Path, Path] = {}
        seeds: dict[object, Path] = {}
        for path in side:
            one = first.setdefault(run_of(path).resolve(), path)
            alike = seeds.setdefault(seed_of(path), path)
            if alike is not path and one is path:
                raise ConfigError(
                    Text(
                        f"{alike} and {path} have the same recipe and the same seed: they are no two seeds",
                        f"{alike} 与 {path} 配方相同、种子也相同：不是两个种子",
                    ),
                    Text("give one run of each seed", "每个种子请只给一次运行"),
                )
            if one is not path:
                raise ConfigError(
                    Text(
                        f"{one} and {path} are of one run: they are no two seeds of their recipe",
                        f"{one} 与 {path} 属于同一次运行：不是该配方的两个种子",
                    ),
                    Text(
                        "give one checkpoint of each run, or the run folders",
                        "每次运行请只给一个检查点，或直接给出运行文件夹",
                    ),
                )


def _of_recipes(results: dict[str, Any], lang: str) -> list[str]:
    lines = []
    for name, x in results.items():
        sure = x["low"] > 0 or x["high"] < 0
        verdict = say("differs" if sure else "no difference shown", "有差异" if sure else "无法判定有差异", lang)
        interval = f"{x['mean_a']:.4f} | {x['mean_b']:.4f}, {x['difference']:+.4f} [{x['low']:+.4f}, {x['high']:+.4f}]"
        seeds, needed = f"{x['seeds_a']} + {x['seeds_b']}", x["seeds_needed"]
        over = say(f" ({seeds} seeds, {x['prompts']} prompts): ", f"（{seeds} 个种子，{x['prompts']} 个提示）：", lang)
        lines.append(f"{measure(name, lang)}{over}{interval}{colon(lang)}{verdict}")
        line = say(
            f"  from seed to seed {x['between_seeds']:.4f}; smallest difference these could show: "
            f"{x['detectable']:.4f}",
            f"  种子间标准差 {x['between_seeds']:.4f}；可检出的最小差异 {x['detectable']:.4f}",
            lang,
        )
        shown = say(
            f"; to show the measured one: {needed} seeds of each", f"；要证实所测差异每个配方需 {needed} 个种子", lang
        )
        lines.append(line + ("" if needed is None else shown))
        if "bootstrap" in x:
            low, high = x["bootstrap"]
            both = say("bootstrap over seeds and prompts", "对种子与提示的自助法", lang)
            lines.append(f"  {both}: [{low:+.4f}, {high:+.4f}]")
    return lines


def two_rates(args: argparse.Namespace) -> int:
    """What two rates and their number of questions can show.

    Raises:
        ConfigError: one of the three is missing or no rate.
    """
    from anygrpo.doctor.arms import rates, rates_text

    if args.rate_a is None or args.rate_b is None or args.n is None:
        raise ConfigError(
            Text("two rates need --a, --b and --n", "比较两个比率需要 --a、--b 与 --n"),
            Text("as in: anygrpo compare --a .578 --b .573 --n 800", "例如：anygrpo compare --a .578 --b .573 --n 800"),
        )
    refuse(args, Text("two rates", "两个比例"), ("runs", "arm", "noise", "weights"))
    found = rates(args.rate_a, args.rate_b, args.n)
    print(json.dumps(found, indent=2) if args.json else rates_text(found, args.lang))
    return 0


def logs(args: argparse.Namespace) -> int:
    """Logs of any framework side by side, seeds of one arm together: what each difference is worth, where they part.

    Raises:
        ConfigError: fewer than two runs, or a flag of another comparison.
    """
    from anygrpo.doctor.arms import arms, arms_text
    from anygrpo.doctor.diagnose import columns_of
    from anygrpo.doctor.readers import read_all
    from anygrpo.doctor.seeds import stated_arms

    refuse(args, Text("logs", "日志"), ("n", "noise", "weights"))
    runs, labels = [], list[str]()
    for label, path in [("", run) for run in args.runs] + stated_arms(args.arm):
        try:
            found = read_all(path)
        except DataError as error:
            what = Text(f"{path} holds no run: {error.what}", f"{path} 中没有运行记录：{error.what}")
            raise DataError(what, Text("give run folders or logs", "请给出运行文件夹或日志")) from None
        runs += [columns_of(log) for log in found]
        labels += [label or str(path)] * len(found)
    if len(runs) < 2:
        raise ConfigError(TWO, GIVE)
    compared = arms(runs, labels if args.arm else ())
    print(json.dumps(compared, ensure_ascii=False, indent=2) if args.json else arms_text(compared, args.lang))
    return 0
