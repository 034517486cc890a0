// Latency with the framework: the same job as raw_latency. Start it, wait for the line "ready", then start the loader
// with --rate.
//  --brokers B --topic T --postgres URL --schema S --messages N --partitions P [--warmup W]
// A message's effect is committed when the observer gets the report of its batch. With order = partition, the batch is
// the messages that a partition's handler has seen since the last report.

#include <cstdio>
#include <vector>

#include "tests/bench/fw_common.hpp"

namespace {

using namespace turnstile;

class Latencies : public bench::Progress {
 public:
  Latencies(Consumer& app, std::int64_t wanted, std::int64_t warmup, std::size_t partitions)
      : Progress(app, wanted), warmup_(warmup), running_(partitions) {}

  /// Called in the handler.
  void note(const Message& message) {
    const bench::Record record = bench::Record::read(message.text());
    const std::scoped_lock lock(mutex_);
    running_.at(static_cast<std::size_t>(message.partition())).push_back(record.produced_ns);
  }

  void on_batch(const BatchReport& batch) noexcept override {
    const std::int64_t end_ns = bench::now_ns();
    {
      const std::scoped_lock lock(mutex_);
      auto& mine = running_.at(static_cast<std::size_t>(batch.partition));
      for (const std::int64_t produced_ns : mine) {
        if (++seen_ > warmup_) ms_.push_back(static_cast<double>(end_ns - produced_ns) / 1e6);
      }
      mine.clear();
    }
    Progress::on_batch(batch);
  }

  void on_assigned(const TopicPartition&, Epoch) noexcept override {
    if (++assigned_ == running_.size()) {
      std::puts("ready");
      std::fflush(stdout);
    }
  }

  std::vector<double>& ms() { return ms_; }

 private:
  std::int64_t warmup_;
  std::mutex mutex_;
  /// When the messages of the open batch were produced, by partition.
  std::vector<std::vector<std::int64_t>> running_;
  std::vector<double> ms_;
  std::int64_t seen_ = 0;
  std::atomic<std::size_t> assigned_{0};
};

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  Config config = bench::plain_config(args.text("brokers"), "fw-latency");
  config.postgres = bench::postgres_settings(args.text("postgres"), args.text("schema"));
  const std::string topic = args.text("topic");
  const std::int64_t wanted = args.number("messages");
  const std::int64_t warmup = args.number("warmup", 2'000);
  const auto partitions = static_cast<std::size_t>(args.number("partitions", 4));
  args.done();

  Consumer app(std::move(config));
  const auto latencies = std::make_shared<Latencies>(app, wanted, warmup, partitions);
  const auto effect = [latencies](const Message& message, Context& ctx) {
    latencies->note(message);
    const bench::Record record = bench::Record::read(message.text());
    ctx.defer("INSERT INTO fw_effects (payment, amount) VALUES ($1, $2)", record.number, record.amount);
  };
  app.topic(topic, effect | transactional()).observe(latencies);
  bench::run(app);
  (void)latencies->seconds();
  std::vector<double>& ms = latencies->ms();
  bench::Report("fw_latency")
      .add("messages", static_cast<std::int64_t>(ms.size()))
      .add("failed", latencies->failed())
      .add("p50_ms", bench::percentile(ms, 0.50))
      .add("p99_ms", bench::percentile(ms, 0.99))
      .add("max_ms", bench::percentile(ms, 1.0))
      .add("cpu_seconds", bench::cpu_seconds())
      .print();
  return 0;
}
