"""Asks a node over HTTP, and sees that every answer is one that the node has documented."""

import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpClient:
    """One connection, kept; what it asks is checked against ``/openapi.json``."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=30)
        self.openapi: dict[str, Any] = {}
        self.openapi = self.ask("GET", "/openapi.json").json

    def __enter__(self) -> "HttpClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: Any = None, method: str = "POST") -> Answer:
        return self.ask(
            method, path, json.dumps(body).encode(), {"content-type": "application/json"}
        )

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        self._connection.request(method, path, body, dict(headers or {}))
        response = self._connection.getresponse()
        told = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(response.status, told, response.read())
        if self.openapi:
            self._check(method, path, answer)
        return answer

    def _check(self, method: str, path: str, answer: Answer) -> None:
        """Its status, its type, and that a problem names what to do."""
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if kind == "application/problem+json":
            problem = answer.json
            assert problem["status"] == answer.status
            assert problem["detail"], problem
            assert problem["remedy"], problem
        documented = self._operation(method, path)
        if documented is None:
            assert answer.status in (404, 405, 400), answer
            return
        responses = documented["responses"]
        assert str(answer.status) in responses, f"{method} {path}: {answer} is not documented"
        kinds = {one.partition(";")[0] for one in responses[str(answer.status)].get("content", {})}
        assert kind in kinds or not answer.body, f"{method} {path}: {kind} is not in {kinds}"

    def _operation(self, method: str, path: str) -> Any:
        parts = path.partition("?")[0].split("/")
        paths = self.openapi["paths"]
        for template in sorted(paths, key=lambda one: str(one).count("{")):  # concrete ones first
            wanted = template.split("/")
            if len(wanted) == len(parts) and all(
                one == other or one.startswith("{")
                for one, other in zip(wanted, parts, strict=True)
            ):
                return paths[template].get("get" if method == "HEAD" else method.lower())
        return None
