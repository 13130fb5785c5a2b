"""Reviews in merge requests of GitLab: the note, the job, the approval, and what its API answers when it does not."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kodoctl.cli.plan.forge_job import open_forge
from kodoctl.errors import error
from kodoctl.forge.rest_client import RestClient
from kodoctl.plan import plan_file
from kodoctl.pulsar.connection.secret import Secret
from tests.brokers.authentication import make_certificates
from tests.brokers.workspace import run_main
from tests.forge.gitlab_stand_in import BOT, CONFIG, GUEST, REPORTER
from tests.forge.workflows import zipped
from tests.samples.inventories import empty, planned, topology, wanted
from tests.services.servers import Answer, Request, answer_json, serving, speaking
from tests.unit.forge.gitlab_jobs import GitLabJob
from tests.unit.forge.jobs import HEAD, MERGED, SMALL

LARGER = planned(wanted(topology("{J: {}, K: {}}")), empty())


def test_the_plan_that_was_shown_is_the_one_that_is_found_after_the_merge(gitlab_job: GitLabJob) -> None:
    shown = gitlab_job.shows(SMALL)
    assert "Posted: https://forge.test/acme/topologies/-/merge_requests/1#note_" in shown.out
    assert f"https://forge.test/acme/topologies/-/jobs/{1001}" in gitlab_job.forge.comments[1][0]["body"]
    gitlab_job.forge.approve(1)
    gitlab_job.forge.merge(1, MERGED)
    found = gitlab_job.asks("--require-review")
    assert "Approved with !1" in found.out
    assert plan_file.loads((gitlab_job.folder / "approved.json").read_text(encoding="utf-8"), "f") == SMALL


def test_a_second_plan_updates_the_note_and_other_people_s_stay(gitlab_job: GitLabJob) -> None:
    for number in range(101):  # more than a page
        gitlab_job.forge.say(1, f"talk {number}", "anna")["hidden"] = number == 7  # from a project of others
    gitlab_job.forge.say(1, "added 1 commit", "anna", system=True)
    gitlab_job.shows(SMALL)
    gitlab_job.forge.say(1, gitlab_job.forge.comments[1][-1]["body"], "mallory")
    assert "Updated" in gitlab_job.shows(LARGER).out
    assert [one["author"]["username"] for one in gitlab_job.forge.comments[1]].count(BOT) == 1
    gitlab_job.forge.merge(1, MERGED)
    gitlab_job.asks()
    assert plan_file.loads((gitlab_job.folder / "approved.json").read_text(encoding="utf-8"), "f") == LARGER


@pytest.mark.parametrize("kind", ["merge_commit_sha", "squash_commit_sha", ""])
def test_every_merge_method_has_its_commit(gitlab_job: GitLabJob, kind: str) -> None:
    gitlab_job.shows(SMALL)
    gitlab_job.forge.merge(1, MERGED, kind)
    assert gitlab_job.asks(commit=MERGED if kind else HEAD).code == 0


def test_a_merged_result_is_planned_for_the_head_of_the_branch(gitlab_job: GitLabJob) -> None:
    variables = {"CI_MERGE_REQUEST_IID": "1", "CI_COMMIT_SHA": "e" * 40, "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": HEAD}
    gitlab_job.begin("merge_request_event", "refs/merge-requests/1/merge", "api", **variables)
    assert "could not be planned" in run_main("review", "post", "plan.json").err
    gitlab_job.forge.merge(1, MERGED)
    assert f"{HEAD[:8]} could not be planned for base" in gitlab_job.refused()


def _note(**values: object) -> Callable[[GitLabJob], None]:
    """The note is another."""

    def change(job: GitLabJob) -> None:
        job.forge.comments[1][0].update(values)

    return change


def _pipeline(**values: object) -> Callable[[GitLabJob], None]:
    """The pipeline that made the plan is another."""

    def change(job: GitLabJob) -> None:
        next(iter(job.forge.pipelines.values())).update(values)

    return change


def _edited(job: GitLabJob) -> None:
    _note(body=job.forge.comments[1][0]["body"].replace("to create", "to cheat"))(job)


def _moved_on(job: GitLabJob) -> None:
    job.forge.pulls[0]["sha"] = "c" * 40


def _by_somebody_else(job: GitLabJob) -> None:
    _note(author=job.forge.user("mallory"))(job)


def _other_target(job: GitLabJob) -> None:
    job.forge.pulls[0]["target_branch"] = "mallorys"


def _no_artifact(job: GitLabJob) -> None:
    job.forge.artifacts.clear()


def _two_files(job: GitLabJob) -> None:
    [number] = job.forge.artifacts
    job.forge.artifacts[number] = zipped({"plan.json": plan_file.dumps(SMALL).encode(), "other": b""})


def _another_merge(job: GitLabJob) -> None:
    job.forge.pulls[0]["merge_commit_sha"] = "d" * 40


def _own_file(job: GitLabJob) -> None:
    job.forge.config = ""


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (_edited, "does not show the plan as it is"),
        (_moved_on, "!1 shows the plan of aaaaaaaa, merged was cccccccc: pushed after the plan"),
        (_by_somebody_else, f"!1 has no plan for base by {BOT}"),
        (_note(updated_at="2026-11-23T00:00:00+01:00"), "written after the merge"),
        (_pipeline(source="push"), "is of a pipeline that began by 'push', not by merge_request_event"),
        (_pipeline(ref="refs/merge-requests/2/head"), "is of refs/merge-requests/2/head, not of !1"),
        (_pipeline(configSource="REPOSITORY_SOURCE"), "which a merge request may change: set it to FILE@GROUP/PROJECT"),
        (_own_file, "has its script from '.gitlab-ci.yml'"),
        (_other_target, "!1 was merged into 'mallorys', this job is of 'main'"),
        (_no_artifact, "never uploaded, or expired"),
        (_two_files, "holds no plan"),
        (_another_merge, "came with no merge request that was merged as it"),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_what_is_not_as_it_was_approved_is_refused(
    gitlab_job: GitLabJob, break_it: Callable[[GitLabJob], None], reason: str
) -> None:
    gitlab_job.shows(SMALL)
    gitlab_job.forge.merge(1, MERGED)
    break_it(gitlab_job)
    assert reason in gitlab_job.refused()


def test_the_file_that_plans_may_be_named(gitlab_job: GitLabJob) -> None:
    gitlab_job.shows(SMALL)
    gitlab_job.forge.merge(1, MERGED)
    assert f"has its script from {CONFIG}, not from ci.yml@acme/other" in gitlab_job.refused(
        "--workflow", "ci.yml@acme/other"
    )
    assert gitlab_job.asks("--workflow", CONFIG).code == 0


def test_a_plan_that_was_shown_as_refused_is_refused(gitlab_job: GitLabJob) -> None:
    gitlab_job.shows(replace(SMALL, findings=(error("K413", "Pulsar tenant not found", "'acme'"),)))
    gitlab_job.forge.merge(1, MERGED)
    assert "K536" in gitlab_job.refused()


# --- whose approval counts


def _merged(job: GitLabJob, *approvals: str) -> None:
    """The plan was shown, and then approved by these."""
    job.shows(SMALL)
    for login in approvals:
        job.forge.approve(1, login)
    job.forge.merge(1, MERGED)


def test_without_an_approval_or_with_the_author_s_own_nothing_is_applied(gitlab_job: GitLabJob) -> None:
    _merged(gitlab_job)
    assert "nobody else of the repository approved aaaaaaaa since !1 shows this plan" in gitlab_job.refused(
        "--require-review"
    )
    gitlab_job.forge.approve(1, "Anna")
    assert "anna approved, but contributed to it" in gitlab_job.refused("--require-review")
    gitlab_job.forge.approve(1, "ben")
    assert gitlab_job.asks("--require-review").code == 0


def test_an_approval_from_before_the_plan_is_none(gitlab_job: GitLabJob) -> None:
    gitlab_job.forge.approve(1)
    _merged(gitlab_job)
    assert "ben approved, but before it showed this plan" in gitlab_job.refused("--require-review")


def test_an_approval_whose_time_the_forge_does_not_say_is_none(gitlab_job: GitLabJob) -> None:
    _merged(gitlab_job, "ben")
    del gitlab_job.forge.approvals[1][0]["approved_at"]
    assert "ben approved, but the forge does not say when" in gitlab_job.refused("--require-review")


def test_an_approval_of_another_head_that_was_then_pushed_away_is_none(gitlab_job: GitLabJob) -> None:
    """The note of the first head is still there: the plan of the second one failed before it could be shown."""
    gitlab_job.shows(SMALL)
    gitlab_job.forge.push(1, "d" * 40, "anna")
    gitlab_job.forge.approve(1, "ben")
    gitlab_job.forge.push(1, HEAD, "anna")
    gitlab_job.forge.merge(1, MERGED)
    assert "ben approved, but before aaaaaaaa was pushed" in gitlab_job.refused("--require-review")


def test_a_head_that_came_back_by_a_push_of_many_branches_is_as_new_as_the_merge(gitlab_job: GitLabJob) -> None:
    """GitLab records no push of this branch then: the latest one that it does record is of the commit in between."""
    gitlab_job.shows(SMALL)
    gitlab_job.forge.push(1, "d" * 40, "mallory")
    gitlab_job.forge.approve(1, "ben")
    row = gitlab_job.forge.act(1, "pushed", "mallory", "d" * 40, HEAD)
    row["push_data"] |= {"ref": None, "commit_from": None, "commit_to": None, "ref_count": 5}
    gitlab_job.forge.pulls[0]["sha"] = HEAD
    gitlab_job.forge.merge(1, MERGED)
    assert "ben approved, but before aaaaaaaa was pushed" in gitlab_job.refused("--require-review")
    gitlab_job.forge.approvals.clear()
    for login in ("mallory", "ben"):
        gitlab_job.forge.approve(1, login)
    reason = gitlab_job.refused("--require-review")
    assert "mallory approved, but contributed to it" in reason
    assert "ben approved, and 2 must: who pushed aaaaaaaa is not known" in reason
    gitlab_job.forge.approve(1, "cora")
    assert gitlab_job.asks("--require-review").code == 0


def test_whoever_pushed_to_the_branch_approves_nothing_whatever_addresses_the_commits_bear(
    gitlab_job: GitLabJob,
) -> None:
    gitlab_job.forge.push(1, "d" * 40, "mallory", "anna@example.org", "anna@example.org")
    gitlab_job.forge.push(1, HEAD, "anna")
    _merged(gitlab_job, "mallory")
    assert "mallory approved, but contributed to it" in gitlab_job.refused("--require-review")
    gitlab_job.forge.approve(1, "ben")
    assert gitlab_job.asks("--require-review").code == 0


@pytest.mark.parametrize("role", ["author", "committer"])
def test_whoever_wrote_or_committed_what_another_pushed_approves_nothing(gitlab_job: GitLabJob, role: str) -> None:
    other: dict[str, Any] = {role: "mallory@example.org"}
    gitlab_job.forge.push(1, HEAD, "anna", **other)
    _merged(gitlab_job, "mallory")
    assert "mallory approved, but contributed to it" in gitlab_job.refused("--require-review")


@pytest.mark.parametrize(
    ("role", "reason"), [(REPORTER, "may not write to the project"), (0, "is no member of the project")]
)
def test_an_approval_counts_from_developers(gitlab_job: GitLabJob, role: int, reason: str) -> None:
    gitlab_job.forge.roles["ben"] = role
    _merged(gitlab_job, "ben")
    assert f"ben approved, but {reason}" in gitlab_job.refused("--require-review")


def test_approvals_of_bots_and_of_accounts_that_are_gone_are_none(gitlab_job: GitLabJob) -> None:
    _merged(gitlab_job, BOT)
    gitlab_job.forge.approvals[1].append({"user": None, "approved_at": gitlab_job.forge.now()})
    assert f"{BOT} approved, but is nobody" in gitlab_job.refused("--require-review")


def _unlinked(job: GitLabJob) -> None:
    job.forge.addresses["who@knows.test"] = ""
    job.forge.push(1, HEAD, "anna", "who@knows.test", "who@knows.test")


def _unlinked_committer(job: GitLabJob) -> None:
    job.forge.addresses["who@knows.test"] = ""
    job.forge.push(1, HEAD, "anna", committer="who@knows.test")


def _by_a_bot(job: GitLabJob) -> None:
    job.forge.push(1, HEAD, BOT)


def _by_a_key(job: GitLabJob) -> None:
    job.forge.act(1, "pushed", None, HEAD, HEAD)


def _many_branches_at_once(job: GitLabJob) -> None:
    """GitLab writes one event without a branch for a push of more than three branches."""
    row = job.forge.act(1, "pushed", "mallory", HEAD, "d" * 40)
    row["push_data"] |= {"ref": None, "commit_from": None, "commit_to": None, "ref_count": 5}
    job.forge.act(1, "pushed", "anna", "d" * 40, HEAD)


def _forgotten(job: GitLabJob) -> None:
    job.forge.events[0]["push_data"] |= {"action": "pushed", "commit_from": "e" * 40}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_unlinked, "the author of aaaaaaaa has an e-mail address of no account, who@knows.test"),
        (_unlinked_committer, "the committer of aaaaaaaa may have an e-mail address of no account"),
        (_by_a_bot, f"who pushed aaaaaaaa is {BOT}"),
        (_by_a_key, "who pushed aaaaaaaa is not known"),
        (_many_branches_at_once, "who pushed dddddddd is not known"),
        (_forgotten, "who pushed eeeeeeee is not known"),
    ],
)
def test_whoever_has_no_name_may_be_the_one_who_approves_so_that_another_must_too(
    gitlab_job: GitLabJob, make: Callable[[GitLabJob], None], reason: str
) -> None:
    make(gitlab_job)
    _merged(gitlab_job, "ben")
    assert f"ben approved, and 2 must: {reason}" in gitlab_job.refused("--require-review")
    gitlab_job.forge.approve(1, "cora")
    assert gitlab_job.asks("--require-review").code == 0


def test_what_the_forge_does_not_tell_in_full_is_not_approved(gitlab_job: GitLabJob) -> None:
    _merged(gitlab_job, "ben")
    known = gitlab_job.forge.commits[1]
    gitlab_job.forge.commits[1] = [{**known[0], "id": f"{number:040}"} for number in range(5)]  # three pages
    assert "does not list all commits of !1" in gitlab_job.refused("--require-review")
    gitlab_job.forge.commits[1] += known
    assert gitlab_job.asks("--require-review").code == 0
    (gitlab_job.folder / "approved.json").unlink()
    gitlab_job.forge.events.clear()
    assert "does not say who pushed aaaaaaaa" in gitlab_job.refused("--require-review")


# --- what the API answers


def test_a_token_without_the_scope_is_told_which_it_lacks(gitlab_job: GitLabJob) -> None:
    gitlab_job.begin("merge_request_event", "refs/merge-requests/1/head", "read_api", CI_MERGE_REQUEST_IID="1")
    gitlab_job.patch.setenv("CI_COMMIT_SHA", HEAD)
    found = run_main("review", "post", "plan.json")
    text = " ".join(found.err.split())
    assert (found.code, "K546" in text) == (1, True)
    assert "POST merge_requests/1/notes of acme/topologies" in text
    assert "403 The request requires higher privileges" in text
    assert "the token needs the scope `api` and the role Reporter" in text


@pytest.mark.parametrize(
    ("role", "said"),
    [
        (GUEST, "403 Forbidden; the token needs the scope"),
        (0, "404 Project Not Found, or the token may not see it; the token needs the scope `read_api`"),
    ],
)
def test_a_token_without_the_role_is_told_which_it_lacks(gitlab_job: GitLabJob, role: int, said: str) -> None:
    gitlab_job.begin("push", "main", "read_api", CI_COMMIT_BRANCH="main", CI_COMMIT_SHA=MERGED)
    gitlab_job.patch.setenv("GITLAB_TOKEN", gitlab_job.forge.token_for("read_api", role))
    found = run_main("review", "approved", "--out", "approved.json")
    assert said in " ".join(found.err.split())


def test_a_token_that_is_none_is_told_so_and_is_never_printed(gitlab_job: GitLabJob) -> None:
    gitlab_job.begin("push", "main", "read_api", CI_COMMIT_BRANCH="main", CI_COMMIT_SHA=MERGED)
    gitlab_job.patch.setenv("GITLAB_TOKEN", "glpat-stolenCANARY")
    found = run_main("review", "approved", "--out", "approved.json")
    assert "401 Token was revoked: ***; the token is not valid, or expired" in " ".join(found.err.split())
    assert "CANARY" not in found.text


def test_a_busy_forge_is_asked_again_after_its_own_time_and_a_note_is_never_posted_twice(
    gitlab_job: GitLabJob,
) -> None:
    pauses: list[float] = []
    gitlab_job.patch.setattr("kodoctl.cli.plan.forge_job.open_forge", lambda: open_forge(pause=pauses.append))
    gitlab_job.forge.trouble += [
        Answer(429, b"Retry later\n", {"Retry-After": "7"}),
        answer_json({"message": "later"}, 503),
        Answer(cut=True),
    ]
    assert gitlab_job.shows(SMALL).code == 0
    assert pauses == [7.0, 2.0, 4.0]
    assert len(gitlab_job.forge.comments[1]) == 1


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (
            [Answer(429, b"Retry later\n", {"Retry-After": "600"})],
            "429 Too Many Requests; too many requests, again in 600 s",
        ),
        ([answer_json({"message": "502 Bad Gateway"}, 502)] * 4, "502 Bad Gateway"),
        ([Answer(200, b"<html>Sign in</html>")], "200, and no JSON: is this the address of its API?"),
        ([answer_json(["x"])], "the answer has another form than its documentation says"),
    ],
)
def test_an_answer_that_is_none_ends_the_command_with_the_reason(
    gitlab_job: GitLabJob, answers: list[Answer], reason: str
) -> None:
    gitlab_job.patch.setattr("kodoctl.cli.plan.forge_job.open_forge", lambda: open_forge(pause=lambda _: None))
    gitlab_job.forge.trouble += answers
    found = gitlab_job.shows(SMALL)
    assert (found.code, reason in " ".join(found.err.split())) == (1, True), found.err
    assert gitlab_job.forge.comments == {}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"errors": [{"message": "no field for {token}"}]}, "no field for ***; the token needs the scope `read_api`"),
        ({"errors": ["x"]}, "the answer has another form than its documentation says"),
        ({"data": ["x"]}, "the answer has another form than its documentation says"),
        ({"data": {"project": None}}, "no pipeline, or the token may not see it"),
    ],
)
def test_an_answer_of_graphql_that_is_none_ends_the_command_with_the_reason(
    gitlab_job: GitLabJob, document: dict[str, Any], said: str
) -> None:
    gitlab_job.shows(SMALL)
    gitlab_job.forge.merge(1, MERGED)
    answer = gitlab_job.forge._answer

    def queried(request: Request) -> Answer:
        if request.path != "/api/graphql":
            return answer(request)
        found = answer_json(document)
        token = request.headers["Authorization"].removeprefix("Bearer ")
        return replace(found, body=found.body.replace(b"{token}", token.encode()))

    gitlab_job.forge.server._answer = queried
    found = gitlab_job.asks()
    assert (found.code, said in " ".join(found.err.split())) == (1, True), found.err
    assert "CANARY" not in found.text


def test_a_note_is_posted_again_only_after_too_many_requests(gitlab_job: GitLabJob) -> None:
    pauses: list[float] = []
    gitlab_job.patch.setattr("kodoctl.cli.plan.forge_job.open_forge", lambda: open_forge(pause=pauses.append))
    answer = gitlab_job.forge._answer
    limits = [Answer(429, b"Retry later"), answer_json({"message": "limit"}, 403, **{"Retry-After": "3"})]
    fails = [answer_json({"message": "500 Internal Server Error"}, 500)]

    def limited(request: Request) -> Answer:
        return (limits or fails).pop() if request.method == "POST" and (limits or fails) else answer(request)

    gitlab_job.forge.server._answer = limited
    found = gitlab_job.shows(SMALL)
    assert (found.code, "500 Internal Server Error" in found.err) == (1, True), found.err
    assert pauses == [3.0, 2.0]
    assert gitlab_job.shows(SMALL).code == 0


def test_authorities_of_a_gitlab_of_one_s_own_are_those_that_the_runner_names(
    gitlab_job: GitLabJob, tmp_path: Path
) -> None:
    certificates = make_certificates(tmp_path / "certificates", "gitlab")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificates / "gitlab.pem", certificates / "gitlab.key")
    with speaking(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", tls=tls) as host:
        gitlab_job.patch.setattr("kodoctl.cli.plan.forge_job.open_forge", lambda: open_forge(pause=lambda _: None))
        variables = {"CI_MERGE_REQUEST_IID": "1", "CI_COMMIT_SHA": HEAD, "CI_API_V4_URL": f"https://{host}/api/v4"}
        gitlab_job.begin("merge_request_event", "refs/merge-requests/1/head", "api", **variables)
        assert "REQUESTS_CA_BUNDLE" in run_main("review", "post", "plan.json").err
        gitlab_job.patch.setenv("CI_SERVER_TLS_CA_FILE", str(certificates / "ca.pem"))
        assert "401" in run_main("review", "post", "plan.json").err
        gitlab_job.patch.delenv("CI_SERVER_TLS_CA_FILE")
        gitlab_job.patch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "nowhere.pem"))
        found = run_main("review", "post", "plan.json")
        assert ("K546" in found.err, "check REQUESTS_CA_BUNDLE" in found.err) == (True, True), found.err


@pytest.mark.parametrize("signed_by", ["gitlab", "system"])
def test_a_storage_that_downloads_come_from_has_an_authority_of_the_runner_or_of_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, signed_by: str
) -> None:
    made = {name: make_certificates(tmp_path / name, "server") for name in ("gitlab", "system")}

    def tls_of(name: str) -> ssl.SSLContext:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(made[name] / "server.pem", made[name] / "server.key")
        return tls

    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(made["system"] / "ca.pem"))
    head = b"Connection: close\r\nContent-Length: "
    with speaking(b"HTTP/1.1 200 OK\r\n" + head + b"4\r\n\r\nplan", tls=tls_of(signed_by)) as storage:
        moved = f"HTTP/1.1 302 Found\r\nLocation: https://{storage}/plan.zip\r\n".encode() + head + b"0\r\n\r\n"
        with speaking(moved, tls=tls_of("gitlab")) as host:
            ca_file = str(made["gitlab"] / "ca.pem")
            http = RestClient(
                f"https://{host}", "", "acme/shop", Secret("glpat"), ca_file=ca_file, pause=lambda _: None
            )
            with closing(http):
                assert http.download("jobs/1/artifacts", needs="") == b"plan"


def test_a_redirect_may_name_the_path_alone() -> None:
    def answer(request: Request) -> Answer:
        moved = Answer(302, headers={"Location": "/storage/plan.zip"})
        return answer_json({"fine": True}) if request.path == "/storage/plan.zip" else moved

    with serving(answer) as forge, closing(RestClient(forge.url, "", "acme/shop", Secret("glpat"))) as http:
        assert http.download("jobs/1/artifacts", needs="") == b'{"fine": true}'
    assert [one.headers.get("Authorization") for one in forge.requests] == ["Bearer glpat", None]


@pytest.mark.parametrize("downloads", [True, False])
def test_a_netrc_of_the_user_is_sent_to_no_place_that_the_forge_redirects_to(
    *, downloads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither to the storage of an artifact nor to where the API moved; a forge of another host never sees the token."""
    (tmp_path / "netrc").write_text("default login somebody password secret\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with serving(lambda _: answer_json({"fine": True})) as storage:
        with serving(lambda _: Answer(302, headers={"Location": f"{storage.url}/plan.zip"})) as forge:
            http = RestClient(forge.url.replace("127.0.0.1", "localhost"), "", "acme/shop", Secret("glpat"))
            with closing(http):
                if downloads:
                    assert http.download("jobs/1/artifacts", needs="") == b'{"fine": true}'
                else:
                    assert http.read("GET", "user", lambda found: found["fine"], needs="")
        assert [one.headers["Authorization"] for one in forge.requests] == ["Bearer glpat"]
        assert [one.headers.get("Authorization") for one in storage.requests] == [None]


@pytest.mark.parametrize(
    "name", ["GITLAB_TOKEN", "CI_PROJECT_ID", "CI_API_V4_URL", "CI_JOB_ID", "CI_MERGE_REQUEST_IID", "CI_COMMIT_SHA"]
)
def test_outside_of_a_job_what_is_missing_is_named(gitlab_job: GitLabJob, name: str) -> None:
    variables = {"CI_MERGE_REQUEST_IID": "1", "CI_COMMIT_SHA": HEAD}
    gitlab_job.begin("merge_request_event", "refs/merge-requests/1/head", "api", **variables)
    gitlab_job.patch.delenv(name)
    found = run_main("review", "post", "plan.json")
    assert (found.code, name.replace("CI_COMMIT_SHA", "--commit") in found.err) == (64, True)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("CI_API_V4_URL", "http://gitlab.example.org/api/v4", "K505"),
        ("CI_API_V4_URL", "https://user:word@gitlab.example.org/api/v4", "K505"),
        ("GITLAB_TOKEN", "two CANARY words", "K504"),
        ("CI_PROJECT_ID", "acme", "K547"),
        ("CI_SERVER_TLS_CA_FILE", "/nowhere/ca.pem", "K547"),
    ],
)
def test_addresses_without_tls_and_tokens_that_are_none_are_refused_before_anything_is_sent(
    gitlab_job: GitLabJob, name: str, value: str, code: str
) -> None:
    variables = {"CI_MERGE_REQUEST_IID": "1", "CI_COMMIT_SHA": HEAD, name: value}
    gitlab_job.begin("merge_request_event", "refs/merge-requests/1/head", "api", **variables)
    found = run_main("review", "post", "plan.json")
    assert (found.code, code in found.err, name in found.err) == (64, True, True)
    assert "CANARY" not in found.text
    assert "word@" not in found.text
    assert gitlab_job.forge.server.requests == []


def test_everything_that_is_missing_is_named_at_once(gitlab_job: GitLabJob) -> None:
    for name in [name for name in os.environ if name.startswith(("CI_", "GITLAB_"))]:
        gitlab_job.patch.delenv(name)
    gitlab_job.patch.setenv("GITLAB_CI", "true")
    text = " ".join(run_main("review", "post", "plan.json").err.split())
    for name in ("CI_MERGE_REQUEST_IID", "--commit", "CI_JOB_ID", "CI_API_V4_URL, CI_PROJECT_ID", "GITLAB_TOKEN"):
        assert name in text
    text = " ".join(run_main("review", "approved", "--out", "approved.json").err.split())
    for name in ("CI_COMMIT_BRANCH", "--commit", "GITLAB_TOKEN is a token of the project with the scope `api`"):
        assert name in text


def test_a_plan_is_fetched_in_a_pipeline_of_a_branch(gitlab_job: GitLabJob) -> None:
    gitlab_job.begin("push", "v1", "read_api", CI_COMMIT_SHA=MERGED, CI_COMMIT_TAG="v1")
    found = run_main("review", "approved", "--out", "approved.json")
    assert (found.code, "CI_COMMIT_BRANCH is not set" in found.err) == (64, True)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"errors": [{"message": "Field 'x' does not exist"}]}, "Field 'x' does not exist; the token needs"),
        ({"data": {"project": None}}, "no pipeline, or the token may not see it"),
    ],
)
def test_graphql_says_its_errors_in_an_answer_that_looks_well(
    gitlab_job: GitLabJob, answer: dict[str, Any], reason: str
) -> None:
    gitlab_job.shows(SMALL)
    gitlab_job.forge.merge(1, MERGED)
    gitlab_job.patch.setattr(gitlab_job.forge, "_graphql", lambda *_: answer_json(answer))
    found = gitlab_job.asks()
    assert (found.code, reason in " ".join(found.err.split())) == (1, True), found.err
