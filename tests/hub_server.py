"""A Hub in memory on 127.0.0.1: as much of its HTTP interface as pushing and loading models needs.

Commits are trees of files that never change, the last one is `main`, and large files live in a store by SHA-256, where
an upload puts them before any commit names them: as on the Hub, a push that stops half-way changes no revision.
"""

import base64
import hashlib
import json
import re
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "dummy"


@dataclass(frozen=True)
class File:
    content: bytes
    is_lfs: bool

    @property
    def oid(self) -> str:
        """The ETag: SHA-256 of a large file, else the hash that git gives the blob."""
        blob = self.content if self.is_lfs else b"blob %d\0" % len(self.content) + self.content
        return hashlib.new("sha256" if self.is_lfs else "sha1", blob).hexdigest()


@dataclass
class Repo:
    private: bool
    commits: dict[str, dict[str, File]] = field(default_factory=dict)

    def commit(self, tree: dict[str, File]) -> str:
        content = sorted((path, file.oid) for path, file in tree.items())
        sha = hashlib.sha1(repr((len(self.commits), content)).encode()).hexdigest()
        self.commits[sha] = tree
        return sha

    @property
    def head(self) -> dict[str, File]:
        """The files of `main`."""
        return [*self.commits.values()][-1]


class Refusal(Exception):
    """An answer other than success: status, message, and the code that the client looks at."""

    def __init__(self, status: int, message: str, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code


def client_settings(url: str) -> dict[str, Any]:
    """Attributes of the client's modules for this Hub; the client does not wait between its attempts."""
    constants = {"ENDPOINT": url, "HUGGINGFACE_CO_URL_TEMPLATE": url + "/{repo_id}/resolve/{revision}/{filename}"}
    constants |= {"HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}
    return {f"huggingface_hub.constants.{name}": value for name, value in constants.items()} | {
        "huggingface_hub.utils._http.time.sleep": lambda seconds: None,
        "transformers.utils.hub._hf_api": None,
    }


class HubServer(ThreadingHTTPServer):
    """Serves from its construction until the end of its `with` block.

    Attributes:
        requests: method, path and size of the body of every request so far.
        failing: requests whose "METHOD path" this pattern matches are answered with `status`, by default 500.
        dropping: how many of the next uploads lose their connection after half of the body.
        cutting: how many of the next downloads lose it after half of the file.
        delay: seconds before each answer.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, int]] = []
        self.failing: str | None = None
        self.status = 500
        self.dropping = self.cutting = 0
        self.delay = 0.0
        self.lock = Lock()
        Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def __exit__(self, *args: object) -> None:
        self.shutdown()
        super().__exit__(*args)

    def sent(self, pattern: str) -> list[tuple[str, int]]:
        """Path and size of the requests whose "METHOD path" matches."""
        return [(path, size) for method, path, size in self.requests if re.match(pattern, f"{method} {path}")]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, *args: object) -> None:
        pass

    def answer(self) -> None:
        self.path = unquote(urlsplit(self.path).path)
        for path, own in SPACES.items():
            self.path = self.path.replace(path, own) if self.path.startswith(path) else self.path
        request = f"{self.command} {self.path}"
        try:
            body = self.body()
            time.sleep(self.server.delay)
            self.server.requests.append((self.command, self.path, len(body)))
            if self.server.failing and re.match(self.server.failing, request):
                raise Refusal(self.server.status, "Internal Error")
            for pattern, action in ROUTES:
                if match := re.fullmatch(pattern, request):
                    with self.server.lock:
                        action(self, body, *match.groups())
                    return
            raise Refusal(404, f"no such route: {request}")
        except Refusal as refusal:
            headers = {"X-Error-Code": refusal.code, "X-Error-Message": str(refusal)}
            self.reply({"error": str(refusal)}, status=refusal.status, headers=headers)
        except ConnectionError:
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def body(self) -> bytes:
        size = int(self.headers.get("Content-Length") or 0)
        if self.server.dropping and self.command == "PUT":
            self.server.dropping -= 1
            self.rfile.read(size // 2)
            raise ConnectionResetError
        return self.rfile.read(size)

    def reply(self, content: object = b"", status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(data))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def repo(self, repo_id: str) -> Repo:
        repo = self.server.repos.get(repo_id)
        if repo is None or (repo.private and not self.is_authorized):
            raise Refusal(401, "Repository not found", "RepoNotFound")
        return repo

    @property
    def is_authorized(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def check_token(self) -> None:
        if not self.is_authorized:
            raise Refusal(401, "Invalid username or password.")

    def commit_of(self, repo_id: str, revision: str) -> tuple[str, dict[str, File]]:
        commits = self.repo(repo_id).commits
        sha = [*commits][-1] if revision == "main" else revision
        if sha not in commits:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return sha, commits[sha]

    def create(self, body: bytes) -> None:
        self.check_token()
        wanted = json.loads(body)
        kind = "spaces:" if wanted.get("type") == "space" else ""
        repo_id = f"{kind}{wanted.get('organization') or 'user'}/{wanted['name']}"
        url = f"{self.server.url}/{repo_id.replace(':', '/')}"
        if repo_id in self.server.repos:
            return self.reply({"error": "You already created this repo", "url": url}, status=409)
        repo = self.server.repos[repo_id] = Repo(private=wanted.get("visibility") == "private")
        repo.commit({".gitattributes": File(b"*.safetensors filter=lfs\n", is_lfs=False)})
        return self.reply({"url": url, "name": repo_id})

    def info(self, body: bytes, repo_id: str, revision: str | None = None) -> None:
        sha, tree = self.commit_of(repo_id, revision or "main")
        files = [{"rfilename": path} for path in tree]
        self.reply({"id": repo_id, "sha": sha, "private": self.repo(repo_id).private, "siblings": files, "tags": []})

    def tree(self, body: bytes, repo_id: str, revision: str, folder: str | None = None) -> None:
        _, tree = self.commit_of(repo_id, revision)
        prefix = f"{folder}/" if folder else ""
        files = {path: file for path, file in tree.items() if path.startswith(prefix)}
        if not files:
            raise Refusal(404, f"{folder} does not exist", "EntryNotFound")
        rows = [{"type": "file", "path": p, "size": len(f.content), "oid": f.oid} for p, f in files.items()]
        self.reply(rows)

    def validate_yaml(self, body: bytes) -> None:
        self.reply({"errors": [], "warnings": []})

    def preupload(self, body: bytes, repo_id: str, revision: str) -> None:
        self.check_token()
        _, tree = self.commit_of(repo_id, revision)

        def plan(file: dict) -> dict:
            is_binary = b"\0" in base64.b64decode(file["sample"])
            there = {"oid": tree[file["path"]].oid} if file["path"] in tree else {}
            mode = "lfs" if is_binary else "regular"
            return {"path": file["path"], "uploadMode": mode, "shouldIgnore": False} | there

        self.reply({"files": [plan(file) for file in json.loads(body)["files"]]})

    def lfs_batch(self, body: bytes, repo_id: str) -> None:
        self.check_token()

        def actions(wanted: dict) -> dict:
            if wanted["oid"] in self.server.objects:
                return wanted
            return wanted | {"actions": {"upload": {"href": f"{self.server.url}/lfs/{wanted['oid']}"}}}

        self.reply({"transfer": "basic", "objects": [actions(wanted) for wanted in json.loads(body)["objects"]]})

    def lfs_put(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(body).hexdigest() != oid:
            raise Refusal(400, "the content has another SHA-256")
        self.server.objects[oid] = body
        self.reply()

    def commit(self, body: bytes, repo_id: str, branch: str) -> None:
        self.check_token()
        repo, (parent, tree) = self.repo(repo_id), self.commit_of(repo_id, branch)
        (_, header), *lines = [(line["key"], line["value"]) for line in map(json.loads, body.splitlines())]
        if header.get("parentCommit", parent) != parent:
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        tree = dict(tree)
        for key, value in lines:
            if key == "file":
                tree[value["path"]] = File(base64.b64decode(value["content"]), is_lfs=False)
            elif key == "lfsFile":
                if value["oid"] not in self.server.objects:
                    raise Refusal(400, f"LFS object {value['oid']} was never uploaded")
                tree[value["path"]] = File(self.server.objects[value["oid"]], is_lfs=True)
            else:
                assert key == "deletedFile"
                del tree[value["path"]]
        sha = repo.commit(tree)
        url = f"{self.server.url}/{repo_id.replace(':', '/')}"
        self.reply({"commitUrl": f"{url}/commit/{sha}", "commitOid": sha})

    def resolve(self, body: bytes, repo_id: str, revision: str, path: str) -> None:
        sha, tree = self.commit_of(repo_id, revision)
        if path not in tree:
            raise Refusal(404, "Entry not found", "EntryNotFound")
        content, headers = tree[path].content, {"X-Repo-Commit": sha, "ETag": f'"{tree[path].oid}"'}
        start = int((re.match(r"bytes=(\d+)-", self.headers.get("Range", "")) or (0, 0))[1])
        length = str(len(content) - start)
        if self.server.cutting and self.command == "GET":
            self.server.cutting -= 1
            self.reply(content[start : (start + len(content)) // 2], headers=headers | {"Content-Length": length})
            raise ConnectionResetError
        self.reply(content[start:], status=206 if start else 200, headers=headers)


REPO = "([^/]+/[^/]+)"
SPACES = {"/api/spaces/": "/api/models/spaces:", "/spaces/": "/spaces:"}  # a Space is a repository of that name here
ROUTES = [
    ("POST /api/repos/create", Handler.create),
    ("POST /api/validate-yaml", Handler.validate_yaml),
    (f"POST /api/models/{REPO}/preupload/(.+)", Handler.preupload),
    (f"POST /api/models/{REPO}/commit/(.+)", Handler.commit),
    (f"GET /api/models/{REPO}/tree/([^/]+)(?:/(.+))?", Handler.tree),
    (f"GET /api/models/{REPO}/revision/(.+)", Handler.info),
    (f"GET /api/models/{REPO}", Handler.info),
    (rf"POST /{REPO}\.git/info/lfs/objects/batch", Handler.lfs_batch),
    ("PUT /lfs/([0-9a-f]+)", Handler.lfs_put),
    (f"(?:GET|HEAD) /{REPO}/resolve/([^/]+)/(.+)", Handler.resolve),
]
