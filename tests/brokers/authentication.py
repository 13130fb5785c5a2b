"""A broker that asks who somebody is: by token, by certificate over TLS, by an issuer's token; and who may type commands there."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs

import jwt
import pulsar
import pytest
import requests

from kodoctl.dev import jars, versions
from kodoctl.dev.instance import Folder
from kodoctl.dev.progress import quiet
from tests.brokers.broker import Broker
from tests.brokers.dev_user import CACHE, VERSION, User
from tests.brokers.workspace import Json, Run, Workspace, isolated, run_main
from tests.services.ports import unusual_ports
from tests.services.servers import Answer, Request, Server, answer_json, serving

SECRET = "client-secret-canary"
FILE = "J: {subscriptions: {s: {workers: [consumer]}}}"
_numbers = itertools.count(1)
_PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"
_START = """
import json, os
from kodoctl.dev import node_config as conf
own = conf._authentication
conf._authentication = lambda tokens: {**own(tokens), **json.loads(os.environ["KODOCTL_TEST_CONF"])}
from kodoctl.cli.main import main
main()
"""


@dataclass
class Closed(Broker):
    """`tokens`: role -> token; `config`: the contexts that `dev up` wrote; `key` signs tokens; `certificates`: their folder."""

    tokens: dict[str, str]
    config: Path
    key: bytes
    certificates: Path
    admin_tls: str
    broker_tls: str

    def admin(self, method: str, path: str, body: object = None, **params: str) -> requests.Response:
        """As the super-user, without kodoctl."""
        headers = {"Authorization": f"Bearer {self.tokens['applier']}", "Content-Type": "application/json"}
        url = f"{self.admin_url}/admin/v2/{path}"
        return requests.request(method, url, json=body, params=params or None, timeout=30, headers=headers)


@dataclass
class Guarded(Workspace):
    """A workspace whose commands present a token; everything they said is kept."""

    said: list[str] = field(default_factory=list)

    def run(self, *arguments: str, code: int | None = 0) -> Run:
        found = run_main(*arguments, *self.connection())
        self.said.append(found.text)
        assert code is None or found.code == code, f"exit {found.code}, not {code}\n{found.text}"
        return found

    def as_(self, role: str | None) -> Guarded:
        """From here on with this role's token; None: with none."""
        assert isinstance(self.broker, Closed)
        self.options = ["--admin-url", self.broker.admin_url, "--broker-url", self.broker.broker_url]
        if role is not None:
            path = self.folder.parent / f"{self.folder.name}-token-{role}"
            path.write_text(self.broker.tokens.get(role, role), encoding="utf-8")
            self.options += ["--token-file", str(path)]
        return self

    def certified(self, role: str | None, *, ca: str = "ca", host: str = "127.0.0.1") -> Guarded:
        """From here on over TLS, with this role's certificate; None: with none."""
        closed = self.broker
        assert isinstance(closed, Closed)
        urls = [url.replace("127.0.0.1", host) for url in (closed.admin_tls, closed.broker_tls)]
        self.options = [
            "--admin-url",
            urls[0],
            "--broker-url",
            urls[1],
            "--tls-ca",
            str(closed.certificates / f"{ca}.pem"),
        ]
        if role is not None:
            pair = [str(closed.certificates / f"{role}.{end}") for end in ("pem", "key")]
            self.options += ["--tls-cert", pair[0], "--tls-key", pair[1]]
        return self

    @contextmanager
    def connected(self, role: str) -> Iterator[pulsar.Client]:
        """A client that shows this role's token."""
        assert isinstance(self.broker, Closed)
        token = pulsar.AuthenticationToken(self.broker.tokens[role])
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(self.broker.broker_url, authentication=token, logger=quiet)
        yield client
        client.close()

    def tenant_with(self, *admins: str) -> None:
        """The tenant's administrators."""
        body = {"allowedClusters": ["standalone"], "adminRoles": list(admins)}
        assert self.broker.admin("POST", f"tenants/{self.tenant}", body).ok


class _Starter(User):
    """Its broker's configuration has more than `kodoctl dev up` gives."""

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", _START, "dev", *arguments]


@contextmanager
def started(folder: Path) -> Iterator[Closed]:
    """A broker of one's own with tokens, and with TLS beside the plain ports."""
    certificates = make_certificates(folder / "certificates", "broker", "applier", "planner")
    web, binary = unusual_ports().admin, unusual_ports().broker
    user = _Starter(folder)
    user.environ["KODOCTL_TEST_CONF"] = json.dumps(
        {
            "authenticationProviders": f"{_PROVIDERS}Token,{_PROVIDERS}Tls",
            "authenticationRefreshCheckSeconds": "1",
            "webServicePortTls": str(web),
            "brokerServicePortTls": str(binary),
            "tlsCertificateFilePath": str(certificates / "broker.pem"),
            "tlsKeyFilePath": str(certificates / "broker.key"),
            "tlsTrustCertsFilePath": str(certificates / "ca.pem"),
        }
    )
    try:
        found: Json = user.starts("--name", "guarded", "--auth", "token")
        tokens = {one["role"]: one["token"] for one in found["tokens"]}
        key = Folder(user.home / "guarded").key.read_bytes()
        places = f"https://127.0.0.1:{web}", f"pulsar+ssl://127.0.0.1:{binary}"
        yield Closed(found["admin_url"], found["broker_url"], tokens, user.config, key, certificates, *places)
    finally:
        told = user.types("down", "--all")
    assert told.code == 0, told.err


def make_certificates(folder: Path, server: str, *clients: str) -> Path:
    """A CA, a server's certificate for 127.0.0.1 and no name, one for each client, and another CA that nobody trusts."""
    folder.mkdir()

    def openssl(*arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
    for name in (server, *clients):
        extra = "subjectAltName=IP:127.0.0.1\n" if name == server else "extendedKeyUsage=clientAuth\n"
        (folder / "extra").write_text(extra, encoding="utf-8")
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", f"{name}.key")
        openssl("req", "-new", "-key", f"{name}.key", "-subj", f"/CN={name}", "-out", f"{name}.csr")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", "extra", "-out", f"{name}.pem")  # fmt: skip
    return folder


@dataclass
class Issuer:
    """A small OAuth2 server: discovery, and tokens for client credentials signed with the broker's key."""

    server: Server
    forms: list[Mapping[str, str]]

    @property
    def url(self) -> str:
        return self.server.url


@contextmanager
def issuing(key: bytes, lives: Iterator[float] | None = None, **answer: object) -> Iterator[Issuer]:
    """`lives`: seconds each token is good for from now, an hour after that; `answer` is put over the endpoint's own."""
    forms: list[Mapping[str, str]] = []

    def respond(request: Request) -> Answer:
        base = f"http://{request.headers['Host']}"
        if request.path == "/.well-known/openid-configuration":
            return answer_json({"issuer": base, "token_endpoint": f"{base}/token"})
        if (request.method, request.path) != ("POST", "/token"):
            return answer_json({"error": "not_found"}, 404)
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        forms.append(form)
        if form.get("grant_type") != "client_credentials":
            return answer_json({"error": "unsupported_grant_type"}, 400)
        if form.get("client_secret") != SECRET:
            said = f"no client with {form.get('client_secret')}"
            return answer_json({"error": "invalid_client", "error_description": said}, 401)
        life = next(lives, 3600.0) if lives else 3600.0
        token = jwt.encode({"sub": form["client_id"], "exp": int(time.time() + life), "jti": str(len(forms))}, key)
        return answer_json({"access_token": token, "token_type": "Bearer", "expires_in": 3600, **answer})

    with serving(respond) as server:
        yield Issuer(server, forms)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    """One broker of our own for all of these tests."""
    jars.ensure(CACHE, versions.exact(VERSION), os.environ, quiet)
    with started(tmp_path_factory.mktemp("user")) as found:
        yield found


@pytest.fixture
def guarded(closed: Closed, tmp_path: Path) -> Iterator[Guarded]:
    """A folder and a tenant of one's own; no token may ever be seen in what was said or written."""
    tenant = f"g{next(_numbers)}"
    assert closed.admin("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"], "adminRoles": []}).ok
    folder = tmp_path / "work"
    folder.mkdir()
    with isolated(folder):
        workspace = Guarded(closed, folder, tenant)
        workspace.topology(FILE)
        yield workspace.as_("applier")
    written = [path.read_text(encoding="utf-8", errors="replace") for path in folder.rglob("*") if path.is_file()]
    seen = "\n".join([*workspace.said, *written])
    assert SECRET not in seen
    for role, token in closed.tokens.items():
        assert token not in seen, f"the token of {role} shows"
        assert token.split(".")[2] not in seen, f"the signature of {role}'s token shows"
