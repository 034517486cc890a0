#pragma once
// What a unit of a topic costs: a fixed part, such as a commit or a bulk request, and a part for each message.

#include <cstddef>
#include <optional>

namespace turnstile::detail {

/// Not thread-safe.
class UnitCost {
 public:
  /// A unit of so many messages took `took_ns`. Of these, `in_messages_ns` were certainly spent on single messages. What
  /// was known is forgotten if it is far from that: the handler or the database has become another one.
  void note(double messages, double took_ns, double in_messages_ns);
  /// Units failed, so their times tell nothing, and what was known may be over.
  void forget() { *this = UnitCost(); }
  /// How many messages the next unit has at most. `fits` of them take `target_ns` by the mean time of a message. More of
  /// them spread the fixed part without making the unit twice as long. If nothing was fixed after all, a unit does not
  /// take longer than `longest_ns`. It grows step by step.
  [[nodiscard]] std::size_t size(double fits, double target_ns, double longest_ns) const;

 private:
  struct Line {
    double fixed_ns, each_ns;
  };
  /// Absent: the sizes were too similar to tell.
  [[nodiscard]] std::optional<Line> line() const;
  [[nodiscard]] bool is_far_from(double messages, double took_ns) const;

  // Moving averages of the units' sizes and times, of their squares and products; 0: not known yet.
  double messages_ = 0, took_ns_ = 0, squared_ = 0, product_ = 0;
  double most_fixed_ns_ = 0;  ///< what may be fixed
  double largest_ = 0;        ///< of the last units
  double last_messages_ = 0, last_took_ns_ = 0;
  std::size_t units_ = 0;
};

}  // namespace turnstile::detail
