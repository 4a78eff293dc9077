"""The guide's server, as it stands there, under requests that come at the same time."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import ThreadingHTTPServer
from threading import Thread
from urllib.request import ProxyHandler, Request, build_opener

import torch
from test_fine_tuning import example
from toy import random_texts, save_models, toy_tokenizer

from admin_nmt import Translator

TITLE = "serving in threads, run by tests/test_serving.py"
FOLDER = "runs/phrasebook/standard"
CLIENTS = 6


def test_answers_are_those_of_one_request_after_the_other(tmp_path, monkeypatch, request):
    save_models(tmp_path, toy_tokenizer())
    standard, servers, serve = str(tmp_path / "standard"), [], ThreadingHTTPServer.serve_forever

    def start(server: ThreadingHTTPServer) -> None:
        servers.append(server)
        Thread(target=serve, args=(server,), daemon=True).start()

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", start)
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    code = example(TITLE)
    assert code.count(FOLDER) == code.count("8000") == 1
    exec(code.replace(FOLDER, standard).replace("8000", "0"), {"__name__": "guide"})
    texts = [random_texts(3, seed=seed) for seed in range(CLIENTS)]
    opener, address = build_opener(ProxyHandler({})), f"http://127.0.0.1:{servers[0].server_port}"

    def ask(lines: list[str]) -> list[str]:
        body = "".join(f"{line}\n" for line in lines).encode()
        with opener.open(Request(address, data=body), timeout=60) as answer:
            assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
            return answer.read().decode().split("\n")[:-1]

    translator = Translator.from_pretrained(standard)
    expected = [translator.translate(lines) for lines in texts]
    assert len({str(lines) for lines in expected}) > 1
    with ThreadPoolExecutor(CLIENTS) as pool, servers[0]:
        assert list(pool.map(ask, texts * 2)) == expected * 2
        servers[0].shutdown()
