"""An unknown key is answered with our name for it, and never with a key of another meaning."""

import re

import pytest

from anygrpo.choices.catalogue import CARDS, names
from anygrpo.choices.presets import PRESETS
from anygrpo.errors import ConfigError
from anygrpo.families import kind_of, kinds
from anygrpo.recipe import trl_keys, verl_keys
from anygrpo.recipe.hints import meant, slips
from anygrpo.recipe.load import apply_flags, parse_recipe
from anygrpo.recipe.other_values import VALUES
from anygrpo.recipe.other_words import HERE, OURS
from anygrpo.recipe.recipe import Recipe
from anygrpo.recipe.reference import every
from anygrpo.recipe.words_explained import EXPLAINED, TWO
from anygrpo.spoken import Text

POLICIES = {
    "motion": {"kind": "motion"},
    "mdm": {"kind": "mdm", "model": "m.pt", "text": "t.pt"},
    "diffusion": {"kind": "diffusion", "model": "folder"},
    "stochastic": {"kind": "stochastic", "function": "net.py:make", "lora": {}},
    "restorer": {"kind": "restorer"},
    "selector": {"kind": "selector", "features": 4},
    "causal_lm": {"kind": "causal_lm", "model": "smollm2"},
}
TASKS = {
    "motion": {"kind": "motion"},
    "humanml3d": {"kind": "humanml3d", "path": "d", "rewards": [{"kind": "skating"}]},
    "images": {"kind": "images", "path": "p", "rewards": [{"kind": "compressibility"}]},
    "restoration": {"kind": "restoration"},
    "stored_candidates": {"kind": "stored_candidates", "path": "c.json", "features": "f.npz"},
    "arithmetic": {"kind": "arithmetic"},
}
FITS = {
    "motion": "motion",
    "mdm": "humanml3d",
    "diffusion": "images",
    "stochastic": "restoration",
    "restorer": "restoration",
    "selector": "stored_candidates",
    "causal_lm": "arithmetic",
}


def said(policy: str, **more: object) -> str:
    """The error for the policy of that kind with its task, and keys "table.key" more."""
    recipe = {"policy": dict(POLICIES[policy]), "task": dict(TASKS[FITS[policy]])}
    for key, value in more.items():
        table, _, name = key.partition("__")
        recipe[table][name] = value
    with pytest.raises(ConfigError) as caught:
        parse_recipe(recipe)
    return str(caught.value)


@pytest.mark.parametrize(
    ("policy", "old", "new"),
    [
        ("motion", "policy__weights", "model"),
        ("mdm", "policy__network", "function"),
        ("diffusion", "policy__factory", "function"),
        ("diffusion", "policy__pipeline", "model"),
        ("motion", "task__data", "path"),
        ("motion", "task__held_out_captions", "held_out"),
        ("mdm", "task__train_split", "split"),
        ("stochastic", "policy__factory", "function"),
        ("restorer", "policy__weights", "model"),
        ("restorer", "policy__adapter", "lora"),
        ("restorer", "policy__precision", "dtype"),
        ("restorer", "task__held_out_draws", "held_out_repeats"),
        ("selector", "policy__initial", "model"),
        ("selector", "task__file", "path"),
        ("selector", "task__validation", "held_out_share"),
    ],
)
def test_an_old_name_is_answered_with_the_new_one(policy, old, new):
    found = said(policy, **{old: "x"})
    assert f"unknown key '{old.replace('__', '.')}'" in found
    assert f"it is called {new!r} here" in found


def test_slips_are_counted():
    pairs = {("bais", "bias"): 1, ("funtion", "function"): 1, ("", "ab"): 2, ("kitten", "sitting"): 3, ("x", "x"): 0}
    assert {pair: slips(*pair) for pair in pairs} == pairs


ASKED = [
    ("algorithm", "learning_rate", "it belongs to another table: optimizer.learning_rate"),
    ("algorithm", "clip_epsilon", "here that is algorithm.clip_low and algorithm.clip_high"),
    ("", "kl_beta", "here that is algorithm.beta"),
    ("", "lr", "here that is optimizer.learning_rate"),
    ("optimizer", "beta1", "here that is optimizer.betas"),
    ("algorithm", "num_generations", "here that is algorithm.group_size"),
    ("algorithm", "grup_size", "did you mean 'group_size'?"),
    ("", "trainng", "did you mean 'training'?"),
    ("", "epsilon", "algorithm.clip_low and algorithm.clip_high are the clip range"),
    ("", "epochs", "passes over the prompts"),
    ("", "bf16", 'here that is policy.dtype = "bfloat16"'),
    ("", "fp16", 'here that is policy.dtype = "float16"'),
    ("", "cast_lm_head_to_fp32", 'here that is policy.head = "float32"'),
    ("", "ppo_mini_batch_size", "algorithm.minibatches, a count: train_batch_size / ppo_mini_batch_size"),
    ("", "steps_per_generation", "a count: steps_per_generation / gradient_accumulation_steps"),
    ("", "gae_lambda", "no critic"),
    ("optimizer", "warmup", 'kind = "cosine"'),
    ("training", "batch_size", "algorithm.prompts_per_step"),
    ("algorithm", "adaptive_margin", "anygrpo settings lists what there is"),
    ("algorithm", "seed", "another table: seed (at the top)"),
    ("policy", "functon", "did you mean 'function'? (policy.python.function"),
    ("", "grpo_group_size", "algorithm.group_size"),
    ("", "kl_penalty", "algorithm.beta is the weight of the KL; algorithm.kl is its estimator"),
    ("", "use_liger_kernel", "no key: how work is laid on the machine"),
    ("", "top_entropy_quantile", "no key: the loss is over all decisions"),
    ("", "mean_ratio", "a measure, no setting"),
    ("", "std_reward", "a measure, no setting: reward/std"),
    ("", "global_reward_mean", 'algorithm.advantage = "running"'),
    ("policy", "event_reduction", "it belongs to another kind: policy.diffusion.event_reduction"),
]


@pytest.mark.parametrize(("table", "key", "answer"), ASKED)
def test_an_unknown_key_is_answered_by_its_meaning(table, key, answer):
    recipe = {"policy": dict(POLICIES["causal_lm"]), "task": dict(TASKS["arithmetic"])}
    recipe |= {table: recipe.get(table, {}) | {key: 1}} if table else {key: 1}
    with pytest.raises(ConfigError) as caught:
        parse_recipe(recipe)
    assert answer in str(caught.value)


IN_TABLES = [
    ("actor_rollout_ref.rollout.n", "algorithm.group_size"),
    ("actor_rollout_ref.actor.optim.lr", "optimizer.learning_rate"),
    ("actor_rollout_ref.actor.clip_ratio", "algorithm.clip_low and algorithm.clip_high"),
    ("actor_rollout_ref.actor.ppo_mini_batch_size", "a count: train_batch_size / ppo_mini_batch_size"),
    ("actor_rollout_ref.actor.grad_clip", "optimizer.grad_clip"),
    ("actor_rollout_ref.model.path", "policy.model"),
    ("actor_rollout_ref.rollout.mode", "no key: how work is laid"),  # not doctor.mode
    ("critic.optim.lr", "no critic"),  # not the policy's rate
    ("critic.model.path", "no critic"),
    ("data.train_files", "task.path"),
    ("trainer.total_epochs", "[[stages]] epochs"),
    ("algorithm.kl_ctrl.kl_coef", "algorithm.beta"),
    ("reward_model.path", 'kind = "reward_model"'),
]


@pytest.mark.parametrize(("flag", "answer"), IN_TABLES)
def test_another_librarys_tables_are_answered_by_the_setting_inside(flag, answer):
    recipe = {"policy": dict(POLICIES["causal_lm"]), "task": dict(TASKS["arithmetic"])}
    apply_flags(recipe, [f"--{flag}", "1"])
    with pytest.raises(ConfigError) as caught:
        parse_recipe(recipe)
    assert answer in caught.value.cure
    assert f"unknown key '{flag}'" in caught.value.what


def test_every_setting_of_trl_and_verl_is_answered():
    """By ours, or by why there is none: never by a list of what else there is."""
    tables = (trl_keys.DEFAULTS, trl_keys.MACHINE, trl_keys.SAID, trl_keys.ABSENT)
    tables += (verl_keys.DEFAULTS, verl_keys.MACHINE, verl_keys.SAID, verl_keys.ABSENT)
    unanswered = []
    for word in dict.fromkeys(word + "x" if word.endswith(".") else word for table in tables for word in table):
        recipe = {"policy": dict(POLICIES["causal_lm"]), "task": dict(TASKS["arithmetic"])}
        apply_flags(recipe, [f"--{word}", "1"])
        with pytest.raises(ConfigError) as caught:
            parse_recipe(recipe)
        if caught.value.cure.startswith("known:") or "lists what there is" in caught.value.cure:
            unanswered.append(word)
    assert unanswered == []


def test_a_slip_in_function_names_function():
    task = {"kind": "data", "path": "x.jsonl", "rewards": [{"funtion": "r.py:f"}]}
    with pytest.raises(ConfigError, match=r"unknown key 'task\.rewards\.0\.funtion'\n  -> did you mean 'function'\?"):
        parse_recipe({"policy": dict(POLICIES["causal_lm"]), "task": task})


def english(answer: str | Text) -> str:
    return answer.said("en") if isinstance(answer, Text) else answer


def test_an_answer_with_words_of_english_has_chinese_ones_too():
    """A plain one is a key, a line of a recipe or of a shell: it reads the same in both languages."""
    line = r'(\[\[[\w.]+\]\] ?)?[\w.]*( = \S+|"\w+")?|anygrpo train .*|torchrun .*'
    answers = [*OURS.items(), *EXPLAINED.items(), *TWO.items(), *(x for t in VALUES.values() for x in t.items())]
    for word, answer in answers:
        if isinstance(answer, Text):
            assert re.search("[\u4e00-\u9fff]", answer.zh), word
            assert not re.search(r"\b(and|or|of|is|the|for|there|nothing)\b", answer.zh), word
        else:
            assert re.fullmatch(line, answer), (word, answer)


@pytest.mark.parametrize("key", ["clip_range", "warmup_steps", "temperature", "epochs"])
def test_a_foreign_word_is_answered_in_chinese(key, monkeypatch):
    monkeypatch.setenv("ANYGRPO_LANG", "zh")
    recipe = {"policy": dict(POLICIES["causal_lm"]), "task": dict(TASKS["arithmetic"]), key: 1}
    with pytest.raises(ConfigError) as caught:
        parse_recipe(recipe)
    cure = str(caught.value.cure)
    assert re.search("[\u4e00-\u9fff]", cure)
    assert " and " not in cure
    assert ": " not in cure.partition("=")[0]


def test_every_word_of_another_library_leads_to_a_key_that_exists():
    """And none of them is a key of ours, which would then mean two things."""
    ours = {f"{one.table.partition('.')[0]}.{one.name}" for one in every()} | {one.name for one in every()}
    told = [(word, english(answer)) for word, answer in [*OURS.items(), *EXPLAINED.items(), *TWO.items()]]
    told += [(f"={word}", english(text)) for table in VALUES.values() for word, text in table.items()]
    for word, answer in told:
        assert word not in HERE or answer.rpartition(".")[2] in HERE[word]
        for target in re.findall(r"(?:algorithm|optimizer|training|evaluation|policy|task)\.\w+", answer):
            assert target in ours, (word, target)
    assert {target for targets in HERE.values() for target in targets} <= {one.name for one in every()}


WRONG = [
    ("--algorithm.objective", "dapo", 'here that is algorithm.preset = "dapo"'),
    ("--algorithm.objective", "ppo_clip", 'here that is "ppo"'),
    ("--algorithm.objective", "gsop", "did you mean 'gspo'?"),
    ("--algorithm.objective", "dpo", "there is none here: they learn from pairs"),
    ("--algorithm.kl", "low_var_kl", 'here that is "k3"'),
    ("--algorithm.advantage", "reinforce_plus_plus", 'here that is "overall" (verl), "whitened" (ms-swift)'),
    ("--algorithm.advantage", "reinforce_plus_plus_baseline", 'here that is "whitened"'),
    ("--algorithm.advantage", "reinforce++", 'here that is "overall"'),
    ("--algorithm.advantage", "rloo_vectorized", 'here that is "leave_one_out"'),
    ("--algorithm.advantage", "gae", "no critic"),
    ("--algorithm.reduction", "seq-mean-token-mean", 'here that is "sequence_mean"'),
    ("--algorithm.reduction", "mean", '"token_mean" over all decisions'),
    ("--policy.dtype", "bf16", 'here that is "bfloat16"'),
    ("--policy.train", "full", 'here that is "all"'),
    ("--policy.train", "qlora", 'policy.quantize = "4bit"'),
    ("--policy.engine", "hf", 'here that is "builtin"'),
    ("--training.parallel", "ddp", 'here that is "replicate"'),
    ("--doctor.language", "zh-CN", 'here that is "zh"'),
    ("--optimizer.learning-rate", "cosine", 'write { kind = "cosine", start'),
    ("--stages.5.steps", "3", "no [[stages]]"),
]


@pytest.mark.parametrize(("flag", "value", "answer"), WRONG)
def test_a_wrong_value_is_answered_by_its_meaning(flag, value, answer):
    recipe = {"policy": dict(POLICIES["causal_lm"]), "task": dict(TASKS["arithmetic"])}

    def read() -> None:
        apply_flags(recipe, [flag, value])
        parse_recipe(recipe)

    with pytest.raises(ConfigError) as caught:
        read()
    assert answer in str(caught.value)


def test_words_for_choices_lead_to_choices_that_exist():
    for kind, table in VALUES.items():
        for word, text in table.items():
            allowed = names(kind) if kind in CARDS else words_of_key(kind)
            assert word not in allowed
            said = english(text)
            for named in re.findall(r'"(\w+)"', said):
                assert named in (allowed if "preset" not in said else PRESETS) or "quantize" in said, (kind, word)


def words_of_key(key):
    """What a key that is no choice of cards may be, in any table."""
    return {word for one in every() if one.name == key for word in one.type.split(" | ")}


MISTAKES = [
    ("--evaluation.steps", "it is called 'every' here"),  # not training.steps
    ("--evaluation.k", "it is called 'pass_k' here"),
    ("--evaluation.best", "no key: the best checkpoint"),
    ("--training.workers", "task.workers runs rewards"),  # how work is laid on the machine is another matter
    ("--training.timeout", "no key: Ctrl-C saves and stops"),  # not a reward's
    ("--policy.vllm", "policy.engine"),
    ("--policy.layers", "policy.last_n_layers"),  # not policy.motion.layers
    ("--policy.peft", "policy.train"),
    ("--policy.tokenizer", "no key: a model's tokenizer"),
    ("--policy.num-beams", "no key: training samples"),
    ("--policy.eos-token", "policy.eos"),
    ("--policy.stop-token", "policy.stop"),
    ("--task.limit", "no key for the training rows"),  # not task.motion.limits
    ("--task.template", "no key: a prompt is a text"),  # not task.demonstrations.template
    ("--task.few-shot", "[[task.examples]]"),
    ("--task.num-proc", "no key: how work is laid"),  # not task.workers
    ("--algorithm.whiten", "algorithm.advantage"),
    ("--algorithm.rank-advantage", 'algorithm.advantage = "rank"'),
    ("--algorithm.reward-clip", "no key: rewards are taken as they are"),  # not advantage_clip
    ("--algorithm.reference-free", "algorithm.beta = 0"),
    ("--doctor.enabled", 'doctor.mode = "off"'),
    ("--algorithm.eps", "algorithm.clip_low and algorithm.clip_high are the clip range"),  # not AdamW's
    ("--optimizer.epsilon", "optimizer.eps"),  # not the clip range
    ("--training.epsilon", "algorithm.clip_low and algorithm.clip_high are the clip range"),
    ("--training.epochs", "passes over the prompts"),  # not algorithm.epochs alone
    ("--algorithm.mu", "algorithm.epochs"),  # not task.motion.cmu
    ("--algorithm.n", "it is called 'group_size' here"),
    ("--algorithm.clip", "algorithm.clip_low and algorithm.clip_high"),
    ("--algorithm.mini-batch-size", "algorithm.minibatches, a count"),
    ("--algorithm.reference-model", "no key: the reference is the policy as a stage finds it"),
    ("--algorithm.entropy-coefficient", "algorithm.entropy_coef"),
    ("--algorithm.norm-adv", "algorithm.advantage"),
    ("--optimizer.name", "no key: the optimizer is AdamW"),  # not policy.object.name
    ("--optimizer.min-lr", 'kind = "cosine"'),
    ("--optimizer.momentum", "optimizer.betas"),
    ("--optimizer.max-norm", "optimizer.grad_clip"),
    ("--policy.path", "here that is policy.model"),  # not task.motion.path
    ("--policy.max-length", "policy.max_new_tokens is the longest answer"),  # not a reward model's
    ("--policy.lora.dropout", "no key: adapters have no dropout"),  # not policy.motion.dropout
    ("--policy.r", "policy.lora.rank"),
    ("--policy.tp", "torchrun"),
    ("--task.reward", "it is called 'rewards' here"),  # not a selection's
    ("--task.data", 'task.kind = "data" with task.path'),
    ("--task.path", 'task.kind = "data" with task.path'),  # not task.motion.path
    ("--task.answer", "anygrpo settings lists"),  # not an example's
    ("--task.val-split", "task.held_out_share"),
    ("--evaluation.interval", "it is called 'every' here"),
    ("--evaluation.split", "task.held_out_path"),  # not task.data.split
    ("--evaluation.early-stopping", "evaluation.patience"),
    ("--evaluation.n-samples", "it is called 'pass_samples' here"),
    ("--training.wandb", "training.sinks"),
    ("--doctor.lang", "it is called 'language' here"),
    ("--doctor.fail-on", "anygrpo doctor RUN --fail-on"),
    # words that mean something of their own in one table, asked from others
    ("--algorithm.n-samples", "it is called 'group_size' here"),
    ("--n-samples", "here that is algorithm.group_size"),
    ("--policy.n", "here that is algorithm.group_size"),
    ("--evaluation.n", "it is called 'pass_samples' here"),
    ("--evaluation.num-samples", "it is called 'pass_samples' here"),
    ("--evaluation.freq", "it is called 'every' here"),
    ("--doctor.interval", "it is called 'every' here"),
    ("--policy.lora.enabled", "no key: adapters are trained where [policy.lora] stands"),
    ("--optimizer.clip", "here that is optimizer.grad_clip"),
    ("--training.clip", "optimizer.grad_clip bounds the gradient"),
    ("--optimizer.decay", "optimizer.weight_decay"),
    ("--policy.revision", 'policy.model = "owner/name@revision"'),
    ("--policy.targets", "targets in [policy.lora]"),
    ("--task.weights", "weight in [[task.rewards]]"),
    ("--algorithm.prompts", "algorithm.prompts_per_step are the prompts of a step"),
    ("--training.wandb-project", "training.project"),
    ("--router-aux-loss-coef", "policy.router_loss"),
]
SILENT = [
    "--algorithm.interval", "--training.freq", "--optimizer.frequency", "--task.lang", "--policy.lang",
    "--algorithm.enabled", "--training.enable", "--training.n", "--task.num-samples", "--task.mode",
    "--algorithm.every", "--algorithm.quantile", "--algorithm.revision", "--training.options", "--doctor.file",
]  # fmt: skip
"""No key of another table has their meaning."""


@pytest.mark.parametrize("flag", SILENT)
def test_silence_is_better_than_another_meaning(flag):
    recipe = {"policy": {**POLICIES["causal_lm"], "lora": {}}, "task": dict(TASKS["arithmetic"])}
    apply_flags(recipe, [flag, "1"])
    with pytest.raises(ConfigError) as caught:
        parse_recipe(recipe)
    assert re.match("known: |anygrpo settings lists what there is", caught.value.cure)


@pytest.mark.parametrize(
    ("policy", "flag", "never"),
    [
        ("restorer", "--task.path", "task.kind"), ("restorer", "--evaluation.path", "held_out_path"),
        ("stochastic", "--policy.max-length", "max_new_tokens"), ("selector", "--policy.max-len", "max_new_tokens"),
        ("restorer", "--task.prompt-key", "prompt_column"), ("motion", "--policy.load-in-4bit", "quantize"),
    ],
)  # fmt: skip
def test_no_hint_names_a_key_that_this_kind_has_not(policy, flag, never):
    recipe = {"policy": dict(POLICIES[policy]), "task": dict(TASKS[FITS[policy]])}
    apply_flags(recipe, [flag, "1"])
    with pytest.raises(ConfigError) as caught:
        parse_recipe(recipe)
    assert never not in caught.value.cure


@pytest.mark.parametrize(("flag", "answer"), MISTAKES)
def test_a_hint_is_of_the_place_that_was_meant(flag, answer):
    recipe = {"policy": {**POLICIES["causal_lm"], "lora": {}}, "task": dict(TASKS["arithmetic"])}
    apply_flags(recipe, [flag, "1"])
    with pytest.raises(ConfigError) as caught:
        parse_recipe(recipe)
    assert answer in caught.value.cure


def test_no_hint_of_a_wrong_place_leads_to_a_deeper_table():
    """A key that only a table inside has is not what an outer table's was meant to be, nor another root's."""
    for table in ("algorithm", "optimizer", "training", "evaluation", "doctor", "policy", "task"):
        for one in every():
            told = meant(one.name, {"nothing"}, Recipe, table=table)
            places = re.findall(r"another kind: (.*)", told)
            assert all(place.startswith(f"{table}.") and place.count(".") == 2 for line in places
                       for place in line.split(" or ")), (table, one.name, told)  # fmt: skip


@pytest.mark.parametrize(
    ("table", "word", "kind"),
    [("policy", "llm", "causal_lm"), ("policy", "stable-diffusion", "diffusion"), ("policy", "pointer", "selector"),
     ("task", "csv", "data"), ("task", "gsm8k", "data"), ("task", "beams", "stored_candidates")],
)  # fmt: skip
def test_another_word_for_a_kind_is_answered_with_the_kind(table, word, kind):
    with pytest.raises(ConfigError, match=f"it is called '{kind}' here"):
        kind_of(table, word)


def test_no_other_word_for_a_kind_is_a_kind():
    for table in ("policy", "task"):
        also = [word for kind in kinds(table).values() for word in kind.also]
        assert len(also) > 10
        assert not set(also) & set(kinds(table))
        assert len(set(also)) == len(also)


@pytest.mark.parametrize(
    ("table", "given", "answer"),
    [
        ("train", {"steps": 1}, "training.steps"),  # not policy.train
        ("trainer", {"nothing": 1}, "[training]"),
        ("eval", {"every": 1}, "evaluation.every"),
        ("optim", {"betas": [0.9, 0.9]}, "optimizer.betas"),
        ("model", {"top_p": 0.5}, "policy.top_p"),
        ("grpo", {"advantage": "rank"}, "algorithm.advantage"),
    ],
)
def test_another_name_of_a_whole_table_is_answered_with_ours(table, given, answer):
    recipe = {"policy": dict(POLICIES["causal_lm"]), "task": dict(TASKS["arithmetic"]), table: given}
    with pytest.raises(ConfigError) as caught:
        parse_recipe(recipe)
    assert f"here that is {answer}" in caught.value.cure


def test_a_built_in_reward_with_a_function_is_told_to_be_one_of_them():
    reward = {"kind": "length", "target": 3, "function": "r.py:f"}
    with pytest.raises(ConfigError) as caught:
        parse_recipe(
            {"policy": dict(POLICIES["causal_lm"]), "task": {"kind": "data", "path": "p", "rewards": [reward]}}
        )
    assert "keep one of them" in caught.value.cure


@pytest.mark.parametrize(
    ("flag", "value", "what", "cure"),
    [
        ("--optimizer.betas", "0.9", "a list is wanted, in [ ] (found 0.9)", "write betas = [0.9, 0.999]"),
        ("--policy.stop", "x", "a list is wanted", 'write stop = ["x"]'),
        ("--algorithm.filters", "none_such", "a list is wanted", 'write filters = [{ kind = "drop_constant" }]'),
        ("--policy.lora", "true", "a table is wanted (found True)", "its keys: alpha, rank, targets"),
        ("--policy.chat-template", "x", "policy.chat_template = 'x' is not known", "known: auto, false, true"),
        ("--policy.threads", "x", "policy.threads = 'x' is not known", "known: a whole number, auto"),
        ("--algorithm.kl", "none", "is not known", "algorithm.beta = 0"),
        ("--doctor.mode", "on", "is not known", '"watch"'),
    ],
)
def test_a_value_of_another_form_is_answered_with_the_form(flag, value, what, cure):
    recipe = {"policy": dict(POLICIES["causal_lm"]), "task": dict(TASKS["arithmetic"])}
    apply_flags(recipe, [flag, value])
    with pytest.raises(ConfigError) as caught:
        parse_recipe(recipe)
    assert what in caught.value.what
    assert cure in caught.value.cure
    assert "literal" not in str(caught.value)
