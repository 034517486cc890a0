#pragma once
// What `turnstile doctor` and Consumer::check() report: each finding is well, or says what to do.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace turnstile {

class Config;

/// One result of a check.
struct Finding {
  /// How bad it is.
  enum class Level : std::uint8_t {
    ok,
    warning,  ///< works, and somebody should look at it
    problem,  ///< does not work, or a promise is not kept
  };
  Level level = Level::ok;  ///< how bad it is
  std::string subject;      ///< "topic payments", "PostgreSQL"
  std::string text;         ///< what was found
  std::string remedy;       ///< what to do; empty when the text says it, or there is nothing to do
};

/// Not thread-safe.
class Findings {
 public:
  /// Adds a check that found nothing wrong.
  void ok(std::string subject, std::string text) { add({Finding::Level::ok, std::move(subject), std::move(text), {}}); }
  /// Adds what may become a problem.
  void warning(std::string subject, std::string text, std::string remedy = {}) {
    add({Finding::Level::warning, std::move(subject), std::move(text), std::move(remedy)});
  }
  /// Adds what is a problem now.
  void problem(std::string subject, std::string text, std::string remedy = {}) {
    add({Finding::Level::problem, std::move(subject), std::move(text), std::move(remedy)});
  }
  /// Adds any finding.
  void add(Finding finding) { all_.push_back(std::move(finding)); }
  /// All findings, in the order in which they were added.
  [[nodiscard]] const std::vector<Finding>& all() const noexcept { return all_; }

 private:
  std::vector<Finding> all_;
};

/// Looks at Kafka, PostgreSQL and the token log as `config` names them: settings and rights, and the system as it runs. Waits at most some
/// seconds for each answer, and throws nothing of what it finds. Link turnstile::turnstile.
void look_at_system(const Config& config, Findings& findings);

}  // namespace turnstile
