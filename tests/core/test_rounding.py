"""float32 on a GPU: what is told to cuDNN, for how long, and who is asked."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from anygrpo.core.device import exactly, float32_as_it_is, prepare, rounded

CUDNN, MATMUL = torch.backends.cudnn, torch.backends.cuda.matmul


@pytest.fixture(autouse=True)
def as_torch_begins():
    """TF32 in convolutions and not in products, before and after."""
    CUDNN.allow_tf32, MATMUL.fp32_precision = True, "none"
    yield
    CUDNN.allow_tf32, MATMUL.fp32_precision = True, "none"


def said():
    return CUDNN.conv.fp32_precision, CUDNN.rnn.fp32_precision, MATMUL.fp32_precision


def test_exactly_is_for_what_is_inside():
    MATMUL.fp32_precision = "tf32"
    with exactly():
        assert said() == ("ieee", "ieee", "ieee")
    assert said() == ("tf32", "tf32", "tf32")
    with pytest.raises(ZeroDivisionError), exactly():
        1 / 0  # noqa: B018
    assert said() == ("tf32", "tf32", "tf32")


def test_a_policy_in_float32_turns_it_off_for_good_and_one_in_bfloat16_does_not():
    float32_as_it_is("bfloat16")
    assert CUDNN.allow_tf32
    float32_as_it_is("float32")
    assert not CUDNN.allow_tf32
    assert "tf32" not in said()
    with exactly():
        pass
    assert not CUDNN.allow_tf32


def test_a_language_models_dtype_decides(monkeypatch):
    monkeypatch.setattr("anygrpo.core.device.device_of", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert prepare("auto", "auto", 1)[1] == torch.bfloat16
    assert CUDNN.allow_tf32
    assert prepare("auto", "float32", 1)[1] == torch.float32
    assert not CUDNN.allow_tf32


def module(layer, on_a_gpu=True):
    return SimpleNamespace(parameters=lambda: [SimpleNamespace(is_cuda=on_a_gpu)], modules=lambda: [layer])


def test_only_what_is_rounded_is_called_so():
    linear, conv = nn.Linear(2, 2), nn.Conv2d(1, 1, 1)
    assert rounded(module(conv))
    assert not rounded(module(linear))
    assert not rounded(module(conv, on_a_gpu=False))
    MATMUL.fp32_precision = "tf32"
    assert rounded(module(linear))
    with exactly():
        assert not rounded(module(conv))
    MATMUL.fp32_precision = "none"
    float32_as_it_is("float32")
    assert not rounded(module(conv))
