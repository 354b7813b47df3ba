"""Each framework's variant is one of our settings, or the difference is stated and checked here."""

import math

import golden
import pytest
import torch

from anygrpo.algorithm import AdvantageOptions, compute, estimate, loss_weights

# framework -> (name, options). Epsilons are the frameworks' own; tolerance of the comparison: their six decimals.
SETTINGS = {
    "verl.grpo": ("zscore", {"epsilon": 1e-6}),
    "verl.dr_grpo(norm_adv_by_std=False)": ("centred", {}),
    "verl.rloo": ("leave_one_out", {}),
    "verl.rloo_vectorized": ("leave_one_out", {}),
    "verl.grpo_passk": ("best_gap", {"epsilon": 1e-6}),
    "verl.gpg": ("gpg", {}),
    "skyrl.grpo": ("zscore", {"epsilon": 1e-6}),
    "skyrl.maxrl": ("maxrl", {"epsilon": 1e-6}),
    "nemo.grpo(LOO default)": ("leave_one_out_std", {"epsilon": 1e-6}),
    "nemo.grpo(no LOO)": ("zscore", {"epsilon": 1e-6}),
    "swift.grpo/group": ("zscore", {"epsilon": 1e-4}),
    "swift.rloo/none": ("leave_one_out", {}),
    "swift.reinforce_plus_plus/batch": ("batch", {"epsilon": 1e-4}),
    "swift.grpo/none": ("centred", {}),
    "rllm.grpo": ("zscore", {"epsilon": 1e-6, "ddof": 0}),
    "rllm.rloo": ("leave_one_out", {}),
    "prime.grpo": ("centred", {}),
    "tinker": ("centred", {}),
    "openrlhf.group_norm": ("zscore", {"epsilon": 1e-9}),
    "openinstruct.standard": ("zscore", {"epsilon": 1e-8, "ddof": 0}),
    "slime.grpo": ("zscore", {"epsilon": 1e-6}),
    "torchforge": ("zscore", {"epsilon": 1e-4}),
}
# Six decimals, and float32's rounding of numbers up to 7.
TOLERANCE = 3e-6
# A group of one has nothing to be compared with: we give 0 where these give the raw reward, or NaN.
RAW_SINGLETON = {
    "verl.grpo", "verl.dr_grpo(norm_adv_by_std=False)", "verl.rloo", "verl.gpg", "skyrl.grpo", "skyrl.maxrl",
    "rllm.grpo", "rllm.rloo",
}  # fmt: skip
NAN_SINGLETON = {"openrlhf.group_norm", "slime.grpo", "torchforge"}


def ours(framework: str, case: str) -> torch.Tensor:
    name, options = SETTINGS[framework]
    rewards = torch.tensor([golden.REWARDS[case]])
    return compute(name, rewards, torch.ones_like(rewards, dtype=torch.bool), AdvantageOptions(**options)).values[0]


def test_every_framework_is_covered():
    assert set(SETTINGS) | {"verl.reinforce_pp_baseline"} == set(golden.ADVANTAGES)


@pytest.mark.parametrize("framework", SETTINGS)
def test_one_setting_gives_each_framework(framework: str):
    for case, expected in golden.ADVANTAGES[framework].items():
        if case == "singleton" or (framework, case) == ("nemo.grpo(LOO default)", "frac_7v1_b"):
            continue
        torch.testing.assert_close(ours(framework, case), torch.tensor(expected), rtol=0, atol=TOLERANCE)


def test_a_group_of_one_gets_zero_where_others_give_the_reward_or_nan():
    for framework, cases in golden.ADVANTAGES.items():
        if "singleton" not in cases:  # verl's pass@k raises there
            continue
        theirs = cases["singleton"][0]
        if framework in NAN_SINGLETON:
            assert math.isnan(theirs)
        else:
            assert theirs == pytest.approx(float(framework in RAW_SINGLETON), abs=1e-5)
        if framework in SETTINGS:
            assert ours(framework, "singleton").item() == 0.0


def test_leave_one_out_std_is_not_divided_by_rounding_noise():
    # Seven equal rewards of .35 have a float32 std of ~1.6e-4 instead of 0: NeMo's 4000. Undivided: 1 - .35 = .65.
    theirs = golden.ADVANTAGES["nemo.grpo(LOO default)"]["frac_7v1_b"]
    values = ours("nemo.grpo(LOO default)", "frac_7v1_b")
    assert theirs[-1] > 4000
    assert values[-1].item() == pytest.approx(0.65, abs=1e-6)
    torch.testing.assert_close(values[:-1], torch.tensor(theirs[:-1]), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", ["binary_1of4", "mixed", "constant", "frac_7v1", "frac_7v1_b", "two"])
def test_verl_whitens_over_tokens_not_samples(case: str):
    # verl repeats each advantage over its tokens (3 here) and divides by the std over n x 3 values, Bessel-corrected
    # there: larger than ours by sqrt((3n - 1) / (3n - 3)), a factor that depends on response lengths.
    rewards = torch.tensor([golden.REWARDS[case]])
    n = rewards.numel()
    values = compute("whitened", rewards, torch.ones_like(rewards, dtype=torch.bool)).values[0]
    factor = math.sqrt((3 * n - 1) / (3 * n - 3))
    expected = torch.tensor(golden.ADVANTAGES["verl.reinforce_pp_baseline"][case])
    torch.testing.assert_close(values * factor, expected, rtol=0, atol=TOLERANCE)


def kl(kind: str):
    new = torch.tensor([golden.KL_NEW], requires_grad=True)
    ref = torch.tensor([golden.KL_REF])
    result = estimate(kind, new, ref, None, torch.ones_like(ref, dtype=torch.bool))
    result.loss.sum().backward()
    return result.value[0], new.grad[0]


@pytest.mark.parametrize(
    ("theirs", "kind"), [("verl.k1", "k1"), ("verl.k2", "k2"), ("verl.k3", "k3"), ("nemo.k3", "k3")]
)
def test_kl_values(theirs: str, kind: str):
    expected = torch.tensor(golden.KL[theirs][0])
    value = kl(kind)[0]
    torch.testing.assert_close(value[:3], expected[:3], rtol=0, atol=1e-5)
    # The last decision (log-ratio 27) is where verl and NeMo clamp k3 to 10. Ours is exp(-27) - 1 + 27 = 26.
    assert value[3].item() == pytest.approx({"k1": 27.0, "k2": 364.5, "k3": 26.0}[kind], rel=1e-6)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_gradients_are_those_verl_calls_plus(kind: str):
    # "k1+", "k2+", "k3+" in verl: any value, gradient d x grad log new. Plain k1 has gradient 1 whatever the KL is,
    # plain k3 -(exp(-d) - 1), and its clamp sets the worst decision's gradient to 0.
    torch.testing.assert_close(kl(kind)[1], torch.tensor(golden.KL[f"verl.{kind}+"][1]), rtol=1e-5, atol=1e-6)
    assert golden.KL["verl.k1"][1] == [1.0, 1.0, 1.0, 1.0]
    assert golden.KL["verl.k3"][1][3] == 0.0


@pytest.mark.parametrize(
    ("theirs", "reduction", "horizon", "factor"),
    [
        ("token-mean", "token_mean", None, 1.0),
        ("seq-mean-token-mean", "sequence_mean", None, 1.0),
        ("seq-mean-token-sum", "constant", 1, 1.0),
        ("seq-mean-token-sum-norm", "constant", 4, 1.0),
        ("token-sum", "constant", 1, 2.0),  # a sum has no denominator: N x our mean over N = 2 rows
    ],
)
def test_aggregations(theirs: str, reduction: str, horizon: int | None, factor: float):
    loss = torch.tensor([[1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 99.0, 99.0]])
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    weights = loss_weights(mask, torch.tensor([True, True]), reduction, horizon=horizon)
    assert factor * (weights * loss).sum().item() == pytest.approx(golden.AGGREGATED[theirs], abs=1e-6)
