"""A mistake to learn from: a tool that gives back what it is given, and a reward that reads the tool's words too.

    anygrpo check recipes/llm/hackable.toml

names it before the first step; in training the doctor does (eval/environment_paid).
"""


def note(text: str) -> str:
    """Writes a note down.

    Args:
        text: the note.
    """
    return f"noted: {text}"


def heard(prompts: list, outputs: list, messages: list, answer: list, **columns: list) -> list:
    """1 where the right number was said, by whomever: a policy that notes all numbers down is paid."""
    said = [" ".join(m["content"] for m in one) for one in messages]
    return [float(str(right) in text.replace(".", " ").replace(",", " ").split()) for text, right in zip(said, answer)]
