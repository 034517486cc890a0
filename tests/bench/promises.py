"""The bars of what must hold while servers fail, topics change and handlers misbehave: counts and ratios, not speed."""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tokens import Processes

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "chaos"))
import failover  # noqa: E402
from poison import poison_rows, poison_run  # noqa: E402


class Promises:
    """Added to Bench: its programs, topics and bars. For a new bar: its name and the method that measures it go into PROMISES. A method
    that measures several bars is named at each, and is called once with the names of all that are wanted."""

    PROMISES = {
        "memory-large": "memory_large",
        "poison-survivors": "poison_survivors",
        "wide-starved": "wide_starved",
        "mixed-fair": "mixed_fair",
        "cut-off-back": "cut_off_back",
        "failover-lost": "failovers",
        "failover-doubled": "failovers",
    }

    def promises(self, wanted):
        for method in dict.fromkeys(self.PROMISES[name] for name in wanted if name in self.PROMISES):
            getattr(self, method)([name for name in wanted if self.PROMISES.get(name) == method])

    def memory_large(self, wanted):
        """A consumer of 16 partitions before a backlog of messages of 1 MiB, with handlers that are slower than Kafka."""
        room = shutil.disk_usage(tempfile.gettempdir()).free // 2 // 2**20
        messages = min(self.size(100_000), room)
        topic = self.topics.get(f"large-{messages}", messages, partitions=16, payload=2**20, patience_s=3600)
        megabytes = []
        for order in ("none", "key", "partition"):
            ours = self.engine(topic, messages, ms=20, order=order, at_once=16, seconds=30)
            megabytes.append(ours["resident_bytes"] / 2**20)
        self.bar("memory-large", [max(megabytes)], 1024, most=True)

    def poison_survivors(self, _):
        """Processes alive of three, after one message that aborts its process; none where another message was lost or took effect twice."""
        os.environ.update({"TURNSTILE_BIN_DIR": self.p.bin, "TURNSTILE_TEST_KAFKA": self.p.kafka,
                           "TURNSTILE_TEST_POSTGRES_URL": self.p.postgres, "TURNSTILE_CHAOS": "bench_chaos"})
        values = []
        for _ in range(self.rounds):
            folder = tempfile.mkdtemp(prefix="turnstile-poison-")
            try:
                result = poison_run(folder, 600)
            finally:
                shutil.rmtree(folder)
            self.say(f"  poison: {result}")
            held = all(row[2] for row in poison_rows(result))
            values.append(result["survivors"] if held else 0)
        self.bar("poison-survivors", values, 3)

    # --- permits ---

    def wide_starved(self, _):
        """A process requests the whole limit again and again, while three others' threads hold single permits for 300 to 700 ms."""
        limit, longest_ms = 4, 700
        values = []
        for _ in range(self.rounds):
            topic = self.name("tokens")
            seconds = int(self.seconds(30))
            counts = [limit, 1, 1, 1]
            running = [subprocess.Popen(self.p.command("bench_fw_wide", brokers=self.p.kafka, topic=topic, limit=limit, count=count,
                                                       threads=limit // count, least_ms=300, most_ms=longest_ms, seconds=seconds),
                                        stdout=subprocess.PIPE, text=True) for count in counts]
            try:
                outputs = [process.communicate(timeout=seconds + 150)[0] for process in running]
            finally:
                for process in running:
                    process.kill()
                    process.wait()
            self.made_tokens(topic)
            if any(process.returncode != 0 for process in running):
                raise self.failed(f"fw_wide ended with {[process.returncode for process in running]}")
            wide = [self.p.keep(output) for output in outputs][0]
            values.append(wide["longest_wait_ms"] / longest_ms)
        self.bar("wide-starved", values, 4, most=True)

    def mixed_fair(self, _):
        """The larger of the two ratios, of permits granted to handlers and to TokenService's threads in one process."""
        topic = self.topics.get("tokens", self.size(200_000))
        values = []
        for _ in range(self.rounds):
            log = self.name("tokens")
            seen = self.p.run("bench_fw_mixed", brokers=self.p.kafka, topic=topic["topic"], log=log,
                              seconds=int(self.seconds(10)))
            self.made_tokens(log)
            if seen["handlers"] == 0:
                raise self.failed("the handlers were granted nothing")
            values.append(max(seen["ratio"], 1 / seen["ratio"]))
        self.bar("mixed-fair", values, 2, most=True)

    def cut_off_back(self, _):
        """A member stands still while the log is trimmed past what it has read. How long after that until its first permit, in leases?"""
        lease_ms = 2_000
        values = []
        for _ in range(self.rounds):
            group = self.name("group")
            topic = group + ".tokens"
            with Processes(self) as all_:
                begin_ns = time.monotonic_ns()
                for slot in range(3):
                    all_.start(slot, "bench_fw_tokens", topic=topic, limit=2, threads=4, ms=10, seconds=600, from_ns=begin_ns,
                               waits=os.path.join(all_.folder.name, f"waits-{slot}"), lease_ms=lease_ms, snapshot_every=64)
                all_.wait_until("3 processes have had a permit", lambda: sum(s["stops"] > 2 for s in all_.board.all()) >= 3)
                all_.running[0].send_signal(signal.SIGSTOP)
                at = self.log_of(group, 1)[-1]["position"]
                all_.wait_until("the log was trimmed past it", lambda: self.log_of(group, 1_000_000)[0]["position"] > at + 1)
                before = all_.board.slot(0)["starts"]
                back_ns = time.monotonic_ns()
                all_.running[0].send_signal(signal.SIGCONT)
                all_.wait_until("it has a permit again", lambda: all_.board.slot(0)["starts"] > before)
                values.append((time.monotonic_ns() - back_ns) / 1e6 / lease_ms)
            self.made_tokens(topic)
        self.bar("cut-off-back", values, 1, most=True)

    # --- failovers of PostgreSQL to a replica that lags ---

    FAILOVERS = 20
    FAILOVER_RATE = 300

    def failovers(self, wanted):
        """Over all modes, counted from outside. Mode leased under `unknown = "rerun"` promises not to lose, but may double."""
        os.environ.update(TURNSTILE_BIN_DIR=self.p.bin, TURNSTILE_TEST_KAFKA=self.p.kafka, TURNSTILE_FAILOVER="bench_failover")
        count = max(1, round(self.FAILOVERS * self.scale))
        with tempfile.TemporaryDirectory(prefix="turnstile-bench-") as folder:
            try:
                runs = failover.failover_chaos(os.path.join(folder, "failover"), failover.MODES, count, self.FAILOVER_RATE,
                                               random.randrange(10**6))
            except SystemExit as why:
                raise self.failed(str(why))
        found = {"failover-lost": sum(run.lost() for run in runs),
                 "failover-doubled": sum(run.doubled() for run in runs if run.mode != "rerun")}
        for name in wanted:
            self.bar(name, [found[name]], 0, most=True)
