"""Clean pictures, and pairs: which there are and on which side, read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from anygrpo.errors import ConfigError, DataError
from anygrpo.gates.restoration.listing import Entry, Form, Part, entries, forms_of, found
from anygrpo.gates.restoration.reading import read, reduced, size_of
from anygrpo.gates.restoration.settings import FolderConfig
from anygrpo.spoken import NOTHING, Text

SHIPPED = {
    "skimage": (
        "data",
        "astronaut.png brick.png camera.png cell.png chelsea.png coffee.png coins.png grass.png gravel.png "
        "hubble_deep_field.jpg ihc.png microaneurysms.png moon.png motorcycle_left.png motorcycle_right.png page.png "
        "retina.jpg rocket.jpg",
    ),
    "sklearn": ("datasets/images", "china.jpg flower.jpg"),
}
"""Photographs and micrographs in the installed wheels (nothing is downloaded). Left out: drawings, test patterns."""
SAME_SCENE = {"motorcycle_right": "motorcycle_left"}
"""Two views of one scene stay on one side of the split."""
SOTS_BORDER = 10
SMALL = 128
"""Longer side of the shipped photographs unless told."""


@dataclass(frozen=True)
class Picture:
    """A named picture and, of pairs, its degraded versions; files are read when they are needed.

    Attributes:
        size: (height, width) of the clean one.
        scene: pictures of one scene stay on one side of the split.
        part: the side, where the set says it.
        group: number of its set.
        longest: side that it is reduced to; 0 keeps it.
        border: (rows, columns) that the clean file has beyond `size` on each side.
    """

    name: str
    clean: Tensor | Path
    degraded: tuple[Tensor | Path, ...] = ()
    size: tuple[int, int] = (0, 0)
    scene: str = ""
    part: Part = "split"
    group: int = 0
    longest: int = 0
    border: tuple[int, int] = (0, 0)

    def read(self, which: int | None = None) -> Tensor:
        """[3, H, W] in [0, 1]: the clean picture, or the degraded one of that number.

        Raises:
            DataError: the file cannot be read, or is not as large as its header said.
        """
        source = self.clean if which is None else self.degraded[which]
        if isinstance(source, Tensor):
            return source
        x = read(source, self.longest)
        if which is None:
            x = x[:, self.border[0] : x.shape[1] - self.border[0], self.border[1] : x.shape[2] - self.border[1]]
        if which is None and tuple(x.shape[1:]) != self.size:
            raise DataError(
                Text(
                    f"{source} is {tuple(x.shape[1:])} and its header said {self.size}",
                    f"{source} 为 {tuple(x.shape[1:])}，而它的文件头写的是 {self.size}",
                ),
                Text("save it again", "请重新保存"),
            )
        return x


def pictures_of(config: FolderConfig, group: int, longest: int | None, scale: int) -> list[Picture]:
    """The pictures of a set; only headers are read.

    Raises:
        DataError: no pictures, a picture without a partner, or a pair of different sizes.
    """
    if config.layout == "shipped":
        listed, longest = shipped(), SMALL if longest is None else longest
    else:
        root = Path(config.root).expanduser()
        listed = [e for form in _forms(config, root, scale) for e in entries(root, form)]
    if not listed:
        raise DataError(
            Text(f"no pictures in {config.clean or config.root}", f"{config.clean or config.root} 中没有图像"),
            _lower(config) or Text("correct the folder or the template", "请改正文件夹或模板"),
        )
    return [_picture(e, config, group, longest or 0, scale) for e in listed]


def _forms(config: FolderConfig, root: Path, scale: int) -> tuple[Form, ...]:
    if config.layout is not None:
        return forms_of(config.layout, root, scale)
    assert config.clean is not None
    for text in filter(None, [config.clean, config.degraded]):
        if "{" not in text and not (root / Path(text).expanduser()).is_dir():
            cure = Text("a template has {id} in it: gt/{id}.png", "模板中应有 {id}：gt/{id}.png")
            raise DataError(
                Text(f"folder {root / text} does not exist", f"文件夹 {root / text} 不存在"),
                cure if "*" in text else Text("correct the path", "请改正路径"),
            )
    as_template = lambda text: text if "{" in text else f"{text.rstrip('/')}/{{id}}.*"  # noqa: E731
    degraded = as_template(config.degraded) if config.degraded is not None else None
    return (Form(as_template(config.clean), degraded, scene=config.scene),)


def _lower(config: FolderConfig) -> Text | None:
    """Where pictures lie in folders below the one that is named."""
    text = config.clean or ""
    if "{" in text or not found(Path(config.root).expanduser(), f"{text.rstrip('/')}/{{scene}}/{{id}}.*"):
        return None
    template = f"{text.rstrip('/')}/{{scene}}/{{id}}.*"
    return Text(
        f'there are in the folders below it: write clean = "{template}", and degraded alike',
        f'它下面的文件夹中有：请写 clean = "{template}"，degraded 同样',
    )


def _picture(entry: Entry, config: FolderConfig, group: int, longest: int, scale: int) -> Picture:
    size = size_of(entry.clean)
    border = _border(size, entry, config)
    size = (size[0] - 2 * border[0], size[1] - 2 * border[1])
    if not entry.degraded:
        size = reduced(*size, longest)
    else:
        longest = 0
        for file in entry.degraded:
            other = size_of(file)
            if tuple(scale * side for side in other) != size:
                times = Text(f" times scale {scale}", f"（乘以 scale {scale}）") if scale > 1 else NOTHING
                raise DataError(
                    Text(
                        f"pair {entry.name!r} has sizes {size} and {other}{times.en}",
                        f"图像对 {entry.name!r} 的大小为 {size} 与 {other}{times.zh}",
                    ),
                    Text(f"mend {file}", f"请修正 {file}"),
                )
    part = entry.part if config.part == "split" else config.part
    # by place, so that one folder named by two sets is split in one way
    scene = (
        entry.scene if config.layout == "shipped" else f"{config.root}:{config.clean or config.layout}:{entry.scene}"
    )
    return Picture(entry.name, entry.clean, entry.degraded, size, scene, part, group, longest, border)


def _border(size: tuple[int, int], entry: Entry, config: FolderConfig) -> tuple[int, int]:
    """What SOTS cut from its indoor pictures when it made the hazy ones: 10 pixels at each side."""
    if config.layout != "sots" or not entry.degraded:
        return (0, 0)
    hazy = size_of(entry.degraded[0])
    return (SOTS_BORDER, SOTS_BORDER) if tuple(n - 2 * SOTS_BORDER for n in size) == hazy else (0, 0)


def shipped() -> list[Entry]:
    """The photographs of the installed wheels.

    Raises:
        DataError: a package or a file is missing.
    """
    listed = []
    for package, (folder, names) in SHIPPED.items():
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise DataError(
                Text(f"{package} is not installed", f"没有安装 {package}"),
                f"pip install {package.replace('sk', 'scikit-')}",
            )
        root = Path(next(iter(spec.submodule_search_locations))) / folder
        for file in (root / name for name in names.split()):
            if not file.is_file():
                raise DataError(
                    Text(f"{file} is missing", f"没有 {file}"),
                    Text("set task.folder to a folder of your own pictures", "请把 task.folder 设为自己的图像文件夹"),
                )
            listed.append(Entry(file.stem, SAME_SCENE.get(file.stem, file.stem), file, (), "split"))
    return listed


def split(pictures: list[Picture], share: float, seed: int) -> tuple[list[Picture], list[Picture]]:
    """Training and held-out pictures, whole scenes on one side, by a permutation drawn from `seed`.

    A set that names its side keeps it; where one is there to test on, the others are all trained on.

    Raises:
        ConfigError: one side would be empty.
    """
    keys = [p.scene or SAME_SCENE.get(p.name, p.name) for p in pictures]
    free = sorted({key for key, p in zip(keys, pictures) if p.part == "split"})
    told = any(p.part == "test" for p in pictures)
    order = torch.randperm(len(free), generator=torch.Generator().manual_seed(seed)).tolist()
    held = set[str]() if told else {free[i] for i in order[: max(1, round(share * len(free)))]}
    inside = [p.part == "test" or (p.part == "split" and key in held) for key, p in zip(keys, pictures)]
    train, test = ([p for p, there in zip(pictures, inside) if there is side] for side in (False, True))
    if not train or not test:
        lacking, side = (Text("train on", "训练"), "train") if not train else (Text("hold out", "留出"), "test")
        what = Text(
            f"held_out_share = {share} of {len(free)} scenes leaves",
            f"{len(free)} 个场景取 held_out_share = {share}",
        )
        if not free:
            use, zh = ("test", "测试") if told else ("train", "训练")
            what = Text(
                f"all {len(pictures)} pictures are there to {use} on, which leaves",
                f"{len(pictures)} 张图像全用于{zh}",
            )
        raise ConfigError(
            what + Text(f" none to {lacking.en}", f"，没有留下可{lacking.zh}的"),
            Text(
                f'add pictures, or to task.sets one with part = "{side}"',
                f'请增加图像，或在 task.sets 中加一个 part = "{side}" 的集合',
            ),
        )
    return train, test
