"""The grid of a run's held-out pictures: what lies where."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
from pathlib import Path

import pytest
from PIL import Image

FILE = Path(__file__).parents[2] / "scripts" / "picture_grid.py"
spec = importlib.util.spec_from_file_location("picture_grid_script", FILE)
assert spec is not None
assert spec.loader is not None
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


def written(file: Path, greys: dict[str, list[int]]) -> None:
    lines = []
    for name, values in greys.items():
        for value in values:
            data = io.BytesIO()
            Image.new("L", (4, 4), value).save(data, "PNG")
            picture = "data:image/png;base64," + base64.b64encode(data.getvalue()).decode()
            lines.append(json.dumps({"prompt": 0, "text": name, "output": picture}))
    file.write_text("\n".join(lines))


def test_before_is_on_the_left_and_after_on_the_right(tmp_path: Path) -> None:
    folder = tmp_path / "evaluations"
    folder.mkdir()
    written(folder / "step_00000000.jsonl", {"a": [10, 20], "b": [30, 40]})
    with pytest.raises(SystemExit, match="1 evaluations"):
        script.grid(tmp_path, 2, 2, 8)
    written(folder / "step_00000050.jsonl", {"b": [70, 80], "a": [50, 60]})
    sheet = script.grid(tmp_path, 2, 2, 8)
    at = lambda x, y: sheet.getpixel((x, y))[0]  # noqa: E731
    assert [at(2, 2), at(10, 2), at(16 + script.GAP + 2, 2), at(24 + script.GAP + 2, 2)] == [10, 20, 50, 60]
    assert [at(2, 10), at(16 + script.GAP + 2, 10)] == [30, 70]
