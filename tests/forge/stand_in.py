"""A stand-in of a forge: the part of GitHub's REST API that kodoctl uses, as a real HTTP server with permissions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.services.servers import Answer, Request, Server, answer_json

Json = dict[str, Any]
BOT = "github-actions[bot]"
WORKFLOW = ".github/workflows/topologies.yml"
"""The one that calls the shipped ones."""
_PAGE = 2  # activities of a page: fewer than anybody asks for
# (method, path below the repository) -> the permission it needs, as GitHub documents them
_NEEDED = (
    ("GET", re.compile(r"commits/([0-9a-f]{40})/pulls"), "pull-requests", "read"),
    ("GET", re.compile(r"issues/(\d+)/comments"), "pull-requests", "read"),
    ("POST", re.compile(r"issues/(\d+)/comments"), "pull-requests", "write"),
    ("PATCH", re.compile(r"issues/comments/(\d+)"), "pull-requests", "write"),
    ("GET", re.compile(r"pulls/(\d+)/reviews"), "pull-requests", "read"),
    ("GET", re.compile(r"pulls/(\d+)/commits"), "pull-requests", "read"),
    ("GET", re.compile(r"(activity)"), "contents", "read"),
    ("GET", re.compile(r"collaborators/([^/]+)/permission"), "metadata", "read"),  # which every token has
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
    activities: list[Json] = field(default_factory=list)
    permissions: dict[str, str | None] = field(default_factory=dict)
    """Of accounts, where it is not `write`; None: the account is none of a person."""
    programs: frozenset[str] = frozenset({"copilot"})
    """Accounts of programs whose login does not say so."""
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
        self.tokens[token] = permissions or {}
        return token

    def begin_run(self, event: str, branch: str = "main") -> int:
        """`branch`: the pull request's, where one is what began it."""
        self._ids += 1
        run = {"id": self._ids, "event": event, "path": WORKFLOW, "head_branch": branch}
        asked = [{"number": one["number"], "base": one["base"]} for one in self.pulls if not one["merged_at"]]
        self.runs[self._ids] = {**run, "repository": {"full_name": self.repository}, "pull_requests": asked}
        return self._ids

    def keep(self, run: int, name: str, archive: bytes) -> None:
        self._ids += 1
        self.artifacts[self._ids] = ({"id": self._ids, "name": name, "run": run, "created_at": self.now()}, archive)

    def pull(self, head: str, author: str = "anna") -> Json:
        """A pull request of a branch of its own, which its author pushed; `head`: empty where that comes later."""
        number = len(self.pulls) + 1
        found = {
            "number": number,
            "head": {"sha": "", "ref": f"change-{number}"},
            "base": {"ref": "main"},
            "merged_at": None,
            "merge_commit_sha": None,
            "user": {"login": author},
        }
        self.pulls.append(found)
        if head:
            self.push(number, head, author)
        return found

    def push(self, number: int, head: str, login: str, kind: str = "", **people: Json | None) -> None:
        """A push with one new commit. `people`: author and committer of the commit, where that is not the pusher."""
        pull = self.pulls[number - 1]
        before, pull["head"]["sha"] = pull["head"]["sha"], head
        written = {role: people.get(role, {"login": login}) for role in ("author", "committer")}
        mails = {role: {"email": f"{(user or {'login': role})['login']}@example.org"} for role, user in written.items()}
        if kind == "force_push":
            self.commits[number] = []
        self.commits.setdefault(number, []).append({"sha": head, **written, "commit": {**mails}})
        self.act(number, kind or ("push" if before else "branch_creation"), {"login": login}, before or "0" * 40, head)

    def act(self, number: int, kind: str, actor: Json | None, before: str, after: str) -> None:
        """Something that was done to a pull request's branch."""
        ref = f"refs/heads/{self.pulls[number - 1]['head']['ref']}"
        row = {"activity_type": kind, "ref": ref, "before": before, "after": after, "timestamp": self.now()}
        self.activities.insert(0, {**row, "actor": actor})

    def merge(self, number: int, commit: str) -> None:
        self.pulls[number - 1] |= {"merged_at": self.now(), "merge_commit_sha": commit}

    def approve(self, number: int, login: str | None = "ben", state: str = "APPROVED") -> None:
        """`login`: None for an account that was deleted since."""
        head = self.pulls[number - 1]["head"]["sha"]
        review = {"state": state, "submitted_at": self.now(), "commit_id": head}
        self.reviews.setdefault(number, []).append({**review, "user": {"login": login} if login else None})

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
                held = (self.tokens[token] | {"metadata": "read"}).get(right)
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
                return self._page(self.commits.get(int(what), []), query)
            case "(activity)", _, _:
                return self._activities(query)
            case "collaborators", _, _:
                held = self.permissions.get(unquote(what), "write")
                user = {"login": unquote(what), "type": "Bot" if unquote(what).lower() in self.programs else "User"}
                found = {"permission": held, "user": user}
                return answer_json(found) if held else answer_json({"message": "not a user"}, 404)
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

    def _activities(self, query: Json) -> Answer:
        """By cursors, which only the header tells."""
        rows = [row for row in self.activities if row["ref"] in query["ref"]]
        begin = int(query.get("after", ["0"])[0])
        more = f'<https://elsewhere.test/activity?after={begin + _PAGE}>; rel="next"'
        link: dict[str, Any] = {"Link": more} if begin + _PAGE < len(rows) else {}
        return answer_json(rows[begin : begin + _PAGE], **link)

    def _stored(self, request: Request) -> Answer:
        """The storage of artifacts, another host: it must never see the forge's token."""
        if "Authorization" in request.headers:
            return Answer(400)
        return Answer(200, self.artifacts[int(request.path.strip("/"))][1])
