"""Log-probs of rows by the frozen reference, or by the policy as it is, in blocks."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from anygrpo.core.policy import Policy
from anygrpo.core.rollout import Batch
from anygrpo.core.tree import Tree, tree_map
from anygrpo.train.batches import Prepared
from anygrpo.train.sharded import whole_weights


def with_reference(policy: Policy, batch: Batch, rows: int) -> Batch:
    """The batch, on the policy's device, with its rows' log-probs under the frozen reference policy."""
    batch = batch.to(policy.parameters()[0].device)
    with whole_weights(policy), policy.reference():
        return replace(batch, ref=log_probs_of(policy, batch.samples, batch.old, rows))


def referenced(policy: Policy, prepared: Prepared, rows: int) -> Prepared:
    """With the log-probs of all rows that count under the frozen reference policy: made once a step, however many
    epochs and minibatches follow."""
    rollout, device = prepared.rollout, policy.parameters()[0].device
    live = prepared.mask.any(-1).flatten().nonzero()[:, 0]
    samples = tree_map(lambda x: x.flatten(0, 1)[live.to(x.device)].to(device), rollout.samples)
    old = rollout.log_probs.flatten(0, 1)
    ref = torch.zeros_like(old)
    with whole_weights(policy), policy.reference():
        ref[live] = log_probs_of(policy, samples, old[live].to(device), rows).to(ref)
    return replace(prepared, ref=ref.view_as(rollout.log_probs))


@torch.no_grad()
def log_probs_of(policy: Policy, samples: Tree, like: Tensor, rows: int) -> Tensor:
    """Log-probs of n rows by the training pass, shaped and placed as `like` [n, T], in blocks of at most `rows`."""
    out = torch.zeros_like(like)
    n, total = out.shape
    plan = policy.plan(samples, rows) if n else []
    pieces = [torch.arange(a, min(a + plan, n)) for a in range(0, n, plan)] if isinstance(plan, int) else plan
    chunk = policy.time_chunk or max(total, 1)
    for index in pieces:
        index = index.to(out.device)
        part = tree_map(lambda x, index=index: x[index], samples)
        for a in range(0, total, chunk):
            times = slice(a, min(a + chunk, total))
            out[index, times] = policy.evaluate(part, times).log_probs.to(out)
    return out
