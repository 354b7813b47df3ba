"""beta, read off the loss."""

from __future__ import annotations

from anygrpo.doctor.columns import Columns
from anygrpo.doctor.evidence.progress import loss_kl_slope
from anygrpo.doctor.rule import Result, finding, rule
from anygrpo.doctor.synthetic import Case, healthy
from anygrpo.spoken import Text

WORDS = {
    "title": Text("beta, read off the loss", "从损失读出的 beta"),
    "evidence": Text(
        "loss = {beta} x KL in {count} rows: beta = {beta}.", "{count} 行里 损失 = {beta} x KL：beta = {beta}。"
    ),
    "evidence:autopsy": Text(
        "loss - policy loss = {rest}; divided by KL = {kl} that is {ratio}. Within the rounding of the printed"
        " numbers: beta = {beta}.",
        "总损失 - 策略损失 = {rest}；除以 KL = {kl} 得 {ratio}。在打印精度之内：beta = {beta}。",
    ),
    "evidence:agrees": Text(
        "loss - policy loss = {rest}; divided by KL = {kl} that is {ratio}: the stated beta = {beta} within the"
        " rounding of the printed numbers.",
        "总损失 - 策略损失 = {rest}；除以 KL = {kl} 得 {ratio}：在打印精度之内就是所写的 beta = {beta}。",
    ),
    "evidence:differs": Text(
        "loss - policy loss = {rest}; divided by KL = {kl} that is {ratio}, but the stated beta is {beta}:"
        " another term is in the loss, or another beta in force.",
        "总损失 - 策略损失 = {rest}；除以 KL = {kl} 得 {ratio}，而所写的 beta 是"
        " {beta}：损失里还有别的项，或实际生效的是另一个 beta。",
    ),
    "prescription:differs": Text(
        "Compare the resolved configuration with what was written.", "把解析后的配置与所写的配置对比。"
    ),
    "cause": Text(
        "With advantages of mean 0 the value of the loss is the KL term alone.",
        "优势均值为 0 时，损失的数值只剩 KL 项。",
    ),
    "prescription": Text("", ""),
    "principle": Text("mean advantage 0 leaves loss = beta KL", "优势均值为 0，剩下 loss = beta KL"),
    "unlike": Text(
        "token-normalised losses with unequal lengths, where it does not hold", "长度不等的token归一化损失：此式不成立"
    ),
}


@rule(
    stage="facts",
    order=40,
    certainty="certain",
    needs=("loss/total", "kl/reference"),
)
def beta_from_loss(run: Columns) -> Result:
    beta = loss_kl_slope(run)
    if beta is None:
        return None
    loss = run.get("loss/total")
    assert loss
    return finding("beta_from_loss", "info", loss.rows, beta=float(f"{beta:.3g}"), count=len(loss))


def fires() -> Case:
    return ([row | {"loss": 0.04 * row["kl"]} for row in healthy()], {})


def silent() -> Case:
    return ([row | {"loss": 0.04 * row["kl"] + row["reward"]} for row in healthy()], {})
