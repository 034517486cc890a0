#pragma once
// A limiter, and the changes of limits, as JSON.

#include "text.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::cli {

/// More permits are held than the limit allows, as after it was lowered.
bool is_over(const PermitsView::Entry& entry);
/// Free permits that may be granted.
std::int64_t free(const PermitsView::Entry& entry);
Json to_json(const PermitsView::Entry& entry);
Json to_json(const PermitsView::LimitChange& change);

}  // namespace turnstile::cli
