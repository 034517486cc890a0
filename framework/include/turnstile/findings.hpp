#pragma once
// What `turnstile doctor` and Consumer::check() report: each finding is well, or says what to do.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace turnstile {

class Config;

struct Finding {
  enum class Level : std::uint8_t {
    ok,
    warning,  ///< works, and somebody should look at it
    problem,  ///< does not work, or a promise is not kept
  };
  Level level = Level::ok;
  std::string subject;  ///< "topic payments", "PostgreSQL"
  std::string text;
  std::string remedy;  ///< what to do; empty when the text says it, or there is nothing to do
};

/// Not thread-safe.
class Findings {
 public:
  void ok(std::string subject, std::string text) { add({Finding::Level::ok, std::move(subject), std::move(text), {}}); }
  void warning(std::string subject, std::string text, std::string remedy = {}) {
    add({Finding::Level::warning, std::move(subject), std::move(text), std::move(remedy)});
  }
  void problem(std::string subject, std::string text, std::string remedy = {}) {
    add({Finding::Level::problem, std::move(subject), std::move(text), std::move(remedy)});
  }
  void add(Finding finding) { all_.push_back(std::move(finding)); }
  [[nodiscard]] const std::vector<Finding>& all() const noexcept { return all_; }

 private:
  std::vector<Finding> all_;
};

/// Looks at Kafka, PostgreSQL and the token log as `config` names them: settings and rights, and the system as it runs. Waits at most some
/// seconds for each answer, and throws nothing of what it finds. Link turnstile::turnstile.
void look_at_system(const Config& config, Findings& findings);

}  // namespace turnstile
