"""The endpoint client against a real local server: answers, faults, limits, cache and cost."""

import base64
import time

import pytest
from endpoints import serving

from anygrpo.errors import ConfigError, DataError
from anygrpo.scoring.cache import Cache, key_of
from anygrpo.scoring.endpoint import Client, Endpoint, EndpointFailure
from anygrpo.scoring.messages import data_url, json_object, user

ASK = [user("good?")]


def client(url, cache=None, **settings):
    return Client(Endpoint(url, "m", **({"timeout": 5.0, "attempt": 2.0} | settings)), cache)


def test_one_question_and_what_it_cost(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "secret")
    with serving(lambda request, n: "yes") as fake:
        asked = client(fake.url, key_env="JUDGE_KEY", prompt_price=2.0, completion_price=10.0)
        answer = asked.ask(ASK)
    assert (answer.text, answer.prompt_tokens, answer.completion_tokens, answer.cached) == ("yes", 100, 20, False)
    assert fake.seen == [{"model": "m", "messages": [{"role": "user", "content": "good?"}], "temperature": 0.0}]
    assert fake.headers[0]["Authorization"] == "Bearer secret"
    assert fake.headers[0]["path"] == "/v1/chat/completions"
    assert asked.usage.cost == pytest.approx(100 * 2e-6 + 20 * 10e-6)  # prices are for a million tokens
    assert (asked.usage.questions, asked.usage.answered, asked.usage.requests) == (1, 1, 1)


def test_busy_is_tried_again_and_retry_after_is_kept():
    def reply(request, n):
        return (429, {"Retry-After": "0.4"}, {"error": {"message": "slow down"}}) if n == 1 else "fine"

    with serving(reply) as fake:
        began = time.monotonic()
        asked = client(fake.url)
        assert asked.ask(ASK).text == "fine"
        assert time.monotonic() - began >= 0.4
        assert asked.usage.requests == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_our_own_faults_are_not_tried_again(status):
    with serving(lambda request, n: (status, {}, {"error": {"message": "no such model"}})) as fake:
        with pytest.raises(EndpointFailure, match=f"HTTP {status}: no such model") as failure:
            client(fake.url).ask(ASK)
        assert failure.value.lasting
        assert len(fake.seen) == 1


def test_a_server_that_stays_ill_is_given_up():
    with serving(lambda request, n: (503, {"Retry-After": "0"}, b"down")) as fake:
        with pytest.raises(EndpointFailure, match="HTTP 503: down") as failure:
            client(fake.url, retries=2).ask(ASK)
        assert not failure.value.lasting
        assert len(fake.seen) == 3


def test_a_slow_server_times_out_in_time():
    with serving(lambda request, n: time.sleep(1.5) or "late") as fake:
        began = time.monotonic()
        with pytest.raises(EndpointFailure, match=r"timed out after 0\.6 s"):
            client(fake.url, timeout=0.6, attempt=0.6).ask(ASK)
        assert time.monotonic() - began < 1.4


def test_nobody_there():
    with pytest.raises(EndpointFailure, match="ConnectionRefusedError"):
        client("http://127.0.0.1:9", retries=0).ask(ASK)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html>", "not JSON"),
        ({"choices": []}, "without choices"),
        (["x"], "without choices"),
        ({"choices": [{"message": {"content": None, "refusal": "I will not"}}]}, "I will not"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_replies_that_are_none(body, reason):
    with serving(lambda request, n: (200, {}, body)) as fake, pytest.raises(EndpointFailure, match=reason):
        client(fake.url, retries=0).ask(ASK)


def test_an_answer_that_cannot_be_read_is_asked_again_and_never_kept(tmp_path):
    cache = Cache(tmp_path / "c.sqlite")
    with serving(lambda request, n: "hm" if n == 1 else "7") as fake:
        assert client(fake.url, cache).ask(ASK, read=int).value == 7
        assert len(fake.seen) == 2
    with serving(lambda request, n: "hm") as fake, pytest.raises(EndpointFailure, match="cannot be read"):
        client(fake.url, cache, retries=0).ask([user("other")], read=int)


def test_the_cache_holds_across_processes_of_the_same_question(tmp_path):
    with serving(lambda request, n: f"answer {n}") as fake:
        first = client(fake.url, Cache(tmp_path / "c.sqlite"))
        assert first.ask(ASK).text == "answer 1"
        first.close()
        again = client(fake.url, Cache(tmp_path / "c.sqlite"))
        kept = again.ask(ASK)
        assert (kept.text, kept.cached, again.usage.cached, again.usage.requests) == ("answer 1", True, 1, 0)
        assert again.ask([user("another")]).text == "answer 2"
        warmer = client(fake.url, Cache(tmp_path / "c.sqlite"), parameters={"temperature": 1.0})
        assert warmer.ask(ASK).text == "answer 3"


def test_a_cache_that_is_no_database(tmp_path):
    (tmp_path / "c").write_text("this is a text, not a database; long enough to be looked at " * 20)
    with pytest.raises(DataError, match="cannot be used"):
        Cache(tmp_path / "c")


def test_damaged_rows_are_asked_again(tmp_path):
    cache = Cache(tmp_path / "c.sqlite")
    body = {"model": "m", "messages": ASK, "temperature": 0.0}
    cache.put(key_of(body), {"wrong": 1})
    with serving(lambda request, n: "fresh") as fake:
        assert client(fake.url, cache).ask(ASK).text == "fresh"


def test_many_at_once_in_order_bounded_and_equal_ones_once():
    def reply(request, n):
        time.sleep(0.05)
        return request["messages"][0]["content"].upper()

    with serving(reply) as fake:
        asked = client(fake.url, concurrency=3)
        answers = asked.ask_all([[user(t)] for t in "abcdefabc"])
        assert [a.text for a in answers] == list("ABCDEFABC")
        assert len(fake.seen) == 6
        assert fake.most <= 3


def test_failures_among_many_cost_only_themselves():
    def reply(request, n):
        return (400, {}, b"bad") if request["messages"][0]["content"] == "b" else "ok"

    with serving(reply) as fake:
        a, b, c = client(fake.url).ask_all([[user(t)] for t in "abc"])
    assert (a.text, c.text) == ("ok", "ok")
    assert isinstance(b, EndpointFailure)


def test_a_budget_ends_the_questions():
    with serving(lambda request, n: "ok") as fake:
        asked = client(fake.url, prompt_price=10_000.0, budget=1.5, concurrency=1)
        answers = asked.ask_all([[user(str(i))] for i in range(4)])
    assert [isinstance(a, EndpointFailure) for a in answers] == [False, False, True, True]
    assert "budget of 1.5 is spent" in answers[2].reason


def test_requests_a_minute():
    with serving(lambda request, n: "ok") as fake:
        began = time.monotonic()
        client(fake.url, per_minute=300).ask_all([[user(str(i))] for i in range(4)])
        assert time.monotonic() - began >= 0.59  # three gaps of .2 s


def test_a_schema_goes_with_the_question_where_the_server_takes_one():
    schema = {"type": "object", "properties": {"score": {"type": "number"}}}
    with serving(lambda request, n: '{"score": 1}') as fake:
        client(fake.url).ask(ASK, schema)
        client(fake.url, structured="json_object").ask(ASK, schema)
        client(fake.url, structured="none").ask(ASK, schema)
    forms = [request.get("response_format") for request in fake.seen]
    assert forms[0] == {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    assert forms[1:] == [{"type": "json_object"}, None]


def test_pictures_go_as_data_urls(tmp_path):
    png = b"\x89PNG\r\n\x1a\n" + b"0" * 20
    (tmp_path / "a.png").write_bytes(png)
    wanted = "data:image/png;base64," + base64.b64encode(png).decode()
    assert data_url(png) == data_url(tmp_path / "a.png") == wanted
    parts = user("look", png)["content"]
    assert parts == [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": wanted}}]
    with pytest.raises(ValueError, match="no PNG"):
        data_url(b"text")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"score": 3}', {"score": 3}),
        ('Well:\n```json\n{"score": 3}\n```', {"score": 3}),
        ('{"draft": 1} no: {"score": {"a": 2}}', {"score": {"a": 2}}),
        ("{{{", None),
        ("", None),
        ("[1]", None),
    ],
)
def test_json_in_a_reply(text, value):
    if value is None:
        with pytest.raises(ValueError, match="no JSON object"):
            json_object(text)
    else:
        assert json_object(text) == value


def test_json_in_a_hostile_reply_takes_no_time():
    began = time.monotonic()
    with pytest.raises(ValueError, match="no JSON"):
        json_object("{" * 200_000)
    assert time.monotonic() - began < 2


def test_an_address_that_is_none():
    with pytest.raises(ConfigError, match="no http"):
        Client(Endpoint("localhost:8000", "m"))
