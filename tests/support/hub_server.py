"""A server on this machine that speaks the Hub's protocol, and huggingface_hub turned to it.

root/models/OWNER/NAME/REVISION/... and root/datasets/OWNER/NAME/REVISION/... are its repositories.
"""

from __future__ import annotations

import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants, hf_api

from anygrpo.core import hub as ours


def commit(folder: Path) -> str:
    return hashlib.sha1(str(folder).encode()).hexdigest()


class Handler(BaseHTTPRequestHandler):
    root: Path

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._answer(True)

    def do_HEAD(self):
        self._answer(False)

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length).decode()
        paths = json.loads(body)["paths"] if body.startswith("{") else []
        self.server.seen.append(self.path)
        _, _, kind, owner, name, _, revision, *_ = urlsplit(unquote(self.path)).path.split("/")
        folder = self._folder(kind, owner, name, revision)
        self._json([entry(folder, folder / p) for p in paths if folder and (folder / p).exists()])

    def _answer(self, body: bool):
        self.server.seen.append(self.path)
        parts = urlsplit(unquote(self.path)).path.strip("/").split("/")
        if parts[0] == "api" and len(parts) >= 4:
            kind, owner, name, *rest = parts[1:]
            revision = rest[1] if rest[:1] in (["revision"], ["tree"]) else "main"
            folder = self._folder(kind, owner, name, revision)
            if folder is None:
                return self._missing("RevisionNotFound" if self._folder(kind, owner, name, "main") else "RepoNotFound")
            if rest[:1] == ["tree"]:
                inner = folder.joinpath(*rest[2:])
                return self._json([entry(folder, f) for f in sorted(inner.rglob("*"))])
            names = [{"rfilename": str(f.relative_to(folder))} for f in sorted(folder.rglob("*")) if f.is_file()]
            said = {"id": f"{owner}/{name}", "sha": commit(folder), "siblings": names, "private": False, "tags": []}
            return self._json(said | {"downloads": 0, "likes": 0, "gated": False, "disabled": False})
        kind = parts.pop(0) if parts[0] == "datasets" else "models"
        if len(parts) < 5 or parts[2] != "resolve":
            return self._missing("RepoNotFound")
        folder = self._folder(kind, parts[0], parts[1], parts[3])
        if folder is None:
            return self._missing("RepoNotFound")
        file = folder.joinpath(*parts[4:])
        if not file.is_file():
            return self._missing("EntryNotFound", commit(folder))
        content = file.read_bytes()
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", commit(folder))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _folder(self, kind: str, owner: str, name: str, revision: str) -> Path | None:
        place = self.root / kind / owner / name
        found = [f for f in place.glob("*") if revision in (f.name, commit(f))]
        return found[0] if found else None

    def _missing(self, code: str, sha: str | None = None):
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        if sha:
            self.send_header("X-Repo-Commit", sha)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _json(self, value):
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def entry(folder: Path, file: Path) -> dict:
    name = str(file.relative_to(folder))
    if file.is_dir():
        return {"type": "directory", "oid": "0" * 40, "size": 0, "path": name}
    return {
        "type": "file",
        "oid": hashlib.sha1(file.read_bytes()).hexdigest(),
        "size": file.stat().st_size,
        "path": name,
    }


class Hub:
    """The server at work: `add` a folder as a repository, `seen` paths asked for, `close` the network."""

    def __init__(self, root: Path, patch) -> None:
        handler = type("Bound", (Handler,), {"root": root})
        self.root, self.server, self.patch = root, ThreadingHTTPServer(("127.0.0.1", 0), handler), patch
        self.server.seen = self.seen = []
        Thread(target=self.server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{self.server.server_port}"
        patch.setattr(constants, "ENDPOINT", url)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")
        patch.setattr(constants, "HF_HUB_CACHE", str(root / "cache"))
        patch.setattr(hf_api.api, "endpoint", url)
        self.offline(False)

    def offline(self, value: bool) -> None:
        self.patch.setattr(constants, "HF_HUB_OFFLINE", value)
        config = sys.modules.get("datasets.config")
        if config is not None:
            self.patch.setattr(config, "HF_ENDPOINT", constants.ENDPOINT)
            self.patch.setattr(config, "HF_HUB_OFFLINE", value)
            self.patch.setattr(config, "HF_DATASETS_CACHE", self.root / "data_cache")
        for asked in (ours.folder, ours.holds, ours.to_load, ours._silence):
            asked.cache_clear()

    def place(self, name: str, revision: str = "main", kind: str = "models") -> Path:
        """Where the files of a repository lie; made."""
        folder = self.root / kind / name / revision
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        for asked in (ours.folder, ours.holds, ours.to_load, ours._silence):
            asked.cache_clear()
