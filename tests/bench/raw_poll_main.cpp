// The fastest raw librdkafka loop: partition queues taken in batches (hazard: partition-queues), without any work. The
// engine is compared with it.
//  --brokers B --topic T [--threads 2] [--batch 10000] [--kafka name=value,…]
// The clock runs from the first message to the last one.

#include <atomic>
#include <thread>
#include <vector>

#include "tests/bench/bench_common.hpp"
#include "tests/bench/raw_kafka.hpp"

namespace {

using namespace bench;

struct Shared {
  std::atomic<std::int64_t> taken{0};
  std::atomic<std::int64_t> bytes{0};
  std::atomic<std::int64_t> first_ns{0};
};

void read_partitions(const PartitionReader& reader, std::vector<int> mine, std::size_t batch, Shared& shared) {
  std::vector<rd_kafka_message_t*> messages(batch);
  std::vector<std::int64_t> left;
  for (const int p : mine) left.push_back(reader.span(p).high - reader.span(p).low);
  for (std::size_t unfinished = mine.size(); unfinished > 0;) {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      if (left[i] == 0) continue;
      const ssize_t got = rd_kafka_consume_batch_queue(reader.queue(mine[i]), 1, messages.data(), batch);
      if (got <= 0) continue;
      std::int64_t none = 0;
      if (shared.first_ns.load(std::memory_order_relaxed) == 0) shared.first_ns.compare_exchange_strong(none, now_ns());
      std::int64_t bytes = 0;
      for (ssize_t m = 0; m < got; ++m) {
        rd_kafka_message_t* message = messages[static_cast<std::size_t>(m)];
        if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) die(rd_kafka_message_errstr(message));
        bytes += static_cast<std::int64_t>(message->len);
        if (m + 1 == got) reader.store(mine[i], message->offset + 1);
        rd_kafka_message_destroy(message);
      }
      shared.bytes += bytes;
      shared.taken += got;
      left[i] -= got;
      if (left[i] == 0) --unfinished;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Args args(argc, argv);
  // Found by experiments (docs/operations/benchmarks.md). The prefetch queue never becomes full, because a full queue
  // backs off for a fixed second (hazard: skipped-offsets). The answers are large, so that the broker gets few
  // requests.
  const Settings tuned{{"queued.min.messages", "10000000"},
                       {"queued.max.messages.kbytes", "1000000"},
                       {"fetch.message.max.bytes", "8388608"},
                       {"fetch.max.bytes", "67108864"}};
  Settings settings = tuned;
  for (const auto& more : parse_settings(args.text("kafka", ""))) settings.push_back(more);
  PartitionReader reader(args.text("brokers"), args.text("topic"), unique_name("raw-poll"), settings);
  const auto threads = static_cast<int>(args.number("threads", 2));
  const auto batch = static_cast<std::size_t>(args.number("batch", 10'000));
  args.done();

  Shared shared;
  reader.wait_for_partitions();
  {
    std::vector<std::jthread> readers;
    for (int t = 0; t < threads; ++t) {
      std::vector<int> mine;
      for (int p = t; p < reader.partitions(); p += threads) mine.push_back(p);
      readers.emplace_back([&, mine] { read_partitions(reader, mine, batch, shared); });
    }
    while (shared.taken < reader.messages()) reader.poll(5);
  }
  const double seconds = seconds_since(shared.first_ns);
  reader.commit();
  Report("raw_poll")
      .add("threads", std::int64_t{threads})
      .add("messages", shared.taken.load())
      .add("bytes", shared.bytes.load())
      .add("seconds", seconds)
      .add("rate", static_cast<double>(shared.taken) / seconds)
      .add("cpu_seconds", cpu_seconds())
      .add("resident_bytes", resident().highest)
      .print();
  return 0;
}
