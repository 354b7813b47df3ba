"""Pictures in prompts: what a vision-language model sees, carried by the token ids themselves.

A prompt with pictures is encoded once by the model's own processor. The ids that stand for picture places in its
vocabulary become one number of the prompt's own, from `FIRST` on, so that prompts, rows, groups and packed sequences
need to know of nothing but ids. Where ids reach the library's model, a hook puts its own ids back and gives it the
pixels: each prompt's are held once, whatever the size of the group.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from anygrpo.errors import DataError, TrainingError
from anygrpo.language.compute.attention import Packed
from anygrpo.language.compute.bodies import body_of
from anygrpo.language.compute.seen import FIRST, Seen, joined, numbered
from anygrpo.spoken import Text

HOLD = 2 * 2**30
"""Bytes of pixels held; what was used longest ago goes first."""

SOURCES = 4096
"""Prompts whose pictures can be read again."""

CARRIED = 512
"""Of these, how many the checkpoint holds: what a step and one sampled ahead of it may show."""

CARRIED_LETTERS = 2**26
"""Letters of them at most: pictures that rows bring as bytes are themselves in them."""

_KEY = "_anygrpo_pictures"


class Pictures:
    """Encodes prompts with pictures and gives a model what it needs for them.

    Args:
        processor: transformers' of a vision-language model (`AutoProcessor`).
        token: the id that its prompts hold for each place of a picture.
        hold: bytes of pixels held at most, but for those of the last prompt; others are read again when asked for.
        read: reference of a picture -> PIL image.

    Attributes:
        kinds: arguments with one number a token ("token_type_ids" ...): its value at places of pictures; 0 elsewhere.
    """

    def __init__(
        self, processor: Any, token: int, hold: int = HOLD, read: Callable[[Any], Any] = lambda picture: picture
    ) -> None:
        self.processor, self.token, self.hold, self.read = processor, token, hold, read
        self.kinds: dict[str, int] = {}
        self._held: OrderedDict[int, Seen] = OrderedDict()
        self._sources: OrderedDict[int, tuple[str, tuple[Any, ...], bool]] = OrderedDict()
        self._lock = threading.RLock()  # one thread may sample while another trains

    def __deepcopy__(self, memo: Any) -> Pictures:
        """The same: hooks of all copies of a model look here."""
        return self

    @staticmethod
    def of(processor: Any, model: nn.Module, read: Callable[[Any], Any]) -> Pictures:
        """Raises: DataError where neither the model's config nor the processor names the token of a picture."""
        config: Any = model.config
        names = ("image_token_id", "image_token_index")
        found = [getattr(holder, name, None) for name in names for holder in (config, processor)]
        token = next((value for value in found if isinstance(value, int)), None)
        if token is None:
            raise DataError(
                Text(
                    f"{type(model).__name__} names no token of a picture (image_token_id in its config.json)",
                    f"{type(model).__name__} 没有写明图片的词元（config.json 中的 image_token_id）",
                ),
                Text(
                    "leave [policy.vision] out, or start from a vision-language model with its processor",
                    "去掉 [policy.vision]，或从带处理器的视觉语言模型开始",
                ),
            )
        return Pictures(processor, token, read=read)

    @property
    def mark(self) -> str:
        """The text that stands for one picture in a prompt without a chat template."""
        own = getattr(self.processor, "image_token", None)
        return own if isinstance(own, str) else self.processor.tokenizer.convert_ids_to_tokens(self.token)

    def encode(self, text: str, pictures: list[Any], special: bool = False) -> list[int]:
        """Ids of a prompt's text with its pictures, in their order.

        Args:
            text: with the model's own mark at each picture.
            pictures: what `read` takes.
            special: let the tokenizer add its special tokens, which a chat template writes itself.

        Raises:
            DataError: the processor refuses them, or finds another number of pictures in the text.
        """
        made = self._processed(text, pictures, special)
        ids, shape = made["input_ids"][0], made["input_ids"].shape
        places = ids == self.token
        if not bool(places.any()):
            raise DataError(
                Text(
                    f"no place for a picture is left in a prompt with {len(pictures)} pictures",
                    f"提示有 {len(pictures)} 张图片，却没有留下图片的位置",
                ),
                Text(
                    "the chat template drops them: give the pictures as parts {type: image} of a user's message",
                    "对话模板把它们丢掉了：请把图片写成用户消息的 {type: image} 部分",
                ),
            )
        given = {n: x for n, x in made.items() if isinstance(x, Tensor) and n not in ("input_ids", "attention_mask")}
        kinds = {n for n, x in given.items() if x.shape == shape and not x.is_floating_point()}
        self.kinds |= {n: int(given[n][0][places][0]) for n in kinds}
        inputs = {n: x for n, x in given.items() if n not in kinds}
        number = FIRST + numbered(ids, inputs)
        with self._lock:
            self._held[number] = Seen(inputs, int(places.sum()))
            self._held.move_to_end(number)
            self._sources[number] = (text, tuple(pictures), special)
            self._sources.move_to_end(number)
            self._make_room()
        return ids.masked_fill(places, number).tolist()

    def _processed(self, text: str, pictures: list[Any], special: bool) -> Any:
        """What the model's processor makes of a text with pictures.

        Raises:
            DataError: it refuses them, or one is no picture.
        """
        try:
            shown = [self.read(one) for one in pictures]
            return self.processor(text=[text], images=[shown], add_special_tokens=special, return_tensors="pt")
        except DataError:
            raise
        except Exception as error:  # a processor is the model's own code
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise DataError(
                Text(
                    f"the model's processor refuses a prompt with {len(pictures)} pictures: {said}",
                    f"模型的处理器拒绝了含 {len(pictures)} 张图片的提示：{said}",
                ),
                Text("see that the chat template writes a mark for each picture", "请确认对话模板为每张图片写出标记"),
            ) from None

    def _make_room(self) -> None:
        total = sum(seen.bytes for seen in self._held.values())
        while total > self.hold and len(self._held) > 1:
            total -= self._held.popitem(last=False)[1].bytes
        while len(self._sources) > SOURCES:
            self._sources.popitem(last=False)

    def carried(self) -> dict[str, Any]:
        """Where the pictures of recent prompts are, for a checkpoint: rollouts in it hold their numbers alone."""
        made: dict[str, Any] = {}
        room = CARRIED_LETTERS
        with self._lock:
            recent = list(self._sources.items())[-CARRIED:]
        for number, (text, shown, special) in reversed(recent):  # latest first: those a step may show
            room -= len(text) + sum(len(str(one)) for one in shown)
            if room < 0:
                break
            made[str(number)] = [text, list(shown), special]
        return made

    def resumed(self, sources: dict[str, Any]) -> None:
        """Take over what `carried` gave."""
        self._sources |= {int(n): (text, tuple(shown), special) for n, (text, shown, special) in sources.items()}

    def _look_up(self, number: int) -> Seen:
        """What a prompt shows; read again where its pixels have made room for others."""
        with self._lock:
            if number not in self._held and number in self._sources:
                text, shown, special = self._sources[number]
                self.encode(text, list(shown), special)
            if number not in self._held:
                raise TrainingError(
                    Text("the pictures of a prompt are not known here", "这里不知道某个提示的图片"),
                    Text(
                        "they changed since the rollout was made, or it is another run's; sample it again",
                        "它们在采样之后变了，或属于另一次运行；请重新采样",
                    ),
                )
            self._held.move_to_end(number)
            return self._held[number]

    def shown(self, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """(ids of the model's own vocabulary, the further arguments of its forward) of ids [B, n] on any device.

        Raises:
            TrainingError: pixels of these ids are not held any more.
        """
        places, own = ids >= FIRST, self.own(ids)
        seen = [one for row, at in zip(ids, places) for one in self._of_row(row[at])]
        if not seen:
            return own, {}
        inputs = {name: joined([one.inputs[name] for one in seen]).to(ids.device) for name in seen[0].inputs}
        return own, inputs | {name: places.long() * value for name, value in self.kinds.items()}

    def own(self, ids: Tensor) -> Tensor:
        """The ids as the model's vocabulary has them."""
        return ids.masked_fill(ids >= FIRST, self.token)

    def _of_row(self, numbers: Tensor) -> list[Seen]:
        """What one row shows, in order. A prompt that stands in it twice is shown twice."""
        found: list[Seen] = []
        for number, count in zip(*(x.tolist() for x in torch.unique_consecutive(numbers, return_counts=True))):
            one = self._look_up(number)
            if count % one.places:
                raise TrainingError(
                    Text(
                        f"{count} places of pictures in a row where a prompt has {one.places}",
                        f"一行中有 {count} 个图片位置，而提示有 {one.places} 个",
                    )
                )
            found += [one] * (count // one.places)
        return found

    def install(self, model: nn.Module) -> None:
        """From now on `model`, and the part of it that ends in hidden states, take ids with pictures."""
        for part in {id(m): m for m in (model, body_of(model))}.values():
            part.register_forward_pre_hook(self._look, with_kwargs=True)
        model.__dict__[_KEY] = self

    def _look(self, model: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        """The hook. In decoding no picture can come, and a look at the ids would wait for the device."""
        layout, past = given.get("layout"), given.get("past_key_values")
        if layout is not None and not isinstance(layout, Packed):
            return None
        ids, begun = given.get("input_ids"), past is not None and past.get_seq_length() > 0
        if ids is None or begun or "pixel_values" in given or not bool((ids >= FIRST).any()):
            return None
        own, more = self.shown(ids)
        given = {**given, "input_ids": own, **{name: _as_weights(x, model) for name, x in more.items()}}
        if layout is None:
            given.pop("position_ids", None)  # places of several axes are the library's to find
        return args, given


def carry(model: nn.Module, twin: nn.Module) -> None:
    """`twin` takes the ids that `model` takes."""
    pictures = model.__dict__.get(_KEY)
    if pictures is not None:
        pictures.install(twin)


def shown_to(model: nn.Module, ids: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """`Pictures.shown` for the library's own generation by this model; ids alone where it sees none."""
    pictures = model.__dict__.get(_KEY)
    if pictures is None or not bool((ids >= FIRST).any()):
        return ids, {}
    own, more = pictures.shown(ids)
    return own, {name: _as_weights(x, model) for name, x in more.items()}


def _as_weights(x: Tensor, model: nn.Module) -> Tensor:
    return x.to(next(model.parameters()).dtype) if x.is_floating_point() else x
