"""Conversations turn by turn, as vLLM is asked: the real server's protocol over HTTP, answered by a double."""

import threading
import time

import pytest
import torch
from test_vllm_server import Answers, engine, server  # noqa: F401

from anygrpo.language.engine.requests import Talks, one_after_another, side_by_side
from anygrpo.language.generation import Reply, Sampling, Support

PLAIN = Sampling(Support(eos_ids=(1,), min_new_tokens=2), max_new_tokens=12)


class Other:
    """Says 40 41 twice, the second row's words late; then it is over."""

    patience = 0.0

    def __init__(self):
        self.due, self.seen, self.count = {}, [], {}

    def start(self, row, ids):
        self.seen.append((row, ids))
        self.count[row] = self.count.get(row, 0) + 1
        self.due[row] = time.monotonic() + (0.1 if row == 1 else 0.0)

    def settle(self, rows, seconds, one=False):
        while True:
            done = [row for row in rows if time.monotonic() >= self.due[row]]
            if len(done) == len(rows) or (one and done) or seconds == 0.0:
                return {row: Reply([40, 41] if self.count[row] < 3 else [], True) for row in done}
            time.sleep(0.01)


def rows(made):
    return [made.ids[i, : made.lengths[i]].tolist() for i in range(len(made.ids))]


@pytest.mark.parametrize("way", ["threads", "side by side"])
def test_turn_by_turn(way):
    other, asked = Other(), []
    talks = Talks([[5, 6]], 2, PLAIN, 3, other)

    def ask(ids, settings, seed):
        asked.append((ids, settings.max_new_tokens, settings.support.min_new_tokens, seed))
        return [7, 1], [-0.5, -0.25], True

    if way == "threads":
        for row in range(2):
            one_after_another(talks, row, ask)
    else:
        working = {}
        order = []

        def poll():
            done, working_now = list(working.items()), working.clear()
            order.extend(row for row, _ in done)
            return done if working_now is None else []

        side_by_side(talks, lambda row, *given: working.update({row: ask(*given)}), poll)
        assert order == [0, 1, 0, 0, 1, 1]  # the late one holds up nobody
    made = talks.finish({})
    assert rows(made) == [[7, 1, 40, 41, 7, 1, 40, 41, 7, 1]] * 2
    assert made.chosen[0].tolist() == [True, True, False, False] * 2 + [True, True]
    assert made.log_probs[0].tolist() == [-0.5, -0.25, 0, 0] * 2 + [-0.5, -0.25]
    assert made.ended.tolist() == [True, True]
    first, second = (next(a for a in asked if len(a[0]) == n) for n in (2, 6))
    assert first[:3] == ([5, 6], 12, 2)
    assert second[:3] == ([5, 6, 7, 1, 40, 41], 8, 0)
    assert len({seed for *_, seed in asked}) == 6


def test_what_leaves_no_room_ends_the_row_as_cut():
    talks = Talks([[5]], 1, Sampling(Support(eos_ids=(1,)), max_new_tokens=5), 0, Other())
    one_after_another(talks, 0, lambda ids, settings, seed: ([7, 7, 1], [0.0] * 3, True))
    made = talks.finish({})
    assert rows(made) == [[7, 7, 1]]
    assert made.ended.tolist() == [False]


def test_over_http(server):  # noqa: F811
    made = engine(server)
    made.refresh([("a.weight", torch.ones(1))])
    got = made.generate([[5, 6], [8]], 2, Sampling(Support(eos_ids=(1,)), max_new_tokens=20), 3, Other())
    assert rows(got) == [[7, 1, 40, 41, 7, 1, 40, 41, 7, 1]] * 4
    bodies = [body["prompt"] for path, body in server.asked if path == "/v1/completions" and len(body["prompt"]) > 3]
    assert sorted(bodies, key=len)[-1] == [5, 6, 7, 1, 40, 41, 7, 1, 40, 41]
    assert threading.active_count() < 50
