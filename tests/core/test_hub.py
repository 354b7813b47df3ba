"""Names of the Hub in every family, against a server that speaks its protocol; and without a network afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import peft
import pytest
import tiny_lm  # noqa: F401  makes `tiny` known
import torch
from hub_server import Hub
from safetensors.torch import save_file
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

import anygrpo
from anygrpo.core import hub as names
from anygrpo.errors import DataError
from anygrpo.language.files import adapter_config
from anygrpo.models import weights
from anygrpo.models.loading import load_model, load_tokenizer
from anygrpo.models.origin import origin
from anygrpo.scoring import reward_model

IDS = torch.arange(3, 20)[None]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    made = Hub(tmp_path / "hub", monkeypatch)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        ("someone/tiny", True),
        ("Qwen/Qwen2.5-0.5B-Instruct@refs/pr/3", True),
        ("someone/tiny@main", True),
        ("gpt2", False),
        ("./someone/tiny", False),
        ("~/tiny", False),
        ("a/b/c", False),
        ("someone/tiny.safetensors", False),
        ("here/gone", False),
    ],
)
def test_what_may_be_a_name(text, is_name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    assert names.is_name(text) is is_name


def test_a_name_and_its_revision():
    assert names.split("someone/tiny@refs/pr/3") == ("someone/tiny", "refs/pr/3")
    assert names.split("someone/tiny") == ("someone/tiny", None)
    assert names.split("/tmp/a@b") == ("/tmp/a@b", None)


def test_of_a_repository_one_form_of_the_weights_is_fetched():
    files = [
        "model_index.json", "sd_xl_base.safetensors", "unet/config.json", "unet/model.safetensors",
        "unet/model.fp16.safetensors", "unet/model.bin", "vae/model.fp16.safetensors", "vae/model.bin",
        "onnx/model.onnx", "flax/x.msgpack", "picture.png", "text/vocab.json", "text/spiece.model",
    ]  # fmt: skip
    assert names.wanted(files) == [
        "model_index.json", "unet/config.json", "unet/model.safetensors", "vae/model.fp16.safetensors",
        "text/vocab.json", "text/spiece.model",
    ]  # fmt: skip
    llama = ["config.json", "model-1.safetensors", "original/consolidated.00.pth", "original/params.json"]
    assert names.wanted(llama) == llama[:2]
    assert names.wanted(["config.json", "model.safetensors", "consolidated.safetensors", "metal/model.bin"]) == [
        "config.json", "model.safetensors",
    ]  # fmt: skip
    assert names.wanted(["config.json", "consolidated.safetensors"]) == ["config.json", "consolidated.safetensors"]
    assert names.wanted(["params.json", "original/consolidated.pth"]) == ["params.json", "original/consolidated.pth"]
    assert names.wanted(["args.json", "model50.pt", "model.bin"]) == ["args.json", "model50.pt", "model.bin"]


def llama(folder: Path, seed: int) -> LlamaForCausalLM:
    import tiny

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=64, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return model


def says(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


def test_a_language_model_an_adapter_of_it_and_a_revision(hub, tmp_path):
    first = llama(hub.place("someone/tiny"), 0)
    second = llama(hub.place("someone/tiny", "second"), 1)
    adapted = peft.get_peft_model(
        LlamaForCausalLM.from_pretrained(hub.place("someone/tiny")), peft.LoraConfig(r=2, target_modules=["q_proj"])
    ).eval()
    for p in adapted.parameters():
        p.data.add_(0.3 * torch.randn_like(p) * p.requires_grad)
    adapted.peft_config["default"].base_model_name_or_path = "someone/tiny"
    adapted.save_pretrained(hub.place("someone/adapter"))
    config = hub.place("someone/adapter") / "adapter_config.json"
    later = hub.place("someone/later") / "adapter_config.json"
    later.write_text(json.dumps(json.loads(config.read_text()) | {"revision": "second"}))
    for _ in ("with a network", "without"):
        assert origin("someone/later").base == "someone/tiny@second"
        torch.testing.assert_close(says(load_model("someone/tiny")), says(first))
        torch.testing.assert_close(says(load_model("someone/tiny@second")), says(second))
        torch.testing.assert_close(says(load_model("someone/adapter")), says(adapted), atol=1e-5, rtol=0)
        assert origin("someone/adapter").base == "someone/tiny"
        assert len(load_tokenizer("someone/adapter")) == len(load_tokenizer("someone/tiny"))
        assert load_tokenizer("someone/tiny@second").eos_token_id == 1
        assert anygrpo.load("someone/adapter", device="cpu").family.name == "language"
        hub.close()
    assert float((says(adapted) - says(first)).abs().max()) > 1e-3
    # What is written names the repository and its revision, not this machine's cache.
    config = SimpleNamespace(model="someone/tiny@second")
    policy = SimpleNamespace(config=config, weights=SimpleNamespace(module=adapted))
    written = adapter_config(policy)
    assert (written.base_model_name_or_path, written.revision) == ("someone/tiny", "second")


def test_without_a_network_nobody_asks_again_and_again(hub, monkeypatch):
    """transformers' own way takes half a minute a file; here one question is asked, and what was had is opened."""
    from huggingface_hub.utils import _http

    model = llama(hub.place("someone/tiny"), 0)
    load_tokenizer("someone/tiny"), load_model("someone/tiny")
    hub.close()
    waits = []
    monkeypatch.setattr(_http.time, "sleep", waits.append)
    assert load_tokenizer("someone/tiny").eos_token_id == 1
    torch.testing.assert_close(says(load_model("someone/tiny")), says(model))
    with pytest.raises(DataError, match="'someone/nothing' is no path here, and cannot be had from the Hub"):
        load_tokenizer("someone/nothing")
    assert waits == []


def test_a_reward_model_and_its_revision_are_had_again_without_a_network(hub, monkeypatch):
    from huggingface_hub.utils import _http

    for revision, seed in (("main", 0), ("second", 1)):
        place = hub.place("someone/judge", revision)
        llama(place, seed)  # its tokenizer too
        torch.manual_seed(seed)
        config = LlamaConfig.from_pretrained(place, num_labels=1, architectures=None)
        LlamaForSequenceClassification(config).save_pretrained(place)
    asked = ["someone/judge", "someone/judge@second"]
    judge = lambda: [reward_model.score(["a"], [" b"], name)[0] for name in asked]  # noqa: E731
    had = judge()
    assert had[0] != had[1]
    hub.close()
    reward_model._loaded.cache_clear()
    waits = []
    monkeypatch.setattr(_http.time, "sleep", waits.append)
    assert judge() == had
    assert waits == []


def test_what_was_left_out_is_not_missed_without_a_network(hub, capsys):
    """The package's own question whether a snapshot is whole counts every file of the repository."""
    for revision in ("main", "second"):
        place = hub.place("a/net", revision)
        save_file({"weight": torch.ones(2)}, place / "model.safetensors")
        (place / "picture.png").write_bytes(b"x")
    for name in ("a/net", "a/net@second"):
        had = names.folder(name)
        assert f"{name}: 1 file of the Hub, " in capsys.readouterr().err
        names.folder.cache_clear()
        assert names.folder(name) == had
        assert "of the Hub" not in capsys.readouterr().err, "there already"
        assert [f.name for f in had.iterdir()] == ["model.safetensors"]
    hub.close()
    for name in ("a/net", "a/net@second"):
        assert (names.folder(name) / "model.safetensors").exists()


def test_a_gate_and_more_than_an_errors_first_line(hub, monkeypatch):
    import huggingface_hub
    from huggingface_hub.errors import GatedRepoError

    def closed(*_, **__):
        raise GatedRepoError(
            "401 Client Error.\n\nAccess to model a/b is restricted.",
            response=SimpleNamespace(headers={}, request=None),
        )

    (hub.place("a/b") / "config.json").write_text("{}")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", closed)
    with pytest.raises(DataError, match=r"401 Client Error\. Access to model a/b is restricted") as told:
        names.folder("a/b")
    assert "accept its terms on its page, then `hf auth login`" in str(told.value)


def test_what_is_not_there_is_told(hub):
    with pytest.raises(DataError, match="'someone/nothing' is no path here, and cannot be had from the Hub"):
        weights.read("someone/nothing")
    llama(hub.place("someone/tiny"), 0)
    with pytest.raises(DataError, match="'someone/tiny@third'"):
        load_model("someone/tiny@third")
    with pytest.raises(DataError, match="cannot load the model of 'someone/nothing'"):
        load_model("someone/nothing")


def test_weights_of_a_users_network_and_an_export_of_it(hub):
    """What gates and selectors start from (`models.weights`)."""
    wanted = nn.Linear(3, 2)
    save_file(
        {f"net.{n}": p.detach() for n, p in wanted.state_dict().items()}, hub.place("a/net") / "model.safetensors"
    )
    for _ in ("with a network", "without"):
        network = nn.Linear(3, 2)
        weights.load(network, "a/net")
        assert torch.equal(network.weight, wanted.weight)
        hub.close()


def test_a_data_set(hub):
    pytest.importorskip("datasets")
    import datasets.config  # noqa: F401

    from anygrpo.language.tasks.data import read_rows

    hub.offline(False)
    for revision, answer in (("main", "3"), ("second", "4")):
        row = {"prompt": "1 + 2", "answer": answer}
        (hub.place("someone/sums", revision, "datasets") / "train.jsonl").write_text(json.dumps(row) + "\n")
    assert [r["answer"] for _, r in read_rows("someone/sums", "prompt")] == ["3"]
    assert [r["answer"] for _, r in read_rows("someone/sums@second", "prompt")] == ["4"]
