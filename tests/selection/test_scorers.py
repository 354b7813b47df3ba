"""Scorers: a judgement is asked once, kept, within its budget; a failure is a reason and never an exception."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pytest

from anygrpo.errors import ConfigError, DataError
from anygrpo.selection.scorer_settings import ModelScorerConfig, PythonScorerConfig
from anygrpo.selection.scorers.build import build
from anygrpo.selection.scorers.python import FromPython
from anygrpo.selection.scorers.scorer import Kept, Shown, parts_of
from anygrpo.selection.scorers.template import Template, compared, plain, truths

QUERY = {"id": "q", "question": "2 + 2?", "answer": "4"}
ROWS = ({"question": "1 + 1?", "answer": "2"}, {"question": "3 + 3?", "answer": "6"})


class Counting:
    """A scorer that counts what it is asked: the double that shows what is kept."""

    identity = "counting"

    def __init__(self):
        self.seen = []

    def judge(self, shown):
        self.seen += shown
        return [{"score": float(len(s.demonstrations))} if s.demonstrations else "nothing to go by" for s in shown]


def shown(*rows, query=QUERY):
    return Shown(query, rows)


def test_equal_questions_are_asked_once_and_kept_on_disk(tmp_path):
    scorer = Counting()
    kept = Kept(scorer, tmp_path / "j.sqlite")
    assert kept.judge([shown(*ROWS), shown(ROWS[0]), shown(*ROWS)]) == [{"score": 2.0}, {"score": 1.0}, {"score": 2.0}]
    assert (len(scorer.seen), kept.asked, kept.computed) == (2, 3, 2)
    again = Kept(Counting(), tmp_path / "j.sqlite")
    assert again.judge([shown(*ROWS)]) == [{"score": 2.0}]
    assert again.computed == 0
    assert again.judge([shown(*reversed(ROWS))]) == [{"score": 2.0}]  # another order is another question
    assert again.computed == 1


def test_reasons_are_not_kept(tmp_path):
    scorer = Counting()
    kept = Kept(scorer, tmp_path / "j.sqlite")
    for _ in range(2):
        assert kept.judge([shown()]) == ["nothing to go by"]
    assert len(scorer.seen) == 2


def test_a_budget_ends_with_a_reason_and_counts_new_calls_alone(tmp_path):
    kept = Kept(Counting(), tmp_path / "j.sqlite", budget=1)
    first, second = kept.judge([shown(ROWS[0]), shown(ROWS[1])])
    assert (first, second) == ({"score": 1.0}, "the budget of 1 scorer calls is spent")
    assert kept.judge([shown(ROWS[0])]) == [{"score": 1.0}]


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (0.5, {"score": 0.5}),
        (True, {"correct": 1.0, "score": 1.0}),
        ({"correct": 0, "gt_prob": 0.25}, {"correct": 0.0, "gt_prob": 0.25}),
        (None, "the judge returned None"),
        (float("nan"), "the judge returned nan"),
        ({"score": np.float32(0.5)}, {"score": 0.5}),
        ({"score": float("nan")}, "the judge returned {'score': nan}"),
        ({"score": "good"}, "the judge returned {'score': 'good'}, and numbers by name are wanted"),
        ("good", "the judge returned 'good', and a number is wanted"),
        ({}, "the judge returned {}, and numbers by name are wanted"),
        ({"vqa_correct": 1, "acc_score": 0.5, "seconds": 3}, {"correct": 1.0, "accuracy_score": 0.5, "seconds": 3.0}),
        ({"correct": 0.5}, "the judge returned correct = 0.5, and 0 or 1 is wanted (in grades: accuracy_score)"),
        ({"gt_prob": 2}, "the judge returned gt_prob = 2, and a number from 0 to 1 is wanted"),
        (
            {"hits": 1},
            "the judge returned hits, and of its parts one is wanted: correct, accuracy_score, gt_prob, relevance, "
            "beam_score, info_score, score",
        ),
    ],
)
def test_what_a_judge_may_return(value, parts):
    assert parts_of(value) == parts


def test_what_is_asked_again_of_a_judge_that_worked_does_not_end_the_run(tmp_path):
    file = tmp_path / "judge.py"
    file.write_text("def judge(query, demonstrations):\n    return 1.0 if len(demonstrations) == 1 else 1 / 0\n")
    config = PythonScorerConfig(kind="python", function=f"{file}:judge")
    asked = [shown(ROWS[0]), shown(*ROWS), shown(*reversed(ROWS))]
    first = Kept(FromPython(config), tmp_path / "j.sqlite").judge(asked)
    again = Kept(FromPython(config), tmp_path / "j.sqlite").judge(asked)  # the two that failed alone are asked
    assert first == again
    assert [isinstance(one, dict) for one in again] == [True, False, False]


# --- a function of one's own ---------------------------------------------------------------------------------

OWN = """
calls = []
def judge(query, demonstrations):
    calls.append(1)
    if query["id"] == "bad":
        raise RuntimeError("no such picture")
    if query["id"] == "shaky" and len(calls) % 2:
        raise OSError("busy")
    return sum(d["answer"] == query["answer"] for d in demonstrations)
"""


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_function_judges_and_its_exceptions_are_reasons(tmp_path, concurrency):
    (tmp_path / "own.py").write_text(OWN)
    config = PythonScorerConfig(kind="python", function=f"{tmp_path}/own.py:judge", concurrency=concurrency, retries=1)
    scorer = build(config, tmp_path / "j.sqlite")
    one, bad = scorer.judge([shown({"answer": "4"}, *ROWS), shown(query={"id": "bad"})])
    assert one == {"score": 1.0}
    assert bad == "the judge failed: RuntimeError: no such picture (own.py:6)"


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_async_function_is_awaited_on_one_loop_and_side_by_side(tmp_path, concurrency):
    (tmp_path / "own.py").write_text(
        "import asyncio\nLOOPS, NOW, MOST = set(), [0], [0]\n\n\n"
        "async def judge(query, demonstrations):\n"
        "    LOOPS.add(id(asyncio.get_running_loop()))\n    NOW[0] += 1\n    MOST[0] = max(MOST[0], NOW[0])\n"
        "    await asyncio.sleep(0.02)\n    NOW[0] -= 1\n"
        "    assert query['id'] != 'bad'\n    return {'correct': 1, 'score': MOST[0]}\n"
    )
    scorer = FromPython(PythonScorerConfig(kind="python", function=f"{tmp_path}/own.py:judge", concurrency=concurrency))
    found = scorer.judge([Shown({"id": "bad"}, ()), *(Shown({"id": i}, ()) for i in range(7))])
    found += scorer.judge([Shown({"id": 9}, ())])
    assert "AssertionError" in found[0]
    assert all(one["correct"] == 1 for one in found[1:])
    assert (max(one["score"] for one in found[1:]) > 1) == (concurrency > 1)
    assert len(scorer.function.func.__globals__["LOOPS"]) == 1


def test_a_function_of_lists_is_called_for_a_batch_at_a_time(tmp_path):
    (tmp_path / "own.py").write_text(
        "SIZES = []\n\n\ndef judge(queries, demonstrations):\n    SIZES.append(len(queries))\n"
        "    if any(q['id'] == 'bad' for q in queries):\n        raise ValueError('lost')\n"
        "    return [len(rows) for rows in demonstrations] + [0] * any(q['id'] == 'long' for q in queries)\n"
    )
    scorer = FromPython(PythonScorerConfig(kind="python", function=f"{tmp_path}/own.py:judge", batch=2))
    shown = [Shown({"id": n}, tuple({"id": j} for j in range(i))) for i, n in enumerate(["a", "b", "bad", "c", "long"])]
    found = scorer.judge(shown)
    assert found[:2] == [{"score": 0.0}, {"score": 1.0}]
    assert all("ValueError: lost" in one for one in found[2:4])
    assert "2 judgements for 1 queries" in found[4]
    assert scorer.function.func.__globals__["SIZES"] == [2, 2, 1]


def test_a_call_that_fails_is_tried_again(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    config = PythonScorerConfig(kind="python", function=f"{tmp_path}/own.py:judge", retries=1)
    assert build(config, tmp_path / "j.sqlite").judge([shown(query={"id": "shaky", "answer": "4"})]) == [{"score": 0.0}]


def test_a_changed_function_is_asked_again(tmp_path):
    config = PythonScorerConfig(kind="python", function=f"{tmp_path}/own.py:judge")
    for value in (1, 2):
        (tmp_path / "own.py").write_text(f"def judge(query, demonstrations):\n    return {value}\n")
        assert build(config, tmp_path / "j.sqlite").judge([shown()]) == [{"score": float(value)}]


# --- prompts and answers -------------------------------------------------------------------------------------


def test_the_built_in_prompt_never_shows_the_answer():
    text, images = Template(None, "Add.", ()).render(shown(*ROWS))
    assert text == ("Add.\n\nQuestion: 1 + 1?\nAnswer: 2\n\nQuestion: 3 + 3?\nAnswer: 6\n\nQuestion: 2 + 2?\nAnswer:")
    assert images == []


def test_pictures_stand_where_the_template_marks_them(tmp_path):
    query = {"id": "q", "question": "What?", "image": "q.png", "answer": "cat"}
    text, images = Template(None, "", ()).render(
        Shown(query, ({"image": "d.png", "question": "Who?", "answer": "dog"},))
    )
    assert images == ["d.png", "q.png"]
    assert text == "<image>\nQuestion: Who?\nAnswer: dog\n\n<image>\nQuestion: What?\nAnswer:"
    (tmp_path / "t.txt").write_text("<image>{{ query.question }}")
    with pytest.raises(ConfigError, match=r"1 <image> marks for 2 pictures"):
        Template(str(tmp_path / "t.txt"), "", ()).render(Shown(query, ({"image": "d.png"},)))


def test_a_template_file_is_read_in_a_sandbox_and_names_what_is_missing(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text(
        "{% for d in demonstrations %}{{ d.question }}{{ d.answer }};{% endfor %}"
        "{{ labels|join('/') }} {{ query.question }}"
    )
    assert Template(str(path), "", ("a", "b")).render(shown(ROWS[0]))[0] == "1 + 1?2;a/b 2 + 2?"
    path.write_text("{{ query.answer }}")
    with pytest.raises(ConfigError, match="answer"):
        Template(str(path), "", ()).render(shown())
    path.write_text("{{ query.__class__.__mro__ }}")
    with pytest.raises(ConfigError):
        Template(str(path), "", ()).render(shown())
    path.write_text("{% for %}")
    with pytest.raises(ConfigError, match="is no Jinja template"):
        Template(str(path), "", ())
    with pytest.raises(DataError, match="no prompt template"):
        Template(str(tmp_path / "none"), "", ())


def test_answers_are_compared_as_their_measure_says():
    assert plain(" The Cat.\nQuestion:") == "cat"
    assert compared("A cat!", {"answer": "cat"}, "exact") == {"correct": 1.0, "accuracy_score": 1.0}
    assert compared("it is a cat", {"answer": "cat"}, "exact")["correct"] == 0.0
    assert compared("it is a cat", {"answer": "cat"}, "contains")["correct"] == 1.0
    assert compared("concatenate", {"answer": "cat"}, "contains")["correct"] == 0.0
    annotators = {"answers": ["cat", "cat", "dog", "cow"]}
    assert compared("cat", annotators, "vqa") == {"correct": 1.0, "accuracy_score": pytest.approx(2 / 3)}
    assert compared("dog", annotators, "vqa")["correct"] == 0.0
    assert truths(annotators)[0] == "cat"
    with pytest.raises(DataError, match="no answer, label or answers"):
        truths({"id": "q"})


# --- a frozen language model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["labels", "answer", "generation"])
def test_smollm2_copies_what_it_is_shown(tmp_path, method):
    """After four examples whose answer is one word, it says that word; after four with another, it does not."""
    query = {"id": "q", "question": "Say the word.", "answer": "blue"}
    right, wrong = ({"question": "Say the word.", "answer": word} for word in ("blue", "green"))
    config = ModelScorerConfig(kind="model", method=method, labels=("blue", "green"), max_new_tokens=3, batch_size=2)
    scorer = build(config, tmp_path / f"{method}.sqlite")
    good, bad, short = scorer.judge(
        [Shown(query, (right,) * 4), Shown(query, (wrong,) * 4), Shown(query, (right,) * 3)]
    )
    assert (good["correct"], bad["correct"], short["correct"]) == (1.0, 0.0, 1.0)
    if method != "generation":
        assert good["gt_prob"] > 0.5 > bad["gt_prob"]


def test_padding_and_batches_change_no_likelihood(tmp_path):
    rows = [shown(*ROWS[:k]) for k in (0, 1, 2)]
    found = []
    for batch in (1, 3):
        config = ModelScorerConfig(kind="model", method="answer", batch_size=batch)
        found.append([one["gt_prob"] for one in build(config, tmp_path / f"{batch}.sqlite").judge(rows)])
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_labels_that_lack_the_truth_are_a_reason(tmp_path):
    config = ModelScorerConfig(kind="model", labels=("yes", "no"))
    assert "is none of the labels" in build(config, tmp_path / "j.sqlite").judge([shown()])[0]
    with pytest.raises(ConfigError, match="has 0 labels"):
        build(ModelScorerConfig(kind="model"), tmp_path / "k.sqlite").judge([shown()])


# --- an endpoint ---------------------------------------------------------------------------------------------


def test_an_endpoint_answers_with_pictures_and_its_failures_are_reasons(tmp_path):
    pytest.importorskip("anygrpo.scoring.endpoint")
    import base64
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    from anygrpo.selection.scorer_settings import EndpointScorerConfig

    asked = []

    class Server(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            parts = body["messages"][0]["content"]
            text = parts if isinstance(parts, str) else " ".join(p.get("text", "") for p in parts)
            said = "I think: Dog." if "Answer: dog" in text else "who knows"
            reply = json.dumps({"choices": [{"message": {"content": said}}]}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    png = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    (tmp_path / "p.png").write_bytes(png)
    config = EndpointScorerConfig(
        kind="endpoint", url=f"http://127.0.0.1:{server.server_port}/v1", model="m", labels=("cat", "dog"), retries=0
    )
    scorer = build(config, tmp_path / "j.sqlite")
    query = {"id": "q", "question": "What?", "image": str(tmp_path / "p.png"), "answer": "dog"}
    demonstration = {"question": "What?", "image": str(tmp_path / "p.png"), "answer": "dog"}
    good, unsure = scorer.judge([Shown(query, (demonstration,)), Shown(query, ())])
    server.shutdown()
    assert good == {"correct": 1.0, "accuracy_score": 1.0}
    assert unsure == {"correct": 0.0, "accuracy_score": 0.0}  # "who knows" is an answer, and not the right one
    content = max((b["messages"][0]["content"] for b in asked), key=len)
    assert [p["type"] for p in content] == ["image_url", "text", "image_url", "text"]
    assert content[0]["image_url"]["url"].startswith("data:image/png;base64,")
    down = EndpointScorerConfig(kind="endpoint", url="http://127.0.0.1:9/v1", model="m", retries=0, timeout=2)
    assert "the endpoint gave no answer" in build(down, tmp_path / "k.sqlite").judge([Shown(query, ())])[0]


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ '{0.__class__.__mro__}'.format(query) }}",
        "{{ query.__init__.__globals__ }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{{ 1 // 0 }}",
        "{{ query.update({'a': 1}) }}",
        "{{ self._TemplateReference__context.__class__ }}",
    ],
)
def test_a_strangers_template_reaches_nothing(tmp_path, template):
    (tmp_path / "t.jinja").write_text(template)
    with pytest.raises(ConfigError, match=r"t\.jinja"):
        Template(str(tmp_path / "t.jinja"), "i", ()).render(shown(*ROWS))


@pytest.mark.parametrize("held", ["{", "[1]", '{"score": "x"}', "[" * 100_000, 5, None, b"\xff"])
def test_a_row_of_the_file_that_is_no_judgement_is_asked_anew(tmp_path, held):
    scorer, where = Counting(), tmp_path / "j.sqlite"
    kept = Kept(scorer, where)
    kept.judge([shown(*ROWS)])
    kept.close()
    with sqlite3.connect(where) as file:
        file.execute("CREATE TABLE other AS SELECT key FROM judgements")
        file.execute("DROP TABLE judgements")
        file.execute("CREATE TABLE judgements (key TEXT PRIMARY KEY, parts)")
        file.execute("INSERT INTO judgements SELECT key, ? FROM other", (held,))
    assert Kept(scorer, where).judge([shown(*ROWS)]) == [{"score": 2.0}]
    assert len(scorer.seen) == 2


def test_a_file_of_judgements_that_broke_is_named(tmp_path):
    where = tmp_path / "j.sqlite"
    kept = Kept(Counting(), where)
    kept.judge([shown(*ROWS), *(shown(*ROWS, query={"id": i, "question": "x" * 3000}) for i in range(50))])
    kept.close()
    data = bytearray(where.read_bytes())
    data[4096:] = b"\xff" * len(data[4096:])
    where.write_bytes(data)
    with pytest.raises(DataError, match=r"j\.sqlite"):
        Kept(Counting(), where).judge([shown(*ROWS)])
