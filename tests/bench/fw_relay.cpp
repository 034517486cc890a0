// The outbox relay, as a Consumer starts it, over a table that the runner has filled.
//  --brokers B --topic T --postgres URL --schema S --messages M
// The clock runs from the first query of the table to the answer to the last DELETE.

#include <memory>

#include "outbox/relay.hpp"
#include "tests/bench/fw_common.hpp"
#include "tests/bench/raw_kafka.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/log.hpp"
#include "turnstile/postgres/store.hpp"

namespace {

using namespace turnstile;

/// The real outbox, with a clock.
class TimedOutbox final : public ports::Outbox {
 public:
  explicit TimedOutbox(std::shared_ptr<ports::Outbox> real) : real_(std::move(real)) {}

  std::vector<ports::OutboxShard> keep_shards(const std::string& owner, std::chrono::milliseconds lease) override {
    return real_->keep_shards(owner, lease);
  }
  void leave_shards(const std::string& owner) override { real_->leave_shards(owner); }
  std::vector<ports::OutboxRecord> waiting(std::span<const ports::OutboxShard> shards, std::size_t most,
                                           std::size_t bytes) override {
    if (start_ns_ == 0) start_ns_ = bench::now_ns();
    return real_->waiting(shards, most, bytes);
  }
  ports::OutboxDue release_due(std::span<const ports::OutboxShard> shards, std::size_t most) override {
    return real_->release_due(shards, most);
  }
  void remove(std::span<const ports::OutboxRecord* const> records) override {
    real_->remove(records);
    sent_ += static_cast<std::int64_t>(records.size());
    end_ns_ = bench::now_ns();
  }
  std::optional<std::int64_t> refuse(const ports::OutboxRecord&, const std::string& why) override { bench::die(why); }
  ports::OutboxLag lag() override { return real_->lag(); }

  /// Call it after the relay has ended.
  [[nodiscard]] std::int64_t sent() const { return sent_; }
  [[nodiscard]] double seconds() const { return static_cast<double>(end_ns_ - start_ns_) / 1e9; }

 private:
  const std::shared_ptr<ports::Outbox> real_;
  std::int64_t sent_ = 0, start_ns_ = 0, end_ns_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  const std::string brokers = args.text("brokers"), topic = args.text("topic");
  const auto settings = bench::postgres_settings(args.text("postgres"), args.text("schema"));
  const std::int64_t wanted = args.number("messages");
  args.done();

  const auto logger = make_logger({"warn", "text"});
  const auto broker = kafka::open_broker({{"bootstrap.servers", brokers}}, logger);
  const auto outbox = std::make_shared<TimedOutbox>(postgres::open_store(settings)->outbox());
  detail::Relay relay(
      {.owner = bench::unique_name("relay")}, outbox, [broker] { return broker->open_sender(); },
      std::make_shared<detail::RunLog>(logger, "bench"));
  relay.start();
  relay.stop(std::chrono::minutes(3));  // it returns when nothing is left
  if (outbox->sent() != wanted) bench::die(std::to_string(outbox->sent()) + " sent of " + std::to_string(wanted));
  bench::Report("fw_relay")
      .add("messages", outbox->sent())
      .add("arrived", bench::messages_in(brokers, topic))
      .add("seconds", outbox->seconds())
      .add("rate", static_cast<double>(wanted) / outbox->seconds())
      .add("cpu_seconds", bench::cpu_seconds())
      .print();
  return 0;
}
