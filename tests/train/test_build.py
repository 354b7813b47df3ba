"""From a recipe to a run that is ready: what is set, asked and refused before the first step."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from runs import run_of, table
from stages import stage_of
from toys import Bandit, BestArm, NothingHeldOut

import anygrpo
from anygrpo.errors import ConfigError, DataError
from anygrpo.recipe.load import parse_recipe
from anygrpo.train import build
from anygrpo.train.build import check_stages, new_run, resumed_run
from anygrpo.train.folder import read_rows
from anygrpo.train.loop import train
from anygrpo.train.stages import PlannedStage


def recipe_of(folder=None, **extra):
    return parse_recipe(table(folder, **extra))


def built(folder, policy=None, task=None, **extra):
    run = new_run(recipe_of(folder, **extra), policy, task)
    run.close()
    return run


# --- new runs


def test_a_run_of_objects_that_are_here_already(tmp_path):
    policy, task = Bandit(3), BestArm(5)
    run = built(tmp_path / "run", policy, task)
    assert run.policy is policy
    assert run.stages[0].task is task
    kept = json.loads((tmp_path / "run" / "fingerprints.json").read_text())["fingerprints"]
    assert set(kept) == {"recipe", "data", "model", "file policy.function", "file task.function", "environment"}


def test_a_run_without_a_folder_takes_the_next_free_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        run = built(None, name="odd")
        assert run.folder.path.resolve() == tmp_path / "runs" / f"odd-{number}"


def test_what_is_no_policy_is_refused(tmp_path):
    with pytest.raises(ConfigError):
        new_run(recipe_of(tmp_path / "run"), policy=object())


def test_seeds_threads_and_kernels(tmp_path):
    """Tasks and policies that draw while they are built are the same each time, whatever was drawn before."""
    seen = []

    class Draws(BestArm):
        def prepare(self, outputs_of, folder):
            seen.append(float(torch.rand(1)))

    threads, kernels = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    try:
        for noise in (1, 2):
            torch.manual_seed(noise)
            built(tmp_path / str(noise), Bandit(0), Draws(), training={"threads": 2, "deterministic": True, "steps": 1})
            assert torch.get_num_threads() == 2
            assert torch.are_deterministic_algorithms_enabled()
        built(tmp_path / "off", Bandit(0), training={"steps": 1})
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch.get_num_threads() == 2  # none is said: as it is
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(kernels)
    assert len(set(seen)) == 1
    built(tmp_path / "other", Bandit(0), Draws(), seed=9, training={"steps": 1})
    assert seen[-1] != seen[0]


def test_tasks_are_prepared_once_with_the_start_policys_answers(tmp_path):
    asked = []

    class Ranks(BestArm):
        def prepare(self, outputs_of, folder):
            asked.append((outputs_of(self.held_out()[:3]), folder))

    stages = [{"name": "a", "steps": 1}, {"name": "b", "steps": 1}]
    policy = Bandit(0)
    built(tmp_path / "run", policy, Ranks(), stages=stages)
    prompts = BestArm().held_out()[:3]
    assert asked == [(policy.decode(policy.greedy(prompts).samples), tmp_path / "run")]


def test_what_fails_in_the_start_policys_answers_is_not_the_tasks(tmp_path):
    """Memory that ran out there is told as it is; what `prepare` itself does wrong names it."""

    class Full(Bandit):
        def greedy(self, prompts):
            if len(prompts) > 50:
                raise error
            return super().greedy(prompts)

    class Ranks(BestArm):
        def prepare(self, outputs_of, folder):
            outputs_of(self.held_out()[: self.asked])

    class Hides(Ranks):
        def prepare(self, outputs_of, folder):
            try:
                super().prepare(outputs_of, folder)
            except RuntimeError:
                raise KeyError("mine") from None

    error, task, hides = torch.cuda.OutOfMemoryError("CUDA out of memory"), Ranks(), Hides()
    task.asked = hides.asked = 60
    with pytest.raises(torch.cuda.OutOfMemoryError) as told:
        built(tmp_path / "full", Full(0), task)
    assert told.value is error
    with pytest.raises(ConfigError, match=r"Hides\.prepare raised KeyError: 'mine'"):
        built(tmp_path / "hides", Full(0), hides)
    task.asked = "all"
    with pytest.raises(ConfigError, match=r"Ranks\.prepare raised TypeError"):
        built(tmp_path / "mistaken", Full(0), task)


def test_speed_that_was_chosen_is_taken_again(tmp_path):
    run = built(tmp_path / "run", training={"steps": 2})
    assert run.policy.speed == {}
    run.folder.keep_speed({"rows": 3})
    again = resumed_run(tmp_path / "run")
    again.close()
    assert again.policy.speed == {"rows": 3}


def test_rows_go_to_every_sink(tmp_path, monkeypatch):
    made, rows = [], []

    def sink(kind, folder, project, name, config):
        made.append((kind, folder, project, name, config["training"]["steps"]))
        return SimpleNamespace(write=rows.append, close=lambda: None)

    monkeypatch.setattr(build, "build_sink", sink)
    monkeypatch.setattr(build, "check_installed", lambda kinds: None)
    run = new_run(recipe_of(tmp_path / "run", training={"steps": 2, "sinks": ["wandb", "trackio"], "project": "p"}))
    run.emit({"step": 0})
    run.close()
    assert made == [(kind, tmp_path / "run", "p", "toy", 2) for kind in ("wandb", "trackio")]
    assert rows == [{"step": 0}] * 2
    assert read_rows(run.folder.metrics)[0] == [{"step": 0}]


def test_pass_at_k_that_nothing_can_answer_is_said(tmp_path, capsys):
    class Unjudged(BestArm):
        success = None

    built(tmp_path / "a", Bandit(0), Unjudged(), evaluation={"pass_k": 2})
    assert "evaluation.pass_k = 2 is left out" in capsys.readouterr().err
    assert "evaluation.pass_k = 2 is left out" in (tmp_path / "a" / "log.txt").read_text()
    built(tmp_path / "b", Bandit(0), BestArm(), evaluation={"pass_k": 2})
    assert capsys.readouterr().err == ""


def test_the_room_can_be_called(tmp_path, monkeypatch):
    import anygrpo.watch.session as session

    given = []
    monkeypatch.setattr(session, "train", lambda *a, **k: given.append((a, k)) or "trained")
    assert anygrpo.train(1, b=2) == "trained"
    assert given == [((1,), {"b": 2})]


# --- what later stages will ask


def planned(task=None, steps=3, **settings):
    stage = stage_of(**settings)
    return PlannedStage(stage, task or BestArm(), 0, steps)


def test_terms_and_optimizers_of_every_stage_are_tried():
    recipe = recipe_of()
    check_stages(Bandit(0), [planned(), planned()], recipe)
    with pytest.raises(ConfigError, match="cannot compute"):
        check_stages(Bandit(0), [planned(), planned(lambda_consistency=0.5)], recipe)
    policy = Bandit(0)
    policy.net.requires_grad_(False)
    with pytest.raises(ConfigError, match="no trainable weights"):
        check_stages(policy, [planned()], recipe)


def test_every_prompt_is_looked_at_once():
    class Looks(Bandit):
        def __init__(self):
            super().__init__(0)
            self.looked = []

        def check_prompts(self, prompts):
            self.looked.append(len(prompts))

    policy, endless, ended = Looks(), BestArm(), BestArm(size=7)
    check_stages(policy, [planned(endless), planned(ended), planned(endless)], recipe_of())
    assert policy.looked == [200, 207]


def test_patience_needs_something_held_out():
    patient = recipe_of(evaluation={"patience": 2})
    with pytest.raises(ConfigError, match=r"evaluation\.patience = 2, but"):
        check_stages(Bandit(0), [planned(), planned(NothingHeldOut())], patient)
    check_stages(Bandit(0), [planned(NothingHeldOut()), planned()], patient)  # the last one decides
    check_stages(Bandit(0), [planned(NothingHeldOut())], recipe_of())
    check_stages(Bandit(0), [], patient)


def test_a_users_own_are_tried_at_the_border(monkeypatch):
    tasks, policies = [], []
    monkeypatch.setattr(build.task_border, "check_task", lambda task, count: tasks.append((task, count)) or ["p"])
    monkeypatch.setattr(
        build.border, "check_policy", lambda policy, prompts, greedy: policies.append((prompts, greedy))
    )
    own, other = BestArm(), NothingHeldOut()
    stage = lambda task, source="policy", kind="python": PlannedStage(  # noqa: E731
        SimpleNamespace(task=SimpleNamespace(kind=kind), source=source, algorithm=SimpleNamespace(prompts_per_step=5)),
        task, 0, 1,
    )  # fmt: skip
    recipe = recipe_of()
    build._try_own(recipe, Bandit(0), [stage(own), stage(own), stage(other)])
    assert tasks == [(own, 5), (other, 5)]
    assert policies == [(["p"], True), (["p"], False)]
    tasks.clear(), policies.clear()
    build._try_own(recipe, Bandit(0), [stage(own, "stored", "records")])
    assert (tasks, policies) == ([(own, 5)], [])
    ours = SimpleNamespace(policy=SimpleNamespace(kind="selector"))
    tasks.clear()
    build._try_own(ours, Bandit(0), [stage(own, kind="records")])
    assert tasks == []
    build._try_own(ours, Bandit(0), [stage(own)])
    assert (tasks, policies) == ([(own, 5)], [])


# --- resumed runs


def test_a_folder_without_a_recipe_is_no_run(tmp_path):
    with pytest.raises(DataError, match="holds no run to continue"):
        resumed_run(tmp_path)


def test_a_run_that_saved_nothing_begins_again(tmp_path):
    run = run_of(tmp_path / "run", training={"steps": 3})
    run.emit({"step": -1, "eval/reward": 0.5})
    run.emit({"step": 0})
    run.close()
    again = resumed_run(tmp_path / "run")
    assert read_rows(again.folder.metrics)[0] == []
    assert (again.step, again.entered) == (0, -1)
    assert len((tmp_path / "run" / "resumes.jsonl").read_text().splitlines()) == 1
    again.close()


def test_flags_of_a_resume_hold(tmp_path):
    run = run_of(tmp_path / "run", training={"steps": 2})
    train(run)
    run.close()
    again = resumed_run(tmp_path / "run", ["--training.steps", "5"])
    assert (again.step, again.total_steps) == (2, 5)
    again.close()


def test_the_measured_budget_is_in_the_log_and_in_the_stages(tmp_path, monkeypatch):
    from anygrpo.train import budget

    monkeypatch.setattr(budget, "cheap_samples", lambda policy, prompts, planned: 24)
    auto = {"group_size": "auto", "smallest_group": 2, "largest_group": 8}
    stages = [{"name": "a", "steps": 1}, {"name": "b", "steps": 1, "algorithm": auto}]
    run = built(tmp_path / "run", algorithm={"prompts_per_step": 4, "group_size": 2}, stages=stages)
    assert run.stages[1].stage.algorithm.samples_per_step == 24
    assert run.recipe.stages[1].algorithm["samples_per_step"] == 24
    assert "group_size = auto: 24 samples a step, as measured here" in (tmp_path / "run" / "log.txt").read_text()
    plain = built(tmp_path / "plain")
    assert not (plain.folder.path / "log.txt").exists()


def test_a_users_own_policy_and_task_are_tried(tmp_path):
    class Mine(BestArm):
        def prompts(self, step, count):
            return super().prompts(step, count - 1)

    with pytest.raises(ConfigError, match=r"Mine\.prompts returned a list of 7"):
        built(tmp_path / "run", Bandit(0), Mine())
