#pragma once
// The threads of one process that run handlers under one limiter. They know the gate and nothing else of the token service.

#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "runtime/permit_gate.hpp"

namespace turnstile::simulation {

class World;
class Process;

struct LimiterUse {
  std::string name;
  tokens::Count limit = 0;  ///< as configured
  bool strict = false;
  tokens::Count set_aside = 0;
  [[nodiscard]] tokens::Count shared() const { return limit - set_aside; }
};

class Workers {
 public:
  Workers(World& world, Process& process, LimiterUse use);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  /// So many are to be busy all the time, with handlers that take up to `longest_ms`.
  void want(int workers, std::int64_t longest_ms);
  [[nodiscard]] int wanted() const { return wanted_; }
  /// Asks for permits, or stops asking, so that it is so.
  void settle();
  /// Handlers whose permits are lost, or whose partition is, are told to stop; they take a moment.
  void stop_lost();
  void stop_on(int partition);
  [[nodiscard]] bool runs_on(int partition) const;
  [[nodiscard]] bool runs() const { return !handlers_.empty(); }

  /// Permits under which handlers of this life run, without those that a deadline or a fence has made harmless.
  [[nodiscard]] tokens::Count counted(std::size_t life) const;
  [[nodiscard]] tokens::Count counted() const;
  /// A fence in the database has taken the permits of this life back: what runs cannot commit.
  void fenced(std::size_t life);

  PermitGate& gate() { return gate_; }
  [[nodiscard]] const LimiterUse& use() const { return use_; }
  [[nodiscard]] std::uint64_t finished() const { return finished_; }

 private:
  struct Handler {
    PermitGate::Taken taken{};
    tokens::Count count = 1;
    int partition = -1;
    std::uint64_t fence = 0;
    std::size_t life = 0;
    bool fenced = false;
    bool stopping = false;
    std::uint64_t number = 0;
  };

  void ask();
  void begin(PermitGate::Taken taken, tokens::Count count);
  void end(std::uint64_t number);
  void stop(Handler& handler);
  void must_be_refused(const Handler& handler) const;
  [[nodiscard]] bool counts(const Handler& handler) const;

  World& world_;
  Process& process_;
  const LimiterUse use_;
  PermitGate gate_;
  int wanted_ = 0;
  std::int64_t longest_ms_ = 100;
  std::list<Handler> handlers_;
  std::map<std::uint64_t, std::uint64_t> waiting_;  ///< own number -> the gate's
  std::uint64_t last_number_ = 0;
  std::uint64_t finished_ = 0;
};

}  // namespace turnstile::simulation
