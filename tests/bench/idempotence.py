"""The bars of what is remembered: leases, numbering by offsets and by producers, many old ids, the inbox without Kafka, the outbox, deleting."""
import statistics

MILLION = 1_000_000


class Idempotence:
    """Added to Bench: its programs, topics and bars."""

    # --- other modes than transactional ---

    LEASED_SIZES = {"by hand": 20_000, "framework": 100_000, "batches": 300_000}

    def leased_topic(self, side):
        messages = self.size(self.LEASED_SIZES[side])
        return self.topics.get(f"once-{messages}", messages, ids="v4", duplicates=0.1)

    def leased_by_hand(self):
        topic = self.leased_topic("by hand")
        return self.p.run("bench_raw_once", brokers=self.p.kafka, topic=topic["topic"], postgres=self.p.postgres,
                          way="lease", connections=self.connections)["rate"]

    def leased_framework(self, size="framework", way="noop"):
        topic = self.leased_topic(size)
        self.p.fresh_schema()
        report = self.p.run("bench_fw_once", brokers=self.p.kafka, topic=topic["topic"], postgres=self.p.postgres,
                            schema=self.schema, way=way, mode="leased", workers=self.connections, messages=topic["messages"],
                            patience_s=600)
        left = self.p.sql(f"SELECT (SELECT count(*) FROM {self.schema}.inbox) || ' ' || (SELECT count(*) FROM {self.schema}.claim)")
        if left != f"{topic['distinct']} 0" or report["failed"] != 0:
            raise self.failed(f"fw_once leased: ids and open claims {left}, not {topic['distinct']} and 0")
        return report["rate"]

    def leased_gain(self):
        ratios = []
        for _ in range(self.rounds):
            by_hand = self.leased_by_hand()
            ratios.append(self.leased_framework() / by_hand)
        self.figure("leased-gain", ratios)

    def leased_ratio(self):
        """Batches on both sides: by hand two statements for each, with a commit each."""
        ratios = []
        for n in range(self.rounds):
            sides = {"raw": lambda: self.p.run("bench_raw_once", brokers=self.p.kafka, topic=self.leased_topic("batches")["topic"],
                                               postgres=self.p.postgres, way="leases", connections=self.connections)["rate"],
                     "fw": lambda: self.leased_framework("batches", "noop-batch")}
            both = {side: sides[side]() for side in (("raw", "fw") if n % 2 == 0 else ("fw", "raw"))}
            ratios.append(both["fw"] / both["raw"])
        self.bar("leased-ratio", ratios, 0.80)

    def set_based(self, topic, schema, effects, **how):
        """The set-based handler over the topic; it must have made so many effects."""
        report = self.p.run("bench_fw_once", brokers=self.p.kafka, topic=topic["topic"], postgres=self.p.postgres,
                            schema=schema, way="set", workers=self.connections, messages=topic["messages"], **how)
        made = self.p.sql("SELECT count(*) || ' ' || count(DISTINCT payment) FROM fw_effects")
        if made != f"{effects} {effects}" or report["failed"] != 0:
            raise self.failed(f"fw_once {how}: effects and distinct effects {made}, not {effects} of each")
        return report

    # What numbers messages instead of remembering each id, against mode transactional: how bench_fw_once is told so, and the bound.
    NUMBERED = {"numbered-ratio": ({"mode": "numbered"}, 1.0),
                "offset-ratio": ({"mode": "by_offset"}, 1.1)}
    PRODUCERS = 4

    def numbered(self, name):
        how, bound = self.NUMBERED[name]
        messages = self.size(600_000)
        topic = self.numbered_topic(messages)
        ratios = []
        for _ in range(self.rounds):
            rates = []
            for side in ({"mode": "transactional"}, how):
                self.p.fresh_schema()
                for session in topic["sessions"].split():
                    self.p.sql(f"INSERT INTO {self.schema}.producer (id, name, secret, expiry, keep_for) "
                               f"VALUES ('{session}', 'bench', '{topic['secret']}', '1 day', '8 days')")
                rates.append(self.set_based(topic, self.schema, messages, **side)["rate"])
            self.few_rows(name)
            ratios.append(rates[1] / rates[0])
        self.bar(name, ratios, bound)

    def numbered_topic(self, messages):
        """Numbered by producers, and with ids too: one topic for all sides."""
        if "numbered" not in self.topics.known:
            topic = self.topics.make("numbered", 0)["topic"]
            self.topics.known["numbered"] = self.p.run("bench_fw_numbered", brokers=self.p.kafka, topic=topic, messages=messages,
                                                       producers=self.PRODUCERS)
        return self.topics.known["numbered"]

    def few_rows(self, name):
        """What is kept must not have grown with the messages."""
        partitions = 4
        rows = self.p.sql(f"SELECT (SELECT count(*) FROM {self.schema}.inbox) || ' ' || (SELECT count(*) FROM {self.schema}.progress) "
                          f"|| ' ' || (SELECT count(*) FROM {self.schema}.producer_window)")
        windows = self.PRODUCERS * partitions if name == "numbered-ratio" else 0
        if rows != f"0 {partitions} {windows}":
            raise self.failed(f"{name}: ids, partitions and windows {rows}, not 0 {partitions} {windows}")

    # --- many old ids ---

    DEDUP = {"dedup-10m": (10 * MILLION, 0.80), "dedup-50m": (50 * MILLION, 0.80)}
    DEDUP_MESSAGES = 300_000
    # As bench_loader makes them, of its first records: a hundred in each millisecond.
    OLD_IDS = {"v7": "(lpad(to_hex(1750000000000 + n / 100), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8' || "
                     "substr(md5(n::text), 4, 15))::uuid",
               "v4": "gen_random_uuid()"}
    FILL_AT_ONCE = MILLION

    def remember(self, schema, ids, count):
        """So many old ids of the handler of bench_fw_once, in the order in which they would have come."""
        self.p.fresh_schema(schema)
        self.p.sql(f"INSERT INTO {schema}.handler (id, name) VALUES (1, 'once')")
        for start in range(0, count, self.FILL_AT_ONCE):
            end = min(count, start + self.FILL_AT_ONCE)
            self.p.sql(f"SET synchronous_commit = off; INSERT INTO {schema}.inbox (handler, id, slot, record_offset) "
                       f"SELECT 1, {self.OLD_IDS[ids]} AS id, 0, n FROM generate_series({start}, {end - 1}) n ORDER BY id")
            self.say(f"  {schema}: {end:,} of {count:,} ids")
        self.p.sql(f"VACUUM ANALYZE {schema}.inbox")

    def dedup_rates(self, ids, counts):
        """The rate in each round by the number of old ids. The schemas lie side by side, so that the rounds are interleaved."""
        rates = {count: [] for count in counts}
        schemas = {count: f"{self.schema}_{ids}_{count}" for count in counts}
        try:
            for count, schema in schemas.items():
                self.remember(schema, ids, count)
            for n in range(self.rounds):
                messages = self.size(self.DEDUP_MESSAGES)
                # Later than all that is remembered, and than the round before.
                topic = self.topics.make(f"dedup-{ids}-{n}", messages, ids=ids, duplicates=0.1,
                                         first=100 * MILLION + n * messages)
                for count, schema in schemas.items():
                    self.p.fresh_effects()
                    report = self.set_based(topic, schema, topic["distinct"])
                    report.update(remembered=count, ids=ids)
                    rates[count].append(report["rate"])
        finally:
            for schema in schemas.values():
                self.p.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        return rates

    def dedup(self, wanted):
        few = self.size(MILLION)
        many = {name: self.size(self.DEDUP[name][0]) for name in wanted}
        rates = self.dedup_rates("v7", [few, *many.values()])
        for name in wanted:
            self.bar(name, [m / f for m, f in zip(rates[many[name]], rates[few])], self.DEDUP[name][1])
        # No bound: written down.
        counts = [few, self.size(10 * MILLION)]
        random = self.dedup_rates("v4", counts)
        self.note("dedup-random", remembered=counts[1], ratio=statistics.median(
            m / f for f, m in zip(*(random[count] for count in counts))))

    # --- the inbox without Kafka, the outbox, deleting ---

    def once_done(self):
        ratios = []
        for _ in range(self.rounds):
            self.p.fresh_schema()
            ratios.append(self.p.run("bench_fw_once_done", postgres=self.p.postgres, schema=self.schema,
                                     asks=self.size(20_000))["p50_ratio"])
        self.bar("once-done", ratios, 1.3, most=True)

    def relayed(self, name, topic, messages):
        """Messages a second out of a table that was filled with so many of 100 bytes and 10,000 keys."""
        self.p.fresh_schema()
        self.p.sql(f"INSERT INTO {self.schema}.outbox (shard, topic, record_key, record_payload) "
                   f"SELECT n % 10000 % 16, '{topic}', convert_to('key-' || n % 10000, 'UTF8'), "
                   f"convert_to(lpad(n::text, 100, 'x'), 'UTF8') FROM generate_series(1, {messages}) n")
        self.p.sql(f"VACUUM ANALYZE {self.schema}.outbox")
        self.p.sql("CHECKPOINT")
        report = self.p.run(name, brokers=self.p.kafka, topic=topic, postgres=self.p.postgres, schema=self.schema,
                            messages=messages)
        left = self.p.sql(f"SELECT count(*) FROM {self.schema}.outbox")
        if report["arrived"] != messages or left != "0":
            raise self.failed(f"{name}: of {messages} messages {report['arrived']} arrived, and {left} are left")
        return report["rate"]

    def relay_ratio(self):
        messages, ratios = self.size(200_000), []
        for n in range(self.rounds):
            raw, ours = (self.relayed(name, self.topics.make(f"{name}-{n}", 0)["topic"], messages)
                         for name in ("bench_raw_relay", "bench_fw_relay"))
            ratios.append(ours / raw)
        self.bar("relay-ratio", ratios, 0.5)

    def purge_stall(self):
        ratios = []
        seconds = max(1, 10 * self.scale)
        for _ in range(self.rounds):
            self.p.sql(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")
            # More than can be deleted in that time.
            seen = self.p.run("bench_fw_purge", postgres=self.p.postgres, schema=self.schema, old=int(300_000 * seconds),
                              connections=self.connections, rounds=3, seconds=seconds, patience_s=600)
            ratios.append(seen["p99_ratio"])
        self.bar("purge-stall", ratios, 2, most=True)

    # --- all ---

    IDEMPOTENCE = ["leased-gain", "leased-ratio", *NUMBERED, *DEDUP, "once-done", "relay-ratio", "purge-stall"]
    # Gigabytes and minutes: only for who asks for them.
    BY_NAME_ONLY = ["dedup-50m"]

    def idempotence(self, wanted):
        if "leased-gain" in wanted:
            self.leased_gain()
        if "leased-ratio" in wanted:
            self.leased_ratio()
        for name in wanted:
            if name in self.NUMBERED:
                self.numbered(name)
        dedup = [name for name in wanted if name in self.DEDUP]
        if dedup:
            self.dedup(dedup)
        for name, measure in (("once-done", self.once_done), ("relay-ratio", self.relay_ratio), ("purge-stall", self.purge_stall)):
            if name in wanted:
                measure()
