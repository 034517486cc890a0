// turnstile audit on a real topic and a real database: a run with all fates, and faults that are planted afterwards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "tests/support/cli.hpp"
#include "tests/support/delete_records.hpp"
#include "tests/support/read_file.hpp"
#include "tests/support/transactional_producer.hpp"
#include "tests/support/world.hpp"
#include "turnstile/error.hpp"
#include "turnstile/inbox.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/kafka/record_reader.hpp"
#include "turnstile/postgres/store.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class CliAudit : public ::testing::Test {
 protected:
  void SetUp() override { TURNSTILE_NEEDS_SERVERS(); }

  /// Handles all that was published, and stops.
  void handle(World& world, const std::string& settings = "limit = 8") {
    toml_ = world.toml(settings);
    Process consumer = world.consumer(toml_);
    ASSERT_TRUE(eventually([&] { return world.caught_up(); }, 60s)) << world.output();
    consumer.signal(SIGTERM);
    ASSERT_EQ(consumer.wait(30s), 0) << world.output();
  }
  template <class... More>
  Finished audit(const World& world, More... more) {
    std::ofstream(world.folder() + "/audit.toml") << toml_;
    return Cli().run("audit", "--topic", world.topic(), "--config", world.folder() + "/audit.toml", more...);
  }
  Json audit_json(const World& world) {
    const Finished run = audit(world, "--json");
    EXPECT_EQ(run.err, "");
    const Json json = Json::parse(run.out, nullptr, false);
    EXPECT_EQ(run.code, json.value("holds", false) ? 0 : 1) << run.out;
    return json;
  }
  /// `sql` ends with RETURNING 1.
  static void change(const World& world, const std::string& sql) { EXPECT_EQ(world.query(sql), "1") << sql; }
  static std::int64_t sum(const Json& json, const std::string& fate) {
    std::int64_t all = 0;
    for (const auto& partition : json["partitions"]) all += partition["fates"][fate].get<std::int64_t>();
    return all;
  }

  std::string toml_;
};

TEST_F(CliAudit, every_record_of_a_run_has_one_fate) {
  World world(4);
  const std::int64_t records = world.publish(300);
  world.publish("doomed", "throw");
  world.publish(std::vector<Header>{}, "without an id");
  handle(world);
  const Json json = audit_json(world);
  EXPECT_TRUE(json["holds"]) << json.dump(2);
  EXPECT_EQ(json["records"], records + 2);
  EXPECT_EQ(sum(json, "took_effect"), 300);
  EXPECT_EQ(sum(json, "duplicate"), records - 300);
  EXPECT_EQ(sum(json, "dead_letter"), 2);
  EXPECT_EQ(json["unaccounted"], 0);
  EXPECT_EQ(json["effects_without_record"], 0);
  EXPECT_EQ(json["token_log"]["above_limit"].size(), 0U);
  EXPECT_GT(json["token_log"]["records"], 0);

  const Finished text = audit(world);
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, AllOf(HasSubstr("TOOK EFFECT"), HasSubstr("all guarantees hold"), Not(HasSubstr("VIOLATION"))));

  // Published after the consumer has stopped.
  world.publish(10, "later");
  EXPECT_EQ(sum(audit_json(world), "pending"), 11);
}

TEST_F(CliAudit, a_removed_id_an_added_effect_and_a_second_fate_are_found) {
  World world(1);
  world.publish("single", "payload");
  world.publish(50);
  world.publish("doomed", "throw");
  handle(world);
  ASSERT_TRUE(audit_json(world)["holds"]);

  const std::string offset = world.query("SELECT min(record_offset) FROM inbox");
  const std::string id = world.query("SELECT id FROM inbox ORDER BY record_offset LIMIT 1");
  change(world, "DELETE FROM inbox WHERE record_offset = " + offset + " RETURNING 1");
  Finished found = audit(world);
  EXPECT_EQ(found.code, 1);
  EXPECT_THAT(found.out, AllOf(HasSubstr("VIOLATION " + world.topic() + "[0]@" + offset), HasSubstr(id),
                               HasSubstr("NOT all guarantees hold: 1 record unaccounted")));
  change(world, "INSERT INTO inbox (handler, id, slot, record_offset) SELECT handler, '" + id + "', slot, " + offset +
                    " FROM inbox LIMIT 1 RETURNING 1");
  ASSERT_TRUE(audit_json(world)["holds"]);

  // The record at this place has an effect of its own. Which of two copies has one depends on their order.
  const std::string taken = world.query("SELECT max(record_offset) FROM inbox");
  change(world, "INSERT INTO inbox (handler, id, slot, record_offset) SELECT handler, gen_random_uuid(), slot, " +
                    taken + " FROM inbox LIMIT 1 RETURNING 1");
  found = audit(world);
  EXPECT_EQ(found.code, 1) << found.out;
  EXPECT_THAT(found.out, AllOf(HasSubstr("[0]@" + taken + ": id "), HasSubstr("another id"),
                               HasSubstr("1 effect without a record")));
  change(world, "DELETE FROM inbox WHERE record_offset = " + taken + " RETURNING 1");
  EXPECT_THAT(audit(world).out, HasSubstr("NOT all guarantees hold"));

  // The dead letter's record had taken effect.
  change(
      world,
      "INSERT INTO inbox (handler, id, slot, record_offset, seen_at) SELECT handler, message_id, slot, record_offset, "
      "died_at - interval '1 second' FROM dead RETURNING 1");
  EXPECT_THAT(audit(world).out, HasSubstr("it took effect, and is also dead letter"));
}

TEST_F(CliAudit, an_effect_at_a_place_without_a_record_is_found) {
  World world(1);
  world.publish(20);
  handle(world);
  // A duplicate's place has no effect of its own.
  const std::string duplicate = world.query(
      "SELECT min(n) FROM generate_series(0, 21) n WHERE NOT EXISTS (SELECT FROM inbox WHERE record_offset = n)");
  change(world, "INSERT INTO inbox (handler, id, slot, record_offset) SELECT handler, gen_random_uuid(), slot, " +
                    duplicate + " FROM inbox LIMIT 1 RETURNING 1");
  const Finished found = audit(world, "--metrics", world.folder() + "/audit.prom");
  EXPECT_EQ(found.code, 1);
  EXPECT_THAT(found.out, HasSubstr("[0]@" + duplicate + ": id "));
  std::ifstream in(world.folder() + "/audit.prom");
  std::ostringstream metrics;
  metrics << in.rdbuf();
  EXPECT_THAT(metrics.str(), AllOf(HasSubstr("turnstile_effects_without_record{group=\"" + world.topic()),
                                   HasSubstr("turnstile_unaccounted_records{"), HasSubstr("} 1\n")));
}

TEST_F(CliAudit, an_effect_behind_the_end_of_the_log_is_found) {
  World world(1);
  world.publish(20);
  handle(world);
  change(
      world,
      "INSERT INTO inbox (handler, id, slot, record_offset) SELECT handler, gen_random_uuid(), slot, 1000 FROM inbox "
      "LIMIT 1 RETURNING 1");
  const Finished found = audit(world);
  EXPECT_EQ(found.code, 1);
  EXPECT_THAT(found.out, AllOf(HasSubstr("[0]@1000: id "), HasSubstr("1 effect without a record")));
}

TEST_F(CliAudit, an_effect_at_a_place_of_no_partition_is_found) {
  World world(1);
  world.publish(20);
  handle(world);
  const std::string id = "deadbeef-0000-0000-0000-000000000020";
  // The slot, or "slot" for the partition's own, and the offset.
  for (const auto& [slot, offset] :
       std::vector<std::pair<std::string, std::string>>{{"31000", "3"}, {"-1", "3"}, {"31000", "-3"}, {"slot", "-5"}}) {
    change(world, "INSERT INTO inbox (handler, id, slot, record_offset) SELECT handler, '" + id + "', " + slot + ", " +
                      offset + " FROM inbox LIMIT 1 RETURNING 1");
    const Finished found = audit(world);
    EXPECT_EQ(found.code, 1) << slot << "@" << offset << ": " << found.out;
    EXPECT_THAT(found.out,
                AllOf(HasSubstr("id " + id + " took effect"), HasSubstr("; see: turnstile inbox inspect " + id + "\n"),
                      HasSubstr("1 effect without a record")));
    const Json json = audit_json(world);
    EXPECT_EQ(json["effects_without_record"], 1) << json;
    EXPECT_EQ(json["violations"][0]["offset"].dump(), offset);
    change(world, "DELETE FROM inbox WHERE id = '" + id + "' RETURNING 1");
  }
  change(world, "INSERT INTO inbox (handler, id, slot, record_offset) SELECT handler, '" + id +
                    "', slot, 9223372036854775807 FROM inbox LIMIT 1 RETURNING 1");
  EXPECT_EQ(audit_json(world)["effects_without_record"], 1) << "the largest offset";
  change(world, "DELETE FROM inbox WHERE id = '" + id + "' RETURNING 1");
  // The time of such an effect is the only one that is known.
  change(world, "INSERT INTO inbox (handler, id, slot, record_offset, seen_at) SELECT handler, '" + id +
                    "', 31000, 3, seen_at - interval '2 hours' FROM inbox LIMIT 1 RETURNING 1");
  EXPECT_EQ(audit(world, "--from", "1h ago").code, 0);
  EXPECT_EQ(audit(world, "--from", "3h ago").code, 1);
}

TEST_F(CliAudit, effects_of_calls_and_of_other_partitions_are_no_violations) {
  World world(1);
  world.publish(3);
  handle(world);
  const std::string handler = world.query("SELECT name FROM handler");
  Inbox inbox(postgres::open_store(*Config::parse(toml_, "audit.toml").postgres));
  EXPECT_EQ(inbox.once(handler, "call-1", [](Context&) {}).kind, Once::Kind::ran);
  inbox.record(handler, "call-2");
  const auto plant = [&](const std::string& slot, const std::string& times) {
    change(world, "INSERT INTO inbox (handler, id, slot, record_offset) SELECT h.id, gen_random_uuid(), " + slot +
                      ", n FROM handler h, generate_series(1, " + times + ") n RETURNING 1");
  };
  change(
      world,
      "INSERT INTO fence (consumer_group, topic, partition) VALUES ('billing', 'other', 0), ('billing', 'other', 1), "
      "('billing', 'gone', 0) RETURNING 1");
  plant("(SELECT slot FROM fence WHERE topic = 'other' AND partition = 0)", "4");
  plant("(SELECT slot FROM fence WHERE topic = 'other' AND partition = 1)", "1");
  plant("(SELECT slot FROM fence WHERE topic = 'gone')", "6");
  // As an operator may clean up. Turnstile never deletes such a row.
  change(world, "DELETE FROM fence WHERE topic = 'gone' RETURNING 1");

  const Finished text = audit(world);
  EXPECT_EQ(text.code, 0) << text.out;
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("not compared: 2 effects of calls, which have no record"),
                    HasSubstr("not compared: 5 effects in topic other, group billing"),
                    HasSubstr("cannot tell: 6 effects in partitions that the database does not know any more"),
                    HasSubstr("each effect that could be compared has a record"), Not(HasSubstr("VIOLATION"))));
  const Json json = audit_json(world);
  EXPECT_EQ(json["effects_of_calls"], 2);
  EXPECT_EQ(json["effects_in_unknown_partitions"], 6);
  EXPECT_EQ(json["effects_elsewhere"], Json::parse(R"([{"topic": "other", "group": "billing", "effects": 5}])"));
}

TEST_F(CliAudit, what_compaction_has_deleted_cannot_be_told) {
  WorldOptions options;
  options.partitions = 1;
  options.dead_topic_settings = {
      {"cleanup.policy", "compact"}, {"segment.ms", "100"}, {"min.cleanable.dirty.ratio", "0.01"}};
  World world(options);
  const std::string topic = world.dead_topic();
  const std::string section = "[topics.\"" + world.topic() + "\"]";
  toml_ = world.toml("dead_letter = \"" + world.add_topic("graves") + "\"");
  toml_.replace(toml_.find(section), section.size(), "[topics.\"" + topic + "\"]");
  std::ofstream(world.folder() + "/c.toml") << toml_;
  Process consumer(std::string(TURNSTILE_BIN_DIR) + "/consumer", {world.folder() + "/c.toml", topic, world.schema()},
                   {}, world.folder() + "/output");
  int published = 0;
  // One after another: what is compacted before the consumer has read it has no effect.
  const auto takes_effect = [&](const std::string& key) {
    OwnedMessage message;
    message.topic = topic;
    message.key = key;
    message.headers = {{"message-id", std::to_string(published++)}};
    world.publish(message);
    return eventually([&] { return world.effects().distinct == published; }, 60s);
  };
  const auto records = [&] {
    std::int64_t found = 0;
    kafka::RecordReader reader({{"bootstrap.servers", kafka_servers()}}, topic, nullptr);
    for (const auto& range : reader.ranges({}, {})) {
      reader.read(range, [&](std::span<const Message> some) {
        found += static_cast<std::int64_t>(some.size());
        return true;
      });
    }
    return found;
  };
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(takes_effect("one")) << world.output();
  // A segment is compacted when a later one has begun.
  ASSERT_TRUE(eventually([&] { return !takes_effect("two") || records() < 20; }, 90s));
  ASSERT_EQ(world.effects().distinct, published) << world.output();
  consumer.signal(SIGTERM);
  ASSERT_EQ(consumer.wait(30s), 0) << world.output();
  const auto look = [&] { return Cli().run("audit", "--topic", topic, "--config", world.folder() + "/c.toml"); };
  const Finished clean = look();
  EXPECT_EQ(clean.code, 0) << clean.out;
  EXPECT_THAT(clean.out, HasSubstr("cannot tell: "));
  change(world,
         "WITH last AS (SELECT handler, slot, max(record_offset) AS at FROM inbox GROUP BY 1, 2) INSERT INTO inbox "
         "(handler, id, slot, record_offset) SELECT handler, gen_random_uuid(), slot, at FROM last RETURNING 1");
  EXPECT_THAT(look().out, HasSubstr("1 effect without a record"));
}

/// As after a change of isolation.level from read_uncommitted to read_committed.
TEST_F(CliAudit, effects_of_records_behind_an_open_transaction_cannot_be_told) {
  World world(1);
  world.publish(20);
  handle(world);
  EXPECT_THAT(audit(world).out, HasSubstr("each effect has a record"));
  TransactionalProducer producer(world.topic());
  producer.begin();
  producer.send(2);
  change(world,
         "INSERT INTO inbox (handler, id, slot, record_offset) SELECT handler, gen_random_uuid(), slot, 22 FROM inbox "
         "LIMIT 1 RETURNING 1");  // 20 records and 2 duplicates are before it
  const Json json = audit_json(world);
  EXPECT_TRUE(json["holds"]) << json;
  EXPECT_EQ(json["effects_of_unread_records"], 1) << json;
  const Finished text = audit(world);
  EXPECT_THAT(text.out, AllOf(HasSubstr("cannot tell: 1 effect whose record is behind an open transaction"),
                              HasSubstr("each effect that could be compared has a record")));
  producer.abort();
  EXPECT_TRUE(eventually([&] { return audit(world).out.find("1 effect without a record") != std::string::npos; }, 30s));
}

TEST_F(CliAudit, effects_of_records_that_kafka_has_deleted_cannot_be_told) {
  World world(1);
  world.publish(20);
  handle(world);
  EXPECT_THAT(audit(world).out, HasSubstr("each effect has a record"));
  delete_before(world.topic(), 0, 10);
  const std::string deleted = world.query("SELECT count(*) FROM inbox WHERE record_offset < 10");
  Json json = audit_json(world);
  EXPECT_TRUE(json["holds"]) << json;
  EXPECT_EQ(json["records"], 12);
  EXPECT_EQ(json["effects_of_deleted_records"].dump(), deleted);
  const Finished text = audit(world);
  EXPECT_THAT(text.out, AllOf(HasSubstr("cannot tell: " + deleted + " effects whose record the broker has deleted"),
                              HasSubstr("each effect that could be compared has a record"),
                              Not(HasSubstr("each effect has a record"))));

  change(world,
         "INSERT INTO inbox (handler, id, slot, record_offset) SELECT handler, gen_random_uuid(), slot, 3 FROM inbox "
         "LIMIT 1 RETURNING 1");
  const std::string planted = std::to_string(std::stoi(deleted) + 1);
  json = audit_json(world);
  EXPECT_TRUE(json["holds"]) << json;
  EXPECT_EQ(json["effects_of_deleted_records"].dump(), planted);

  // The records have no time any more, so that of their effects counts.
  EXPECT_THAT(audit(world, "--from", "1h ago").out, HasSubstr("cannot tell: " + planted + " effects"));
  EXPECT_THAT(audit(world, "--to", "1h ago").out, Not(HasSubstr("cannot tell")));
  change(world, "UPDATE inbox SET seen_at = seen_at - interval '2 hours' WHERE record_offset < 10 RETURNING 1");
  EXPECT_THAT(audit(world, "--from", "1h ago").out, Not(HasSubstr("cannot tell")));
}

TEST_F(CliAudit, records_that_kafka_has_deleted_unread_cannot_be_told) {
  World world(1);
  world.publish(2);
  handle(world);
  const std::string settled = world.query("SELECT watermark FROM watermark");
  world.publish(5, "unread");
  delete_before(world.topic(), 0, std::stoll(settled) + 3);
  const Finished text = audit(world);
  EXPECT_EQ(text.code, 0) << text.out;
  EXPECT_THAT(text.out, AllOf(HasSubstr("cannot tell: up to 3 records that Kafka deleted before the group had settled"),
                              HasSubstr("each record that Kafka still has has one fate")));
  EXPECT_EQ(audit_json(world)["deleted_unsettled_records"], 3);
}

TEST_F(CliAudit, what_is_older_than_the_stored_ids_cannot_be_told) {
  World world(1);
  world.publish(20);
  handle(world);
  change(world, "DELETE FROM inbox RETURNING 1");
  change(world,
         "INSERT INTO horizon (handler, forgotten_before) SELECT id, now() + interval '1 minute' FROM handler "
         "ON CONFLICT (handler) DO UPDATE SET forgotten_before = excluded.forgotten_before RETURNING 1");
  const Json json = audit_json(world);
  EXPECT_TRUE(json["holds"]);
  EXPECT_EQ(json["cannot_tell"], 22);
  EXPECT_THAT(audit(world).out, HasSubstr("cannot tell: 22 records older than the ids that are stored"));
}

TEST_F(CliAudit, a_topic_or_a_group_that_nobody_reads_is_named) {
  World world(1);
  world.publish(1);
  handle(world);
  Finished wrong = Cli().run("audit", "--topic", "nosuch", "--config", world.folder() + "/none.toml");
  EXPECT_NE(wrong.code, 0);
  wrong = audit(world, "--group", "strangers");
  EXPECT_EQ(wrong.code, 2) << "1 says that a guarantee does not hold";
  wrong = audit(world, "--handler", "nobody");
  EXPECT_EQ(wrong.code, 2);
  wrong = audit(world, "--group", "strangers");
  EXPECT_THAT(wrong.err, HasSubstr("group strangers has claimed no partition of topic " + world.topic()));
  wrong = audit(world, "--from", "soon");
  EXPECT_EQ(wrong.code, 2);
  wrong = audit(world, "--from", "1h ago", "--to", "2h ago");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--from must be before --to"));
  toml_ = world.toml("mode = \"at_least_once\"");
  wrong = audit(world);
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("nothing to audit"));
}

TEST_F(CliAudit, a_replayed_dead_letter_may_be_purged) {
  World world(1);
  world.publish(std::vector<Header>{}, "without an id");
  handle(world);
  const auto dlq = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--config", world.folder() + "/audit.toml"});
    const Finished run = Cli().run_all(words);
    EXPECT_EQ(run.code, 0) << run.err;
  };
  EXPECT_TRUE(audit_json(world)["holds"]);
  dlq({"dlq", "replay", "1"});
  handle(world);
  ASSERT_EQ(world.query("SELECT count(*) FROM dead"), "2");
  dlq({"dlq", "purge", "--older-than", "1s", "--replayed", "--yes"});
  ASSERT_EQ(world.query("SELECT count(*) FROM dead"), "1");
  const Json json = audit_json(world);
  EXPECT_TRUE(json["holds"]) << json;
  EXPECT_EQ(sum(json, "dead_letter"), 2);
  change(world, "DELETE FROM dead RETURNING 1");
  EXPECT_EQ(audit_json(world)["unaccounted"], 1) << "only the record that nobody replayed";
}

TEST_F(CliAudit, a_schema_of_another_build_is_refused) {
  World world(1);
  world.publish(3);
  handle(world);
  const auto refused = [&](const std::string& code) {
    const Finished run = audit(world);
    EXPECT_EQ(run.code, 4) << run.out << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr("code=" + code));
  };
  change(world, "INSERT INTO migration (number, name, checksum) VALUES (9999, 'future', 'x') RETURNING 1");
  refused("schema_newer");
  change(world, "DELETE FROM migration WHERE number = 9999 RETURNING 1");
  change(world, "UPDATE migration SET checksum = 'x' WHERE number = 1 RETURNING 1");
  refused("migration_changed");
  change(world, "UPDATE migration SET checksum = NULL WHERE number = 1 RETURNING 1");
  EXPECT_EQ(audit(world).code, 0);
  change(world, "DELETE FROM compatible_migration RETURNING 1");
  refused("schema_outdated");
}

// Limits that the program counts in PostgreSQL: the configuration does not name them.
TEST_F(CliAudit, permits_above_a_limit_in_the_database_are_found) {
  World world(1);
  world.publish(3);
  handle(world);
  EXPECT_THAT(audit(world).out, Not(HasSubstr("limits in PostgreSQL")));
  change(world, "INSERT INTO limiter (name, configured) VALUES ('psp', 3) RETURNING 1");
  static_cast<void>(
      world.query("INSERT INTO permit (limiter, slot, holder, expires_at) SELECT l.id, n, 'host:1', now() + interval "
                  "'1 hour' FROM limiter l, generate_series(1, 3) n"));
  EXPECT_THAT(audit(world).out,
              AllOf(HasSubstr("limits in PostgreSQL: 1 limiter compared now"), Not(HasSubstr("VIOL"))));
  change(world, "UPDATE limiter SET ordered = 2, changed_at = clock_timestamp() RETURNING 1");
  const std::string file = world.folder() + "/metrics";
  Finished found = audit(world, "--metrics", file);
  EXPECT_EQ(found.code, 0) << found.out;
  EXPECT_THAT(found.out, HasSubstr("limiter psp: 3 permits are held now, and the limit is 2, which was lowered after"));
  EXPECT_THAT(read_file(file), HasSubstr("turnstile_positions_above_limit{group=\"" + world.topic() + "\",topic=\"" +
                                         world.topic() + "\"} 0\n"));
  change(world,
         "INSERT INTO permit (limiter, slot, holder, expires_at) SELECT id, 4, 'host:2', now() + interval '1 hour' "
         "FROM limiter RETURNING 1");
  found = audit(world, "--metrics", file);
  EXPECT_EQ(found.code, 1) << found.out;
  EXPECT_THAT(found.out, AllOf(HasSubstr("VIOLATION limiter psp: 4 permits are held now, and the limit is 2\n"),
                               HasSubstr("1 violation of limits")));
  EXPECT_THAT(read_file(file), HasSubstr("topic=\"" + world.topic() + "\"} 1\n"));
}

TEST_F(CliAudit, the_metrics_of_a_group_with_any_name_can_be_read) {
  World world(1);
  world.publish(3);
  handle(world);
  change(world, R"(UPDATE fence SET consumer_group = 'a"b\c' || chr(10) || 'd' RETURNING 1)");
  const std::string file = world.folder() + "/metrics";
  const Finished run = audit(world, "--group", "a\"b\\c\nd", "--metrics", file);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(read_file(file),
              HasSubstr(R"(turnstile_audited_records{group="a\"b\\c\nd",topic=")" + world.topic() + "\"} 4\n"));
}

TEST_F(CliAudit, metrics_are_written_to_what_the_name_means) {
  World world(1);
  world.publish(3);
  handle(world);
  const std::filesystem::path folder = world.folder();
  const auto written_to = [&](const std::string& name) {
    const Finished run = audit(world, "--metrics", folder / name);
    EXPECT_EQ(run.code, 0) << run.err;
  };
  std::filesystem::create_directory(folder / "textfiles");
  std::filesystem::create_symlink("textfiles/turnstile.prom", folder / "link");
  for (int times = 0; times < 2; ++times) {  // it does not exist the first time
    written_to("link");
    EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
    EXPECT_THAT(read_file(folder / "textfiles/turnstile.prom"), HasSubstr("turnstile_audited_records"));
  }
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  auto reader = std::async(std::launch::async, [&] { return read_file(folder / "pipe"); });
  written_to("pipe");
  EXPECT_THAT(reader.get(), HasSubstr("turnstile_audited_records"));
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));

  for (const std::string name : {"missing/x.prom", "textfiles"}) {
    const Finished run = audit(world, "--metrics", folder / name);
    EXPECT_EQ(run.code, 2) << run.out;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr("cannot be written: "));
  }
  EXPECT_EQ(audit(world, "--metrics", "/dev/full").code, 2);
  change(world, "DELETE FROM inbox WHERE record_offset = 0 RETURNING 1");
  const Finished run = audit(world, "--metrics", "/dev/full");
  EXPECT_EQ(run.code, 1) << "what was found is more important";
  EXPECT_THAT(run.out, HasSubstr("NOT all guarantees hold"));
  EXPECT_THAT(run.err, HasSubstr("/dev/full: cannot be written: No space left on device"));
}

// Each command of docs/operations/audit.md.
TEST_F(CliAudit, the_commands_of_its_page_run) {
  World world(1);
  world.publish(3);
  handle(world);
  std::ofstream(world.folder() + "/turnstile.toml") << toml_;
  std::ifstream page(TURNSTILE_SOURCE_DIR "/docs/operations/audit.md");
  int found = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("    turnstile audit ")) continue;
    ++found;
    line.replace(line.find("TOPIC"), 5, world.topic());
    const auto bin = std::string(TURNSTILE_BIN_DIR);
    const std::string command = "cd " + world.folder() + " && " + bin + "/" + line.substr(4) + " >/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  EXPECT_GE(found, 5);
}

TEST_F(CliAudit, a_dead_letter_that_takes_effect_after_a_rewind_is_no_violation) {
  World world(1);
  const std::string one_attempt = "retry = { attempts = 1 }";
  world.publish("a", "throw-once:" + world.folder() + "/a");
  handle(world, one_attempt);
  EXPECT_EQ(sum(audit_json(world), "dead_letter"), 1);
  const auto rewind =
      Cli().run("rewind", world.topic(), "--to", "1h ago", "--yes", "--config", world.folder() + "/audit.toml");
  ASSERT_EQ(rewind.code, 0) << rewind.err;
  handle(world, one_attempt);
  EXPECT_EQ(world.effects().rows, 1);
  EXPECT_EQ(world.query("SELECT count(*) FROM dead WHERE replayed_at IS NULL"), "1");
  const Json json = audit_json(world);
  EXPECT_TRUE(json["holds"]) << json;
  EXPECT_EQ(sum(json, "took_effect"), 1);
  // Planted: it dies after its effect.
  change(world, "UPDATE dead SET died_at = clock_timestamp() RETURNING 1");
  const auto planted = audit(world);
  EXPECT_EQ(planted.code, 1) << planted.out;
  EXPECT_THAT(planted.out, HasSubstr("it took effect, and is also dead letter"));
}

TEST_F(CliAudit, looks_only_at_the_records_between_two_times) {
  World world(1);
  world.publish(10, "early");
  handle(world);
  const auto none = Json::parse(audit(world, "--to", "1h ago", "--json").out);
  EXPECT_EQ(none["records"], 0);
  EXPECT_TRUE(none["holds"]);
  EXPECT_THAT(audit(world, "--to", "1h ago").out, HasSubstr("no record lies in this span"));
  const auto all = Json::parse(audit(world, "--from", "1h ago", "--json").out);
  EXPECT_EQ(all["records"], 11);
}

TEST_F(CliAudit, a_topic_that_was_created_again_and_not_read_since_is_no_violation) {
  World world(1);
  world.publish(20);
  handle(world);
  const kafka::Settings kafka{{"bootstrap.servers", kafka_servers()}};
  kafka::delete_topic(kafka, world.topic());
  ASSERT_TRUE(eventually(
      [&] {
        try {
          return kafka::create_topic(kafka, {world.topic(), 1, -1, {}});
        } catch (const BrokerError&) {  // the old one is still being deleted
          return false;
        }
      },
      30s));
  const Finished empty = audit(world);
  EXPECT_EQ(empty.code, 0) << empty.out;
  EXPECT_THAT(empty.out, HasSubstr("cannot tell: 20 effects"));
  // Their offsets lie below the watermark of the old log.
  const auto sender = world.broker().open_sender();
  for (const std::string id : {"new0", "new1"}) {
    OwnedMessage message;
    message.topic = world.topic();
    message.headers = {{"message-id", id}};
    ASSERT_EQ(sender->send(std::span(&message, 1)).front().kind, ports::BrokerSender::Fate::Kind::sent);
  }
  const auto fresh = Json::parse(audit(world, "--json").out);
  EXPECT_TRUE(fresh["holds"]) << fresh.dump();
  EXPECT_EQ(fresh["records"], 2);
}

TEST(RecordReader, gives_up_after_its_patience) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THROW(kafka::RecordReader({{"bootstrap.servers", "127.0.0.1:1"}}, "payments", nullptr, 300ms), BrokerError);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
}

}  // namespace
}  // namespace turnstile::test
