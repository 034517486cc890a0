"""The bars about time that a user waits for: how long handlers stand still when a consumer joins its group."""
import copy
import os
import shutil
import subprocess
import tempfile
import threading
import time
from math import ceil


class SlowPostgres:
    """A PostgreSQL whose disk is slow and stalls (slow_disk.c)."""

    def __init__(self, programs):
        self.script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "scratch-postgres")
        self.library = os.path.join(programs.bin, "bench_slow_disk.so")
        self.folder = tempfile.mkdtemp(prefix="turnstile-slow.")
        os.chmod(self.folder, 0o711)

    def __enter__(self):
        started = subprocess.run([self.script, "start", os.path.join(self.folder, "pg")], stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, "TURNSTILE_SCRATCH_PRELOAD": self.library, "SLOW_DISK_SEED": "1"})
        return started.stdout.strip().split("=", 1)[1]

    def __exit__(self, *_):
        subprocess.run([self.script, "stop", os.path.join(self.folder, "pg")], stdout=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)


class Member:
    """A process of a group. `handled` has (nanoseconds, partition) of each message."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.handled = []
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            partition, at = line.split()
            self.handled.append((int(at), int(partition)))

    def partitions_since(self, at):
        return {partition for when, partition in self.handled if when >= at}

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.thread.join()


RATES = (100, 1_000, 10_000)  # messages a second
LATENCIES = [f"latency-{disk}-{rate}-{share}" for disk in ("fast", "stalling") for rate in RATES for share in ("p50", "p99")]


class Speed:
    SPEED = ["user-set", "user-defer", "engine-key-slow", "log-at-rest", "log-10k", "rebalance-gap", "commits-per-second", *LATENCIES]
    GROUP_PARTITIONS = 8

    def wait_until(self, what, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise self.failed(f"not within {seconds} s: {what}")
            time.sleep(0.02)

    def gap(self, side, n):
        """Seconds from the join of a fourth member to the next message of the last partition that stood still."""
        topic = self.topics.make(f"joins-{side}-{n}", 0, partitions=self.GROUP_PARTITIONS)["topic"]
        self.p.fresh_schema()
        more = {"postgres": self.p.postgres, "schema": self.schema} if side == "fw" else {}
        command = self.p.command(f"bench_{side}_member", brokers=self.p.kafka, topic=topic, group=topic, **more)
        members = []
        loader = subprocess.Popen(self.p.command("bench_loader", brokers=self.p.kafka, topic=topic, messages=120_000, rate=1000,
                                                 partitions=self.GROUP_PARTITIONS, ids="v4", create=0), stdout=subprocess.DEVNULL)
        try:
            for _ in range(3):
                members.append(Member(command))

            def is_shared(count):
                since = time.monotonic_ns() - 500_000_000
                of_each = [m.partitions_since(since) for m in members]
                return all(of_each) and len(members) == count and sum(map(len, of_each)) == self.GROUP_PARTITIONS

            def is_steady(count):
                began = time.monotonic()
                while is_shared(count):
                    if time.monotonic() - began > 2:
                        return True
                    time.sleep(0.05)
                return False

            self.wait_until("three members share the partitions", lambda: is_steady(3))
            joined = time.monotonic_ns()
            members.append(Member(command))
            self.wait_until("four members share the partitions", lambda: is_steady(4))
        finally:
            loader.kill()
            loader.wait()
            for member in members:
                member.end()
        last = 0
        for partition in range(self.GROUP_PARTITIONS):
            times = sorted(at for m in members for at, p in m.handled if p == partition and at >= joined)
            _, resumed = max(zip([joined, *times], times), key=lambda pair: pair[1] - pair[0])
            last = max(last, resumed - joined)
        self.say(f"  {side}_member: {last / 1e9:.2f} s from the join to the last partition's next message")
        return last / 1e9

    def commits(self, p):
        """Of all processes that have ended."""
        return int(p.sql("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"))

    def latency_of(self, p, disk, side, rate, n):
        """A run of either side at this rate, with the commits that it made."""
        # 45, 24 and 6 s. At 100 messages a second, the stall of each second makes 1 % of them late, so p99 is on a slope:
        # 12 late ones of 1,200 gave 0.94, 0.96 and 1.95 in three rounds.
        messages, warmup = {100: (4_500, 300), 1_000: (24_000, 2_000), 10_000: (60_000, 10_000)}[rate]
        topic = self.topics.make(f"latency-{disk}-{rate}-{side}-{n}", 0)["topic"]
        p.fresh_schema()
        before = self.commits(p)
        if side == "raw":
            run = p.latency("bench_raw_latency", topic, messages, rate=rate, warmup=warmup, mode="batch")
        else:
            run = p.latency("bench_fw_latency", topic, messages, rate=rate, warmup=warmup, schema=self.schema, partitions=4)
        return {"p50": run["p50_ms"], "p99": run["p99_ms"], "commits": self.commits(p) - before}

    def latencies(self, p, disk, bars):
        for rate in RATES:
            names = {share: f"latency-{disk}-{rate}-{share}" for share in ("p50", "p99")}
            counts = "commits-per-second" in bars and (disk, rate) == ("fast", 1_000)
            if not counts and not any(name in bars for name in names.values()):
                continue
            ratios = {"p50": [], "p99": [], "commits": []}
            for n in range(self.rounds):
                both = {side: self.latency_of(p, disk, side, rate, n) for side in (("raw", "fw") if n % 2 == 0 else ("fw", "raw"))}
                for what, of in ratios.items():
                    of.append(both["fw"][what] / both["raw"][what])
            for share, name in names.items():
                if name in bars:
                    self.bar(name, ratios[share], 1.05, most=True)
            if counts:
                self.bar("commits-per-second", ratios["commits"], 1.2, most=True)

    KAFKAS_BYTES = 80  # that Kafka adds to an event that is sent by itself
    BEFORE = 120_000_000  # bytes a second, before 2026-11-26

    def log_at_rest(self):
        """Every member reads every event. The log is made with a virtual clock, so one round is as good as three."""
        members = 1_000
        seen = self.p.run("bench_core_tokens", members=members, limiters=100, each=10, seconds=50, changes=0, patience_s=600)
        sent = (seen["bytes_per_s"] + self.KAFKAS_BYTES * seen["events_per_s"]) * members
        self.say(f"  a broker sends {sent / 1e6:.2f} MB/s")
        self.bar("log-at-rest", [sent / self.BEFORE], 0.05, most=True)

    PARTS = 63  # of 64, without the directory

    def log_10k(self):
        """Each part is a log of its own, so one of them is run, with a virtual clock."""
        members, limiters, each, changes = 10_000, 1_000, 2, 1_000
        of_part = ceil(members * each / self.PARTS)
        seen = self.p.run("bench_core_tokens", members=of_part, limiters=ceil(limiters / self.PARTS), each=1, seconds=50,
                          changes=ceil(changes / self.PARTS), patience_s=600)
        events = seen["events_per_s"]
        sent = (seen["bytes_per_s"] + self.KAFKAS_BYTES * events) * of_part * self.PARTS
        self.say(f"  the brokers send {sent / 1e6:.0f} MB/s, {sent / members / 1e3:.1f} kB/s to each member")
        self.bar("log-10k", [each * events * (seen["apply_us"] + seen["read_us"]) / 1e6], 0.05, most=True)

    def speed(self, bars):
        if "log-at-rest" in bars:
            self.log_at_rest()
        if "log-10k" in bars:
            self.log_10k()
        if "commits-per-second" in bars or any(bar.startswith("latency-fast") for bar in bars):
            self.latencies(self.p, "fast", bars)
        if any(bar.startswith("latency-stalling") for bar in bars):
            with SlowPostgres(self.p) as url:
                slow = copy.copy(self.p)
                slow.postgres = url
                self.latencies(slow, "stalling", bars)
        if "rebalance-gap" in bars:
            ratios = []
            for n in range(self.rounds):
                both = {side: self.gap(side, n) for side in (("raw", "fw") if n % 2 == 0 else ("fw", "raw"))}
                ratios.append(both["fw"] / both["raw"])
            self.bar("rebalance-gap", ratios, 1.3, most=True)
