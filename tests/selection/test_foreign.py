"""Pointer selectors trained elsewhere: the same network under other names gives the same logits, no other is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from baits import torch_bait
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from anygrpo.errors import ConfigError, DataError
from anygrpo.selection.build import SelectorNetwork, build
from anygrpo.selection.export import export
from anygrpo.selection.settings import SelectorConfig


class Elsewhere(nn.Module):
    """A bi-encoder with cross-attention, cosines / .1 and one of three state updates, written from its description."""

    def __init__(self, features: int, width: int, layers: int, update: str) -> None:
        super().__init__()
        self.input_proj = nn.Linear(features, width, bias=False) if features != width else nn.Identity()
        self.cross_attn_layers = nn.ModuleList(nn.MultiheadAttention(width, 1, batch_first=True) for _ in range(layers))
        self.attn_norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.query_proj, self.cand_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        if update == "gated":
            self.query_update_gate = nn.Linear(2 * width, width)
        if update == "gru":
            self.decoder_gru = nn.GRUCell(width, width)
        for p in self.parameters():
            nn.init.normal_(p, std=0.3)

    def logits(self, query, candidates, picks):
        q, items = self.input_proj(query), self.input_proj(candidates)
        for attention, norm in zip(self.cross_attn_layers, self.attn_norms):
            q = norm(attention(q[:, None], items, items)[0][:, 0] + q)
        q, items = F.normalize(self.query_proj(q), dim=-1), F.normalize(self.cand_proj(items), dim=-1)
        out = []
        for pick in picks:
            out.append((items @ q[..., None])[..., 0] / 0.1)
            chosen = items[:, pick]
            if hasattr(self, "query_update_gate"):
                gate = torch.sigmoid(self.query_update_gate(torch.cat([q, chosen], -1)))
                q = F.normalize(gate * q + (1 - gate) * chosen, dim=-1)
            if hasattr(self, "decoder_gru"):
                q = F.normalize(self.decoder_gru(chosen, q), dim=-1)
        return torch.stack(out, 1)


def config(path, **changes):
    section = {
        "kind": "selector",
        "features": 6,
        "width": 8,
        "shots": 3,
        "decoder": "none",
        "model": path and str(path),
    }
    return SelectorConfig(**(section | changes))


@pytest.mark.parametrize(
    ("layers", "update", "features", "suffix"),
    [(1, "none", 6, ".pt"), (3, "gated", 6, ".ckpt"), (1, "gru", 8, ".safetensors"), (2, "none", 8, ".pth")],
)
def test_the_same_network_gives_the_same_logits(tmp_path, layers, update, features, suffix):
    torch.manual_seed(0)
    other, path = Elsewhere(features, 8, layers, update), tmp_path / f"weights{suffix}"
    state = {f"lever_lm.pointer_selector.{name}": x for name, x in other.state_dict().items()}
    if suffix == ".safetensors":
        from safetensors.torch import save_file

        save_file(state, path)
    else:
        torch.save({"state_dict": state} if suffix == ".ckpt" else state, path)
    policy = build(config(path, layers=layers, decoder=update, features=features), 0)
    query, candidates = torch.randn(2, features), torch.randn(2, 5, features)
    picks = torch.tensor([3, 0, 4])
    encoded = policy.network.encode(query, candidates, torch.ones(2, 5, dtype=torch.bool))
    ours = policy.network.logits(encoded, picks.expand(2, 1, 3))[:, 0, :, :5]
    torch.testing.assert_close(ours, other.logits(query, candidates, picks), rtol=1e-5, atol=1e-5)


def test_another_network_is_refused_with_what_to_set(tmp_path):
    torch.save(Elsewhere(6, 8, 3, "gated").state_dict(), tmp_path / "w.pt")
    with pytest.raises(ConfigError, match=r"layers = 1, decoder = 'none'.\n.*layers = 3, decoder = 'gated'"):
        build(config(tmp_path / "w.pt"), 0)


def test_parts_without_a_counterpart_are_named(tmp_path):
    state = Elsewhere(6, 8, 1, "gru").state_dict() | {"step_emb.weight": torch.zeros(2, 8)}
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(ConfigError, match=r"no counterpart here: step_emb.weight"):
        build(config(tmp_path / "w.pt", decoder="gru"), 0)


def test_another_temperature_is_another_policy(tmp_path):
    torch.save(Elsewhere(6, 8, 1, "none").state_dict() | {"temperature": torch.tensor([0.05])}, tmp_path / "w.pt")
    with pytest.raises(ConfigError, match=r"logit_temperature = 0.05"):
        build(config(tmp_path / "w.pt"), 0)


def test_a_file_that_holds_more_than_tensors_is_read_and_not_run(tmp_path):
    own = SelectorNetwork(config(None)).state_dict()
    mark = tmp_path / "ran"
    for content in (torch_bait(mark), None):
        if content is None:
            wrapped = {f"net.{name}": x + 1 for name, x in own.items()}
            torch.save({"state_dict": wrapped, "hyper_parameters": Path("x")}, tmp_path / "w.ckpt")
        else:
            (tmp_path / "w.ckpt").write_bytes(content)
        if content is None:
            made = build(config(tmp_path / "w.ckpt"), 0).network.state_dict()
            assert all(torch.equal(made[name], x + 1) for name, x in own.items())
        else:
            with pytest.raises(DataError, match="holds no state dict"):
                build(config(tmp_path / "w.ckpt"), 0)
    assert not mark.exists()


def test_a_checkpoint_and_an_export_are_starts_too(tmp_path):
    policy = build(config(None), 7)
    export(policy, tmp_path / "out")
    folder = tmp_path / "run" / "checkpoints" / "step_00000003"
    folder.mkdir(parents=True)
    save_file({n: x.contiguous() for n, x in policy.network.state_dict().items()}, folder / "policy.safetensors")
    for place in (tmp_path / "out", folder, tmp_path / "run"):
        made = build(config(place), 0).network.state_dict()
        assert all(torch.equal(made[name], x) for name, x in policy.network.state_dict().items()), place
    save_file({"other": torch.zeros(2)}, tmp_path / "w.safetensors")
    with pytest.raises(DataError, match="0 tensors loaded"):
        build(config(tmp_path / "w.safetensors"), 0)
