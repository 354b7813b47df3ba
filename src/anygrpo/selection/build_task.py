"""Selection tasks: which items, put before a frozen model, make it answer well."""

from __future__ import annotations

from typing import Any

from anygrpo.selection.task import SelectionTask

__all__ = ["SelectionTask", "build"]


def build(config: Any, seed: int) -> SelectionTask:
    """The task of a section of one of this family's kinds."""
    if config.kind == "digits_vqa":
        from anygrpo.selection.digits import DigitsVQA

        return DigitsVQA(config, seed)
    if config.kind == "demonstrations":
        from anygrpo.selection.demonstrations import Demonstrations

        return Demonstrations(config, seed)
    if config.kind == "composition":
        from anygrpo.selection.composition import Composition

        return Composition(config, seed)
    if config.kind == "judged":
        from anygrpo.selection.judged import Judged

        return Judged(config, seed)
    from anygrpo.selection.stored_task import StoredCandidates

    return StoredCandidates(config, seed)
