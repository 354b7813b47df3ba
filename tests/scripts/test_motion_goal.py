"""What bench/motion_goal.py says of a start, by hand."""

import importlib.util
import json
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"


def module():
    sys.path.insert(0, str(BENCH))
    try:
        spec = importlib.util.spec_from_file_location("bench_motion_goal", BENCH / "motion_goal.py")
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
    finally:
        sys.path.remove(str(BENCH))
    return made


goal = module()


def made(judge, jerk=0.0, frechet=-0.1):
    changes = {n: {"change": 0.0, "se": 0.01} for n in goal.HELD}
    changes |= {"judge": {"change": judge, "se": 0.01}, "frechet": {"change": frechet, "se": 0.05}}
    changes["jerk"]["change"] = jerk
    levels = {"before": {"eval/motion/judge": 0.8}, "captured": {"judge": 0.9}, "shown": 0.85}
    return levels | {"changes": changes, "steps": 9, "seconds": 1.0}


def test_the_share_of_the_distance_and_what_got_worse():
    share, error = goal.share_of(made(0.03))
    assert (round(share, 6), round(error, 6)) == (0.3, 0.1)
    assert goal.worse(made(0.03)) == []
    assert goal.worse(made(0.03, jerk=-0.019)) == []  # within two errors
    assert goal.worse(made(0.03, jerk=-0.021, frechet=0.01)) == ["jerk", "frechet"]


def test_the_goal_needs_a_quarter_more_than_supervision_and_nothing_worse(tmp_path):
    starts = [(0.03, 0.02, 0.0), (0.024, 0.0, 0.0), (0.03, 0.04, 0.0), (0.03, 0.02, -0.03)]
    for i, (ours, theirs, jerk) in enumerate(starts):
        folder = tmp_path / f"seed_{i}"
        folder.mkdir()
        (folder / "grpo.json").write_text(json.dumps(made(ours, jerk)))
        (folder / "supervised.json").write_text(json.dumps(made(theirs)))
    (tmp_path / "seed_9").mkdir()  # a start that did not end
    text = goal.table(tmp_path)
    assert text.endswith("is reached in 1 of 4 starts that both arms ended.")
    assert text.count("| grpo |") == 4
