#pragma once
// Combines several observers.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "turnstile/observer.hpp"

namespace turnstile::detail {

class Observers {
 public:
  Observers() = default;
  explicit Observers(std::vector<std::shared_ptr<Observer>> all) : all_(std::move(all)) {}
  void add(std::shared_ptr<Observer> observer) { all_.push_back(std::move(observer)); }
  void add(const Observers& others) { all_.insert(all_.end(), others.all_.begin(), others.all_.end()); }
  /// Adds those that are not there yet.
  void add_missing(const Observers& others) {
    for (const auto& observer : others.all_) {
      if (std::find(all_.begin(), all_.end(), observer) == all_.end()) all_.push_back(observer);
    }
  }
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }

  /// tell(&Observer::on_retry, report)
  template <class Method, class... A>
  void tell(Method method, const A&... arguments) const noexcept {
    for (const auto& observer : all_) ((*observer).*method)(arguments...);
  }

 private:
  std::vector<std::shared_ptr<Observer>> all_;
};

}  // namespace turnstile::detail
