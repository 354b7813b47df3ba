"""The doctor starts at once, reads a large log in seconds, and brings no heavy library with it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from anygrpo.doctor import diagnose_log, read

SOURCE = Path(__file__).parents[2] / "src"
HEAVY = ("torch", "transformers", "numpy", "pandas", "matplotlib", "rich", "yaml", "pydantic")


def fresh(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE), "PATH": ""},
    )
    return done.stdout


def test_no_heavy_import() -> None:
    code = "import sys, anygrpo.doctor, anygrpo.doctor.render.page, anygrpo.cli.doctor, anygrpo.cli.autopsy\n"
    assert fresh(code + f"print([m for m in {HEAVY!r} if m in sys.modules])").strip() == "[]"


def test_cold_start_well_under_a_second(tmp_path: Path) -> None:
    """CPU seconds of the whole process, interpreter included, best of three."""
    log = tmp_path / "a.jsonl"
    log.write_text("".join(f'{{"step": {i}, "reward": {0.1 + i / 100}, "kl": 0.01}}\n' for i in range(50)))
    code = (
        "import time; from anygrpo.doctor import diagnose_log, read\n"
        "from anygrpo.doctor.render.as_json import as_json\n"
        f"as_json(diagnose_log(read({str(log)!r})))\nprint(time.process_time())"
    )
    assert min(float(fresh(code)) for _ in range(3)) < 0.6


@pytest.mark.slow
def test_a_log_of_100_megabytes_in_seconds(tmp_path: Path) -> None:
    path = tmp_path / "big.log"
    chatter = "some generated text that a trainer printed, with numbers 12 and words; reward model says hello\n" * 40
    row = "{'loss': 0.01, 'grad_norm': 0.5, 'learning_rate': 1e-06, 'reward': %.3f, 'reward_std': 0.3, 'kl': 0.01}\n"
    with path.open("w") as handle:
        for i in range(26000):
            handle.write(row % (0.2 + 0.5 * i / 26000))
            handle.write(chatter)
    assert path.stat().st_size > 100e6
    start = time.process_time()
    found = diagnose_log(read(path))
    assert found.run.rows == 26000
    assert time.process_time() - start < 20


def test_what_needs_torch_says_so_where_it_is_absent() -> None:
    absent = "import sys\nsys.modules['torch'] = None\n"
    code = absent + "from anygrpo.cli.main import main\nprint(main(['check', 'x.toml']))"
    assert fresh(code).strip() in ("2", "3")  # no recipe, or no torch: never an internal error


def test_the_doctor_works_with_torch_absent(tmp_path: Path) -> None:
    """Every command of the doctor, in a process in which importing torch or numpy fails."""
    log = tmp_path / "a.jsonl"
    log.write_text("".join(f'{{"step": {i}, "reward": {0.1 + i / 100}, "kl": 0.01}}\n' for i in range(50)))
    note = tmp_path / "note.md"
    note.write_text("mean_ratio = 485165216\n")
    code = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'transformers', 'pydantic'): sys.modules[name] = None\n"
        "from anygrpo.cli.main import main\n"
        f"codes = [main(['doctor', {str(log)!r}, '--json']), main(['autopsy', {str(note)!r}, '--json']),"
        f" main(['doctor', '--rules']),"
        f" main(['doctor', {str(log)!r}, '--html', {str(tmp_path / 'a.html')!r}, '--json']),"
        " main(['compare', '--a', '.578', '--b', '.573', '--n', '800'])]\n"
        "print(codes)\n"
    )
    assert fresh(code).strip().endswith("[0, 0, 0, 0, 0]")
