"""The guide's server, as it stands there, under requests that come at the same time."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from threading import Thread
from urllib.request import ProxyHandler, Request, build_opener

import pytest
import torch
from test_fine_tuning import example
from toy import random_texts, save_models, toy_tokenizer

from admin_nmt import Translator

TITLE = "serving in threads, run by tests/test_serving.py"
FOLDER = "runs/phrasebook/standard"
CLIENTS = 6


@pytest.fixture
def standard(tmp_path) -> str:
    """The folder of a standard model."""
    save_models(tmp_path, toy_tokenizer())
    return str(tmp_path / "standard")


@pytest.fixture
def address(standard, monkeypatch):
    """Of the guide's server, on a free port."""
    servers, threads, serve = [], torch.get_num_threads(), ThreadingHTTPServer.serve_forever

    def start(server: ThreadingHTTPServer) -> None:
        servers.append(server)
        Thread(target=serve, args=(server,), daemon=True).start()

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", start)
    code = example(TITLE)
    assert code.count(FOLDER) == code.count("8000") == 1
    exec(code.replace(FOLDER, standard).replace("8000", "0"), {"__name__": "guide"})
    (server,) = servers
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    torch.set_num_threads(threads)


def test_answers_are_those_of_one_request_after_the_other(address, standard):
    texts = [random_texts(3, seed=seed) for seed in range(CLIENTS)]
    opener = build_opener(ProxyHandler({}))

    def ask(lines: list[str]) -> list[str]:
        body = "".join(f"{line}\n" for line in lines).encode()
        with opener.open(Request(address, data=body), timeout=60) as answer:
            assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
            return answer.read().decode().split("\n")[:-1]

    translator = Translator.from_pretrained(standard)
    expected = [translator.translate(lines) for lines in texts]
    assert len({str(lines) for lines in expected}) > 1
    with ThreadPoolExecutor(CLIENTS) as pool:
        assert list(pool.map(ask, texts * 2)) == expected * 2

    async def in_threads() -> list[list[str]]:
        return await asyncio.gather(*(asyncio.to_thread(translator.translate, lines) for lines in texts))

    assert asyncio.run(in_threads()) == expected
