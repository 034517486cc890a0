#pragma once
// Which parts of a divided log can open (tokens/parts.hpp), computed once for each state of the directory.

#include <memory>

#include "tokens/parts.hpp"
#include "tokens/state.hpp"

namespace turnstile::detail {

/// Not thread-safe.
class PartOpenings {
 public:
  std::shared_ptr<const tokens::Openings> of(const tokens::State& directory) {
    if (!known_ || at_ != directory.last) known_ = std::make_shared<tokens::Openings>(tokens::moved_out(directory));
    at_ = directory.last;
    return known_;
  }

 private:
  std::shared_ptr<const tokens::Openings> known_;
  tokens::Position at_ = tokens::kNowhere;
};

}  // namespace turnstile::detail
