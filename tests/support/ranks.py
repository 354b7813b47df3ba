"""A function on several ranks: forked processes joined by gloo."""

from __future__ import annotations

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any


def on_ranks(count: int, function: Callable[..., Any], *arguments: Any, seconds: float = 60) -> list[Any]:
    """What `function(*arguments)` returns on each rank. One rank is this process, without a process group.

    Raises:
        AssertionError: a rank raised, or did not end in time; its traceback is in the message.
    """
    if count == 1:
        return [function(*arguments)]
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pairs = [context.Pipe(duplex=False) for _ in range(count)]
        workers = [
            context.Process(target=_rank, args=(r, count, folder, pairs[r][1], function, arguments), daemon=True)
            for r in range(count)
        ]
        for worker in workers:
            worker.start()
        try:
            answers = [_answer(pairs[r][0], r, seconds) for r in range(count)]
        finally:
            for worker in workers:
                worker.kill()
                worker.join()
    broken = [text for good, text in answers if not good]
    assert not broken, "\n".join(broken)
    return [value for _, value in answers]


def beside(function: Callable[..., Any], *arguments: Any, seconds: float = 20) -> list[Any]:
    """What `function(*arguments)` returns on two ranks, of which this process is the first.

    Raises:
        AssertionError: the second one raised, or did not end in time.
    """
    import torch.distributed as dist

    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        mine, theirs = context.Pipe(duplex=False)
        worker = context.Process(target=_rank, args=(1, 2, folder, theirs, function, arguments), daemon=True)
        worker.start()
        try:
            _join(folder, 0, 2, seconds)
            try:
                answer = function(*arguments)
                good, other = _answer(mine, 1, seconds)
                assert good, other
                dist.barrier()
            finally:
                dist.destroy_process_group()
        finally:
            worker.kill()
            worker.join()
    return [answer, other]


def _join(folder: str, rank: int, count: int, seconds: float = 1800) -> None:
    import torch.distributed as dist

    store = f"file://{Path(folder) / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=count, timeout=timedelta(seconds=seconds))


def _answer(pipe: Any, rank: int, seconds: float) -> tuple[bool, Any]:
    try:
        return pipe.recv() if pipe.poll(seconds) else (False, f"rank {rank} hangs")
    except EOFError:
        return False, f"rank {rank} died"


def _rank(rank: int, count: int, folder: str, pipe: Any, function: Callable[..., Any], arguments: tuple) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        _join(folder, rank, count)
        pipe.send((True, function(*arguments)))
        dist.barrier()
    except BaseException:
        pipe.send((False, f"rank {rank}: {traceback.format_exc()}"))


def dealt(rollout: Any) -> Any:
    """This rank's groups of a rollout that every rank has."""
    import torch

    from anygrpo.train.parallel import share

    keep = torch.zeros(rollout.shape[0], dtype=torch.bool)
    keep[torch.tensor(share(range(rollout.shape[0])), dtype=torch.int64)] = True
    return rollout.groups(keep)
