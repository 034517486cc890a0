// turnstile doctor: each line is "ok" or the remedy, and the command never hangs.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/integration/cli_database.hpp"
#include "tests/integration/cli_kafka.hpp"
#include "tests/support/token_topic.hpp"
#include "tests/support/transactional_producer.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

/// A server that accepts connections and never answers.
class Silence {
 public:
  Silence() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    if (bind(socket_, reinterpret_cast<sockaddr*>(&at), size) != 0 || listen(socket_, 16) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
      throw std::runtime_error("no port to be silent on");
    }
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~Silence() { close(socket_); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  int socket_;
  std::string address_;
};

TEST(CliDoctorAlone, reports_configuration_problems_as_lines) {
  Cli cli;
  cli.folder().write("turnstile.toml",
                     "[kafka]\n\"bootstrap.servers\" = \"localhost:9092\"\n[topics.payments]\nlimit = 0\n");
  const auto doctor = cli.run("doctor");
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out, ContainsRegex("PROBLEM +configuration +.*turnstile.toml:4.*limit"));
}

TEST(CliDoctorAlone, nothing_to_look_at_is_a_problem) {
  const auto doctor = Cli().run("doctor");
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out, ContainsRegex("PROBLEM +configuration +.*names no topic, no broker and no database"));
}

TEST(CliDoctorAlone, names_servers_that_refuse) {
  const auto doctor = Cli().run("doctor", "--kafka", "127.0.0.1:1", "--postgres", "postgresql://me@127.0.0.1:1/app");
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out, ContainsRegex("PROBLEM +broker +.*127.0.0.1:1"));
  EXPECT_THAT(doctor.out,
              ContainsRegex("PROBLEM +PostgreSQL +cannot connect to PostgreSQL .127.0.0.1:1, database app, user me."));
  EXPECT_THAT(doctor.out, HasSubstr("2 problems found"));
}

TEST(CliDoctorAlone, never_hangs_on_servers_that_say_nothing) {
  const Silence kafka, postgres;
  const auto start = std::chrono::steady_clock::now();
  const auto doctor =
      Cli().run("doctor", "--kafka", kafka.address(), "--postgres", "postgresql://me@" + postgres.address() + "/app");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out, AllOf(ContainsRegex("PROBLEM +broker"), ContainsRegex("PROBLEM +PostgreSQL")));
}

TEST(CliDoctorAlone, looks_at_time_limits_against_one_another) {
  Cli cli;
  cli.folder().write("turnstile.toml",
                     "[kafka]\n"
                     "\"bootstrap.servers\" = \"127.0.0.1:1\"\n"
                     "\"session.timeout.ms\" = \"6000\"\n"
                     "\"max.poll.interval.ms\" = \"9000\"\n"
                     "[consumer]\n"
                     "drain_timeout = \"9s\"\n"
                     "[topics.payments]\n"
                     "mode = \"transactional\"\n"
                     "handler_timeout = \"8s\"\n");
  const auto doctor = cli.run("doctor");
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out,
              ContainsRegex("PROBLEM +configuration +turnstile.toml:6.*drain_timeout.*max.poll.interval.ms"));
  EXPECT_THAT(doctor.out, ContainsRegex("PROBLEM +configuration +turnstile.toml:9.*handler_timeout.*session"));
}

TEST(CliDoctorAlone, refuses_what_every_consumer_refuses) {
  Cli cli;
  cli.folder().write("turnstile.toml",
                     "[postgres]\nurl = \"postgresql://me@127.0.0.1:1/app\"\n"
                     "[topics.numbered]\nmode = \"by_offset\"\norder = \"none\"\nmessage_id = \"header:x\"\n"
                     "[topics.plain]\nmode = \"at_least_once\"\nreply_topics = \"replies\"\n");
  const auto doctor = cli.run("doctor");
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out, AllOf(ContainsRegex("PROBLEM +configuration +turnstile.toml:5: topics.numbered.order"),
                                ContainsRegex("PROBLEM +configuration +turnstile.toml:6: topics.numbered.message_id"),
                                ContainsRegex("PROBLEM +configuration +turnstile.toml:9: topics.plain.reply_topics")));
  EXPECT_THAT(doctor.out, Not(HasSubstr("ok ")));
}

class CliDoctor : public CliDatabase {
 protected:
  void SetUp() override {
    CliDatabase::SetUp();
    if (IsSkipped()) return;
    if (kafka_.brokers().empty()) GTEST_SKIP() << "TURNSTILE_TEST_KAFKA is not set; run ./dev test";
    cli_.environment()["TURNSTILE_KAFKA_BOOTSTRAP_SERVERS"] = kafka_.brokers();
  }

  void configure(const std::string& topic, const std::string& settings) {
    cli_.folder().write("turnstile.toml", "[kafka]\n\"bootstrap.servers\" = \"" + kafka_.brokers() + "\"\n[topics." +
                                              topic + "]\n" + settings);
  }

  TestKafka kafka_;
};

TEST_F(CliDoctor, all_is_well) {
  migrate();
  const auto topic = kafka_.create_topic(4, {{"retention.ms", "86400000"}, {"segment.ms", "3600000"}});
  const auto dead = kafka_.create_topic(1);
  configure(topic, "mode = \"transactional\"\nkeep_ids_for = \"3d\"\ndead_letter = \"" + dead + "\"\n");
  const auto doctor = cli_.run("doctor");
  EXPECT_EQ(doctor.code, 0) << doctor.out << doctor.err;
  EXPECT_THAT(doctor.out, Not(HasSubstr("PROBLEM")));
  EXPECT_THAT(doctor.out, AllOf(ContainsRegex("ok +configuration +turnstile.toml: 1 topic"),
                                ContainsRegex("ok +broker +.*answers"), ContainsRegex("ok +topic .* +4 partitions"),
                                ContainsRegex("ok +retention of .* +ids are kept for 3d, and records for 1d"),
                                ContainsRegex("ok +dead letters of .* +" + dead + ", 1 partition")));
  EXPECT_THAT(doctor.out, AllOf(ContainsRegex("ok +PostgreSQL +[0-9.]+.* as "), ContainsRegex("ok +server settings"),
                                ContainsRegex("ok +schema +" + schema_), ContainsRegex("ok +rights"),
                                ContainsRegex("ok +librdkafka +2"), ContainsRegex("ok +libpqxx")));
  EXPECT_EQ(nlohmann::json::parse(cli_.run("doctor", "--json").out)["problems"], 0);
}

TEST_F(CliDoctor, topics_that_do_not_exist_come_with_the_command_that_makes_them) {
  migrate();
  configure("no-such-topic",
            "mode = \"transactional\"\ndead_letter = \"no-such-topic.dlq\"\nreply_topics = \"no-such-replies\"\n");
  const auto doctor = cli_.run("doctor");
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out, ContainsRegex("PROBLEM +topic no-such-topic +does not exist"));
  EXPECT_THAT(doctor.out, HasSubstr("-> kafka-topics.sh --bootstrap-server " + kafka_.brokers() +
                                    " --create --topic no-such-topic --partitions N"));
  EXPECT_THAT(doctor.out,
              AllOf(ContainsRegex("PROBLEM +dead letters of no-such-topic +topic no-such-topic.dlq does not exist"),
                    ContainsRegex("PROBLEM +replies of no-such-topic +topic no-such-replies does not exist")));
}

// Hazard: ids-outlive-topic.
TEST_F(CliDoctor, ids_that_are_forgotten_before_their_messages) {
  migrate();
  const auto topic = kafka_.create_topic(1, {{"retention.ms", "604800000"}});
  configure(topic, "mode = \"transactional\"\nkeep_ids_for = \"2d\"\n");
  const auto doctor = cli_.run("doctor");
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out,
              ContainsRegex("PROBLEM +retention of .* +turnstile.toml:5.*keep_ids_for = 2d is not longer than the 7d"));
  EXPECT_THAT(doctor.out,
              HasSubstr("remove it, or set [topics." + topic + "] keep_ids_for = \"15d\", or shorten retention.ms"));

  // Kafka's segment.ms is 7 days too, and a record stays until the last record of its segment is old enough.
  configure(topic, "mode = \"transactional\"\nkeep_ids_for = \"8d\"\n");
  EXPECT_THAT(cli_.run("doctor").out,
              ContainsRegex(
                  "warning +retention of .* +turnstile.toml:5.* 8d, .* stay for 14d .retention.ms 7d, segment.ms 7d"));
  configure(topic, "mode = \"transactional\"\n");
  EXPECT_THAT(cli_.run("doctor").out,
              ContainsRegex("ok +retention of .* +ids are kept for 15d, and a record can stay for 14d"));

  configure(topic, "mode = \"at_least_once\"\n");
  EXPECT_THAT(cli_.run("doctor").out, Not(HasSubstr("retention of")));
}

TEST_F(CliDoctor, what_has_no_time_is_kept_for_ever) {
  migrate();
  for (const std::map<std::string, std::string>& settings :
       {std::map<std::string, std::string>{{"retention.ms", "-1"}, {"retention.bytes", "1048576"}},
        {{"cleanup.policy", "compact"}, {"retention.ms", "3600000"}}}) {
    const auto topic = kafka_.create_topic(1, settings);
    configure(topic, "mode = \"transactional\"\n");
    EXPECT_THAT(cli_.run("doctor").out,
                ContainsRegex("warning +retention of .* keeps its records forever, so its ids are"));
    configure(topic, "mode = \"transactional\"\nkeep_ids_for = \"30d\"\n");
    const auto doctor = cli_.run("doctor");
    EXPECT_EQ(doctor.code, 1);
    EXPECT_THAT(doctor.out,
                ContainsRegex("PROBLEM +retention of .* keeps its records forever, but .*keep_ids_for = 30d"));
    EXPECT_THAT(doctor.out, HasSubstr("remove keep_ids_for (ids are then kept forever)"));
  }
  configure(kafka_.create_topic(
                1, {{"cleanup.policy", "compact,delete"}, {"retention.ms", "3600000"}, {"segment.ms", "3600000"}}),
            "mode = \"transactional\"\nkeep_ids_for = \"2d\"\n");
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +retention of "));
}

TEST_F(CliDoctor, an_inbox_that_nobody_cleans) {
  migrate();
  register_handlers();
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +inbox +"));
  // A table of 64 MB and more. Wide rows reach that size in less time than many rows would.
  sql("ALTER TABLE inbox ADD COLUMN ballast text; ALTER TABLE inbox ALTER COLUMN ballast SET STORAGE EXTERNAL");
  sql("INSERT INTO inbox (handler, id, slot, record_offset, ballast) SELECT 1, gen_random_uuid(), 1, n, repeat('x', 1000000) "
      "FROM generate_series(1, 70) n");
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("warning +inbox +.*MB.*no process has deleted old ids ever"));
  sql("SELECT keep_ids(1::smallint, 86400 * 30); DELETE FROM retention WHERE keep_s < 86400 * 30; SELECT purge_step(100)");
  sql("UPDATE sweep SET swept_at = now() - interval '9 days'");
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("warning +inbox +.*no process has deleted old ids for 9d"));
  sql("UPDATE sweep SET swept_at = now() - interval '1 hour'");
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +inbox +.*old ids are deleted"));
  sql("SELECT keep_ids(1::smallint, NULL)");
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("warning +inbox +.*ids of charge are kept forever"));
}

TEST_F(CliDoctor, a_topic_that_keeps_its_records_for_ever) {
  migrate();
  configure(kafka_.create_topic(1, {{"retention.ms", "-1"}}), "mode = \"transactional\"\n");
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("warning +retention of .* keeps its records forever"));
}

// --- the system as it runs ---

TEST_F(CliDoctor, dead_letters_that_wait_are_counted_by_reason) {
  migrate();
  register_handlers();
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +dead letters +no dead letter waits"));
  const auto bury = [&](int handler, int offset, const std::string& reason) {
    sql("INSERT INTO dead (handler, slot, incarnation, record_offset, reason, error, attempts, header_names, header_values, died_at) VALUES (" +
        std::to_string(handler) + ", 1, 0, " + std::to_string(offset) + ", '" + reason +
        "', 'why', 1, '{}', '{}', now() - interval '3 days 4 hours')");
  };
  for (int offset = 0; offset < 3; ++offset) bury(1, offset, "missing_id");
  bury(2, 7, "failed");
  EXPECT_THAT(
      cli_.run("doctor").out,
      AllOf(ContainsRegex("warning +dead letters +4 messages wait: 3 missing_id of charge, 1 failed of mail; the "
                          "oldest for 3d 4h"),
            HasSubstr("turnstile dlq groups")));
  sql("UPDATE dead SET replayed_at = now()");
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +dead letters +no dead letter waits"));
}

TEST_F(CliDoctor, claims_of_which_nobody_knows_and_an_outbox_that_stands_still) {
  migrate();
  register_handlers();
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +outbox +nothing waits"));
  sql("INSERT INTO claim (handler, id, state, owner, fence, slot, record_offset, expires_at) VALUES "
      "(1, gen_random_uuid(), 'parked', gen_random_uuid(), 1, 1, 5, now()), "
      "(1, gen_random_uuid(), 'claimed', gen_random_uuid(), 1, 1, 6, now() - interval '1 minute'), "
      "(1, gen_random_uuid(), 'claimed', gen_random_uuid(), 1, 1, 7, now() + interval '1 hour')");
  sql("INSERT INTO outbox (topic, record_payload, written_at) VALUES ('orders', 'x', now() - interval '10 minutes')");
  auto out = cli_.run("doctor").out;
  EXPECT_THAT(out, ContainsRegex("warning +claims of charge +2 messages in doubt .1 parked.: "
                                 "[-0-9a-f]{36}, [-0-9a-f]{36}; 1 running, 0 to be retried"));
  EXPECT_THAT(out, HasSubstr(sql("SELECT id FROM claim WHERE record_offset = 6")));
  EXPECT_THAT(out, HasSubstr("unpark ID --handler charge --done"));
  EXPECT_THAT(out, ContainsRegex("warning +outbox +1 message published by handlers waits to be sent, the oldest for 10m"
                                 ".*; no process sends them"));
  sql("UPDATE outbox SET shard = -1, refused = 'no such topic'");
  const auto refused = cli_.run("doctor");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.out, ContainsRegex("PROBLEM +outbox +the broker rejects 1 message"));
}

/// No dead letter names these messages until they are delivered again, so the doctor names them.
TEST_F(CliDoctor, many_claims_in_doubt_are_named_by_the_oldest_of_them) {
  migrate();
  register_handlers();
  sql("INSERT INTO claim (handler, id, state, owner, fence, slot, record_offset, claimed_at, expires_at) "
      "SELECT 1, gen_random_uuid(), 'claimed', gen_random_uuid(), 1, 1, n, now() - n * interval '1 hour', now() - interval '1 minute' "
      "FROM generate_series(1, 8) n");
  // The handler of this message had not begun, so the next consumer runs it.
  sql("UPDATE claim SET unbegun_by = owner, unbegun_in = pg_postmaster_start_time() + interval '1 microsecond' * "
      "coalesce(pg_last_wal_replay_lsn() - '0/0', 0)::float8 WHERE record_offset = 8");
  const auto out = cli_.run("doctor").out;
  EXPECT_THAT(out, ContainsRegex("warning +claims of charge +7 messages in doubt .* and 2 more; 1 running"));
  const auto id = [&](int offset) {
    return sql("SELECT id FROM claim WHERE record_offset = " + std::to_string(offset));
  };
  EXPECT_THAT(out, AllOf(HasSubstr(id(7)), HasSubstr(id(3)), Not(HasSubstr(id(2))), Not(HasSubstr(id(8)))));
  EXPECT_EQ(cli_.run("inbox", "unpark", id(7), "--handler", "charge", "--done").code, 0);
}

TEST_F(CliDoctor, a_failed_claim_with_a_dead_letter_is_not_to_be_retried) {
  migrate();
  register_handlers();
  sql("INSERT INTO claim (handler, id, state, owner, fence, slot, record_offset, expires_at) "
      "SELECT 1, gen_random_uuid(), 'failed', gen_random_uuid(), 1, 1, n, now() FROM generate_series(1, 3) n");
  sql("INSERT INTO dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, header_names, header_values) "
      "SELECT handler, slot, 0, record_offset, id, 'failed', 'why', 5, '{}', '{}' FROM claim WHERE record_offset < 3");
  EXPECT_THAT(cli_.run("doctor").out,
              ContainsRegex("ok +claims of charge +0 running, 1 to be retried, 2 dead letters"));
  sql("UPDATE dead SET replayed_at = now() WHERE record_offset = 1");
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +claims of charge +0 running, 2 to be retried, 1 dead letter"));
}

TEST_F(CliDoctor, a_group_that_is_behind_and_stands_still) {
  migrate();
  const auto topic = kafka_.create_topic(1);
  const auto configure = [&](const std::string& settings) {
    cli_.folder().write("turnstile.toml", "[kafka]\n\"bootstrap.servers\" = \"" + kafka_.brokers() +
                                              "\"\n\"group.id\" = \"g-" + topic + "\"\n[topics." + topic + "]\n" +
                                              settings);
  };
  configure("");
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +lag of .* +group g-.* has committed nothing yet"));
  const auto broker =
      kafka::open_broker({{"bootstrap.servers", kafka_.brokers()}, {"group.id", "g-" + topic}}, nullptr);
  const auto producer = broker->open_producer();
  OwnedMessage record;
  record.topic = topic;
  record.partition = 0;
  for (int i = 0; i < 5; ++i) producer->send(record);
  const auto commit = [&](Offset offset) {
    const auto consumer = broker->open_consumer();
    const std::vector<ports::OffsetCommit> at{{{topic, 0}, offset}};
    consumer->commit(at, true);
    consumer->close();
  };
  commit(2);
  EXPECT_THAT(
      cli_.run("doctor").out,
      ContainsRegex(
          "warning +lag of .* +group g-.* is 3 records behind; no progress with 3 of them, in 1 partition, for "));
  configure("mode = \"leased\"\nhandler_timeout = \"1h\"\n");
  EXPECT_THAT(cli_.run("doctor").out,
              ContainsRegex("ok +lag of .* no progress with .*a handler of this topic may run for 1h"));
  commit(5);
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +lag of .* +group g-.* has read all records"));
}

/// Consumers have read all that they can read.
TEST_F(CliDoctor, a_group_behind_a_transaction_that_is_open) {
  migrate();
  const auto topic = kafka_.create_topic(1);
  cli_.folder().write("turnstile.toml", "[kafka]\n\"bootstrap.servers\" = \"" + kafka_.brokers() +
                                            "\"\n\"group.id\" = \"g-" + topic + "\"\n[topics." + topic + "]\n");
  TransactionalProducer producer(topic);
  producer.write(2);  // and a marker
  producer.begin();
  producer.send(4);
  const auto broker =
      kafka::open_broker({{"bootstrap.servers", kafka_.brokers()}, {"group.id", "g-" + topic}}, nullptr);
  const auto consumer = broker->open_consumer();
  const std::vector<ports::OffsetCommit> at{{{topic, 0}, 3}};
  consumer->commit(at, true);
  EXPECT_THAT(cli_.run("doctor").out,
              AllOf(ContainsRegex("warning +lag of .* +a producer's transaction that began at offset 3 of " + topic +
                                  "\\[0\\] is open and hides 4 offsets: group g-.* gets no record from there on "
                                  "before it ends"),
                    ContainsRegex("kafka-transactions.sh --bootstrap-server " + kafka_.brokers() + " abort --topic " +
                                  topic + " --partition 0 --start-offset 3"),
                    Not(HasSubstr("no progress with"))));
  const auto top = nlohmann::json::parse(cli_.run("top", "--once", "--json", topic).out);
  EXPECT_EQ(top.at("topics").at(0).at("lag"), 4) << top;
  producer.commit();
  const std::vector<ports::OffsetCommit> all{{{topic, 0}, 8}};
  consumer->commit(all, true);
  consumer->close();
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +lag of .* +group g-.* has read all records"));
}

/// A topic that only the program names.
TEST_F(CliDoctor, the_lag_of_a_topic_that_only_the_database_knows) {
  migrate();
  const auto topic = kafka_.create_topic(1);
  cli_.folder().write("turnstile.toml", "[kafka]\n\"bootstrap.servers\" = \"" + kafka_.brokers() +
                                            "\"\n\"group.id\" = \"g-" + topic + "\"\n");
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("warning +topics +no topic is named .* none is checked"));
  sql("INSERT INTO fence (consumer_group, topic, partition) VALUES ('g-" + topic + "', '" + topic + "', 0)");
  EXPECT_THAT(cli_.run("doctor").out,
              AllOf(HasSubstr("of those that the database knows only the lag is checked"),
                    ContainsRegex("ok +lag of " + topic + " +group g-.* has committed nothing yet")));
}

TEST_F(CliDoctor, a_partition_that_the_group_has_never_read_is_behind) {
  migrate();
  const auto topic = kafka_.create_topic(2);
  cli_.folder().write("turnstile.toml", "[kafka]\n\"bootstrap.servers\" = \"" + kafka_.brokers() +
                                            "\"\n\"group.id\" = \"g-" + topic + "\"\n[topics." + topic + "]\n");
  const auto broker =
      kafka::open_broker({{"bootstrap.servers", kafka_.brokers()}, {"group.id", "g-" + topic}}, nullptr);
  const auto producer = broker->open_producer();
  OwnedMessage record;
  record.topic = topic;
  for (record.partition = 0; record.partition < 2; ++record.partition) producer->send(record);
  const auto consumer = broker->open_consumer();
  const std::vector<ports::OffsetCommit> at{{{topic, 0}, 1}};
  consumer->commit(at, true);
  consumer->close();
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("warning +lag of .* +group g-.* is 1 record behind"));
}

TEST_F(CliDoctor, a_token_log_that_is_gone) {
  migrate();
  const auto topic = kafka_.create_topic(1);
  const std::string log = topic + ".tokens";
  const std::string toml = "[kafka]\n\"bootstrap.servers\" = \"" + kafka_.brokers() + "\"\n[limits]\ntopic = \"" + log +
                           "\"\n[topics." + topic + "]\nlimit = 3\n";
  cli_.folder().write("turnstile.toml", toml);
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +token log +.* does not exist yet"));
  const kafka::Settings brokers{{"bootstrap.servers", kafka_.brokers()}};
  {
    const auto domain = kafka::open_limiters(
        brokers, {.name = log}, {.client = "billing", .lease = std::chrono::seconds(1)}, make_logger({"off", "text"}));
    const auto limiter = domain->open("psp", 3);
    ASSERT_TRUE(domain->wait_until_joined(std::chrono::seconds(20)));
    ASSERT_TRUE(domain->set_limit("psp", 0, std::chrono::seconds(20)));
    const auto out = cli_.run("doctor").out;
    EXPECT_THAT(out, ContainsRegex("ok +token log +.*, 1 member"));
    EXPECT_THAT(out, ContainsRegex("warning +limiter psp +is paused"));
  }
  delete_topic(log);
  const auto gone = cli_.run("doctor");
  EXPECT_EQ(gone.code, 1);
  EXPECT_THAT(gone.out,
              ContainsRegex("PROBLEM +token log +.* does not exist, but .*snapshots does: the token log was deleted"));
  EXPECT_THAT(gone.out, HasSubstr("set them again (turnstile limits set)"));
  EXPECT_THAT(cli_.run("limits", "list").err,
              HasSubstr("the token log " + log + " at " + kafka_.brokers() + " was deleted"));
}

/// A server is read-only if it is a standby, or if default_transaction_read_only is set.
TEST_F(CliDoctor, what_cannot_be_looked_at_on_a_read_only_server_does_not_hide_the_rest) {
  migrate();
  const std::string url = with_parameter(url_, "options", "-c default_transaction_read_only=on");
  const auto doctor = cli_.run("doctor", "--postgres", url);
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out, ContainsRegex("PROBLEM +PostgreSQL +.*accepts no writes.*name the primary in postgres.url"));
  EXPECT_THAT(doctor.out, Not(HasSubstr("clock")));
  EXPECT_THAT(doctor.out, ContainsRegex("ok +dead letters"));
  EXPECT_THAT(doctor.out, ContainsRegex("ok +outbox"));
}

TEST_F(CliDoctor, a_locked_table_is_named_and_does_not_hide_the_rest) {
  migrate();
  pqxx::connection rival(url_);
  pqxx::work work(rival);
  work.exec("LOCK TABLE " + schema_ + ".claim");
  const auto doctor = cli_.run("doctor");
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out, ContainsRegex("PROBLEM +dead letters and claims +.*" + schema_ + ".claim is locked by pid " +
                                        std::to_string(rival.backendpid())));
  EXPECT_THAT(doctor.out, ContainsRegex("ok +outbox"));
}

TEST_F(CliDoctor, a_lock_is_waited_for_as_long_as_the_setting_allows) {
  migrate();
  pqxx::connection rival(url_);
  pqxx::work work(rival);
  work.exec("LOCK TABLE " + schema_ + ".dead");
  const auto waits = [&](const char* lock_timeout, const char* verb, const char* noun) {
    cli_.environment()["TURNSTILE_POSTGRES_LOCK_TIMEOUT"] = lock_timeout;
    const auto began = std::chrono::steady_clock::now();
    EXPECT_THAT(cli_.run(verb, noun).err, HasSubstr(schema_ + ".dead is locked by pid"));
    return std::chrono::steady_clock::now() - began;
  };
  EXPECT_LT(waits("600ms", "dlq", "list"), std::chrono::seconds(4));
  EXPECT_GT(waits("7s", "dlq", "list"), std::chrono::seconds(7));
}

TEST_F(CliDoctor, two_handlers_of_one_name) {
  cli_.folder().write("turnstile.toml", "[kafka]\n\"bootstrap.servers\" = \"" + kafka_.brokers() +
                                            "\"\n[topics.a]\nhandler = \"charge\"\n[topics.b]\nhandler = \"charge\"\n");
  const auto doctor = cli_.run("doctor");
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out, ContainsRegex("PROBLEM +configuration +turnstile.toml:6.*handler.*charge.*topic 'a'"));
}

TEST_F(CliDoctor, a_schema_that_is_missing) {
  const auto doctor = cli_.run("doctor");
  EXPECT_EQ(doctor.code, 1);
  EXPECT_THAT(doctor.out, ContainsRegex("PROBLEM +schema +.*turnstile migrate up"));
}

TEST_F(CliDoctor, an_older_schema_comes_with_the_command_that_mends_it) {
  for (const char* number : {"1", "5", "10"}) {
    ASSERT_EQ(cli_.run("migrate", "up", "--to", number).code, 0);
    const auto doctor = cli_.run("doctor");
    EXPECT_EQ(doctor.code, 1);
    EXPECT_THAT(doctor.out, ContainsRegex("PROBLEM +schema +.* is older than this build: .*turnstile migrate up"));
    EXPECT_THAT(doctor.out, Not(HasSubstr("does not exist")));
  }
}

TEST_F(CliDoctor, rights_that_are_missing_come_with_the_grants) {
  migrate();
  const std::string role = schema_ + "_role";
  sql("CREATE ROLE " + role + " LOGIN PASSWORD 'p'; GRANT USAGE ON SCHEMA " + schema_ + " TO " + role +
      "; GRANT SELECT ON ALL TABLES IN SCHEMA " + schema_ + " TO " + role);
  const std::string url = std::regex_replace(url_, std::regex("://[^@]*@"), "://" + role + ":p@");
  const auto lacking = cli_.run("doctor", "--postgres", url);
  EXPECT_THAT(lacking.out, ContainsRegex("PROBLEM +rights +" + role + " lacks: .*INSERT on inbox"));
  for (const auto* right : {"EXECUTE on keep_ids", "UPDATE on claim", "INSERT on limiter"})
    EXPECT_THAT(lacking.out, HasSubstr(right));
  EXPECT_THAT(lacking.out, HasSubstr("GRANT SELECT, INSERT ON \"" + schema_ + "\".inbox TO \"" + role + "\""));

  // The command in the message must solve the problem.
  const std::regex grants("run: (GRANT .*;)");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(lacking.out, match, grants)) << lacking.out;
  sql(match[1].str());
  EXPECT_THAT(cli_.run("doctor", "--postgres", url).out, ContainsRegex("ok +rights +" + role));
  sql("DROP OWNED BY " + role + "; DROP ROLE " + role);
}

}  // namespace
}  // namespace turnstile::test
