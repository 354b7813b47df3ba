"""HumanML3D folders and MDM checkpoints as they are published; measures by hand."""

import json
import math

import numpy as np
import pytest
import torch
from published_form import STD, joints, original

from anygrpo.core.build import build_task
from anygrpo.core.tree import tree_map
from anygrpo.denoising.motion import mdm, mdm_policy
from anygrpo.denoising.motion.dataset import load, parse_line
from anygrpo.denoising.motion.humanml import encode
from anygrpo.denoising.motion.measures import matching_distance, multimodality, r_precision, repeated, spread
from anygrpo.denoising.motion.physical import floating, jitter, penetration, skating_ratio
from anygrpo.denoising.motion.pictures import draw
from anygrpo.denoising.motion.settings import MDMPolicyConfig
from anygrpo.errors import ConfigError, DataError
from anygrpo.recipe.load import parse_recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data set in the published form: clips of several lengths, whole captions and parts."""
    path = tmp_path_factory.mktemp("HumanML3D")
    (path / "new_joint_vecs").mkdir()
    (path / "texts").mkdir()
    lengths = {"000001": 62, "M000001": 62, "000002": 30, "000003": 240, "000004": 100, "000005": 80}
    for i, (name, frames) in enumerate(lengths.items()):
        np.save(path / "new_joint_vecs" / f"{name}.npy", encode(joints(frames + 1, 0.03 + 0.002 * i)).numpy())
        lines = [f"a person walks {i}#a/DET person/NOUN walk/VERB#0.0#0.0", "he goes#he/PRON go/VERB#nan#nan"]
        if name == "000003":
            lines = ["someone steps#someone/PRON step/VERB#1.0#5.0", "too short#too/ADV short/ADJ#0.0#1.0"]
        (path / "texts" / f"{name}.txt").write_text("\n".join(lines) + "\n")
    np.save(path / "Mean.npy", np.zeros(263, np.float32))
    np.save(path / "Std.npy", np.array(STD, np.float32))
    (path / "train.txt").write_text("\n".join(lengths) + "\nabsent\n")
    (path / "val.txt").write_text("000004\n000005\n")
    return path


def test_items_as_published(folder):
    data = load(folder, "train")
    names = {item.name: item.frames for item in data.items}
    assert names == {"000001": 62, "M000001": 62, "000003:20:100": 80, "000004": 100, "000005": 80}
    assert data.left_out["000002"] == "30 frames"
    assert "absent" in data.left_out
    part = next(i for i in data.items if i.name == "000003:20:100")
    whole = np.load(folder / "new_joint_vecs" / "000003.npy")
    assert np.array_equal(part.features().numpy(), whole[20:100].astype(np.float32))
    assert data.items[0].length == 60
    assert [c.text for c in data.items[0].captions] == ["a person walks 0", "he goes"]
    assert data.items[0].captions[1].tokens == ("he/PRON", "go/VERB")


def test_text_lines_by_hand():
    caption, start, end = parse_line("a man#a/DET man/NOUN#1.5#nan")
    assert (caption.text, start, end) == ("a man", 1.5, 0.0)
    assert parse_line("broken") is None
    assert parse_line("a#b#x#0") is None


def test_the_wrong_mean_and_std_are_named(folder, tmp_path):
    for file in ("Mean.npy", "train.txt"):
        (tmp_path / file).write_bytes((folder / file).read_bytes())
    np.save(tmp_path / "Std.npy", np.array(STD, np.float32) / 25)
    with pytest.raises(DataError, match="evaluators' own set"):
        load(tmp_path, "train")
    with pytest.raises(DataError, match="no split 'tests'"):
        load(folder, "tests")


def task_of(folder, **more):
    table = {"kind": "humanml3d", "path": str(folder), "rewards": [{"kind": "floating"}, {"kind": "skating"}], **more}
    policy = {"kind": "mdm", "model": "x", "text": "y"}
    return build_task(parse_recipe({"policy": policy, "task": table}).task, seed=0)


def test_the_task_pays_for_joints_and_takes_functions(folder, tmp_path):
    (tmp_path / "own.py").write_text(
        "def tall(motions, prompts, features, weight=1.0):\n"
        "    return [weight * float(m[:, 15, 1].mean()) for m in motions]\n"
    )
    (tmp_path / "judge.py").write_text(
        "import torch\n"
        "class E:\n"
        "    def embed_motions(self, xs): return torch.stack([x.mean(0)[:8] for x in xs])\n"
        "    def embed_texts(self, ps): return torch.randn(len(ps), 8, generator=torch.Generator().manual_seed(1))\n"
        "def make(): return E()\n"
    )
    own = {"function": f"{tmp_path}/own.py:tall", "weight": 0.5, "arguments": {"weight": 2.0}}
    task = task_of(folder, rewards=[{"kind": "floating"}, own], evaluator=f"{tmp_path}/judge.py:make")
    prompts = task.prompts(0, 4)
    assert all(p["length"] % 4 == 0 and p["length"] >= 40 for p in prompts)
    real = task.stored(prompts).actions
    scores = task.score(prompts, real)
    assert bool(scores.valid.all())
    assert torch.allclose(scores.components["floating"], torch.ones(4, 1))
    assert 2.5 < float(scores.components["tall"].mean()) < 3.6  # twice the head's height of 1.6 m
    bad = task.score(prompts[:1], [[real[0][0] * math.nan, torch.zeros(5), real[0][0]]])
    assert bad.valid.tolist() == [[False, False, True]]
    held = task.held_out()
    row = task.measure(held, [[task.scaler.apply(task.kept.items[p["item"]].features()[: p["length"]])] for p in held])
    assert row["eval/motion/skating_ratio"] == row["eval/motion/skating_ratio_of_data"]
    assert row["eval/motion/fid"] == pytest.approx(0.0, abs=1e-6)
    (tmp_path / "deaf.py").write_text("def deaf(prompts):\n    return [0.0 for _ in prompts]\n")
    with pytest.raises(ConfigError, match="does not take 'motions'"):
        task_of(folder, rewards=[{"function": f"{tmp_path}/deaf.py:deaf"}])


def test_kits_joints_are_drawn_by_number(tmp_path):
    """251 numbers, 21 joints: nothing of HumanML3D's body is asked for."""
    (tmp_path / "new_joint_vecs").mkdir()
    (tmp_path / "texts").mkdir()
    np.save(tmp_path / "new_joint_vecs/a.npy", np.random.default_rng(0).normal(size=(30, 251)).astype(np.float32))
    (tmp_path / "texts/a.txt").write_text("he goes#he/PRON go/VERB#0.0#0.0\n")
    for name, value in (("Mean", 0.0), ("Std", 1.0)):
        np.save(tmp_path / f"{name}.npy", np.full(251, value, np.float32))
    (tmp_path / "train.txt").write_text("a\n")
    (tmp_path / "r.py").write_text("def r(motions):\n    return [float(m.shape[1]) for m in motions]\n")
    task = task_of(tmp_path, rewards=[{"function": f"{tmp_path}/r.py:r"}], held_out_split="train")
    prompts = task.prompts(0, 1)
    motion = task.stored(prompts).actions[0][0]
    assert task.score(prompts, [[motion]]).rewards.tolist() == [[21.0]]
    assert len(task.bones) == 20
    strip, gif = draw("he goes", {"": task.places(motion)}, task.bones, task.fps, tmp_path / "out")
    assert strip.stat().st_size > 0
    assert gif.stat().st_size > 0


# -- measures ----------------------------------------------------------------------------------------------------------


def test_r_precision_by_hand():
    texts = torch.eye(32)
    assert r_precision(texts, texts) == [1.0, 1.0, 1.0]
    swapped = texts.clone()
    swapped[[0, 1]] = texts[[1, 0]]
    swapped[0] += 0.1 * texts[0]
    swapped[1] += 0.1 * texts[1]
    top = r_precision(texts, swapped)
    assert top[0] == pytest.approx(30 / 32)
    assert top[1] == pytest.approx(1.0)
    assert math.isnan(r_precision(texts[:31], texts[:31])[0])
    assert matching_distance(texts, torch.zeros(32, 32)) == pytest.approx(1.0)


def test_spreads_by_hand():
    points = torch.tensor([[0.0], [1.0]]).repeat(500, 1)
    assert spread(points, 300, torch.Generator().manual_seed(0)) == pytest.approx(0.5, abs=0.1)
    assert multimodality(torch.zeros(3, 30, 4), 10, torch.Generator().manual_seed(0)) == 0.0
    mean, half = repeated(lambda i: {"x": float(i % 2)}, 20)["x"]
    assert (mean, half) == (0.5, pytest.approx(1.96 * 0.5 / math.sqrt(20)))


def test_physical_measures_by_hand():
    still = torch.zeros(20, 22, 3)
    still[:, :, 1] = 0.02
    slide = still.clone()
    slide[:, :, 0] = 0.03 * torch.arange(20)[:, None]  # .6 m/s at 20 frames a second
    slow = still.clone()
    slow[:, :, 0] = 0.02 * torch.arange(20)[:, None]  # .4 m/s
    assert skating_ratio(slide, 20.0) == 1.0
    assert skating_ratio(slow, 20.0) == skating_ratio(still, 20.0) == 0.0
    assert floating(still + torch.tensor([0.0, 0.1, 0.0])) == pytest.approx(115.0, rel=1e-4)
    assert penetration(still - torch.tensor([0.0, 0.1, 0.0])) == pytest.approx(75.0, rel=1e-4)
    cubic = still.clone()
    cubic[:, :, 0] = (5 * (torch.arange(20) / 20) ** 3)[:, None]
    assert jitter(cubic, 20.0) == pytest.approx(30.0, rel=1e-2)


# -- MDM ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    torch.manual_seed(0)
    net, path = original(), tmp_path_factory.mktemp("mdm")
    state = net.state_dict() | {"sequence_pos_encoder.pe": torch.zeros(5000, 1, 32), "clip_model.x": torch.zeros(1)}
    torch.save(state, path / "model000000050.pt")
    (path / "args.json").write_text(
        json.dumps({"layers": 2, "latent_dim": 32, "diffusion_steps": 50, "dataset": "humanml", "lr": 1e-4})
    )
    words = {c: torch.randn(512, generator=torch.Generator().manual_seed(i)) for i, c in enumerate(("a", "b"))}
    torch.save(words, path / "words.pt")
    return net, path


PROMPTS = [{"caption": "a", "length": 10}, {"caption": "b", "length": 16}]


def policy_of(path, **more):
    given = {"model": str(path / "model000000050.pt"), "text": str(path / "words.pt"), "frames": 16} | more
    return mdm_policy.build(MDMPolicyConfig(**given), seed=0)


def test_the_network_is_torchs_encoder_with_mdms_tokens(checkpoint):
    net, path = checkpoint
    policy = policy_of(path)
    x, text = torch.randn(3, 16, 263), torch.randn(3, 512)
    t, dropped = torch.tensor([0, 7, 49]), torch.tensor([False, False, True])
    with torch.no_grad():
        given = {"text": text, "frames": torch.ones(3, 16, dtype=torch.bool), "dropped": dropped}
        ours = policy.denoiser.cpu()(x, t, **given)
        table = mdm.position_table(32, 100)
        said = net.embed_text(text * ~dropped[:, None])
        token = net.embed_timestep.time_embed(table[t, 0]) + said
        sequence = torch.cat([token[None], net.input_process.poseEmbedding(x.transpose(0, 1))]) + table[:17]
        theirs = net.output_process.poseFinal(net.seqTransEncoder(sequence)[1:]).transpose(0, 1)
    assert float((ours - theirs).abs().max()) < 1e-5
    assert set(policy.trainable().state_dict()) == set(net.state_dict())


def test_parameters_of_the_published_size():
    count = sum(p.numel() for p in mdm.MDM().parameters())
    assert count == 17_880_327


@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 8}])
@pytest.mark.parametrize("masked", [False, True])
def test_ratio_is_one_under_guidance(checkpoint, lora, masked, tmp_path):
    _, path = checkpoint
    (tmp_path / "model000000050.pt").write_bytes((path / "model000000050.pt").read_bytes())
    arguments = json.loads((path / "args.json").read_text()) | {"mask_frames": masked}
    (tmp_path / "args.json").write_text(json.dumps(arguments))
    policy = policy_of(tmp_path, text=str(path / "words.pt"), lora=lora, event_reduction="mean")
    assert policy.guidance == 2.5
    rollout = policy.sample(PROMPTS, 2, seed=0)
    assert rollout.shape == (2, 2, 49)
    rows = tree_map(lambda x: x.flatten(0, 1), rollout.samples)
    out = policy.evaluate(rows, slice(0, 49), frozenset({"kl"}))
    assert torch.allclose(out.log_probs, rollout.log_probs.flatten(0, 1), atol=1e-5)
    assert float(out.kl.abs().max()) == 0
    z2, n = policy.z2(rollout.samples)
    assert abs(z2 - 1) < 6 * math.sqrt(2 / n)
    out.log_probs.sum().backward()
    moved = {name for name, p in policy.trainable().named_parameters() if p.grad is not None and bool(p.grad.any())}
    if lora:
        assert all("lora_B" in name for name in moved)
        assert {name.split(".lora")[0].rsplit(".", 1)[-1] for name in moved} == {
            "out_proj",
            "linear1",
            "linear2",
            "embed_text",
        }
    assert moved


def test_ddpm_is_mdms_posterior(checkpoint):
    """abar(t) = cos^2((t + .008) / 1.008 pi / 2), betas at most .999, the posterior's two coefficients and variance."""
    policy = policy_of(checkpoint[1])
    bar = lambda t: math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2  # noqa: E731
    betas = [min(1 - bar((i + 1) / 50) / bar(i / 50), 0.999) for i in range(50)]
    product = np.cumprod([1 - b for b in betas])
    table = policy.transitions
    for k, t in enumerate(range(49, 0, -1)):
        before, rest = product[t - 1], 1 - product[t]
        assert float(table.noisy.w_x0[k]) == pytest.approx(betas[t] * math.sqrt(before) / rest, rel=1e-5)
        assert float(table.noisy.w_x[k]) == pytest.approx(
            (1 - before) * math.sqrt(1 - betas[t]) / (1 - product[t]), rel=1e-5
        )
        assert float(table.noisy.std[k]) == pytest.approx(
            math.sqrt(betas[t] * (1 - before) / (1 - product[t])), rel=1e-5
        )
    assert table.timesteps.tolist() == list(range(49, -1, -1))
    assert float(table.noisy.std[-1]) == 0


def test_averages_and_adapters_come_in(checkpoint, tmp_path):
    net, path = checkpoint
    plain = dict(net.state_dict())
    arguments = mdm.read_arguments(path / "model000000050.pt")
    low = {k.replace("linear1.weight", "linear1.base_layer.weight"): v for k, v in plain.items()}
    a, b = torch.randn(2, 32), torch.randn(1024, 2)
    low |= {
        "seqTransEncoder.layers.0.linear1.lora_A.default.weight": a,
        "seqTransEncoder.layers.0.linear1.lora_B.default.weight": b,
    }
    with pytest.raises(ConfigError, match="no lora_alpha"):
        mdm.merge_adapters(low, arguments)
    merged, count = mdm.merge_adapters(low, mdm.Arguments(arguments.given | {"lora_alpha": 16}))
    name = "seqTransEncoder.layers.0.linear1.weight"
    assert count == 1
    assert torch.allclose(merged[name], plain[name] + 8 * b @ a, atol=1e-5)
    assert set(merged) == set(plain)
    torch.save({"model": {k: v + 1 for k, v in plain.items()}, "model_avg": plain}, tmp_path / "model1.pt")
    network = mdm.from_arguments(arguments)
    said = mdm.load(tmp_path / "model1.pt", network, arguments)
    assert "model_avg" in said
    assert torch.equal(network.embed_text.weight, plain["embed_text.weight"])
    mdm.load(tmp_path / "model1.pt", network, arguments, prefer_average=False)
    assert torch.equal(network.embed_text.weight, plain["embed_text.weight"] + 1)


def test_what_does_not_fit_is_named(checkpoint, tmp_path):
    _, path = checkpoint
    with pytest.raises(ConfigError, match="steps = 20"):
        policy_of(path, steps=20)
    with pytest.raises(DataError, match=r"args\.json"):
        mdm.read_arguments(tmp_path / "model.pt")
    (tmp_path / "args.json").write_text(json.dumps({"arch": "gru"}))
    with pytest.raises(ConfigError, match="arch = 'gru'"):
        mdm.read_arguments(tmp_path / "model.pt")
    with pytest.raises(DataError, match="no vector for 'c'"):
        policy_of(path).sample([{"caption": "c", "length": 8}], 1, seed=0)
    wide = mdm.Arguments({"layers": 3, "latent_dim": 32})
    with pytest.raises(ConfigError, match="missing"):
        mdm.load(path / "model000000050.pt", mdm.from_arguments(wide), wide)


def test_a_network_of_ones_own(tmp_path, checkpoint):
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self): super().__init__(); self.a = torch.nn.Linear(7, 7); self.b = torch.nn.Linear(512, 7)\n"
        "    def forward(self, x, timestep, text, frames, dropped):\n"
        "        return self.a(x) + self.b(torch.where(dropped[:, None], 0.0, text))[:, None]\n"
        "def make(seed): torch.manual_seed(seed); return Net()\n"
        "def words(captions): return torch.ones(len(captions), 512)\n"
    )
    config = MDMPolicyConfig(
        function=f"{tmp_path}/net.py:make",
        features=7,
        diffusion_steps=10,
        steps=10,
        frames=16,
        text=f"{tmp_path}/net.py:words",
    )
    policy = mdm_policy.build(config, 0)
    rollout = policy.sample(PROMPTS, 2, seed=0)
    assert [m.shape for m in policy.decode(rollout.samples)[0]] == [(10, 7), (10, 7)]
