"""What several ranks wrote: whole tensors again, or a refusal."""

import json

import pytest
import torch
from safetensors.torch import load_file

from anygrpo.core import saved, saved_parts
from anygrpo.core.tensor_files import NAMES, read_tensors, write_tensors
from anygrpo.core.trained import load_state, state_of
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
        moments = {"w": {"exp_avg": Shard(WHOLE, begin, end), "step": torch.ones(2)}}
        saved_parts.write(folder, moments, rank)
    return folder


def test_pieces_become_whole_tensors_and_are_numbered(tmp_path):
    folder = written(tmp_path)
    assert {k: x.tolist() for k, x in load_file(folder / "parts" / "rank_00002.safetensors").items()} == {
        "0": [[12.0, 13.0, 14.0]]
    }
    assert len(load_file(folder / "parts" / "rank_00000.safetensors")) == 2  # what all hold whole, the first writes
    read = dict(saved_parts.moments(folder)["w"])
    assert torch.equal(read["exp_avg"], WHOLE)
    assert torch.equal(read["step"], torch.ones(2))


def test_parts_of_older_checkpoints_hold_weights_by_name(tmp_path):
    (tmp_path / "parts").mkdir()
    for rank, (begin, end) in enumerate(((0, 2), (2, 5))):
        file = tmp_path / "parts" / f"rank_{rank:05d}"
        write_tensors(file.with_suffix(".safetensors"), {"weight/w": WHOLE[begin:end]})
        about = {"shape": [5, 3], "offset": [begin, 0], "size": [end - begin, 3]}
        file.with_suffix(".json").write_text(json.dumps({"schema": 2, "tensors": {"weight/w": about}}))
    assert torch.equal(saved.weights(tmp_path)["w"], WHOLE)


def test_whole_weights_are_dealt_by_size_and_found_by_the_index(tmp_path):
    tensors = {"a": torch.ones(6), "b": torch.ones(4) * 2, "c": torch.ones(3) * 3}
    shares = saved_parts.dealt({n: x.numel() for n, x in tensors.items()}, 2)
    assert shares == [["a"], ["b", "c"]]
    assert saved_parts.dealt({"a": 1, "b": 1}, 2, split=False) == [["a", "b"], []]
    for i, names in enumerate(shares):
        name = saved_parts.shard_name("model.safetensors", i, 2)
        write_tensors(tmp_path / name, {n: tensors[n] for n in names})
    saved_parts.write_index(tmp_path, "model.safetensors", shares, 52)
    (tmp_path / "state.json").write_text('{"weights": "model.safetensors"}')
    read = saved.weights(tmp_path)
    assert {n: x.tolist() for n, x in read.items()} == {n: x.tolist() for n, x in tensors.items()}
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(DataError, match=r"model-00002-of-00002\.safetensors, which is not there"):
        saved.weights(tmp_path)


@pytest.mark.parametrize("table", [None, [], {"w": 3}, {"w": "../w.safetensors"}, {"w": "/etc/passwd"}])
def test_an_index_that_leaves_its_folder_is_refused(tmp_path, table):
    (tmp_path / "policy.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    with pytest.raises(DataError, match="no index of weights"):
        saved.weights(tmp_path)


def test_a_numbered_file_has_its_names_again(tmp_path):
    tensors = {"x.lora_A.weight/exp_avg": torch.ones(2), "ÿ": torch.zeros(1)}
    write_tensors(tmp_path / "f.safetensors", tensors, numbered=True)
    assert set(load_file(tmp_path / "f.safetensors")) == {"0", "1"}
    assert {n: x.tolist() for n, x in read_tensors(tmp_path / "f.safetensors").items()} == {
        n: x.tolist() for n, x in tensors.items()
    }


@pytest.mark.parametrize("said", ["", "null", "{}", '["a"]', '["a", "a"]', "[1, 2]", '["a", {}]', '["a", "b", "c"]'])
def test_a_numbered_file_whose_header_names_other_tensors_is_refused(tmp_path, said):
    write_tensors(tmp_path / "f.safetensors", {"0": torch.ones(1), "1": torch.ones(1)}, {NAMES: said})
    with pytest.raises(DataError, match="does not name its 2 tensors"):
        read_tensors(tmp_path / "f.safetensors")


def test_a_missing_rank_is_said(tmp_path):
    with pytest.raises(DataError, match="pieces of w/exp_avg are missing"):
        saved_parts.moments(written(tmp_path, ((0, 2), (2, 4))))["w"]["exp_avg"]


@pytest.mark.parametrize("about", [None, [], {"shape": [5, 3], "offset": [4, 0], "size": [2, 3]},
                                   {"shape": [5, 3], "offset": [-1, 0], "size": [2, 3]}, {"shape": "x"}])  # fmt: skip
def test_a_malformed_index_is_said(tmp_path, about):
    folder = written(tmp_path)
    (folder / "parts" / "rank_00000.json").write_text(json.dumps({"schema": 2, "tensors": {"moment/w/exp_avg": about}}))
    with pytest.raises(DataError):
        saved_parts.moments(folder)["w"]["exp_avg"]


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
