#!/usr/bin/env python3
"""Fails PostgreSQL over to a replica that lags, under load, and counts what was lost and what was doubled.

    tests/chaos/failover.py [--failovers 20] [--modes transactional,by_offset,numbered,leased,rerun] [--rate 300] [--seed N] [--known-bad 6]

A primary and a streaming replica of this run's own. Two consumers of one group work off a load; at random moments the primary stops
sending to its replica, for 0, 0.3 or 3 s, and is then killed; the replica becomes the primary, and a new replica of it takes the old one's
place. In the end each message is counted: in the database, or, in the leased modes, whose effects are elsewhere, in the files to
which the handlers wrote.

The known-bad builds must be caught by the same count: one that sees no other history of the database, nor a watermark that is behind (in mode transactional and in mode
by_offset, where it loses), and one that runs again what is in doubt (in mode leased, where it doubles).
"""
import argparse
import collections
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from world import OwnServer, environment, holds, table, within  # noqa: E402

MODES = ["transactional", "by_offset", "numbered", "leased", "rerun"]
LAGS = [0, 0.3, 3]
CONSUMERS = 2
STALL_S = 60


class Pair:
    """A primary and its replica, each on a port that it keeps; they change their parts."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o755)
        os.chmod(os.path.dirname(folder), 0o755)  # PostgreSQL runs as another user
        self.servers = [OwnServer(folder, "postgres", name) for name in ("one", "other")]
        self.primary = 0
        urls = [self.servers[0]("start"), self.servers[1]("replica", self.servers[0].folder)]
        self.ports = [url.rsplit(":", 1)[1].split("/")[0] for url in urls]
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.url = f"postgresql://turnstile:scratch@{hosts}/turnstile?target_session_attrs=read-write&connect_timeout=5"

    def sql(self, text):
        done = subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", text],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"failover: psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def in_step(self):
        """The replica has all that the primary has had a moment ago."""
        at = self.sql("SELECT pg_current_wal_lsn()")
        within(60, "the replica does not follow", lambda: self.sql(
            f"SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= '{at}'") == "1")

    def fail_over(self, lag_s):
        old, new = self.servers[self.primary], self.servers[1 - self.primary]
        if lag_s > 0:
            old("lag")
            time.sleep(lag_s)
        old("kill")
        new("promote")
        self.primary = 1 - self.primary
        old("replica", new.folder)

    def stop(self):
        for server in self.servers:
            server("stop")


class Failovers:
    """The load and the consumers of one mode."""

    def __init__(self, pair, folder, mode, rate, bad=""):
        self.program = os.path.join(environment("TURNSTILE_BIN_DIR"), os.environ.get("TURNSTILE_FAILOVER", "failover"))
        self.pair, self.folder, self.mode, self.bad = pair, folder, mode, bad
        self.topic = self.schema = f"failover_{mode}{bad}_{os.getpid()}"
        self.elsewhere = mode in ("leased", "rerun")
        self.consumers, self.loader = [], None
        self.config = os.path.join(folder, f"{self.topic}.toml")
        with open(self.config, "w") as file:
            file.write(f"""
[kafka]
"bootstrap.servers" = "{environment('TURNSTILE_TEST_KAFKA')}"
"group.id" = "{self.topic}"
"session.timeout.ms" = "10000"
"auto.offset.reset" = "earliest"
[postgres]
url = "{pair.url}"
schema = "{self.schema}"
lock_timeout = "1s"
[topics.{self.topic}]
handler_timeout = "5s"
""")
        turnstile = os.path.join(environment("TURNSTILE_BIN_DIR"), "turnstile")
        subprocess.run([turnstile, "migrate", "up", "--config", self.config], check=True, stdout=subprocess.DEVNULL)
        pair.sql(f"CREATE TABLE {self.schema}.effect (id bigint, record_partition int, record_offset bigint)")
        pair.in_step()
        self.loader = subprocess.Popen([self.program, "load", self.config, self.topic, str(rate)]
                                       + (["numbered"] if mode == "numbered" else []), stdout=subprocess.PIPE, text=True)
        if self.loader.stdout.readline() != "ready\n":
            raise SystemExit("failover: the load did not start")
        pair.in_step()  # the producer's session, too
        for number in range(CONSUMERS):
            with open(os.path.join(folder, f"{self.topic}-{number}.log"), "w") as log:
                self.consumers.append(subprocess.Popen([self.program, "consume", self.config, self.topic, self.schema, mode, folder]
                                                       + ([bad] if bad else []), stdout=log, stderr=log))

    def effects(self):
        """How often each has taken effect: by id, or by record where the mode tells records apart."""
        if not self.elsewhere:
            what = "record_partition || ':' || record_offset" if self.mode == "by_offset" else "id"
            rows = self.pair.sql(f"SELECT {what}, count(*) FROM {self.schema}.effect GROUP BY 1").split()
            return {row.split("|")[0]: int(row.split("|")[1]) for row in rows}
        counts = collections.Counter()
        for name in glob.glob(os.path.join(self.folder, f"{self.topic}-*.effects")):
            with open(name) as file:
                counts.update(file.read().split())
        return counts

    def parked(self):
        rows = self.pair.sql(f"SELECT DISTINCT convert_from(record_payload, 'UTF8') FROM {self.schema}.dead WHERE reason = 'unknown'")
        return set(rows.split())

    def dead(self):
        return int(self.pair.sql(f"SELECT count(*) FROM {self.schema}.dead WHERE reason <> 'unknown'"))

    def at_work(self):
        seen = sum(self.effects().values())
        within(STALL_S, f"{self.topic}: no effects come", lambda: sum(self.effects().values()) > seen + 50)

    def finish(self):
        self.loader.send_signal(signal.SIGTERM)
        published = json.loads(self.loader.communicate(timeout=60)[0])
        self.expected = published["records" if self.mode == "by_offset" else "distinct"]
        # All is settled, and read again, once the watermarks have come to the end.
        seen, seen_at = -1, time.monotonic()
        while seen < published["records"] and time.monotonic() - seen_at < STALL_S:
            come = int(self.pair.sql(f"SELECT coalesce(sum(watermark), 0) FROM {self.schema}.watermark"))
            if come != seen:
                seen, seen_at = come, time.monotonic()
            time.sleep(0.5)
        if seen < published["records"]:
            print(f"  {self.topic}: settled up to {seen} of {published['records']} records, and no further", flush=True)
        self.ends = []
        for process in self.consumers:
            process.terminate()
        for process in self.consumers:
            self.ends.append(process.wait(60))
        self.counted, self.in_doubt, self.other_dead = self.effects(), self.parked(), self.dead()

    def lost(self):
        return self.expected - len(set(self.counted) | self.in_doubt)

    def doubled(self):
        return sum(count - 1 for count in self.counted.values())

    def rows(self):
        may_double = self.mode == "rerun"
        return [(f"{self.mode}: messages", self.expected, None),
                (f"{self.mode}: lost", self.lost(), self.lost() == 0),
                (f"{self.mode}: doubled", self.doubled(), None if may_double else self.doubled() == 0),
                (f"{self.mode}: parked", len(self.in_doubt), self.mode == "leased" or not self.in_doubt),
                (f"{self.mode}: other dead letters", self.other_dead, self.other_dead == 0),
                (f"{self.mode}: consumers that ended cleanly", self.ends.count(0), self.ends.count(0) == CONSUMERS)]

    def close(self):
        for process in self.consumers + ([self.loader] if self.loader else []):
            if process.poll() is None:
                process.kill()
                process.wait()


def run_mode(pair, folder, mode, failovers, rate, choose, bad=""):
    run = Failovers(pair, folder, mode, rate, bad)
    try:
        for count in range(failovers):
            run.at_work()
            time.sleep(choose.uniform(0, 2))
            lag = LAGS[count % len(LAGS)] if not bad else 0.3
            pair.fail_over(lag)
            print(f"  {mode}{' ' + bad if bad else ''}: failover {count + 1} of {failovers}, lag {lag:g} s", flush=True)
            pair.in_step()
        run.at_work()
        run.finish()
        return run
    finally:
        run.close()


def failover_chaos(folder, modes, failovers, rate, seed):
    """A row for each count of each mode."""
    choose = random.Random(seed)
    pair = Pair(folder)
    try:
        return [run_mode(pair, folder, mode, failovers, rate, choose) for mode in modes]
    finally:
        pair.stop()


def known_bad(folder, failovers, rate, seed):
    choose = random.Random(seed)
    pair = Pair(folder)
    try:
        rows = []
        for mode, bad, what in (("transactional", "blind", "lost"), ("by_offset", "blind", "lost"), ("leased", "trusting", "doubled")):
            run = run_mode(pair, folder, mode, failovers, rate, choose, bad)
            count = run.lost() if what == "lost" else run.doubled()
            rows.append((f"{mode}, {bad}: {what}", count, count > 0))
        return rows
    finally:
        pair.stop()


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--failovers", type=int, default=20, help="in each mode")
    arguments.add_argument("--modes", default=",".join(MODES))
    arguments.add_argument("--rate", type=int, default=300, help="messages a second")
    arguments.add_argument("--seed", type=int, default=None)
    arguments.add_argument("--known-bad", type=int, default=6, help="failovers of each known-bad build")
    arguments.add_argument("--keep", action="store_true", help="keep the logs and the files of effects")
    options = arguments.parse_args()
    for name in ("TURNSTILE_BIN_DIR", "TURNSTILE_TEST_KAFKA"):
        environment(name)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"chaos: failovers, seed {seed}", flush=True)
    folder = tempfile.mkdtemp(prefix="turnstile-failover-")
    held = False
    try:
        runs = failover_chaos(os.path.join(folder, "good"), [m for m in options.modes.split(",") if m], options.failovers, options.rate, seed)
        rows = [row for run in runs for row in run.rows()]
        if options.known_bad > 0:
            print("chaos: the known-bad builds, which this count must catch", flush=True)
            rows += known_bad(os.path.join(folder, "bad"), options.known_bad, options.rate, seed)
        table(rows)
        held = holds(rows)
    finally:
        if options.keep or not held:
            print(f"chaos: logs and effects are in {folder}")
        else:
            shutil.rmtree(folder)
    print("chaos: failovers " + ("held" if held else "VIOLATED"))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
