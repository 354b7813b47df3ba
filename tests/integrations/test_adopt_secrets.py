"""Moving in: a key, a token or a password of the user's stands in nothing that is written or printed."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.integrations.adopt import secret_source, secrets

VALUE = "0123456789abcdef0123456789"
OPENRLHF = ["python", "-m", "openrlhf.cli.train_ppo_ray", "--pretrain", "m/m", "--n_samples_per_prompt", "4"]
VERL = ["python", "-m", "verl.trainer.main_ppo", "algorithm.adv_estimator=grpo"]
SWIFT = ["swift", "rlhf", "--rlhf_type", "grpo", "--model", "m/m", "--per_device_train_batch_size", "8"]
TRL = ["trl", "grpo", "--model_name_or_path", "m/m", "--num_generations", "8"]


@pytest.mark.parametrize(
    "words",
    [
        [*OPENRLHF, "--use_wandb", VALUE],
        [*OPENRLHF, f"--use_wandb={VALUE}"],
        [*OPENRLHF, "--logger.wandb.key", VALUE],
        [*OPENRLHF, "--critic.api_key", VALUE],
        [*VERL, f"+ray_kwargs.ray_init.runtime_env.env_vars.WANDB_API_KEY={VALUE}"],
        [*VERL, f"+data.hf_token={VALUE}"],
        [*VERL, f'+trainer.env={{"WANDB_API_KEY": "{VALUE}", "on": true}}'],
        [*VERL, f"+trainer.env=['HF_TOKEN={VALUE}']"],
        [*SWIFT, "--swanlab_token", VALUE, "--hub_token", VALUE],
        [*TRL, "--hub_token", VALUE, "--report_to", "wandb"],
        [*TRL, "--mail_password", "12345678", "--client_secret", VALUE],
        ["script.py"],
        ["script.py", f"--hub_token={VALUE}"],
    ],
    ids=lambda words: " ".join(words[-2:])[:40],
)
def test_a_secret_value_is_written_nowhere(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    script = (
        f"import os\nAPI_KEY = '{VALUE}'\nTHINK_TOKEN = '<think>'\n"
        "def ask(completions, **kwargs):\n    return [float(THINK_TOKEN in c and bool(API_KEY)) for c in completions]\n"
        f"GRPOTrainer('m/m', [ask, Remote(api_key='{VALUE}')], GRPOConfig(hub_token='{VALUE}', "
        f"learning_rate=rate(token='{VALUE}')), load_dataset('d/d', token='{VALUE}'))\n"
    )
    if words[0] == "script.py":
        (tmp_path / "script.py").write_text(script)
    for extra in ([], ["--json"], ["--lang", "zh"]):
        assert main(["adopt", *words, "--force", *extra]) == 0
        told = capsys.readouterr()
        told = told.out + told.err + Path("adopted.toml").read_text()
        if words[0] == "script.py":
            source = Path("adopted_rewards.py").read_text()
            assert "THINK_TOKEN = '<think>'" in source
            assert "os.environ" in told
            told += source
        assert "12345678" not in told
        assert VALUE not in told
        assert "(set)" in told or words[0] == "script.py"
    if "--use_wandb" in words:
        assert tomllib.loads(Path("adopted.toml").read_text())["training"]["sinks"] == ["wandb"]


def test_a_command_that_is_refused_is_told_without_its_keys(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["adopt", f"WANDB_API_KEY={VALUE}", "--hub-token", VALUE, "--x", "y"]) == 2
    told = capsys.readouterr().err
    assert VALUE not in told
    assert "WANDB_API_KEY=(set) --hub-token (set) --x y" in told


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("hub_token", True), ("logger.wandb.key", True), ("WANDB_API_KEY", True), ("token", False), ("key", False),
        ("apikey", True), ("api_keys", True), ("AWS_ACCESS_KEY_ID", True), ("OPENAI_API_KEY_2", True),
        ("hubToken", True),
        ("score_key", False), ("ground_truth_key", False), ("data_source_key", False), ("file_key", False),
        ("max_token", False), ("start_token", False), ("think_end_token", False), ("tokens", False),
        ("db_password", True), ("lark_secret", True), ("--hub-token", True),
        ("github_token", True), ("comet_token", True), ("modelscope_token", True), ("gemini_key", True),
        ("dashscope_key", True), ("client_key", False), ("bot_token", False), ("aws_key", False),
        ("data.prompt_key", False), ("data.input_key", False), ("data.label_key", False), ("data.reward_fn_key", False),
        ("ckpt.best_metric_key", False), ("max_new_tokens", False), ("max_token_len", False), ("eos_token", False),
        ("eos_token_id", False), ("data.image_key", False), ("loss_agg_mode", False),
    ],
)  # fmt: skip
def test_names_of_secrets(name, is_one):
    assert secrets.secret(name) is is_one


KEY = "sk-0123456789abcdef0123456789"


@pytest.mark.parametrize(
    ("source", "without"),
    [
        (f'headers={{"Authorization": "Bearer {KEY}"}}', 'headers={"Authorization": "Bearer (set)"}'),
        (f'os.environ.setdefault("OPENAI_API_KEY", "{KEY}")', 'os.environ.setdefault("OPENAI_API_KEY", "(set)")'),
        ('os.environ["HF_TOKEN"] = "abc"', 'os.environ["HF_TOKEN"] = "(set)"'),
        (f'API_KEY = """{KEY}"""', 'API_KEY = """(set)"""'),
        (f"API_KEY = f'{KEY}'", "API_KEY = f'(set)'"),
        ("api_key = f'abc{x}'", "api_key = f'(set){x}'"),
        (f"API_KEY = ('{KEY}')", "API_KEY = ('(set)')"),
        ("API_KEY = ('sk-01234' '56789abcdef')", "API_KEY = ('(set)' '')"),
        (f"API_KEY: Final = '{KEY}'", "API_KEY: Final = '(set)'"),
        ("API_KEY: str | None = 'abc'", "API_KEY: str | None = '(set)'"),
        ("def f(a, api_key='abc', *, token=None): pass", "def f(a, api_key='(set)', *, token=None): pass"),
        ("api_keys = ['abc', 'def']", "api_keys = ['(set)', '(set)']"),
        ("user, password = 'me', 'abc'", "user, password = 'me', '(set)'"),
        ("key = os.getenv('OPENAI_API_KEY', 'abc')", "key = os.getenv('OPENAI_API_KEY', '(set)')"),
        (f"token = '{VALUE}'", "token = '(set)'"),
        (f"ask({KEY!r})  # was {KEY}", "ask('(set)')  # was (set)"),
        (f'f"{{ask({KEY!r})}}"', "f\"{ask('(set)')}\""),
        ("url = 'https://me:abc@host/v1'", "url = 'https://me:(set)@host/v1'"),
        (f"'é'; api_key = b'{KEY}'", "'é'; api_key = b'(set)'"),
        ("db_password: str = '$tr0ngP4ss'", "db_password: str = '(set)'"),
        ("api_key = '%9f86d081884c7d659a2f'", "api_key = '(set)'"),
        ("hub_token = '<9f86d081884c7d659a2f>'", "hub_token = '(set)'"),
        ("url = 'https://me:$tr0ng@host/v1'", "url = 'https://me:(set)@host/v1'"),
        ("judge_api_key: str = field(default='abc')", "judge_api_key: str = field(default='(set)')"),
        (
            "judge_api_key: str = field(default='abc', metadata={'help': 'of the judge'})",
            "judge_api_key: str = field(default='(set)', metadata={'help': 'of the judge'})",
        ),
        (f"judge_key: str = field(default='{VALUE}')", "judge_key: str = field(default='(set)')"),
        (
            "api_key: str = field(default_factory=lambda: 'abc')",
            "api_key: str = field(default_factory=lambda: '(set)')",
        ),
        (
            "api_keys = field(default_factory=lambda: ['a', 'b'])",
            "api_keys = field(default_factory=lambda: ['(set)', '(set)'])",
        ),
        ("api_key = Field('abc', title='a key')", "api_key = Field('(set)', title='a key')"),
        ("api_key = os.getenv('X', default='hunter2')", "api_key = os.getenv('X', default='(set)')"),
        (
            "def f(api_key=Option('abc', '--api-key', '-k')): pass",
            "def f(api_key=Option('(set)', '--api-key', '-k')): pass",
        ),
    ],
)
def test_a_key_in_source_is_left_out_and_nothing_else_changes(source, without):
    made = secret_source.mask_source(f"x = 'é'\n{source}\ny = 1\n")
    assert made.text == f"x = 'é'\n{without}\ny = 1\n"
    ast.parse(made.text)


@pytest.mark.parametrize(
    "source",
    [
        'key = "reference_answer"', 'answer_start_key = "final_boxed_answer"',
        'row[key] == "openai_gsm8k_main_2024_v1"',
        "data_source_key = 'openai_gsm8k_main_train_set_v2'", "THINK_TOKEN = '<|begin_of_thought|>'",
        "special = {'end_token': 'abcdefghijklmnop'}", "api_key = os.environ['OPENAI_API_KEY']", "api_key = 'EMPTY'",
        "api_key = os.getenv('OPENAI_API_KEY')", "headers = {'Authorization': f'Bearer {key}'}", "hf_token = None",
        "url = f'https://{user}:{password}@host'", "cache_key = sha('reward_cache_v1:math')", "api_key_name = 'abc'",
        "field = {'password': 'password'}",
        "api_key: str = field(default='<your key>', metadata={'help': 'the key of the judge, 51 characters'})",
        "hub_token: str = field(default='${HF_TOKEN}')", "client_key = 'client_id'", "bot_token = 'Assistant:'",
        "aws_key = 'data/train_v2.jsonl'", "hub_token = typer.Option(None, '--hub-token', '-t')",
        "bot_token = '<|start_of_turn|>'", "rows = field(default_factory=lambda: ['question', 'answer'])",
        "url = 'https://me:$PASSWORD@host'", "hub_token: str = field(default='OPENAI_API_KEY')",
        "'a task-specific sk-learn-like-estimator-in-words'", "# a Bearer token",
        "if token == '<|endoftext|>-xxxx':\r\n\tpass\f\n", "pattern = r'https?://[^:]+:[^@]+@'",
    ],
)  # fmt: skip
def test_source_without_a_key_is_copied_as_it_is(source):
    assert secret_source.mask_source(source) == (source, [])


def test_a_copied_function_keeps_its_columns_and_the_note_names_what_was_left_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(
        'start_key = "final_boxed_answer"\n'
        "def judge(completions, info, **kwargs):\n"
        '    key = "reference_answer"\n'
        f'    ask(headers={{"Authorization": "Bearer {KEY}"}}, api_key="abc")\n'
        "    return [float(row[key] == start_key) for row in info]\n"
        f"GRPOTrainer('m/m', [judge], GRPOConfig(), load_dataset('https://me:hunter2@host/d').map(lambda r: "
        f"join(r['question'], token='{VALUE}')))\n"
    )
    assert main(["adopt", "script.py", "--json"]) == 0
    told = capsys.readouterr().out
    note = next(n for n in json.loads(told)["notes"] if "os.environ" in n)
    assert "(Authorization, api_key)" in note
    copied, script = Path("adopted_rewards.py").read_text(), Path("script.py").read_text()
    changed = script.replace(KEY, "(set)").replace('"abc"', '"(set)"').splitlines()[:5]
    assert [line for line in copied.splitlines() if line][1:] == changed
    told += Path("adopted.toml").read_text()
    assert "hunter2" not in told
    assert VALUE[:8] not in told


def test_settings_that_are_columns_or_words_keep_their_values():
    columns = {"score_key": "reward", "ground_truth_key": "answer", "max_token": 512, "start_token": "<s>", "key": "id"}
    assert secrets.hidden(columns) == columns
    assert secrets.hidden("label_key", "api_key", {"label_key"}) == "label_key"
    assert secrets.hidden({"api_keys": ["a1", "b2"], "token": VALUE}) == {"api_keys": ["(set)"] * 2, "token": "(set)"}
    assert secrets.hidden("https://me:abc@host/rm", "remote_rm_url") == "https://me:(set)@host/rm"


SIGNS = [
    "$ecretX1",
    "%ecretpass",
    "{tr0ng!",
    "<Passw0rd!>",
    "ab;c(d) e",
    "--x9",
    "$tr0ngP4ss",
    "<9f86d081884c7d65>",
    "%passwords",
]


@pytest.mark.parametrize("value", SIGNS)
def test_a_password_may_begin_with_any_sign(value):
    assert secrets.withheld("db_password", value)
    assert secrets.hidden_words([f"--password={value}"]) == ["--password=(set)"]
    if not value.startswith("--"):
        assert secrets.hidden_words(["--password", value]) == ["--password", "(set)"]
    if value not in ("{tr0ng!", "ab;c(d) e"):  # among words, a value ends where the next may begin
        assert secrets.hidden({"env": f"API_KEY={value} ON=1"}) == {"env": "API_KEY=(set) ON=1"}


@pytest.mark.parametrize(
    "value",
    [
        "$HF_TOKEN", "$hf_token", "${HF_TOKEN}", "${HF_TOKEN:-}", "${{ secrets.HF_TOKEN }}", "${oc.env:HF_TOKEN}",
        "${oc.env:HF_TOKEN,null}", "{key}", "{{key}}", "{}", "{row[key]!r}", "%s", "%(key)s", "%HF_TOKEN%",
        "<your key>",
        "<your-hf-token>", "<YOUR_API_KEY>", "<API key, 51 characters>", "<你的密钥>", "<|begin_of_thought|>", "</s>",
        "$(cat key.txt)", "<>", "", "EMPTY", "(set)",
        "$1", "${API_KEY:?missing}",
    ],
)  # fmt: skip
def test_what_says_where_a_key_comes_from_is_told(value):
    assert not secrets.withheld("hub_token", value)
    assert not secrets.withheld("db_password", value)
    assert secrets.hidden(value, "hub_token") == value
    assert secrets.hidden_words([f"--hub_token={value}"]) == [f"--hub_token={value}"]


def test_a_default_behind_a_variable_is_a_value():
    assert secrets.hidden("${DB_PASSWORD:-hunter2}", "db_password") == "(set)"
    assert secrets.hidden_words(["DB_PASSWORD=${X:-hunter2}"]) == ["DB_PASSWORD=(set)"]


def test_a_value_that_holds_names_is_read_too():
    assert secrets.hidden_words(["+env={HF_TOKEN=abc,ON=1}", "a=$(HF_TOKEN=abc b)"]) == [
        "+env={HF_TOKEN=(set),ON=1}", "a=$(HF_TOKEN=(set) b)",
    ]  # fmt: skip
    assert secrets.masked("a=" * 5000 + "HF_TOKEN=abc", sure=True) == "a=" * 5000 + "HF_TOKEN=(set)"


def test_short_keys_of_known_makers_and_those_of_bots_with_digits():
    for name in ("github_token", "gitlab_token", "comet_token", "modelscope_token", "gemini_key", "dashscope_key"):
        assert secrets.hidden("abc1", name) == "(set)"
    assert secrets.hidden("110201543:AAHdqTcv", "bot_token") == "(set)"
    assert secrets.hidden("ak4711x", "client_key") == "(set)"
    kept = {"client_key": "client_id", "bot_token": "Bot:", "aws_key": "runs/7/train.jsonl", "client_keys": ["a", "b"]}
    assert secrets.hidden(kept) == kept
    assert secrets.hidden('{"a": "b1"}', "api_keys") == '{"a": "(set)"}'
