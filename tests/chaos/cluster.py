"""Four consumers under one limit of the whole cluster, on a broker and a PostgreSQL of their own, through faults of all kinds. See
outside.py for how it is counted."""
import os
import random
import signal
import subprocess
import time

from outside import FOR_EVER, SECOND, Journals, TokenLog, sweep, times_until_it_fits, violations
from world import OwnServer, Run, counts, within

CONSUMERS = 4
LIMITS = [1, 2, 3, 4, 6, 8, 8, 12, 0]
NORMAL = 8
WORK_MS = 20
RATE = 150
LEASE_S = 6
SESSION_S = 3
# How long what was lowered may still show: a keep, and a second for the machine.
PATIENCE = (LEASE_S * 1000 // 4 + 1000) * SECOND // 1000


class Cluster(Run):
    def __init__(self, name, folder, kafka, postgres, over="cluster"):
        super().__init__(name, folder, kafka=kafka, postgres=postgres, session_s=SESSION_S, limit=NORMAL,
                         limits=f'[limits]\nover = "{over}"\nlease = "{LEASE_S}s"')
        self.journal_folder = os.path.join(folder, f"{name}-journals")
        os.mkdir(self.journal_folder)
        self.killed_at, self.started = {}, 0

    def start_consumer(self):
        self.started += 1
        with open(os.path.join(self.folder, f"{self.topic}-{self.started}.log"), "w") as log:
            process = subprocess.Popen([os.path.join(self.bin, "chaos"), "limited", self.config, self.topic, self.schema,
                                        str(WORK_MS), self.journal_folder], stdout=log, stderr=log)
        self.living.append(process)
        return process

    def lines(self, process):
        try:
            with open(os.path.join(self.journal_folder, f"{process.pid}.journal")) as file:
                return file.readlines()
        except FileNotFoundError:
            return []

    def running(self, process):
        """Handlers in its midst."""
        lines = self.lines(process)
        return sum(line[0] == "S" for line in lines) - sum(line[0] == "E" for line in lines)

    def kill(self, victim):
        victim.kill()
        victim.wait()
        self.killed_at[victim.pid] = time.monotonic_ns()
        self.living.remove(victim)
        self.killed.append(victim.pid)

    def look_at_kills(self):
        pass  # counted when they happen

    def at_work(self, look_after=lambda: None):
        def all_are():
            look_after()
            return all(self.lines(process) for process in self.living)
        within(90, "a consumer got no work", all_are)

    def token_topic(self):
        return f"{self.topic}.tokens"

    def watch(self):
        self.watched = os.path.join(self.folder, f"{self.topic}.watched")
        with open(self.watched, "w") as file:
            self.watcher = subprocess.Popen([os.path.join(self.bin, "chaos"), "watch", self.kafka, self.token_topic(), self.topic],
                                            stdout=file, stderr=subprocess.DEVNULL)

    def operate(self):
        with open(os.path.join(self.folder, f"{self.topic}-operator.log"), "w") as log:
            self.operator = subprocess.Popen([os.path.join(self.bin, "chaos"), "operator", self.kafka, self.token_topic(), self.topic],
                                             stdin=subprocess.PIPE, stdout=log, stderr=log, text=True)

    def set_limit(self, limit):
        """Asks; the log tells when it held."""
        self.operator.stdin.write(f"{limit}\n")
        self.operator.stdin.flush()

    def logs_with(self, text):
        found = 0
        for number in range(1, self.started + 1):
            with open(os.path.join(self.folder, f"{self.topic}-{number}.log"), errors="replace") as file:
                found += file.read().count(text)
        return found

    def show_permits(self):
        """Who holds what, as a person would look at it; and whether they live."""
        subprocess.run([os.path.join(self.bin, "turnstile"), "--config", self.config, "permits", "--all"], timeout=60)
        print(f"  cluster: alive: {[process.pid for process in self.living if process.poll() is None]}", flush=True)

    def await_dead(self, others=0):
        """Until members that were killed are gone. One that was at rest is taken for dead after ten leases, by those that live."""
        within(LEASE_S * 13, "members are left that are dead",
               lambda: end_of_log(self)["members"] <= others + len([each for each in self.living if each.poll() is None]))

    def close(self):
        for process in self.living:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        for name in ("watcher", "operator"):
            helper = getattr(self, name, None)
            if helper and helper.poll() is None:
                helper.kill()
                helper.wait()
        super().close()


class Faults:
    """One after another, at random, overlapping: who is stopped stays so while others are killed."""

    def __init__(self, run, kafka, postgres, seed):
        self.run, self.servers = run, {"kafka": kafka, "postgres": postgres}
        self.choose = random.Random(seed)
        self.paused, self.restarting = {}, {}
        self.counts, self.hits, self.outages = {}, 0, []
        self.busy_until = 0
        # What has to happen at least once in any run comes first.
        self.due = ["limit", "kill", "stop past the session", "limit", "stop past the lease"]

    def note(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def awake(self):
        return [process for process in self.run.living if process not in self.paused]

    def next(self):
        if self.due:
            return self.due.pop(0)
        return self.choose.choices(["limit", "kill", "stop", "stop past the session", "stop past the lease", "broker restart",
                                    "broker kill", "postgres restart"], [8, 4, 3, 3, 3, 1, 1, 1])[0]

    def step(self):
        now = time.monotonic()
        for process in [p for p, until in self.paused.items() if now >= until]:
            self.wake(process)
        for name in [n for n, restart in self.restarting.items() if restart.poll() is not None]:
            if self.restarting.pop(name).returncode != 0:
                raise SystemExit(f"chaos: {name} did not come back")
            if name == "kafka":
                self.outages[-1][1] = time.monotonic_ns()
        if now < self.busy_until:
            return
        self.busy_until = now + self.choose.uniform(0.5, 3)
        self.begin(self.next(), now)

    def look_after(self):
        """A consumer that is started while a server is away says so and ends; whoever started it starts it again."""
        if self.restarting:
            return
        for process in [p for p in self.run.living if p.poll() is not None]:
            if process.returncode != 1 or self.run.lines(process) or not self.a_server_was_away():
                raise SystemExit(f"chaos: consumer {process.pid} ended by itself with {process.returncode}; its log is in "
                                 f"{self.run.folder}")
            self.run.living.remove(process)
            self.run.killed_at[process.pid] = time.monotonic_ns()
            self.paused.pop(process, None)
            self.run.start_consumer()
            self.note("start refused, a server was away")

    def a_server_was_away(self):
        return any(count for what, count in self.counts.items() if "restart" in what or "broker" in what)

    def begin(self, what, now):
        if what == "limit":
            self.run.set_limit(self.choose.choice(LIMITS))
        elif what in ("kill", "stop", "stop past the session", "stop past the lease"):
            victims = self.awake()
            if len(victims) < 2:
                return
            # Until one was hit: on a busy machine, most consumers run no handler.
            busy = [] if self.hits else [process for process in victims if self.run.running(process) > 0]
            victim = self.choose.choice(busy or victims)
            if what == "kill":
                self.hits += self.run.running(victim) > 0
                self.run.kill(victim)
                self.run.start_consumer()
            else:
                victim.send_signal(signal.SIGSTOP)
                self.hits += self.run.running(victim) > 0
                self.paused[victim] = now + {"stop": self.choose.uniform(0.2, 2), "stop past the session": SESSION_S + 1.5,
                                             "stop past the lease": LEASE_S + 2}[what]
        elif what.startswith("broker") and not self.restarting:
            self.outages.append([time.monotonic_ns(), FOR_EVER])
            self.restarting["kafka"] = self.servers["kafka"].begin("restart", *(["-m", "immediate"] if "kill" in what else []))
        elif what.startswith("postgres") and not self.restarting:
            self.restarting["postgres"] = self.servers["postgres"].begin("restart", "-m", self.choose.choice(["fast", "immediate"]))
        else:
            return
        self.note(what)

    def wake(self, process):
        del self.paused[process]
        process.send_signal(signal.SIGCONT)

    def heal(self):
        for process in list(self.paused):
            self.wake(process)
        self.look_after()
        for name, restart in self.restarting.items():
            if restart.wait(120) != 0:
                raise SystemExit(f"chaos: {name} did not come back")
        self.restarting.clear()
        self.run.set_limit(NORMAL)


def end_of_log(run):
    records = TokenLog(run.watched).records
    return records[-1] if records else {"held": -1, "members": -1, "limit": -1}


def cluster_chaos(folder, minutes, seed):
    kafka, postgres = OwnServer(folder, "kafka"), OwnServer(folder, "postgres")
    run = None
    try:
        run = Cluster("cluster", folder, kafka("start").split("=")[1], postgres("start").split("=", 1)[1])
        run.prepare()
        run.start_load(RATE)
        for _ in range(CONSUMERS):
            run.start_consumer()
        run.at_work()
        run.watch()
        run.operate()
        faults = Faults(run, kafka, postgres, seed)
        until = time.monotonic() + minutes * 60
        told = time.monotonic()
        while time.monotonic() < until:
            faults.step()
            faults.look_after()
            if time.monotonic() > told + 30:
                told = time.monotonic()
                print(f"  cluster: {sum(faults.counts.values())} faults, {round(until - told)} s to go", flush=True)
            time.sleep(0.05)
        faults.heal()
        run.at_work(faults.look_after)
        within(60, "the normal limit does not hold again", lambda: end_of_log(run)["limit"] == NORMAL)
        run.drain()
        idle = within(LEASE_S * 10, "permits are held although nothing runs", lambda: end_of_log(run)["held"] == 0 and end_of_log(run))
        run.await_dead(others=1)  # the operator
        run.operator.stdin.close()
        run.operator.wait(30)
        run.finish()
        within(LEASE_S * 5, "members are left although all processes have ended", lambda: end_of_log(run)["members"] == 0)
        run.watcher.terminate()
        run.watcher.wait(10)
        return counts(run) + judge(run, faults, idle)
    except SystemExit:
        if run:
            run.show_permits()
        raise
    finally:
        if run:
            run.close()
        kafka("stop")
        postgres("stop")


def judge(run, faults, idle):
    journals, log = Journals(run.journal_folder, run.killed_at), TokenLog(run.watched)
    counted, harmless, late = sweep(journals, log, LEASE_S * SECOND)
    above = violations(counted, log, PATIENCE, (LEASE_S + 1) * SECOND, faults.outages)
    for at, running, allowed in above[:5]:
        print(f"  cluster: at {at} ns a handler began as number {running} of {allowed}")
    fits = times_until_it_fits(counted, log, PATIENCE)
    most = max(running for _, running, _ in counted)
    rows = [("handlers begun", len(journals.runs), None),
            ("most at once", most, most <= max(LIMITS)),
            (f"begun above the limit in force for {PATIENCE / SECOND:g} s", len(above), not above),
            ("log positions at which too much grew", log.growing(), log.growing() == 0),
            ("of all handlers: past their deadline or fenced", harmless, None),
            ("of these: begun so (they cannot commit)", late, None),
            ("handlers that were asked to stop", journals.stopped, None),
            ("limits lowered for long enough to look", len(fits), None),
            ("seconds until it fitted, median", round(fits[len(fits) // 2], 2) if fits else "-", None),
            ("seconds until it fitted, most", round(fits[-1], 2) if fits else "-", None),
            ("permits held when all was idle", idle["held"], idle["held"] == 0),
            ("members after all had ended", log.records[-1]["members"], log.records[-1]["members"] == 0),
            ("token logs given up", run.logs_with("unknown which members"), run.logs_with("unknown which members") == 0),
            ("kills and stops that hit running handlers", faults.hits, faults.hits > 0)]
    return rows + [(what, count, None) for what, count in sorted(faults.counts.items())]


def known_bad_limit(folder):
    """The same count over processes that each keep the limit for themselves."""
    run = None
    try:
        run = Cluster("uncounted", folder, None, None, over="process")
        run.prepare()
        run.start_load(RATE * 8)
        for _ in range(CONSUMERS):
            run.start_consumer()
        run.at_work()

        def most():
            counted, _, _ = sweep(Journals(run.journal_folder, {}), _NO_LOG, LEASE_S * SECOND)
            return max((running for _, running, _ in counted), default=0)
        deadline = time.monotonic() + 60
        while most() <= NORMAL and time.monotonic() < deadline:
            time.sleep(0.2)
        return [("most at once", most(), most() > NORMAL)]
    finally:
        if run:
            run.close()


class _NoLog:
    def deadlines(self, pid, lease):
        return []


_NO_LOG = _NoLog()
