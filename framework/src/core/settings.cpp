#include "turnstile/settings.hpp"

namespace turnstile {
namespace {

template <class T>
void take(std::optional<T>& into, const std::optional<T>& over) {
  if (over) into = over;
}

}  // namespace

TopicSettings merge(const TopicSettings& base, const TopicSettings& over) {
  TopicSettings merged = base;
  take(merged.handler, over.handler);
  take(merged.mode, over.mode);
  take(merged.order, over.order);
  take(merged.limiter, over.limiter);
  take(merged.limit, over.limit);
  take(merged.message_id, over.message_id);
  take(merged.keep_ids_for, over.keep_ids_for);
  take(merged.handler_timeout, over.handler_timeout);
  take(merged.retry, over.retry);
  take(merged.dead_letter, over.dead_letter);
  take(merged.batch, over.batch);
  take(merged.duplicates, over.duplicates);
  take(merged.fingerprint, over.fingerprint);
  return merged;
}

}  // namespace turnstile
