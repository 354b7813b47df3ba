"""SmolLM2 with eyes: a vision-language model built here, and questions about pictures that it has never seen.

    pip download easy-vqa==1.0 --no-deps
    python examples/eyes.py questions easy_vqa-1.0-py3-none-any.whl data/eyes
    python examples/eyes.py model data/eyes models/eyes
    anygrpo train recipes/llm/eyes.toml

`questions` writes the pictures and train.jsonl, validation.jsonl, test.jsonl; no picture is in two of them. In
blind.jsonl each training question has the picture of another one: what is learnt from it is learnt without eyes.
`model` writes a LLaVA folder: SmolLM2-135M-Instruct, a projector with random weights, and a small vision transformer
that was trained here, on the training pictures alone, to tell colours and shapes.
"""

from __future__ import annotations

import json
import random
import re
import sys
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

WORDS = (("black", "gray", "blue", "brown", "yellow", "teal", "red", "green"), ("circle", "rectangle", "triangle"))
VALIDATION = 400  # training pictures whose questions choose settings
SIZE, PATCH = 64, 8


def questions(wheel: str, folder: str) -> None:
    """Rows {"prompt", "image", "answer"}. The test pictures are the package's own."""
    out = Path(folder)
    (out / "pictures").mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[dict[str, str]]] = {"train": [], "validation": [], "test": []}
    with zipfile.ZipFile(wheel) as file:
        for split in ("train", "test"):
            asked = json.loads(file.read(f"easy_vqa/data/{split}/questions.json"))
            kept = set(random.Random(0).sample(sorted({p for *_, p in asked}), VALIDATION if split == "train" else 0))
            for question, answer, picture in asked:
                name = f"pictures/{split}_{picture}.png"
                if not (out / name).exists():
                    (out / name).write_bytes(file.read(f"easy_vqa/data/{split}/images/{picture}.png"))
                part = "validation" if picture in kept else split
                rows[part].append({"prompt": f"{question} Answer in one word.", "image": name, "answer": answer})
    draw = random.Random(1)
    for part in rows.values():
        draw.shuffle(part)
    pictures = [row["image"] for row in rows["train"]]
    draw.shuffle(pictures)
    rows["blind"] = [row | {"image": other} for row, other in zip(rows["train"], pictures)]
    for name, part in rows.items():
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
        print(f"{name}: {len(part)} questions about {len({row['image'] for row in part})} pictures")


def told(folder: Path) -> tuple[list[str], Tensor]:
    """(training pictures, their colour and shape [n, 2]) as their questions and answers name them; -1: not named."""
    said: dict[str, Counter[str]] = defaultdict(Counter)
    for line in (folder / "train.jsonl").read_text().splitlines():
        row = json.loads(line)
        question = row["prompt"].removesuffix(" Answer in one word.")
        if question.startswith("what"):  # "what color is the triangle?" names the shape
            said[row["image"]].update(re.findall(r"\w+", f"{question} {row['answer']}"))
        elif row["answer"] == "yes" and not re.search(r"\b(not|no)\b", question):
            said[row["image"]].update(re.findall(r"\w+", question))
    names = sorted(said)
    return names, torch.tensor([[next((i for i, w in enumerate(of) if said[n][w]), -1) for of in WORDS] for n in names])


def trained_tower(folder: Path, reader: Any, steps: int, device: str) -> Any:
    """A vision transformer that tells colours and shapes of the training pictures."""
    from transformers import CLIPVisionConfig, CLIPVisionModel

    names, labels = told(folder)
    shown = [Image.open(folder / name).convert("RGB") for name in names]
    pixels = reader(shown, return_tensors="pt")["pixel_values"].to(device)
    labels = labels.to(device)
    torch.manual_seed(0)
    tower = CLIPVisionModel(
        CLIPVisionConfig(
            hidden_size=192, intermediate_size=768, num_hidden_layers=4, num_attention_heads=3,
            image_size=SIZE, patch_size=PATCH,
        )
    ).to(device)  # fmt: skip
    heads = nn.ModuleList([nn.Linear(192, len(of)) for of in WORDS]).to(device)
    optimizer = torch.optim.AdamW([*tower.parameters(), *heads.parameters()], 1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, steps)
    for step in range(steps):
        rows = torch.randint(len(names), (128,), device=device)
        flipped = pixels[rows].flip(-1) if step % 2 else pixels[rows]
        seen = tower(flipped).last_hidden_state[:, 1:].mean(1)  # what the projector reads: all but the class token
        loss = sum(F.cross_entropy(head(seen), labels[rows, i], ignore_index=-1) for i, head in enumerate(heads))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 100 == 0 or step + 1 == steps:
            print(f"tower: step {step}, cross-entropy {loss.item():.3f}", flush=True)
    return tower.cpu().eval()


def model(folder: str, out: str, steps: str = "1500") -> None:
    """The LLaVA folder: model, tokenizer, template, processor."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, CLIPImageProcessorPil, LlavaConfig, LlavaProcessor
    from transformers import LlavaForConditionalGeneration as Llava

    from anygrpo.models.smollm2 import smollm2_path

    device = "cuda" if torch.cuda.is_available() else "cpu"
    words = AutoTokenizer.from_pretrained(smollm2_path())
    words.add_special_tokens({"additional_special_tokens": ["<image>"]})
    words.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}"
        "{% else %}{% for c in m['content'] %}{{ '<image>\n' if c['type'] == 'image' else c['text'] }}{% endfor %}"
        "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    reader = CLIPImageProcessorPil(size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE})
    tower = trained_tower(Path(folder), reader, int(steps), device)
    text = AutoModelForCausalLM.from_pretrained(smollm2_path(), dtype=torch.float32)
    text.resize_token_embeddings(len(words))
    torch.manual_seed(0)
    made = Llava(
        LlavaConfig(
            vision_config=tower.config, text_config=text.config, vision_feature_layer=-1,
            image_token_id=words.convert_tokens_to_ids("<image>"), image_seq_length=(SIZE // PATCH) ** 2,
            tie_word_embeddings=True,
        )
    )  # fmt: skip
    made.model.language_model.load_state_dict(text.model.state_dict())
    made.model.vision_tower.load_state_dict(tower.state_dict())
    made.tie_weights()
    made.generation_config = text.generation_config
    made.save_pretrained(out)
    LlavaProcessor(
        reader, words, patch_size=PATCH, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=words.chat_template,
    ).save_pretrained(out)  # fmt: skip
    print(f"{out}: {sum(p.numel() for p in made.parameters()):,} weights")


if __name__ == "__main__":
    {"questions": questions, "model": model}[sys.argv[1]](*sys.argv[2:])
