"""examples/turns/maze.py: what is seen, what is paid, who arrived; demonstrations keep to open ways."""

import pytest

from examples.turns import maze

ROW = {"start": [0, 0], "goal": [2, 1], "walls": [[1, 0], [3, 3], [0, 3]]}
WAY = ["north", "east", "east"]


def said(words):
    return [{"role": "assistant", "content": word, "by": "policy"} for word in words]


def played(words):
    game, seen = maze.Maze(), []
    game.reset(ROW)
    for message in said(words):
        seen.append(game.step([message], []))
    return seen


def test_what_is_seen_is_where_the_goal_lies_and_which_ways_are_open():
    assert maze.Maze().reset(ROW) == [{"role": "user", "content": "goal 2 east 1 north ways north"}]
    seen = [one[0] for one in played(WAY)]
    assert seen == ["goal 2 east ways north south east", "goal 1 east ways north east west", None]


@pytest.mark.parametrize(
    ("words", "reward"), [(WAY, 0.75), (["west", *WAY], 0.625), (["east"] * 5 + WAY, 0.125), (["", *WAY], 0.625)]
)
def test_whoever_arrives_is_paid_the_turns_that_are_left(words, reward):
    """A step into a wall, out of the maze or of no meaning is a turn on the spot; the eighth earns an eighth."""
    seen = played(words)
    assert [one[1:] for one in seen] == [(0.0, False)] * (len(words) - 1) + [(reward, True)]


def test_arriving_is_the_policys_own_steps():
    theirs = [{"role": "user", "content": "north", "by": "environment"}]
    table = {name: [value] * 3 for name, value in ROW.items()}
    messages = [said(WAY), [*said(WAY[:2]), *theirs], [*theirs, *said(WAY[1:])]]
    assert maze.arrived([""] * 3, [""] * 3, messages=messages, **table) == [1.0, 0.0, 0.0]


def test_rows_are_apart_and_their_walks_open_short_of_the_limit():
    made = maze.rows(60)
    assert len({row["prompt"] for row in made}) == 60
    for row in made:
        walls = {tuple(wall) for wall in row["walls"]}
        assert maze.distance(row["start"], row["goal"], walls) == row["shortest"]
        steps = [m["content"] for m in row["demonstration"] if m["role"] == "assistant"]
        assert row["demonstration"][-1]["role"] == "assistant"
        assert 1 <= len(steps) <= maze.TURNS
        place = row["start"]
        for step in steps:
            place = maze.open_ways(place, walls)[step]


def test_distance_goes_around_walls_and_knows_of_none():
    assert maze.distance((0, 0), (2, 0), {(1, 0)}) == 4
    assert maze.distance((0, 0), (3, 3), {(0, 1), (1, 0)}) is None
