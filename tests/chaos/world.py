"""What the runs of tests/chaos share: a load, consumers, what they leave in the database, servers of one's own, a table."""
import json
import os
import signal
import subprocess
import sys
import time

CONSUMERS = 3
WORK_MS = 2
# Without a new effect for so long, what is missing is lost: longer than a broker's restart with the rebalances that follow it.
STALL_S = 60
# The share of kills that must hit a run between its beginning and its commit; fewer prove too little.
OVERLAP = 0.75


def environment(name):
    value = os.environ.get(name)
    if not value:
        print(f"chaos: skipped, {name} is not set")
        sys.exit(77)
    return value


def within(seconds, what, condition):
    """Waits for a condition; what it gives when it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise SystemExit(f"chaos: {what}: not within {seconds} s")


class Run:
    def __init__(self, name, folder, broken=False, kafka=None, postgres=None, session_s=3, limit=4, limits="",
                 way=None, topic_settings="", topic=None):
        """`topic`: also names the schema and the group; None: a name of its own. `limits`: the section [limits] of the configuration. `way`: what the consumers do, see chaos_main.cpp."""
        self.bin = environment("TURNSTILE_BIN_DIR")
        self.program = os.path.join(self.bin, os.environ.get("TURNSTILE_CHAOS", "chaos"))
        self.kafka = kafka or environment("TURNSTILE_TEST_KAFKA")
        self.postgres = postgres or environment("TURNSTILE_TEST_POSTGRES_URL")
        self.topic = self.schema = topic or f"chaos_{name}_{os.getpid()}"
        self.folder, self.way = folder, way or ("elsewhere" if broken else None)
        self.living, self.journals, self.killed = [], {}, []
        self.config = os.path.join(folder, f"{name}.toml")
        with open(self.config, "w") as file:
            file.write(f"""
[kafka]
"bootstrap.servers" = "{self.kafka}"
"group.id" = "{self.topic}"
"session.timeout.ms" = "{session_s * 1000}"
"heartbeat.interval.ms" = "300"
"auto.offset.reset" = "earliest"
[postgres]
url = "{self.postgres}"
schema = "{self.schema}"
lock_timeout = "1s"
{limits}
[topics.{self.topic}]
order = "key"
limit = {limit}
handler_timeout = "2s"
{topic_settings}
""")

    def sql(self, text):
        done = subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", self.postgres, "-c", text],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"chaos: psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def number(self, text):
        return int(self.sql(text))

    def prepare(self):
        subprocess.run([os.path.join(self.bin, "turnstile"), "migrate", "up", "--config", self.config], check=True,
                       stdout=subprocess.DEVNULL)
        # No unique constraint: a second effect must be seen, not refused.
        self.sql(f"CREATE TABLE {self.schema}.effect (id bigint, pid int, record_partition int, record_offset bigint, "
                 "record_key text, seq bigint GENERATED ALWAYS AS IDENTITY)")

    def start_load(self, rate):
        self.loader = subprocess.Popen([self.program, "load", self.kafka, self.topic, str(rate)],
                                       stdout=subprocess.PIPE, text=True)
        if self.loader.stdout.readline() != "ready\n":
            raise SystemExit("chaos: the load did not start")

    def start_consumer(self):
        number = len(self.journals) + 1
        journal = os.path.join(self.folder, f"{self.topic}-{number}.journal")
        with open(os.path.join(self.folder, f"{self.topic}-{number}.log"), "w") as log:
            process = subprocess.Popen([self.program, "consume", self.config, self.topic, self.schema,
                                        str(WORK_MS), journal] + ([self.way] if self.way else []), stdout=log, stderr=log)
        self.journals[process.pid] = journal
        self.living.append(process)
        return process

    def runs_of(self, pid):
        try:
            with open(self.journals[pid]) as file:
                return file.read().count("\n")
        except FileNotFoundError:
            return 0

    def kill(self, victim):
        """Once the victim is at work."""
        seen = self.runs_of(victim.pid)
        within(60, f"consumer {victim.pid} got no work", lambda: self.runs_of(victim.pid) >= seen + 20)
        victim.kill()
        victim.wait()
        self.living.remove(victim)
        self.killed.append(victim.pid)

    def look_at_kills(self):
        """Of each that was killed: whether the last run that it began left no effect of its own, so that the kill was in its midst."""
        self.hits = self.thrown_away = 0
        for pid in self.killed:
            committed = set(self.sql(f"SELECT id FROM {self.schema}.effect WHERE pid = {pid}").split())
            with open(self.journals[pid]) as file:
                begun = [line.split()[0] for line in file]
            self.hits += begun[-1] not in committed
            self.thrown_away += sum(1 for identity in begun if identity not in committed)

    def drain(self, missing=0):
        """Until all that was published had its effect, but for so many, however long the backlog takes."""
        self.loader.send_signal(signal.SIGTERM)
        self.published = json.loads(self.loader.communicate(timeout=60)[0])
        table = f"{self.schema}.effect"
        seen, seen_at = -1, time.monotonic()
        while seen < self.published["distinct"] - missing and time.monotonic() - seen_at < STALL_S:
            count = self.number(f"SELECT count(DISTINCT id) FROM {table}")
            if count != seen:
                seen, seen_at = count, time.monotonic()
            time.sleep(0.5)

    def finish(self, missing=0):
        self.drain(missing)
        self.finish_drained()

    def finish_drained(self):
        table = f"{self.schema}.effect"
        ends = []
        for process in self.living:
            process.terminate()
        for process in self.living:
            ends.append(process.wait(30))
        self.clean_ends = all(end == 0 for end in ends)
        self.effects = self.number(f"SELECT count(*) FROM {table}")
        self.distinct = self.number(f"SELECT count(DISTINCT id) FROM {table}")
        self.dead = self.number(f"SELECT count(*) FROM {self.schema}.dead")
        self.out_of_order = self.number(
            "SELECT count(*) FROM (SELECT record_offset, lag(record_offset) OVER (PARTITION BY record_partition, record_key "
            f"ORDER BY seq) AS before FROM {table}) pairs WHERE before >= record_offset")
        self.look_at_kills()

    def lost(self):
        return self.published["distinct"] - self.distinct

    def doubled(self):
        return self.effects - self.distinct

    def close(self):
        for process in self.living + ([self.loader] if hasattr(self, "loader") else []):
            if process.poll() is None:
                process.kill()
                process.wait()
        self.sql(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")


class OwnServer:
    """A server of this run's own: what happens to it happens to nobody else."""

    def __init__(self, folder, name, instance=None):
        """`instance`: where there are several of one kind."""
        self.name = name
        self.script = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "support", f"scratch-{name}")
        self.folder = os.path.join(folder, instance or name)

    def __call__(self, verb, *more):
        done = subprocess.run([self.script, verb, self.folder, *more], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"chaos: scratch-{self.name} {verb} failed")
        return done.stdout.strip()

    def begin(self, verb, *more):
        """The same without waiting for it."""
        return subprocess.Popen([self.script, verb, self.folder, *more], stdout=subprocess.DEVNULL)


def table(rows):
    width = max(len(label) for label, _, _ in rows)
    for label, value, holds in rows:
        print(f"  {label:<{width}}  {value:>10}  {'' if holds is None else 'ok' if holds else 'VIOLATED'}")


def counts(run):
    return [("records published", run.published["records"], None),
            ("distinct messages", run.published["distinct"], None),
            ("effects", run.effects, None),
            ("lost", run.lost(), run.lost() == 0),
            ("doubled", run.doubled(), run.doubled() == 0),
            ("dead letters", run.dead, run.dead == 0),
            ("effects out of order in their key", run.out_of_order, run.out_of_order == 0),
            ("consumers that ended cleanly", "all" if run.clean_ends else "not all", run.clean_ends)]


def holds(rows):
    return all(row[2] is not False for row in rows)
