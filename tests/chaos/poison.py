"""A message that aborts its process, under load, on three consumers that are started again as an orchestrator would. It has to become a
dead letter, the others have to take effect once, and the three have to live."""
import signal

from world import CONSUMERS, Run, within

ATTEMPTS = 2
# Who did it is not known at first; then it is among those that were running.
MOST_DEATHS = ATTEMPTS + 2
# So many deaths without a dead letter show that there will be none.
ENOUGH_DEATHS = 8


class Poisoned(Run):
    def __init__(self, folder, forgiven=False):
        way = "poison-forgiven" if forgiven else "poison"
        super().__init__(way.replace("-", "_"), folder, way=way, topic_settings=f"retry.attempts = {ATTEMPTS}")
        self.deaths = 0

    def look_after(self):
        for process in [p for p in self.living if p.poll() is not None]:
            if process.returncode != -signal.SIGABRT:
                raise SystemExit(f"chaos: consumer {process.pid} ended with {process.returncode}; its log is in {self.folder}")
            self.deaths += 1
            self.living.remove(process)
            self.start_consumer()

    def dead_letters(self):
        return self.sql(f"SELECT string_agg(reason || ' ' || attempts, ', ') FROM {self.schema}.dead")

    def until(self, seconds, what, condition):
        def looked_after():
            self.look_after()
            return condition()
        within(seconds, what, looked_after)

    def survivors(self):
        return sum(process.poll() is None for process in self.living)


def poison_run(folder, rate):
    """What came of it: deaths, dead letters, lost, doubled, survivors."""
    run = Poisoned(folder)
    try:
        run.prepare()
        run.start_load(rate)
        for _ in range(CONSUMERS):
            run.start_consumer()
        run.until(180, "the message that kills its process is no dead letter", run.dead_letters)
        # The others go on: half of what comes in a second.
        seen = run.number(f"SELECT count(*) FROM {run.schema}.effect")
        run.until(60, "nothing takes effect any more", lambda: run.number(f"SELECT count(*) FROM {run.schema}.effect") > seen + rate / 2)
        survivors = run.survivors()
        run.finish(missing=1)
        return {"deaths": run.deaths, "dead": run.dead_letters(), "lost": run.published["distinct"] - 1 - run.distinct,
                "doubled": run.doubled(), "survivors": survivors, "clean": run.clean_ends,
                "suspects": run.number(f"SELECT (SELECT count(*) FROM {run.schema}.suspect) + (SELECT count(*) FROM {run.schema}.trial)")}
    finally:
        run.close()


def known_bad_poison(folder, rate):
    """The build that suspects nobody: processes die of the same message again and again."""
    run = Poisoned(folder, forgiven=True)
    try:
        run.prepare()
        run.start_load(rate)
        for _ in range(CONSUMERS):
            run.start_consumer()
        run.until(240, "the processes do not die of it", lambda: run.deaths >= ENOUGH_DEATHS or run.dead_letters())
        return [("deaths without a dead letter", run.deaths, run.deaths >= ENOUGH_DEATHS and not run.dead_letters())]
    finally:
        run.close()


def poison_rows(result):
    return [("deaths", result["deaths"], result["deaths"] <= MOST_DEATHS),
            ("dead letters", result["dead"], result["dead"] == f"killed_process {ATTEMPTS}"),
            ("lost", result["lost"], result["lost"] == 0),
            ("doubled", result["doubled"], result["doubled"] == 0),
            ("processes alive", result["survivors"], result["survivors"] == CONSUMERS),
            ("suspects left", result["suspects"], result["suspects"] == 0),
            ("consumers that ended cleanly", "all" if result["clean"] else "not all", result["clean"])]
