"""An MDM folder as a user has it: trained, used and taken back by the command line, then read without this package."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from published_form import humanml3d, mdm_folder

from anygrpo.cli.main import main
from anygrpo.train.folder import read_rows

pytestmark = pytest.mark.slow
RECIPE = Path(__file__).parents[3] / "recipes" / "motion" / "mdm.toml"
WORDS = """
import torch
def encode(captions):
    draw = lambda c: torch.randn(512, generator=torch.Generator().manual_seed(sum(map(ord, c))))
    return torch.stack([draw(c) for c in captions])
"""
REWARD = """
def ahead(motions, prompts, fps):
    return [float(m[-1, 0, 2] - m[0, 0, 2]) for m in motions]
"""
PLAIN = """
import json, math, sys
import torch
from torch import nn
assert "anygrpo" not in sys.modules
file, out = sys.argv[1:]
state = torch.load(file, weights_only=True)
net, width = nn.Module(), 32
layer = nn.TransformerEncoderLayer(width, 4, 1024, 0.1, "gelu")
net.seqTransEncoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
net.input_process, net.output_process, net.embed_timestep = nn.Module(), nn.Module(), nn.Module()
net.input_process.poseEmbedding, net.output_process.poseFinal = nn.Linear(263, width), nn.Linear(width, 263)
net.embed_timestep.time_embed = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
net.embed_text = nn.Linear(512, width)
missing, unexpected = net.load_state_dict(state, strict=False)
assert not unexpected and not missing, (missing, unexpected)
net.eval()
place, rate = torch.arange(60)[:, None].float(), torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
table = torch.zeros(60, width)
table[:, 0::2], table[:, 1::2] = torch.sin(place * rate), torch.cos(place * rate)
given = torch.load(out, weights_only=True)
with torch.no_grad():
    token = net.embed_timestep.time_embed(table[given["t"]]) + net.embed_text(given["text"])
    h = torch.cat([token[None], net.input_process.poseEmbedding(given["x"].transpose(0, 1))])
    made = net.output_process.poseFinal(net.seqTransEncoder(h + table[: len(h), None])[1:]).transpose(0, 1)
print(json.dumps([float((made - given["out"]).abs().max()), float(given["out"].abs().max())]))
"""


@pytest.fixture(scope="module", params=[False, True], ids=["padding seen", "padding masked"])
def run(request, tmp_path_factory):
    """The recipe as it stands, with the user's own files and a small size."""
    folder = tmp_path_factory.mktemp("mdm")
    humanml3d(folder / "HumanML3D")
    mdm_folder(folder / "mdm", 10, mask_frames=request.param)
    (folder / "words.py").write_text(WORDS)
    (folder / "score.py").write_text(REWARD)
    flags = {
        "policy.model": folder / "mdm/model000000050.pt", "policy.text": f"{folder}/words.py:encode",
        "policy.frames": 48, "policy.steps": 10, "policy.window": 4, "policy.window-starts": "[0, 5]",
        "task.path": folder / "HumanML3D", "algorithm.prompts-per-step": 2, "algorithm.group-size": 4,
        "task.rewards": f'[{{ function = "{folder}/score.py:ahead" }}, {{ kind = "skating" }}]',
        "optimizer.learning-rate": 1e-3, "training.steps": 3,
    }  # fmt: skip
    line = [text for key, value in flags.items() for text in (f"--{key}", str(value))]
    assert main(["train", str(RECIPE), *line, "--folder", str(folder / "run"), "--quiet"]) == 0
    return folder


def test_the_ratio_is_one_at_guidance_two_and_a_half(run):
    rows, _ = read_rows(run / "run" / "metrics.jsonl")
    steps = [row for row in rows if row["stage"] == "grpo"]
    assert "guidance = 2.5" in (run / "run" / "config.toml").read_text()
    assert [row["ratio/mean"] for row in steps] == pytest.approx([1.0] * 3, abs=1e-6)
    assert max(row["log_ratio/abs_max"] for row in steps) < 1e-5
    assert {"log_prob/current", "log_prob/reference"} <= steps[-1].keys()
    assert steps[0]["log_prob/current"] == steps[0]["log_prob/reference"]
    assert steps[-1]["log_prob/current"] != steps[-1]["log_prob/reference"]


def test_it_goes_back_to_mdm(run):
    """The export holds no adapter, loads in a network that knows nothing of us, and gives what training scored."""
    assert main(["export", str(run / "run"), "--to", str(run / "export"), "--checkpoint", "last"]) == 0
    assert json.loads((run / "export/args.json").read_text()) == json.loads((run / "mdm/args.json").read_text())
    import anygrpo

    policy = anygrpo.load(run / "run", checkpoint="last", device="cpu").policy
    given = {"x": torch.randn(2, 48, 263), "t": torch.tensor([3, 9]), "text": torch.randn(2, 512)}
    every, none = torch.ones(2, 48, dtype=torch.bool), torch.zeros(2, dtype=torch.bool)
    with torch.no_grad():
        given["out"] = policy.denoiser(given["x"], given["t"], text=given["text"], frames=every, dropped=none)
    torch.save(given, run / "call.pt")
    (run / "plain.py").write_text(PLAIN)
    line = [sys.executable, "plain.py", "export/model000000050.pt", "call.pt"]
    done = subprocess.run(line, cwd=run, capture_output=True, text=True, check=True)
    apart, size = json.loads(done.stdout)
    assert apart < 1e-5 * max(size, 1)
    start = torch.load(run / "mdm/model000000050.pt", weights_only=True)
    moved = torch.load(run / "export/model000000050.pt", weights_only=True)
    name = "seqTransEncoder.layers.0.linear1.weight"
    assert float((moved[name] - start[name]).abs().max()) > 1e-5


def test_captions_become_joints(run):
    """`apply` of the run and of its export make the same motion, as long as was asked for."""
    (run / "said.jsonl").write_text('{"caption": "he goes 9", "length": 40, "seed": 1}\n')
    assert main(["export", str(run / "run"), "--to", str(run / "used"), "--checkpoint", "last"]) == 0
    made = []
    for source, more in (("run", ["--checkpoint", "last"]), ("used", [])):
        out = run / f"of_{source}"
        assert main(["apply", str(run / source), str(run / "said.jsonl"), "--out", str(out), *more]) == 0
        made.append(np.load(out / "00000.npy"))
    assert made[0].shape == (40, 22, 3)
    assert np.abs(made[0] - made[1]).max() < 1e-4
    assert np.abs(made[0]).max() > 1e-3
