"""The table of `bench/selection_composition.py` for pictures: easy-vqa's shapes before a frozen SmolLM2 that sees them.

    pip download easy-vqa==1.0 --no-deps
    python bench/selection_pictures.py pack easy_vqa-1.0-py3-none-any.whl pictures.npz
    python bench/selection_pictures.py table pictures.npz OUT.npz [train-0:1500 validation-0:100 test-0:400]

The frozen judge is SmolLM2-135M with eyes: a small convolutional network, trained here on the training pictures to
write the embeddings of a picture's colour and shape, as its questions and answers name them, into the model's prompt.
The model itself is not trained. Colours and shapes have code words, drawn anew for each query. A candidate is a picture
with a question about its colour or its shape, answered by a code word; the query is a picture that is asked both
questions, and is right only where both answers are.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import re
import sys
import zipfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anygrpo.selection.composition import CODES

COLOURS = ["black", "gray", "blue", "brown", "yellow", "teal", "red", "green"]
SHAPES = ["circle", "rectangle", "triangle"]
QUERIES = ("train-0:1500", "validation-0:100", "test-0:400")
POOL, AT_ONCE, EPOCHS = 10, 8, 40
EVERY = [(), *((i,) for i in range(POOL)), *itertools.permutations(range(POOL), 2)]
TEST_FROM = 300  # of the 1,000 test pictures the first are those of validation queries


def pack(wheel: str, out: str) -> None:
    """Pixels [n, 64, 64, 3], colour and shape [n] as a picture's questions and answers name them, train [n]."""
    from PIL import Image

    pixels, named, train = [], [], []
    with zipfile.ZipFile(wheel) as file:
        for split in ("train", "test"):
            said: dict[int, Counter[str]] = defaultdict(Counter)
            for question, answer, picture in json.loads(file.read(f"easy_vqa/data/{split}/questions.json")):
                if question.startswith("what"):  # "what color is the triangle?" names the shape
                    said[picture].update(re.findall(r"\w+", f"{question} {answer}"))
                elif answer == "yes" and not re.search(r"\b(not|no)\b", question):
                    said[picture].update(re.findall(r"\w+", question))
            for picture, words in sorted(said.items()):
                own = [next((i for i, w in enumerate(names) if words[w]), -1) for names in (COLOURS, SHAPES)]
                if min(own) < 0:
                    continue  # its questions do not name it whole
                data = file.read(f"easy_vqa/data/{split}/images/{picture}.png")
                pixels.append(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
                named.append(own)
                train.append(split == "train")
    np.savez_compressed(out, pixels=np.stack(pixels), named=np.array(named), train=np.array(train))
    print(f"{sum(train)} training and {len(train) - sum(train)} test pictures are named whole by their questions")


class Eyes(nn.Module):
    """Pictures [n, 3, 64, 64] -> features [n, 128] and the embeddings of two words [n, 2, d]."""

    def __init__(self, words: list[Tensor]) -> None:
        super().__init__()
        sizes = (3, 32, 64, 128, 128)
        layers = [
            nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU())
            for a, b in itertools.pairwise(sizes)
        ]
        self.body = nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten())
        self.words = nn.Linear(sizes[-1], 2 * words[0].shape[1])
        self.middle = torch.stack([w.mean(0) for w in words])
        self.spread = torch.cat([w - m for w, m in zip(words, self.middle)]).std()

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(pictures)
        return features, self.middle + self.spread * self.words(features).unflatten(-1, (2, -1))


def trained_eyes(pictures: Tensor, named: Tensor, train: Tensor, words: list[Tensor], epochs: int) -> Eyes:
    """Squared error to the true words' embeddings, and cross-entropy over which word is the nearest."""
    torch.manual_seed(0)
    eyes = Eyes(words).to(pictures.device)
    optimizer = torch.optim.AdamW(eyes.parameters(), 1e-3)
    mine = train.nonzero()[:, 0]
    steps = epochs * -(-len(mine) // 128)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    eyes.train()
    for step in range(steps):
        rows = mine[torch.randint(len(mine), (128,), device=mine.device)]
        seen, loss = eyes(pictures[rows])[1], pictures.new_zeros(())
        for place, of in enumerate(words):
            away = ((seen[:, None, place] - of) / eyes.spread).square().mean(-1)  # [n, words]
            truth = named[rows, place]
            loss = loss + away.gather(1, truth[:, None]).mean() + F.cross_entropy(-5 * away, truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step + 1 == steps:
            print(f"eyes {step} {loss.item():.4f}", flush=True)
    return eyes.eval()


@dataclass(frozen=True)
class Asked:
    """Pictures of the query and its pool [1 + POOL]; of the pool what each one's question is about (0 colour, 1 shape)
    and the code word that answers it; the query's two code words."""

    pictures: list[int]
    about: list[int]
    words: list[str]
    answer: tuple[str, str]


def question(named: np.ndarray, split: str, number: int, own: np.ndarray) -> Asked:
    """Two of the pool say the code of the query's colour, two that of its shape, on pictures that differ otherwise; two
    of each kind are alike the other way round (right picture, wrong question), two are of neither."""
    draw = random.Random(f"pictures {split} {number}")
    code_of = draw.sample(CODES[0], len(COLOURS)), draw.sample(CODES[1], len(SHAPES))
    first = int(draw.choice(own))
    same = [named[own, i] == named[first, i] for i in range(2)]
    like = own[same[0] & ~same[1]], own[~same[0] & same[1]], own[~same[0] & ~same[1]]
    kinds = [(0, 0), (0, 0), (1, 1), (1, 1), (0, 1), (0, 1), (1, 0), (1, 0), (2, 0), (2, 1)]
    draw.shuffle(kinds)
    pool = [int(draw.choice(like[kind])) for kind, _ in kinds]
    about = [which for _, which in kinds]
    words = [code_of[which][named[i, which]] for i, which in zip(pool, about)]
    answer = code_of[0][named[first, 0]], code_of[1][named[first, 1]]
    return Asked([first, *pool], about, words, answer)


class Judge:
    """The frozen model: the likeliest of eight words at both places, as in `composition`."""

    def __init__(self, device: str) -> None:
        from anygrpo.models import loading

        loaded = loading.load("smollm2", torch.bfloat16 if device == "cuda" else torch.float32, device)
        self.model: Any = loaded.model.requires_grad_(False)
        self.ids = lambda text: loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
        self.embed: Any = self.model.get_input_embeddings()
        self.device = device
        self.codes = [torch.tensor([self.ids(f" {w}")[0] for w in words], device=device) for words in CODES]

    def words(self, names: list[str]) -> Tensor:
        """[n, d] embeddings of each name's first token."""
        return (
            self.embed(torch.tensor([self.ids(f" {name}")[0] for name in names], device=self.device)).float().detach()
        )

    @torch.inference_mode()
    def table(self, seen: list[Tensor], asked: list[Asked]) -> tuple[Tensor, Tensor]:
        """Token embeddings of each query and its pool [1 + POOL, 2, d] -> right, probability of the truth
        [queries, selections]. A query is asked both questions, and is right where both answers are."""
        right, truth = [], []
        for size in range(3):
            lists = [s for s in EVERY if len(s) == size]
            prompts = torch.cat([self._prompts(s, a, lists) for s, a in zip(seen, asked)])
            logits = self.model(inputs_embeds=prompts, logits_to_keep=1, use_cache=False).logits[:, -1].float()
            parts = logits.unflatten(0, (len(asked), 2, len(lists)))
            correct, probability = torch.ones(2, len(asked), len(lists)).unbind()
            for which in range(2):
                log_probs = parts[:, which, :, self.codes[which]].log_softmax(-1).cpu()
                true = torch.tensor([CODES[which].index(a.answer[which]) for a in asked])[:, None]
                correct *= (log_probs.argmax(-1) == true).float()
                probability *= log_probs.gather(-1, true[..., None].expand(-1, len(lists), 1))[..., 0].exp()
            right.append(correct)
            truth.append(probability)
        return torch.cat(right, 1), torch.cat(truth, 1)

    def _prompts(self, seen: Tensor, asked: Asked, lists: list[tuple[int, ...]]) -> Tensor:
        """[2 questions x lists, L, d]: all of one length, since all words are one token."""
        text = lambda t: self.embed(torch.tensor(self.ids(t), device=self.device))  # noqa: E731
        head, end, topics = text("picture"), text("\n"), [text(": color"), text(": shape")]
        seen, n = seen.to(head.dtype), len(asked.about)
        places = [CODES[which].index(word) for which, word in zip(asked.about, asked.words)]
        words = self.embed(torch.stack([self.codes[which][i] for which, i in zip(asked.about, places)]))
        topic = torch.stack([topics[which] for which in asked.about])
        lines = torch.cat([head.expand(n, -1, -1), seen[1:], topic, words[:, None], end.expand(n, -1, -1)], 1)
        given = lines[torch.tensor(lists, dtype=torch.long, device=self.device)].flatten(1, 2)
        asks = [torch.cat([head, seen[0], t]).expand(len(lists), -1, -1) for t in topics]
        return torch.cat([torch.cat([given, ask], 1) for ask in asks])


def table(packed: str, out: str, *queries: str) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = np.load(packed)
    named, train = data["named"], data["train"]
    judge = Judge(device)
    pictures = torch.from_numpy(data["pixels"]).permute(0, 3, 1, 2).to(device).float() / 255
    words = [judge.words(COLOURS), judge.words(SHAPES)]
    to = lambda x: torch.from_numpy(x).to(device)  # noqa: E731
    eyes = trained_eyes(pictures, to(named), to(train), words, EPOCHS)
    with torch.no_grad():
        parts = [eyes(pictures[i : i + 500]) for i in range(0, len(pictures), 500)]
    features, seen = (torch.cat(x) for x in zip(*parts))
    for place, name in enumerate(("colour", "shape")):
        near = torch.cdist(seen[:, place], words[place]).argmin(-1).cpu().numpy() == named[:, place]
        print(f"the nearest word is the true {name}: {near[~train].mean():.4f} of the test pictures", flush=True)
    features = F.normalize(features.cpu(), dim=-1).numpy()
    test = (~train).nonzero()[0]
    own = {"train": train.nonzero()[0], "validation": test[:TEST_FROM], "test": test[TEST_FROM:]}
    spans = [m for q in queries or QUERIES if (m := re.fullmatch(r"(\w+)-(\d+):(\d+)", q))]
    names = [(m[1], i) for m in spans for i in range(int(m[2]), int(m[3]))]
    made = [question(named, split, i, own[split]) for split, i in names]
    groups = [made[i : i + AT_ONCE] for i in range(0, len(made), AT_ONCE)]
    found = [judge.table([seen[asked.pictures] for asked in group], group) for group in groups]
    which = np.array([asked.pictures for asked in made])
    about = np.stack([np.eye(2, dtype=np.float32)[asked.about] for asked in made])
    both = np.full((len(made), 2), 0.5**0.5, np.float32)
    np.savez_compressed(
        out,
        names=np.array([f"{split}-{i}" for split, i in names]),
        correct=torch.cat([c for c, _ in found]).numpy().astype(np.float32),
        gt_prob=torch.cat([g for _, g in found]).numpy().astype(np.float32),
        query=np.concatenate([features[which[:, 0]], both], -1),
        candidates=np.concatenate([features[which[:, 1:]], about], -1),
        texts=np.array([texts(asked) for asked in made]),
    )


def texts(asked: Asked) -> list[str]:
    """What is written beside the pictures, for retrieval by words."""
    shown = [f"what {('color', 'shape')[which]} is it = {word}" for which, word in zip(asked.about, asked.words)]
    return ["what color and shape is it", *shown]


if __name__ == "__main__":
    {"pack": pack, "table": table}[sys.argv[1]](*sys.argv[2:])
