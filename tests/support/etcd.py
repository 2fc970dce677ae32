"""Real etcd servers of Debian's package, one or a cluster of three, on loopback."""

import contextlib
import json
import os
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

from tests.support.servers import Server, Servers, free_ports

# A tenth of the ordinary times: leases may be as short as a second, elections take a moment.
_HEARTBEAT_MS, _ELECTION_MS = 30, 300


class EtcdCluster(Servers):
    """``members`` servers that know each other; a context manager runs them."""

    def __init__(
        self,
        folder: Path,
        members: int = 1,
        *,
        tls: tuple[Path, Path, Path] | None = None,
        quota_bytes: int = 0,
    ) -> None:
        """``tls``: the servers' certificate with its key, the authority that clients must be
        signed by, and a client's certificate for questions of the test itself.
        """
        folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports(2 * members)
        self._scheme = "https" if tls else "http"
        self._clients, self._peers = ports[:members], ports[members:]
        self.endpoints = tuple(f"127.0.0.1:{port}" for port in self._clients)
        self._more = ["--quota-backend-bytes", str(quota_bytes)]
        self._context: ssl.SSLContext | None = None
        if tls:
            certificate, authority, client = tls
            self._more += ["--cert-file", str(certificate), "--key-file", str(certificate)]
            self._more += ["--trusted-ca-file", str(authority), "--client-cert-auth"]
            self._context = ssl.create_default_context(cafile=authority)
            self._context.load_cert_chain(client)
        self._servers = [self._server(folder, n) for n in range(members)]

    def wait(self) -> None:
        """Until every running server agrees with the others."""
        for n, server in enumerate(self._servers):
            if server.running:
                server.wait_until(lambda n=n: self._agrees(n))

    def wait_for_port(self, member: int) -> None:
        """Until ``member`` listens; what it says to strangers does not matter."""

        def listens() -> bool:
            host, port = self.endpoints[member].split(":")
            with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
                return True
            return False

        self._servers[member].wait_until(listens)

    def leader(self) -> int:
        """The member that leads."""
        for n, server in enumerate(self._servers):
            if server.running:
                status = self.ask(n, "maintenance/status", {})
                if status["leader"] == status["header"]["member_id"]:
                    return n
        raise AssertionError("nobody leads")

    def ask(self, member: int, path: str, body: dict[str, Any]) -> Any:
        """What ``member`` says to a request of the JSON gateway."""
        url = f"{self._scheme}://{self.endpoints[member]}/v3/{path}"
        request = urllib.request.Request(url, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=2, context=self._context) as answer:
            return json.load(answer)

    def compact(self) -> None:
        """Forget all revisions before the present one."""
        revision = self.ask(0, "kv/range", {"key": "AA=="})["header"]["revision"]
        self.ask(0, "kv/compaction", {"revision": revision, "physical": True})

    def delete_folder(self, folder: str) -> None:
        start, end = (b64encode(f"{folder}{c}".encode()).decode() for c in "/0")
        self.ask(0, "kv/deleterange", {"key": start, "range_end": end})

    def _agrees(self, member: int) -> bool:
        try:
            self.ask(member, "kv/range", {"key": "AA=="})
        except (urllib.error.URLError, OSError):
            return False
        return True

    def _server(self, folder: Path, n: int) -> Server:
        client = f"{self._scheme}://127.0.0.1:{self._clients[n]}"
        peer = f"http://127.0.0.1:{self._peers[n]}"
        everybody = ",".join(
            f"m{other}=http://127.0.0.1:{port}" for other, port in enumerate(self._peers)
        )
        program = shutil.which("etcd")
        assert program, "no etcd: tools/test_tools.py fetches it"
        command = [program, "--name", f"m{n}", "--data-dir", str(folder / f"m{n}")]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", everybody, "--log-level", "warn", "--logger", "zap"]
        command += ["--heartbeat-interval", str(_HEARTBEAT_MS)]
        command += ["--election-timeout", str(_ELECTION_MS)]
        command += self._more
        # Without the last one, this version does not start on other machines than Intel's.
        environment = {**os.environ, "GOMAXPROCS": "1", "ETCD_UNSUPPORTED_ARCH": "arm64"}
        return Server(command, folder / f"m{n}.log", environment)
