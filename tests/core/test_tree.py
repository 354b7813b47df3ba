"""Trees of samples: where their leaves are, and back there."""

import torch

from anygrpo.core.tree import Shared, devices, placed


def test_leaves_go_back_to_the_kind_of_device_they_came_from():
    there = torch.zeros(2, device="meta")
    shared = Shared({"a": there, "b": torch.ones(1)}, torch.zeros(2, dtype=torch.int64, device="meta"))
    tree = {"x": there, "inner": {"y": torch.ones(3), "words": ["a"]}, "prompt": shared}
    where = devices(tree)
    assert where == {
        "x": "meta",
        "inner": {"y": "cpu", "words": None},
        "prompt": {"values": {"a": "meta", "b": "cpu"}, "index": "meta"},
    }
    host = Shared({"a": torch.zeros(2), "b": torch.ones(1)}, torch.zeros(2, dtype=torch.int64))
    back = placed({"x": torch.zeros(2), "inner": tree["inner"], "prompt": host}, where, torch.device("meta"))
    assert devices(back) == where
    assert back["inner"]["words"] == ["a"]
