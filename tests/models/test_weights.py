"""Weights of others: which names fit, what is said of the rest, and that nothing in a file is run."""

from __future__ import annotations

import argparse
import json
import os
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from anygrpo.errors import DataError
from anygrpo.models.weights import load, read, tables


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        OrderedDict(body=nn.Conv2d(3, 4, 3), tail=nn.Sequential(nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3)))
    )


def filled(prefix: str = "", value: float = 7.0) -> dict[str, torch.Tensor]:
    return {prefix + k: torch.full_like(v, value) for k, v in net().state_dict().items()}


def saved(content: object, path: Path) -> Path:
    torch.save(content, path)
    return path


TENSORS = len(net().state_dict())


@pytest.mark.parametrize("prefix", ["", "module.", "net.", "_orig_mod.module.", "model.generator.", "body."])
@pytest.mark.parametrize("table", [None, "state_dict", "params"])
def test_a_prefix_and_a_table_are_found(prefix: str, table: str | None, tmp_path: Path) -> None:
    state = filled(prefix)
    path = saved({table: state, "epoch": 3} if table else state, tmp_path / "x.ckpt")
    module = net()
    report = load(module, path)
    assert (report.loaded, report.missing, report.unexpected, report.table) == (TENSORS, [], [], table or "")
    assert module.body.weight.unique().tolist() == [7.0]


def test_a_loss_beside_the_network_is_left_and_named(tmp_path: Path) -> None:
    state = filled("net.") | {"loss_fn.window": torch.ones(11), "loss_fn.tail.0.bias": torch.zeros(3)}
    module = net()
    report = load(module, saved({"state_dict": state}, tmp_path / "x.ckpt"))
    assert report.loaded == TENSORS
    assert report.prefixes == {"'net.' -> ''": TENSORS}
    assert report.beside == ["loss_fn.tail.0.bias", "loss_fn.window"]
    assert module.tail[0].bias.unique().tolist() == [7.0]


def test_a_loss_fills_no_gap_of_the_network(tmp_path: Path) -> None:
    state = {k: x for k, x in filled("net.").items() if "tail.0" not in k} | {
        "loss.tail.0.weight": torch.ones(3, 4, 3, 3)
    }
    with pytest.raises(DataError, match="2 missing"):
        load(net(), saved(state, tmp_path / "x.pt"))


def test_pieces_under_prefixes_of_their_own_come_together(tmp_path: Path) -> None:
    state = {("a.module." if k.startswith("body") else "b.") + k: x for k, x in filled().items()}
    report = load(net(), saved(state, tmp_path / "x.pt"))
    assert report.loaded == TENSORS
    assert sorted(report.prefixes.values()) == [2, TENSORS - 2]


def test_the_module_itself_may_be_wrapped(tmp_path: Path) -> None:
    outer = nn.ModuleDict({"net": net()})
    report = load(outer, saved(filled("generator."), tmp_path / "x.pt"))
    assert report.prefixes == {"'generator.' -> 'net.'": TENSORS}
    assert outer["net"].body.bias.unique().tolist() == [7.0]


def test_plain_weights_before_averaged_ones_unless_asked(tmp_path: Path) -> None:
    path = saved({"params_ema": filled(value=2.0), "params": filled(value=1.0)}, tmp_path / "x.pth")
    module = net()
    report = load(module, path)
    assert (report.table, report.beside) == ("params", ["table 'params_ema'"])
    assert module.body.bias.unique().tolist() == [1.0]
    load(module, path, table="params_ema")
    assert module.body.bias.unique().tolist() == [2.0]
    with pytest.raises(DataError, match="did you mean 'params_ema'"):
        load(module, path, table="param_ema")


def test_what_does_not_fit_is_named_with_both_shapes(tmp_path: Path) -> None:
    state = filled("module.") | {"module.body.bias": torch.zeros(5), "module.gate.weight": torch.zeros(1)}
    path = saved(state, tmp_path / "x.pt")
    with pytest.raises(DataError, match=r"body\.bias: \(5,\), \(4,\)"):
        load(net(), path)
    report = load(net(), path, strict=False)
    assert (report.loaded, report.mismatched) == (TENSORS - 1, ["body.bias: (5,), (4,)"])
    assert report.unexpected == ["gate.weight"]
    assert not report.fits


def test_counters_of_batches_may_be_missing(tmp_path: Path) -> None:
    state = {k: x for k, x in filled().items() if not k.endswith("num_batches_tracked")}
    assert load(net(), saved(state, tmp_path / "x.pt")).fits


def test_a_trainers_arguments_do_not_keep_its_weights_from_being_read(tmp_path: Path) -> None:
    beside = {"args": argparse.Namespace(lr=1e-3, path=Path("x")), "rng": torch.get_rng_state(), "best": 31.2}
    report = load(net(), saved({"model": filled(), **beside}, tmp_path / "x.pth"))
    assert (report.loaded, report.table) == (TENSORS, "model")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_whole_module_is_read_as_its_weights(zipped: bool, tmp_path: Path) -> None:
    torch.save(net(3), tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    module = net()
    assert load(module, tmp_path / "x.pt").loaded == TENSORS
    assert torch.equal(module.body.weight, net(3).body.weight)


class Evil:
    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> object:
        return os.mkdir, (self.mark,)


@pytest.mark.parametrize("zipped", [True, False])
def test_nothing_that_a_file_names_is_run(zipped: bool, tmp_path: Path) -> None:
    mark = tmp_path / "was_run"
    torch.save({"model": filled(), "x": Evil(str(mark))}, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    assert load(net(), tmp_path / "x.pt").loaded == TENSORS
    assert not mark.exists()


def test_safetensors_files_in_parts_and_folders(tmp_path: Path) -> None:
    names = list(filled())
    parts = {"a.safetensors": names[:2], "b.safetensors": names[2:]}
    for file, mine in parts.items():
        save_file({k: filled()[k] for k in mine}, tmp_path / file)
    with pytest.raises(DataError, match="2 files of weights"):
        read(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {k: f for f, mine in parts.items() for k in mine}}))
    assert load(net(), tmp_path).loaded == TENSORS
    index.write_text(json.dumps({"weight_map": {"x": "../a.safetensors"}}))
    with pytest.raises(DataError, match="outside"):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x02X\x05"])
def test_a_broken_file_is_one_clear_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.pt cannot be read"):
        read(tmp_path / "x.pt")
    (tmp_path / "x.onnx").write_bytes(content)
    with pytest.raises(DataError, match="known"):
        read(tmp_path / "x.onnx")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["net", "module", "model", "gen", "ema"]), max_size=3), st.integers(0, 3))
def test_any_prefix_beside_any_other_table_fits_whole(words: list[str], others: int) -> None:
    from anygrpo.models.weights import matched

    prefix = "".join(f"{w}." for w in words)
    found = {"state_dict": filled(prefix) | {f"loss{i}.w": torch.zeros(i + 1) for i in range(others)}}
    state, report = matched(net().state_dict(), found, "x")
    assert report.loaded == TENSORS
    assert {float(x.float().mean()) for x in state.values()} == {7.0}
    assert len(report.unexpected) + len(report.beside) == others


def test_tables_are_named_by_their_place() -> None:
    found = tables({"a": {"b": {"w": torch.zeros(1)}}, "w": torch.zeros(1), "n": 3, "optimizer": {"state": {0: {}}}})
    assert list(found) == ["", "a.b"]


def test_a_table_in_a_list_is_found_and_long_lists_are_not_searched(tmp_path: Path) -> None:
    """(step, {"state_dict": ...}), as some trainers save it."""
    module = net()
    report = load(module, saved((3, {"state_dict": filled("module.")}), tmp_path / "x.pt"))
    assert (report.loaded, report.table) == (TENSORS, "1.state_dict")
    assert float(module.body.weight.detach().min()) == 7.0
    assert tables([{"w": torch.zeros(1)}] * 17) == {}


def test_numbers_of_a_quantiser_are_not_taken_for_weights(tmp_path):
    """Integers of the right shape would be loaded as weights a hundred times too large."""
    net = nn.Linear(4, 3)
    bias, scale = net.bias.detach(), torch.tensor([0.01])
    integers = (net.weight.detach() * 100).round().to(torch.int8)
    eight = net.weight.detach().to(torch.float8_e4m3fn)
    refused = [
        {"weight": integers, "bias": bias},
        {"weight": integers, "bias": bias, "weight_scale": scale},
        {"weight": eight, "bias": bias, "weight_scale_inv": scale},
    ]
    for number, state in enumerate(refused):
        save_file(state, tmp_path / f"{number}.safetensors")
        with pytest.raises(DataError, match=r"is quantised: weight holds \w+, the network's is float32"):
            load(nn.Linear(4, 3), tmp_path / f"{number}.safetensors", strict=False)
    save_file({"weight": eight, "bias": bias}, tmp_path / "rounded.safetensors")
    again = nn.Linear(4, 3)
    load(again, tmp_path / "rounded.safetensors")
    assert torch.equal(again.weight.detach(), eight.float())
