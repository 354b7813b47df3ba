"""A conversation as HTML: who said what, the model's calls, and what others put in."""

from __future__ import annotations

import json
from html import escape
from typing import Any

CSS = """<style>
.talk{display:grid;gap:6px}.talk p{margin:0;padding:4px 8px;border-left:3px solid var(--rule)}
.talk .policy{border-left-color:var(--accent,#2a6)}.talk b{font-weight:600}.talk code{white-space:pre-wrap}
</style>"""

LONGEST = 400
"""Characters of a turn."""


def conversation(messages: Any, words: dict[str, str]) -> str | None:
    """The turns after a prompt; None where this is none."""
    if not isinstance(messages, list) or not all(isinstance(m, dict) and "role" in m for m in messages):
        return None
    return f'<div class="talk">{"".join(_turn(m, words) for m in messages)}</div>' if messages else None


def _turn(m: dict[str, Any], words: dict[str, str]) -> str:
    by = "policy" if m.get("by") == "policy" else "environment"
    name = f" {m['name']}" if m.get("name") else ""
    head = f"<b>{escape(str(m['role']) + name)}</b> <small>{escape(words['by_' + by])}</small>"
    content = str(m.get("content") or "")
    text = escape(content[:LONGEST]) + ("..." if len(content) > LONGEST else "")
    calls = "".join(f"<br><code>{escape(_call(c)[:LONGEST])}</code>" for c in m.get("tool_calls") or ())
    return f'<p class="{by}">{head}<br>{text}{calls}</p>'


def _call(call: Any) -> str:
    inner = call.get("function") if isinstance(call, dict) else None
    if not isinstance(inner, dict) or call.get("fault"):
        return f"? {call.get('fault', '') if isinstance(call, dict) else call}"
    given = inner.get("arguments")
    given = given if isinstance(given, dict) else {}
    listed = ", ".join(f"{k}={json.dumps(v, ensure_ascii=False, default=str)}" for k, v in given.items())
    return f"{inner.get('name')}({listed})"
