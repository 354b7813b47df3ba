"""The shared-prompt passes against plain ones, in float32 and against a float64 oracle."""

import pytest
import tiny
import torch

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.language.compute import attention, log_probs, passes
from anygrpo.language.compute import attention_parts as kernels
from anygrpo.language.compute.attention import shared_attention
from anygrpo.language.compute.capability import ability
from anygrpo.language.compute.layout import opening_of, pack
from anygrpo.language.compute.log_probs import Targets, plain_hidden, shared_hidden
from anygrpo.language.compute.output_layer import head_of
from anygrpo.language.compute.passes import forward
from anygrpo.language.compute.seen import FIRST
from anygrpo.language.compute.varlen import varlen_attention
from anygrpo.language.engine import captured, shapes
from anygrpo.language.engine.group import generate_groups, split
from anygrpo.language.engine.plain import generate_plain
from anygrpo.language.engine.rows import uniforms
from anygrpo.language.generation import Sampling, Support


def test_layout_by_hand():
    layout = pack([3, 2], [[2, 0], [1]])
    assert [(s.start, s.middle, s.first, s.end) for s in layout.segments] == [(0, 3, 5, 7), (3, 5, 7, 8)]
    assert layout.positions.tolist() == [0, 1, 2, 0, 1, 3, 4, 2]
    assert layout.places.tolist() == [[5, 6], [0, 0], [7, 0]]
    assert (layout.prompt_tokens, layout.row_tokens) == (slice(0, 5), slice(5, 8))
    assert layout.inside.tolist() == [[True, True], [False, False], [True, False]]
    assert layout.real.tolist() == [0, 1, 4]
    assert pack([3], [[2, 2]]).real is None


def test_layout_of_an_opening_by_hand():
    """The first two tokens of both prompts, then what is left of each, then the rows."""
    layout = pack([5, 3], [[2, 0], [1]], opening=2)
    assert [(s.start, s.middle, s.first, s.end) for s in layout.segments] == [(2, 5, 6, 8), (5, 6, 8, 9)]
    assert layout.positions.tolist() == [0, 1, 2, 3, 4, 2, 5, 6, 3]
    assert layout.places.tolist() == [[6, 7], [0, 0], [8, 0]]
    assert (layout.opening, layout.prompt_tokens, layout.row_tokens) == (2, slice(2, 6), slice(6, 9))
    assert layout.own.q.tolist() == layout.own.k.tolist() == [0, 2, 5, 6, 8, 8, 9]
    assert (layout.cross.q.tolist(), layout.cross.k.tolist()) == ([0, 2, 3], [0, 3, 4])
    assert (layout.whole.q.tolist(), layout.whole.k.tolist()) == ([0, 7], [0, 2])


@pytest.mark.parametrize(
    ("prompts", "found"),
    [
        ([[*range(20), 1], [*range(20), 2, 3]], 20),
        ([[*range(20)], [*range(30)]], 19),  # one token stays each prompt's own
        ([[*range(20)], [*range(20)]], 19),
        ([[*range(30), 7], [*range(18), 40], [*range(25)]], 18),
        ([[*range(15), 1], [*range(15), 2]], 0),  # too short to be worth it
        ([[1, *range(30)], [2, *range(30)]], 0),
        ([[*range(20), FIRST, FIRST, FIRST]] * 2, 20),  # places of a picture at the end: all or none
        ([[*range(17), FIRST, 3, 4, FIRST]] * 2, 17),  # two pictures of a prompt are given to the model at once
        ([[*range(9), FIRST, *range(20), FIRST, 5]] * 3, 31),  # whole before the cut
        ([[*range(9), FIRST, *range(20), FIRST]] * 3, 0),  # what is left before them is too short
        ([[*range(20), FIRST, FIRST, 5], [*range(20), FIRST + 1, FIRST + 1, 5]], 20),  # another prompt's pictures
        ([[*range(40)]], 0),  # alone, it is computed once as it is
    ],
)
def test_what_all_prompts_begin_with(prompts, found):
    assert opening_of(prompts) == found


def dense(q, k, v, prompts, rows, scale, opening=0):
    """Every row attends to its prompt and its own past, one softmax at a time."""
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    out, at = torch.zeros_like(q), 0

    def attend(queries, keys):
        s = q[:, queries] @ k[:, keys].transpose(1, 2) * scale
        past = torch.ones(s.shape[1:], dtype=torch.bool).tril(s.shape[2] - s.shape[1])
        return s.masked_fill(~past, -1e300).softmax(-1) @ v[:, keys]

    begun, at = torch.arange(opening), opening
    parts, after = [(begun, attend(begun, begun))], opening + sum(prompts) - opening * len(prompts)
    for length, fed in zip(prompts, rows):
        rest = torch.arange(at, at + length - opening)
        prompt = torch.cat([begun, rest])
        parts.append((rest, attend(rest, prompt)))
        at += len(rest)
        for n in fed:
            own = torch.arange(after, after + n)
            parts.append((own, attend(own, torch.cat([prompt, own]))))
            after += n
    return out.index_copy(1, torch.cat([i for i, _ in parts]), torch.cat([x for _, x in parts], 1))


class WideLanes(kernels.CpuFlash):
    """As on a GPU: a lane for each query head."""

    def lanes(self, heads: int, key_heads: int) -> int:
        return heads


@pytest.mark.parametrize(
    "kernel",
    [kernels.CpuFlash(), kernels.Written(), kernels.Written(held=30), WideLanes()],
    ids=["fused", "written", "in parts", "wide"],
)
@pytest.mark.parametrize(
    ("prompts", "rows", "opening"),
    [
        *[([5, 7], [[3, 0, 4], [2]], n) for n in (0, 1, 4)],
        ([4], [[3, 3]], 0), ([6, 3], [[0], [0, 0]], 0), ([6, 3, 9], [[0], [0, 0], [5]], 2), ([4], [[]], 0),
        ([4, 5], [[], []], 3), ([1], [[1, 9]], 0),
    ],
)  # fmt: skip
def test_attention_and_its_gradients_are_exact(kernel, prompts, rows, opening, monkeypatch):
    monkeypatch.setattr(attention, "kernel_for", lambda q: kernel)
    torch.manual_seed(0)
    layout = pack(prompts, rows, opening=opening)
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 2e-6)):
        q, k, v = (torch.randn(h, layout.tokens, 8, dtype=torch.float64).to(dtype).requires_grad_() for h in (4, 2, 2))
        ours = shared_attention(q, k, v, layout, 0.3)
        oracle = [x.detach().double().requires_grad_() for x in (q, k, v)]
        theirs = dense(*oracle, prompts, rows, 0.3, opening)
        direction = torch.randn_like(theirs)
        torch.testing.assert_close(ours.double(), theirs, atol=tolerance, rtol=0)
        for a, b in zip(
            torch.autograd.grad(ours, (q, k, v), direction.to(dtype)), torch.autograd.grad(theirs, oracle, direction)
        ):
            torch.testing.assert_close(a.double(), b, atol=10 * tolerance, rtol=0)


def test_what_the_written_formula_holds_is_bounded(monkeypatch):
    """An opening of 50 tokens and 20 prompts that follow it: 2 lanes x 2 x 140 queries x 50 keys are 28,000 scores."""
    noted, scores = [], kernels.Written._scores
    monkeypatch.setattr(kernels.Written, "_scores", lambda *given: noted.append(scores(*given)) or noted[-1])
    layout = pack([54] * 20, [[2, 1]] * 20, opening=50)
    torch.manual_seed(0)
    q, k, v = (torch.randn(h, layout.tokens, 8, dtype=torch.float64, requires_grad=True) for h in (4, 2, 2))
    made = []
    for held in (10**6, 1000):
        monkeypatch.setattr(attention, "kernel_for", lambda q, held=held: kernels.Written(held))
        out = shared_attention(q, k, v, layout, 0.3)
        made.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v))))
        assert max(s.numel() for s in noted) == (28_000 if held > 28_000 else 1000)
        noted.clear()
    torch.testing.assert_close(*made, atol=1e-12, rtol=0)


class OneByOne:
    """Variable-length attention by the formula, a sequence at a time."""

    def _parts(self, q, k, spans):
        for a, b, c, d in zip(spans.q, spans.q[1:], spans.k, spans.k[1:]):
            yield slice(int(a), int(b)), slice(int(c), int(d)), q.shape[1] // k.shape[1]

    def forward(self, q, k, v, spans, causal, scale):
        assert spans.longest_q == max(spans.q.diff())
        assert spans.longest_k == max(spans.k.diff())
        out, lse = torch.zeros_like(q), q.new_zeros(q.shape[1], q.shape[0])
        for here, there, group in self._parts(q, k, spans):
            made = kernels.Written().forward(*self._wide(q[here], k[there], v[there], group), causal, scale)
            out[here], lse[:, here] = made[0].transpose(0, 1), made[1]
        return out, lse

    def _wide(self, q, k, v, group):
        return q.transpose(0, 1), *(x.transpose(0, 1).repeat_interleave(group, 0) for x in (k, v))

    def backward(self, g, q, k, v, out, lse, spans, causal, scale):
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        for here, there, group in self._parts(q, k, spans):
            wide = self._wide(q[here], k[there], v[there], group)
            o = (g[here].transpose(0, 1), *wide, out[here].transpose(0, 1), lse[:, here], causal, scale)
            a, b, c = kernels.Written().backward(*o)
            dq[here] = a.transpose(0, 1)
            for total, part in ((dk, b), (dv, c)):
                total[there] += part.view(k.shape[1], group, *part.shape[1:]).sum(1).transpose(0, 1)
        return dq, dk, dv


@pytest.mark.parametrize(
    ("prompts", "rows", "opening"),
    [
        *[([5, 7], [[3, 0, 4], [2]], n) for n in (0, 3)],
        ([4], [[3, 3]], 0), ([6, 3], [[0], [0, 0]], 0), ([6, 3], [[0], [0, 0]], 2), ([4], [[]], 0),
        ([4, 5], [[], []], 3), ([3, 2, 4], [[2], [], [1, 5]], 0), ([3, 2, 4], [[2], [], [1, 5]], 1),
    ],
)  # fmt: skip
def test_calls_of_variable_length_attention_are_exact(prompts, rows, opening):
    """The path of half precision on a GPU, its kernel replaced by the formula; bench/gpu_check.py tries the kernel."""
    torch.manual_seed(0)
    layout = pack(prompts, rows, opening=opening)
    q, k, v = (torch.randn(layout.tokens, h, 8, dtype=torch.float64, requires_grad=True) for h in (4, 2, 2))
    ours = varlen_attention(q, k, v, layout, 0.3, OneByOne())
    theirs = dense(*(x.transpose(0, 1) for x in (q, k, v)), prompts, rows, 0.3, opening).transpose(0, 1)
    torch.testing.assert_close(ours, theirs, atol=1e-13, rtol=0)
    direction = torch.randn_like(theirs)
    for a, b in zip(*(torch.autograd.grad(out, (q, k, v), direction) for out in (ours, theirs))):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("stretch", "works"), [(1.0, True), (1.3, False)])
def test_variable_length_attention_is_tried_before_it_is_used(stretch, works, monkeypatch, caplog):
    tried = attention._varlen_works.__wrapped__
    scaled = lambda q, k, v, layout, scale: varlen_attention(q, k, v, layout, stretch * scale, OneByOne())  # noqa: E731
    monkeypatch.setattr(attention, "varlen_attention", scaled)
    assert tried(torch.device("cpu"), torch.float32, 4, 2, 16) is works
    assert ("is not used on cpu: its trial differs by" in caplog.text) is not works
    monkeypatch.setattr(attention, "varlen_attention", varlen_attention)  # flash attention, which a CPU has not
    assert tried(torch.device("cpu"), torch.float32, 4, 2, 16) is False


def test_large_scores_in_padding_give_no_nan():
    """Padding has no gradient, even where its stray probability would overflow."""
    layout = pack([2], [[1, 8]])
    q = (torch.randn(2, layout.tokens, 8) * 60).requires_grad_()
    out = shared_attention(q, q.detach()[:1] * 60, torch.randn(1, layout.tokens, 8), layout, 1.0)
    out.sum().backward()
    assert torch.isfinite(q.grad).all()


def settings(**given) -> Sampling:
    support = {"eos_ids": (1,), **given.pop("support", {})}
    return Sampling(Support(**support), **{"max_new_tokens": 12, **given})


@pytest.mark.parametrize("kind", tiny.SHARING)
def test_group_decoding_is_plain_decoding(kind):
    model = tiny.model(kind)
    assert ability(model, "auto").shared
    head = head_of(model, False)
    for sampling in (settings(), settings(greedy=True), settings(support={"top_p": 0.9, "temperature": 1.3})):
        ours = generate_groups(model, head, tiny.PROMPTS, 4, sampling, seed=3)
        plain = generate_plain(model, head, tiny.PROMPTS, 4, sampling, seed=3)
        assert torch.equal(ours.ids, plain.ids)
        assert torch.equal(ours.chosen, plain.chosen)
        assert torch.equal(ours.ended, plain.ended)
        torch.testing.assert_close(ours.log_probs, plain.log_probs, atol=1e-5, rtol=0)


OPENED = [[*range(5, 25), 3], [*range(5, 25), 7, 9, 4], [*range(5, 24), 8]]
"""Three prompts that begin with the same 19 tokens."""


@pytest.mark.parametrize("kind", tiny.SHARING)
def test_an_opening_of_all_prompts_is_computed_once_and_changes_nothing(kind, monkeypatch):
    model = tiny.model(kind)
    assert ability(model, "auto").shared
    head, seen = head_of(model, False), []
    noted = lambda *given: seen.append(len(given[1])) or forward(*given)  # noqa: E731
    monkeypatch.setattr(passes, "forward", noted)
    for sampling in (settings(), settings(greedy=True), settings(rows=8)):
        ours = generate_groups(model, head, OPENED, 4, sampling, seed=3)
        plain = generate_plain(model, head, OPENED, 4, sampling, seed=3)
        assert torch.equal(ours.ids, plain.ids)
        torch.testing.assert_close(ours.log_probs, plain.log_probs, atol=1e-5, rtol=0)
    assert seen == [19 + 2 + 4 + 1] * 2 + [20 + 1 + 3, 20]  # parts of two prompts and of one


def test_an_opening_in_the_training_pass_changes_neither_states_nor_gradients(monkeypatch):
    model = tiny.model("qwen2")
    assert ability(model, "auto").shared
    lengths = torch.tensor([len(ids) for ids in OPENED]).repeat_interleave(2)
    padded = torch.tensor([ids + [0] * (23 - len(ids)) for ids in OPENED]).repeat_interleave(2, 0)
    torch.manual_seed(0)
    samples = {
        "prompt_ids": padded, "prompt_lengths": lengths, "group": torch.arange(3).repeat_interleave(2),
        "completion_ids": torch.randint(2, 30, (6, 5)), "completion_lengths": torch.tensor([5, 1, 3, 4, 2, 5]),
    }  # fmt: skip
    targets = Targets.of(samples, slice(None))
    weights, seen = [p for p in model.parameters() if p.requires_grad], []
    noted = lambda *given: seen.append(len(given[1])) or forward(*given)  # noqa: E731
    monkeypatch.setattr(log_probs, "forward", noted)
    shared, plain = (f(model, samples, targets) for f in (shared_hidden, plain_hidden))
    assert seen == [19 + 2 + 4 + 1 + (4 + 0 + 2 + 3 + 1 + 4)]
    torch.testing.assert_close(shared, plain, atol=1e-5, rtol=0)
    direction = torch.randn_like(plain)
    for a, b in zip(*(torch.autograd.grad(x, weights, direction, allow_unused=True) for x in (shared, plain))):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("rows", [None, 4, 8])
def test_the_steps_that_a_gpu_captures_are_group_decoding(rows, monkeypatch):
    """Static buffers, places as tensors, rows halved at a look: run here without graphs."""
    monkeypatch.setattr(captured, "LOOK", 3)
    monkeypatch.setattr(captured, "NARROW", 4)
    monkeypatch.setattr(shapes, "ROUND", 16)
    model = tiny.model("qwen2")
    ability(model, "auto")
    head, keeper = head_of(model, False), shapes.Captured(model)
    for seed, more in ((0, {}), (1, {}), (2, {"support": {"min_new_tokens": 3, "top_k": 9}}), (0, {"greedy": True})):
        sampling = settings(max_new_tokens=30, rows=rows, **more)
        ours = keeper.generate(head, tiny.PROMPTS, 4, sampling, seed, capture=False)
        theirs = generate_groups(model, head, tiny.PROMPTS, 4, sampling, seed)
        for name in ("ids", "lengths", "chosen", "ended"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
        torch.testing.assert_close(ours.log_probs, theirs.log_probs, atol=1e-5, rtol=0)
    if rows is None:
        assert len(next(iter(keeper.decoders.values())).levels) >= 1
        assert len(keeper.decoders) == 2


def test_places_are_refilled_and_buffers_follow_the_rows_that_live(monkeypatch):
    """Three prompts of four rows, four decoded at once: waiting rows take the places of those that ended."""
    monkeypatch.setattr(captured, "LOOK", 2)
    monkeypatch.setattr(captured, "NARROW", 4)
    monkeypatch.setattr(shapes, "ROUND", 16)
    model = tiny.model("qwen2")
    ability(model, "auto")
    head = head_of(model, False)
    sampling = settings(max_new_tokens=60, rows=4)
    sizes = []
    fitting = captured.CapturedDecoder._fitting
    note = lambda self, *given: sizes.append(fitting(self, *given)) or sizes[-1]  # noqa: E731
    monkeypatch.setattr(captured.CapturedDecoder, "_fitting", note)
    decoder = captured.CapturedDecoder(model, head, 3, 4, 16, sampling, capture=False)
    noise = uniforms(12, sampling, 5, torch.device("cpu"))
    made = decoder.generate(tiny.PROMPTS, noise)
    theirs = generate_groups(model, head, tiny.PROMPTS, 4, settings(max_new_tokens=60), 5)
    for name in ("ids", "lengths", "chosen", "ended"):
        assert torch.equal(getattr(made, name), getattr(theirs, name)), name
    torch.testing.assert_close(made.log_probs, theirs.log_probs, atol=1e-5, rtol=0)
    tokens, lengths = int(made.lengths.sum()), made.lengths.tolist()
    apart = sum(4 * max(lengths[a : a + 4]) for a in (0, 4, 8))  # parts of four rows, each to its longest
    assert tokens <= decoder.turns < apart
    assert all(level.width <= 2 * (max(lengths) + captured.LOOK + 1) for level in sizes)
    assert min(len(level.row) for level in sizes) < 4  # at the end, when none waits


def test_buffers_that_rows_have_left_go_where_they_are_large(monkeypatch):
    monkeypatch.setattr(captured, "LOOK", 2)
    monkeypatch.setattr(captured, "NARROW", 4)
    model = tiny.model("qwen2")
    ability(model, "auto")
    head, held = head_of(model, False), []
    for limit in (2**40, 0):
        monkeypatch.setattr(captured, "HELD", limit)
        decoder = captured.CapturedDecoder(model, head, 3, 4, 128, settings(max_new_tokens=60), capture=False)
        decoder.generate(tiny.PROMPTS, uniforms(12, decoder.sampling, 5, torch.device("cpu")))
        held.append(len(decoder.levels))
    assert held[0] > held[1] == 1


def test_group_decoding_against_float64():
    model, exact = tiny.model(), tiny.model(dtype=torch.float64)
    ability(model, "auto")
    ours = generate_groups(model, head_of(model, False), tiny.PROMPTS, 3, settings(), seed=0)
    for i, (ids, length) in enumerate(zip(ours.ids, ours.lengths)):
        whole = torch.tensor(tiny.PROMPTS[i // 3] + ids[:length].tolist())
        log_p = exact(whole[None]).logits[0].log_softmax(-1)
        at = len(tiny.PROMPTS[i // 3]) - 1
        truth = log_p[at : at + length].gather(1, ids[:length, None])[:, 0]
        torch.testing.assert_close(ours.log_probs[i, :length].double(), truth, atol=1e-5, rtol=0)


def test_greedy_tokens_are_the_librarys():
    model = tiny.model("qwen2")
    theirs = model.generate(torch.tensor([tiny.PROMPTS[1]]), do_sample=False, max_new_tokens=12, pad_token_id=2)[0, 8:]
    ability(model, "auto")
    ours = generate_groups(model, head_of(model, False), [tiny.PROMPTS[1]], 1, settings(greedy=True), seed=0)
    assert ours.ids[0].tolist() == theirs.tolist()


def test_a_rows_tokens_do_not_depend_on_how_many_are_decoded_at_once():
    model = tiny.model("llama")
    ability(model, "auto")
    head = head_of(model, False)
    whole = generate_groups(model, head, tiny.PROMPTS, 4, settings(), seed=8)
    for rows in (1, 3, 4, 9):
        part = generate_groups(model, head, tiny.PROMPTS, 4, settings(rows=rows), seed=8)
        assert torch.equal(part.ids, whole.ids)


def test_split_keeps_groups_whole_where_they_fit():
    assert split(2, 3, 6) == [[(0, [0, 1, 2]), (1, [3, 4, 5])]]
    assert split(2, 3, 4) == [[(0, [0, 1, 2])], [(1, [3, 4, 5])]]
    assert split(1, 5, 2) == [[(0, [0, 1])], [(0, [2, 3])], [(0, [4])]]


def test_finished_rows_leave_the_pass():
    model = tiny.model("llama")
    ability(model, "auto")
    sizes = []
    model.model.embed_tokens.register_forward_hook(lambda m, i, o: sizes.append(i[0].shape[1]))
    made = generate_groups(model, head_of(model, False), tiny.PROMPTS, 6, settings(max_new_tokens=60), seed=0)
    lengths = made.lengths.tolist()
    assert made.ended.any()
    growing = [sum(n > place + 1 for n in lengths) for place in range(len(sizes) - 1)]
    assert all(g <= s for g, s in zip(growing, sizes[1:]))
    assert sum(sizes[1:]) < 1.2 * sum(growing)


def test_softcap_falls_back_and_says_so():
    found = ability(tiny.model("gemma2"), "auto")
    assert not found.shared
    assert "softcap" in found.reason
    with pytest.raises(ConfigError, match="softcap"):
        ability(tiny.model("gemma2"), "shared")


def test_a_sliding_window_is_a_limit():
    found = ability(tiny.model("mistral"), "auto")
    assert found.fits(12)
    assert not found.fits(13)
    assert "12 tokens" in found.reason


def test_a_model_that_ignores_position_ids_is_found_out(monkeypatch):
    model = tiny.model("llama")
    rotary = model.model.rotary_emb
    inner = rotary.forward
    monkeypatch.setattr(rotary, "forward", lambda x, position_ids: inner(x, torch.arange(position_ids.shape[1])[None]))
    found = ability(model, "auto")
    assert not found.shared
    assert "differs" in found.reason


def test_plain_passes_stay_what_they_were_after_installing():
    model = tiny.model("qwen3")
    ids = torch.tensor([[2, 2, 5, 9, 12], [7, 8, 22, 41, 6]])
    seen = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    before = model(ids, attention_mask=seen).logits[:, -1]
    assert ability(model, "auto").shared
    torch.testing.assert_close(model(ids, attention_mask=seen).logits[:, -1], before, atol=1e-6, rtol=0)


@pytest.mark.parametrize("keys", [12, 300])
def test_the_cpus_backward_in_half_precision(keys):
    """In float32 where keys are few: then only the inputs' rounding is left. Either way near the exact gradient."""
    torch.manual_seed(0)
    given = [torch.randn(4, keys, 16).bfloat16() for _ in range(4)]
    flash, exact = kernels.CpuFlash(), [x.double() for x in given]
    out, lse = flash.forward(*given[1:], True, 0.25)
    wide_out, wide_lse = flash.forward(*exact[1:], True, 0.25)
    ours = flash.backward(*given, out, lse, True, 0.25)
    theirs = flash.backward(*exact, wide_out, wide_lse, True, 0.25)
    for a, b in zip(ours, theirs):
        assert a.dtype is torch.bfloat16
        torch.testing.assert_close(a.double(), b, atol=(0.02 if keys == 12 else 0.05) * b.abs().max().item(), rtol=0)


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("generate", [generate_groups, generate_plain])
def test_probabilities_that_are_no_numbers_end_with_their_cause(generate, greedy):
    model = tiny.model("llama")
    if generate is generate_groups:
        attention.install(model)
    with torch.no_grad():
        model.get_output_embeddings().weight[7, 0] = float("nan")
    sampling = Sampling(Support(temperature=0.7, top_p=0.9), 4, greedy=greedy)
    with pytest.raises(TrainingError, match="not numbers in 6 of 6 answers"):
        generate(model, head_of(model, True), tiny.PROMPTS, 2, sampling, seed=0)
