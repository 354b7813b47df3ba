"""The Chinese of what `--help` prints, by its English; a family's command brings its own (`CHINESE` of its module)."""

from __future__ import annotations

CHINESE: dict[str, str] = {
    "Settings of the recipe can be given as flags: --algorithm.clip-high 0.28": (
        "配方中的设置可以作为参数给出：--algorithm.clip-high 0.28"
    ),
    "show this help message and exit": "显示本帮助并退出",
    "a .toml file": ".toml 文件",
    "continue this run from its newest complete checkpoint": "从最近的完整检查点继续这次运行",
    "print the resolved recipe and what follows from it": "打印完整的配方及其推论",
    "with --dry-run: every value, its source, and a forecast": ("与 --dry-run 同用：每个值、来源，以及预测"),
    (
        "with --dry-run: forecast hours, memory and disk from this many real steps of each stage at leas"
        "t (3 with --all; 0: none)"
    ): ("与 --dry-run 同用：每个阶段至少实际运行这么多步，据此预测时间、内存和磁盘（与 --all 同用时为 3；0：不试跑）"),
    "the live doctor's mode": "实时诊断器的模式",
    "no progress line": "不显示进度行",
    (
        "Reads a TRL GRPOConfig script (never run), a TRL YAML, a verl command line, shell script or YAM"
        "L of overrides; writes a recipe with the same meaning, and says what has no counterpart. What f"
        "ollows the script's name are its own arguments. Ours: --out FILE (adopted.toml), --force (overw"
        "rite), --lang zh, --json."
    ): (
        "读取 TRL 的 GRPOConfig 脚本（不会执行）、TRL 的 YAML、verl 命令行"
        "、shell 脚本或 YAML 覆盖项；写出含义相同的配方，并说明哪些没有对应项。脚本名之后是它"
        "自己的参数。本命令的参数：--out FILE（adopted.toml）、--force（覆盖"
        "）、--lang zh、--json。"
    ),
    "RUN is a run folder, a checkpoint, an export or a base model. What is there already is kept.": (
        "RUN 是运行文件夹、检查点、导出或基座模型。已有的结果会保留。"
    ),
    "a run folder, a checkpoint, an export, or a base model": "运行文件夹、检查点、导出或基座模型",
    "files or folders, or a text itself": "文件或文件夹，或一段文字",
    "a file (.jsonl) or a folder, as the family writes": "文件（.jsonl）或文件夹，视策略所属的族而定",
    "of a run: best, last, or a step": "对运行文件夹：best、last 或某一步",
    "draw from this seed; without it the policy's likeliest output": ("用这个种子抽样；不给则取策略最可能的输出"),
    "answers a prompt, where they are drawn (language)": "抽样时每个提示的回答数（语言）",
    "results a picture with drawn gates (restoration)": "抽取门时每张图片的结果数（复原）",
    "what a selector picks from, as the queries in INPUT": "选择器挑选的候选，与 INPUT 中的查询同类",
    "a query's nearest so many candidates (selection; 0: all)": "每个查询最近的这么多候选（选择；0：全部）",
    "of a selector's texts: minilm, or as in training": "选择器的文本：minilm，或与训练时相同",
    "run Python code that lies in an export's folder": "运行导出文件夹中的 Python 代码",
    "default as in the recipe": "默认与配方相同",
    "no progress": "不显示进度",
    "print the rows": "打印各行",
    "What was written is loaded by the plain library in a process of its own and compared.": (
        "写出的内容由原库在独立进程中加载并比对。"
    ),
    "a run folder, or a checkpoint's folder": "运行文件夹，或检查点文件夹",
    "best, last, or a step; default best": "best、last 或某一步；默认 best",
    "default: export/ in the run folder": "默认：运行文件夹中的 export/",
    "the family's word for a format (language: peft, merged, full)": (
        "策略所属的族对格式的称呼（语言：peft、merged、full）"
    ),
    "where the policy computes meanwhile; default as in the recipe": ("期间策略在哪个设备上计算；默认与配方相同"),
    "Of two (before, after) also the gain on the same prompts. Intervals are over prompts.": (
        "给两个（训练前、训练后）时还给出相同提示上的增益。区间针对提示。"
    ),
    "a run folder, a checkpoint, an export or a base model": "运行文件夹、检查点、导出或基座模型",
    "measure on this recipe's task; default: the first run's": "用这个配方的任务来测；默认：第一个运行的任务",
    "held-out prompts of a text task": "文本任务的留出集提示",
    "at most so many": "最多这么多个",
    "also so many drawn answers: mean, best, pass@k": "另外抽样这么多个回答：平均、最好、pass@k",
    "pass@k of the samples; default 1 and all of them": "样本的 pass@k；默认 1 和全部",
    "keep a row a prompt here, a file for each RUN": "在此保存每个提示一行，每个 RUN 一个文件",
    "diagnose a training log: trainer_state.json, console output, event files, tables, run folders": (
        "诊断训练日志：trainer_state.json、控制台输出、事件文件、表格、运行文件夹"
    ),
    "log file or folder, or - for standard input; several are also compared": (
        "日志文件或文件夹，- 表示标准输入；给多个时还会互相比较"
    ),
    "settings of the run: recipe, TRL arguments, verl YAML, shell line": (
        "运行的设置：配方、TRL 参数、verl YAML、shell 行"
    ),
    "name a column, as reward=my/key, or give a map that --save-map wrote": (
        "指定列名，如 reward=my/key，或给出 --save-map 写下的对应表"
    ),
    "write which column was read as what, for --map": "写下哪一列被读作什么，供 --map 使用",
    "list every rule, in causal order, and stop": "按因果顺序列出所有规则，然后停止",
    "list the experiment that decides each suspicion": "列出判定每个怀疑的实验",
    "run those experiments on a run folder of ours": "在本工具的运行文件夹上做这些实验",
    "with --confirm: try this rule, suspected or not": ("与 --confirm 同用：试这条规则，不论是否被怀疑"),
    "with --confirm: seconds for each experiment, roughly": "与 --confirm 同用：每个实验大约的秒数",
    "read what was written: completions tables, rollout dumps": ("阅读写下的内容：completions 表、rollout 转储"),
    "watch one growing log until it ends or Ctrl-C": "跟踪一个正在增长的日志，直到结束或 Ctrl-C",
    "with --follow: run this once for each serious finding": ("与 --follow 同用：每个严重发现运行一次这条命令"),
    "with --follow: seconds between looks": "与 --follow 同用：两次查看之间的秒数",
    "machine form on standard output": "在标准输出上给出机器可读的形式",
    "write a self-contained report": "写一份自足的报告",
    "language of the sentences": "句子的语言",
    "exit 5 on a finding of at least this severity": "有不低于此严重程度的发现时，退出码为 5",
    "what a few logged numbers prove: group size, clamp, beta, live groups": (
        "由几个记录的数值证明什么：组大小、钳制、beta、有信号的组"
    ),
    "a JSON object of numbers, or a note: prose, tables, bullets, shell exports; beside or instead of flags": (
        "数值的 JSON 对象，或一段笔记：文字、表格、列表、shell 导出；可代替参数或与之同用"
    ),
    "stated normaliser: zscore, rank, centred": "所声明的归一化：zscore、rank、centred",
    "write the argument as a page": "把论证写成一页",
    "a choice or a kind of them, a preset, a reward, a metric, a setting": ("选项或选项的种类、预设、奖励、指标、设置"),
    "as JSON": "输出 JSON",
    "a table (its name, or the end of it), or a key; none: all tables": (
        "表（其名称，或名称的末段）或键；不给：所有表"
    ),
    "a JSON schema of recipes, for editors": "配方的 JSON schema，供编辑器使用",
    "Probes the recipe's real policy, data and rewards. Exit code 5 on a serious fault.": (
        "用配方真实的策略、数据和奖励做检查。有严重问题时退出码为 5。"
    ),
    "a .toml file, or path.py:factory of a policy of your own; settings as flags": (
        ".toml 文件，或你自己的策略 path.py:factory；设置作为参数给出"
    ),
    "the task that a policy of your own is tried on": "用来试你自己策略的任务",
    "prompts to try it on, where there is no task": "没有任务时用来试的提示",
    "which stage; default: the first that samples": "哪个阶段；默认：第一个抽样的阶段",
    "KL that the recommended rate moves in one update": "推荐的学习率在一次更新中移动的 KL",
    "time for the probes, roughly": "检查的大致用时",
    "Pairs the held-out answers of two runs, prompt by prompt, and compares their weights.": (
        "逐个提示配对两次运行的留出集回答，并比较权重。"
    ),
    "two run folders; the runs of two recipes over their seeds (A/* B/*); or logs of any framework": (
        "两个运行文件夹；两个配方各自多个种子的运行（A/* B/*）；或任何框架的日志"
    ),
    "logs that are seeds of one arm; else they are found by wandb groups, settings, names or folders": (
        "属于同一组的多个种子的日志；否则按 wandb 组、设置、名称或文件夹归组"
    ),
    "a rate, as .578: no runs needed": "比例，如 .578：不需要运行",
    "the rate to compare it with": "与之比较的比例",
    "questions that each rate was measured on": "每个比例所依据的题数",
    "A with another seed: what chance alone changes": "换了种子的 A：仅由偶然造成的变化",
    "checkpoints to compare": "要比较的检查点",
    "run folder": "运行文件夹",
    "where to write; default: report.html in the run folder": ("写到哪里；默认：运行文件夹中的 report.html"),
    "Checks each checkpoint's SHA-256, the recipe and the logs. Exit code 3: something is damaged.": (
        "检查每个检查点的 SHA-256、配方和日志。退出码 3：有内容损坏。"
    ),
    "run folder, or a checkpoint's folder": "运行文件夹，或检查点文件夹",
    "Runs a few steps undisturbed, then under each blow, in a folder that goes afterwards.": (
        "先不受干扰地运行几步，再在每次打击下运行；所用文件夹事后删除。"
    ),
    "steps of each stage (more where they are quick)": "每个阶段的步数（步很快时会更多）",
    "begin no blow after this time": "超过这个时间后不再开始新的打击",
    "Continues where it stopped. The same command started twice works on one study together.": (
        "从停下的地方继续。同一命令启动两次，会共同完成同一项搜索。"
    ),
    "a .toml file; its settings can be given as flags too": ".toml 文件；其中的设置也可作为参数给出",
    "a .toml file: what to vary": ".toml 文件：要变动什么",
    "default: sweeps/<recipe's name>": "默认：sweeps/<配方名>",
    "Runs both sides in alternation, in separate processes, and checks that they did the same work.": (
        "在独立进程中交替运行两方，并核对它们做了同样的工作。"
    ),
    "a language model's step beside TRL's GRPOTrainer": ("语言模型的一步，与 TRL 的 GRPOTrainer 并排"),
    "what the machine's matmul and copy rates allow": "机器的矩阵乘法和复制速度所允许的下限",
    "seconds of training until held-out accuracy, beside TRL with the recipe's own settings": (
        "训练到某个留出集正确率所需的秒数，与使用配方同样设置的 TRL 并排"
    ),
    "short, long, reply, gpu-short, gpu-long, ragged, reason, tiny, tiny-ragged; may be repeated": (
        "short、long、reply、gpu-short、gpu-long、ragged、reason、tiny、tiny-ragged；可重复给出"
    ),
    "alternations": "交替次数",
    "optimizer steps in a process; the first is warm-up": "每个进程的优化器步数；第一步为预热",
    "CPU threads of both sides": "双方的 CPU 线程数",
    "do not compare the gradients of one step": "不比较一步的梯度",
    "rows in one of the peer's micro-batches, in place of the case's": "对方一个微批的行数，代替用例中的值",
    "oneDNN's fp32_precision for the peer": "对方的 oneDNN fp32_precision",
    "in place of the case's: a folder, Hub name or shape:NAME (random weights)": (
        "代替用例中的模型：文件夹、Hub 名称或 shape:NAME（随机权重）"
    ),
    "prompts a step, in place of the case's": "每步的提示数，代替用例中的值",
    "a language model's adapters by GRPO": "用 GRPO 训练语言模型的适配器",
    "steps between two looks at the held-out answers": "两次查看留出集回答之间的步数",
    "the accuracy whose seconds are told": "要报告到达秒数的正确率",
    "an MCP server: doctor, autopsy, compare and check for assistants": (
        "供助手使用的 MCP 服务器：doctor、autopsy、compare 和 check"
    ),
    "name the tools and stop": "列出工具名称，然后停止",
    "show program's version number and exit": "显示版本号并退出",
    "show tracebacks": "显示完整的错误追踪",
}
