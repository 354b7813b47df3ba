"""Texts of hostile programs from their pieces, for the attack suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable

Attack = Callable[[Iterable[str]], str]
"""(names of functions and classes that the tests call) -> Python."""


def defined(body: str, before: str = "") -> Attack:
    """An answer that defines every name with this body; `*a, **k` are its arguments. `before` stands once before it."""

    def build(names: Iterable[str]) -> str:
        pieces = [before]
        for name in names:
            if name[:1].isupper():
                inner = f"    __init__ = lambda s, *a, **k: None\n    def __getattr__(s, name): return _{name}\n"
                pieces.append(f"def _{name}(*a, **k):\n{_indented(body)}\nclass {name}:\n{inner}")
            else:
                pieces.append(f"def {name}(*a, **k):\n{_indented(body)}")
        return "\n".join(pieces) + "\n"

    return build


def written(text: str) -> Attack:
    """This text, whatever the tests call."""
    return lambda names: text


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.strip("\n").splitlines())
