#pragma once
// What a unit of a topic costs: a fixed part, such as a commit or a bulk request, and a part for each message.

#include <cstddef>

namespace turnstile::detail {

/// Not thread-safe.
class UnitCost {
 public:
  /// A unit of so many messages took `took_ns`. Of these, `in_messages_ns` were certainly spent on single messages.
  void note(double messages, double took_ns, double in_messages_ns);
  /// So many messages spread the fixed part without making the unit twice as long, or longer than `target_ns`. It grows
  /// step by step, and so that no unit takes much longer than `longest_ns`. 1 if nothing is known, or little is fixed.
  [[nodiscard]] std::size_t size(double target_ns, double longest_ns) const;

 private:
  // Moving averages of the units' sizes and times, of their squares and products; 0: not known yet.
  double messages_ = 0, took_ns_ = 0, squared_ = 0, product_ = 0;
  double most_fixed_ns_ = 0;  ///< what may be fixed
  double largest_ = 0;        ///< of the last units
};

}  // namespace turnstile::detail
