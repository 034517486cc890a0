#include "consumer.hpp"

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <thread>
#include <turnstile/turnstile.hpp>

#include "board.hpp"
#include "settings.hpp"
#include "tally.hpp"
#include "watched_broker.hpp"

namespace demo {
namespace {

using namespace turnstile;
using namespace std::chrono_literals;

/// Writes the framework's own counts on the board, to compare them with the demo's counts.
class Reporter final : public Observer {
 public:
  Reporter(Slot& slot, Tally& tally) : slot_(slot), tally_(tally) {}

  void on_batch(const BatchReport& report) noexcept override {
    slot_.done += report.done;
    slot_.duplicates += report.duplicates;
    slot_.failed += report.retried + report.dead;
    tally_.settled(report.partition, report.done + report.skipped + report.duplicates + report.dead);
  }
  void on_assigned(const TopicPartition& at, Epoch) noexcept override { slot_.assigned |= bit_of(at); }
  void on_revoked(const TopicPartition& at) noexcept override {
    slot_.assigned &= ~bit_of(at);
    slot_.handed_on += tally_.take(at.partition);
  }

 private:
  static std::uint32_t bit_of(const TopicPartition& at) { return 1U << static_cast<unsigned>(at.partition); }
  Slot& slot_;
  Tally& tally_;
};

/// Counts a run of the handler until it ends, also by an exception.
class Running {
 public:
  Running(const Board& board, int consumer) : board_(board), consumer_(consumer) { board_.handler_starts(consumer_); }
  ~Running() { board_.handler_stops(consumer_); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const Board& board_;
  const int consumer_;
};

}  // namespace

int consume(const ConsumerOptions& options) try {
  const Board board = Board::open(options.board);
  Slot& slot = board.slot(options.number);
  Tally tally;

  const Config config = Config::load(options.config);
  Backends backends = connect(config);
  backends.broker = watched(backends.broker, board, tally, options.number);

  auto charge = [&board, consumer = options.number, work = options.handler_time](const Message& message, Context& ctx) {
    const Running running(board, consumer);
    std::this_thread::sleep_for(work);  // stands for the real work that the limit protects
    ctx.defer("INSERT INTO charge (id, account, consumer) VALUES ($1, $2, $3)", message.header("message-id").value(),
              message.key().value(), consumer);
  };

  Consumer app{config, backends};
  app.topic(options.topic, charge | transactional() | limit("psp", kHandlerLimit) | ordered_by(Order::key) |
                               batch(batch_of(options.handler_time)) | handler_timeout(2s));
  app.observe(std::make_shared<Reporter>(slot, tally));
  app.run();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "consumer %d: %s\n", options.number, error.what());
  return 1;
}

}  // namespace demo
