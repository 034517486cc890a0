"""The bars of operation: what it costs to be watched, and how fast an operator gets an answer."""
import socket
import threading
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


class Operation:
    OPERATION = ["metrics-cost-noop", "metrics-cost-set", "dlq-list"]

    def watched(self, run):
        """The rate of a run with metrics, the admin endpoint and a scraper."""
        port = free_port()
        with Scraper(port) as scraper:
            rate = run(admin_port=port)
        if scraper.read == 0:
            raise self.failed("nothing was scraped: the run was too short, or there was no endpoint")
        return rate

    def cost(self, name, run):
        """Both sides go first in turn."""
        ratios = []
        for n in range(self.rounds):
            if n % 2 == 0:
                alone, watched = run(), self.watched(run)
            else:
                watched, alone = self.watched(run), run()
            ratios.append(watched / alone)
        self.bar(name, ratios, 0.98)

    def first_page(self, letters):
        """Milliseconds for the first page of dead letters."""
        self.p.sql(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")
        return self.p.run("bench_fw_dead_list", postgres=self.p.postgres, schema=self.schema, letters=letters,
                          patience_s=600)["p50_ms"]

    def operation(self, bars):
        if "dlq-list" in bars:
            ratios = [self.first_page(self.size(1_000_000)) / self.first_page(10_000) for _ in range(self.rounds)]
            self.bar("dlq-list", ratios, 2, most=True)
        if "metrics-cost-noop" in bars:
            topic = self.topics.get("watched", self.size(8_000_000))
            self.cost("metrics-cost-noop", lambda **more: self.engine(topic, topic["messages"], ms=0, order="partition",
                                                                      **more)["rate"])
        if "metrics-cost-set" in bars:
            self.cost("metrics-cost-set", lambda **more: self.once_framework("set", **more))
