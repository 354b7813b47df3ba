"""Policies and tasks of the user's own, from a Python file."""

from anygrpo.families import Family, Kind

FAMILY = Family(
    "python",
    policies={"python": Kind("anygrpo.core.settings:PythonPolicyConfig", "anygrpo.core.user_policy:build", "any")},
    tasks={"python": Kind("anygrpo.core.settings:PythonTask", "anygrpo.core.user_task:build", "any")},
)
