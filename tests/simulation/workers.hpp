#pragma once
// The threads of one process that run handlers under one limiter. They know the limiter and nothing else of the token service.

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
  /// `service`: they work on no partition, and no fence refuses what they do.
  Workers(World& world, Process& process, LimiterUse use, bool service);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// So many are to be busy all the time, with handlers that take up to `longest_ms`; so many in a hundred ask for several permits at
  /// once, for all that there are at most.
  void want(int workers, std::int64_t longest_ms, int wide);
  /// From here on, handlers take up to so long.
  void take_up_to(std::int64_t longest_ms) { longest_ms_ = longest_ms; }
  /// Lets go of the limiter as soon as nobody works.
  void let_go() { lets_go_ = true; }
  [[nodiscard]] int wanted() const { return wanted_; }
  [[nodiscard]] bool has_work() const;
  /// Somebody works or waits, and the domain has had room for the limiter's name.
  [[nodiscard]] bool is_served() const;
  /// Asks for permits, or stops asking, so that it is so.
  void settle();
  /// Handlers whose permits are lost, or whose partition is, are told to stop; they take a moment.
  void stop_lost();
  void stop_on(std::pair<int, int> place);
  [[nodiscard]] bool runs_on(std::pair<int, int> place) const;
  [[nodiscard]] bool runs() const { return !handlers_.empty(); }

  /// Permits under which handlers of this life run, without those that a deadline or a fence has made harmless, and those on the reserve.
  [[nodiscard]] tokens::Count counted(std::size_t life) const;
  [[nodiscard]] tokens::Count counted() const;
  /// Permits of the reserve under which handlers run, before its own deadline.
  [[nodiscard]] tokens::Count counted_on_reserve() const;
  /// A fence in the database has taken the permits of this life back: what runs cannot commit.
  void fenced(std::size_t life);

  [[nodiscard]] const LimiterUse& use() const { return use_; }
  [[nodiscard]] Process& process() const { return process_; }
  [[nodiscard]] std::uint64_t finished() const { return finished_; }
  [[nodiscard]] tokens::Count in_use() const;
  /// When the one that waits longest began to wait; nothing waits: now.
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
  std::shared_ptr<Limiter> limiter_;
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
