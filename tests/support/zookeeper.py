"""Real ZooKeeper servers of Debian's package, one or an ensemble of three, on loopback."""

import contextlib
import os
import socket
from pathlib import Path

from tools.test_tools import java_home, zookeeper_jars

from tests.support.servers import Server, Servers, free_ports

# A tenth of the ordinary tick: leases may be as short as a second, elections take a moment.
_TICK_MS = 200


class ZookeeperEnsemble(Servers):
    """``members`` servers that know each other; a context manager runs them."""

    def __init__(
        self, folder: Path, members: int = 1, *, tls: tuple[Path, Path] | None = None
    ) -> None:
        """``tls``: the servers' certificate with its key, and the authority that clients must be
        signed by.  Its endpoints are then ``secure_endpoints``.
        """
        folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports(4 * members)
        self._clients, self._secure, self._peers = (
            ports[:members],
            ports[members : 2 * members],
            ports[2 * members :],
        )
        self._tls = tls
        self.secure_endpoints = tuple(f"127.0.0.1:{port}" for port in self._secure)
        self.endpoints = tuple(f"127.0.0.1:{port}" for port in self._clients)
        self._servers = [self._server(folder, n, members) for n in range(members)]

    def wait(self) -> None:
        """Until every running server serves."""
        for n, server in enumerate(self._servers):
            if server.running:
                server.wait_until(lambda n=n: self._mode(n) != "")

    def leader(self) -> int:
        """The member that leads."""
        for n, server in enumerate(self._servers):
            if server.running and self._mode(n) in ("leader", "standalone"):
                return n
        raise AssertionError("nobody leads")

    def _mode(self, member: int) -> str:
        """What a server says it is: leader, follower or standalone; nothing until it is one."""
        host, port = self.endpoints[member].split(":")
        said = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, int(port)), timeout=2) as connection,
        ):
            connection.sendall(b"srvr")
            while chunk := connection.recv(4096):
                said += chunk
        modes = [line for line in said.decode().splitlines() if line.startswith("Mode: ")]
        return modes[0].removeprefix("Mode: ") if modes else ""

    def _server(self, folder: Path, n: int, members: int) -> Server:
        home = folder / f"m{n}"
        home.mkdir()
        (home / "myid").write_text(str(n + 1))
        settings = {
            "tickTime": _TICK_MS,
            "initLimit": 25,
            "syncLimit": 10,
            "dataDir": home,
            "clientPort": self._clients[n],
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            "maxClientCnxns": 0,
            "maxSessionTimeout": 60_000,
        }
        if self._tls:
            certificate, authority = self._tls
            settings |= {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "secureClientPort": self._secure[n],
                "secureClientPortAddress": "127.0.0.1",
                "ssl.keyStore.location": certificate,
                "ssl.trustStore.location": authority,
                "ssl.clientAuth": "need",
            }
        if members > 1:
            for other in range(members):
                quorum, election = self._peers[2 * other : 2 * other + 2]
                settings[f"server.{other + 1}"] = f"127.0.0.1:{quorum}:{election}"
        configuration = home / "zoo.cfg"
        configuration.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        java, jars = java_home(), zookeeper_jars()
        assert java, "no Java: tools/test_tools.py fetches it"
        assert jars, "no ZooKeeper: tools/test_tools.py fetches it"
        command = [str(java / "bin" / "java"), "-Xmx96m", "-XX:+UseSerialGC"]
        command += ["-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command += ["-Dzookeeper.forceSync=no", "-cp", os.pathsep.join(map(str, jars))]
        command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(configuration)]
        return Server(command, folder / f"m{n}.log")
