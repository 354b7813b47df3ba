"""An MCP server: assistants ask the doctor, the autopsy, the comparison and the check. The official SDK speaks.

Files are read where the server runs, and nothing of them leaves it but the findings.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from typing import Any

from anygrpo.errors import AnygrpoError, ConfigError
from anygrpo.spoken import Text


def doctor(path: str, lang: str = "en", reward: str = "") -> dict[str, Any]:
    """Diagnose a training log (any framework): findings in the order in which to act, each with its evidence.

    Args:
        path: a log file, a checkpoint or a run folder.
        lang: "en" or "zh".
        reward: the name of the reward's column, if the doctor does not recognise it.
    """
    from anygrpo.doctor import diagnose_log, read
    from anygrpo.doctor.render.as_json import as_json

    return answered(lambda: as_json(diagnose_log(read(path), {"reward": reward} if reward else None), lang))


def autopsy(note: str, lang: str = "en") -> dict[str, Any]:
    """What a few logged numbers prove. `note`: prose, bullets, a table or name = number lines."""
    from anygrpo.doctor.autopsy import examine
    from anygrpo.doctor.notes import read_note
    from anygrpo.doctor.render.autopsy_page import as_json

    def work() -> dict[str, Any]:
        found = read_note(note)
        numbers = found.numbers | ({"normaliser": found.normaliser} if found.normaliser else {})
        return as_json(examine(numbers, note), "note", lang)

    return answered(work)


def compare(paths: list[str]) -> dict[str, Any]:
    """Two or more logs side by side: each measure's difference with its interval, and the step where they part.

    Logs that are seeds of one arm are taken together: by wandb's groups, settings, names or folders.
    """
    from anygrpo.doctor.arms import arms
    from anygrpo.doctor.diagnose import columns_of
    from anygrpo.doctor.readers import read_all

    return answered(lambda: arms([columns_of(log) for path in paths for log in read_all(path)]))


def compare_rates(a: float, b: float, n: int) -> dict[str, Any]:
    """Whether two rates on n questions each can be told apart, and how many questions it would take."""
    from anygrpo.doctor.arms import rates

    return answered(lambda: rates(a, b, n))


def check(recipe: str) -> dict[str, Any]:
    """The pre-flight check of a recipe: one batch, a minute, findings in the order in which to act."""
    from anygrpo.cli.main import main

    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = main(["check", recipe, "--json"])
    try:
        return {"exit_code": code, "report": json.loads(out.getvalue())}
    except ValueError:
        return {"exit_code": code, "report": out.getvalue()[-4000:], "error": errors.getvalue()[-4000:]}


def answered(work: Any) -> dict[str, Any]:
    """The answer, or an error as data: what is wrong and what to change."""
    try:
        return work()
    except AnygrpoError as error:
        return {"error": error.what, "cure": error.cure}


TOOLS = (doctor, autopsy, compare, compare_rates, check)


def server() -> Any:
    """The server with its tools.

    Raises:
        ConfigError: the SDK is not installed.
    """
    kinds = (("mcp.server.mcpserver", "MCPServer"), ("mcp.server.fastmcp", "FastMCP"))  # version 2, version 1
    for module, name in kinds:
        with contextlib.suppress(ImportError):
            made: Any = getattr(importlib.import_module(module), name)("anygrpo")
            break
    else:
        raise ConfigError(Text("the MCP SDK is not installed", "没有安装 MCP SDK"), "pip install 'anygrpo[mcp]'")
    for tool in TOOLS:
        made.tool()(tool)
    return made
