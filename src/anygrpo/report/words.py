"""The report's own words; the doctor brings its sentences."""

from __future__ import annotations

from anygrpo.spoken import Text

WORDS = {
    "title": Text("Run", "训练运行"),
    "actions": Text("What the doctor did", "诊断器采取的措施"),
    "held_out": Text("Held out", "留出集"),
    "comma": Text(", ", "，"),
    "change": Text(
        "; a prompt's reward changed by {mean}{error} ({prompts} prompts; ±: standard error over prompts)",
        "；逐提示的奖励变化 {mean}{error}（{prompts} 个提示；± 为提示间的标准误）",
    ),
    "range": Text(" (95%: {low} to {high})", "（95%：{low} 至 {high}）"),
    "best": Text(" (best {best})", "（最高 {best}）"),
    "accuracy": Text("accuracy", "正确率"),
    "reward": Text("reward", "奖励"),
    "turn": Text("turned", "调整"),
    "roll_back": Text("rolled back", "回退"),
    "stop": Text("stopped", "停止"),
    "relax": Text("took a turn back", "撤销一次调整"),
    "step": Text("step", "步"),
    "at": Text(" (step {step})", "（第 {step} 步）"),
    "answers": Text("Held-out answers, greedy, with their reward", "留出提示的贪心回答及其奖励"),
    "unpaired": Text(
        "The first and the last evaluation asked other prompts: their answers are not set side by side.",
        "首次与末次评估的提示不同，回答不作并列比较。",
    ),
    "samples": Text("Samples, with their reward", "样本及其奖励"),
    "sample": Text("sample", "样本"),
    "answer": Text("answer", "回答"),
    "prompt": Text("prompt", "提示"),
    "before": Text("before", "之前"),
    "after": Text("after", "之后"),
    "pictures": Text("Pictures", "图片"),
    "input": Text("degraded", "退化图"),
    "drag": Text("drag the lower right corner of the left part", "拖动左侧部分的右下角"),
    "settings": Text("Settings and machine", "设置与机器"),
    "config": Text("Resolved recipe", "解析后的配方"),
    "command": Text("Commands", "命令"),
    "environment": Text("Environment", "环境"),
    "by_policy": Text("the policy", "策略所写"),
    "by_environment": Text("put in by tools or the environment", "由工具或环境插入"),
}
