"""A guided tour: starts a broker of its own and shows every face of it, then tidies up."""

import base64
import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from test_tools import java_home

from waystation.node.etcd_program import NoEtcdError, find_etcd
from waystation.node.local import LocalNodes
from waystation.testing.process import BrokerProcess

WAYSTATION = Path(sys.executable).parent / "waystation"
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")

ORDERS = "".join(
    f'customer-{n % 3}:{{"order": {n}, "amount": {n * 7 % 100}}}\n' for n in range(1, 10)
)
LARGE = "SELECT key, value FROM orders WHERE value.amount >= 40"
# Groups need not wait for members that will not come.
QUICK = {"group.initial.rebalance.delay.ms": "0", "webhook.allow": "127.0.0.0/8"}
SECRET = "whsec_" + base64.b64encode(b"a secret of the demo, not for use").decode()
LATE_ORDER = 'customer-1:{"order": 10, "amount": 70}\n'


class Tour:
    """Shows a command as a user would type it, runs it, and stops the tour if it fails."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker

    def say(self, text: str) -> None:
        print(f"\n{BOLD}{text}{PLAIN}", flush=True)

    def run(self, *arguments: str, stdin: str = "") -> None:
        print(f"{DIM}$ waystation {' '.join(arguments)}{PLAIN}", flush=True)
        environment = {
            **os.environ,
            "WAYSTATION_BOOTSTRAP": self._broker.bootstrap,
            "WAYSTATION_HTTP_ADDRESS": self._broker.http,
        }
        if (java := java_home()) is not None:
            environment["JAVA_HOME"] = str(java)
        subprocess.run(
            [WAYSTATION, *arguments], input=stdin, text=True, env=environment, check=True
        )

    def python(self, path: str) -> None:
        print(f"{DIM}$ python {path}{PLAIN}", flush=True)
        environment = {**os.environ, "WAYSTATION_BOOTSTRAP": self._broker.bootstrap}
        subprocess.run([sys.executable, path], env=environment, check=True)

    def curl(self, path: str, **body: object) -> str:
        """Ask over HTTP, with a JSON body if one is given; what was answered."""
        from urllib.request import Request, urlopen

        url, told = f"http://{self._broker.http}{path}", json.dumps(body)
        given = f"--json '{told}' " if body else ""
        print(f"{DIM}$ curl {given}'{url}'{PLAIN}", flush=True)
        headers = {"content-type": "application/json"}
        asked = Request(url, told.encode() if body else None, headers)
        with urlopen(asked, timeout=10) as response:
            answer: str = response.read().decode()
        print(answer, flush=True)
        return answer

    def post(self, path: str) -> None:
        from urllib.request import Request, urlopen

        url = f"http://{self._broker.http}{path}"
        print(f"{DIM}$ curl -X POST {url}{PLAIN}", flush=True)
        with urlopen(Request(url, method="POST"), timeout=10) as response:
            print(response.read().decode(), flush=True)

    def get(self, path: str) -> None:
        from urllib.request import urlopen

        url = f"http://{self._broker.http}{path}"
        print(f"{DIM}$ curl {url}{PLAIN}", flush=True)
        with urlopen(url, timeout=10) as response:
            lines = response.read().decode().splitlines()
        print("\n".join(lines[:8]), flush=True)


def tour(broker: BrokerProcess) -> None:
    show = Tour(broker)
    show.say("A topic of three partitions, kept for seven days")
    show.run("topic", "create", "orders", "--partitions", "3", "--config", "retention.ms=604800000")
    show.run("topic", "list")

    show.say("Messages with keys: the same customer always goes to the same partition")
    show.run("produce", "orders", "--key-separator", ":", stdin=ORDERS)
    show.run("consume", "orders", "--from-beginning", "--count", "9", "--json")

    show.say("A group reads together and remembers its place: the second time, only what is new")
    show.run("consume", "orders", "--group", "billing", "--from-beginning", "--count", "9")
    show.run("produce", "orders", "--key-separator", ":", stdin=LATE_ORDER)
    show.run("group", "describe", "billing")
    show.run("consume", "orders", "--group", "billing", "--count", "1")

    show.say("A group can go back, and others do not notice: first the plan, then the deed")
    show.run("group", "reset", "billing", "--to-earliest", "--dry-run")
    show.run("group", "reset", "billing", "--shift-by", "-1", "--yes")
    show.run("group", "list")

    show.say(
        "Only some messages: chosen by the reader, or by the broker, in a view for every client"
    )
    show.run("consume", "orders", "--from-beginning", "--where", "value.amount >= 40")
    show.run("view", "create", "large", "--on", "orders", "--where", "value.amount >= 40")
    show.run("consume", "large", "--from-beginning", "--group", "audit", "--count", "3")
    show.run("group", "describe", "audit")
    show.run("view", "describe", "large", "--count")

    show.say("Nothing acknowledged is lost: kill -9, and everything is still there")
    broker.kill()
    broker.start()
    show.run("consume", "orders", "--from-beginning", "--count", "10")

    show.say("A topic says in one word what it is for; what that sets can be seen, and overruled")
    show.run("topic", "alter", "orders", "--set", "profile=latency")
    show.run("topic", "describe", "orders")

    show.say("History can be truncated")
    show.run("topic", "truncate", "orders", "--all", "--yes")
    show.run("topic", "describe", "orders")

    show.say("The same from Python, with our own client")
    examples = Path(__file__).parent.parent / "examples"
    show.python(str(examples / "python_client.py"))
    show.python(str(examples / "consumer_group.py"))

    show.say("Exactly once: results and the group's place count together, or not at all")
    show.python(str(examples / "exactly_once.py"))
    show.run("txn", "list")
    show.run("verify", "--seconds", "2", "--history", str(broker.data_dir.parent / "history"))

    _queued(show, broker)
    _scheduled(show, broker)

    show.say("Topics become tables on Spark, each record once")
    if find_spec("pyspark") is None or java_home() is None:
        print("Not set up here: `make pipeline` does that, and shows the whole way.", flush=True)
    else:
        show.run("produce", "orders", "--key-separator", ":", stdin=ORDERS)
        table = ["--topics", "orders", "--lake", str(broker.data_dir.parent / "lake")]
        show.run("pipeline", "archive", *table, "--value-format", "json", "--available-now")
        show.say("And back into a topic, exactly once: the large orders of 9")
        show.run("topic", "create", "large-orders")
        state = ["--checkpoint", str(broker.data_dir.parent / "large-orders")]
        job = ["--topics", "orders", "--to", "large-orders", "--sql", LARGE, *state]
        show.run("pipeline", "transform", *job, "--value-format", "json", "--available-now")
        show.run("consume", "large-orders", "--from-beginning", "--count", "4")
        show.run("sink", "list")

    show.say("From user to user over HTTP: one topic, found by an index of keys")
    show.curl("/send", from_user="user123", to_user="user456", message="Hello!")
    show.curl("/receive?user_id=user456")

    show.say("A transaction over HTTP: two topics, both messages or none, at whatever node")
    show.run("topic", "create", "receipts")
    begun = show.curl("/v1/transactions", timeout_ms=10_000)
    transaction = f"/v1/transactions/{json.loads(begun)['transaction']}"
    paid = [{"topic": "orders", "value": "paid"}, {"topic": "receipts", "value": "thank you"}]
    show.curl(f"{transaction}/messages", messages=paid)
    show.post(f"{transaction}/commit")
    show.get("/v1/topics/receipts/messages/stream")

    _by_curl(show)

    show.say("Push: a topic followed over HTTP, as Server-Sent Events")
    show.get("/v1/topics/inbox/events?from=earliest&limit=1")

    _pushed(show)

    show.say("Health and metrics over HTTP")
    show.get("/healthz")
    show.get("/readyz")
    show.get("/metrics")


def _by_curl(show: Tour) -> None:
    show.say("One customer's messages among all others, by the index of keys")
    show.run("topic", "create", "visits", "--partitions", "4", "--config", "index.keys=true")
    show.run("produce", "visits", "--key-separator", ":", stdin=ORDERS)
    customer = ORDERS.partition(":")[0]
    show.run("find", "--key", customer, "visits")
    show.curl(f"/v1/topics/visits/messages?key={customer}&values=json")

    show.say("No answer? Send it again: under an idempotency key it is stored once")
    for _ in range(2):
        show.curl("/v1/topics/visits/messages", value="two coffees", idempotency_key="order-4711")

    show.say("A queue with curl: received under a lease, acknowledged by receipt, from any node")
    show.curl("/v1/queues", name="tasks", partitions=1)
    show.curl("/v1/queues/tasks/messages", key="ann", value="two coffees")
    held = json.loads(show.curl("/v1/queues/tasks/receive", wait_ms=5_000, lease_ms=60_000))
    show.curl("/v1/queues/tasks/ack", receipts=[one["receipt"] for one in held["messages"]])
    show.curl("/v1/queues/tasks")


def _queued(show: Tour, broker: BrokerProcess) -> None:
    show.say("Queues: each message to one consumer, which acknowledges it, one key in order")
    show.run("queue", "create", "jobs", "--order-by-key", "--dead-letters", "jobs.dead")
    show.run("queue", "send", "jobs", "--key-separator", ":", stdin=ORDERS)
    show.run("queue", "receive", "jobs", "--count", "2", "--json")
    show.run("queue", "receive", "jobs", "--no-ack")
    show.say("What was acknowledged stays so when the broker is killed, and the rest comes again")
    broker.kill()
    broker.start()
    show.run("queue", "stats", "jobs")
    show.run("queue", "receive", "jobs", "--count", "9", "--wait", "10s")
    show.python(str(Path(__file__).parent.parent / "examples" / "work_queue.py"))
    show.run("queue", "dead", "list", "example-queue")
    show.run("queue", "dead", "redrive", "example-queue", "--rate", "100", "--yes")


def _pushed(show: Tour) -> None:
    show.say("Webhooks: messages pushed to a URL, signed, until the target takes them")
    receiver = Path(__file__).parent.parent / "examples" / "webhook_receiver.py"
    print(f"{DIM}$ python examples/webhook_receiver.py 0 2 &{PLAIN}", flush=True)
    environment = {**os.environ, "WEBHOOK_SECRET": SECRET}
    with subprocess.Popen(
        [sys.executable, receiver, "0", "2"], env=environment, stdout=subprocess.PIPE, text=True
    ) as receiving:
        assert receiving.stdout is not None, "it was piped"
        url = receiving.stdout.readline().split()[-1]
        show.run("topic", "create", "pushed")
        wanted = ["--topic", "pushed", "--url", url, "--secret", SECRET]
        show.run("webhook", "create", "shop", *wanted, "--where", "value.amount > 50")
        show.run("produce", "pushed", "--key-separator", ":", stdin=ORDERS)
        print(receiving.stdout.read(), flush=True)
    show.run("webhook", "show", "shop")
    show.run("webhook", "delete", "shop", "--yes")


def _scheduled(show: Tour, broker: BrokerProcess) -> None:
    show.say(
        "Messages for later: the broker keeps them, and delivers each once, not before its time"
    )
    show.run(
        "topic", "create", "reminders", "--partitions", "1", "--config", "schedule.enable=true"
    )
    show.run("schedule", "after", "reminders", "3s", "--key", "cart-7", "--value", "still open?")
    show.run("schedule", "at", "reminders", "2031-05-01T09:00:00Z", "--value", "never mind")
    daily = ["--zone", "Europe/Berlin", "--value", "daily report"]
    show.run("schedule", "cron", "reminders", "0 7 * * mon-fri", *daily)
    show.run("schedule", "list", "reminders")
    show.run("schedule", "cancel", "reminders", "0-1", "--yes")
    show.say("Also if the broker is killed meanwhile")
    broker.kill()
    broker.start()
    show.run("consume", "reminders", "--from-beginning", "--follow", "--count", "1")
    show.run("schedule", "list", "reminders")


def cluster_tour(folder: Path) -> None:
    """Three brokers and an etcd, of which one broker dies."""
    print(f"\n{BOLD}Several brokers: a real etcd and three of them, with one command{PLAIN}")
    if find_spec("aiohttp") is None or not _has_etcd():
        print("Not set up here: pip install 'waystation[cluster]', and etcd on PATH.", flush=True)
        return
    environment = {**os.environ, "WAYSTATION_CLUSTER": str(folder)}

    def run(*arguments: str, stdin: str = "") -> None:
        print(f"{DIM}$ waystation {' '.join(arguments)}{PLAIN}", flush=True)
        command = [WAYSTATION, *arguments]
        subprocess.run(command, input=stdin, text=True, env=environment, check=True)

    try:
        run(
            "cluster",
            "up",
            "--nodes",
            "3",
            "--port",
            "0",
            "--set",
            "broker.session.timeout.ms=3000",
        )
        environment["WAYSTATION_BOOTSTRAP"] = LocalNodes(folder).plan.bootstrap
        run("topic", "create", "orders", "--partitions", "3")
        run("produce", "orders", "--key-separator", ":", stdin=ORDERS)
        run("cluster", "status", "--partitions", "--wait", "30s")
        print(f"\n{BOLD}One is killed: the others have everything, and take over{PLAIN}")
        run("cluster", "kill", "2")
        run("consume", "orders", "--from-beginning", "--count", "9")
        run("produce", "orders", "--key-separator", ":", stdin=LATE_ORDER)
        run("cluster", "status")
        print(f"\n{BOLD}It comes back, copies what it missed, and is in sync again{PLAIN}")
        run("cluster", "start", "2")
        run("cluster", "status", "--wait", "60s")
    finally:
        run("cluster", "down", "--delete", "--yes")


def _has_etcd() -> bool:
    try:
        find_etcd(os.environ, print)
    except NoEtcdError:
        return False
    return True


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="waystation-demo-") as root:
        broker = BrokerProcess(Path(root) / "data", http="127.0.0.1:0", options=QUICK)
        with broker.start():
            print(f"A broker listens on {broker.bootstrap}, as `make run` would start it.")
            tour(broker)
        cluster_tour(Path(root) / "cluster")
    print(f"\n{BOLD}That was the tour. Start your own with `make run`.{PLAIN}")


if __name__ == "__main__":
    main()
