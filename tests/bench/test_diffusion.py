"""The diffusion comparison: the plain DDPO loop is diffusers' DDIM and torch's normal; both gradients agree; memory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from compare import main
from peers import diffusion
from peers.diffusion import ddpo_peer, ours
from peers.diffusion.cases import Case, case_named, conditions, denoiser_of, reward_of, scheduler_of

from anygrpo.bench.rounds import Worker
from anygrpo.errors import ConfigError, DataError

TINY = {name: case_named(f"tiny-{name}") for name in ("unet", "motion")}


@pytest.mark.parametrize("name", TINY)
def test_the_two_gradients_of_one_step_agree(name, tmp_path):
    case, path = TINY[name], str(tmp_path / "first.pt")
    made = ours.measure(case, 1, path)
    assert made["steps"][0]["decisions"] == case.samples * case.steps
    # Ours is within 6e-6 of float64; the loop makes DDIM's coefficients in float32, which costs 1e-4 where the clean
    # sample is predicted and little noise is left.
    assert ddpo_peer.compare(case, path)["gradient_relative_difference"] < 3e-4
    saved = torch.load(path)
    max(saved["gradient"].values(), key=lambda g: float(g.abs().sum())).mul_(-1)
    torch.save(saved, path)
    assert ddpo_peer.compare(case, path)["gradient_relative_difference"] > 1e-2


def test_the_plain_loop_counts_its_work():
    made = ddpo_peer.measure(TINY["motion"], 2)
    assert [step["decisions"] for step in made["steps"]] == [8 * 3] * 2
    assert set(made["steps"][0]["phases"]) == {"step", "sample", "train", "optimizer"}
    assert made["parameters"] == sum(p.numel() for p in denoiser_of(TINY["motion"]).parameters())


def test_the_plain_loops_transition_is_that_of_diffusers():
    scheduler, x = scheduler_of(TINY["motion"]), torch.randn(2, *TINY["motion"].shape)
    out = torch.randn_like(x)
    for t in scheduler.timesteps:
        mean, std = ddpo_peer.transition(scheduler, out, t.expand(2), x)
        expected = scheduler.step(out, t, x, eta=1.0, variance_noise=torch.zeros_like(x)).prev_sample
        torch.testing.assert_close(mean, expected, atol=1e-5, rtol=1e-4)
        assert (std > 0).all()  # the last one too
        action = mean + std * torch.randn_like(x)
        normal = torch.distributions.Normal(mean, std.expand_as(mean)).log_prob(action)
        torch.testing.assert_close(ddpo_peer.log_prob_of(action, mean, std), normal.flatten(1).mean(1))


def test_cases_that_cannot_be():
    with pytest.raises(ConfigError, match="motion"):
        case_named("moton")
    with pytest.raises(ConfigError, match="8 samples in forward passes of 3"):
        case_named("tiny-unet", rows=3)
    with pytest.raises(ConfigError, match="TRL trains U-Nets"):
        diffusion.compare(TINY["motion"], peer="trl")
    with pytest.raises(DataError, match=r"trl\.trainer\.ddpo_trainer"):
        diffusion.compare(TINY["unet"], peer="trl")  # TRL as installed here has it no more


def test_conditions_and_rewards():
    assert all(torch.equal(x, conditions(TINY["unet"], 3)[name]) for name, x in conditions(TINY["unet"], 3).items())
    assert reward_of(torch.tensor([[1.0, 3.0], [2.0, 0.0]])).tolist() == [-5.0, -2.0]


def here(worker, arguments, threads, name):
    """A worker's work in this process."""
    given = dict(zip(arguments[::2], arguments[1::2]))
    case, steps = Case(**json.loads(given["--case"])), int(given["--steps"])
    if worker.name == "anygrpo":
        return ours.measure(case, steps, given.get("--save"))
    return ddpo_peer.compare(case, given["--check"]) if "--check" in given else ddpo_peer.measure(case, steps)


def test_the_command_beside_the_plain_loop(monkeypatch, capsys):
    monkeypatch.setattr(Worker, "run", here)
    command = ["diffusion", "--case", "tiny-motion", "--denoising-steps", "2", "--rounds", "1", "--json"]
    assert main(command) == 0
    (row,) = json.loads(capsys.readouterr().out)
    fields = {"case", "ours_s", "peer_s", "ratio", "ratio_min", "ratio_max", "ours_peak_gb", "peer_peak_gb", "phases"}
    assert fields <= row.keys()
    assert (row["denoising_steps"], row["decisions"]) == (2, 8 * 2)
    assert row["gradient_relative_difference"] < 3e-4
    assert row["parameters"]["ours"] == row["parameters"]["peer"]
    assert {"ours_grown_gb", "peer_grown_gb"} <= row.keys()


@pytest.mark.slow
def test_the_command_in_processes_of_their_own(capsys):
    assert main(["diffusion", "--case", "tiny-motion", "--rounds", "1"]) == 0
    assert "same work: 24 decisions each" in capsys.readouterr().out


PEER = os.environ.get("ANYGRPO_DDPO_PYTHON", "")


@pytest.mark.slow
@pytest.mark.skipif(not Path(PEER).is_file(), reason="ANYGRPO_DDPO_PYTHON names no environment with TRL 0.23.1")
def test_the_tiny_case_against_trl(capsys):
    command = ["diffusion", "--case", "tiny-unet", "--vs", "trl", "--rounds", "1", "--json"]
    assert main([*command, "--peer-python", PEER]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["gradient_relative_difference"] < 1e-4
    assert row["peer"] == "trl"
