"""Reward functions as people have them, recognised by the names of their parameters and called as their own house does.

Runs in the workers: standard library only. Forms:

=========== ============================================================== =============================================
form        parameters                                                     gives
=========== ============================================================== =============================================
anygrpo     prompts, outputs, columns                                      a list
sample      prompt, response (or output), columns                          a number, for one sample
trl         prompts, completions, completion_ids, columns                  a list
verl        data_source, solution_str, ground_truth, extra_info            a number, or {"score": ...}, for one sample
verifiers   prompt, completion, answer, state, info, task, parser, columns a number, for one sample
rubric      the same in the plural                                         a list
openrlhf    queries, prompts, labels                                       a list, or {"rewards": ...}
=========== ============================================================== =============================================
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import textwrap
import traceback
from collections.abc import Callable, Iterable
from typing import Any

LONGEST_TRACE = 4000
PER_SAMPLE = ("sample", "verl", "verifiers")
PLURALS = {"answers": "answer", "states": "state", "infos": "info", "tasks": "task"}
OWN_NAMES: dict[str, tuple[str, ...]] = {
    "anygrpo": ("prompts", "outputs", "messages"),
    "sample": ("prompt", "response", "output", "messages"),
    "trl": ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric"),
    "verl": ("data_source", "solution_str", "ground_truth", "extra_info"),
    "verifiers": ("prompt", "completion", "answer", "state", "info", "task", "parser"),
    "rubric": ("prompts", "completions", "parser", *PLURALS),
    "openrlhf": ("queries", "prompts", "labels"),
}
"""What each form gives beside the data's columns and the recipe's settings."""


def instance(function: Callable[..., Any]) -> Callable[..., Any]:
    """What is called: of a class with `__call__` one object of it, made without arguments."""
    if not inspect.isclass(function) or not any("__call__" in vars(one) for one in function.__mro__):
        return function
    made: Any = function()
    return made


def described(function: Callable[..., Any]) -> dict[str, Any]:
    """A function's parameters: names, those without default, whether it takes any, its form (None: unknown), and
    whether it counts words by `split()`."""
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    needed = [p.name for p in parameters if p.name in names and p.default is p.empty]
    takes_any = any(p.kind == p.VAR_KEYWORD for p in parameters)
    form = recognised(set(names), takes_any)
    return {"parameters": names, "needed": needed, "any": takes_any, "form": form, "splits": _splits(function)}


def recognised(names: set[str], takes_any: bool) -> str | None:
    """The form that parameters of these names belong to."""
    if "outputs" in names:
        return "anygrpo"
    if "solution_str" in names:
        return "verl"
    if "queries" in names:
        return "openrlhf"
    if "completions" in names:
        return "rubric" if names & {"states", "infos", "parser"} else "trl"
    if "completion" in names or "state" in names:
        return "verifiers"
    if names & {"response", "output"}:
        return "sample"
    return "anygrpo" if takes_any else None


def _splits(function: Callable[..., Any]) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except Exception:
        return False
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "split" and not n.args
        for n in ast.walk(tree)
    )


class Parser:
    """What a rubric's function may ask of a parser: the text of a completion."""

    def parse_answer(self, completion: Any) -> str:
        return _text_of(completion)

    parse = parse_answer


def called(function: Callable[..., Any], form: str, given: dict[str, Any]) -> Any:
    """Call a function of `form`; what it returns for all outputs.

    Args:
        given: "prompts" and "outputs" (N each), "ids" (token ids of each output, or None), "columns" (name -> N
            values), "settings" (further keywords), "messages" (of each output that is a conversation, else None).

    Returns:
        the function's own return value, or for functions of one sample a list: what each call returned, or
        {"raised", "trace"} where it raised.
    """
    take = _taker(function)
    if form in PER_SAMPLE:
        every = [take(names | given["settings"]) for names in map(ONE[form], *_rows(given))]
        return _each(function, every)
    names = ALL[form](given)
    if form == "anygrpo" and described_names(function) is None:  # its names are not told: TRL's too
        names = _trl(given) | names
    result = finished(function(**take(names | given["settings"])))
    if isinstance(result, dict) and "rewards" in result:
        result = result["rewards"]
    return result


def finished(result: Any) -> Any:
    """The result, of an async function too."""
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


def _taker(function: Callable[..., Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Leaves out what the function does not take."""
    known = described_names(function)
    return lambda names: names if known is None else {name: names[name] for name in names if name in known}


def described_names(function: Callable[..., Any]) -> set[str] | None:
    """The function's parameters; None where it takes any."""
    parameters = inspect.signature(function).parameters.values()
    return None if any(p.kind == p.VAR_KEYWORD for p in parameters) else {p.name for p in parameters}


def _rows(given: dict[str, Any]) -> tuple[Iterable[Any], ...]:
    columns = given["columns"]
    rows = [{name: values[i] for name, values in columns.items()} for i in range(len(given["outputs"]))]
    return given["prompts"], given["outputs"], rows, _messages(given)


def _each(function: Callable[..., Any], every: list[dict[str, Any]]) -> list[Any]:
    """One call a sample; those of an async function side by side. A sample that raises costs itself."""
    results: list[Any] = []
    for keywords in every:
        try:
            results.append(function(**keywords))
        except Exception as error:
            results.append(error)
    if any(map(inspect.isawaitable, results)):
        results = asyncio.run(_gathered(results))
    return [_value(result) for result in results]


def _value(result: Any) -> Any:
    if isinstance(result, BaseException):
        trace = "".join(traceback.format_exception(result))[-LONGEST_TRACE:]
        return {"raised": f"{type(result).__name__}: {result}"[:300], "trace": trace}
    return result["score"] if isinstance(result, dict) and "score" in result else result


async def _gathered(results: list[Any]) -> list[Any]:
    async def one(result: Any) -> Any:
        return await result if inspect.isawaitable(result) else result

    return await asyncio.gather(*map(one, results), return_exceptions=True)


async def _awaited(result: Any) -> Any:
    return await result


def _text_of(prompt: Any) -> str:
    """A prompt or completion as text: of messages, what the last one of a user's (or else the last one) says."""
    if not isinstance(prompt, list):
        return str(prompt)
    said = [m for m in prompt if isinstance(m, dict)]
    last = next((m for m in reversed(said) if m.get("role") == "user"), said[-1] if said else {})
    content = last.get("content") or ""
    parts = content if isinstance(content, list) else [{"text": content}]
    return "".join(str(p.get("text", "")) for p in parts if isinstance(p, dict))


Said = list[dict[str, Any]] | None
"""The turns of an output that is a conversation."""


def _messages(given: dict[str, Any]) -> list[Said]:
    return given.get("messages") or [None] * len(given["outputs"])


def _completion(prompt: Any, output: str, said: Said) -> Any:
    """Text after a text, messages after messages, as TRL and verifiers have it; a conversation is messages always."""
    if said is not None:
        return said
    return [{"role": "assistant", "content": output}] if isinstance(prompt, list) else output


def _own(output: str) -> dict[str, Any]:
    """A text as the one turn of a conversation."""
    return {"role": "assistant", "content": output, "by": "policy"}


def _sample(prompt: Any, output: str, row: dict[str, Any], said: Said = None) -> dict[str, Any]:
    own = {"prompt": _text_of(prompt), "response": output, "output": output, "messages": said or [_own(output)]}
    return row | own


def _verl(prompt: Any, output: str, row: dict[str, Any], said: Said = None) -> dict[str, Any]:
    held = row.get("reward_model")
    truth = held.get("ground_truth") if isinstance(held, dict) else None
    truth = row.get("ground_truth", truth if truth is not None else row.get("answer"))
    own = {"data_source": row.get("data_source", ""), "extra_info": row.get("extra_info") or {}}
    return own | {"solution_str": output, "ground_truth": truth}


def _verifiers(prompt: Any, output: str, row: dict[str, Any], said: Said = None) -> dict[str, Any]:
    own: dict[str, Any] = {
        "prompt": prompt,
        "completion": _completion(prompt, output, said),
        "answer": row.get("answer", ""),
        "info": row.get("info") or {},
        "task": row.get("task", "default"),
    }
    state = own | {"responses": [], "turn": 1, "trajectory": []}
    return row | own | {"state": state, "parser": Parser()}


def _trl(given: dict[str, Any]) -> dict[str, Any]:
    ignored = lambda *args, **named: None  # noqa: E731
    return given["columns"] | {
        "prompts": given["prompts"],
        "completions": [_completion(*one) for one in zip(given["prompts"], given["outputs"], _messages(given))],
        "completion_ids": given.get("ids") or [None] * len(given["outputs"]),
        "trainer_state": None,
        "log_extra": ignored,
        "log_metric": ignored,
    }


def _rubric(given: dict[str, Any]) -> dict[str, Any]:
    rows = [_verifiers(*row) for row in zip(*_rows(given))]
    plural = {many: [row[one] for row in rows] for many, one in PLURALS.items()}
    own = {"prompts": [r["prompt"] for r in rows], "completions": [r["completion"] for r in rows], "parser": Parser()}
    return plural | given["columns"] | own


def _openrlhf(given: dict[str, Any]) -> dict[str, Any]:
    prompts = [_text_of(prompt) for prompt in given["prompts"]]
    queries = [prompt + output for prompt, output in zip(prompts, given["outputs"])]
    columns = given["columns"]
    labels = columns.get("label", columns.get("labels", columns.get("answer", [None] * len(queries))))
    return columns | {"queries": queries, "prompts": prompts, "labels": labels}


ONE: dict[str, Callable[..., dict[str, Any]]] = {"sample": _sample, "verl": _verl, "verifiers": _verifiers}
ALL: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "anygrpo": lambda given: (
        given["columns"]
        | {"prompts": given["prompts"], "outputs": given["outputs"]}
        | {"messages": [said or [_own(o)] for said, o in zip(_messages(given), given["outputs"])]}
    ),
    "trl": _trl,
    "rubric": _rubric,
    "openrlhf": _openrlhf,
}
