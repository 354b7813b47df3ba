"""A vLLM server as the engine: what is said over HTTP, and what stops a run. The real server is slow, maybe absent."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_vllm import PROMPTS, config, folder, move  # noqa: F401

from anygrpo.errors import ConfigError, TrainingError
from anygrpo.language.engine.vllm_server import VllmServer, build_engine
from anygrpo.language.generation import Sampling, Support

REAL = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
PLAIN = Sampling(Support(top_k=20, eos_ids=(1,)), max_new_tokens=3)


class Answers(BaseHTTPRequestHandler):
    """The few paths of vLLM 0.32 that are used. Every completion is the tokens 7, 1."""

    def do_GET(self) -> None:
        s = self.server
        say = {
            "/version": {"version": s.version},
            "/v1/models": {"data": [{"id": "tiny"}]},
            "/weight_info": {"weight_version": s.weights},
        }
        self.answer(say[self.path])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        s = self.server
        s.asked.append((self.path, body))
        if self.path == "/v1/completions":
            time.sleep(s.delay)
            if body["model"] not in ("tiny", s.adapter):
                return self.answer({"error": {"message": f"The model `{body['model']}` does not exist."}}, 404)
            row = {"token_ids": [7, 1], "finish_reason": "stop", "logprobs": {"token_logprobs": [s.first, -0.25]}}
            choices = [row | {"index": i} for i in reversed(range(body.get("n", 1)))]
            return self.answer({"choices": choices})
        if self.path == "/collective_rpc":
            s.given = load_file(Path(body["kwargs"]["weights_path"]) / "model.safetensors")
        if self.path == "/update_weight_version":
            s.weights = body["new_version"]
        if self.path == "/v1/load_lora_adapter":
            s.adapter = body["lora_name"]
            s.given = (Path(body["lora_path"]) / "file").read_text()
            return self.answer("Success: LoRA adapter added.")
        return self.answer({})

    def answer(self, value, code: int = 200) -> None:
        data = json.dumps(value).encode() if not isinstance(value, str) else value.encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    made.version, made.weights, made.adapter, made.delay, made.first = "0.32.0", "initial", None, 0.0, 0.0
    made.asked, made.given = [], None
    threading.Thread(target=made.serve_forever, daemon=True).start()
    made.url = f"http://127.0.0.1:{made.server_address[1]}"
    yield made
    made.shutdown()
    made.server_close()


def engine(server, adapters=False, seconds=10.0, home=None):
    made = VllmServer(server.url, adapters, torch.float32, seconds, home)
    made.check()
    return made


def test_all_weights_go_through_a_folder_and_generation_follows(server, tmp_path):
    made = engine(server, home=str(tmp_path))
    tied = torch.ones(2, 3)
    made.refresh([("a.weight", tied), ("head.weight", tied), ("b.weight", torch.zeros(1, dtype=torch.float64))])
    assert server.given.keys() == {"a.weight", "head.weight", "b.weight"}  # vLLM reloads a tied head by its own name
    assert server.given["b.weight"].dtype == torch.float32
    assert list(tmp_path.iterdir()) == []
    assert [path for path, _ in server.asked[1:]] == [
        "/collective_rpc",
        "/reset_prefix_cache",
        "/update_weight_version",
    ]
    got = made.generate([[5, 6], [8]], 2, PLAIN, seed=3)
    assert got.ids.tolist() == [[7, 1]] * 4
    assert got.log_probs[0].tolist() == [0.0, -0.25]
    assert got.ended.all()
    bodies = [body for path, body in server.asked if path == "/v1/completions" and body.get("n") == 2]
    assert sorted(body["prompt"] for body in bodies) == [[5, 6], [8]]
    assert len({body["seed"] for body in bodies}) == 2
    assert all(body["top_k"] == 20 and body["stop_token_ids"] == [1] and body["model"] == "tiny" for body in bodies)


def test_a_server_that_lost_our_weights_stops_the_run(server):
    made = engine(server)
    made.refresh([("a.weight", torch.ones(1))])
    server.weights = "initial"  # as after a restart
    with pytest.raises(TrainingError, match="holds weights 'initial'"):
        made.generate([[5]], 1, PLAIN, seed=0)


def test_adapters_go_alone_under_names_of_their_own(server, tmp_path):
    made = engine(server, adapters=True, home=str(tmp_path))
    for text in ("one", "two"):
        made.refresh_adapters(lambda home, text=text: (home / "file").write_text(text))
        assert server.given == text
    names = [body["lora_name"] for path, body in server.asked if path.endswith("lora_adapter")]
    assert len(set(names)) == 2
    assert names[2] == names[0]  # the first one leaves
    made.generate([[5]], 1, PLAIN, seed=0)
    assert server.asked[-1][1]["model"] == names[1]
    server.adapter = None
    with pytest.raises(TrainingError, match=r"404.*does not exist"):
        made.generate([[5]], 1, PLAIN, seed=0)


def test_a_late_answer_is_named(server):
    made = engine(server)
    made.refresh([("a.weight", torch.ones(1))])
    made.seconds, server.delay = 0.2, 1.0
    with pytest.raises(TrainingError, match=r"no answer from .*/v1/completions in engine_timeout = 0.2 s"):
        made.generate([[5]], 1, PLAIN, seed=0)


def test_raw_log_probs_and_old_servers_are_refused(server):
    server.first = -2.5
    with pytest.raises(ConfigError, match="raw log-probs"):
        engine(server)
    server.version = "0.21.0"
    with pytest.raises(ConfigError, match=r"older than 0\.32"):
        engine(server)


def test_a_server_that_is_not_there_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(TrainingError, match="does not answer"):
        build_engine(config(engine="vllm_server", engine_url=url), torch.float32, None)


def test_several_ranks_need_several_servers(server, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ConfigError, match="server for each rank"):
        build_engine(config(engine="vllm_server", engine_url=server.url), torch.float32, None)
    port = str(server.server_address[1])
    url = f"http://127.0.0.{{rank}}:{port}"  # 127.0.0.1 for rank 1
    assert build_engine(config(engine="vllm_server", engine_url=url), torch.float32, None).url == server.url


@pytest.mark.parametrize("given", [{"engine": "vllm_server"}, {"engine_url": "http://x"}, {"engine_folder": "x"}])
def test_settings_that_do_nothing_are_refused(given):
    with pytest.raises(ValueError, match=r"engine"):
        config(**given)


def started(model, port: int, *flags: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
    given = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    return subprocess.Popen(
        [*command, "--dtype", "float32", "--enforce-eager", *flags],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=os.environ | given,
    )  # fmt: skip


def answering(url: str, process: subprocess.Popen, seconds: float = 900) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            return VllmServer(url, False, torch.float32, 60.0, None).check()
        except TrainingError:
            time.sleep(1)
    raise AssertionError(f"the server did not start; exit code {process.poll()}")


@REAL
@pytest.mark.slow
@pytest.mark.parametrize("train", ["lora", "all"])
def test_a_real_server_follows_training_and_is_found_out_when_it_does_not(folder, train, tmp_path):  # noqa: F811
    from test_vllm import built, follows

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, lora = f"http://127.0.0.1:{port}", ["--enable-lora", "--max-lora-rank", "8", "--max-loras", "2"]
    process = started(folder, port, *(lora if train == "lora" else []))
    try:
        answering(url, process)
        given = {"engine": "vllm_server", "engine_url": url, "engine_folder": str(tmp_path), "train": train}
        follows(built(folder, **given))
        policy = built(folder, **given)
        policy.sample(PROMPTS, 2, seed=1)
        policy.engine.refresh = policy.engine.refresh_adapters = lambda given: None
        move(policy, 0.1)
        with pytest.raises(TrainingError, match="stale weights: training moved"):
            policy.sample(PROMPTS, 2, seed=2)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
