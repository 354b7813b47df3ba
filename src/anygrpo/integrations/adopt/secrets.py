"""What looks like a key, token or password among another trainer's settings: that it is set is told, not what it is.

A value is judged first by itself (`sk-...`, `Bearer ...`, `https://user:password@host`), then by its name. A name
alone is enough only where it says whose key it is (`hub_token`, `api_key`, `mail_password`): `score_key` and
`max_token` are a column and a length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

SET = "(set)"
_OWNERS = (
    "api", "access", "auth", "hub", "hf", "huggingface", "wandb", "swanlab", "openai", "anthropic", "secret",
    "password", "private", "ssh", "github", "gitlab", "gemini", "google", "comet", "neptune", "modelscope",
    "dashscope", "deepseek", "mistral", "azure",
)  # fmt: skip
"""What stands before `key` or `token` in a name that holds one."""
_PERHAPS = ("aws", "bot", "client")
"""The same where the name may also be a file in a bucket, a mark in a chat or a column."""
_PASSWORDS = ("password", "passwd", "passphrase", "authorization", "bearer")
_FORMS = re.compile(
    r"""(?<![\w\-])(?:
        sk-(?=[\w\-]*\d|[A-Za-z0-9]{16})[\w\-]{16,} | hf_[A-Za-z0-9]{16,} | gh[opsur]_[A-Za-z0-9]{16,}
        | github_pat_\w{20,} | glpat-[\w\-]{16,} | (?:AKIA|ASIA)[A-Z0-9]{12,} | xox[abeprs]-[A-Za-z0-9\-]{10,}
        | AIza[\w\-]{30,} | eyJ[\w\-]{10,}\.[\w\-]{10,}\.[\w\-]*
    )
    | (?<=[Bb]earer\ )(?=[A-Za-z._~+/=\-]*\d|[A-Za-z]{20})[\w.~+/=\-]{8,}
    | (?<=hooks\.slack\.com/services/)[\w/]{8,}
    """,
    re.VERBOSE,
)
"""Keys and tokens by the marks that their makers give them."""
_IN_ADDRESS = re.compile(r"""(?P<before>\w://[^\s/:@"']*:)(?P<value>[^\s/@\\{}<>()\[\]"'*]+)(?=@)""")
_IN_TEXT = re.compile(
    r"""(?P<before>(?<![\w.\-])(?P<name>[\w.+\-]+)=["']?)
    (?P<value>(?:\$?\{+[^{}\n]*\}+|\$\([^()\n]*\)|%\(\w+\)|<[^<>\n]*>|[^\s"',;&(){}])+)""",
    re.VERBOSE,
)
_NAMED_STRING = re.compile(r"""(\b[\w.\-]+)(["']?\]?\s*[=:]\s*)(["'])(?P<value>(?:(?!\3)[^\n])*)\3""")
_PLACEHOLDER = re.compile(
    r"|empty|none|null|dummy|unused|not[-_ ]needed|bearer|basic|token|\(set\)|\*+|x{3,}|\.+", re.IGNORECASE
)
_REFERENCE = re.compile(
    r"""\$[A-Z_][A-Z0-9_]* | \$[a-z_]*(?:key|token|secret|password|passwd)s? | %[A-Z_][A-Z0-9_]*%
    | \$\{[\w.:]+ (?::?[-?]|,\ ?(?:null|None|''|"")?)? \} | \$?\{+\ ?[\w.\[\]:!]*\ ?\}+ | \$\([a-z]+\ [^()]*\)
    | %(?:\(\w+\))?[sr]
    | <(?:[|/]?[^\W\d_]{1,15}(?:[\ _\-.,:/|()']+(?:[^\W\d_]{1,15}|\d{1,4}))*[\ _\-.,:/|()']*)?>
    | \$ | \$[0-9@*] | \$\{[\w.:]+:?\?[^{}]*\} | \$?\{+\ ?[\w.]+(?:\[["']?\w+["']?\])+\ ?\}+
    | -[A-Za-z] | --(?:[a-z]+[-_])*(?:key|token|secret|password|passwd|auth)s?
    """,
    re.VERBOSE,
)
"""Whole forms that say where a value comes from, and hold none: `$HF_TOKEN`, `${{ secrets.X }}`, `%(key)s`,
`<your key>`, `--hub-token`. A password may begin with any of their signs."""
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|[a-z]+(_[a-z]+)+")
_NAMED = re.compile(r".*(key|token|secret)s?", re.IGNORECASE)


def _parts(name: str) -> list[str]:
    """`wandbApiKey`, `--hub-token`, `OPENAI_API_KEYS_2`, `AWS_ACCESS_KEY_ID` as words, up to the key."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    parts = [part for part in re.split(r"[^a-z0-9]+", apart) if part and not part.isdigit()]
    if parts[-2:] == ["key", "id"]:
        parts.pop()
    return [*parts[:-1], re.sub(r"(?<=key|ken|ret|ord|ial)s$", "", parts[-1])] if parts else []


def secret(name: str) -> bool:
    """Whether a name alone says that only its owner should read the value: `hub_token`, `logger.wandb.key`."""
    parts = _parts(name)
    if not parts:
        return False
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last in _PASSWORDS or (last in ("secret", "credential", "pwd") and before):
        return True
    joined = re.fullmatch(r"(\w+)(?:key|token)", last)
    return (last in ("key", "token") and before in _OWNERS) or (joined is not None and joined[1] in _OWNERS)


def maybe_secret(name: str) -> bool:
    """Whether a name may hold a key, if its value looks like one: `token`, `data_source_key`."""
    return secret(name) or re.search(r"(key|token|secret|credential|auth|pat)$", "_".join(_parts(name))) is not None


def random(value: str) -> bool:
    """20 or more characters, letters and digits mixed as in no words: `9f86d081884c7d65...`, not `gsm8k_main_v2`."""
    if len(value) < 20 or re.fullmatch(r"[\w\-.+=~:]+", value) is None:
        return False
    runs = re.findall(r"[A-Za-z0-9]{12,}", value)
    return any(re.search(r"\d", run) and re.search(r"[A-Za-z]", run) for run in runs)


def _same(name: str, value: str) -> bool:
    """Whether a value is its name: `token`, `--api-key` of `api_key`."""
    return re.sub(r"[-_]", "", name.lower()) == re.sub(r"[-_]", "", value.lower())


def _perhaps(name: str, value: str) -> bool:
    """Whether a name may hold a key (`bot_token`, `client_key`), and its value is no word or path: it has digits."""
    parts = _parts(name)[-2:]
    named = len(parts) == 2 and parts[0] in _PERHAPS and parts[1] in ("key", "token")
    return named and re.fullmatch(r"(?=.*\d)(?=.*[A-Za-z])[\w\-:+=~$%]{6,}", value) is not None


def withheld(name: str, value: str, known: Collection[str] = ()) -> bool:
    """Whether the value that stands under a name is to be left out whole. Names, variables, placeholders never are."""
    value = value.strip()
    if value in known or _same(name, value):
        return False
    if random(value.strip("$%{}<>")):
        return maybe_secret(name)
    if _PLACEHOLDER.fullmatch(value) or _REFERENCE.fullmatch(value):
        return False
    if not secret(name):
        return _perhaps(name, value)
    if _parts(name)[-1] in _PASSWORDS:
        return True
    return not (re.search(r"\s", value) or (_VARIABLE.fullmatch(value) and _NAMED.fullmatch(value)))


def masked(text: str, sure: bool = False) -> str:
    """A text with "(set)" where a key of a known form, an address's password or a secret `NAME=value` stands.

    Args:
        sure: a command or a setting, where `NAME=value` sets NAME; else (source, prose) the value must have a digit.
    """

    def in_address(found: re.Match[str]) -> str:
        return found[0] if _REFERENCE.fullmatch(found["value"]) else found["before"] + SET

    text = _IN_ADDRESS.sub(in_address, _FORMS.sub(SET, text))
    out, at = list[str](), 0
    while found := _IN_TEXT.search(text, at):
        like = sure or (len(found["value"]) >= 8 and re.search(r"\d", found["value"]))
        out += [text[at : found.start()], found["before"]]
        at = found.start("value")  # a value may hold other names: `env={HF_TOKEN=...}`
        if like and withheld(found["name"], found["value"]):
            out.append(SET)
            at = found.end()
    return "".join(out) + text[at:]


def masked_strings(text: str) -> str:
    """A text with "(set)" in the strings that it gives to secret names: `name = "value"`, `"name": "value"`."""

    def put(found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]}{found[3]}{SET}{found[3]}" if withheld(found[1], found["value"]) else found[0]

    return _NAMED_STRING.sub(put, text)


def hidden(given: Any, name: str = "", known: Collection[str] = ()) -> Any:
    """Settings with "(set)" in place of each value that looks secret, in tables and lists inside them too.

    Args:
        known: names of settings and columns, which are no secrets where they are values.
    """
    if given is None or isinstance(given, bool):
        return given
    if isinstance(given, dict):
        return {key: hidden(value, name if secret(name) else str(key), known) for key, value in given.items()}
    if isinstance(given, list | tuple):
        return [hidden(value, name, known) for value in given]
    if isinstance(given, str):
        return SET if _form_of(given, name, known) else _text(given, name)
    return SET if secret(name) else given


def _form_of(given: str, name: str, known: Collection[str]) -> bool:
    return masked(given) == given and withheld(name, given, known)


def _text(given: str, name: str) -> str:
    """A value that holds settings itself: a JSON table, `NAME=value` words."""
    if given.lstrip().startswith("{"):
        try:
            return json.dumps(hidden(json.loads(given), name), ensure_ascii=False)
        except (ValueError, RecursionError):
            return masked_strings(masked(given, sure=True))
    return masked(given, sure=True)


def hidden_words(command: list[str]) -> list[str]:
    """Words of a command, what looks secret left out: `NAME=value`, `--name value`, `--name=value`."""
    out, before = list[str](), ""
    for word in command:
        own = before.startswith("--") and "=" not in before and not word.startswith("--")
        name, given, value = word.partition("=")
        whole = given and re.fullmatch(r"[\w.+\-]+", name) and _form_of(value, name, ())
        out.append(f"{name}={SET}" if whole else hidden(word, before if own else ""))
        before = word
    return out
