"""The diffusion comparison: the plain DDPO loop is diffusers' DDIM and torch's normal; both gradients agree; memory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from compare import main
from peers import diffusion
from peers.diffusion import bare_peer, ddpo_peer, flow_grpo_peer, ours
from peers.diffusion.cases import Case, case_named, conditions, denoiser_of, reward_of, scheduler_of

from anygrpo.bench.rounds import Worker
from anygrpo.errors import ConfigError, DataError

TINY = {name: case_named(f"tiny-{name}") for name in ("unet", "motion", "flow")}
LOOPS = {
    name: ddpo_peer.Loop(case, flow_grpo_peer.transition if name == "flow" else ddpo_peer.ddim)
    for name, case in TINY.items()
}


@pytest.mark.parametrize("name", TINY)
def test_the_two_gradients_of_one_step_agree(name, tmp_path):
    case, path = TINY[name], str(tmp_path / "first.pt")
    made = ours.measure(case, 1, path)
    assert made["steps"][0]["decisions"] == case.samples * case.decisions
    # Ours is within 6e-6 of float64; the loop makes DDIM's coefficients in float32, which costs 1e-4 where the clean
    # sample is predicted and little noise is left.
    limit = 3e-3 if torch.cuda.is_available() else 3e-4  # the loop is compared on the processor, wherever ours was
    assert LOOPS[name].compare(path)["gradient_relative_difference"] < limit
    saved = torch.load(path)
    max(saved["gradient"].values(), key=lambda g: float(g.abs().sum())).mul_(-1)
    torch.save(saved, path)
    assert LOOPS[name].compare(path)["gradient_relative_difference"] > 1e-2


def test_the_plain_loop_counts_its_work():
    made = LOOPS["motion"].measure(2)
    assert [step["decisions"] for step in made["steps"]] == [8 * 3] * 2
    assert set(made["steps"][0]["phases"]) == {"step", "sample", "train", "optimizer"}
    assert made["parameters"] == sum(p.numel() for p in denoiser_of(TINY["motion"]).parameters())


def test_the_plain_loops_transition_is_that_of_diffusers():
    scheduler, x = scheduler_of(TINY["motion"]), torch.randn(2, *TINY["motion"].shape)
    out = torch.randn_like(x)
    for t in scheduler.timesteps:
        mean, std = ddpo_peer.ddim(scheduler, out, t.expand(2), x)
        expected = scheduler.step(out, t, x, eta=1.0, variance_noise=torch.zeros_like(x)).prev_sample
        torch.testing.assert_close(mean, expected, atol=1e-5, rtol=1e-4)
        assert (std > 0).all()  # the last one too
        action = mean + std * torch.randn_like(x)
        normal = torch.distributions.Normal(mean, std.expand_as(mean)).log_prob(action)
        torch.testing.assert_close(ddpo_peer.log_prob_of(action, mean, std), normal.flatten(1).mean(1))


def test_the_flow_loops_transition_keeps_the_flows_marginals():
    """Where the data are one point (0), x = level z, its velocity z: the next latent has the next level's std."""
    scheduler = scheduler_of(TINY["flow"])
    z = torch.randn(1, 200_000, generator=torch.Generator().manual_seed(0))
    for t, level, below in zip(scheduler.timesteps, scheduler.sigmas, scheduler.sigmas[1:]):
        x = level * z
        mean, std = flow_grpo_peer.transition(scheduler, z, t.expand(1), x)
        if below == 0:
            assert float(std) == 0
            torch.testing.assert_close(mean, torch.zeros_like(mean), atol=1e-6, rtol=0)
        else:  # Euler: to first order in the step
            drift = float((mean.square().mean() + std**2).sqrt() / below)
            assert abs(drift - 1) < 2 * float(level - below) / float(below)


def test_the_bare_passes_are_as_many_as_a_step_makes(monkeypatch):
    case, calls = TINY["flow"], []
    denoiser = denoiser_of(case)
    monkeypatch.setattr(bare_peer, "denoiser_of", lambda case: denoiser)
    denoiser.register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    made = bare_peer.measure(case, 1)
    assert made["steps"][0]["decisions"] == case.samples * case.decisions == 8 * 3
    assert (calls.count(False), calls.count(True)) == (4, 2 * 3)


def test_cases_that_cannot_be():
    with pytest.raises(ConfigError, match="has a flow denoiser"):
        diffusion.compare(TINY["flow"], peer="ddpo")
    with pytest.raises(ConfigError, match="has a motion denoiser"):
        diffusion.compare(TINY["motion"], peer="flow_grpo")
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
    loop = ddpo_peer.Loop(case, ddpo_peer.ddim)
    return loop.compare(given["--check"]) if "--check" in given else loop.measure(steps)


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


@pytest.mark.parametrize("peer", ["flow_grpo", "bare"])
def test_both_sides_in_one_process(peer, capsys):
    command = ["diffusion", "--case", "tiny-flow", "--vs", peer, "--rounds", "1", "--here", "--json"]
    assert main(command) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["peer"], row["decisions"]) == (peer, 8 * 3)
    assert row["ours_s"] > 0
    assert "gradient_relative_difference" not in row
    assert not [key for key in row if key.endswith("_gb")]  # a process has one peak, of both sides


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
