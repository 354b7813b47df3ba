"""The doctor in TRL's Trainer: `GRPOTrainer(..., callbacks=[DoctorCallback()])`.

    callback = DoctorCallback(mode="act")
    trainer = GRPOTrainer(model, reward_funcs, args, train_dataset=..., callbacks=[callback])
    callback.trainer = trainer            # only mode "act" needs it: beta and epsilon are the trainer's
    trainer.train()

Findings are printed once, when they become true, and lie in `output_dir/doctor.json` at the end.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, Literal

from transformers import TrainerCallback

from anygrpo.doctor import Finding, LiveDoctor, Log
from anygrpo.doctor.columns import Columns, build
from anygrpo.doctor.render.as_json import as_json
from anygrpo.doctor.words import tell
from anygrpo.errors import ConfigError
from anygrpo.spoken import Text
from anygrpo.watch.acting import Actor
from anygrpo.watch.levers import Setting, ShadowLevers


class TrlDoctor(LiveDoctor):
    """The live rules, with cures in TRL's own words."""

    def run(self) -> Columns:
        return build(Log("live", "trl", self.rows), settings=self.settings)


class TrlLevers:
    """The doctor's levers on a TRL trainer. Roll-backs load the weights of a saved checkpoint and empty the optimizer's
    moments; the step counter goes on, since TRL's loop cannot be turned back from inside."""

    def __init__(self, trainer: Any, optimizer: Any, scheduler: Any, control: Any) -> None:
        self.trainer, self.optimizer, self.scheduler, self.control = trainer, optimizer, scheduler, control
        self._rates = list(scheduler.base_lrs)
        self._beta, self._low, self._high = trainer.beta, trainer.epsilon_low, trainer.epsilon_high

    def turn(self, setting: Setting) -> None:
        """The scheduler's base rates, beta (where TRL holds a reference to measure KL to) and both epsilons."""
        self.scheduler.base_lrs = [rate * setting.learning_rate for rate in self._rates]
        for group, rate in zip(self.optimizer.param_groups, self.scheduler.base_lrs):
            group["lr"] = min(group["lr"], rate)
        if self._beta or getattr(self.trainer, "ref_model", None) is not None:
            self.trainer.beta = max(self._beta * setting.beta, setting.beta_at_least)
        self.trainer.epsilon_low = self._low * setting.clip
        self.trainer.epsilon_high = self._high * setting.clip

    def roll_back(self, step: int) -> str | None:
        """To the newest checkpoint-N in output_dir with N <= step."""
        folders = Path(self.trainer.args.output_dir).glob("checkpoint-*")
        early = [(int(p.name.rpartition("-")[2]), p) for p in folders if p.name.rpartition("-")[2].isdigit()]
        early = [(n, p) for n, p in early if n <= step]
        if not early:
            return None
        folder = max(early)[1]
        self._load(folder)
        self.optimizer.state.clear()
        return folder.name

    def _load(self, folder: Path) -> None:
        from safetensors.torch import load_file

        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        adapter = folder / "adapter_model.safetensors"
        if adapter.is_file():
            from peft import set_peft_model_state_dict

            set_peft_model_state_dict(model, load_file(adapter))
            return
        for file in sorted(folder.glob("model*.safetensors")):
            model.load_state_dict(load_file(file), strict=False)

    def stop(self, reason: str) -> None:
        self.control.should_training_stop = True


class DoctorCallback(TrainerCallback):
    """Watches a TRL run, and acts on it where asked to.

    Args:
        mode: "watch" prints; "act" also turns learning rate, beta and epsilon, goes back to a saved checkpoint, stops.
        every: log rows between two full examinations.
        max_actions: bound on what "act" does.
        language: "en" or "zh".

    Attributes:
        trainer: set it before training in mode "act".
        doctor, actor: after training has begun.
        findings: what was said, in order.

    Raises:
        ConfigError: TRL is not installed.
    """

    def __init__(
        self,
        mode: Literal["watch", "shadow", "act"] = "watch",
        every: int = 10,
        max_actions: int = 5,
        language: str = "en",
    ) -> None:
        if importlib.util.find_spec("trl") is None:
            raise ConfigError(
                Text("DoctorCallback needs TRL, which is not installed", "DoctorCallback 需要 TRL，但没有安装"),
                "pip install trl",
            )
        self.mode, self.every, self.max_actions, self.language = mode, every, max_actions, language
        self.trainer: Any = None
        self.doctor: TrlDoctor | None = None
        self.actor: Actor | None = None
        self.findings: list[Finding] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Read the run's settings; prepare the levers.

        Raises:
            ConfigError: mode "act" without a trainer.
        """
        self.doctor = TrlDoctor(args.to_dict(), every=self.every)
        if self.mode == "act":
            if self.trainer is None:
                raise ConfigError(
                    Text('mode = "act" needs the trainer', 'mode = "act" 需要训练器'),
                    Text(
                        "set callback.trainer = trainer before trainer.train()",
                        "请在 trainer.train() 之前设 callback.trainer = trainer",
                    ),
                )
            levers = TrlLevers(self.trainer, kwargs["optimizer"], kwargs["lr_scheduler"], control)
            self.actor = Actor(levers, self.max_actions)
        elif self.mode == "shadow":
            self.actor = Actor(ShadowLevers(), self.max_actions)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Feed one row of the log; the summary at the end of training is no row."""
        if self.doctor is None or not logs or "train_runtime" in logs or not state.is_world_process_zero:
            return
        row = {**logs, "step": state.global_step}
        new = self.doctor.observe(row)
        self.findings += new
        for finding in new:
            if finding.severity != "info":
                self._say(finding)
        if self.actor is not None:
            action = self.actor.consider(row, new)
            if action is not None:
                would = "would have: " if self.mode == "shadow" else ""
                print(would + action.text(), file=sys.stderr, flush=True)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """doctor.json, in the schema of `anygrpo doctor --json`, with what was done."""
        if self.doctor is None or not state.is_world_process_zero:
            return
        actions = [] if self.actor is None else [a.as_dict() for a in self.actor.actions]
        report = as_json(self.doctor.diagnosis(), self.language) | {"actions": actions}
        folder = Path(args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "doctor.json").write_text(json.dumps(report, ensure_ascii=False, indent=2), encoding="utf-8")

    def _say(self, finding: Finding) -> None:
        assert self.doctor is not None
        told = tell(finding, self.doctor.run(), self.language)
        text = f"doctor: {told.title} [{finding.rule}, {finding.certainty}] {told.evidence} -> {told.prescription}"
        print(text, file=sys.stderr, flush=True)
