"""The selection comparison: our step as a worker measures it, its gradient, its records and its command."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest
import torch
from compare import main
from peers import selector
from peers.selector import ours
from peers.selector.cases import CASES, case_named, instances, network_of

from anygrpo.bench.rounds import Worker
from anygrpo.errors import ConfigError, DataError

TINY = case_named("tiny")


def test_our_worker_counts_its_work_and_saves_its_gradient(tmp_path):
    made = ours.measure(TINY, 2, str(tmp_path / "first.pt"))
    assert [step["decisions"] for step in made["steps"]] == [3 * 4 * 2] * 2
    assert set(made["steps"][0]["phases"]) == {"step", "sample", "train", "optimizer"}
    assert made["parameters"] == sum(p.numel() for p in network_of(TINY).parameters())
    saved = torch.load(tmp_path / "first.pt")
    assert saved["chosen"].shape == (3, 4, 2)
    plain = plain_gradient(saved["chosen"].cpu())
    assert saved["gradient"].keys() == plain.keys()
    for name, expected in plain.items():
        torch.testing.assert_close(saved["gradient"][name].cpu(), expected, atol=1e-6, rtol=1e-4)


def plain_gradient(chosen):
    """REINFORCE with the group's mean as baseline, one row and one pick at a time."""
    given, network = instances(TINY, 0), network_of(TINY)
    loss = torch.zeros(())
    for p in range(TINY.prompts):
        rewards = torch.stack([given["values"][p, list(row)].mean() for row in chosen[p]])
        for g in range(TINY.group):
            encoded = network.encode(
                given["query"][p : p + 1], given["candidates"][p : p + 1], torch.ones(1, TINY.pool, dtype=torch.bool)
            )
            logits = network.logits(encoded, chosen[p, g][None, None])[0, 0, :, : TINY.pool]
            left = torch.ones(TINY.pool, dtype=torch.bool)
            for k, pick in enumerate(chosen[p, g]):
                log_prob = logits[k].masked_fill(~left, -torch.inf).log_softmax(-1)[pick]
                loss = loss - (rewards[g] - rewards.mean()) * log_prob / (TINY.prompts * TINY.group)
                left[pick] = False
    loss.backward()
    return {name: p.grad for name, p in network.named_parameters()}


def test_both_sides_are_given_the_same():
    assert all(torch.equal(x, instances(TINY, 1)[name]) for name, x in instances(TINY, 1).items())
    assert not torch.equal(instances(TINY, 1)["query"], instances(TINY, 2)["query"])
    weights = network_of(TINY).state_dict()
    assert all(torch.equal(x, weights[name]) for name, x in network_of(TINY).state_dict().items())


def test_unknown_cases_and_missing_peers(monkeypatch):
    with pytest.raises(ConfigError, match="large"):
        case_named("lagre")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="the peer rl4co needs rl4co"):
        selector.compare(TINY)


def test_gradients_are_compared_only_of_the_same_network(monkeypatch):
    asked = []

    def fake(name, case, workers, rounds, steps, threads, gradient):
        asked.append((list(workers), gradient))
        step = {"phases": {"step": [1.0, 1.0]}, "decisions": 24}
        return {side: [{"steps": [step], "peak_gb": 1.0, "parameters": 3}] for side in workers}, {}

    monkeypatch.setattr(selector, "alternate", fake)
    monkeypatch.setattr(Worker, "need", lambda *a: None)
    assert selector.compare(TINY)["network"] == "same"
    assert selector.compare(CASES["tiny-am"])["network"] == "am"
    selector.compare(TINY, peer=None)
    assert asked == [(["anygrpo", "rl4co"], True), (["anygrpo", "rl4co"], False), (["anygrpo"], True)]


def test_the_command_alone(monkeypatch, capsys):
    monkeypatch.setattr(Worker, "run", lambda self, arguments, threads, name: ours.measure(TINY, 2))
    assert main(["selector", "--case", "tiny", "--vs", "none", "--rounds", "1", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    fields = {"case", "ours_s", "ours_cpu_s", "ours_peak_gb", "phases", "decisions", "parameters", "network"}
    assert fields <= row.keys()
    assert row["ours_s"] > 0


PEER = os.environ.get("ANYGRPO_RL4CO_PYTHON", "")


@pytest.mark.slow
@pytest.mark.skipif(not Path(PEER).is_file(), reason="ANYGRPO_RL4CO_PYTHON names no environment with RL4CO")
def test_the_tiny_case_against_rl4co(capsys):
    command = ["selector", "--case", "tiny", "--case", "tiny-am", "--rounds", "1", "--json"]
    assert main([*command, "--peer-python", PEER]) == 0
    same, own = json.loads(capsys.readouterr().out)
    assert same["gradient_relative_difference"] < 1e-5
    assert same["parameters"]["ours"] == same["parameters"]["peer"]
    assert "gradient_relative_difference" not in own
    assert own["peer_s"] > 0
