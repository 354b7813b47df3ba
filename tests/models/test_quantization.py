"""4-bit weights: a gradient passes them after a pass without gradient, as through the same weights unpacked."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from anygrpo.models.quantization import differentiable


def test_layers_that_may_be_packed_are_told_not_to():
    layer = nn.Linear(2, 2)
    layer.support_avx512bf16_for_cpu = True
    differentiable(nn.Sequential(layer, nn.Linear(2, 2)))
    assert layer.support_avx512bf16_for_cpu is False


def test_a_gradient_passes_4_bit_weights_after_a_pass_without():
    bitsandbytes = pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    layer = bitsandbytes.nn.Linear4bit(64, 64, bias=False, quant_type="nf4", compute_dtype=torch.float32).to("cpu")
    layer.weight.requires_grad_(False)
    differentiable(layer)
    layer.eval()
    with torch.no_grad():
        layer(torch.randn(3, 64))
    x = torch.randn(3, 64, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    eye = torch.eye(64)
    with torch.no_grad():
        weight = layer(eye)
    assert float(x.grad.abs().max()) > 0
    torch.testing.assert_close(x.grad, weight.sum(1).expand(3, -1), rtol=1e-3, atol=1e-3)
