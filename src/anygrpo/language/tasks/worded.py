"""Products in words. Training and evaluation have phrasings of their own: what is learnt must hold for others."""

from __future__ import annotations

TRAINING = (
    "A crate holds {a} bolts. How many bolts are in {b} crates?",
    "Each of {b} shelves carries {a} books. How many books are there?",
    "A machine fills {a} bottles an hour. How many does it fill in {b} hours?",
    "There are {b} rows of {a} seats. How many seats are there in all?",
    "One ticket costs {a} cents. What do {b} tickets cost, in cents?",
    "A farmer plants {b} fields with {a} trees each. How many trees does he plant?",
    "A printer prints {a} pages a day. How many pages does it print in {b} days?",
    "{b} trucks bring {a} bricks each. How many bricks do they bring together?",
    "Every box weighs {a} grams. What is the weight of {b} boxes, in grams?",
    "A school buys {b} packs with {a} sheets of paper in each. How many sheets is that?",
    "A wheel turns {a} times a minute. How often does it turn in {b} minutes?",
    "Anna walks {a} steps to school. How many steps are {b} such walks?",
)

HELD_OUT = (
    "In a theatre, {b} people each paid {a} coins. How many coins were paid?",
    "How many stamps do {b} albums hold, if {a} stamps fit into one?",
    "A pump moves {a} litres in a minute; it runs for {b} minutes. How many litres does it move?",
    "Tom reads {a} words of a page, and all of the {b} pages are alike. How many words does he read?",
    "What is the sum of {b} bills, when every bill is over {a} dollars?",
    "{a} passengers fit into a train. The train is full on {b} days. How many passengers travel?",
)


def problem(a: int, b: int, number: int, held_out: bool) -> str:
    """The product of a and b as a question; `number` picks the phrasing."""
    phrasings = HELD_OUT if held_out else TRAINING
    return phrasings[number % len(phrasings)].format(a=a, b=b)


def with_calculator(tool: str, a: int, b: int) -> list[dict[str, object]]:
    """A demonstration: the call, what the tool says, the answer."""
    call = {"type": "function", "function": {"name": tool, "arguments": {"expression": f"{a} * {b}"}}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": tool, "content": str(a * b)},
        {"role": "assistant", "content": f"The answer is {a * b}."},
    ]
