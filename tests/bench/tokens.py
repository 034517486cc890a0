"""The bars of the cluster token service: several processes, one limit, an Apache Kafka.

What runs at once is counted by the handlers themselves, on a board of memory that all processes share (board.hpp).
"""
import json
import mmap
import os
import signal
import statistics
import struct
import subprocess
import tempfile
import time

SLOTS, HEAD, SLOT = 8, 64, 64
LIMIT = 16


class Board:
    """The same layout as board.hpp."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "board")
        with open(self.path, "wb") as file:
            file.truncate(HEAD + SLOTS * SLOT)
        self.file = open(self.path, "r+b")
        self.memory = mmap.mmap(self.file.fileno(), 0)

    def get(self, at):
        return struct.unpack_from("=q", self.memory, at)[0]

    def put(self, at, value):
        struct.pack_into("=q", self.memory, at, value)

    @property
    def most(self):
        return self.get(8)

    def forget_most(self):
        self.put(8, 0)

    def slot(self, number):
        starts, stops, held_ns, assigned_ns, ready = struct.unpack_from("=5q", self.memory, HEAD + number * SLOT)
        return {"starts": starts, "stops": stops, "held_ns": held_ns, "assigned_ns": assigned_ns, "ready": ready,
                "running": starts - stops}

    def all(self):
        return [self.slot(n) for n in range(SLOTS)]

    def died(self, number):
        """Its handlers run no more."""
        self.put(16, self.get(16) + self.slot(number)["running"])

    def close(self):
        self.memory.close()
        self.file.close()


class Processes:
    """Programs that share a board; ended whatever happens."""

    def __init__(self, bench):
        self.bench, self.p, self.running = bench, bench.p, {}

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="turnstile-bench-")
        self.board = Board(self.folder.name)
        return self

    def __exit__(self, *_):
        for process in self.running.values():
            process.kill()
            process.wait()
        self.board.close()
        self.folder.cleanup()

    def start(self, slot, name, **arguments):
        line = self.p.command(name, brokers=self.p.kafka, board=self.board.path, slot=slot, **arguments)
        self.running[slot] = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)

    def wait_until(self, what, condition, patience_s=90):
        end = time.monotonic() + patience_s
        while not condition():
            for slot, process in self.running.items():
                if process.poll() not in (None, 0):
                    raise self.bench.failed(f"process {slot} ended with {process.returncode} while waiting until {what}")
            if time.monotonic() > end:
                raise self.bench.failed(f"not within {patience_s} s: {what}")
            time.sleep(0.002)

    def wait_until_settled(self, quiet_s=4):
        """No partition has moved for so long."""
        last, since = None, time.monotonic()

        def settled():
            nonlocal last, since
            now = [s["assigned_ns"] for s in self.board.all()]
            if now != last:
                last, since = now, time.monotonic()
            return time.monotonic() - since > quiet_s

        self.wait_until("partitions stay where they are", settled)

    def stop(self):
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        return self.finish()

    def finish(self):
        """Those that end by themselves."""
        outputs = []
        for slot, process in self.running.items():
            output, _ = process.communicate(timeout=60)
            if process.returncode != 0:
                raise self.bench.failed(f"process {slot} ended with {process.returncode}")
            outputs.append(output)
        self.running.clear()
        return outputs

    def kill(self, slot):
        process = self.running.pop(slot)
        process.kill()
        process.wait()
        self.board.died(slot)
        return time.monotonic_ns()

    def window(self, seconds):
        """Counts for so long: what each process did, how long a handler took, and the most that ran at once."""
        self.board.forget_most()
        start, before = time.monotonic(), self.board.all()
        time.sleep(seconds)
        took, after = time.monotonic() - start, self.board.all()
        done = [b["stops"] - a["stops"] for a, b in zip(before, after)]
        held_ns = sum(b["held_ns"] - a["held_ns"] for a, b in zip(before, after))
        if not sum(done):
            raise self.bench.failed("nothing was done")
        return {"done": done, "rate": sum(done) / took, "mean_ms": held_ns / sum(done) / 1e6, "most": self.board.most}


class Tokens:
    """Added to Bench: its programs, topics and bars."""

    TOKENS = ["tokens-quiet", "tokens-10ms", "tokens-100ms", "tokens-skew", "tokens-rotate", "tokens-wait",
              "permit-local-1", "permit-local-8", "permit-miss", "reclaim-fenced", "reclaim-strict", "apply-rate", "scale",
              "simulator-rate", "outside-max"]

    def note(self, name, **figures):
        self.p.keep(json.dumps({"program": name, **figures}))

    def saw(self, most, limit=LIMIT):
        self.outside = max(getattr(self, "outside", 0), most / limit)

    def name(self, what):
        self.names = getattr(self, "names", 0) + 1
        return f"{self.topics.prefix}-{what}-{self.names}"

    # --- handlers of consumers ---

    def consumers(self, group_of, topic, ms, count=3, **more):
        group = self.name("group")
        self.made_tokens(group + ".tokens")
        for slot in range(count):
            group_of.start(slot, "bench_fw_limited", topic=topic["topic"], group=group, limit=LIMIT, ms=ms, **more)
        return group

    def handled(self, ms, partitions=None, seconds=20):
        """The ratio of what was handled to what the limit lets through."""
        messages = self.size(200_000)
        if partitions:
            topic = self.topics.get(f"tokens-{partitions}", messages, partitions=partitions)
        else:
            topic = self.topics.get("tokens", messages)
        with Processes(self) as all_:
            self.consumers(all_, topic, ms)
            busy = 1 if partitions == 1 else 3
            all_.wait_until(f"{busy} processes have handled something",
                            lambda: sum(s["stops"] > 2 for s in all_.board.all()) >= busy)
            all_.wait_until_settled()
            all_.wait_until("as many run as may", lambda: all_.board.get(0) >= LIMIT - 1)
            seen = all_.window(self.seconds(seconds))
            all_.stop()
        self.saw(seen["most"])
        best = LIMIT / seen["mean_ms"] * 1000
        self.note("tokens", asked_ms=ms, partitions=partitions or 4, **{k: seen[k] for k in ("rate", "mean_ms", "most")},
                  done=str(seen["done"][:3]))
        return seen["rate"] / best

    def seconds(self, seconds):
        return max(3, seconds * min(1, self.scale))

    def tokens_handled(self, name):
        ms, partitions, bound = {"tokens-10ms": (10, None, 0.95), "tokens-100ms": (100, None, 0.99),
                                 "tokens-skew": (10, 1, 0.90)}[name]
        self.bar(name, [self.handled(ms, partitions) for _ in range(self.rounds)], bound)

    def tokens_quiet(self):
        """Events that are no keeps, over a minute in which nobody's wishes change; for how many messages they stand is noted."""
        topic = self.topics.get("tokens", self.size(200_000))
        with Processes(self) as all_:
            group = self.consumers(all_, topic, 10)
            all_.wait_until("3 processes have handled something",
                            lambda: sum(s["stops"] > 2 for s in all_.board.all()) >= 3)
            all_.wait_until_settled()
            seconds = self.seconds(60)
            before = self.log_of(group, 1)[-1]["position"]
            seen = all_.window(seconds)
            records = [r for r in self.log_of(group, 5_000) if r["position"] > before]
            all_.stop()
        self.saw(seen["most"])
        kinds = {}
        for record in records:
            kinds[record["kind"]] = kinds.get(record["kind"], 0) + 1
        self.note("tokens_quiet", seconds=seconds, messages=sum(seen["done"]), events=len(records), kinds=str(kinds))
        self.bar("tokens-quiet", [len(records) - kinds.get("keep", 0)], 0, most=True)

    def log_of(self, group, last):
        """The last records of the group's token log."""
        line = [os.path.join(self.p.bin, "turnstile"), "log", "tail", "-n", str(last), "--topic", group + ".tokens", "--json"]
        for _ in range(10):  # the log may be trimmed while it is read
            done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.p.bin,
                                  env={**os.environ, "TURNSTILE_KAFKA_BOOTSTRAP_SERVERS": self.p.kafka})
            if "were deleted before they were read" not in done.stderr:
                break
        if done.returncode != 0:
            raise self.failed(f"turnstile log tail: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    # --- threads of plain programs ---

    def threads(self, limit, seconds=20):
        """64 threads in 4 processes want one limit. Returns what was seen, and all waits in milliseconds."""
        topic = self.name("tokens")
        with Processes(self) as all_:
            waits = [os.path.join(all_.folder.name, f"waits-{slot}") for slot in range(4)]
            # They start by themselves; the clock runs from when all are there.
            begin_ns = time.monotonic_ns() + 6_000_000_000
            seconds = int(self.seconds(seconds))
            for slot in range(4):
                all_.start(slot, "bench_fw_tokens", topic=topic, limit=limit, threads=16, ms=10, seconds=seconds + 2,
                           from_ns=begin_ns, waits=waits[slot])
            all_.wait_until("4 processes have had a permit", lambda: sum(s["stops"] > 2 for s in all_.board.all()) >= 4)
            if time.monotonic_ns() > begin_ns:
                raise self.failed("the processes were not ready within 6 s")
            time.sleep((begin_ns - time.monotonic_ns()) / 1e9)
            seen = all_.window(seconds)
            all_.finish()
            waited = []
            for file in waits:
                with open(file, "rb") as data:
                    waited += [w[0] / 1e6 for w in struct.iter_unpack("=q", data.read())]
        self.made_tokens(topic)
        self.saw(seen["most"], limit)
        waited.sort()
        best = limit / seen["mean_ms"] * 1000
        p99 = waited[int(len(waited) * 0.99)]
        done = seen["done"][:4]
        self.note("tokens_threads", limit=limit, **{k: seen[k] for k in ("rate", "mean_ms", "most")}, done=str(done),
                  p50_ms=waited[len(waited) // 2], p99_ms=p99)
        return {"ratio": seen["rate"] / best, "fair": min(done) / max(done), "p99_ms": p99}

    def made_tokens(self, topic):
        self.topics.made += [topic, topic + ".snapshots"]

    def tokens_rotate(self):
        seen = [self.threads(3) for _ in range(self.rounds)]
        self.bar("tokens-rotate", [s["ratio"] for s in seen], 0.85)
        self.bar("tokens-rotate-fair", [s["fair"] for s in seen], 0.8)

    def tokens_wait(self):
        fair_turn_ms = 64 / LIMIT * 10
        self.bar("tokens-wait", [self.threads(LIMIT)["p99_ms"] / fair_turn_ms for _ in range(self.rounds)], 2, most=True)

    def permits(self, wanted):
        local_1, local_8, miss = [], [], []
        for _ in range(self.rounds):
            topic = self.name("tokens")
            seen = self.p.run("bench_fw_permits", brokers=self.p.kafka, topic=topic, pairs=self.size(20_000_000),
                              misses=min(1000, self.size(500)))
            self.made_tokens(topic)
            local_1.append(seen["local_1_ns"] / 1000)
            local_8.append(seen["local_8_ns"] / 1000)
            miss.append(seen["miss_p50_ms"] / seen["round_trip_p50_ms"])
        for name, values, bound in (("permit-local-1", local_1, 1), ("permit-local-8", local_8, 2), ("permit-miss", miss, 1.3)):
            if name in wanted:
                self.bar(name, values, bound, most=True)

    # --- what the dead held ---

    def reclaim(self, strict, lease_ms):
        """Two consumers share the limit, one is killed: when does the other use all of it? Seconds, and from when they count."""
        topic = self.topics.get("tokens-ids", self.size(100_000), ids="v4")
        self.p.fresh_schema()
        with Processes(self) as all_:
            group = self.consumers(all_, topic, 20, count=2, lease_ms=lease_ms, session_ms=6_000, strict=int(strict), workers=LIMIT,
                                   postgres=self.p.postgres, schema=self.schema)
            board = all_.board
            all_.wait_until("both handle", lambda: all(board.slot(n)["stops"] > 50 for n in (0, 1)))
            all_.wait_until("both hold their half", lambda: all(board.slot(n)["running"] >= LIMIT // 2 - 1 for n in (0, 1)))
            board.forget_most()
            killed_ns = all_.kill(0)
            all_.wait_until("the other one has all partitions", lambda: board.slot(1)["assigned_ns"] > killed_ns)
            all_.wait_until("the other one uses more than its half", lambda: board.slot(1)["running"] > LIMIT // 2)
            more_ns = time.monotonic_ns()
            all_.wait_until("the other one uses all", lambda: board.slot(1)["running"] >= LIMIT)
            all_ns = time.monotonic_ns()
            rebalanced_ns = board.slot(1)["assigned_ns"]
            self.saw(board.most)
            all_.stop()
        seen = {"from_kill_s": (all_ns - killed_ns) / 1e9, "first_from_kill_s": (more_ns - killed_ns) / 1e9,
                "from_rebalance_s": (all_ns - rebalanced_ns) / 1e9}
        self.note("reclaim", strict=int(strict), lease_ms=lease_ms, **seen)
        return seen

    def reclaim_fenced(self):
        self.bar("reclaim-fenced", [self.reclaim(False, 60_000)["from_rebalance_s"] for _ in range(self.rounds)], 1, most=True)

    def reclaim_strict(self):
        lease_s = 10
        seen = [self.reclaim(True, lease_s * 1000) for _ in range(self.rounds)]
        # The lease runs from the last that was heard of it, which is at most a quarter of it before the kill.
        for s in seen:
            if s["first_from_kill_s"] < lease_s * 3 / 4:
                raise self.failed(f"strict permits came back {s['first_from_kill_s']:.1f} s after the kill, before their lease ended")
        self.bar("reclaim-strict", [s["from_kill_s"] for s in seen], lease_s + 1, most=True)

    # --- the log ---

    def apply_rate(self):
        runs = [self.p.run("bench_core_tokens", members=8, limiters=1, each=1, apply=self.size(5_000_000))
                for _ in range(self.rounds)]
        rates = [run["apply_rate"] / 1e6 for run in runs]
        self.bar("apply-rate", rates, 1)

    def scale_of_a_domain(self):
        """No bound: written down. Share of a core that each of 1,000 members spends on the log, in percent."""
        shares = []
        for changes in (0, 1000):
            seen = self.p.run("bench_core_tokens", members=1000, limiters=100, each=10, seconds=5, changes=changes,
                              patience_s=600)
            share = seen["events_per_s"] * (seen["apply_us"] + seen["read_us"]) / 1e4
            self.note("scale", changes=changes, core_percent=share, events_per_s=seen["events_per_s"],
                      bytes_per_s=seen["bytes_per_s"])
            shares.append(share)
        self.bar("scale", [shares[-1]], 100, most=True)

    def simulator_rate(self):
        rates = []
        for _ in range(self.rounds):
            done = subprocess.run([os.path.join(self.p.bin, "bench_simulate"), "--seeds", str(self.size(5_000))], stdout=subprocess.PIPE, text=True)
            if done.returncode != 0:
                raise self.failed("the simulator found something; ./dev simulate says what")
            rates.append(float(done.stdout.split(" a minute")[0].rsplit(" ", 1)[-1]))
        self.note("simulate", rate_per_minute=statistics.median(rates))
        self.bar("simulator-rate", rates, 10_000)

    def tokens(self, wanted):
        for name in wanted:
            if name in ("tokens-10ms", "tokens-100ms", "tokens-skew"):
                self.tokens_handled(name)
        for name, measure in (("tokens-quiet", self.tokens_quiet), ("tokens-rotate", self.tokens_rotate),
                              ("tokens-wait", self.tokens_wait), ("reclaim-fenced", self.reclaim_fenced),
                              ("reclaim-strict", self.reclaim_strict), ("apply-rate", self.apply_rate),
                              ("scale", self.scale_of_a_domain), ("simulator-rate", self.simulator_rate)):
            if name in wanted:
                measure()
        if any(name.startswith("permit-") for name in wanted):
            self.permits(wanted)
        if "outside-max" in wanted and hasattr(self, "outside"):
            self.bar("outside-max", [self.outside], 1, most=True)
