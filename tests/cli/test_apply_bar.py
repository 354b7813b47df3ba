"""The bar of `anygrpo apply`."""

from anygrpo.cli import apply


def test_the_bar_tells_how_far_and_how_long(capsys, monkeypatch):
    """Rows that lay there cost no time: 4 of 10 at second 100, 6 at 110: 5 s a row, 4 rows left."""
    at = iter([100.0, 110.0, 130.0])
    monkeypatch.setattr(apply.time, "monotonic", lambda: next(at))
    bar = apply._Bar()
    for done in (4, 6, 10):
        bar(done, 10)
    first, second, last = capsys.readouterr().err.split("\r")[1:]
    assert first.rstrip() == "[############------------------] 4/10"
    assert second.rstrip() == "[##################------------] 6/10  0:00:20 left"
    assert last.rstrip() == f"[{'#' * 30}] 10/10"
