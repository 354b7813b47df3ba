"""Rewards of texts: built-in functions, users' functions in worker processes, and what puts them together.

`builtin` and `mathematics` hold functions of the same form as a user's; `scorer` runs several with weights; `code` runs
answers in a sandbox. `anygrpo check` tries a task's reward on answers whose worth is known.
"""
