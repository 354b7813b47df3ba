"""When a function of the user's is at fault, and when its outputs are."""

from __future__ import annotations

import pytest

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.scoring.outcome import Broken, Elsewhere, FirstCall, Raised, Unfit
from anygrpo.spoken import Text

BROKEN = Raised("KeyError: 'x'", "Traceback ...")


def first() -> FirstCall:
    return FirstCall(Text("the reward 'r'", "奖励 'r'"), Text("a number", "数"))


def test_raising_on_all_of_the_first_call_ends_the_run_with_its_traceback() -> None:
    with pytest.raises(TrainingError, match=r"all of the first 2 outputs: KeyError(?s:.*)Traceback"):
        first().see([BROKEN, BROKEN])


def test_what_is_no_number_on_all_of_the_first_call_is_the_authors() -> None:
    with pytest.raises(ConfigError, match="a number"):
        first().see([Unfit("it returned 'a'")] * 3)


def test_what_gives_nothing_on_all_of_the_first_call_ends_the_run() -> None:
    with pytest.raises(TrainingError, match=r"failed on all of the first 2 outputs: it died\n  -> wait longer"):
        first().see([Broken("it died", "wait longer"), Unfit("it returned 'a'")])
    with pytest.raises(TrainingError, match=r"failed on all of the first 2 outputs, as here: KeyError"):
        first().see([Broken("it died"), BROKEN])
    first().see([Broken("it died"), 1.0])


@pytest.mark.parametrize("good", [0.0, None, {"score": 1.0}, ""])
def test_one_verdict_shows_that_it_works(good: object) -> None:
    seen = first()
    seen.see([BROKEN, good])
    assert seen.worked
    seen.see([BROKEN, BROKEN])


@pytest.mark.parametrize("other", [Elsewhere("the endpoint is down"), "timed out"])
def test_what_failed_elsewhere_shows_nothing(other: str) -> None:
    seen = first()
    seen.see([other, other])
    seen.see([BROKEN, other])
    seen.see([BROKEN])  # a single one says nothing of the function
    assert not seen.worked
    with pytest.raises(TrainingError):
        seen.see([BROKEN, BROKEN])
