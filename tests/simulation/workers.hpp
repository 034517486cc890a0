#pragma once
// The threads of a process that run handlers under a limiter. They know the limiter and nothing else of the token
// service.

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "tests/simulation/schedule.hpp"
#include "tokens/event.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile::simulation {

class World;
class Process;

struct LimiterUse {
  std::string name;
  tokens::Count limit = 0;      ///< as configured
  tokens::Count set_aside = 0;  ///< by all processes
  [[nodiscard]] tokens::Count shared() const { return limit - set_aside; }
};

class Workers {
 public:
  /// `service`: they work on no partition, and no fence rejects their effects.
  Workers(World& world, Process& process, LimiterUse use, bool service);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// How many workers are busy all the time, with handlers that take up to `longest_ms`. `wide` percent of the requests
  /// are for several permits at once, up to all.
  void want(int workers, std::int64_t longest_ms, int wide);
  /// From here on, handlers take up to `longest_ms`.
  void take_up_to(std::int64_t longest_ms) { longest_ms_ = longest_ms; }
  /// Releases the limiter as soon as no worker uses it.
  void let_go() { lets_go_ = true; }
  [[nodiscard]] int wanted() const { return wanted_; }
  [[nodiscard]] bool has_work() const;
  /// Whether a worker works or waits, and the domain has accepted the limiter's name.
  [[nodiscard]] bool is_served() const;
  /// Makes or withdraws requests to match want().
  void settle();
  /// Sets the stop of handlers whose permits or partition are lost. They need a moment to end.
  void stop_lost();
  void stop_on(std::pair<int, int> place);
  [[nodiscard]] bool runs_on(std::pair<int, int> place) const;
  [[nodiscard]] bool runs() const { return !handlers_.empty(); }

  /// Permits of running handlers of this life. It excludes handlers after a deadline or a fence, which can do no harm,
  /// and those on the reserve.
  [[nodiscard]] tokens::Count counted(std::size_t life) const;
  [[nodiscard]] tokens::Count counted() const;
  /// Permits of the reserve with running handlers, before its own deadline.
  [[nodiscard]] tokens::Count counted_on_reserve() const;
  /// A fence in the database has returned the permits of this life: its handlers cannot commit.
  void fenced(std::size_t life);

  [[nodiscard]] const LimiterUse& use() const { return use_; }
  [[nodiscard]] Process& process() const { return process_; }
  [[nodiscard]] std::uint64_t finished() const { return finished_; }
  [[nodiscard]] tokens::Count in_use() const;
  /// When the oldest waiting request began to wait. Without one: now.
  [[nodiscard]] Time waits_since() const;

 private:
  struct Handler {
    Permit permit{};
    tokens::Count count = 1;
    int group = -1, partition = -1;
    std::uint64_t fence = 0;
    std::size_t life = 0;
    bool on_reserve = false;
    bool fenced = false;
    bool stopping = false;
    std::uint64_t number = 0;
  };
  struct Waiting {
    std::function<bool()> withdraw{};
    Time since = 0;
  };

  void ask();
  void open();
  [[nodiscard]] tokens::Count some_count();
  void begin(Permit permit, tokens::Count count);
  void end(std::uint64_t number);
  void stop(Handler& handler);
  void must_be_refused(const Handler& handler) const;
  [[nodiscard]] bool counts(const Handler& handler) const;

  World& world_;
  Process& process_;
  const LimiterUse use_;
  const bool service_;
  std::shared_ptr<ports::Limiter> limiter_;
  int wanted_ = 0;
  std::int64_t longest_ms_ = 100;
  int wide_ = 0;
  Time opens_again_ = 0;
  bool lets_go_ = false;
  bool ended_ = false;
  std::list<Handler> handlers_;
  std::map<std::uint64_t, Waiting> waiting_;
  std::uint64_t last_number_ = 0;
  std::uint64_t finished_ = 0;
};

}  // namespace turnstile::simulation
