"""The tools that assistants are offered; the SDK's own protocol where it is installed."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from anygrpo.cli import assistants as mcp
from anygrpo.cli.main import main
from anygrpo.doctor.synthetic import flat, healthy
from anygrpo.errors import ConfigError


def test_tools_answer_in_plain_data(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in healthy(60, completions__clipped_ratio=flat(0.7))))
    assert mcp.doctor(str(log))["findings"][0]["rule"] == "truncation"
    assert mcp.autopsy("mean_ratio = 485165216, policy_loss = 171531792")["inferred"]["clamp"] == 20
    assert not mcp.compare_rates(0.578, 0.573, 800)["shown"]
    assert len(mcp.compare([str(log), str(log)])["arms"]) == 2
    assert mcp.doctor(str(tmp_path / "none"))["cure"]
    refused = mcp.check(str(tmp_path / "none.toml"))
    assert refused["exit_code"] != 0
    assert "none.toml" in refused["error"]


def test_the_command_lists_its_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--list"]) == 0
    assert "compare_rates" in capsys.readouterr().out


@pytest.mark.skipif(find_spec("mcp") is not None, reason="the SDK is installed")
def test_without_the_sdk_the_error_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match="pip install"):
        mcp.server()


@pytest.mark.skipif(find_spec("mcp") is None, reason="needs the MCP SDK")
def test_the_sdk_lists_and_calls_the_tools() -> None:
    made = mcp.server()
    assert {tool.name for tool in asyncio.run(made.list_tools())} == {f.__name__ for f in mcp.TOOLS}
    assert asyncio.run(made.call_tool("compare_rates", {"a": 0.6, "b": 0.4, "n": 800}))
