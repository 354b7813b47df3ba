"""The published table, on a small data set in the published form and a tiny MDM."""

import json

import numpy as np
import pytest
import torch
from published_form import STD, joints, original

from anygrpo.core.build import build_task
from anygrpo.denoising.motion import mdm_policy
from anygrpo.denoising.motion.humanml import encode
from anygrpo.denoising.motion.protocol import markdown, protocol
from anygrpo.denoising.motion.settings import MDMPolicyConfig
from anygrpo.errors import ConfigError
from anygrpo.recipe.load import parse_recipe

COUNT = 33


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("HumanML3D")
    (path / "new_joint_vecs").mkdir()
    (path / "texts").mkdir()
    names = [f"{i:06d}" for i in range(COUNT)]
    for i, name in enumerate(names):
        np.save(path / "new_joint_vecs" / f"{name}.npy", encode(joints(45, 0.02 + 0.001 * i)).numpy())
        (path / "texts" / f"{name}.txt").write_text(f"walks {i}#walk/VERB#0.0#0.0\nstep {i}#step/VERB#0.0#0.0\n")
    np.save(path / "Mean.npy", np.zeros(263, np.float32))
    np.save(path / "Std.npy", np.array(STD, np.float32))
    for split in ("train", "val"):
        (path / f"{split}.txt").write_text("\n".join(reversed(names)) + "\n")  # published splits are not sorted
    (path / "judge.py").write_text(
        "import numpy as np, torch\n"
        f"FOLDER = {str(path / 'new_joint_vecs')!r}\n"
        "class Judge:\n"
        "    def embed_motions(self, xs): return torch.stack([x.mean(0)[:4] for x in xs])\n"
        "    def embed_texts(self, ps):\n"
        "        own = [torch.tensor(np.load(f'{FOLDER}/{p[\"name\"]}.npy'))[: p['length']] for p in ps]\n"
        "        return self.embed_motions([x.float() for x in own])\n"
        "def make(): return Judge()\n"
    )
    (path / "text.py").write_text(
        "import torch, zlib\n"
        "def vectors(captions):\n"
        "    draw = lambda c: torch.Generator().manual_seed(zlib.crc32(c.encode()))\n"
        "    return torch.stack([torch.randn(512, generator=draw(c)) for c in captions])\n"
    )
    torch.manual_seed(0)
    torch.save(original().state_dict(), path / "model000000050.pt")
    (path / "args.json").write_text(json.dumps({"layers": 2, "latent_dim": 32, "diffusion_steps": 8}))
    return path


def task_of(folder, **more):
    rewards = [{"kind": "skating"}]
    table = {"kind": "humanml3d", "path": str(folder), "held_out_split": "val", "rewards": rewards, **more}
    return build_task(parse_recipe({"policy": {"kind": "mdm", "model": "x", "text": "y"}, "task": table}).task, seed=0)


def test_measured_prompts_name_their_own_items(folder):
    """In a split that is not sorted too: the data's row is of the same motions as the captions."""
    task = task_of(folder, evaluator=f"{folder}/judge.py:make", held_out=32)
    held, drawn = task.held_out(), task.drawn(torch.Generator().manual_seed(0))
    assert [p["name"] for p in held] == [f"{i:06d}" for i in range(32)]
    for p in (*held, *drawn):
        assert task.kept.items[p["item"]].name == p["name"]
    assert {p["name"] for p in drawn} == {p["name"] for p in held}
    assert {p["length"] for p in drawn} == {40, 44}
    assert {p["caption"].split()[0] for p in drawn} == {"walks", "step"}
    own = [[task.scaler.apply(task.kept.items[p["item"]].features()[: p["length"]])] for p in held]
    row = task.measure(held, own)
    assert row["eval/motion/r1_of_data"] == row["eval/motion/r1"] == 1.0


def test_the_table_has_the_data_beside_the_model(folder):
    task = task_of(folder, evaluator=f"{folder}/judge.py:make")
    given = {"model": str(folder / "model000000050.pt"), "text": f"{folder}/text.py:vectors", "frames": 44, "steps": 8}
    policy = mdm_policy.build(MDMPolicyConfig(**given, device="cpu"), seed=0)
    found = protocol(policy, task, repetitions=2, captions=2, samples=3, pairs=2)
    data, model = found["data"], found["model"]
    assert data["r1"] == data["r3"] == (1.0, 0.0)  # each text is its own motion's embedding
    assert data["matching_distance"][0] == pytest.approx(0, abs=1e-6)
    assert "fid" not in data  # to itself it is 0, whatever it is
    assert model["r1"][0] < 0.5
    assert model["fid"][0] > 0.01
    assert model["fid"][1] > 0  # fresh noise in each repetition
    assert model["multimodality"][0] > 0
    again = protocol(policy, task, repetitions=2, captions=0)
    assert again["model"]["fid"] == model["fid"]
    assert "multimodality" not in again["model"]
    one = protocol(policy, task, repetitions=2, captions=2, samples=3, pairs=2, multimodal=1)["model"]
    assert one["r1"] == model["r1"]
    assert one["multimodality"][1] == 0 < model["multimodality"][1]  # of a single repetition
    table = markdown(found).splitlines()
    assert table[2].split("|")[6].strip() == ""
    assert table[0].startswith("| | r1 | r2 | r3 | matching_distance | fid | diversity | multimodality |")
    assert table[2].startswith("| data | 1.000 +- 0.000 |")
    with pytest.raises(ConfigError, match="of embeddings"):
        protocol(policy, task_of(folder), repetitions=1)
