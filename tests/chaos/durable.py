"""Long retries under load: a called service is down now and then, consumers are killed, and PostgreSQL crashes. What fails is stored
and comes back. Each message has to take effect once, the messages of a key in their order, and the audit has to be clean."""
import os
import random
import subprocess

from world import CONSUMERS, OwnServer, Run, counts, within

OUTAGES = {"wait": 3, "pass": 1}
# So many messages must be stored in each outage; fewer prove too little.
STORED = 200


class Durable(Run):
    def __init__(self, folder, postgres, durable):
        self.down = os.path.join(folder, f"down-{durable}")
        settings = f'retry = {{ durable = "{durable}", attempts = 1000, backoff = "100ms..1s" }}'
        super().__init__(f"durable_{durable}", folder, postgres=postgres, way=f"service:{self.down}", topic_settings=settings)

    def stored_so_far(self):
        return self.number(f"SELECT coalesce(max(id), 0) FROM {self.schema}.retry")

    def overtaken(self):
        """Effects before which a later message of their key took effect. A record that came back has another offset: the ids tell."""
        return self.number("SELECT count(*) FROM (SELECT id, max(id) OVER (PARTITION BY record_key ORDER BY seq "
                           f"ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM {self.schema}.effect) e WHERE before > id")

    def audit(self):
        return subprocess.run([os.path.join(self.bin, "turnstile"), "audit", "--config", self.config, "--topic", self.topic],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def durable_run(folder, postgres, rate, seed, durable):
    run = Durable(folder, postgres("url").split("=", 1)[1], durable)
    choose = random.Random(seed)
    try:
        run.prepare()
        run.start_load(rate)
        for _ in range(CONSUMERS):
            run.start_consumer()
        for outage in range(OUTAGES[durable]):
            before = run.stored_so_far()
            with open(run.down, "w"):
                pass
            within(60, "too few messages were stored", lambda: run.stored_so_far() >= before + STORED)
            run.kill(choose.choice(run.living))
            fresh = run.start_consumer()
            if outage == 1:
                # A consumer that starts without PostgreSQL would end.
                within(60, "a fresh consumer got no work", lambda: run.runs_of(fresh.pid) > 0)
                postgres("restart", "-m", "immediate")
            os.remove(run.down)
            run.kill(choose.choice(run.living))
            run.start_consumer()
            print(f"  {durable}: outage {outage + 1} of {OUTAGES[durable]}", flush=True)
        run.drain()
        within(60, "stored messages are left", lambda: run.number(f"SELECT count(*) FROM {run.schema}.retry") == 0)
        audit = run.audit()
        run.finish_drained()
        rows = [row for row in counts(run) if row[0] != "effects out of order in their key"]
        overtaken, expected = run.overtaken(), durable == "pass"
        rows += [("effects after a later one of their key", overtaken, (overtaken > 0) == expected),
                 ("what the audit found", audit.returncode, audit.returncode == 0)]
        if audit.returncode != 0:
            print(audit.stdout)
        return rows
    finally:
        run.close()


def durable_chaos(folder, rate, seed):
    """With `wait`; and with `pass`, in which the count of overtaken messages must find some."""
    postgres = OwnServer(folder, "postgres", "durable-postgres")
    postgres("start")
    try:
        return [(f"{durable}: {label}", value, ok) for durable in ("wait", "pass")
                for label, value, ok in durable_run(folder, postgres, rate, seed, durable)]
    finally:
        postgres("stop")
