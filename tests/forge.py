"""A stand-in of a forge: the part of GitHub's REST API that kodoctl uses, as a real HTTP server with permissions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.servers import Answer, Request, Server, answer_json

Json = dict[str, Any]
BOT = "github-actions[bot]"
WORKFLOW = ".github/workflows/topologies.yml"
# (method, path below the repository) -> the permission it needs, as GitHub documents them
_NEEDED = (
    ("GET", re.compile(r"commits/([0-9a-f]{40})/pulls"), "pull-requests", "read"),
    ("GET", re.compile(r"issues/(\d+)/comments"), "pull-requests", "read"),
    ("POST", re.compile(r"issues/(\d+)/comments"), "pull-requests", "write"),
    ("PATCH", re.compile(r"issues/comments/(\d+)"), "pull-requests", "write"),
    ("GET", re.compile(r"pulls/(\d+)/reviews"), "pull-requests", "read"),
    ("GET", re.compile(r"pulls/(\d+)/commits"), "pull-requests", "read"),
    ("GET", re.compile(r"collaborators/([^/]+)/permission"), "metadata", "read"),
    ("GET", re.compile(r"actions/runs/(\d+)"), "actions", "read"),
    ("GET", re.compile(r"actions/runs/(\d+)/artifacts"), "actions", "read"),
    ("GET", re.compile(r"actions/artifacts/(\d+)/zip"), "actions", "read"),
)


@dataclass
class StandIn:
    """One repository. Time goes on by a second with every change, so that before and after are exact."""

    repository: str = "acme/topologies"
    pulls: list[Json] = field(default_factory=list)
    comments: dict[int, list[Json]] = field(default_factory=dict)
    reviews: dict[int, list[Json]] = field(default_factory=dict)
    commits: dict[int, list[Json]] = field(default_factory=dict)
    permissions: dict[str, str] = field(default_factory=lambda: {"anna": "write", "ben": "write", "cleo": "admin"})
    runs: dict[int, Json] = field(default_factory=dict)
    artifacts: dict[int, tuple[Json, bytes]] = field(default_factory=dict)
    tokens: dict[str, Json] = field(default_factory=dict)
    trouble: list[Answer] = field(default_factory=list)
    """Answers that come first, whatever is asked."""

    def __post_init__(self) -> None:
        self._seconds, self._ids = 0, 1000
        self.server, self.storage = Server(self._answer), Server(self._stored)
        self.url = self.server.url

    def close(self) -> None:
        self.server.close()
        self.storage.close()

    # --- what people and runners do

    def now(self) -> str:
        self._seconds += 1
        return f"2026-11-22T12:{self._seconds // 60:02}:{self._seconds % 60:02}Z"

    def token_for(self, permissions: Json | None) -> str:
        """A job's token, with the job's permissions; none if it does not say any, as these workflows begin with."""
        self._ids += 1
        token = f"ghs_{self._ids}CANARY"
        self.tokens[token] = {"metadata": "read", **(permissions or {})}
        return token

    def begin_run(self, event: str, actor: str = "anna") -> int:
        self._ids += 1
        self.runs[self._ids] = {
            "id": self._ids,
            "event": event,
            "path": WORKFLOW,
            "repository": {"full_name": self.repository},
            "pull_requests": [{"number": one["number"], "base": one["base"]} for one in self.pulls],
            "actor": {"login": actor},
        }
        return self._ids

    def keep(self, run: int, name: str, archive: bytes) -> None:
        self._ids += 1
        self.artifacts[self._ids] = ({"id": self._ids, "name": name, "run": run, "created_at": self.now()}, archive)

    def pull(self, head: str, author: str = "anna") -> Json:
        number = len(self.pulls) + 1
        found = {
            "number": number,
            "head": {"sha": head},
            "merged_at": None,
            "merge_commit_sha": None,
            "user": {"login": author},
            "base": {"ref": "main"},
        }
        self.pulls.append(found)
        self.commit(number, head, author)
        return found

    def commit(self, number: int, sha: str, author: str | None, committer: str | None = "web-flow") -> None:
        """One more commit of a pull request; None: somebody without an account."""
        users = {"author": author, "committer": committer}
        known = {role: {"login": login} if login else None for role, login in users.items()}
        written = {role: {"email": f"{login or 'nobody'}@example.org"} for role, login in users.items()}
        self.commits.setdefault(number, []).append({"sha": sha, **known, "commit": written})

    def merge(self, number: int, commit: str) -> None:
        self.pulls[number - 1] |= {"merged_at": self.now(), "merge_commit_sha": commit}

    def approve(self, number: int, login: str | None = "ben", state: str = "APPROVED") -> None:
        """By somebody whose account is gone since, where `login` is None."""
        head, user = self.pulls[number - 1]["head"]["sha"], {"login": login} if login else None
        review = {"user": user, "state": state, "submitted_at": self.now(), "commit_id": head}
        self.reviews.setdefault(number, []).append(review)

    def say(self, number: int, body: str, login: str) -> Json:
        self._ids += 1
        now = self.now()
        url = f"https://forge.test/{self.repository}/pull/{number}#issuecomment-{self._ids}"
        found = {
            "id": self._ids,
            "body": body,
            "user": {"login": login},
            "created_at": now,
            "updated_at": now,
            "html_url": url,
        }
        self.comments.setdefault(number, []).append(found)
        return found

    def edit(self, comment: int, body: str) -> Json:
        [found] = [one for several in self.comments.values() for one in several if one["id"] == comment]
        return found.update(body=body, updated_at=self.now()) or found

    # --- what it answers

    def _answer(self, request: Request) -> Answer:
        if self.trouble:
            return self.trouble.pop(0)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            return answer_json({"message": f"Bad credentials: {token}"}, 401)
        parts = urlsplit(request.path)
        below = parts.path.removeprefix(f"/repos/{self.repository}/")
        for method, pattern, right, least in _NEEDED:
            if method == request.method and (found := pattern.fullmatch(below)):
                held = self.tokens[token].get(right)
                if held not in ("write", least):
                    return answer_json({"message": "Resource not accessible by integration"}, 403)
                return self._do(pattern.pattern, method, found[1], parse_qs(parts.query), request)
        return answer_json({"message": "Not Found"}, 404)

    def _do(self, kind: str, method: str, what: str, query: Json, request: Request) -> Answer:
        match kind.split("/", maxsplit=1)[0], kind.rsplit("/", 1)[-1], method:
            case "commits", _, _:
                return self._page(
                    [pull for pull in self.pulls if what in (pull["merge_commit_sha"], pull["head"]["sha"])], query
                )
            case "issues", "comments", "GET":
                return self._page(self.comments.get(int(what), []), query)
            case "issues", "comments", "POST":
                return answer_json(self.say(int(what), json.loads(request.body)["body"], BOT), 201)
            case "issues", _, "PATCH":
                return answer_json(self.edit(int(what), json.loads(request.body)["body"]))
            case "pulls", "commits", _:
                return self._page(self.commits.get(int(what), [])[:250], query)
            case "collaborators", _, _:
                return answer_json({"permission": self.permissions.get(what, "none")})
            case "pulls", _, _:
                return self._page(self.reviews.get(int(what), []), query)
            case "actions", "artifacts", _:
                rows = [
                    row
                    for row, _ in self.artifacts.values()
                    if row["run"] == int(what) and row["name"] in query["name"]
                ]
                return answer_json({"total_count": len(rows), "artifacts": rows})
            case "actions", "zip", _:
                return Answer(302, b"", {"Location": f"{self.storage.url}/{what}"})
            case _:
                run = self.runs.get(int(what))
                return answer_json(run) if run else answer_json({"message": "Not Found"}, 404)

    def _page(self, rows: list[Json], query: Json) -> Answer:
        size, page = int(query["per_page"][0]), int(query["page"][0])
        return answer_json(rows[size * (page - 1) : size * page])

    def _stored(self, request: Request) -> Answer:
        """The storage of artifacts, another host: it must never see the forge's token."""
        if "Authorization" in request.headers:
            return Answer(400)
        return Answer(200, self.artifacts[int(request.path.strip("/"))][1])
