"""Data and checkpoints in the form they are published in, with numbers of our own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn

from anygrpo.denoising.motion.humanml import encode
from anygrpo.denoising.motion.skeleton import INDEX, JOINTS, axis_matrix, forward_kinematics

STD = [0.0128, 0.0169, 0.0169, 0.1538] + [0.12] * 63 + [0.3] * 126 + [0.0195] * 66 + [0.356] * 4


def joints(frames, speed=0.04):
    swing = 0.4 * torch.sin(0.5 * torch.arange(frames))
    rotations = torch.eye(3).repeat(frames, len(JOINTS), 1, 1)
    rotations[:, INDEX["l_hip"]], rotations[:, INDEX["r_hip"]] = axis_matrix(2, swing), axis_matrix(2, -swing)
    root = torch.stack([speed * torch.arange(frames), torch.full((frames,), 0.9), torch.zeros(frames)], 1)
    return forward_kinematics(rotations, root)


def original(width=32, layers=2, features=263):
    """MDM's network as torch's own TransformerEncoder, under the checkpoint's names."""
    holder = nn.Module()
    layer = nn.TransformerEncoderLayer(width, 4, 1024, 0.1, "gelu")
    holder.seqTransEncoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    holder.input_process, holder.output_process, holder.embed_timestep = nn.Module(), nn.Module(), nn.Module()
    holder.input_process.poseEmbedding, holder.output_process.poseFinal = (
        nn.Linear(features, width),
        nn.Linear(width, features),
    )
    holder.embed_timestep.time_embed = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
    holder.embed_text = nn.Linear(512, width)
    for p in holder.parameters():  # layers of an encoder are copies of one
        nn.init.normal_(p, std=0.08) if p.dim() > 1 else nn.init.normal_(p, std=0.02)
    return holder.eval()


def humanml3d(path: Path, clips: int = 6, frames: int = 44) -> Path:
    """A small HumanML3D folder: clips of walking bodies, two captions each, the last third held out."""
    (path / "new_joint_vecs").mkdir(parents=True)
    (path / "texts").mkdir()
    names = [f"{i:06d}" for i in range(clips)]
    for i, name in enumerate(names):
        rows = encode(joints(frames + 1, 0.03 + 0.002 * i)).numpy().astype(np.float32)
        np.save(path / "new_joint_vecs" / f"{name}.npy", rows)
        said = [f"a person walks {i}#a/DET person/NOUN walk/VERB#0.0#0.0", f"he goes {i}#he/PRON go/VERB#0.0#0.0"]
        (path / "texts" / f"{name}.txt").write_text("\n".join(said) + "\n")
    np.save(path / "Mean.npy", np.zeros(263, np.float32))
    np.save(path / "Std.npy", np.array(STD, np.float32))
    held = clips // 3
    (path / "train.txt").write_text("\n".join(names[:-held]) + "\n")
    (path / "val.txt").write_text("\n".join(names[-held:]) + "\n")
    return path


def mdm_folder(path: Path, levels: int, **arguments: object) -> nn.Module:
    """A folder as MDM's training leaves it (model*.pt with its position tables, args.json); the network in it."""
    torch.manual_seed(0)
    path.mkdir(parents=True)
    net = original()
    tables = ("sequence_pos_encoder.pe", "embed_timestep.sequence_pos_encoder.pe")
    state = net.state_dict() | {name: torch.zeros(5000, 1, 32) for name in tables}
    torch.save(state, path / "model000000050.pt")
    known = {"arch": "trans_enc", "layers": 2, "latent_dim": 32, "diffusion_steps": levels, "dataset": "humanml"}
    known |= {"cond_mask_prob": 0.1, "mask_frames": False, "noise_schedule": "cosine", "lr": 1e-4}
    (path / "args.json").write_text(json.dumps(known | arguments))
    return net
