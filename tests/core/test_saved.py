"""Start weights: files, folders of checkpoints and runs, whole and sharded."""

import pytest
import torch
from safetensors.torch import save_file

from anygrpo.core import saved, saved_parts
from anygrpo.core.tensor_files import write_tensors
from anygrpo.core.trained import state_of
from anygrpo.denoising.motion import policy as motion
from anygrpo.denoising.motion.settings import MotionPolicyConfig
from anygrpo.errors import DataError
from anygrpo.gates.build import load_weights

SMALL = {"features": 7, "frames": 16, "width": 32, "layers": 1, "heads": 2, "steps": 6, "dropout": 0.0}


def sharded(folder, tensors):
    folder.mkdir(parents=True)
    shares = saved_parts.dealt({name: x.numel() for name, x in tensors.items()}, 2)
    for i, names in enumerate(shares):
        write_tensors(folder / saved_parts.shard_name(saved.WHOLE, i, 2), {name: tensors[name] for name in names})
    saved_parts.write_index(folder, saved.WHOLE, shares, 0)
    saved_parts.write(folder, {"w": {"exp_avg": torch.zeros(3)}})


def test_a_motion_policy_starts_from_a_sharded_checkpoint_as_from_a_whole_one(tmp_path):
    trained = state_of(motion.build(MotionPolicyConfig(**SMALL), 5).trainable())
    run = tmp_path / "run"
    whole = run / "checkpoints" / "step_00000002"
    whole.mkdir(parents=True)
    save_file({name: x.detach() + 1 for name, x in trained.items()}, whole / saved.WHOLE)
    sharded(run / "checkpoints" / "step_00000010", {name: x.detach() for name, x in trained.items()})
    for path, shift in ((run, 0), (run / "checkpoints" / "step_00000010", 0), (whole, 1), (whole / saved.WHOLE, 1)):
        policy = motion.build(MotionPolicyConfig(**SMALL, model=str(path)), 0)
        for name, x in state_of(policy.trainable()).items():
            assert torch.equal(x, trained[name] + shift), (path, name)


def test_a_network_with_gates_starts_from_a_run_folder(tmp_path):
    network, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    sharded(tmp_path / "checkpoints" / "step_00000001", {k: x.detach() for k, x in other.named_parameters()})
    report = load_weights(network, str(tmp_path))
    assert report.loaded == 2
    assert torch.equal(network.weight, other.weight)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(DataError, match=r"recipes/motion/supervised\.toml"):
        motion.build(MotionPolicyConfig(**SMALL, model=str(tmp_path / "nothing")), 0)
    with pytest.raises(DataError, match="a run's folder"):  # a folder without a checkpoint
        motion.build(MotionPolicyConfig(**SMALL, model=str(tmp_path)), 0)
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(DataError, match="holds no state dict of tensors"):
        motion.build(MotionPolicyConfig(**SMALL, model=str(tmp_path / "list.pt")), 0)
