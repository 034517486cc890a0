#pragma once
// The findings of `turnstile doctor` and Consumer::check(). A finding is good, or tells what to do.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace turnstile {

class Config;

/// A result of a check.
struct Finding {
  /// How serious the finding is.
  enum class Level : std::uint8_t {
    ok,
    warning,  ///< works, but an operator should look at it
    problem,  ///< does not work, or breaks a guarantee
  };
  Level level = Level::ok;  ///< how serious it is
  std::string subject;      ///< "topic payments", "PostgreSQL"
  std::string text;         ///< the result of the check
  std::string remedy;       ///< what to do; empty if `text` tells it, or if nothing is to be done
};

/// Not thread-safe.
class Findings {
 public:
  /// Adds a good result.
  void ok(std::string subject, std::string text) { add({Finding::Level::ok, std::move(subject), std::move(text), {}}); }
  /// Adds a result that can become a problem.
  void warning(std::string subject, std::string text, std::string remedy = {}) {
    add({Finding::Level::warning, std::move(subject), std::move(text), std::move(remedy)});
  }
  /// Adds a problem.
  void problem(std::string subject, std::string text, std::string remedy = {}) {
    add({Finding::Level::problem, std::move(subject), std::move(text), std::move(remedy)});
  }
  /// Adds a finding of any level.
  void add(Finding finding) { all_.push_back(std::move(finding)); }
  /// All findings, in the order of the calls.
  [[nodiscard]] const std::vector<Finding>& all() const noexcept { return all_; }

 private:
  std::vector<Finding> all_;
};

/// Checks Kafka, PostgreSQL and the token log of `config`: settings, rights, and the running system. Waits up to some
/// seconds for each answer. What it finds becomes a finding and is not thrown. Link turnstile::turnstile.
void look_at_system(const Config& config, Findings& findings);

}  // namespace turnstile
