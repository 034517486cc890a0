// How a TokenReader reads and writes one part of a log.

#include "permits/token_reader_impl.hpp"

namespace turnstile {

void TokenReader::Impl::restore(std::int64_t from) {
  // A snapshot from beyond the end belongs to an earlier log of this name, as may one of another division.
  std::optional<tokens::State> oldest;
  int too_old = 0;
  for (auto kept = log->snapshot(); kept; kept = log->snapshot(kept->number)) {
    auto saved = tokens::restore(kept->bytes);
    if (saved && !tokens::is_same_part(*saved, first)) continue;
    if (saved && saved->last + 1 < begin && ++too_old == kOldSnapshots) break;
    if (!saved || saved->last + 1 < begin || saved->last >= end) continue;
    oldest = std::move(saved);
    if (oldest->last < from) break;
  }
  if (begin == 0 && (!oldest || oldest->last >= from)) oldest = first;
  known = oldest.has_value();
  state = oldest ? std::move(*oldest) : first;
  known_from = state.last;
}

void TokenReader::Impl::fetch(std::chrono::milliseconds timeout) {
  if (!upcoming.empty()) return;
  for (auto& record : log->read(timeout)) {
    if (record.position < next) continue;
    if (record.position != next + static_cast<std::int64_t>(upcoming.size())) {
      throw TokenLogBroken("positions " + std::to_string(next) + " to " + std::to_string(record.position - 1) +
                           " are missing in " + name);
    }
    // Several clocks wrote the times. A later record never shows an earlier time, so that a search by the shown time
    // finds it.
    latest_ms = record.time_ms = std::max(latest_ms, record.time_ms);
    upcoming.push_back(std::move(record));
  }
}

TokenReader::Impl& TokenReader::Impl::other(std::uint32_t part) {
  std::unique_ptr<Impl>& opened = others[part];
  if (opened) return *opened;
  if (!open_part) throw TokenLogBroken(name + " is divided into parts, and this program opened only its first part");
  auto other = std::make_unique<Impl>(open_part(part), tokens::first_state(state, part));
  const std::int64_t from = from_begin ? other->begin : other->end;
  other->restore(from);
  other->next = other->known ? std::min(from, other->state.last + 1) : from;
  other->log->seek(other->next);
  other->read_to(other->end - 1);
  opened = std::move(other);
  return *opened;
}

void TokenReader::Impl::wait(std::chrono::milliseconds timeout, std::int64_t wanted) {
  const auto late = detail::deadline_after(timeout);
  while (upcoming.empty()) {
    if (std::chrono::steady_clock::now() >= late) {
      throw BrokerError(Code::kafka_unavailable,
                        "reading " + name + " stopped at position " + std::to_string(next - 1) + " of " +
                            std::to_string(wanted) + ": no record arrived for " +
                            std::to_string(timeout.count() / 1'000) + " s. Check that its brokers run, and try again");
    }
    fetch(kLook);
  }
}

std::optional<tokens::Effects::Outcome> TokenReader::Impl::write(const tokens::Event& event,
                                                                 std::chrono::steady_clock::time_point late) {
  log->append(tokens::encode(event));
  for (; std::chrono::steady_clock::now() < late; fetch(kLook)) {
    // Returns stale, so that the caller writes the whole change again. A second copy of this event changes nothing,
    // or is stale too.
    if (log->failed()) {
      why_not = log->why_failed();
      return tokens::Effects::Outcome::stale;
    }
    while (!upcoming.empty()) {
      const ports::TokenLog::Record record = take();
      const tokens::Event read = tokens::decode(record.bytes);
      const tokens::Effects effects = tokens::apply(state, record.position, read);
      if (read == event) return effects.outcome;
    }
  }
  return std::nullopt;
}

}  // namespace turnstile
