// A member of a group that prints "PARTITION NANOSECONDS" (CLOCK_MONOTONIC) for each message: librdkafka's consumer as
// its documentation shows it, without any work. It runs until SIGTERM.
//  --brokers B --topic T --group G

#include <csignal>
#include <cstdio>

#include "tests/bench/bench_common.hpp"
#include "tests/bench/raw_kafka.hpp"

namespace {

volatile std::sig_atomic_t stopping = 0;

}  // namespace

int main(int argc, char** argv) {
  using namespace bench;
  Args args(argc, argv);
  const Settings settings{{"bootstrap.servers", args.text("brokers")},
                          {"group.id", args.text("group")},
                          {"auto.offset.reset", "earliest"},
                          {"auto.commit.interval.ms", "1000"}};
  const std::string topic = args.text("topic");
  args.done();
  std::signal(SIGTERM, [](int) { stopping = 1; });

  char why[512];
  rd_kafka_t* const consumer = rd_kafka_new(RD_KAFKA_CONSUMER, make_conf(settings), why, sizeof why);
  if (consumer == nullptr) die(why);
  rd_kafka_poll_set_consumer(consumer);
  rd_kafka_topic_partition_list_t* const topics = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(topics, topic.c_str(), RD_KAFKA_PARTITION_UA);
  if (rd_kafka_subscribe(consumer, topics) != RD_KAFKA_RESP_ERR_NO_ERROR) die("cannot subscribe");
  rd_kafka_topic_partition_list_destroy(topics);
  while (stopping == 0) {
    rd_kafka_message_t* const message = rd_kafka_consumer_poll(consumer, 100);
    if (message == nullptr) continue;
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
      std::printf("%d %lld\n", message->partition, static_cast<long long>(now_ns()));
      std::fflush(stdout);
    }
    rd_kafka_message_destroy(message);
  }
  rd_kafka_consumer_close(consumer);
  rd_kafka_destroy(consumer);
  return 0;
}
