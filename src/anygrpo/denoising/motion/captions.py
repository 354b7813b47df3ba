"""Captions of the actions: subjects times phrases. Some combinations are held out: every word of a held-out caption was
seen in training, the caption was not."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

SUBJECTS = ("a person", "someone", "a man", "a woman", "the figure", "a human")

PHRASES = {
    "walk": ("walks forward", "is walking straight ahead", "takes several steps forward", "strolls forward calmly"),
    "turn_left": ("walks and turns left", "is walking in a curve to the left", "strolls towards the left side"),
    "turn_right": ("walks and turns right", "is walking in a curve to the right", "strolls towards the right side"),
    "run": ("runs forward", "is running fast", "sprints straight ahead", "jogs quickly forward"),
    "jump": ("jumps forward", "is jumping up", "leaps ahead with both feet", "hops into the air"),
    "kick": ("kicks with one leg", "is kicking in front", "throws a kick", "strikes with the foot"),
    "punch": ("punches with the fist", "is punching in front", "throws a punch", "strikes with the fist"),
    "roll": ("rolls on the ground", "does a forward roll", "is rolling over the shoulder", "tumbles forward"),
    "spin": ("spins around slowly", "is spinning with open arms", "pirouettes in place", "spins in place"),
    "spin_kick": ("does a spinning kick", "spins and kicks", "is turning around with a high kick"),
    "cartwheel": ("does a cartwheel", "is cartwheeling sideways", "turns over sideways on the hands"),
    "backflip": ("does a backflip", "flips backwards in the air", "is somersaulting backwards"),
    "dance": ("dances", "is dancing happily", "dances with moving arms", "performs a dance"),
    "crawl": ("crawls on the ground", "is crawling forward", "moves on hands and knees"),
    "get_up": ("gets up from the floor", "is standing up after lying", "rises from the floor"),
    "playground_jump": ("jumps forward and turns around at a playground", "is jumping at the playground"),
    "playground_climb": ("climbs and hangs at a playground", "is swinging by the arms at the playground"),
    "box": ("boxes", "is boxing with quick fists", "shadow boxes"),
}


def captions(action: str) -> list[str]:
    """All captions of an action."""
    return [f"{subject} {phrase}" for phrase in PHRASES[action] for subject in SUBJECTS]


def is_held_out(caption: str) -> bool:
    """A fixed sixth of the captions; each phrase keeps some subjects for training."""
    return zlib.crc32(caption.encode()) % 6 == 0


def training_captions(action: str) -> list[str]:
    return [c for c in captions(action) if not is_held_out(c)]


def held_out_captions(action: str) -> list[str]:
    """Never empty: where the hash holds none out, the last caption is."""
    return [c for c in captions(action) if is_held_out(c)] or captions(action)[-1:]


def validation_captions(action: str) -> list[str]:
    """Every fifth training caption: settings are chosen on these, and held-out captions stay unseen until the end."""
    return training_captions(action)[::5]


def withheld_phrase(action: str) -> str:
    """The phrase that the judge alone learns under `task.judge = "clips"`: it shares most words with the action's other
    phrases (the last of such), so that a policy which never saw it can still follow it."""
    phrases = PHRASES[action]
    others = lambda phrase: {w for p in phrases if p != phrase for w in p.split()}  # noqa: E731
    shared = [len(others(phrase) & set(phrase.split())) for phrase in phrases]
    return max(zip(shared, range(len(phrases)), phrases))[2]


def withheld_captions(action: str) -> list[str]:
    """All subjects with the withheld phrase."""
    return [f"{subject} {withheld_phrase(action)}" for subject in SUBJECTS]


@dataclass(frozen=True)
class Wording:
    """Which captions of an action are for what; each a function of the action.

    Attributes:
        training: prompts, demonstrations, and what the reward's matcher learns. judged: what the judge learns.
        test, validation: what is measured.
    """

    training: Callable[[str], list[str]]
    judged: Callable[[str], list[str]]
    test: Callable[[str], list[str]]
    validation: Callable[[str], list[str]]


WORDINGS = {
    "speeds": Wording(training_captions, captions, held_out_captions, validation_captions),
    "clips": Wording(
        training=lambda action: [c for c in training_captions(action) if c not in withheld_captions(action)],
        judged=withheld_captions,
        test=lambda action: withheld_captions(action)[::2],
        validation=lambda action: withheld_captions(action)[1::2],
    ),
}
"""By `task.judge`. With "clips" judge and reward share no phrase; what is measured has phrases of the judge's."""
