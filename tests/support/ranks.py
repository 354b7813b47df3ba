"""A function on several ranks: processes joined by gloo. They are forked, which is quick; on a machine with a GPU,
where a forked child cannot train, they come from a server that has only imported torch, and they find no GPU."""

from __future__ import annotations

import importlib.util
import multiprocessing
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

from processor import GPU, processor_alone


def on_ranks(count: int, function: Callable[..., Any], *arguments: Any, seconds: float = 60) -> list[Any]:
    """What `function(*arguments)` returns on each rank. One rank is this process, without a process group.

    Args:
        function: of a module, not of another function: it goes to its process by name.

    Raises:
        AssertionError: a rank raised, or did not end in time; its traceback is in the message.
    """
    if count == 1:
        return [function(*arguments)]
    with tempfile.TemporaryDirectory() as folder:
        pairs = [multiprocessing.Pipe(duplex=False) for _ in range(count)]
        workers = [begun(_rank, r, count, folder, pairs[r][1], _sent(function), arguments) for r in range(count)]
        try:
            answers = [_answer(pairs[r][0], r, seconds) for r in range(count)]
        finally:
            for worker in workers:
                worker.kill()
                worker.join()
    broken = [text for good, text in answers if not good]
    assert not broken, "\n".join(broken)
    return [value for _, value in answers]


def begun(function: Callable[..., Any], *arguments: Any) -> Any:
    """A process that has begun `function(*arguments)`, and may train."""
    context: Any = multiprocessing.get_context("forkserver" if GPU else "fork")
    worker = context.Process(target=_sent(function), args=arguments, daemon=True)
    with processor_alone():  # the server, begun by the first of them, keeps this environment
        if GPU:
            context.set_forkserver_preload(["torch", "anygrpo.train.build"])
            multiprocessing.current_process()._config.setdefault(
                "tempdir", tempfile.mkdtemp()
            )  # the session's to sweep
        worker.start()
    return worker


def _sent(function: Callable[..., Any]) -> Callable[..., Any]:
    return _Sent(function) if GPU else function


class _Sent:
    """A function of a test's module, by file and name: pytest's modules cannot be imported by their own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.module, self.name, self.file = function.__module__, function.__qualname__, function.__code__.co_filename

    def __call__(self, *arguments: Any) -> Any:
        module = sys.modules.get(self.module) or self._loaded()
        return getattr(module, self.name)(*arguments)

    def _loaded(self) -> ModuleType:
        spec: Any = importlib.util.spec_from_file_location(self.module, self.file)
        module = sys.modules[self.module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


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
