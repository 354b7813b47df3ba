"""The conformance kit: a sound policy passes, and each broken promise is found by name."""

from __future__ import annotations

import json

import pytest

from anygrpo.cli.main import main

HEAD = """
import torch, anygrpo
from toys import Bandit, BestArm, ARMS
from anygrpo import Evaluation, Rollout
PROMPTS = [{"x": torch.randn(ARMS, generator=torch.Generator().manual_seed(i))} for i in range(6)]
"""
FAULTS = {
    "time_slices": "def evaluate(self, x, t, want=frozenset()):\n        e = super().evaluate(x, t, want)\n"
    "        return Evaluation(e.log_probs + 0.1 * (t.start or 0))",
    "state_restored": "def evaluate(self, x, t, want=frozenset()):\n"
    "        self.copy = getattr(self, 'copy', 0.0) + 1e-3\n        e = super().evaluate(x, t, want)\n"
    "        return Evaluation(e.log_probs + self.copy)",
    "reference_kl": "def reference(self):\n        from anygrpo import frozen_weights\n"
    "        return frozen_weights(self.net, {k: 2 * v for k, v in self._start.items()})",
    "reference_kl of the policy's own sum": (
        "def evaluate(self, x, t, want=frozenset()):\n        e = super().evaluate(x, t, want)\n"
        "        return e if e.kl is None else Evaluation(e.log_probs, e.entropy, e.kl + 0.3)"
    ),
    "ratio_one": "def sample(self, p, g, s):\n        r = super().sample(p, g, s)\n"
    "        return Rollout.of(r.samples, r.log_probs - 0.5, r.mask)",
}


def checked(folder, capsys, body: str, *more: str) -> tuple[int, dict[str, str]]:
    (folder / "own.py").write_text(
        f"{HEAD}\nclass Own(Bandit):\n    {body}\ndef own(seed): return Own(seed, picks=4)\n"
    )
    code = main(["check", f"{folder}/own.py:own", *more, "--seconds", "2", "--json"])
    out = capsys.readouterr()
    found = json.loads(out.out)["findings"] if out.out else []
    return code, {f["rule"]: f["severity"] for f in found} or {"error": out.err}


@pytest.mark.parametrize("against", ["--prompts", "--task"])
def test_a_sound_policy_passes(tmp_path, capsys, against):
    where = f"{tmp_path}/own.py:{'PROMPTS' if against == '--prompts' else 'BestArm'}"
    code, found = checked(tmp_path, capsys, "pass", against, where)
    assert code == 0, found
    for probe in (
        "ratio_one",
        "replay_parity",
        "time_slices",
        "state_restored",
        "reference_kl",
        "trainable",
    ):
        assert found[probe] == "ok", (probe, found)


@pytest.mark.parametrize("probe", FAULTS)
def test_a_broken_promise_is_found(tmp_path, capsys, probe):
    rule, of, _ = probe.partition(" of ")
    flags = ["--algorithm.beta", "0.1"] if rule == "reference_kl" else []
    flags += ["--algorithm.kl", "exact"] if of else []
    code, found = checked(tmp_path, capsys, FAULTS[probe], "--prompts", f"{tmp_path}/own.py:PROMPTS", *flags)
    assert code == 5, found
    assert found[rule] == "serious", found


def test_another_module_than_the_one_that_scores_is_refused_before_any_probe(tmp_path, capsys):
    body = "def trainable(self):\n        self.spare = getattr(self, 'spare', None) or torch.nn.Linear(1, 1)\n"
    body += "        return self.spare"
    code, found = checked(tmp_path, capsys, body, "--prompts", f"{tmp_path}/own.py:PROMPTS")
    assert code == 2
    assert "Own.evaluate returned log_probs whose gradient reaches no weight of trainable()" in found["error"]


def test_randomness_beside_the_seed_is_a_warning(tmp_path, capsys):
    body = "def sample(self, p, g, s):\n        import random\n"
    body += "        return super().sample(p, g, random.SystemRandom().randrange(1 << 30))"
    code, found = checked(tmp_path, capsys, body, "--prompts", f"{tmp_path}/own.py:PROMPTS")
    assert (code, found["sampling"]) == (0, "warning")


def test_a_policy_alone_asks_for_prompts(tmp_path, capsys):
    code, found = checked(tmp_path, capsys, "pass")
    assert code == 2
    assert "a policy is tried on prompts" in found["error"]
