"""Moving in: what a TRL script and a verl command mean here, by the recipes that come out, and by dry runs of them."""

from __future__ import annotations

import json
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from anygrpo.cli.main import main
from anygrpo.core.user_code import load
from anygrpo.integrations.adopt import words
from anygrpo.integrations.adopt.moving import adamw_moments

SCRIPT = """
import os, re
from datasets import load_dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import accuracy_reward, get_soft_overlong_punishment
open("it_was_run", "w").write("yes")
raise SystemExit("a script that is read is not run")
BASE = "Qwen/Qwen2.5-0.5B"
MODEL = BASE + "-Instruct"
MARK = re.compile("<a>")

def helper(text):
    return len(MARK.findall(text))

def marks(completions, **kwargs):
    return [float(helper(c)) for c in completions]

def row(example):
    return {"prompt": [{"role": "system", "content": "Be " + "brief."},
                       {"role": "user", "content": example["question"]}]}

dataset = load_dataset("openai/gsm8k", "main", split="train[:90%]")
dataset = dataset.map(row)
common = dict(learning_rate=2e-5, num_generations=4)
args = GRPOConfig(
    output_dir="runs/mine", per_device_train_batch_size=2 * 8, gradient_accumulation_steps=2, num_iterations=2,
    steps_per_generation=4, max_completion_length=300, loss_type="dr_grpo", scale_rewards=False, epsilon_high=0.28,
    beta=0.04, reward_weights=[1.0, 0.5, 0.1], warmup_ratio=0.1, max_steps=100, top_entropy_quantile=0.2,
    mask_truncated_completions=True, bf16=False, seed=int(os.environ["SEED"]), deepspeed="zero3.json", odd_setting=3,
    **common,
)
args.temperature = 0.9
trainer = GRPOTrainer(MODEL, reward_funcs=[accuracy_reward, marks, get_soft_overlong_punishment(300, 50)], args=args,
                      train_dataset=dataset, peft_config=LoraConfig(r=32, lora_alpha=64, target_modules=["q_proj"]))
trainer.train()
"""
SHELL = """
set -x
python3 data/prepare.py --out $HOME/data
n=16
len=$((1024 * 2))
MODEL=${MODEL:-Qwen/Qwen3-8B}   # the model
DATA=(
    data.train_files="['/data/a.parquet','/data/b.parquet']"
    data.val_files=/data/test.parquet
)
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo "${DATA[@]}" \\
    algorithm.norm_adv_by_std_in_grpo=False \\
    data.train_batch_size=512 data.max_response_length=${len} \\
    actor_rollout_ref.model.path=$MODEL \\
    actor_rollout_ref.actor.ppo_mini_batch_size=128 \\
    # actor_rollout_ref.actor.ppo_mini_batch_size=1 \\
    actor_rollout_ref.actor.clip_ratio_low=0.2 actor_rollout_ref.actor.clip_ratio_high=0.28 \\
    actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean \\
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_type=kl \\
    actor_rollout_ref.actor.optim.lr_warmup_steps=10 \\
    actor_rollout_ref.rollout.n=$n actor_rollout_ref.rollout.name=sglang \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
    actor_rollout_ref.actor.policy_loss.loss_mode=clip_cov \\
    custom_reward_function.path=score.py +reward_model.reward_kwargs.overlong_buffer_cfg.enable=True \\
    +reward_model.reward_kwargs.overlong_buffer_cfg.len=512 \\
    trainer.test_freq=5 trainer.total_epochs=15 trainer.nnodes=2 $@
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "train.sh").write_text(SHELL)
    return tmp_path


def adopted(capsys, *arguments: str) -> tuple[dict, dict]:
    """(the recipe, the account)."""
    assert main(["adopt", *arguments, "--out", "out.toml", "--force", "--json"]) == 0
    return tomllib.loads(Path("out.toml").read_text()), json.loads(capsys.readouterr().out)


def lost(account: dict) -> dict[str, str]:
    return {entry["theirs"]: entry["why"] for entry in account["no_counterpart"]}


def test_a_trl_script_means_the_same(here, capsys):
    recipe, account = adopted(capsys, "train.py")
    assert not (here / "it_was_run").exists()
    assert recipe["policy"]["model"] == "Qwen/Qwen2.5-0.5B-Instruct"
    assert recipe["policy"]["lora"] == {"rank": 32, "alpha": 64.0, "targets": ["q_proj"]}
    assert (recipe["policy"]["max_new_tokens"], recipe["policy"]["temperature"]) == (300, 0.9)
    assert recipe["policy"]["dtype"] == "float32"
    a = recipe["algorithm"]
    # 16 x 4 completions are 16 groups of 4; 4 batches of 16 in pairs are 2 updates, each twice
    assert (a["prompts_per_step"], a["group_size"], a["minibatches"], a["epochs"]) == (16, 4, 2, 2)
    assert (a["reduction"], a["advantage"], a["beta"]) == ("constant", "centred", 0.04)
    assert (a["clip_low"], a["clip_high"], a["overlong_buffer"]) == (0.2, 0.28, 50)
    assert {"kind": "overlong_mask"} in a["filters"]
    assert recipe["training"]["steps"] == 25  # 100 updates, four a rollout
    rate = {"kind": "linear", "start": 2e-5, "end": 0.0, "warmup": 3}  # a tenth of 100 updates
    assert recipe["optimizer"]["learning_rate"] == rate
    task = recipe["task"]
    assert (task["path"], task["subset"], task["split"]) == ("openai/gsm8k", "main", "train[:90%]")
    assert (task["prompt_column"], task["system"], task["answer_column"]) == ("question", "Be brief.", "solution")
    assert [r.get("weight") for r in task["rewards"]] == [None, 0.5]
    assert task["rewards"][0]["kind"] == "math_verify"
    assert {"top_entropy_quantile", "odd_setting"} <= lost(account).keys()
    assert "deepspeed" in {entry["theirs"] for entry in account["needless"]}
    assert any("seed" in note for note in account["notes"])  # known only when the script runs
    assert recipe.get("seed") is None


def test_the_rewards_of_the_script_work_without_it(here, capsys):
    recipe, _ = adopted(capsys, "train.py")
    function = recipe["task"]["rewards"][1]
    assert function["signature"] == "trl"
    assert load(function["function"])(completions=["<a> <a>", "b"]) == [2.0, 0.0]
    assert not (here / "it_was_run").exists()


def test_defaults_that_differ_are_written_out(here, capsys):
    (here / "bare.py").write_text("from trl import *\nGRPOTrainer('m/m', [f], GRPOConfig('out'), d)\n")
    recipe, account = adopted(capsys, "bare.py")
    a = recipe["algorithm"]
    assert (a["prompts_per_step"], a["epsilon"], a["clip_low"], a["clip_high"]) == (1, 1e-4, 0.2, 0.2)
    assert recipe["optimizer"]["learning_rate"] == {"kind": "linear", "start": 1e-6, "end": 0.0}
    assert recipe["policy"]["train"] == "all"
    assert recipe["policy"]["max_new_tokens"] == 512
    assert recipe["stages"] == [{"name": "grpo", "epochs": 3.0}]
    by_default = {entry["setting"] for entry in account["moved"] if entry["default"]}
    assert {"algorithm.epsilon", "policy.max_new_tokens", "optimizer.learning_rate"} <= by_default
    assert "reward_funcs" in lost(account)  # a name that the script does not define
    assert recipe["task"]["rewards"] == [{"kind": "exact"}]


def test_the_command_line_and_a_yaml_file_come_over_the_script(here, capsys):
    (here / "own.yaml").write_text("num_generations: 16\nlearning_rate: 3.0e-6\n")
    recipe, _ = adopted(
        capsys, "train.py", "--config", "own.yaml", "--learning_rate", "5e-6", "--num_processes", "2",
        "--lora_target_modules", "q_proj", "v_proj", "--use_vllm", "--no-such=3",
    )  # fmt: skip
    assert recipe["optimizer"]["learning_rate"]["start"] == 5e-6
    assert recipe["algorithm"]["group_size"] == 4  # the script's own call is over the file
    assert recipe["algorithm"]["prompts_per_step"] == 32
    assert recipe["policy"]["lora"]["targets"] == ["q_proj", "v_proj"]
    assert (recipe["algorithm"]["importance"], recipe["algorithm"]["importance_level"]) == ("mask", "sequence")
    assert recipe["algorithm"]["importance_cap"] == 3.0


def test_a_yaml_file_of_trl_alone(here, capsys):
    (here / "own.yaml").write_text(
        "model_name_or_path: m/m\ndataset_name: d/d\nloss_type: cispo\nepsilon_high: 5.0\nuse_peft: true\n"
        "reward_funcs: [think_format_reward, my.rewards.own]\nlr_scheduler_type: cosine\nload_in_4bit: true\n"
    )
    recipe, _ = adopted(capsys, "own.yaml")
    a = recipe["algorithm"]
    assert (a["objective"], a["clip_low"], a["clip_high"]) == ("cispo", 1.0, 4.0)  # 5 is the cap itself there
    assert recipe["policy"]["quantize"] == "4bit"
    assert recipe["policy"]["lora"]["targets"] == ["q_proj", "v_proj"]
    assert recipe["task"]["path"] == "d/d"
    assert [r.get("function", r.get("name")) for r in recipe["task"]["rewards"]] == [
        "think_format",
        "my/rewards.py:own",
    ]


def test_a_verl_script_means_the_same(here, capsys):
    recipe, account = adopted(capsys, "train.sh")
    a = recipe["algorithm"]
    assert (a["prompts_per_step"], a["group_size"], a["minibatches"]) == (512, 16, 4)
    assert (a["advantage"], a["reduction"], a["kl"], a["beta"]) == ("centred", "sequence_mean", "k1", 0.001)
    assert (a["clip_low"], a["clip_high"], a["dual_clip"], a["overlong_buffer"]) == (0.2, 0.28, 3.0, 512)
    assert recipe["optimizer"]["learning_rate"] == {"kind": "constant", "start": 1e-6, "warmup": 10}
    assert recipe["optimizer"]["weight_decay"] == 0.01
    assert recipe["policy"]["model"] == "Qwen/Qwen3-8B"
    assert recipe["policy"]["max_new_tokens"] == 2048
    assert (recipe["task"]["path"], recipe["task"]["held_out_path"]) == ("/data/a.parquet", "/data/test.parquet")
    assert recipe["task"]["rewards"] == [{"function": "score.py:compute_score", "signature": "verl"}]
    assert recipe["stages"] == [{"name": "grpo", "epochs": 15.0}]
    assert recipe["evaluation"]["every"] == 5
    said = lost(account)
    assert {"data.train_files", "actor_rollout_ref.rollout.name", "actor_rollout_ref.actor.policy_loss.loss_mode"} <= (
        said.keys()
    )
    assert any("torchrun --nnodes 2 --nproc-per-node 8" in note for note in account["notes"])


def test_words_of_a_verl_command_and_its_yaml_are_the_same(here, capsys):
    given = ["algorithm.adv_estimator=rloo", "actor_rollout_ref.rollout.n=4", "+trainer.total_training_steps=30",
             "algorithm.use_kl_in_reward=True", "data.train_files=x.parquet"]  # fmt: skip
    by_words, _ = adopted(capsys, "python3", "-m", "verl.trainer.main_ppo", *given)
    (here / "own.yaml").write_text(
        "algorithm: {adv_estimator: rloo, use_kl_in_reward: true}\nactor_rollout_ref: {rollout: {n: 4}}\n"
        "trainer: {total_training_steps: 30}\ndata: {train_files: x.parquet}\n"
    )
    by_file, _ = adopted(capsys, "own.yaml")
    assert by_words == by_file
    assert by_words["algorithm"]["advantage"] == "leave_one_out"
    assert (by_words["algorithm"]["beta"], by_words["algorithm"]["kl"]) == (0.001, "k1")
    assert by_words["training"]["steps"] == 30


@pytest.mark.parametrize("arguments", [["train.py"], ["train.sh"], ["algorithm.adv_estimator=gae"]])
def test_a_dry_run_takes_what_comes_out(here, capsys, monkeypatch, arguments):
    from transformers import LlamaConfig, LlamaForCausalLM

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["adopt", *arguments]) == 0
    out = capsys.readouterr().out
    assert "anygrpo train adopted.toml --dry-run" in out
    (here / "score.py").write_text("def compute_score(data_source, solution_str, ground_truth):\n    ...\n")
    LlamaForCausalLM(
        LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    ).save_pretrained(here / "model")
    sinks = [] if find_spec("wandb") else ["--training.sinks", "[]"]  # theirs report to it; a dry run wants it here
    ended = main(["train", "adopted.toml", "--dry-run", "--policy.model", "model", *sinks])
    if arguments[0].startswith("algorithm") and find_spec("verl") is None:  # its own reward is looked up
        assert (ended, "verl" in capsys.readouterr().err) == (2, True)
    else:
        assert ended == 0
    assert main(["adopt", *arguments]) == 2  # nothing is overwritten
    assert main(["adopt", *arguments, "--out", "zh.toml", "--lang", "zh"]) == 0
    assert "默认值" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "code", "said"),
    [
        ("a.py", "print(1)", 3, "neither a GRPOTrainer nor a GRPOConfig"),
        ("a.py", "def f(:", 3, "not a Python file"),
        ("a.py", "GRPOConfig(per_device_train_batch_size=6)", 2, "no whole groups"),
        ("a.sh", "echo hello", 3, "no command that trains"),
        ("a.yaml", "- 1", 3, "no table"),
        ("a.py", "GRPOConfig(num_generations=9**9**9)", 0, ""),
        ("a.py", "GRPOConfig(learning_rate='fast', bf16=None, max_steps=1e400)", 0, ""),
        ("a.sh", "python -m verl.trainer.main_ppo data.train_batch_size=many algorithm.adv_estimator=grpo", 0, ""),
        ("a.txt", "", 2, "neither a TRL nor a verl, OpenRLHF or ms-swift"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, monkeypatch, capsys, name, content, code, said):
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(content)
    assert main(["adopt", name]) == code
    assert said in capsys.readouterr().err


def test_a_swift_command_has_its_own_defaults(here, capsys):
    (here / "swift.sh").write_text(
        "NPROC_PER_NODE=8 \\\nswift rlhf --rlhf_type grpo --model m/m --dataset o/d#1000 --reward_funcs accuracy own"
        " --external_plugins p.py --num_generations 16 --per_device_train_batch_size 2 \\\n"
        "  --gradient_accumulation_steps 8 --steps_per_generation 32 --importance_sampling_level sequence \\\n"
        "  --tuner_type full --dynamic_sample true # end\n"
    )
    recipe, account = adopted(capsys, "swift.sh")
    a = recipe["algorithm"]
    # 2 x 8 x 32 completions are 32 groups of 16; 32 steps of 8 accumulated are 4 updates
    assert (a["prompts_per_step"], a["group_size"], a["minibatches"], a["refill"]) == (32, 16, 4, 3)
    assert (a["objective"], a["reduction"], a["beta"]) == ("gspo", "sequence_mean", 0.04)
    assert recipe["policy"]["train"] == "all"
    assert recipe["policy"]["temperature"] == 0.9
    assert recipe["optimizer"]["learning_rate"] == {"kind": "cosine", "start": 1e-5, "end": 0.0}
    assert (recipe["optimizer"]["weight_decay"], recipe["optimizer"]["betas"]) == (0.1, [0.9, 0.95])
    assert recipe["task"]["path"] == "o/d"
    assert recipe["task"]["rewards"] == [{"kind": "math_verify", "column": "solution"}]
    assert "p.py" in json.dumps(account["no_counterpart"])


def test_shell_words():
    assert words.commands_of("run a#b 'c # d' # e") == [["run", "a#b", "c # d"]]
    assert words.commands_of("A=1\nB=$((A + 2 * 3))\nrun x=${B} y=${C:-z} \\\n  w=$D # no") == [
        ["run", "x=7", "y=z", "w=$D"]
    ]
    assert words.options(["--a", "1e-6", "--b", "--c", "x", "y", "--d=[1,2]", "--no-e"]) == {
        "a": 1e-6, "b": True, "c": ["x", "y"], "d": [1, 2], "no_e": True,
    }  # fmt: skip
    assert words.overrides(["+a.b=True", "c.d='[\"x\"]'", "PYTHONPATH=.", "e.f=null"]) == {
        "a.b": True, "c.d": '["x"]', "e.f": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("made", "path", "split"),
    [
        ("load_dataset('json', data_files='a.jsonl', split='train')", "a.jsonl", None),
        ("load_dataset('json', data_files={'train': 'a.jsonl', 'test': 'b.jsonl'})['train']", "a.jsonl", None),
        ("load_dataset('parquet', data_files=['a.parquet'])", "a.parquet", None),
        ("Dataset.from_json('a.jsonl').shuffle(seed=1)", "a.jsonl", None),
        ("load_from_disk('saved')", "saved", None),
        ("load_dataset('o/d', split='train').train_test_split(test_size=10)['train']", "o/d", "train"),
        ("Dataset.from_list(rows)", "train.jsonl", None),
    ],
)
def test_where_the_prompts_come_from(here, capsys, made, path, split):
    (here / "own.py").write_text(f"GRPOTrainer('m/m', 'r/m', GRPOConfig(max_steps=1), {made})\n")
    recipe, _ = adopted(capsys, "own.py")
    assert (recipe["task"]["path"], recipe["task"].get("split")) == (path, split)
    assert recipe["task"]["rewards"] == [{"kind": "reward_model", "model": "r/m"}]


OPENRLHF = """
WORK=/data
ray job submit --address="http://127.0.0.1:8265" --runtime-env-json='{"working_dir": "/openrlhf"}' \\
   -- python3 -m openrlhf.cli.train_ppo_ray \\
   --actor.num_gpus_per_node 8 --vllm.num_engines 4 --vllm.gpu_memory_utilization 0.6 \\
   --actor.model_name_or_path Qwen/Qwen3-4B --reward.remote_url ${WORK}/reward.py --data.label_key gold \\
   --rollout.batch_size 64 --rollout.n_samples_per_prompt 8 --train.batch_size 128 --train.num_episodes 2 \\
   --algo.advantage.estimator group_norm --algo.kl.init_coef 1e-3 --algo.kl.use_loss --algo.kl.estimator k3 \\
   --actor.eps_clip_low_high 0.2 0.27 --rollout.max_new_tokens 512 --actor.adam.lr 5e-7 --ds.packing_samples \\
   --algo.advantage.is_correction_enable --algo.advantage.is_correction_type icepop --actor.aux_loss_coef 0.01 \\
   --data.prompt_dataset a/b --data.input_key question --data.apply_chat_template --ckpt.save_steps 20 --odd.one 3
"""


def test_an_openrlhf_script_means_the_same(here, capsys):
    (here / "train_ppo.sh").write_text(OPENRLHF)
    recipe, account = adopted(capsys, "train_ppo.sh")
    a = recipe["algorithm"]
    # 64 x 8 samples in updates of 128 are 4 updates; k3 in the loss; two clips
    assert (a["prompts_per_step"], a["group_size"], a["minibatches"]) == (64, 8, 4)
    assert (a["advantage"], a["epsilon"], a["beta"], a["kl"]) == ("zscore", 1e-9, 1e-3, "k3")
    assert (a["clip_low"], a["clip_high"], a["importance"], a["importance_cap"]) == (0.2, 0.27, "mask", 5.0)
    rate = {"kind": "cosine", "start": 5e-7, "end": pytest.approx(5e-8)}
    assert recipe["optimizer"] == {"learning_rate": rate, "betas": [0.9, 0.95]}
    policy = recipe["policy"]
    assert (policy["model"], policy["train"], policy["engine"]) == ("Qwen/Qwen3-4B", "all", "vllm")
    assert (policy["max_new_tokens"], policy["dtype"], policy["chat_template"]) == (512, "bfloat16", True)
    assert policy["router_loss"] == 0.01
    task = recipe["task"]
    assert (task["path"], task["prompt_column"], task["answer_column"]) == ("a/b", "question", "gold")
    reward = {"function": "/data/reward.py:reward_func", "signature": "openrlhf", "columns": {"labels": "gold"}}
    assert task["rewards"] == [reward]
    assert recipe["stages"] == [{"name": "grpo", "epochs": 2.0}]
    assert (recipe["seed"], recipe["training"]["checkpoint_every"]) == (42, 20)
    assert lost(account).keys() == {
        "actor.lr_warmup_ratio", "odd.one", "algo.advantage.is_correction_threshold",
    }  # fmt: skip
    assert lost(account)["odd.one"] == "not known here"
    assert "ds.packing_samples" in {entry["theirs"] for entry in account["needless"]}


def test_older_names_of_openrlhf_and_a_command_inside_quotes(here, capsys):
    older = (
        "--pretrain m/m --reward_pretrain r/r,s/s --rollout_batch_size 16 --n_samples_per_prompt 4 --prompt_max_len 64 "
        "--train_batch_size 64 --advantage_estimator rloo --init_kl_coef 0.05 --generate_max_len 100 --lora_rank 8 "
        "--use_wandb {token} --l2 0.1 --eps_clip 0.3 --bf16 --zero_stage 3 --prompt_data d/d,e/e --kl_target 0.1"
    )
    (here / "s.sh").write_text(f'srun -N 1 bash -c "pip install x && python -m openrlhf.cli.train_ppo_ray {older}"\n')
    recipe, account = adopted(capsys, "s.sh")
    a = recipe["algorithm"]
    assert (a["prompts_per_step"], a["group_size"], a.get("minibatches", 1)) == (16, 4, 1)
    assert (a["advantage"], a["beta"], a["kl"], a["clip_high"]) == ("leave_one_out", 0.05, "k1", 0.3)
    assert (a["kl_controller"], a["kl_target"]) == ("proportional", 0.1)
    assert (recipe["policy"]["lora"]["rank"], recipe["policy"]["max_new_tokens"]) == (8, 100)
    assert [r["model"] for r in recipe["task"]["rewards"]] == ["r/r", "s/s"]
    assert recipe["optimizer"]["weight_decay"] == 0.1
    assert recipe["training"]["sinks"] == ["wandb"]
    assert lost(account).keys() == {"data.prompt_dataset", "actor.lr_warmup_ratio", "prompt_max_len"}
    assert any("averaged the loss per answer" in note for note in account["notes"])


def test_a_swift_command_is_not_taken_for_another_house(here, capsys):
    given = ["swift", "rlhf", "--rlhf_type", "grpo", "--model", "m/m", "--advantage_estimator", "rloo"]
    given += ["--per_device_train_batch_size", "8"]
    recipe, account = adopted(capsys, *given, "--max_length", "4096")
    assert (account["house"], recipe["algorithm"]["advantage"]) == ("swift", "leave_one_out")
    assert "never cut" in lost(account)["max_prompt_length"]


def test_8_bit_optimizers_move(here, capsys):
    (here / "a.py").write_text("GRPOConfig(optim='paged_adamw_8bit')\n")
    assert adopted(capsys, "a.py")[0]["optimizer"]["moments"] == "8bit"
    given = ["algorithm.adv_estimator=grpo", "actor_rollout_ref.actor.optim.optimizer=AdamW8bit"]
    recipe, _ = adopted(capsys, *given, "actor_rollout_ref.model.lora.rank=4")
    assert (recipe["optimizer"]["moments"], recipe["policy"]["lora"]["rank"]) == ("8bit", 4)
    (here / "b.py").write_text("GRPOConfig(optim='adafactor')\n")
    recipe, account = adopted(capsys, "b.py")
    assert recipe["optimizer"].get("moments", "float32") == "float32"
    assert "optim" in lost(account)


@pytest.mark.parametrize(
    "name",
    ["galore_adamw", "galore_adamw_8bit_layerwise", "apollo_adamw", "schedule_free_adamw", "adamw_torch_4bit",
     "AdamW4bit", "AdamWFp8"],
)  # fmt: skip
def test_an_optimizer_with_adamw_in_its_name_is_not_adamw(here, capsys, name):
    """Gradients in a low rank, no schedule, moments of 4 bits: another training, which is told."""
    (here / "a.py").write_text(f"GRPOConfig(optim={name!r})\n")
    verl = "actor_rollout_ref.actor.optim.optimizer"
    for key, given in ("optim", ["a.py"]), (verl, ["algorithm.adv_estimator=grpo", f"{verl}={name}"]):
        recipe, account = adopted(capsys, *given)
        assert recipe["optimizer"].get("moments", "float32") == "float32"
        assert key in lost(account)


@pytest.mark.parametrize(
    ("name", "moments"),
    [("adamw_torch_fused", "float32"), ("AdamW", "float32"), ("paged_adamw_32bit", "float32"), ("AdamW8bit", "8bit"),
     ("adamw_torch_8bit", "8bit"), ("paged_adamw_8bit", "8bit"), ("adafactor", None), ("stable_adamw", None)],
)  # fmt: skip
def test_names_of_adamw(name, moments):
    assert adamw_moments(name) == moments
