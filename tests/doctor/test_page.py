"""The report opened in a real browser: nothing on the console, both languages, readable on a narrow screen."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from anygrpo.doctor import diagnose
from anygrpo.doctor.autopsy import examine
from anygrpo.doctor.render import autopsy_page
from anygrpo.doctor.render.as_json import as_json
from anygrpo.doctor.render.curves import buckets, spans
from anygrpo.doctor.render.page import page
from anygrpo.doctor.synthetic import dull, flat, healthy

CHROMIUM = Path("/usr/bin/chromium")
SICK = dull(120, completions__clipped_ratio=flat(0.7))
VOID = {"meta", "link", "br", "rect", "line", "polyline", "polygon", "circle"}

MEASURE = """<script>
addEventListener("load", () => {
  const wide = [...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1);
  document.title = "width " + document.documentElement.scrollWidth + " of " + innerWidth + " over " + wide.length;
});
</script>"""

FRAME = """<!doctype html><link rel="icon" href="data:,">
<iframe src="inner.html" width="380" height="900" frameborder="0"
onload="setTimeout(() => document.title = frames[0].document.title, 200)"></iframe>"""


class Balance(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_self_contained_and_well_formed(lang: str) -> None:
    for text in (
        page([diagnose(SICK), diagnose(healthy())], lang),
        autopsy_page.page(examine({"mean_ratio": 485165216}), lang),
    ):
        balance = Balance()
        balance.feed(text)
        assert balance.open == []
        assert not re.search(r"""(?:src|href)=["'](?!data:)|@import|url\(""", text)
    text = page([diagnose(SICK)], lang)
    assert ("Answers are cut off" if lang == "en" else "回答被截断") in text
    assert 'class="mark"' in text


def test_foreign_text_is_escaped() -> None:
    rows = [{k.replace("kl", "kl<script>"): v for k, v in row.items()} for row in SICK]
    rows = [row | {"eval_<b>acc": 0.5 + 0.001 * i} for i, row in enumerate(rows)]
    assert "<b>acc" not in page([diagnose(rows, format="jsonl")])


@pytest.mark.skipif(not CHROMIUM.exists(), reason="no chromium")
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_in_a_browser(tmp_path: Path, lang: str) -> None:
    """In a frame 380 px wide: no message on the console, and nothing sticks out at the side."""
    inner = page([diagnose(SICK)], lang).replace("</body>", MEASURE + "</body>")
    (tmp_path / "inner.html").write_text(inner, "utf-8")
    (tmp_path / "frame.html").write_text(FRAME, "utf-8")
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
            "--allow-file-access-from-files", "--virtual-time-budget=2000", f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom", (tmp_path / "frame.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r"<title>width (\d+) of (\d+) over (\d+)</title>", done.stdout)
    assert found, done.stdout[:300]
    assert int(found[1]) <= int(found[2]) == 380
    assert found[3] == "0"


def test_curves() -> None:
    assert spans((1, 2, 3, 40, 41), 1, 50) == [(1, 3), (40, 41)]
    assert spans((99,), 1, 50) == []
    series = diagnose(healthy(1000), format="jsonl").run.series["reward/mean"]
    drawn = buckets(series)
    assert len(drawn) <= 400
    assert all(low <= middle <= high for _, middle, low, high in drawn)


def test_json_schema() -> None:
    data = as_json(diagnose(SICK, format="jsonl"))
    assert list(data)[:6] == ["source", "format", "rows", "verdict", "findings", "not_observable"]
    assert data["map"]["truncated/share"] == "completions/clipped_ratio"
    assert data["rows"] == 120
    fields = ["rule", "certainty", "severity", "title", "evidence", "prescription", "rows", "steps"]
    assert list(data["findings"][0]) == fields
    assert data["findings"][0]["rule"] == "truncation"
    assert len(data["findings"][0]["rows"]) <= 100


def test_a_curve_of_a_complement_is_labelled_as_one():
    """A log of live groups is drawn as dead ones: its label must say so."""
    from anygrpo.doctor.canonical import label

    assert label("groups/live") == "1 - groups/live"
    assert label("frac_reward_zero_std") == "frac_reward_zero_std"
    rows = [{"step": i, "reward/mean": 0.3, "groups/live": 0.1} for i in range(20)]
    assert "1 - groups/live" in page([diagnose(rows)], "en")
    bare = [{"step": i, "reward/mean": 0.3, "live_groups": 0.1} for i in range(20)]
    assert "1 - live_groups" in page([diagnose(bare)], "en")


def test_an_axis_ends_in_the_steps_of_its_rows() -> None:
    """Rows are what a log has, steps are what a person looks up; a log without steps is counted in rows."""
    rows = [{"step": 10.0 * i, "reward": 0.1 * i} for i in range(12)]
    ends = lambda made: re.findall(r'y="127"[^>]*>(\d+)<', made)  # noqa: E731
    assert ends(page([diagnose(rows)]))[:2] == ["0", "110"]
    assert ends(page([diagnose([{"reward": r["reward"]} for r in rows])]))[:2] == ["1", "12"]
    start = {"step": -1.0, "eval/accuracy": 0.1}  # an evaluation before training is a row of its own
    made = page([diagnose([start, *(row | {"eval/accuracy": 0.2} for row in rows)], format="jsonl")])
    assert set(ends(made)) == {"0", "110"}
