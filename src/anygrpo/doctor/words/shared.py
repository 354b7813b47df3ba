"""The doctor's shared sentences; each rule's own stand in its file. {braces} are a finding's facts."""

from __future__ import annotations

from anygrpo.spoken import Text

AROUND = {
    "rows": Text("(rows {rows})", "（第 {rows} 行）"),
    "steps": Text("(steps {rows})", "（第 {rows} 步）"),
    "follows": Text("It follows from: {rule}.", "这是后果，原因是：{rule}。"),
}

VERDICTS = {
    "serious": Text("Something is seriously wrong", "训练有严重问题"),
    "warning": Text("Worth a change before the next run", "下一次训练前值得改动"),
    "no_objection": Text("No objection from what was logged", "就已记录的内容而言，没有异议"),
    "cannot_tell": Text("This log cannot tell", "这份日志无法下结论"),
}

ADVICE = {
    "set": Text("Set `{name}` to {to}.", "将 `{name}` 设为 {to}。"),
    "set_from": Text("Set `{name}` to {to} (now {now}).", "将 `{name}` 设为 {to}（现在是 {now}）。"),
    "scale": Text("Multiply `{name}` by {factor}.", "将 `{name}` 乘以 {factor}。"),
    "check": Text("Look at `{name}`.", "检查 `{name}`。"),
}

LABELS = {
    "inferred": Text("read from the numbers", "由数值推断"),
    "open": Text("not decided", "未作判断"),
    "unknown": Text("columns that nothing was made of", "没有用到的列"),
    "also": Text("Notes", "说明"),
    "certain": Text("certain", "确定"),
    "likely": Text("likely", "很可能"),
    "ask": Text("ask", "需再测"),
    "info": Text("note", "提示"),
    "warning": Text("warning", "警告"),
    "serious": Text("serious", "严重"),
    "rows": Text("rows", "行"),
    "source": Text("Principle", "依据"),
    "cause": Text("Usual causes", "常见原因"),
    "do": Text("What to do", "怎么做"),
    "unlike": Text("Not to be confused with", "不要与此混淆"),
    "why": Text("Why", "为什么"),
    "not_observable": Text("Not observable in this log", "这份日志里看不到的量"),
    "not_observable_note": Text(
        "Nothing was logged about these, so nothing is said of them.", "没有记录，所以不作任何判断（也不等于健康）。"
    ),
    "findings": Text("Findings", "诊断"),
    "too_little": Text(
        "Too little was logged of what the rules read; what is missing stands below.",
        "规则要读的量记录得太少；缺少的列在下面。",
    ),
    "flat": Text("Did not change", "没有变化的量"),
    "notes": Text("Notes from reading", "读取时的说明"),
    "curves": Text("Curves", "曲线"),
    "format": Text("format", "格式"),
    "framework": Text("framework", "框架"),
    "report": Text("Training report", "训练报告"),
    "decisive": Text("decisive rows", "关键行"),
}

SEEN_AS = {
    "reward_mean": Text("mean reward", "平均奖励"),
    "reward_std": Text("spread of rewards in a group", "组内奖励标准差"),
    "zero_variance_groups": Text("groups without spread", "奖励无差异的组"),
    "advantage": Text("advantages", "优势"),
    "ratio_mean": Text("mean ratio", "平均概率比"),
    "log_ratio_max": Text("largest log-ratio", "最大对数概率比"),
    "clip_fraction": Text("clipped share", "裁剪比例"),
    "kl_to_reference": Text("KL to the reference policy", "与参考策略的 KL"),
    "policy_kl_new_old": Text("KL of new to old policy", "新旧策略间的 KL"),
    "train_infer_mismatch": Text("sampler against training pass", "采样与训练两次计算的差异"),
    "entropy": Text("entropy", "熵"),
    "policy_loss": Text("policy loss", "策略损失"),
    "grad_norm": Text("gradient norm", "梯度范数"),
    "lr": Text("learning rate", "学习率"),
    "response_length": Text("length of samples", "样本长度"),
    "truncation_fraction": Text("truncated share", "截断比例"),
    "staleness": Text("age of samples in updates", "样本落后的更新次数"),
    "held_out_evaluation": Text("held-out evaluation", "留出集评估"),
}
"""What "not observable" is said of, for a reader; JSON keeps the names of the metric map."""

AUTOPSY = {
    "claims": Text("Claim by claim", "逐条判断"),
    "unused": Text("Not used", "未使用"),
    "title": Text("Autopsy", "数值剖析"),
    "inferred": Text("Inferred", "推断"),
    "cannot": Text("What these numbers cannot say", "这些数字说明不了的"),
    "group_size": Text("group size", "组大小"),
    "clamp": Text("clamp on the log-ratio", "对数概率比的钳制"),
    "beta": Text("beta", "beta"),
    "live_groups": Text("live groups", "有信号的组数（组内奖励有差异）"),
    "unknown": Text("not determined", "无法确定"),
    "given": Text("Given", "给定"),
    "first": Text("First mend", "先修"),
}

CANNOT = {
    "which_mismatch": Text(
        "Which of the scoring faults it is: dropout or another mode, a sum over all dimensions, the ratio to "
        "the reference. A probe decides: old against new log-probs in the same mode, before any update.",
        "究竟是哪一种打分故障：dropout 或模式不同、对所有维求和、比值取到了参考策略。一个探针能定："
        "在任何更新之前，用同样的模式比较新旧对数概率。",
    ),
    "kl_share": Text(
        "Whether the KL term dominates: its share of the loss's value says nothing. Compare the gradients of "
        "the two terms.",
        "KL 项是否占主导：它占损失数值的份额说明不了什么。要比较两项的梯度。",
    ),
    "no_queries": Text(
        "How many groups are live: the number of groups is missing (--queries).",
        "有多少组有效：缺少组的数量（--queries）。",
    ),
    "two_readings": Text(
        "How many groups are live: this std may be a mean over groups or pooled over samples; --advantage-max "
        "tells them apart.",
        "有多少组有效：这个标准差可能是各组平均，也可能是合并计算；给出 --advantage-max 就能区分。",
    ),
    "why_dead": Text(
        "Why the other groups are dead: too hard, too easy, or made equal by a filter such as top-k by reward. "
        "Count the live groups after each filter stage.",
        "其余的组为什么无效：太难、太容易，还是被过滤（例如按奖励取前 k）弄成一样。请记录每一级过滤之后的有效组数。",
    ),
    "group_size": Text("The group size: no bound is reached exactly.", "组大小：没有恰好达到的界。"),
    "within_or_between": Text(
        "Whether the reward's std is within groups or between prompts: only the first drives learning.",
        "奖励的标准差是组内的还是提示之间的：只有前者推动学习。",
    ),
}
