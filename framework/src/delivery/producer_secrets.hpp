#pragma once
// The secrets of producer sessions. Each is requested from the store once. Thread-safe.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "turnstile/ports/producers.hpp"

namespace turnstile::detail {

class ProducerSecrets {
 public:
  explicit ProducerSecrets(std::shared_ptr<ports::Producers> producers) : producers_(std::move(producers)) {}

  /// The known secrets of these sessions. A session that was deleted and opened again under the same id has a new
  /// secret. Therefore call it with `anew` before treating a message as forged. Throws StoreUnavailable.
  std::map<MessageId, std::string> secrets(const std::set<MessageId>& of, bool anew = false) {
    std::map<MessageId, std::string> known;
    std::vector<MessageId> asked;
    {
      const std::lock_guard lock(mutex_);
      for (const MessageId& id : of) {
        if (const auto found = secrets_.find(id); found != secrets_.end() && !anew) known.insert(*found);
        else asked.push_back(id);
      }
    }
    if (asked.empty()) return known;
    const auto answers = producers_->secrets(asked);
    const std::lock_guard lock(mutex_);
    if (secrets_.size() > kMost) secrets_.clear();
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (answers[i]) known[asked[i]] = secrets_[asked[i]] = *answers[i];
    }
    return known;
  }

  [[nodiscard]] const std::shared_ptr<ports::Producers>& producers() const noexcept { return producers_; }

 private:
  static constexpr std::size_t kMost = 100'000;  ///< about 10 MB; above it, all secrets are requested again
  const std::shared_ptr<ports::Producers> producers_;
  std::mutex mutex_;
  std::map<MessageId, std::string> secrets_;
};

}  // namespace turnstile::detail
