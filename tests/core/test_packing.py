"""Plain values and tensors to files and back: bits, types, layouts; nothing else is ever made."""

import contextlib
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anygrpo.algorithm.kl import AdaptiveKL, BandKL, FixedKL
from anygrpo.algorithm.statistics import RunningState
from anygrpo.core.packing import pack, unpack
from anygrpo.core.rollout import Rollout
from anygrpo.core.tensor_files import read_tensors, write_tensors
from anygrpo.core.tree import Shared
from anygrpo.errors import ConfigError, DataError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.tuples(st.integers(), st.integers()), inner, max_size=3)
    ),
    max_leaves=12,
)


def there_and_back(value, tmp_path=None):
    tensors = {}
    text = json.dumps(pack(value, tensors, "v"), allow_nan=False)
    if tmp_path is not None:
        write_tensors(tmp_path / "t.safetensors", tensors)
        tensors = read_tensors(tmp_path / "t.safetensors")
    return unpack(json.loads(text), tensors)


def test_what_is_written():
    tensors = {}
    packed = pack({"a": (1, torch.tensor([2.0])), "b": [math.inf]}, tensors, "v")
    assert packed == {
        "dict": [["a", {"tuple": [1, {"tensor": "v/a/1"}]}], ["b", {"list": [{"float": "inf"}]}]],
    }
    assert tensors["v/a/1"].tolist() == [2.0]


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine
@given(TREES)
def test_plain_values_return_with_their_types(value):
    assert repr(there_and_back(value)) == repr(value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3, 4)])
def test_tensors_return_bit_for_bit(tmp_path, dtype, shape):
    x = (torch.randn(shape) * 3).to(dtype)
    y = there_and_back({"x": x, "again": x}, tmp_path)
    assert y["x"].dtype == dtype
    assert torch.equal(y["x"], x)
    assert torch.equal(y["again"], x)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.transpose(0, 2),
        lambda x: x[:, :1].expand(-1, 5, -1),
        lambda x: x[:, None, 0].expand(2, 7, 4).transpose(1, 2),
        lambda x: x[:, ::2],
    ],
)
def test_the_order_in_memory_returns_too(tmp_path, make):
    """Products of other layouts differ in the last bit, so a resumed run would."""
    x = make(torch.randn(2, 3, 4))
    y = there_and_back(x, tmp_path)
    assert torch.equal(x, y)
    order = lambda t: sorted(range(t.dim()), key=lambda d: (-t.stride(d), d))  # noqa: E731
    assert order(x) == order(y)
    assert [s == 0 for s in x.stride()] == [s == 0 for s in y.stride()]


def test_records_arrays_and_images_return(tmp_path):
    image = pytest.importorskip("PIL.Image").fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3))
    shared = Shared({"f": torch.randn(2, 3)}, torch.tensor([[0, 1]]))
    rollout = Rollout.of({"s": shared, "names": ["a", {"b": None}]}, torch.zeros(1, 2, 3), torch.ones(1, 2, 3),
                         reasons={(0, 1): "why"}, info={"x": math.nan})  # fmt: skip
    states = [RunningState(1.0, 2.0, 0.5), FixedKL(0.1), AdaptiveKL(0.1, 6.0), BandKL(0.2)]
    made = there_and_back({"r": rollout, "i": image, "n": np.float32(2), "a": np.eye(2), "s": states}, tmp_path)
    assert made["r"].samples["s"] == shared
    assert made["r"].samples["names"] == ["a", {"b": None}]
    assert made["r"].reasons == {(0, 1): "why"}
    assert math.isnan(made["r"].info["x"])
    assert made["i"].tobytes() == image.tobytes()
    assert made["n"] == 2.0
    assert (made["a"] == np.eye(2)).all()
    assert made["s"] == states


def test_what_is_not_plain_is_named():
    with pytest.raises(ConfigError, match="v/deep/1 holds a object"):
        pack({"deep": [1, object()]}, {}, "v")


WORDS = st.sampled_from(["record", "tensor", "dict", "list", "fields", "stride", "float", "image", "array"])
JSON = st.recursive(SCALARS, lambda i: st.lists(i, max_size=2) | st.dictionaries(WORDS, i, max_size=3), max_leaves=8)


@given(JSON)
def test_any_json_is_read_or_refused(value):
    with contextlib.suppress(DataError):
        unpack(value, {})


@pytest.mark.parametrize("name", ["os.system", "Path", "Run", ""])
def test_only_records_of_ours_are_made(name):
    with pytest.raises(DataError):
        unpack({"record": name, "fields": {}}, {})
