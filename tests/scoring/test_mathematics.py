"""math-verify in its worker."""

import pytest

from anygrpo.scoring.reward import Remote, Rows
from anygrpo.scoring.workers import Pool

CASES = [
    (r"So the result is $\frac{1}{2}$", "0.5", 1.0),
    (r"\boxed{x^2 + 2x + 1}", "(x+1)^2", 1.0),
    (r"$\frac{1}{3}$", r"\frac{2}{3}", 0.0),
    ("I do not know", "7", 0.0),
    ("", "7", 0.0),
    ("The answer is 7", "7", 1.0),
    ("7", None, None),
]


@pytest.fixture(scope="module")
def outcomes():
    with Pool(1) as pool:
        target = "anygrpo.scoring.mathematics:math_verify"
        reward = Remote("math_verify", 1.0, True, target, pool, 30.0, columns={"answer": "answer"}, split=True)
        outputs, answers, _ = zip(*CASES)
        yield reward.start(Rows([""] * len(CASES), list(outputs), {"answer": list(answers)}))()


@pytest.mark.parametrize("index", range(len(CASES)))
def test_cases(outcomes, index):
    assert outcomes[index] == CASES[index][2]


def test_an_expression_without_end_costs_its_own_sample_alone():
    with Pool(1) as pool:
        target = "anygrpo.scoring.mathematics:math_verify"
        pool.inspect(target)
        reward = Remote("math_verify", 1.0, True, target, pool, 1.5, columns={"answer": "answer"}, split=True)
        outputs = ["$7$", "$9^{9^{9^9}}$", "$8$"]
        assert reward.start(Rows([""] * 3, outputs, {"answer": ["7"] * 3}))() == [1.0, "timed out after 1.5 s", 0.0]
