"""A real local server that speaks the chat completions protocol, and does what a test tells it to."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Fake:
    """`reply(request, n)` gives (status, headers, body) or a dict {"content": ...}; `seen` holds every request."""

    def __init__(self, reply):
        self.reply, self.seen, self.headers, self.lock = reply, [], [], threading.Lock()
        self.now = self.most = 0
        self.url = ""


@contextmanager
def serving(reply):
    fake = Fake(reply)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with fake.lock:
                fake.seen.append(request)
                fake.headers.append(dict(self.headers) | {"path": self.path})
                number = len(fake.seen)
                fake.now += 1
                fake.most = max(fake.most, fake.now)
            try:
                made = fake.reply(request, number)
            finally:
                with fake.lock:
                    fake.now -= 1
            status, headers, body = made if isinstance(made, tuple) else (200, {}, said(made))
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()


def said(text, prompt=100, completion=20):
    """A whole reply whose message is `text`."""
    message = {"role": "assistant", "content": text}
    return {"choices": [{"message": message}], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}
