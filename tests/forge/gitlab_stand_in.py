"""A stand-in of GitLab: the part of its REST and GraphQL API that kodoctl uses, as a real HTTP server with scopes and roles.

Its answers have the form of GitLab's public documentation and source: entities of `lib/api/entities`, errors of `lib/api/api_guard.rb`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.services.servers import Answer, Request, Server, answer_json

Json = dict[str, Any]
BOT = "project_7_bot_5a9d"
CONFIG = "topologies.gitlab-ci.yml@acme/topologies"
GUEST, REPORTER, DEVELOPER = 10, 20, 30
_PROJECT = "projects/7"
# (method, path below /api/v4/) -> the scope and the role it needs
_NEEDED = (
    ("GET", re.compile(r"user"), "read_api", 0),
    ("GET", re.compile(r"users/(\d+)"), "read_api", 0),
    ("GET", re.compile(_PROJECT), "read_api", GUEST),
    ("GET", re.compile(rf"{_PROJECT}/repository/commits/([0-9a-f]{{40}})/merge_requests"), "read_api", REPORTER),
    ("GET", re.compile(rf"{_PROJECT}/merge_requests/(\d+)/notes"), "read_api", REPORTER),
    ("POST", re.compile(rf"{_PROJECT}/merge_requests/(\d+)/notes"), "api", REPORTER),
    ("PUT", re.compile(rf"{_PROJECT}/merge_requests/\d+/notes/(\d+)"), "api", REPORTER),
    ("GET", re.compile(rf"{_PROJECT}/merge_requests/(\d+)/approvals"), "read_api", REPORTER),
    ("GET", re.compile(rf"{_PROJECT}/events"), "read_api", REPORTER),
    ("GET", re.compile(rf"{_PROJECT}/members/all/(\d+)"), "read_api", GUEST),
    ("GET", re.compile(rf"{_PROJECT}/jobs/(\d+)"), "read_api", REPORTER),
    ("GET", re.compile(rf"{_PROJECT}/jobs/(\d+)/artifacts"), "read_api", REPORTER),
    ("GET", re.compile(rf"{_PROJECT}/pipelines/(\d+)"), "read_api", REPORTER),
)


@dataclass
class GitLabStandIn:
    """One project, number 7. Time goes on by a second with every change, so that before and after are exact."""

    path: str = "acme/topologies"
    config: str = CONFIG
    """The setting "CI/CD configuration file"."""
    pulls: list[Json] = field(default_factory=list)
    comments: dict[int, list[Json]] = field(default_factory=dict)
    approvals: dict[int, list[Json]] = field(default_factory=dict)
    commits: dict[int, list[Json]] = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)
    """E-mail address -> account, where that is not the part before the @; empty: no account."""
    roles: dict[str, int] = field(default_factory=dict)
    """Of accounts, where it is not Developer; 0: no member."""
    bots: set[str] = field(default_factory=lambda: {BOT})
    jobs: dict[int, Json] = field(default_factory=dict)
    pipelines: dict[int, Json] = field(default_factory=dict)
    artifacts: dict[int, bytes] = field(default_factory=dict)
    tokens: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    """Token -> scope, role and account."""
    trouble: list[Answer] = field(default_factory=list)
    """Answers that come first, whatever is asked."""

    def __post_init__(self) -> None:
        self._seconds, self._ids = 0, 1000
        self._accounts: list[str] = []
        self.server, self.storage = Server(self._answer), Server(self._stored)
        self.url = f"{self.server.url}/api/v4"

    def close(self) -> None:
        self.server.close()
        self.storage.close()

    # --- what people and runners do

    def now(self) -> str:
        self._seconds += 1
        return f"2026-11-22T12:{self._seconds // 60:02}:{self._seconds % 60:02}.250Z"

    def user(self, login: str) -> Json:
        if login not in self._accounts:
            self._accounts.append(login)
        return {"id": self._accounts.index(login) + 1, "username": login, "name": login.title(), "state": "active"}

    def token_for(self, scope: str, role: int = REPORTER, account: str = BOT) -> str:
        self._ids += 1
        token = f"glpat-{self._ids}CANARY"
        self.tokens[token] = (scope, role, account)
        return token

    def begin_job(self, source: str, ref: str = "main") -> int:
        """A job of a pipeline of its own. `ref`: of a merge request, where one is what began it."""
        self._ids += 2
        pipeline = {"id": self._ids, "iid": self._ids - 900, "project_id": 7, "ref": ref, "source": source}
        config = "EXTERNAL_PROJECT_SOURCE" if "@" in self.config else "REPOSITORY_SOURCE"
        self.pipelines[self._ids] = {**pipeline, "configSource": config}
        self.jobs[self._ids - 1] = {"id": self._ids - 1, "name": "kodoctl-plan", "ref": ref, "pipeline": pipeline}
        return self._ids - 1

    def pull(self, head: str, author: str = "anna") -> Json:
        """A merge request of a branch of its own, which its author pushed; `head`: empty where that comes later."""
        number = len(self.pulls) + 1
        found = {
            "id": 500 + number,
            "iid": number,
            "project_id": 7,
            "state": "opened",
            "sha": "",
            "source_branch": f"change-{number}",
            "target_branch": "main",
            "source_project_id": 7,
            "merged_at": None,
            "merge_commit_sha": None,
            "squash_commit_sha": None,
            "author": self.user(author),
        }
        self.pulls.append(found)
        if head:
            self.push(number, head, author)
        return found

    def push(self, number: int, head: str, login: str, author: str = "", committer: str = "") -> None:
        """A push with one new commit. `author`, `committer`: e-mail addresses, where they are not the pusher's."""
        pull = self.pulls[number - 1]
        before, pull["sha"] = pull["sha"], head
        mails = {
            "author_email": author or f"{login}@example.org",
            "committer_email": committer or f"{login}@example.org",
        }
        self.commits.setdefault(number, []).append({"id": head, **mails})
        self.act(number, "pushed" if before else "created", login, before or None, head)

    def act(self, number: int, action: str, login: str | None, before: str | None, after: str | None) -> Json:
        """Something that was done to a merge request's branch."""
        branch = self.pulls[number - 1]["source_branch"]
        data = {"action": action, "ref_type": "branch", "ref": branch, "commit_from": before, "commit_to": after}
        row: Json = {"project_id": 7, "action_name": "pushed to", "created_at": self.now(), "push_data": data}
        row |= {"author": self.user(login), "author_username": login} if login else {"author_username": None}
        self.events.insert(0, row)
        return row

    def merge(self, number: int, commit: str, kind: str = "merge_commit_sha") -> None:
        """`kind`: where the commit is, by the project's merge method; empty: the head itself, fast-forward."""
        self.pulls[number - 1] |= {"state": "merged", "merged_at": self.now(), **({kind: commit} if kind else {})}

    def approve(self, number: int, login: str = "ben") -> None:
        self.approvals.setdefault(number, []).append({"user": self.user(login), "approved_at": self.now()})

    def say(self, number: int, body: str, login: str, *, system: bool = False) -> Json:
        self._ids += 1
        now = self.now()
        stamps = {"created_at": now, "updated_at": now, "system": system, "noteable_iid": number}
        found = {"id": self._ids, "body": body, "author": self.user(login), **stamps}
        self.comments.setdefault(number, []).append(found)
        return found

    def edit(self, comment: int, body: str) -> Json:
        [found] = [one for several in self.comments.values() for one in several if one["id"] == comment]
        found.update(body=body, updated_at=self.now())
        return found

    # --- what it answers

    def _answer(self, request: Request) -> Answer:
        if self.trouble:
            return self.trouble.pop(0)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in self.tokens:
            return answer_json({"error": "invalid_token", "error_description": f"Token was revoked: {token}"}, 401)
        parts = urlsplit(request.path)
        if parts.path == "/api/graphql" and request.method == "POST":
            return self._graphql(json.loads(request.body), token)
        below = parts.path.removeprefix("/api/v4/")
        for method, pattern, scope, role in _NEEDED:
            if method == request.method and (found := pattern.fullmatch(below)):
                what = found[1] if found.groups() else ""
                return self._refused(token, scope, role) or self._do(
                    below, method, what, parse_qs(parts.query), request
                )
        return answer_json({"error": "404 Not Found"}, 404)

    def _refused(self, token: str, scope: str, role: int) -> Answer | None:
        held, level, _ = self.tokens[token]
        if held not in ("api", scope):
            text = "The request requires higher privileges than provided by the access token."
            return answer_json({"error": "insufficient_scope", "error_description": text, "scope": scope}, 403)
        if level < GUEST <= role:
            return answer_json({"message": "404 Project Not Found"}, 404)
        return answer_json({"message": "403 Forbidden"}, 403) if level < role else None

    def _do(self, path: str, method: str, what: str, query: Json, request: Request) -> Answer:
        match path.removeprefix(f"{_PROJECT}/").split("/"), method:
            case ["user"], _:
                [_, _, account] = self.tokens[request.headers["Authorization"].removeprefix("Bearer ")]
                return answer_json(self.user(account))
            case ["users", _], _:
                login = self._accounts[int(what) - 1]
                return answer_json({**self.user(login), "bot": login in self.bots})
            case ["projects", _], _:
                return answer_json({"id": 7, "path_with_namespace": self.path, "ci_config_path": self.config})
            case ["repository", *_], _:
                keys = ("merge_commit_sha", "squash_commit_sha", "sha")
                return self._page([pull for pull in self.pulls if what in [pull[key] for key in keys]], query)
            case ["merge_requests", _, "notes"], "GET":
                assert (query["sort"], query["order_by"]) == (
                    ["asc"],
                    ["created_at"],
                )  # the newest come first otherwise
                return self._page(self.comments.get(int(what), []), query)
            case ["merge_requests", _, "notes"], "POST":
                return answer_json(self.say(int(what), json.loads(request.body)["body"], BOT), 201)
            case ["merge_requests", _, "notes", _], _:
                return answer_json(self.edit(int(what), json.loads(request.body)["body"]))
            case ["merge_requests", _, "approvals"], _:
                rows = self.approvals.get(int(what), [])
                return answer_json({"approved": bool(rows), "approved_by": rows})
            case ["events"], _:
                assert (query["action"], query["sort"]) == (["pushed"], ["desc"])
                return self._page(self.events, query)
            case ["members", *_], _:
                login = self._accounts[int(what) - 1]
                role = self.roles.get(login, DEVELOPER)
                member = {**self.user(login), "access_level": role}
                return answer_json(member) if role else answer_json({"message": "404 Not found"}, 404)
            case ["jobs", _, "artifacts"], _:
                there = int(what) in self.artifacts
                gone = answer_json({"message": "404 Not Found"}, 404)
                return Answer(302, b"", {"Location": f"{self.storage.url}/{what}"}) if there else gone
            case ["jobs" | "pipelines" as kind, _], _:
                rows_by_id = self.jobs if kind == "jobs" else self.pipelines
                found = rows_by_id.get(int(what))
                return answer_json(found) if found else answer_json({"message": "404 Not found"}, 404)
        raise AssertionError(path)

    def _page(self, rows: list[Json], query: Json) -> Answer:
        """Rows that the token may not see are left out of their page, which others do not fill."""
        size, page = int(query["per_page"][0]), int(query["page"][0])
        shown = [row for row in rows[size * (page - 1) : size * page] if not row.get("hidden")]
        following: dict[str, Any] = {"X-Next-Page": str(page + 1) if size * page < len(rows) else ""}
        return answer_json(shown, **following)

    def _graphql(self, body: Json, token: str) -> Answer:
        variables, held = body["variables"], self.tokens[token]
        if held[0] not in ("api", "read_api"):
            return self._refused(token, "read_api", 0) or Answer(500)
        if held[1] < REPORTER or variables["project"] != self.path:
            return answer_json({"data": {"project": None}})
        if "pipeline(" in body["query"]:
            rows = [one for one in self.pipelines.values() if str(one["iid"]) == variables["pipeline"]]
            return answer_json({"data": {"project": {"pipeline": rows[0] if rows else None}}})
        if "mergeRequest(" not in body["query"]:
            return answer_json({"errors": [{"message": "Field does not exist"}]})
        commits = self.commits[int(variables["pull"])]
        begin = int(variables["after"] or 0)
        shown = commits[begin : begin + 2]  # fewer than anybody asks for
        nodes = [self._commit(one) for one in shown]
        more = {"hasNextPage": begin + 2 < len(commits), "endCursor": str(begin + 2)}
        accounts = {self._account(one["committer_email"]) for one in commits} - {""}
        users = {"nodes": [{"username": one} for one in sorted(accounts)], "pageInfo": {"hasNextPage": False}}
        found = {"committers": users, "commits": {"nodes": nodes, "pageInfo": more}}
        return answer_json({"data": {"project": {"mergeRequest": found}}})

    def _commit(self, one: Json) -> Json:
        account = self._account(one["author_email"])
        mails = {"authorEmail": one["author_email"], "committerEmail": one["committer_email"]}
        return {"sha": one["id"], **mails, "author": {"username": account} if account else None}

    def _account(self, address: str) -> str:
        return self.addresses.get(address, address.partition("@")[0])

    def _stored(self, request: Request) -> Answer:
        """The storage of artifacts, another host: it must never see the token."""
        if "Authorization" in request.headers:
            return Answer(400)
        return Answer(200, self.artifacts[int(request.path.strip("/"))])
