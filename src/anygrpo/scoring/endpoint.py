"""A client of OpenAI-compatible endpoints: questions to a judge, many at once, with what goes wrong as data.

Used by every judge of the product (texts, pictures, motions). Standard library only: importing it loads no torch.

    client = Client(Endpoint("http://localhost:8000/v1", "judge-7b"), Cache("judge.sqlite"))
    answer = client.ask([user("Is this picture good?", png_bytes)], schema=SCHEMA, read=read_score)
    answer.value  # what `read` made of the text; client.usage has calls, tokens and cost
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from anygrpo.errors import ConfigError
from anygrpo.scoring.cache import Cache, key_of
from anygrpo.scoring.messages import Messages, received, retry_after
from anygrpo.spoken import Text

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which the same question may be answered: the endpoint was busy or ill. Others are our fault."""

LONGEST_PAUSE = 30.0


@dataclass(frozen=True)
class Endpoint:
    """Where the judge is and how it is asked.

    Attributes:
        url: up to and without "/chat/completions", e.g. "http://localhost:8000/v1".
        key_env: the environment variable that holds the key; no key is sent where it is not set.
        timeout: seconds of wall clock for one question, its retries and pauses included.
        attempt: seconds for one try of it.
        retries: tries after the first.
        concurrency: questions in flight at once.
        per_minute: most requests a minute; 0 for no limit.
        parameters: go into the request as they are (max_tokens, seed, ...); temperature is 0 unless given; None takes a
            parameter out.
        structured: how an answer's form is asked for: "json_schema" (enforced by the server), "json_object", or "none"
            (only the template asks for it).
        prompt_price, completion_price: money for a million tokens.
        budget: no question is sent once so much money is spent; 0 for no limit.
    """

    url: str
    model: str
    key_env: str = "OPENAI_API_KEY"
    timeout: float = 120.0
    attempt: float = 60.0
    retries: int = 3
    concurrency: int = 8
    per_minute: float = 0.0
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    structured: str = "json_schema"
    prompt_price: float = 0.0
    completion_price: float = 0.0
    budget: float = 0.0


@dataclass(frozen=True)
class Answer:
    """A reply. `value` is what the caller's `read` made of `text`, or `text` itself."""

    text: str
    value: Any
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: bool = False


class EndpointFailure(Exception):
    """No answer. `reason` is short, without the key; `lasting`: the same question would fail again (bad key, no such
    model), so that a run should rather stop."""

    def __init__(self, reason: str, lasting: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.lasting = reason, lasting


class _Again(Exception):
    """This try failed; another may not. `pause`: seconds that the endpoint asked for."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.pause = reason, pause


@dataclass
class Usage:
    """What was asked so far. `questions` = `cached` + `answered` + `failed`; `requests` counts every try."""

    questions: int = 0
    cached: int = 0
    answered: int = 0
    failed: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


class Client:
    """Asks one endpoint. Safe for threads; `usage` counts everything since it was made."""

    def __init__(self, endpoint: Endpoint, cache: Cache | None = None) -> None:
        """Raises: ConfigError where the URL is not one of http or https."""
        if not endpoint.url.startswith(("http://", "https://")):
            raise ConfigError(
                Text(f"endpoint {endpoint.url!r} is no http(s) address", f"端点 {endpoint.url!r} 不是 http(s) 地址"),
                Text("write it like http://localhost:8000/v1", "请写成 http://localhost:8000/v1 这样"),
            )
        self.endpoint, self.cache, self.usage = endpoint, cache, Usage()
        self._url = endpoint.url.rstrip("/") + "/chat/completions"
        self._lock, self._next_start = threading.Lock(), 0.0
        self._threads = ThreadPoolExecutor(endpoint.concurrency, thread_name_prefix="endpoint")

    def ask(
        self, messages: Messages, schema: dict[str, Any] | None = None, read: Callable[[str], Any] | None = None
    ) -> Answer:
        """One answer.

        Args:
            messages: as the endpoint takes them.
            schema: JSON schema of the answer, where `structured` is "json_schema".
            read: makes a value of the text; ValueError says that it cannot, and the question is asked again. Only
                answers that could be read are kept in the cache.

        Raises:
            EndpointFailure: no answer within the limits.
        """
        body = self._body(messages, schema)
        key = key_of(body)
        self._count(questions=1)
        if (known := self._known(key, read)) is not None:
            self._count(cached=1)
            return known
        try:
            answer = self._persist(body, read)
        except EndpointFailure:
            self._count(failed=1)
            raise
        self._count(answered=1)
        if self.cache is not None:
            self.cache.put(key, {"text": answer.text, "tokens": [answer.prompt_tokens, answer.completion_tokens]})
        return answer

    def ask_all(
        self,
        questions: Sequence[Messages],
        schema: dict[str, Any] | None = None,
        read: Callable[[str], Any] | None = None,
    ) -> list[Answer | EndpointFailure]:
        """An answer or failure for each question, in order; equal questions are asked once."""

        def one(messages: Messages) -> Answer | EndpointFailure:
            try:
                return self.ask(messages, schema, read)
            except EndpointFailure as failure:
                return failure

        keys = [key_of(messages) for messages in questions]
        first: dict[str, Messages] = {}
        for key, messages in zip(keys, questions):
            first.setdefault(key, messages)
        made = {key: self._threads.submit(one, messages) for key, messages in first.items()}
        return [made[key].result() for key in keys]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self.cache is not None:
            self.cache.close()

    def _body(self, messages: Messages, schema: dict[str, Any] | None) -> dict[str, Any]:
        given = {"model": self.endpoint.model, "messages": messages, "temperature": 0.0} | self.endpoint.parameters
        if self.endpoint.structured == "json_schema" and schema is not None:
            named = {"name": "answer", "strict": True, "schema": schema}
            given.setdefault("response_format", {"type": "json_schema", "json_schema": named})
        elif self.endpoint.structured == "json_object":
            given.setdefault("response_format", {"type": "json_object"})
        return {name: value for name, value in given.items() if value is not None}

    def _known(self, key: str, read: Callable[[str], Any] | None) -> Answer | None:
        kept = self.cache.get(key) if self.cache is not None else None
        with contextlib.suppress(ValueError, KeyError, TypeError):
            if kept is not None:
                text = kept["text"]
                return Answer(text, read(text) if read else text, *kept["tokens"], cached=True)
        return None

    def _persist(self, body: dict[str, Any], read: Callable[[str], Any] | None) -> Answer:
        """Try until it answers, tries are over, or time is."""
        deadline, reason = time.monotonic() + self.endpoint.timeout, ""
        for attempt in range(self.endpoint.retries + 1):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                self._wait_for_turn(left)
                return self._try(body, read, min(self.endpoint.attempt, deadline - time.monotonic()))
            except _Again as failed:
                reason = failed.reason
                usual = min(LONGEST_PAUSE, 0.5 * 2**attempt) * random.Random().uniform(0.5, 1.0)
                pause = usual if failed.pause is None else failed.pause
            if attempt == self.endpoint.retries or time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)
        if time.monotonic() >= deadline or not reason:
            reason = f"timed out after {self.endpoint.timeout:g} s" + (f" ({reason})" if reason else "")
        raise EndpointFailure(reason)

    def _try(self, body: dict[str, Any], read: Callable[[str], Any] | None, seconds: float) -> Answer:
        reply = self._send(body, max(seconds, 0.01))
        try:
            message = reply["choices"][0]["message"]
            text = message.get("content")
            tokens = [int((reply.get("usage") or {}).get(f"{name}_tokens") or 0) for name in ("prompt", "completion")]
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            raise _Again(f"a reply without choices: {str(reply)[:80]!r}") from None
        prices = (self.endpoint.prompt_price, self.endpoint.completion_price)
        cost = sum(n * price / 1e6 for n, price in zip(tokens, prices))
        self._count(prompt_tokens=tokens[0], completion_tokens=tokens[1], cost=cost)
        if not isinstance(text, str):
            raise _Again(f"a reply without text: {str(message.get('refusal') or message)[:80]!r}")
        try:
            return Answer(text, read(text) if read else text, *tokens)  # type: ignore[arg-type]
        except ValueError as error:
            raise _Again(f"an answer that cannot be read: {error}") from None

    def _send(self, body: dict[str, Any], seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(self.endpoint.key_env, ""):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)
        self._count(requests=1)
        try:
            with urllib.request.urlopen(request, timeout=seconds) as reply:
                return json.loads(received(reply, deadline))
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except TimeoutError:
            raise _Again(f"timed out after {seconds:.3g} s") from None
        except (OSError, HTTPException) as error:  # URLError is an OSError
            why = getattr(error, "reason", error)
            if isinstance(why, TimeoutError):
                raise _Again(f"timed out after {seconds:.3g} s") from None
            raise _Again(f"{type(why).__name__}: {why}") from None
        except (ValueError, RecursionError):
            raise _Again("a reply that is not JSON") from None

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        with contextlib.suppress(Exception):
            words = error.read(2000).decode(errors="replace")
            with contextlib.suppress(ValueError, TypeError, KeyError):
                words = json.loads(words)["error"]["message"]
            reason = f"HTTP {error.code}: {' '.join(str(words).split())[:160]}"
            if error.code in RETRIED:
                return _Again(reason, retry_after(error.headers.get("Retry-After")))
            return EndpointFailure(reason, lasting=True)
        return _Again(f"HTTP {error.code}")

    def _wait_for_turn(self, left: float) -> None:
        """Keep to requests a minute and to the budget."""
        with self._lock:
            if 0 < self.endpoint.budget <= self.usage.cost:
                raise EndpointFailure(f"the budget of {self.endpoint.budget:g} is spent")
            start = max(time.monotonic(), self._next_start)
            if start - time.monotonic() > left:
                raise EndpointFailure(
                    f"no turn within {self.endpoint.timeout:g} s at {self.endpoint.per_minute:g} a minute"
                )
            self._next_start = start + (60.0 / self.endpoint.per_minute if self.endpoint.per_minute else 0.0)
        time.sleep(max(0.0, start - time.monotonic()))

    def _count(self, **more: float) -> None:
        with self._lock:
            for name, value in more.items():
                setattr(self.usage, name, getattr(self.usage, name) + value)
