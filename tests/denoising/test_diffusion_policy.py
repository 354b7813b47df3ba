"""The policy as the loop sees it, on small motion transformers: parity, z2, KL, windows, guidance, padding, memory."""

import math

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from anygrpo.core.policy import Policy
from anygrpo.core.task import Stored
from anygrpo.core.tree import tree_map
from anygrpo.denoising.decisions import decisions
from anygrpo.denoising.motion import policy as motion
from anygrpo.denoising.motion.settings import MotionPolicyConfig
from anygrpo.denoising.possible import refuse_what_cannot_be
from anygrpo.denoising.settings import FaultsConfig, LoraConfig
from anygrpo.errors import ConfigError

PROMPTS = [{"caption": "a person walks", "length": 10}, {"caption": "someone jumps", "length": 16}]
SMALL = {"features": 7, "frames": 16, "width": 32, "layers": 2, "heads": 2, "steps": 8, "dropout": 0.2}
SAMPLERS = ["ddpm", "ddim", "flow_grpo", "dance_grpo", "cps"]
REDUCTIONS = ["sum", "mean", "centred", "squared_error", "guard"]


def make(seed=0, **given):
    return motion.build(MotionPolicyConfig(**(SMALL | given)), seed)


def rows(rollout):
    return tree_map(lambda x: x.flatten(0, 1), rollout.samples)


def move(policy, scale=0.02):
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(scale * torch.randn(p.shape, generator=generator).to(p))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_ratio_is_one_and_z2_in_bounds_before_any_update(sampler, reduction):
    policy = make(sampler=sampler, event_reduction=reduction, guidance=2.0, noise_level=0.7)
    rollout = policy.sample(PROMPTS, 3, seed=1)
    assert isinstance(policy, Policy)
    assert rollout.shape == (2, 3, 7)  # 8 steps, the last without noise
    policy.trainable().train()  # whatever the caller did
    out = policy.evaluate(rows(rollout), slice(0, 7), frozenset({"kl"}))
    assert torch.allclose(out.log_probs, rollout.log_probs.flatten(0, 1), atol=1e-4)
    assert float(out.kl.detach().abs().max()) < 1e-8
    z2, n = policy.z2(rollout.samples)
    assert n == 3 * 7 * 7 * (10 + 16)
    assert abs(z2 - 1) < 6 * math.sqrt(2 / n)


def test_sampling_is_a_function_of_the_seed():
    policy = make()
    a, b, c = (policy.sample(PROMPTS, 2, seed=s) for s in (3, 3, 4))
    assert torch.equal(a.samples["latents"], b.samples["latents"])
    assert not torch.equal(a.samples["final"], c.samples["final"])
    assert not torch.equal(a.samples["final"][:, 0], a.samples["final"][:, 1])


def test_the_log_prob_is_torch_distributions_of_the_stored_transition():
    policy = make(event_reduction="sum")
    rollout = policy.sample(PROMPTS[:1], 1, seed=0)
    r = rows(rollout)
    x, step = r["latents"][:, 2], r["steps"][:, 2]
    out = policy.denoiser(x, r["timesteps"][:, 2], **r["condition"])
    mean, std = policy.transitions.gaussian(step, x, out)
    expected = torch.distributions.Normal(mean, std).log_prob(r["latents"][:, 3])[:, :10].sum()
    assert rollout.log_probs[0, 0, 2].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_any_slicing_of_steps_gives_the_same_gradient(reduction):
    policy = make(event_reduction=reduction)
    rollout = policy.sample(PROMPTS, 2, seed=1)
    move(policy)

    def gradient(chunk):
        policy.trainable().zero_grad()
        for t in range(0, 7, chunk):
            out = policy.evaluate(rows(rollout), slice(t, min(t + chunk, 7)), frozenset({"kl"}))
            (out.log_probs.sum() + out.kl.sum()).backward()
        return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])

    whole = gradient(7)
    for chunk in (1, 3):
        assert torch.allclose(gradient(chunk), whole, rtol=1e-3, atol=1e-4 * float(whole.abs().max()))


def test_memory_is_flat_in_the_number_of_steps():
    """What autograd keeps for one slice does not depend on how many steps there are."""

    def kept(steps):
        policy, sizes = make(steps=steps), []
        rollout = policy.sample(PROMPTS, 1, seed=1)
        with saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            policy.evaluate(rows(rollout), slice(2, 3))
        return sum(sizes)

    assert kept(8) == kept(24)
    assert make().time_chunk == 1


def test_gradient_checkpointing_keeps_less_and_gives_the_same_gradient():
    plain, saving = make(), make(gradient_checkpointing=True)
    rollout = plain.sample(PROMPTS, 1, seed=1)
    sizes, gradients = [], []
    for policy in (plain, saving):
        kept = []
        with saved_tensors_hooks(lambda t, kept=kept: kept.append(t.numel()) or t, lambda t: t):
            loss = policy.evaluate(rows(rollout), slice(2, 4)).log_probs.sum()
        loss.backward()
        sizes.append(sum(kept))
        gradients.append(torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]))
    assert sizes[1] < 0.5 * sizes[0]
    assert torch.allclose(*gradients, atol=1e-5)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_padding_frames_do_not_matter(reduction):
    policy = make(event_reduction=reduction)
    rollout = policy.sample(PROMPTS, 2, seed=1)
    move(policy)
    before = policy.evaluate(rows(rollout), slice(0, 7), frozenset({"kl"}))
    changed = rows(rollout)
    changed["latents"] = changed["latents"].clone()
    changed["latents"][:2, :, 10:] += 100.0
    after = policy.evaluate(changed, slice(0, 7), frozenset({"kl"}))
    assert torch.allclose(before.log_probs, after.log_probs, atol=1e-4)
    assert torch.allclose(before.kl, after.kl, atol=1e-6)
    assert [m.shape for m in policy.decode(rollout.samples)[0]] == [(10, 7), (10, 7)]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_window_keeps_only_its_steps_and_moves_with_the_seed(sampler):
    policy = make(sampler=sampler, window=2, window_starts=(0, 4))
    first = {int(policy.sample(PROMPTS, 2, seed=s).samples["steps"][0, 0, 0]) for s in range(12)}
    assert first <= set(range(5))
    assert len(first) > 2
    rollout = policy.sample(PROMPTS, 2, seed=1)
    assert rollout.samples["latents"].shape == (2, 2, 3, 16, 7)
    assert rollout.info["diffusion/window"] == rollout.samples["steps"][1, 1, 0] == rollout.samples["steps"][0, 0, 0]
    assert float(policy.evaluate(rows(rollout), slice(0, 2)).log_probs.detach().abs().max()) < 1e-5
    z2, n = policy.z2(rollout.samples)
    assert abs(z2 - 1) < 6 * math.sqrt(2 / n)


def test_steps_without_noise_are_refused():
    policy = make()
    tree = rows(policy.sample(PROMPTS, 1, seed=1))
    tree["steps"] = tree["steps"].clone()
    tree["steps"][:, -1] = 7
    with pytest.raises(ConfigError, match="step 7 of 8 has no noise"):
        policy.evaluate(tree, slice(6, 7))
    with pytest.raises(ValueError, match="steps with noise"):
        make(window=3, window_starts=(0, 5))


def test_a_schedule_whose_noise_is_not_at_the_start_is_refused():
    """No step with noise at all; none at the first step; and the usual one, whose last step alone has none."""
    for silent in (slice(None), slice(0, 1)):
        policy = make()
        policy.transitions.noisy.std[silent] = 0.0
        left = policy.transitions.stochastic()
        with pytest.raises(ConfigError, match=f"only {left} of 8 steps have noise, and not the first ones"):
            refuse_what_cannot_be(True, policy.transitions, policy.guidance, policy.config)
    sound = make()
    refuse_what_cannot_be(True, sound.transitions, sound.guidance, sound.config)
    assert make(steps=2).transitions.stochastic() == 1  # one step with noise is enough


def test_a_window_that_reaches_steps_without_noise_is_refused():
    policy = make(window=2, window_starts=(0, 5))
    policy.transitions.noisy.std[6:] = 0.0
    with pytest.raises(ConfigError, match="the window reaches step 7, but only the first 6 steps"):
        refuse_what_cannot_be(True, policy.transitions, policy.guidance, policy.config)


def test_a_seeded_evaluation_has_the_first_window():
    policy = make(window=2, window_starts=(1, 4), evaluation="seeded")
    assert policy.greedy(PROMPTS).samples["steps"][:, 0].tolist() == [[1, 2], [1, 2]]


def test_guidance_is_the_same_in_sampling_and_scoring_and_matters():
    guided, plain = make(guidance=3.0), make()
    rollout = guided.sample(PROMPTS, 2, seed=1)
    assert float(guided.evaluate(rows(rollout), slice(0, 7)).log_probs.abs().max()) < 1e-4
    assert float(plain.evaluate(rows(rollout), slice(0, 7)).log_probs.abs().max()) > 1e-2
    x, c = rows(rollout)["final"], rows(rollout)["condition"]
    step = torch.zeros(4, dtype=torch.long, device=guided.device)
    dropped = c | {"dropped": torch.ones_like(c["dropped"])}
    t = guided.transitions.timesteps.to(guided.device)[step]
    cond, uncond = guided.denoiser(x, t, **c), guided.denoiser(x, t, **dropped)
    assert torch.allclose(guided.predict(x, step, c), uncond + 3 * (cond - uncond), atol=1e-5)


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4, alpha=8)])
def test_kl_is_exact_to_the_starting_policy_and_its_gradient_reaches_the_weights(lora):
    policy = make(lora=lora, event_reduction="sum")
    rollout = policy.sample(PROMPTS, 1, seed=1)
    move(policy)
    out = policy.evaluate(rows(rollout), slice(1, 3), frozenset({"kl"}))
    with policy.reference(), torch.no_grad():
        behind = decisions(policy, rows(rollout), slice(1, 3))
    with torch.no_grad():
        now = decisions(policy, rows(rollout), slice(1, 3))
    std = now.std.view(-1, 1, 1)
    normal = torch.distributions.Normal
    exact = torch.distributions.kl_divergence(normal(now.mean, std), normal(behind.mean, std))
    expected = (exact * now.valid).sum((1, 2)).view(2, 2)
    assert torch.allclose(out.kl, expected, rtol=1e-4)
    assert float(out.kl.min()) > 0
    plain = policy.evaluate(rows(rollout), slice(1, 3)).log_probs.sum()
    weights = [p for n, p in policy.trainable().named_parameters() if p.requires_grad and "layers" in n]
    alone = torch.autograd.grad(plain, weights, allow_unused=True)
    beside = torch.autograd.grad(out.log_probs.sum(), weights, allow_unused=True, retain_graph=True)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-3) for a, b in zip(alone, beside) if a is not None)
    out.kl.sum().backward()
    assert all(p.grad is not None for p in policy.parameters() if p.dim() == 2 and lora is not None)
    assert sum(float(p.grad.abs().sum()) for p in policy.parameters() if p.grad is not None) > 0


def test_lora_reaches_attention_and_feedforward_only_and_its_reference_is_the_base():
    policy = make(lora=LoraConfig(rank=4, alpha=8))
    names = [n for n, p in policy.trainable().named_parameters() if p.requires_grad]
    layers = {n.split(".lora_")[0].rsplit(".", 1)[1] for n in names}
    assert layers == {"query", "key", "value", "out", "up", "down"}
    base = make()
    rollout = policy.sample(PROMPTS, 2, seed=1)
    assert torch.allclose(rollout.samples["final"], base.sample(PROMPTS, 2, seed=1).samples["final"], atol=1e-5)
    move(policy, 0.1)
    with policy.reference():
        assert float(policy.evaluate(rows(rollout), slice(0, 7)).log_probs.detach().abs().max()) < 1e-4
    assert float(policy.evaluate(rows(rollout), slice(0, 7)).log_probs.abs().max()) > 1e-3
    assert [n for n, p in policy.trainable().named_parameters() if p.requires_grad] == names


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4, alpha=8)])
def test_a_later_stage_can_fix_its_own_reference(lora):
    policy = make(lora=lora)
    rollout = policy.sample(PROMPTS, 1, seed=1)
    move(policy)
    assert float(policy.evaluate(rows(rollout), slice(0, 1), frozenset({"kl"})).kl.max()) > 0
    policy.fix_reference()
    assert float(policy.evaluate(rows(rollout), slice(0, 1), frozenset({"kl"})).kl.max()) < 1e-10


def test_greedy_depends_on_the_prompts_seed_alone():
    for evaluation in ("seeded", "ode"):
        policy = make(evaluation=evaluation)
        prompts = [p | {"seed": s} for p in PROMPTS for s in (1, 2)]
        both, one = policy.greedy(prompts), policy.greedy(prompts[1:2])
        assert torch.allclose(both.samples["final"][1], one.samples["final"][0], atol=1e-5)
        assert not torch.allclose(both.samples["final"][0], both.samples["final"][1], atol=1e-2)


def test_replay_stores_its_randomness_and_the_loss_falls():
    policy = make(dropout=0.0, condition_dropout=0.0)
    motions = [
        [torch.sin(torch.arange(10.0))[:, None].repeat(1, 7)],
        [torch.cos(torch.arange(16.0))[:, None].repeat(1, 7)],
    ]
    stored = Stored(motions, rewards=[[0.5], [1.0]])
    rollout = policy.replay(PROMPTS, stored, seed=3)
    assert rollout.shape == (2, 1, 1)
    assert rollout.rewards.tolist() == [[0.5], [1.0]]
    assert torch.allclose(policy.decode(rollout.samples)[0][0], motions[0][0])
    want = frozenset({"supervised"})
    first = policy.evaluate(rows(rollout), slice(0, 1), want)
    assert torch.equal(
        first.losses["supervised"], policy.evaluate(rows(rollout), slice(0, 1), want).losses["supervised"]
    )
    assert torch.allclose(-first.log_probs[:, 0], first.losses["supervised"])
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    for _ in range(30):
        optimizer.zero_grad()
        policy.evaluate(rows(rollout), slice(0, 1), want).losses["supervised"].mean().backward()
        optimizer.step()
    after = policy.evaluate(rows(rollout), slice(0, 1), want).losses["supervised"]
    assert bool((after < 0.3 * first.losses["supervised"]).all())


def test_replay_pads_ragged_rows_and_dropout_repeats_from_the_stored_seed():
    policy = make()
    motions = [[torch.zeros(10, 7)], [torch.ones(16, 7), torch.zeros(12, 7)]]
    rollout = policy.replay(PROMPTS, Stored(motions), seed=0)
    assert rollout.valid.tolist() == [[True, False], [True, True]]
    assert rollout.mask[..., 0].tolist() == rollout.valid.tolist()
    twice = [policy.evaluate(rows(rollout), slice(0, 1)).log_probs for _ in range(2)]
    assert torch.equal(*twice)
    assert not policy.denoiser.training


def test_what_rows_cannot_give_is_refused():
    policy = make()
    sampled = rows(policy.sample(PROMPTS, 1, seed=0))
    with pytest.raises(ConfigError, match="clean demonstrations"):
        policy.evaluate(sampled, slice(0, 1), frozenset({"supervised"}))
    with pytest.raises(ConfigError, match="cannot compute"):
        policy.evaluate(sampled, slice(0, 1), frozenset({"entropy"}))
    replayed = rows(policy.replay(PROMPTS, Stored([[torch.zeros(10, 7)], [torch.zeros(16, 7)]]), 0))
    with pytest.raises(ConfigError, match="no KL"):
        policy.evaluate(replayed, slice(0, 1), frozenset({"kl"}))


def test_a_latent_that_is_not_finite_is_data_not_an_error():
    policy = make()
    with torch.no_grad():
        policy.denoiser.write.bias[0] = torch.nan
    rollout = policy.sample(PROMPTS, 1, seed=0)
    assert not bool(rollout.valid.any())
    assert rollout.reasons[(0, 0)] == "the latent is not finite"


def explosion(**faults):
    """Largest |log-ratio| before any update, and z2."""
    policy = make(event_reduction="sum", faults=FaultsConfig(**faults))
    rollout = policy.sample(PROMPTS, 2, seed=1)
    torch.manual_seed(0)
    with torch.no_grad():
        t = rollout.shape[2]
        out = policy.evaluate(rows(rollout), slice(0, t)).log_probs - rollout.log_probs.flatten(0, 1)
    return float(out.abs().max()), policy.z2(rollout.samples)


def test_each_fault_shows_and_none_is_there_by_default():
    clean, (z2, n) = explosion()
    assert clean < 1e-3
    assert FaultsConfig().active == ()
    noisy, (z2, n) = explosion(dropout_in_replay=True)
    assert noisy > 1
    assert z2 > 1 + 6 * math.sqrt(2 / n)
    _, (z2, n) = explosion(score_last_step=True)
    assert abs(z2 - 7 / 8) < 6 * math.sqrt(2 / n)  # the last of eight steps has z = 0
    _, (_, counted) = explosion(count_padding=True)
    assert counted == 2 * 2 * 7 * 7 * 16
    assert FaultsConfig(count_padding=True).active == ("count_padding",)


def test_a_whole_trajectory_is_the_sum_of_its_steps_and_noise_ends_with_the_pass():
    plain, whole = make(), make(faults=FaultsConfig(whole_trajectory=True, dropout_in_replay=False))
    samples = rows(plain.sample(PROMPTS, 2, seed=1))
    found = whole.evaluate(samples, slice(0, 1), frozenset({"kl"}))
    each = plain.evaluate(samples, slice(0, 7), frozenset({"kl"}))
    assert found.log_probs.shape == found.kl.shape == (4, 1)
    torch.testing.assert_close(found.log_probs[:, 0], each.log_probs.sum(1), atol=1e-4, rtol=1e-4)
    noisy = make(faults=FaultsConfig(dropout_in_replay=True))
    noisy.evaluate(samples, slice(0, 7))
    assert not noisy.denoiser.training


def test_attached_actions_have_no_score_gradient():
    policy = make(event_reduction="sum", faults=FaultsConfig(attach_actions=True))
    rollout = policy.sample(PROMPTS, 1, seed=1)
    policy.evaluate(rows(rollout), slice(0, 7)).log_probs.sum().backward()
    size = max(float(p.grad.abs().max()) for p in policy.parameters() if p.grad is not None)
    assert size < 1e-4


def test_the_ratio_to_the_reference_is_not_one_after_training():
    policy = make(event_reduction="sum", faults=FaultsConfig(ratio_to="reference", whole_trajectory=True))
    move(policy, 0.05)
    rollout = policy.sample(PROMPTS, 1, seed=1)
    assert rollout.shape == (2, 1, 1)
    ratio = policy.evaluate(rows(rollout), slice(0, 1)).log_probs - rollout.log_probs.flatten(0, 1)
    assert float(ratio.min()) > 1  # samples of the policy are likelier under it than under the reference


def test_several_captions_each_move_their_own_frames():
    policy = make(captions=2)
    prompt = {"captions": ["walk", "jump"], "lengths": [6, 10]}
    swapped = {"captions": ["walk", "kick"], "lengths": [6, 10]}
    a, b = (policy.parts.encode([p]) for p in (prompt, swapped))
    assert a["segment"][0].tolist() == [0] * 6 + [1] * 10
    assert torch.equal(a["text"][0, 0], b["text"][0, 0])
    assert not torch.equal(a["text"][0, 1], b["text"][0, 1])


def test_a_shared_start_leaves_only_the_scored_noise_to_tell_a_group_apart():
    window = {"window": 3, "window_starts": (2, 2), "sampler": "ddim"}
    pair = make(shared_start=True, **window).sample(PROMPTS, 2, seed=1).samples["latents"]
    assert torch.equal(pair[:, 0, 0], pair[:, 1, 0])
    rollout = make(shared_start=True, **window).sample(PROMPTS, 3, seed=1)
    latents = rollout.samples["latents"]  # before the first stochastic step: one latent a prompt
    assert torch.equal(latents[:, :1, 0].expand_as(latents[:, :, 0]), latents[:, :, 0])
    assert not torch.equal(latents[0, 0, 0], latents[1, 0, 0])
    assert not torch.equal(rollout.samples["final"][:, 0], rollout.samples["final"][:, 1])
    own = make(**window).sample(PROMPTS, 3, seed=1).samples["latents"]
    assert not torch.equal(own[:, 0, 0], own[:, 1, 0])
    assert torch.allclose(own[:, 0, 0], latents[:, 0, 0], atol=1e-5)  # the first of each group starts alike in both
    out = make(shared_start=True, **window).evaluate(rows(rollout), slice(0, 3))
    assert torch.allclose(out.log_probs, rollout.log_probs.flatten(0, 1), atol=1e-4)


def test_a_part_left_in_training_mode_is_found():
    from anygrpo.denoising.denoiser import in_training

    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Dropout(0.5))).eval()
    assert not in_training(module)
    module[1][0].train()
    assert in_training(module)
