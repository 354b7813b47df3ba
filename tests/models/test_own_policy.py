"""A policy of one's own starts from a run, a checkpoint, an export or a file, and that is its reference."""

import argparse
import json

import pytest
import torch
from runs import TOYS, toml_of
from safetensors.torch import load_file

import anygrpo
from anygrpo.cli.main import main
from anygrpo.core.build import build_policy
from anygrpo.core.settings import OwnPolicyConfig
from anygrpo.errors import DataError


def started(model):
    return build_policy(OwnPolicyConfig(kind="python", function=f"{TOYS}:policy", model=str(model)), 5)


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_each_start_is_the_trained_policy_and_goes_on(tmp_path, capsys):
    recipe = toml_of(tmp_path / "run", tmp_path / "r.toml", training={"steps": 2})
    assert main(["train", str(recipe), "--quiet"]) == 0
    assert main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "out")]) == 0
    wanted = anygrpo.load(tmp_path / "run").policy.trainable().state_dict()
    state = load_file(tmp_path / "out" / "model.safetensors")
    torch.save(state, tmp_path / "w.pt")
    more = {"hyper_parameters": argparse.Namespace(lr=1e-3), "epoch": 3}
    torch.save({"state_dict": {f"net.{n}": x for n, x in state.items()}} | more, tmp_path / "last.ckpt")
    for place in ("run", "run/checkpoints/best", "out", "out/model.safetensors", "w.pt", "last.ckpt"):
        policy = started(tmp_path / place)
        assert all(torch.equal(x, wanted[n]) for n, x in policy.trainable().state_dict().items()), place
        with torch.no_grad():
            for p in policy.parameters():
                p.add_(1.0)
        with policy.reference():
            assert all(torch.equal(x, wanted[n]) for n, x in policy.trainable().state_dict().items()), place
    on = ["--policy.model", str(tmp_path / "run"), "--folder", str(tmp_path / "on")]
    assert main(["train", str(recipe), "--quiet", *on]) == 0
    first = lambda name: next(r["reward/mean"] for r in rows(tmp_path / name) if "reward/mean" in r)  # noqa: E731
    assert first("on") != first("run")
    assert main(["export", str(tmp_path / "on"), "--to", str(tmp_path / "second")]) == 0
    (tmp_path / "run").rename(tmp_path / "away")  # an export needs no start
    opened = anygrpo.load(tmp_path / "second").policy.trainable().state_dict()
    assert all(torch.equal(x, opened[n]) for n, x in load_file(tmp_path / "second" / "model.safetensors").items())


def test_what_does_not_fit_is_named(tmp_path):
    torch.save({"other": torch.zeros(2)}, tmp_path / "w.pt")
    with pytest.raises(DataError, match=r"does not fit the network: 0 tensors loaded(?s:.*)the module has"):
        started(tmp_path / "w.pt")
    with pytest.raises(DataError, match="does not exist"):
        started(tmp_path / "nothing.pt")
