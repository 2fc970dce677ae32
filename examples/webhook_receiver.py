"""Receives webhooks, believes only what is signed, and does nothing twice.

python examples/webhook_receiver.py PORT COUNT, with the secret in WEBHOOK_SECRET, or as a line of
standard input once it is known; ends after COUNT messages.
"""

import base64
import hmac
import os
import sys
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar


def verified(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether the body is what was signed with the secret, within the last five minutes."""
    if abs(time.time() - int(headers["webhook-timestamp"])) > 300:
        return False  # somebody repeats what was sent once
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    given = headers["webhook-signature"].split()
    return any(hmac.compare_digest(one, f"v1,{wanted}") for one in given)


class Receiver(BaseHTTPRequestHandler):
    """Answers 204 to what it took, and 401 to what it does not believe."""

    secret = ""
    seen: ClassVar[dict[str, None]] = {}

    def do_POST(self) -> None:
        """One message."""
        body = self.rfile.read(int(self.headers["content-length"]))
        if verified(self.secret, self.headers, body):
            if self.headers["webhook-id"] not in self.seen:  # it may come twice
                self.seen[self.headers["webhook-id"]] = None
                print(body.decode(), flush=True)
            self.send_response(204)
        else:
            self.send_response(401)
            self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Messages are log enough."""


def main() -> None:
    """Receive."""
    port, count = map(int, sys.argv[1:3])
    with HTTPServer(("127.0.0.1", port), Receiver) as server:
        print(f"receiving on http://127.0.0.1:{server.server_port}/hooks", flush=True)
        Receiver.secret = os.environ.get("WEBHOOK_SECRET") or sys.stdin.readline().strip()
        while len(Receiver.seen) < count:
            server.handle_request()


if __name__ == "__main__":
    main()
