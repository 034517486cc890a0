// The defaults that bars depend on, and who overrides them.

#include "settings.hpp"

#include <gtest/gtest.h>

#include <map>

#include "token_log_settings.hpp"

namespace turnstile::kafka {
namespace {

/// All settings of a client, as librdkafka has them.
std::map<std::string, std::string> all_of(Role role, const Settings& settings) {
  const auto conf = make_conf(role, settings);
  std::map<std::string, std::string> all;
  std::size_t count = 0;
  const char** dump = rd_kafka_conf_dump(conf.get(), &count);
  for (std::size_t i = 0; i + 1 < count; i += 2) all[dump[i]] = dump[i + 1];
  rd_kafka_conf_dump_free(dump, count);
  all.erase("default_topic_conf");  // an address
  return all;
}

TEST(KafkaSettings, a_member_asks_once_a_second_whether_another_one_joins) {
  EXPECT_EQ(effective({}, "heartbeat.interval.ms"), "1000");
  EXPECT_EQ(effective({{"heartbeat.interval.ms", "500"}}, "heartbeat.interval.ms"), "500");
}

TEST(KafkaSettings, the_prefetch_of_a_partition_is_bounded_in_records_and_bytes) {
  EXPECT_EQ(effective({}, "queued.min.messages"), "10000") << "more take more memory, and gain nothing: the bar memory";
  EXPECT_EQ(effective({}, "queued.max.messages.kbytes"), "16384");
  EXPECT_EQ(effective({{"queued.min.messages", "5"}}, "queued.min.messages"), "5");
}

/// A larger record would wait for room for ever.
TEST(KafkaSettings, the_queue_of_a_producer_must_have_room_for_the_largest_record) {
  const auto problems_of = [](Settings settings) {
    std::string all;
    for (const auto& problem : check_settings(settings)) all += problem.key + " " + problem.why;
    return all;
  };
  EXPECT_EQ(problems_of({{"queue.buffering.max.kbytes", "1023"}}),
            "queue.buffering.max.kbytes is 1023, so the queue has no room for the largest record (1048576 bytes, "
            "message.max.bytes), which would never be sent. Set it to 1024 or more, or lower message.max.bytes");
  EXPECT_EQ(problems_of({{"queue.buffering.max.kbytes", "1024"}}), "");
  EXPECT_EQ(problems_of({{"queue.buffering.max.kbytes", "10"}, {"message.max.bytes", "10240"}}), "");
  EXPECT_NE(problems_of({{"queue.buffering.max.kbytes", "10"}, {"message.max.bytes", "10241"}}), "");
}

TEST(KafkaSettings, the_token_log_takes_nothing_from_kafka_that_delays_permits) {
  const Settings connection{{"bootstrap.servers", "b:1"}, {"security.protocol", "sasl_ssl"}, {"client.id", "c"}};
  Settings of_user = connection;
  of_user.insert({{"fetch.min.bytes", "100000"},
                  {"fetch.wait.max.ms", "5000"},
                  {"fetch.max.bytes", "2000000"},
                  {"fetch.error.backoff.ms", "9000"},
                  {"fetch.message.max.bytes", "1000"},
                  {"max.partition.fetch.bytes", "1000"},
                  {"receive.message.max.bytes", "2100000"},
                  {"queued.min.messages", "1"},
                  {"queued.max.messages.kbytes", "1"},
                  {"client.rack", "r1"},
                  {"check.crcs", "false"},
                  {"auto.offset.reset", "latest"},
                  {"isolation.level", "read_committed"},
                  {"enable.partition.eof", "true"},
                  {"socket.nagle.disable", "false"},
                  {"max.in.flight.requests.per.connection", "1"},
                  {"statistics.interval.ms", "1000"},
                  {"message.max.bytes", "1500000"},
                  {"enable.idempotence", "false"},
                  {"linger.ms", "900"},
                  {"batch.size", "1"},
                  {"batch.num.messages", "1"},
                  {"queue.buffering.max.messages", "1"},
                  {"queue.buffering.max.kbytes", "1"},
                  {"queue.buffering.backpressure.threshold", "1000"},
                  {"retries", "0"},
                  {"retry.backoff.ms", "9000"},
                  {"request.timeout.ms", "900"},
                  {"delivery.timeout.ms", "900000"},
                  {"delivery.report.only.error", "true"},
                  {"compression.codec", "gzip"}});
  ASSERT_EQ(all_of(Role::consumer, of_user)["fetch.wait.max.ms"], "5000");
  for (const bool waits_for_end : {false, true})
    EXPECT_EQ(all_of(Role::consumer, token_log_reader_settings(of_user, waits_for_end)),
              all_of(Role::consumer, token_log_reader_settings(connection, waits_for_end)));
  const auto writer = all_of(Role::producer, token_log_writer_settings(of_user));
  EXPECT_EQ(writer, all_of(Role::producer, token_log_writer_settings(connection)));
  EXPECT_EQ(writer.at("security.protocol"), "sasl_ssl");
  EXPECT_EQ(writer.at("client.id"), "c");
}

}  // namespace
}  // namespace turnstile::kafka
