"""The bars of operation: what it costs to be watched, and how fast an operator gets an answer."""
import fcntl
import http.server
import json
import os
import pty
import socket
import struct
import subprocess
import termios
import threading
import time
import urllib.error
import urllib.request


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Scraper:
    """Reads /metrics once a second, as Prometheus does, until the program has ended."""

    def __init__(self, port):
        self.url, self.read, self.over = f"http://127.0.0.1:{port}/metrics", 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over.wait(1):
            try:
                with urllib.request.urlopen(self.url, timeout=5) as answer:
                    self.read += b"turnstile_messages_total" in answer.read()
            except (urllib.error.URLError, OSError):
                pass  # the program starts or ends

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Collector:
    """Accepts spans, as an OpenTelemetry collector does, and does not read them."""

    def __init__(self):
        collector = self
        self.received = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.received += len(body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Screen:
    """A program on a terminal of 80×24."""

    def __init__(self, command, **more):
        self.terminal, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.shown, self.began = b"", time.monotonic()
        self.process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, start_new_session=True, **more)
        os.close(inside)
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            while True:
                self.shown += os.read(self.terminal, 65536)
        except OSError:
            pass  # the program has ended

    def shows(self, *texts):
        return all(text.encode() in self.shown for text in texts)

    def end(self):
        """Presses q. Returns the exit code and the share of one core that the program has used."""
        os.write(self.terminal, b"q")
        late = threading.Timer(20, self.process.kill)
        late.start()
        _, status, used = os.wait4(self.process.pid, 0)
        share = (used.ru_utime + used.ru_stime) / (time.monotonic() - self.began)
        late.cancel()
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.thread.join()
        os.close(self.terminal)
        return self.process.returncode, share


class Operation:
    OPERATION = ["metrics-cost-noop", "metrics-cost-set", "trace-cost", "audit-rate", "dlq-list", "durable-retry-rate",
                 "top-cost"]

    def watched(self, run):
        """The rate of a run with metrics, the admin endpoint and a scraper."""
        port = free_port()
        with Scraper(port) as scraper:
            rate = run(admin_port=port)
        if scraper.read == 0:
            raise self.failed("nothing was scraped: the run was too short, or there was no endpoint")
        return rate

    def traced(self, run):
        """The rate of a run whose spans go to a collector: one message in 100 begins a trace."""
        with Collector() as collector:
            rate = run(traces_to=collector.url)
        if collector.received == 0:
            raise self.failed("the collector got no spans")
        return rate

    def cost(self, name, run, watched=None, least=0.98):
        """Both sides go first in turn. Two runs of the same side differ by more than the bound allows, so there are three pairs
        in each round."""
        watched = watched or self.watched
        ratios = []
        for n in range(3 * self.rounds):
            if n % 2 == 0:
                alone, with_it = run(), watched(run)
            else:
                with_it, alone = watched(run), run()
            ratios.append(with_it / alone)
        self.bar(name, ratios, least)

    def audit_rate(self):
        """`turnstile audit` on one core; PostgreSQL and Kafka use the other. Every record must have a fate."""
        topic = self.once_topic("set")
        self.once_framework("set")
        self.p.sql(f"ANALYZE {self.schema}.inbox")
        group = self.p.sql(f"SELECT DISTINCT consumer_group FROM {self.schema}.fence WHERE topic = '{topic['topic']}'")
        command = ["taskset", "-c", "0", os.path.join(self.p.bin, "turnstile"), "audit", "--topic", topic["topic"], "--handler", "once",
                   "--group", group, "--kafka", self.p.kafka, "--postgres", self.p.postgres, "--schema", self.schema,
                   "--no-limits", "--json"]
        rates = []
        for _ in range(self.rounds):
            began = time.monotonic()
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.p.bin)
            seconds = time.monotonic() - began
            if done.returncode != 0:
                raise self.failed(f"turnstile audit ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
            records = json.loads(done.stdout)["records"]
            if records != topic["messages"]:
                raise self.failed(f"turnstile audit compared {records} records of {topic['messages']}")
            rates.append(records / seconds)
        self.bar("audit-rate", rates, 50_000)

    def durable_retry_rate(self):
        """Messages that fail once, are stored and come back, against messages that take effect at once."""
        messages, ratios = self.size(60_000), []

        def rate(n, way):
            # What comes back is in the topic too, so that no other run can use it.
            topic = self.topics.get(f"retries-{n}-{way}", messages, ids="v4", duplicates=0)
            self.p.fresh_schema()
            return self.p.run("bench_fw_once", brokers=self.p.kafka, topic=topic["topic"], postgres=self.p.postgres,
                              schema=self.schema, way=way, workers=4, messages=messages)["rate"]

        # Not counted. A new server of PostgreSQL fills each file of its log with zeros first. A new broker compiles its code
        # on the same two cores: the rate rises from 13,300 to 17,400 in nine runs.
        for n in range(10):
            rate(f"first-{n}", "retry")
        for n in range(self.rounds):
            rates = {way: rate(n, way) for way in (("sync", "retry") if n % 2 == 0 else ("retry", "sync"))}
            ratios.append(rates["retry"] / rates["sync"])
        self.bar("durable-retry-rate", ratios, 0.3)

    def top_cost(self):
        """`turnstile top` beside two processes with 100 partitions, 50 limiters and a database."""
        topic = self.topics.get("watched-by-top", 200_000, partitions=100, ids="v4")["topic"]
        shares = []
        for _ in range(self.rounds):
            self.p.fresh_schema()
            group = self.name("group")
            self.made_tokens(group + ".tokens")
            running = [subprocess.Popen(self.p.command("bench_fw_watched", brokers=self.p.kafka, topics=topic, group=group,
                                                       postgres=self.p.postgres, schema=self.schema, limiters=50),
                                        stdout=subprocess.PIPE, text=True) for _ in range(2)]
            patience = threading.Timer(90, lambda: [process.kill() for process in running])
            patience.start()
            try:
                if any(process.stdout.readline().strip() != "ready" for process in running):
                    raise self.failed("fw_watched did not become ready")
                shares.append(self.share_of_top(topic, group))
            finally:
                patience.cancel()
                for process in running:
                    process.terminate()
                    process.wait()
        self.bar("top-cost", shares, 0.05, most=True)

    def share_of_top(self, topic, group):
        command = [os.path.join(self.p.bin, "turnstile"), "--kafka", self.p.kafka, "--postgres", self.p.postgres, "--schema",
                   self.schema, "top", topic, "--topic", group + ".tokens"]
        environment = {**os.environ, "TURNSTILE_KAFKA_GROUP_ID": group, "TERM": "xterm"}
        once = subprocess.run([*command[:-3], "--json", *command[-3:], "--once"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, cwd=self.p.bin, env=environment)
        if once.returncode != 0:
            raise self.failed(f"turnstile top --once ended with {once.returncode}: {once.stderr.strip()}")
        seen = json.loads(once.stdout)
        there = {"partitions": [of["partitions"] for of in seen["topics"]], "moving": all(of["rate"] for of in seen["topics"]),
                 "limiters": sum(of["held"] > 0 for of in seen["limiters"]),
                 "sources": {of["state"] for of in seen["sources"].values()}}
        if there != {"partitions": [100], "moving": True, "limiters": 50, "sources": {"ok"}}:
            raise self.failed(f"turnstile top --once shows {there}")
        screen = Screen(command, cwd=self.p.bin, env=environment)
        time.sleep(self.seconds(30))
        code, share = screen.end()
        if code != 0 or not screen.shows(topic[:20], "limiter-"):
            raise self.failed(f"turnstile top ended with {code}, and showed: {screen.shown[-2000:]}")
        return share

    def first_page(self, letters):
        """Milliseconds for the first page of dead letters."""
        self.p.sql(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")
        return self.p.run("bench_fw_dead_list", postgres=self.p.postgres, schema=self.schema, letters=letters,
                          patience_s=600)["p50_ms"]

    def operation(self, bars):
        if "audit-rate" in bars:
            self.audit_rate()
        if "durable-retry-rate" in bars:
            self.durable_retry_rate()
        if "top-cost" in bars:
            self.top_cost()
        if "dlq-list" in bars:
            ratios = [self.first_page(self.size(1_000_000)) / self.first_page(10_000) for _ in range(self.rounds)]
            self.bar("dlq-list", ratios, 2, most=True)
        if "metrics-cost-noop" in bars:
            topic = self.topics.get("watched", self.size(8_000_000))
            self.cost("metrics-cost-noop", lambda **more: self.engine(topic, topic["messages"], ms=0, order="partition",
                                                                      **more)["rate"])
        if "metrics-cost-set" in bars:
            self.cost("metrics-cost-set", lambda **more: self.once_framework("set", **more))
        if "trace-cost" in bars:
            self.cost("trace-cost", lambda **more: self.once_framework("set", **more), self.traced, 0.97)
