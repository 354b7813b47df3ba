"""A trained network as its own library loads it: plain names of weights, adapters merged, gates at their mean.

A folder holds model.safetensors, sites.json (what the gates are and do, and how the network was made), network.py (a
copy of the user's file, where there is one), example.safetensors (a picture and what the network makes of it), and
load.py, which needs nothing of anygrpo for networks that know nothing of it: it loads the weights strictly and
compares.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from anygrpo.core.device import exactly, of_a_child
from anygrpo.errors import ConfigError, DataError
from anygrpo.files import json_value, whole_or_none
from anygrpo.gates.choosing import deterministic
from anygrpo.gates.distributions import base_of
from anygrpo.gates.policy import StochasticPolicy
from anygrpo.spoken import Text

SCHEMA = 1
FILES = (
    "model.safetensors", "sites.json", "network.py", "example.safetensors", "load.py", "certificate.json",
)  # fmt: skip
SIDE = 64
CLOSE = 1e-4
"""Largest difference to the example, of its largest number: other machines sum in another order. Where bfloat16 was
trained in, twice what that alone changes is allowed."""

USE = """import sys
sys.path.insert(0, {folder})
from load import load  # its load.py
restored = load()(picture)  # [N, 3, H, W] in [0, 1]; gates at their mean"""
"""Of the card."""

LOADER = '''"""Loads this folder's network and compares it with the example: python load.py"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

HERE = Path(__file__).resolve().parent
ABOUT = json.loads((HERE / "sites.json").read_text(encoding="utf-8"))


def load():
    """The network with its weights, in eval mode; its forward takes what it always took."""
{make}
    network.load_state_dict(load_file(HERE / "model.safetensors"), strict=True)
    return network.eval()


def picture(out, at):
    """What the policy took of the network's output: by key, place, attribute or path."""
    def one(x, key):
        named = isinstance(key, str) and not hasattr(x, "keys") and hasattr(x, key)
        return getattr(x, key) if named else x[key if hasattr(x, "keys") else int(key)]
    try:
        return out if at is None or torch.is_tensor(out) else one(out, at)
    except (KeyError, IndexError, TypeError, ValueError):
        first, rest = str(at).split(".", 1)
        return picture(one(out, first), rest)


if __name__ == "__main__":
    example, network = load_file(HERE / "example.safetensors"), load()
    given = [example[f"input/{{i}}"] for i in range(len(ABOUT["inputs"]))]

    def made(half):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = network(*given)
        return picture(out, ABOUT["output"]).float()

    half = ABOUT["dtype"] == "bfloat16"  # as it was trained; what that alone changes is told beside it
    away = float((made(half) - example["output"]).abs().max())
    own = float((made(half) - made(False)).abs().max()) if half else 0.0
    size = float(example["output"].abs().max())
    told = {{"largest_difference": away, "largest_number": size, "of_bfloat16": own}}
    print(json.dumps(told | {{"anygrpo": "anygrpo" in sys.modules}}))
'''
OWN = """    sys.path.insert(0, str(HERE))
    from network import {name} as make

    network = make(**ABOUT["source"]["arguments"])"""
BUILT_IN = """    from anygrpo.gates.restorer.build import NETWORKS
    from anygrpo.gates.settings import RestorerConfig

    config = RestorerConfig(**ABOUT["source"]["restorer"])
    network = NETWORKS[config.network](config)"""


def export(policy: StochasticPolicy, folder: Path, example: list[Tensor] | None = None) -> list[Path]:
    """Write the policy's network into `folder`, load it in a process of its own, and compare.

    Args:
        example: one row of each input [1, ...]; noise of 3 x 64 x 64 where not given.

    Returns:
        The files.

    Raises:
        ConfigError: the policy was made in Python, and nothing says how to make its network again; or `folder` has
            files of something else.
        DataError: what was written does not load, or gives other numbers; it is taken away.
    """
    source = _source(policy)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "sites.json").is_file():
        raise ConfigError(
            Text(f"{folder} has files of something else", f"{folder} 中有别的内容的文件"),
            Text("name a new folder", "请给出新的文件夹"),
        )
    folder.mkdir(parents=True, exist_ok=True)
    with whole_or_none(folder / name for name in FILES):
        _write(policy, folder, source, example)
        certificate = certify(folder) | {"use": USE.format(folder=json.dumps(f"./{folder.name}"))}
        (folder / "certificate.json").write_text(json.dumps(certificate, indent=2), encoding="utf-8")
    return sorted(file for file in folder.iterdir() if file.is_file())


def _write(policy: StochasticPolicy, folder: Path, source: dict[str, Any], example: list[Tensor] | None) -> None:
    g = torch.Generator().manual_seed(0)
    side = -(-SIDE // policy.call.multiple) * policy.call.multiple  # unpadded: the plain network pads nothing
    rows = example or [torch.rand(1, 3, side, side, generator=g) for _ in policy.inputs]
    rows = [x.to(policy.device) for x in rows]
    state = merged(policy.network)
    save_file(state, folder / "model.safetensors")
    about = describe(policy, rows) | {"source": source}
    (folder / "sites.json").write_text(json.dumps(about, indent=2, ensure_ascii=False), encoding="utf-8")
    given = {f"input/{i}": x.cpu().contiguous() for i, x in enumerate(rows)}
    with torch.no_grad(), exactly():  # load.py computes on the processor
        made = policy.run(rows, deterministic("mean"))[0]
    save_file(given | {"output": made.float().cpu().contiguous()}, folder / "example.safetensors")
    make = BUILT_IN
    if "function" in source:
        path, _, name = source["function"].rpartition(":")
        shutil.copyfile(path, folder / "network.py")
        make = OWN.format(name=name)
    (folder / "load.py").write_text(LOADER.format(make=make), encoding="utf-8")


def certify(folder: Path) -> dict[str, Any]:
    """Run load.py in a process of its own and compare with the example.

    Raises:
        DataError: it fails, or gives other numbers.
    """
    here = Path(__file__).resolve().parents[2]  # only for built-in networks and those that import `gate` themselves
    paths = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(here)]))
    done = subprocess.run(
        [sys.executable, "load.py"],
        cwd=folder,
        env={**of_a_child(), "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no words"]
        raise DataError(
            Text(
                f"{folder} does not load in a process of its own: {last[0]}",
                f"{folder} 在单独的进程中无法加载：{last[0]}",
            ),
            Text("put what it imports beside it", "请把它导入的内容放在旁边"),
        )
    told = json.loads(done.stdout.strip().splitlines()[-1])
    allowed = max(CLOSE * max(told["largest_number"], 1e-6), 2 * told["of_bfloat16"])
    told |= {
        "allowed": allowed,
        "right": told["largest_difference"] <= allowed,
        "torch": torch.__version__,
    }
    if not told["right"]:
        raise DataError(
            Text(
                f"{folder}: loaded elsewhere, the network's output is "
                f"{told['largest_difference']:.3g} away from its own",
                f"{folder}：在别处加载后，网络的输出与原来相差 {told['largest_difference']:.3g}",
            ),
            Text(
                "its forward may depend on something beside its weights (a global, a random number, training mode)",
                "它的 forward 可能取决于权重以外的东西（全局变量、随机数、训练模式）",
            ),
        )
    return told


def load(folder: Path, device: str = "auto") -> StochasticPolicy:
    """The policy of an exported folder, gates and all.

    Raises:
        DataError: no export there, or one that does not fit.
    """
    from anygrpo.gates.build import build
    from anygrpo.gates.restorer.build import build as build_restorer
    from anygrpo.gates.settings import RestorerConfig, StochasticConfig

    file = folder / "sites.json"
    try:
        about = json_value(file.read_text(encoding="utf-8"))
        source = about["source"]
        given: dict[str, Any] = {k: about[k] for k in ("gates", "multiple", "output", "dtype")} | {"device": device}
        given |= {"deterministic": about["mode"], "sites": about["patterns"]}
        given["model"] = str(folder / "model.safetensors")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            Text(f"{folder} is no exported network: {error}", f"{folder} 不是导出的网络：{error}")
        ) from error
    if "restorer" in source:
        return build_restorer(RestorerConfig(**(source["restorer"] | given)), 0)
    name = source["function"].rpartition(":")[2]
    given |= {"function": f"{folder / 'network.py'}:{name}", "arguments": source["arguments"]}
    return build(StochasticConfig(**given, inputs=about["inputs"], target=about["target"]), 0)


def has_code(folder: Path) -> bool:
    """Whether an exported network is made by code in its folder (else it is one of this library's)."""
    try:
        source = json_value((folder / "sites.json").read_text(encoding="utf-8"))["source"]
    except (OSError, ValueError, KeyError, TypeError):
        return True
    return not isinstance(source, dict) or "restorer" not in source


def describe(policy: StochasticPolicy, rows: list[Tensor]) -> dict[str, Any]:
    """What sites.json says: each site's distribution, decisions and value on `rows`, and how a call is made."""
    with torch.no_grad():
        tape = policy.run(rows, deterministic(policy.mode))[1]
    sites = []
    for name, site in tape.sites.items():
        value = site.value.float()
        sites.append(
            {
                "name": name,
                "distribution": type(base_of(site.distribution)).__name__,
                "shape": list(site.value.shape[1:]),
                "decisions": site.mask().shape[1],
                "mean": round(float(value.mean()), 6),
                "low": round(float(value.min()), 6),
                "high": round(float(value.max()), 6),
            }
        )
    from anygrpo.gates.wrapping import gates_of

    gates = [vars(g) for g in gates_of(policy.network)]
    call = policy.call
    return {
        "schema": SCHEMA,
        "sites": sites,
        "at_their_mean": tape.passed,
        "mode": policy.mode,
        "patterns": list(policy.sites),
        "inputs": list(policy.inputs),
        "target": policy.target,
        "gates": gates,
        "multiple": call.multiple,
        "output": call.output,
        "dtype": "bfloat16" if call.half else "float32",
    }


def merged(network: nn.Module) -> dict[str, Tensor]:
    """The state dict with the names that the network had before adapters, and these added to their weights."""
    state = {name: x.detach().clone() for name, x in network.state_dict().items() if ".lora_" not in name}
    for name, module in network.named_modules():
        if not hasattr(module, "get_delta_weight"):
            continue
        key = f"{name}.base_layer.weight"
        for adapter in module.active_adapters:  # type: ignore[union-attr]
            state[key] += module.get_delta_weight(adapter).to(state[key])  # type: ignore[operator]
    plain = {name.replace(".base_layer.", "."): x.cpu().contiguous() for name, x in state.items()}
    return {name: x.clone() for name, x in plain.items()}  # tied weights lie in one memory, which the file refuses


def _source(policy: StochasticPolicy) -> dict[str, Any]:
    if not policy.source:
        raise ConfigError(
            Text(
                "this policy was made in Python, and nothing says how to make its network again",
                "这个策略是在 Python 中构造的，没有说明怎样再次构造它的网络",
            ),
            Text(
                'make it from a recipe, or set policy.source = {"function": "file.py:make", "arguments": {}}',
                '请从配方构造，或设 policy.source = {"function": "file.py:make", "arguments": {}}',
            ),
        )
    return policy.source
