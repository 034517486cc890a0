#pragma once
// Records made by a test, in the form in which a consumer takes them.

#include <span>
#include <utility>
#include <vector>

#include "turnstile/ports/broker.hpp"

namespace turnstile::test {

class OwnedBlock : public ports::Block {
 public:
  explicit OwnedBlock(std::vector<OwnedMessage> owned) : owned_(std::move(owned)) {
    for (const auto& message : owned_) views_.emplace_back(message);
  }
  [[nodiscard]] std::span<const Message> messages() const noexcept override { return views_; }

 private:
  std::vector<OwnedMessage> owned_;
  std::vector<Message> views_;
};

}  // namespace turnstile::test
