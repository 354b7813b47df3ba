"""A language model as judge, against a real local server."""

import json
import time

import pytest
from endpoints import serving

from anygrpo.errors import ConfigError, DataError
from anygrpo.scoring.build import build_rewards
from anygrpo.scoring.judge import Judge, filled, reader
from anygrpo.scoring.reward import Rows
from anygrpo.scoring.scorer import Scorer
from anygrpo.scoring.settings import JudgeRewardConfig
from anygrpo.scoring.workers import Pool


def judge(url, columns=frozenset({"answer"}), **settings):
    config = JudgeRewardConfig(kind="judge", url=url, model="m", **({"retries": 0} | settings))
    return Judge.build(config, "judge", set(columns))


def rows(*outputs, prompt="Write a poem."):
    return Rows([prompt] * len(outputs), list(outputs), {"answer": ["gold"] * len(outputs)})


def by_length(request, n):
    text = request["messages"][-1]["content"]
    answer = text.partition("=== answer\n")[2].partition("\n===")[0]
    return json.dumps({"reason": "counted", "score": len(answer)})


def test_scores_are_brought_to_one():
    with serving(by_length) as fake:
        made = judge(fake.url)
        assert made.start(rows("abcde", "", "abcdefghij"))() == [0.5, 0.0, 1.0]
        assert judge(fake.url, low=-10.0, high=10.0).start(rows("abcde"))() == [0.75]
        made.close()
    assert "Write a poem." in fake.seen[0]["messages"][0]["content"]
    assert fake.seen[0]["response_format"]["json_schema"]["schema"]["required"] == ["reason", "score"]


def test_a_template_of_ones_own(tmp_path):
    path = tmp_path / "judge.txt"
    path.write_text('Gold {answer}, given {output}. Of {prompt}. Say {"score": 1} and {other}.')
    with serving(lambda request, n: '{"score": 3}') as fake:
        made = judge(fake.url, template=str(path), system="be strict")
        assert made.start(rows("x {answer} {prompt}"))() == [0.3]
    assert fake.seen[0]["messages"] == [
        {"role": "system", "content": "be strict"},
        {
            "role": "user",
            "content": 'Gold gold, given x {answer} {prompt}. Of Write a poem.. Say {"score": 1} and {other}.',
        },
    ]


def test_conversations_are_shown_by_role():
    chat = [{"role": "system", "content": "short"}, {"role": "user", "content": "hi"}]
    assert filled("{prompt}", {"prompt": chat}) == "system: short\nuser: hi"
    assert filled("{prompt}", {"prompt": chat[1:]}) == "hi"
    assert filled("{a}{b}", {"a": {"x": 1}}) == '{"x": 1}{b}'


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I like it", "no JSON object"),
        ('{"score": 11}', "not on the scale"),
        ('{"score": -1}', "not on the scale"),
        ('{"score": true}', "the score is 'True'"),
        ('{"score": NaN}', "the score is 'nan'"),
        ('{"verdict": 3}', "the score is 'None'"),
        ('{"score": "high"}', "could not convert"),
    ],
)
def test_a_reply_that_is_no_verdict_is_invalid_never_0(reply, reason):
    with serving(lambda request, n: reply) as fake:
        (outcome,) = judge(fake.url).start(rows("x"))()
    assert isinstance(outcome, str)
    assert reason in outcome


def test_numbers_alone_are_read_too():
    read = reader(0.0, 10.0)
    assert [read(t) for t in ("7", " 2.5\n", '{"score": "4"}', 'so: {"score": 1} no, {"score": 2}')] == [
        0.7,
        0.25,
        0.4,
        0.2,
    ]


def test_a_slow_judge_costs_its_own_samples():
    def reply(request, n):
        if "slow" in request["messages"][0]["content"]:
            time.sleep(2)
        return '{"score": 5}'

    with serving(reply) as fake:
        outcomes = judge(fake.url, timeout=0.8).start(rows("a", "slow", "b"))()
    assert outcomes[0] == outcomes[2] == 0.5
    assert outcomes[1].startswith("timed out after 0.8 s")


def test_the_cache_spares_questions_in_a_later_run(tmp_path):
    with serving(by_length) as fake:
        for _ in range(2):
            made = judge(fake.url, cache=str(tmp_path / "judge.sqlite"), prompt_price=1000.0)
            assert made.start(rows("abc", "abc", "ab"))() == [0.3, 0.3, 0.2]
            usage = made.client.usage
            made.close()
        assert len(fake.seen) == 2
    assert (usage.questions, usage.cached, usage.cost) == (2, 2, 0.0)


def test_a_judge_that_was_never_there_ends_the_run_early():
    with Pool(1) as pool:
        config = JudgeRewardConfig(kind="judge", url="http://127.0.0.1:9/v1", model="m", retries=0)
        scorer = Scorer(build_rewards([config], pool, set()))
        scores = scorer.score([{"prompt": "p"}], [["a", "b"]])
        assert "ConnectionRefusedError" in scores.reasons[0, 0]
        with pytest.raises(Exception, match="raised on all of the first 2 outputs"):
            scorer.check()
        scorer.close()


def test_what_cannot_work_is_refused(tmp_path):
    with pytest.raises(DataError, match="no template"):
        judge("http://x", template="none.txt")
    (tmp_path / "t.txt").write_text("how good?")
    with pytest.raises(ConfigError, match=r"lacks \{output\}"):
        judge("http://x", template=str(tmp_path / "t.txt"))
    (tmp_path / "t.txt").write_text("{output} {anwser}")
    with pytest.raises(ConfigError, match="did you mean 'answer'"):
        judge("http://x", template=str(tmp_path / "t.txt"))
    with pytest.raises(ConfigError, match="scale"):
        judge("http://x", low=3.0, high=3.0)
