"""BVH files: a hierarchy of joints with offsets and channels, and one line of numbers a frame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from anygrpo.denoising.motion.skeleton import INDEX, JOINTS, OFFSETS, PARENTS, axis_matrix, local_rotations
from anygrpo.errors import DataError
from anygrpo.spoken import Text

CMU_NAMES = {
    "pelvis": "Hips", "spine1": "LowerBack", "spine2": "Spine", "spine3": "Spine1", "neck": "Neck", "head": "Head",
    "l_hip": "LeftUpLeg", "l_knee": "LeftLeg", "l_ankle": "LeftFoot", "l_foot": "LeftToeBase",
    "l_collar": "LeftShoulder", "l_shoulder": "LeftArm", "l_elbow": "LeftForeArm", "l_wrist": "LeftHand",
}  # fmt: skip
POSER_NAMES = {
    "pelvis": "Hips", "spine1": "Ab", "spine2": "Ab", "spine3": "Chest", "neck": "Neck", "head": "Head",
    "l_hip": "LeftHip", "l_knee": "LeftKnee", "l_ankle": "LeftAnkle", "l_foot": "LeftToes",
    "l_collar": "LeftCollar", "l_shoulder": "LeftShoulder", "l_elbow": "LeftElbow", "l_wrist": "LeftWrist",
}  # fmt: skip


@dataclass
class Node:
    """A joint of the file."""

    name: str
    parent: int
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    channels: tuple[str, ...] = ()


def parse(text: str) -> tuple[list[Node], Tensor, float]:
    """(nodes, numbers [F, channels], frames a second).

    Raises:
        DataError: not a BVH file, or a frame with another number of channels.
    """
    head, _, body = text.partition("MOTION")
    if not head.lstrip().startswith("HIERARCHY") or not body:
        raise DataError(
            Text("not a BVH file: it has no HIERARCHY and MOTION", "不是 BVH 文件：没有 HIERARCHY 和 MOTION")
        )
    nodes: list[Node] = []
    stack: list[int] = []
    pending = -1
    for words in (line.split() for line in head.splitlines()[1:] if line.strip()):
        match words[0]:
            case "ROOT" | "JOINT" | "End":
                nodes.append(Node(words[1] if words[0] != "End" else "", stack[-1] if stack else -1))
                pending = len(nodes) - 1
            case "{":
                stack.append(pending)
            case "}":
                stack.pop()
            case "OFFSET":
                nodes[stack[-1]].offset = (float(words[1]), float(words[2]), float(words[3]))
            case "CHANNELS":
                nodes[stack[-1]].channels = tuple(words[2:])
    lines = body.strip().splitlines()
    seconds = float(lines[1].split(":")[1])
    numbers = [[float(x) for x in line.split()] for line in lines[2:] if line.strip()]
    wanted = sum(len(n.channels) for n in nodes)
    if {len(row) for row in numbers} != {wanted}:
        raise DataError(
            Text(
                f"a BVH frame has {sorted({len(r) for r in numbers})} numbers, its hierarchy {wanted} channels",
                f"BVH 的帧有 {sorted({len(r) for r in numbers})} 个数，而层级有 {wanted} 个通道",
            )
        )
    return nodes, torch.tensor(numbers), 1.0 / seconds


def positions(nodes: list[Node], numbers: Tensor) -> dict[str, Tensor]:
    """World positions [F, 3] of every named joint, in the file's unit."""
    world: list[Tensor] = []
    places: list[Tensor] = []
    at = 0
    for node in nodes:
        turn, moved = torch.eye(3).expand(len(numbers), 3, 3), torch.tensor(node.offset).expand(len(numbers), 3)
        for channel in node.channels:
            axis = "XYZ".index(channel[0])
            if channel.endswith("position"):
                moved = moved + numbers[:, at : at + 1] * torch.eye(3)[axis]
            else:
                turn = turn @ axis_matrix(axis, torch.deg2rad(numbers[:, at]))
            at += 1
        root = node.parent < 0
        places.append(moved if root else places[node.parent] + (world[node.parent] @ moved[..., None])[..., 0])
        world.append(turn if root else world[node.parent] @ turn)
    return {n.name: p for n, p in zip(nodes, places) if n.name}


def read(file: Path) -> tuple[Tensor, float]:
    """Positions [F, 22, 3] on our body (bone directions of the file, our lengths, metres), and frames a second. The
    first frame, a T-pose by custom, is left out.

    Raises:
        DataError: malformed, or joints that are not known by name.
    """
    nodes, numbers, fps = parse(file.read_text())
    found = positions(nodes, numbers[1:])
    names = CMU_NAMES if "LeftUpLeg" in found else POSER_NAMES
    full = names | {"r_" + k[2:]: v.replace("Left", "Right") for k, v in names.items() if k.startswith("l_")}
    if missing := sorted(v for v in full.values() if v not in found):
        raise DataError(
            Text(
                f"{file}: no joints named {missing[:3]}; it has {sorted(found)[:6]}",
                f"{file}：没有名为 {missing[:3]} 的关节；它有 {sorted(found)[:6]}",
            )
        )
    return retarget({joint: found[name] for joint, name in full.items()}), fps


def retarget(found: dict[str, Tensor]) -> Tensor:
    """[F, 22, 3]: the given joints' bone directions with our bone lengths; the pelvis's way scaled by leg length."""
    leg = _length(found, "l_hip", "l_knee") + _length(found, "l_knee", "l_ankle")
    ours = float(OFFSETS[INDEX["l_knee"]].norm() + OFFSETS[INDEX["l_ankle"]].norm())
    places = [found["pelvis"] * (ours / leg)]
    for j in range(1, len(JOINTS)):
        bone = found[JOINTS[j]] - found[JOINTS[PARENTS[j]]]
        if float(bone.norm(dim=-1).max()) < 1e-6:  # two of our joints are one in the file: go on along the trunk
            bone = found["spine3"] - found["pelvis"]
        direction = bone / bone.norm(dim=-1, keepdim=True).clamp(min=1e-8)
        places.append(places[PARENTS[j]] + direction * OFFSETS[j].norm())
    return torch.stack(places, 1)


def _length(found: dict[str, Tensor], a: str, b: str) -> float:
    return float((found[a] - found[b]).norm(dim=-1).mean())


def write(places: Tensor, fps: float) -> str:
    """A BVH file (metres; root x y z, then rotations Z X Y in degrees) of joints [F, 22, 3].

    Bones have the mean length that they have here and the rest body's directions; where lengths change in time, the
    file's joints differ by as much.
    """
    world = local_rotations(places, whole=True)
    lengths = [(places[:, j] - places[:, PARENTS[j]]).norm(dim=-1).mean() for j in range(1, len(JOINTS))]
    offsets = [torch.zeros(3), *(OFFSETS[j] / OFFSETS[j].norm() * lengths[j - 1] for j in range(1, len(JOINTS)))]
    order: list[int] = []
    head = ["HIERARCHY", *_node(0, offsets, order, "")]
    angles = torch.rad2deg(_zxy(world))[:, order].flatten(1)
    rows = torch.cat([places[:, 0], angles], 1)
    lines = [" ".join(f"{x:.6f}" for x in row) for row in rows.tolist()]
    return "\n".join([*head, "MOTION", f"Frames: {len(rows)}", f"Frame Time: {1 / fps:.8f}", *lines]) + "\n"


def _node(joint: int, offsets: list[Tensor], order: list[int], indent: str) -> list[str]:
    """The lines of a joint and what hangs on it; `order` gets the joints as their channels come."""
    order.append(joint)
    x, y, z = offsets[joint].tolist()
    moves = "6 Xposition Yposition Zposition" if joint == 0 else "3"
    lines = [f"{indent}{'ROOT' if joint == 0 else 'JOINT'} {JOINTS[joint]}", f"{indent}{{"]
    lines += [f"{indent}  OFFSET {x:.6f} {y:.6f} {z:.6f}", f"{indent}  CHANNELS {moves} Zrotation Xrotation Yrotation"]
    children = [c for c in range(len(JOINTS)) if PARENTS[c] == joint]
    for child in children:
        lines += _node(child, offsets, order, indent + "  ")
    if not children:
        lines += [f"{indent}  End Site", f"{indent}  {{", f"{indent}    OFFSET 0.0 0.0 0.0", f"{indent}  }}"]
    return [*lines, f"{indent}}}"]


def _zxy(rotation: Tensor) -> Tensor:
    """Angles [..., 3] (radians) with rotation = Z(a) X(b) Y(c)."""
    b = torch.asin(rotation[..., 2, 1].clamp(-1, 1))
    a = torch.atan2(-rotation[..., 0, 1], rotation[..., 1, 1])
    c = torch.atan2(-rotation[..., 2, 0], rotation[..., 2, 2])
    return torch.stack([a, b, c], -1)
