"""Loading path.py:name, and tasks of a user's own class."""

import pytest

from anygrpo.core import user_code as python_file
from anygrpo.core.build import build_task as build
from anygrpo.core.settings import OwnTaskConfig
from anygrpo.errors import ConfigError, DataError

TASK = """
from anygrpo.core.task import Task
class Mine(Task):
    def __init__(self, seed, low=0): self.seed, self.low = seed, low
    def prompts(self, step, count): return [{"prompt": str(step)}] * count
    def held_out(self): return [{"prompt": "x"}]
    def score(self, prompts, outputs): raise NotImplementedError
class Half:
    def __init__(self, seed): pass
    def prompts(self, step, count): return []
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(TASK)
    return path


def test_load(file):
    assert python_file.load(f"{file}:Mine").__name__ == "Mine"


@pytest.mark.parametrize("spec", ["mine", "mine.py", "mine.txt:f", "mine.py:", "mine.py:a b", "mine.py:a.b"])
def test_malformed_specs(spec):
    with pytest.raises(ConfigError, match="does not name an object in a file"):
        python_file.load(spec)


def test_missing_file_name_and_broken_file(file, tmp_path):
    with pytest.raises(DataError, match=r"no file .*none\.py"):
        python_file.load(f"{tmp_path}/none.py:f")
    with pytest.raises(ConfigError, match=r"mine\.py has no 'Mime'; did you mean 'Mine'\?"):
        python_file.load(f"{file}:Mime")
    (tmp_path / "broken.py").write_text("def f(:\n")
    with pytest.raises(ConfigError, match=r"running .*broken\.py failed: SyntaxError"):
        python_file.load(f"{tmp_path}/broken.py:f")
    (tmp_path / "attribute.py").write_text("import os\nos.nothing_here\n")
    with pytest.raises(ConfigError, match=r"running .* failed: AttributeError.*attribute\.py:2"):
        python_file.load(f"{tmp_path}/attribute.py:f")


def test_a_users_task(file):
    task = build(OwnTaskConfig(kind="python", function=f"{file}:Mine", arguments={"low": 3}), 7)
    assert (task.seed, task.low, task.size) == (7, 3, 0)


def test_a_users_task_that_does_not_fit(file):
    with pytest.raises(ConfigError, match="cannot be called with \\['high', 'seed'\\]"):
        build(OwnTaskConfig(kind="python", function=f"{file}:Mine", arguments={"high": 3}), 0)
    with pytest.raises(ConfigError, match=r"does not derive from anygrpo\.Task, and lacks held_out, score"):
        build(OwnTaskConfig(kind="python", function=f"{file}:Half"), 0)
