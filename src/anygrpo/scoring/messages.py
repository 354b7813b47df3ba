"""What goes to an endpoint and what comes back, as data: messages with pictures, JSON in a reply."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import json
import time
from pathlib import Path
from typing import Any

Messages = list[dict[str, Any]]
"""As endpoints take them: {"role": ..., "content": text or parts}."""

LARGEST_REPLY = 16 << 20
_PICTURES = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}


def user(text: str, *images: bytes | str | Path) -> dict[str, Any]:
    """A message of a user: text, and pictures as data URLs (bytes of a PNG, JPEG, GIF or WebP, or a file's path)."""
    if not images:
        return {"role": "user", "content": text}
    parts = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in images]
    return {"role": "user", "content": [{"type": "text", "text": text}, *parts]}


def data_url(image: bytes | str | Path) -> str:
    """A picture as "data:image/png;base64,...". Raises: ValueError for bytes of no known kind."""
    content = image if isinstance(image, bytes) else Path(image).read_bytes()
    kind = next((name for start, name in _PICTURES.items() if content.startswith(start)), None)
    if kind is None:
        raise ValueError(f"{content[:8]!r}... is no PNG, JPEG, GIF or WebP")
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def json_object(text: str) -> dict[str, Any]:
    """The last JSON object in a reply: all of it, or what stands in or after words and fences. Linear in the text.

    Raises:
        ValueError: there is none.
    """
    decoder, found, at, tries = json.JSONDecoder(), None, text.find("{"), 0
    while at >= 0 and tries < 100:
        tries += 1
        try:
            value, end = decoder.raw_decode(text, at)
            found = value if isinstance(value, dict) else found
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)
    if found is None:
        raise ValueError(f"no JSON object in {text[:60]!r}")
    return found


def received(reply: Any, deadline: float) -> bytes:
    """The body, as long as it comes in time: a server that sends a byte now and then is late too."""
    body = bytearray()
    while piece := reply.read1(1 << 16):
        body += piece
        if time.monotonic() > deadline:
            raise TimeoutError
        if len(body) > LARGEST_REPLY:
            raise ValueError("too long")
    return bytes(body)


def retry_after(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date."""
    if not value:
        return None
    with contextlib.suppress(ValueError):
        return max(0.0, float(value))
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return None
