"""What several ranks wrote: whole tensors again, or a refusal."""

import json

import pytest
import torch
from safetensors.torch import load_file

from anygrpo.core import saved
from anygrpo.core.policy import load_state, state_of
from anygrpo.errors import ConfigError, DataError


class Chunk:
    def __init__(self, offsets):
        self.offsets = offsets


class Shard:
    """A stand-in for one rank's view of a sharded tensor: rows begin:end of a whole."""

    def __init__(self, whole, begin, end):
        self.whole, self.begin, self.end, self.shape = whole, begin, end, whole.shape

    def to_local(self):
        return self.whole[self.begin : self.end]

    def numel(self):
        return self.whole.numel()

    def __create_chunk_list__(self):
        return [Chunk((self.begin, 0))] if self.end > self.begin else []


WHOLE = torch.arange(15.0).view(5, 3)


def written(folder, cuts=((0, 2), (2, 4), (4, 5), (5, 5))):
    for rank, (begin, end) in enumerate(cuts):
        weights = {"w": Shard(WHOLE, begin, end), "b": torch.ones(2)}
        saved.write(folder, weights, {"w": {"exp_avg": Shard(WHOLE * 2, begin, end)}}, rank)
    return folder


def test_pieces_become_whole_tensors(tmp_path):
    folder = written(tmp_path)
    assert load_file(folder / "parts" / "rank_00002.safetensors")["weight/w"].tolist() == [[12.0, 13.0, 14.0]]
    assert "weight/b" not in load_file(folder / "parts" / "rank_00001.safetensors")
    read = saved.weights(folder)
    assert torch.equal(read["w"], WHOLE)
    assert torch.equal(read["b"], torch.ones(2))
    assert torch.equal(dict(saved.moments(folder)["w"])["exp_avg"], WHOLE * 2)


def test_a_missing_rank_is_said(tmp_path):
    with pytest.raises(DataError, match="pieces of w are missing"):
        saved.weights(written(tmp_path, ((0, 2), (2, 4))))["w"]


@pytest.mark.parametrize("about", [None, [], {"shape": [5, 3], "offset": [4, 0], "size": [2, 3]},
                                   {"shape": [5, 3], "offset": [-1, 0], "size": [2, 3]}, {"shape": "x"}])  # fmt: skip
def test_a_malformed_index_is_said(tmp_path, about):
    folder = written(tmp_path)
    (folder / "parts" / "rank_00000.json").write_text(json.dumps({"schema": 2, "tensors": {"weight/w": about}}))
    with pytest.raises(DataError):
        saved.weights(folder)["w"]


def test_weights_load_by_own_and_by_library_names():
    net = torch.nn.Linear(2, 1)
    names = {"weight": "unet.to_q.weight"}
    for state in ({"weight": torch.ones(1, 2), "bias": torch.ones(1)},
                  {"unet.to_q.weight": torch.ones(1, 2), "bias": torch.ones(1)}):  # fmt: skip
        torch.nn.init.zeros_(net.weight)
        load_state(net, state, names)
        assert state_of(net)["weight"].tolist() == [[1.0, 1.0]]
    with pytest.raises(ConfigError, match="unexpected"):
        load_state(net, {"unet.other": torch.ones(1, 2), "bias": torch.ones(1)}, names)


def test_two_weights_cannot_share_a_name_in_files():
    with pytest.raises(ConfigError, match="two weights"):
        saved.library_names({"a": "x", "b": "x"}, {"a": 1, "b": 2})
    with pytest.raises(ConfigError, match="'b'"):
        saved.library_names({"a": "b"}, {"a": 1, "b": 2})


def test_a_pickle_named_as_weights_is_refused_and_not_run(tmp_path):
    from baits import bait

    mark = tmp_path / "ran"
    for name in ("w.pt", "w.safetensors", "w.bin"):
        (tmp_path / name).write_bytes(bait(mark))
        with pytest.raises(DataError):
            saved.read_weights(tmp_path / name)
    assert not mark.exists()
