"""Metrics of conversations (turns, tools, environments) and of routers."""

from __future__ import annotations

from anygrpo.metrics.metric import Metric
from anygrpo.spoken import Text

METRICS: tuple[Metric, ...] = (
    Metric(
        "loss/router",
        "1",
        Text("Load-balancing loss of the routers, with its weight.", "路由的负载均衡损失（已乘权重）。"),
        "router_loss x mean over rows and layers of E sum_e f_e P_e",
        Text(
            "near router_loss x experts chosen at a token, its value at equal use; above it for rows of few tokens",
            "接近 router_loss x 每个词元所选专家数，即均匀使用时的值；词元少的行会高于它",
        ),
        Text(
            "Rises: few experts do the work; raise policy.router_loss.",
            "上升：只有少数专家在工作；可调大 policy.router_loss。",
        ),
    ),
    Metric(
        "turns/mean",
        "turns",
        Text("Turns of the model in a sample, mean.", "每个样本中模型发言的平均轮数。"),
        "assistant messages / samples",
        Text("between 1 and max_turns", "介于 1 与 max_turns 之间"),
        Text(
            "At max_turns: conversations are cut; raise it, or reward an early end. At 1 with tools: no call is made.",
            "等于 max_turns：对话被截断，应调大或奖励尽早结束；有工具却为 1：模型没有调用工具。",
        ),
        low=1.0,
    ),
    Metric(
        "eval/turns",
        "turns",
        Text("Turns of the model in a held-out conversation, mean.", "留出对话中模型发言的平均轮数。"),
        "assistant messages / held-out prompts",
        Text("as few as the task needs", "任务所需的最少轮数"),
        Text("Rises without a higher reward: a cost for each turn is missing.", "上升而奖励不变：缺少对每轮的代价。"),
        low=1.0,
    ),
    Metric(
        "eval/environment_paid",
        "1",
        Text(
            "Share of held-out conversations in which the words of tools or the environment alone earn something, the "
            "policy saying nothing.",
            "留出对话中，策略不发言而仅凭工具或环境的话就能得分的比例。",
        ),
        "conversations with reward(their words) > reward(nothing) / conversations tried (8 at most)",
        Text("0", "0"),
        Text(
            'The policy can be paid for what it did not write: judge str(output), or messages with by = "policy".',
            '策略可因并非自己写的内容得分：只评 str(output)，或 by = "policy" 的消息。',
        ),
        low=0.0,
        high=0.0,
    ),
    Metric(
        "tools/calls",
        "calls",
        Text(
            "Calls of tools in a sample, mean; those that could not be read are among them.",
            "每个样本的平均工具调用次数（包括无法解析的调用）。",
        ),
        "calls / samples",
        Text("above 0 where the task needs a tool", "任务需要工具时大于 0"),
        Text(
            "0: the model does not know the format of a call; begin with a supervised stage that shows some.",
            "为 0：模型不会调用格式；先用监督阶段示范。",
        ),
        low=0.0,
    ),
    Metric(
        "tools/failed",
        "1",
        Text(
            "Share of calls that failed: unreadable, unknown, wrong arguments, an exception, too slow. The "
            "model is told.",
            "失败调用的比例：无法解析、未知工具、参数错误、异常或超时；错误文本会返回给模型。",
        ),
        "failed calls / calls",
        Text("falls in training, below 0.1", "应随训练下降，低于 0.1"),
        Text(
            "Look at the messages of failed calls in samples/step_*.jsonl: the tool's docstring, or the tool, "
            "is at fault.",
            "查看 samples/step_*.jsonl 中失败调用的消息：可能是文档字符串或工具本身有误。",
        ),
        low=0.0,
        high=1.0,
    ),
)
