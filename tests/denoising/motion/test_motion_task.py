"""The motion task on three small made-up clips, and on the fetched ones where they are."""

import json
import math
from functools import cache

import pytest
import torch

from anygrpo.core.build import build_task
from anygrpo.denoising.motion import policy as motion
from anygrpo.denoising.motion.bank import JUDGE_SPEEDS, REWARD_SPEEDS
from anygrpo.denoising.motion.captions import PHRASES, training_captions, withheld_phrase
from anygrpo.denoising.motion.clips import CMU_FOLDER, default_folder
from anygrpo.denoising.motion.settings import MotionPolicyConfig, MotionTaskConfig
from anygrpo.errors import DataError

FETCHED = default_folder()
"""Where the fetched clips lie; read here, because a fixture moves the cache."""

CLIPS = {"humanoid3d_walk": 1.0, "humanoid3d_kick": 3.0, "turn_left0": 0.3}


def frame(t, tempo):
    swing = 0.5 * math.sin(2 * math.pi * tempo * t)
    hip = [math.cos(swing / 2), 0.0, 0.0, math.sin(swing / 2)]
    back = [math.cos(swing / 2), 0.0, 0.0, -math.sin(swing / 2)]
    one = [1.0, 0.0, 0.0, 0.0]
    legs = [*hip, -0.3, *one, *one, 0.2]
    return [0.05, tempo * t, 0.9, 0.0, *one, *one, *one, *legs, *back, -0.3, *one, *one, 0.2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("clips")
    for name, tempo in CLIPS.items():
        frames = [frame(i / 20, tempo) for i in range(21)]
        (path / f"{name}.txt").write_text(json.dumps({"Loop": "wrap", "Frames": frames}))
    return path


@pytest.fixture(scope="module")
def make(folder):
    """build_task with the cache in a folder of the test's own."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    @cache
    def build(seed=0, **given):
        settings = {"layout": "compact", "frames": 24, "path": str(folder), "matcher_steps": 12}
        return build_task(MotionTaskConfig(**(settings | given)), seed)

    yield build
    monkeypatch.undo()


def test_prompts_are_a_function_of_seed_and_step(make):
    a, b, other = make(0), make(0), make(1)
    assert a.prompts(3, 4) == b.prompts(3, 4)
    assert a.prompts(3, 4) != a.prompts(4, 4)
    assert a.prompts(3, 4) != other.prompts(3, 4)
    assert a.held_out() == other.held_out()
    asked = {p["caption"] for s in range(40) for p in a.prompts(s, 4)}
    assert not asked & {p["caption"] for p in a.held_out()}


def test_the_validation_split_shares_neither_captions_nor_seeds_with_the_test_split(make):
    test, validation = make().held_out(), make(held_out_split="validation").held_out()
    for key in ("caption", "seed"):
        assert not {p[key] for p in test} & {p[key] for p in validation}
    assert all(p["caption"] in training_captions(p["action"]) for p in validation)


def test_a_caption_that_comes_again_has_other_seeds(make):
    turns = [p for p in make(held_out=3).held_out() if p["action"] == "turn_left"]
    assert len({p["caption"] for p in turns}) == 1  # the hash holds out one
    assert len({p["seed"] for p in turns}) == len(turns) == 12


def test_demonstrations_score_high_and_noise_low(make):
    task = make()
    prompts = task.prompts(0, 6)
    real = task.stored(prompts).actions
    noise = [[3 * torch.randn(24, 47, generator=torch.Generator().manual_seed(i))] for i in range(6)]
    good, bad = task.score(prompts, real), task.score(prompts, noise)
    assert bool(good.valid.all())
    assert float(good.rewards.min()) > float(bad.rewards.max())
    parts = good.components
    assert set(parts) == {"matching", "skating", "floor", "floating", "jerk", "limits"}
    expected = (parts["matching"] + 0.1 * sum(v for n, v in parts.items() if n != "matching")) / 1.5
    assert torch.allclose(good.rewards, expected)


def test_diversity_is_the_distance_to_the_actions_mean_motion(make):
    task = make(diversity=0.5)
    prompts = task.prompts(0, 2)
    (near, spread), (far, _) = (task.means[p["action"]] for p in prompts)
    scores = task.score(prompts, [[near, near + spread / 2], [far + 100, torch.zeros(3, 47)]])
    values = scores.components["diversity"]
    assert values.tolist() == [[0.0, pytest.approx(0.5)], [1.0, 0.0]]  # the last is invalid
    expected = scores.components["matching"] + 0.5 * values
    for name in ("skating", "floor", "floating", "jerk", "limits"):
        expected = expected + 0.1 * scores.components[name]
    assert torch.allclose(scores.rewards[0], expected[0] / 2.0)


def test_captured_motions_have_most_of_the_diversity_part(make):
    task = make(diversity=0.5)
    prompts = task.prompts(0, 12)
    values = task.score(prompts, task.stored(prompts).actions).components["diversity"]
    assert 0.6 < float(values.mean()) < 1


def test_each_segments_diversity_is_to_its_own_actions_mean(make):
    task = make(captions=2, diversity=0.5)
    prompt = {"captions": ["a", "b"], "actions": ["walk", "kick"], "lengths": [12, 12], "windows": [0, 0]}
    both = torch.cat([task.means["walk"][0][:12], task.means["kick"][0][:12] + 100])
    assert task.spread(prompt, both) == pytest.approx(0.5)


def test_what_is_no_motion_is_invalid_with_a_reason(make):
    task = make()
    prompts = task.prompts(0, 1)
    good = torch.zeros(24, 47)
    scores = task.score(prompts, [[good, "text", torch.zeros(3, 47), good / 0]])
    assert scores.valid.tolist() == [[True, False, False, False]]
    assert [scores.reasons[(0, g)].split(":")[0] for g in (1, 2, 3)] == ["not a motion", "too short", "not finite"]


def test_measures_are_blind_to_weights_and_see_collapse(make):
    task = make()
    held = task.held_out()
    assert len(held) == 3 * 2 * 4 + 8  # turn_left's mirror is turn_right
    same = [[task.stored([p]).actions[0][0]] for p in held]
    row = task.measure(held, same)
    assert row["eval/motion/diversity"] == 0.0
    varied = [
        [m[0] + 0.5 * torch.randn(m[0].shape, generator=torch.Generator().manual_seed(i))] for i, m in enumerate(same)
    ]
    noisy = task.measure(held, varied)
    assert noisy["eval/motion/diversity"] > 0.5
    assert noisy["eval/motion/jerk"] < row["eval/motion/jerk"]
    names = ("skating", "floor", "floating", "contact", "jerk", "limits", "duration", "judge", "diversity", "frechet")
    assert set(row) == {f"eval/motion/{n}" for n in names}


def test_several_captions_are_rewarded_by_segment(make):
    task = make(captions=2)
    prompt = task.prompts(0, 1)[0]
    assert prompt["lengths"] == [12, 12]
    demonstration = task.stored([prompt]).actions[0][0]
    assert demonstration.shape == (24, 47)
    prompt = prompt | {"captions": ["a man kicks", "a man walks forward"]}
    swapped = prompt | {"captions": prompt["captions"][::-1]}
    one, two = (task.score([p], [[demonstration]]).components["matching"].item() for p in (prompt, swapped))
    assert one != two
    first = task.matcher.score([prompt["captions"][0]], [demonstration[:12]])
    second = task.matcher.score([prompt["captions"][1]], [demonstration[12:]])
    assert one == pytest.approx(float(first + second) / 2, abs=1e-5)


def test_no_window_is_in_both_splits(make):
    assert not set(REWARD_SPEEDS) & set(JUDGE_SPEEDS)
    task = make()
    kept = {w.features.sum().item() for ws in task.kept.windows.values() for w in ws}
    assert not kept & {w.features.sum().item() for ws in task.bank.windows.values() for w in ws}


def test_a_judge_of_other_clips_shares_no_clip_and_no_phrase(make, tmp_path):
    for name, tempo in (CLIPS | {"0walk_forward": 1.2}).items():
        frames = [frame(i / 20, tempo) for i in range(21)]
        (tmp_path / f"{name}.txt").write_text(json.dumps({"Loop": "wrap", "Frames": frames}))
    task = make(path=str(tmp_path), judge="clips")
    assert task.kept.actions == ["walk"]  # the only action with two clips
    assert task.bank.actions == ["kick", "turn_left", "turn_right", "walk"]  # a mirrored turn is one to the other side
    assert len(task.bank.windows["walk"]) == len(REWARD_SPEEDS) * 2 * 4  # one clip, mirrored too, from four starts
    learnt = {p["caption"] for step in range(40) for p in task.prompts(step, 8)}
    measured = {p["caption"] for p in task.held_out()}
    assert measured == {"a person strolls forward calmly", "a man strolls forward calmly"}
    assert not any(c.endswith(withheld_phrase("walk")) for c in learnt)
    validation = make(path=str(tmp_path), judge="clips", held_out_split="validation")
    assert not measured & {p["caption"] for p in validation.held_out()}
    for step in range(3):
        prompts = task.prompts(step, 2)
        assert task.score(prompts, task.stored(prompts).actions).valid.all()
    for one in (task, make(path=str(tmp_path), judge="clips", captions=2)):  # in a row: only what the judge knows
        motions = [[one.captured_like(p, i)] for i, p in enumerate(one.held_out())]
        assert one.measure(one.held_out(), motions)["eval/motion/frechet"] == pytest.approx(0, abs=1e-4)


def test_without_a_second_clip_there_is_none_to_leave_to_the_judge(make):
    with pytest.raises(DataError, match="no action has two clips"):
        make(judge="clips")


def test_the_withheld_phrase_has_words_that_the_others_have():
    assert withheld_phrase("walk") == "strolls forward calmly"
    assert withheld_phrase("get_up") == "gets up from the floor"  # the floor: also in "rises from the floor"
    assert withheld_phrase("dance") == "dances with moving arms"
    assert all(withheld_phrase(a) in PHRASES[a] for a in PHRASES)


def test_the_matcher_is_the_same_for_every_seed_and_kept(make, folder):
    a, b = make(0), make(5)
    assert all(torch.equal(x, y) for x, y in zip(a.matcher.parameters(), b.matcher.parameters()))
    assert len(list((folder / "cache" / "anygrpo" / "motion" / "matchers").glob("*.pt"))) >= 2
    assert not any(p.requires_grad for p in a.matcher.parameters())


def test_pictures(make, tmp_path):
    task = make()
    prompts = task.held_out()[:2]
    real = [task.stored([p]).actions[0] for p in prompts]
    files = task.pictures(prompts, real, real, tmp_path / "pictures")
    assert [f.name for f in files] == ["motion_00.png", "motion_00.gif", "motion_01.png", "motion_01.gif"]
    from PIL import Image

    with Image.open(files[1]) as gif:
        assert gif.n_frames == 24
    with Image.open(files[0]) as strip:
        assert len(strip.convert("RGB").getcolors(1_000_000)) > 3


def test_policy_and_task_fit(make):
    task = make()
    policy = motion.build(MotionPolicyConfig(features=47, frames=24, width=16, layers=1, heads=2, steps=4), 0)
    prompts = task.prompts(0, 2)
    rollout = policy.sample(prompts, 2, seed=0)
    scored = rollout.scored(task.score(prompts, policy.decode(rollout.samples)))
    assert bool(scored.valid.all())
    replayed = policy.replay(prompts, task.stored(prompts), seed=0)
    assert replayed.samples["clean"].shape == (2, 1, 24, 47)
    assert policy.show(prompts, policy.decode(rollout.samples))


@pytest.mark.slow
@pytest.mark.skipif(not list(FETCHED.glob("*.txt")), reason="clips not fetched (scripts/fetch_motion.py)")
def test_the_judges_agree_on_captured_motion():
    task = build_task(MotionTaskConfig(layout="compact", frames=40, path=str(FETCHED)), 0)
    held = task.held_out()
    real = [task.stored([p]).actions[0] for p in held]
    assert len(task.bank.actions) == 15
    assert float(task.score(held, real).rewards.mean()) > 0.9
    assert task.measure(held, real)["eval/motion/judge"] > 0.9


@pytest.mark.slow
@pytest.mark.skipif(not list(CMU_FOLDER.glob("*.bvh")), reason="assimp-testmodels is not installed")
@pytest.mark.skipif(not list(FETCHED.glob("*.txt")), reason="clips not fetched (scripts/fetch_motion.py)")
def test_cmu_clips_load():
    task = build_task(MotionTaskConfig(layout="compact", frames=40, path=str(FETCHED), cmu=True, matcher_steps=1), 0)
    assert {"box", "playground_jump", "playground_climb"} <= set(task.bank.actions)
