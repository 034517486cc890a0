"""The bars of what must hold while servers fail, topics change and handlers misbehave: counts and ratios, not speed."""
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "chaos"))
from poison import poison_rows, poison_run  # noqa: E402


class Promises:
    """Added to Bench: its programs, topics and bars. For a new bar: its name and the method that measures it go into PROMISES. A method
    that measures several bars is named at each, and is called once with the names of all that are wanted."""

    PROMISES = {
        "memory-large": "memory_large",
        "poison-survivors": "poison_survivors",
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
                           "TURNSTILE_TEST_POSTGRES_URL": self.p.postgres})
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
