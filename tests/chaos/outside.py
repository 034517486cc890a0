"""How many handlers ran at once, counted from outside: by their own journals, by when their processes were killed, by when the
database refused them, and by when their own lease was over. The limiter is not asked; of the token log it takes what limit was in
force when, and when each process was last heard of.

A handler does not count any more, although it still runs, from the moment on
  fenced    that the database has a newer epoch of its partition, committed: nothing that it does there can be committed
  deadline  that its process had said nothing for 7/8 of the lease: it was told to stop, and commits nothing either
Others can be given its permit only after that.
"""
import bisect
import glob
import os

SECOND = 1_000_000_000
FOR_EVER = 1 << 62


class Journals:
    def __init__(self, folder, killed):
        """`killed`: pid -> when it had ended, ns."""
        self.runs, self.claims, self.stopped = [], {}, 0
        for name in glob.glob(os.path.join(folder, "*.journal")):
            pid, begun = int(os.path.basename(name).split(".")[0]), {}
            with open(name) as file:
                for line in file:
                    if not line.endswith("\n"):
                        continue
                    word = line.split()
                    if word[0] == "S":
                        begun[word[2]] = {"pid": pid, "begin": int(word[1]), "end": None, "partition": int(word[3]),
                                          "epoch": int(word[4])}
                        self.runs.append(begun[word[2]])
                    elif word[0] == "E":
                        begun[word[2]]["end"] = int(word[1])
                        self.stopped += word[3] == "stopped"
                    elif word[0] == "F":
                        self.claims.setdefault(int(word[2]), []).append((int(word[3]), int(word[1])))
            for run in begun.values():
                if run["end"] is None:
                    run["end"] = killed.get(pid)

    def fenced_at(self, run):
        later = [at for epoch, at in self.claims.get(run["partition"], []) if epoch > run["epoch"]]
        return min(later, default=None)


class TokenLog:
    """What `chaos watch` has written."""

    def __init__(self, file):
        self.records, self.heard, self.limits = [], {}, []
        with open(file) as lines:
            for line in lines:
                if not line.endswith("\n"):
                    continue
                word = line.split()
                # The outcome may be two words.
                at, pid, limit, held, members = int(word[1]), int(word[3]), int(word[-3]), int(word[-2]), int(word[-1])
                self.records.append({"at": at, "kind": word[4], "outcome": " ".join(word[5:-3]), "limit": limit, "held": held,
                                     "members": members})
                self.heard.setdefault(pid, []).append(at)
                if not self.limits or self.limits[-1][1] != limit:
                    self.limits.append((at, limit))
        for times in self.heard.values():
            times.sort()

    def deadlines(self, pid, lease):
        """When the process's own deadline passed, since it had said nothing for so long."""
        times = self.heard.get(pid, [])
        return [before + lease * 7 // 8 for before, after in zip(times, times[1:] + [None])
                if after is None or after - before > lease * 7 // 8]

    def most_in_force(self, begin, end):
        """The highest limit in force at any time from `begin` to `end`."""
        first = max(bisect.bisect_right(self.limits, (begin, FOR_EVER)) - 1, 0)
        return max([self.limits[first][1]] + [limit for at, limit in self.limits[first + 1:] if at <= end])

    def growing(self):
        """Positions at which more was held than the limit allows, and more than before."""
        return sum(1 for before, now in zip(self.records, self.records[1:])
                   if now["held"] > now["limit"] and now["held"] > before["held"])


def sweep(journals, log, lease):
    """Each change of how many count: (time, how many, whether one has just begun). And how many overstayed."""
    deadlines = {pid: log.deadlines(pid, lease) for pid in {run["pid"] for run in journals.runs}}
    steps, harmless_runs, late = [], 0, 0
    for run in journals.runs:
        harmless = [at for at in [journals.fenced_at(run)] if at is not None]
        times = deadlines[run["pid"]]
        place = bisect.bisect_left(times, run["begin"])
        if place < len(times):
            harmless.append(times[place])
        end = run["end"]
        if harmless and (end is None or min(harmless) < end):
            end = min(harmless)
            harmless_runs += 1
        if end is not None and end <= run["begin"]:
            late += 1  # begun under an epoch that was over: it could not commit
            continue
        steps.append((run["begin"], 1))
        if end is not None:
            steps.append((end, -1))
    steps.sort()
    running, counted = 0, []
    for at, step in steps:
        running += step
        counted.append((at, running, step > 0))
    return counted, harmless_runs, late


def violations(counted, log, patience, lease, outages):
    """Handlers that began although as many ran as any limit allowed that was in force within `patience` before; within the lease,
    where the broker was away meanwhile, so that members could not hear of it."""
    found = []
    for at, running, begins in counted:
        away = any(begin <= at and end >= at - lease for begin, end in outages)
        allowed = log.most_in_force(at - (lease if away else patience), at)
        if begins and running > allowed:
            found.append((at, running, allowed))
    return found


def times_until_it_fits(counted, log, patience):
    """For each lowering that stayed for `patience`: how long until no more ran than it allows."""
    found = []
    for i, (at, limit) in enumerate(log.limits):
        until = log.limits[i + 1][0] if i + 1 < len(log.limits) else FOR_EVER
        if i == 0 or limit >= log.limits[i - 1][1] or until - at < patience:
            continue
        # More ran until the step that followed.
        above = [after[0] for before, after in zip(counted, counted[1:])
                 if before[1] > limit and at <= after[0] < at + patience]
        found.append((max(above) - at if above else 0) / SECOND)
    return sorted(found)
