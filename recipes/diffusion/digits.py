"""A small flow-matching model of handwritten digits, and a reward that an independent judge confirms: minutes on a CPU.

Pictures: scikit-learn's 1,797 digits (8 x 8). The model knows the classes, but was trained with a third of its labels
wrong, so that it often draws another digit than was asked for. The reward is the probability of the right class under a
small classifier that saw one half of the pictures; the judge, another kind of classifier (a support vector machine) on
the other half, never rewards.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.core.task import Scores, Task
from anygrpo.denoising.image.pictures import grid
from anygrpo.denoising.parts import Parts

WRONG_LABELS = 0.33
START_STEPS = 1500


@functools.cache
def halves() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """((pictures [n, 1, 8, 8] in [-1, 1], labels [n]) of the reward, the same of the judge): every second picture."""
    from sklearn.datasets import load_digits

    data = load_digits()
    pictures = torch.tensor(data.images, dtype=torch.float32)[:, None] / 8 - 1
    labels = torch.tensor(data.target)
    return (pictures[0::2], labels[0::2]), (pictures[1::2], labels[1::2])


class Denoiser(nn.Module):
    """`denoiser(x [n, 1, 8, 8], timestep [n], digit [n]) -> velocity [n, 1, 8, 8]`; digit 10 is none."""

    def __init__(self, width: int = 256):
        super().__init__()
        self.digit, self.level = nn.Embedding(11, width), nn.Sequential(nn.Linear(16, width), nn.SiLU())
        self.read, self.write = nn.Linear(64, width), nn.Linear(width, 64)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(4)
        )

    def forward(self, x: Tensor, timestep: Tensor, digit: Tensor) -> Tensor:
        rate = 2.0 ** torch.arange(8, device=x.device)
        angle = timestep.float()[:, None] / 1000 * rate
        given = self.digit(digit) + self.level(torch.cat([angle.sin(), angle.cos()], -1))
        h = self.read(x.flatten(1)) + given
        for block in self.blocks:
            h = h + block(h + given)
        return self.write(h).view_as(x)


def pretrained(seed: int) -> Denoiser:
    """Trained on all pictures by flow matching, a third of the labels wrong."""
    (a, la), (b, lb) = halves()
    pictures, labels = torch.cat([a, b]), torch.cat([la, lb])
    g = torch.Generator().manual_seed(seed)
    wrong = torch.rand(len(labels), generator=g) < WRONG_LABELS
    labels = torch.where(wrong, torch.randint(10, labels.shape, generator=g), labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, START_STEPS)
    for _ in range(START_STEPS):
        at = torch.randint(len(pictures), (256,), generator=g)
        clean, noise, s = pictures[at], torch.randn(256, 1, 8, 8, generator=g), torch.rand(256, 1, 1, 1, generator=g)
        out = model((1 - s) * clean + s * noise, 1000 * s.flatten(), labels[at])
        loss = (out - (noise - clean)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


def parts(seed: int) -> Parts:
    """What `policy.function` takes."""
    from diffusers import FlowMatchEulerDiscreteScheduler

    return Parts(
        denoiser=pretrained(seed),
        scheduler=FlowMatchEulerDiscreteScheduler(),
        shape=(1, 8, 8),
        encode=lambda prompts: {"digit": torch.tensor([int(p["digit"]) for p in prompts])},
        decode=lambda latents, condition: list((latents / 2 + 0.5).clamp(0, 1).cpu()),
    )


def classifier(half: tuple[Tensor, Tensor], kind: str) -> Any:
    """A classifier of pictures as in training: "reward" (a network) or "judge" (a support vector machine)."""
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC

    made = MLPClassifier((64,), max_iter=400, random_state=0) if kind == "reward" else SVC(gamma=0.02, C=5)
    return made.fit(half[0].flatten(1).numpy(), half[1].numpy())


class Digits(Task):
    """Prompts: ten digits. Reward: the rewarding classifier's probability of the digit that was asked for."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        first, second = halves()
        self.reward, self.judge, self.real = classifier(first, "reward"), classifier(second, "judge"), second

    def prompts(self, step: int, count: int) -> list[dict[str, Any]]:
        g = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        return [{"prompt": f"a {d}", "digit": d} for d in torch.randint(10, (count,), generator=g).tolist()]

    def held_out(self) -> list[dict[str, Any]]:
        return [{"prompt": f"a {d}", "digit": d, "seed": 10_000 + 40 * d + s} for s in range(40) for d in range(10)]

    def score(self, prompts: list[Any], outputs: list[list[Tensor]]) -> Scores:
        flat = torch.stack([x for row in outputs for x in row]).flatten(1).numpy() * 2 - 1
        chances = torch.tensor(self.reward.predict_proba(flat), dtype=torch.float32)
        wanted = torch.tensor([p["digit"] for p, row in zip(prompts, outputs) for _ in row])
        return Scores(chances.gather(1, wanted[:, None]).view(len(outputs), -1))

    def measure(self, prompts: list[Any], outputs: list[list[Tensor]]) -> dict[str, float]:
        """The judge's accuracy, and how far pictures are from the nearest real one it learned from (rms of pixels)."""
        flat = torch.stack([row[0] for row in outputs]).flatten(1) * 2 - 1
        wanted = torch.tensor([p["digit"] for p in prompts]).numpy()
        near = torch.cdist(flat, self.real[0].flatten(1)).amin(1).mean() / 8
        groups: dict[int, list[Tensor]] = {}
        for p, x in zip(prompts, flat):
            groups.setdefault(p["digit"], []).append(x)
        spread = torch.stack([torch.stack(g).std(0).mean() for g in groups.values()]).mean()
        right = float((self.judge.predict(flat.numpy()) == wanted).mean())
        return {"eval/judge": right, "eval/nearest": float(near), "eval/spread": float(spread)}

    def pictures(self, prompts: list[Any], before: list[list[Any]], after: list[list[Any]], folder: Path) -> list[Path]:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "before_above_after.png"
        grid([[r[0] for r in before], [r[0] for r in after]], [p["prompt"] for p in prompts]).save(file)
        return [file]
