"""A TRL training script, read as a tree and never run: settings, model, data, rewards, and the rewards' own source."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from anygrpo.errors import DataError
from anygrpo.integrations.adopt.moving import Found, Unknown
from anygrpo.integrations.adopt.source import Source, last_name
from anygrpo.spoken import Text

_POSITIONAL = ("model", "reward_funcs", "args", "train_dataset", "eval_dataset")
_FROM_PEFT = {
    "r": "lora_r", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout", "target_modules": "lora_target_modules",
    "use_rslora": "use_rslora", "use_dora": "use_dora", "modules_to_save": "lora_modules_to_save",
}  # fmt: skip
_PEFT = {"lora_r": 8, "lora_alpha": 8, "lora_dropout": 0.0}
"""LoraConfig's own defaults, where a script builds one."""
_BUILDERS = ("json", "csv", "parquet", "arrow", "text")
_LOADERS = ("load_dataset", "load_from_disk", "from_json", "from_csv", "from_parquet")
_CHANGES = (
    "map",
    "filter",
    "select",
    "shuffle",
    "rename_column",
    "rename_columns",
    "remove_columns",
    "train_test_split",
)


def read(path: Path) -> Found:
    """Raises: DataError: the file cannot be read, is not Python, or trains nothing with GRPO."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(
            Text(
                f"{path} is not a Python file that can be read: {type(error).__name__}: {error}",
                f"{path} 不是可读的 Python 文件：{type(error).__name__}: {error}",
            )
        ) from None
    return _Script(path, text, tree).found()


class _Script(Source):
    def __init__(self, path: Path, text: str, tree: ast.Module) -> None:
        super().__init__(path, text, tree)
        self.out = Found("trl")

    def found(self) -> Found:
        trainers = [c for name, calls in self.calls.items() if name.endswith("GRPOTrainer") for c in calls]
        configs = [c for name, calls in self.calls.items() if name.endswith("GRPOConfig") for c in calls]
        if not trainers and not configs:
            raise DataError(
                Text(
                    f"{self.path} has neither a GRPOTrainer nor a GRPOConfig",
                    f"{self.path} 中既没有 GRPOTrainer 也没有 GRPOConfig",
                ),
                Text("give the script that trains", "请给出训练用的脚本"),
            )
        given = dict(zip(_POSITIONAL, trainers[0].args)) if trainers else {}
        given |= {k.arg: k.value for k in (trainers[0].keywords if trainers else []) if k.arg}
        self._config(given.get("args"), configs)
        self._model(given.get("model"))
        self._adapter(given.get("peft_config"))
        self._data(given.get("train_dataset"))
        self._rewards(given.get("reward_funcs"))
        for key in ("tools", "environment_factory", "rollout_func", "callbacks", "reward_processing_classes"):
            if key in given and not (isinstance(given[key], ast.Constant) and given[key].value is None):  # type: ignore[attr-defined]
                self.out.given[key] = Unknown(ast.unparse(given[key]))
        return self.out

    # -- settings

    def _config(self, args: ast.expr | None, configs: list[ast.Call]) -> None:
        name = args.id if isinstance(args, ast.Name) else None
        node = self.assigned.get(name, args) if name else args
        call = node if isinstance(node, ast.Call) and last_name(node.func).endswith("GRPOConfig") else None
        if call is None and configs:
            call = configs[0]
        if call is None:
            self.out.notes.append(
                "the script reads its settings from the command line: give them after its name "
                "(anygrpo adopt script.py --learning_rate 1e-5 ...)"
            )
        else:
            if len(configs) > 1:
                self.out.notes.append(f"{len(configs)} GRPOConfigs: that of line {call.lineno} was taken")
            self._keywords(call)
        for key, value in self.attributes.get(name or "", {}).items():
            self.out.given[key] = self.value(value)

    def _keywords(self, call: ast.Call) -> None:
        for keyword in call.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                self.out.given[keyword.arg] = value
            elif isinstance(value, dict):
                self.out.given |= value
            else:
                self.out.notes.append(
                    f"**{Unknown(ast.unparse(keyword.value)).source} is known only when the script runs"
                )

    def _model(self, node: ast.expr | None) -> None:
        value = self.value(node) if node is not None else None
        if isinstance(node, ast.Name) and isinstance(self.assigned.get(node.id), ast.Call):
            call = self.assigned[node.id]
            assert isinstance(call, ast.Call)
            if last_name(call.func) in ("from_pretrained", "get_peft_model") and call.args:
                value = self.value(call.args[0])
        if isinstance(value, str) or (isinstance(value, Unknown) and not value.source.endswith(".model_name_or_path")):
            self.out.given["model_name_or_path"] = value

    def _adapter(self, node: ast.expr | None) -> None:
        node = self.assigned.get(node.id, node) if isinstance(node, ast.Name) else node
        if not isinstance(node, ast.Call) or last_name(node.func) != "LoraConfig":
            return  # none, or made of the command line's --use_peft
        self.out.given |= {"use_peft": True, **_PEFT}
        for keyword in node.keywords:
            if keyword.arg in _FROM_PEFT:
                self.out.given[_FROM_PEFT[keyword.arg]] = self.value(keyword.value)
            elif keyword.arg not in ("task_type", "bias", None):
                self.out.given[f"LoraConfig.{keyword.arg}"] = self.value(keyword.value)

    # -- data

    def _data(self, node: ast.expr | None) -> None:
        source, changes = self._source(node, [])
        if source is None and len(self.calls.get("load_dataset", [])) == 1:
            source = self.calls["load_dataset"][0]
        if source is None:
            self.out.notes.append(
                "where the prompts come from could not be read: write them to train.jsonl "
                "(dataset.to_json('train.jsonl'), after all your changes)"
            )
            return
        words = [self.value(a) for a in source.args]
        named = {k.arg: self.value(k.value) for k in source.keywords if k.arg}
        names = ("path", "name")
        data = dict(zip(names, words)) | named
        if last_name(source.func) != "load_dataset":  # from_json(file), load_from_disk(folder)
            data = {"path": next(iter([*words, *named.values()]), None)}
        if data.get("path") in _BUILDERS and "data_files" in data:
            files = data["data_files"]
            files = files.get(data.get("split", "train"), Unknown(str(files))) if isinstance(files, dict) else files
            data["path"] = files[0] if isinstance(files, list) and len(files) == 1 else files
            data.pop("split", None)
        if isinstance(data.get("path"), list):
            self.out.notes.append(f"the data are several files ({data['path']}): put them in one folder")
        if isinstance(data.get("path"), str):
            self.out.data["path"] = data["path"]
        elif isinstance(unknown := data.get("path"), Unknown):
            self.out.notes.append(f"the data set is {unknown.source}: known only when the script runs")
        for ours, theirs in (("subset", "name"), ("split", "split")):
            if isinstance(data.get(theirs), str):
                self.out.data[ours] = data[theirs]
        for change in reversed(changes):
            self._change(change)

    def _source(self, node: ast.expr | None, changes: list[ast.Call], depth: int = 0) -> tuple[Any, list[ast.Call]]:
        """(the call of load_dataset behind an expression, what is done to its rows)."""
        while node is not None and depth < 50:
            depth += 1
            if isinstance(node, ast.Name):
                node = self.assigned.get(node.id)
            elif isinstance(node, ast.Subscript):
                node = node.value
            elif isinstance(node, ast.IfExp):
                node = node.body
            elif isinstance(node, ast.Call) and last_name(node.func) in _LOADERS:
                return node, changes
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
                changes.append(node)
                node = node.func.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.defined:
                node = next((r.value for r in ast.walk(self.defined[node.func.id]) if isinstance(r, ast.Return)), None)
            else:
                return None, changes
        return None, changes

    def _change(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Attribute)
        name, first = call.func.attr, call.args[0] if call.args else None
        if name in ("shuffle", "train_test_split", "remove_columns"):
            return
        if name == "rename_column" and len(call.args) == 2 and self.value(call.args[1]) == "prompt":
            self.out.data["prompt_column"] = self.value(call.args[0])
            return
        made = self.defined.get(first.id) if isinstance(first, ast.Name) else first
        if name == "map" and made is not None and self._conversation(made):
            return
        said = Unknown(ast.unparse(first)).source if first is not None else ""
        said = said if len(said) <= 60 else said[:57] + "..."
        self.out.notes.append(
            f"rows are changed by .{name}({said}) in the script: do so once, save them "
            "(dataset.to_json('train.jsonl')) and set task.path, unless the changes do not matter"
        )

    def _conversation(self, made: ast.AST) -> bool:
        """A map that puts one column into messages, maybe after a system message: the recipe can say that."""
        for node in ast.walk(made):
            if not isinstance(node, ast.List) or not node.elts:
                continue
            turns = [t for t in (_turn(e) for e in node.elts) if t is not None]
            if len(turns) != len(node.elts) or [role for role, _ in turns] not in (["user"], ["system", "user"]):
                continue
            column = turns[-1][1]
            if not (isinstance(column, ast.Subscript) and isinstance(column.slice, ast.Constant)):
                continue
            system = self.value(turns[0][1]) if len(turns) == 2 else None
            if isinstance(system, Unknown):
                continue
            self.out.data["prompt_column"] = column.slice.value
            if system is not None:
                self.out.data["system"] = system
            return True
        return False

    # -- rewards

    def _rewards(self, node: ast.expr | None) -> None:
        node = self.assigned.get(node.id, node) if isinstance(node, ast.Name) and node.id in self.assigned else node
        nodes = node.elts if isinstance(node, ast.List | ast.Tuple) else [] if node is None else [node]
        own: list[str] = []
        for each in nodes:
            self._reward(each, own)
        if own:
            self.out.reward_file = self.extracted(own)

    def _reward(self, node: ast.expr, own: list[str]) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.out.rewards.append(("model", node.value))
            return
        name = last_name(node.func) if isinstance(node, ast.Call) else last_name(node)
        if name in self.defined and not isinstance(node, ast.Call):
            own.append(name)
            self.out.rewards.append(("function", name))
        elif self.imported.get(name, ("", None))[0].startswith("trl"):
            said = name
            if isinstance(node, ast.Call):
                arguments = [self.value(a) for a in node.args]
                said += repr(tuple(arguments + [self.value(k.value) for k in node.keywords]))
            self.out.rewards.append(("trl", said))
        elif name in self.imported and (file := self._beside(self.imported[name][0])) is not None:
            self.out.rewards.append(("file", f"{file}:{self.imported[name][0].rpartition('.')[2]}"))
        else:
            self.out.rewards.append(("elsewhere", ast.unparse(node)))

    def _beside(self, dotted: str) -> str | None:
        """The file of a module that lies beside the script."""
        file = self.path.parent / (dotted.rpartition(".")[0].lstrip(".").replace(".", "/") + ".py")
        return str(file) if file.is_file() else None


def _turn(node: ast.expr) -> tuple[str, ast.expr] | None:
    if not isinstance(node, ast.Dict):
        return None
    entries = {k.value: v for k, v in zip(node.keys, node.values) if isinstance(k, ast.Constant)}
    role = entries.get("role")
    if not isinstance(role, ast.Constant) or "content" not in entries:
        return None
    return str(role.value), entries["content"]
