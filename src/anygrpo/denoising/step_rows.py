"""One step of each sampler as the coefficients of its Gaussian: a row of `transitions.Table`."""

from __future__ import annotations

import math


def x0(prediction: str, alpha: float) -> tuple[float, float]:
    """x0 = a x + b out for a prediction type at cumulative alpha."""
    root, noise = math.sqrt(alpha), math.sqrt(1 - alpha)
    if prediction == "epsilon":
        return 1 / root, -noise / root
    return {"sample": (0.0, 1.0), "v_prediction": (root, -noise)}[prediction]  # alpha may be 0 here


def eps(prediction: str, alpha: float) -> tuple[float, float]:
    """noise = a x + b out for a prediction type at cumulative alpha."""
    root, noise = math.sqrt(alpha), math.sqrt(1 - alpha)
    if prediction == "sample":
        return 1 / noise, -root / noise
    return {"epsilon": (0.0, 1.0), "v_prediction": (noise, root)}[prediction]


def ddpm_row(prediction: str, alpha: float, before: float, variance: float) -> dict[str, float]:
    """Posterior q(x_{t-1} | x_t, x0), equation 7 of DDPM (arXiv 2006.11239)."""
    step = alpha / before
    a, b = x0(prediction, alpha)
    return {
        "x0_x": a,
        "x0_out": b,
        "w_x0": math.sqrt(before) * (1 - step) / (1 - alpha),
        "w_x": math.sqrt(step) * (1 - before) / (1 - alpha),
        "std": math.sqrt(variance),
    }


def ddim_row(prediction: str, alpha: float, before: float, eta: float) -> dict[str, float]:
    """Equation 12 and 16 of DDIM (arXiv 2010.02502)."""
    variance = (1 - before) / (1 - alpha) * (1 - alpha / before)
    std = eta * math.sqrt(max(variance, 0.0))
    direction = math.sqrt(max(1 - before - std**2, 0.0))
    a, b = x0(prediction, alpha)
    c, d = eps(prediction, alpha)
    row = {"x0_x": a, "x0_out": b, "w_x0": math.sqrt(before), "std": std}
    return row | {"w_x": direction * c, "w_out": direction * d}


def flow_row(s: float, after: float, sigma: float) -> dict[str, float]:
    """The SDE with the marginals of dx = v ds (Flow-GRPO, arXiv 2505.05470; DanceGRPO, arXiv 2505.07818), dt < 0."""
    dt = after - s
    half = sigma**2 / (2 * s)
    return {"w_x": 1 + half * dt, "w_out": (1 + half * (1 - s)) * dt, "std": sigma * math.sqrt(-dt)}


def cps_row(s: float, after: float, level: float) -> dict[str, float]:
    """Coefficient-preserving sampling (Flow-CPS, arXiv 2509.05952): c = after sin(level pi / 2) of the next level's
    noise is drawn anew, sqrt(after^2 - c^2) of it kept, so that the latent has exactly the next level's noise."""
    std = after * math.sin(level * math.pi / 2)
    kept = math.sqrt(max(after**2 - std**2, 0.0))
    return {"w_x": (1 - after) + kept, "w_out": -(1 - after) * s + kept * (1 - s), "std": std}
