#pragma once
// What doctor looks at. Each look adds its lines; none throws, none waits much longer than kPatience for one
// answer.

#include <chrono>
#include <string>
#include <vector>

#include "turnstile/config.hpp"

namespace turnstile::cli {

enum class Level { ok, warning, problem };

struct Finding {
  Level level = Level::ok;
  std::string subject;
  std::string text;
  std::string remedy;  ///< what to do; empty when the text says it, or there is nothing to do
};

class Findings {
 public:
  void ok(std::string subject, std::string text) { add({Level::ok, std::move(subject), std::move(text), {}}); }
  void warning(std::string subject, std::string text, std::string remedy) {
    add({Level::warning, std::move(subject), std::move(text), std::move(remedy)});
  }
  void problem(std::string subject, std::string text, std::string remedy = {}) {
    add({Level::problem, std::move(subject), std::move(text), std::move(remedy)});
  }
  [[nodiscard]] const std::vector<Finding>& all() const noexcept { return all_; }

 private:
  void add(Finding finding) { all_.push_back(std::move(finding)); }
  std::vector<Finding> all_;
};

inline constexpr std::chrono::milliseconds kPatience{3'000};

/// The brokers, the topics, their dead letter topics, and how long they keep what is in them.
void look_at_kafka(const Config& config, Findings& findings);
/// The server, its settings, the schema and the rights.
void look_at_postgres(const Config& config, Findings& findings);

}  // namespace turnstile::cli
