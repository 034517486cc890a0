#include "turnstile/requests.hpp"

#include <algorithm>
#include <utility>

namespace turnstile {

RequestWindow::RequestWindow(std::int64_t size) { kept_.seen.assign(static_cast<std::size_t>(size / 8), '\0'); }

RequestWindow::RequestWindow(std::int64_t size, Kept kept) : kept_(std::move(kept)) {
  if (this->size() == size) return;
  RequestWindow other(size);
  other.kept_.high = kept_.high;
  other.kept_.low = std::max(kept_.low, kept_.high - size);
  other.kept_.acked = kept_.acked;
  for (std::int64_t number = other.kept_.low; number < kept_.high;) {
    ++number;  // here, because the highest number of all has no successor
    other.set(number, has(number));
  }
  kept_ = std::move(other.kept_);
}

RequestWindow::Place RequestWindow::admit(const ports::Request& request) {
  const std::int64_t number = request.number;
  if (out_of_reach(number)) return Place::outside;
  const std::int64_t acked = std::exchange(kept_.acked, std::max(kept_.acked, request.acked));
  if (number > kept_.high) advance(number);
  else if (number <= kept_.low) return was_acked(request, acked) ? Place::seen : Place::outside;
  else if (has(number)) return Place::seen;
  set(number, true);
  return Place::fresh;
}

bool RequestWindow::has_seen(const ports::Request& request) const noexcept {
  if (request.number <= kept_.low) return was_acked(request, kept_.acked);
  return request.number <= kept_.high && has(request.number);
}

std::int64_t RequestWindow::forgotten() const noexcept { return std::max(kept_.acked, kept_.low); }

bool RequestWindow::has(std::int64_t number) const noexcept {
  const std::int64_t bit = number % size();
  return (static_cast<unsigned char>(kept_.seen[static_cast<std::size_t>(bit / 8)]) >> (bit % 8) & 1) != 0;
}

void RequestWindow::set(std::int64_t number, bool on) noexcept {
  const std::int64_t bit = number % size();
  char& byte = kept_.seen[static_cast<std::size_t>(bit / 8)];
  const auto mask = static_cast<unsigned char>(1U << (bit % 8));
  byte = static_cast<char>(on ? static_cast<unsigned char>(byte) | mask : static_cast<unsigned char>(byte) & ~mask);
}

/// The numbers in between were not seen.
void RequestWindow::advance(std::int64_t to) noexcept {
  if (to - kept_.high >= size()) std::fill(kept_.seen.begin(), kept_.seen.end(), '\0');
  else
    for (std::int64_t number = kept_.high; number < to;) set(++number, false);
  kept_.high = to;
  kept_.low = std::max(kept_.low, to - size());
}

ports::Admission RequestWindows::admit(const ports::Request& request) {
  const auto row = rows_.find(request.producer);
  if (row == rows_.end()) return ports::Admission::no_session;
  const auto& expired = row->second.expired;
  const bool late = expired && (request.sent == Timestamp{} || request.sent >= *expired);
  if (late) return row->second.window.has_seen(request) ? ports::Admission::duplicate : ports::Admission::no_session;
  row->second.changed = true;
  switch (row->second.window.admit(request)) {
    case RequestWindow::Place::seen: return ports::Admission::duplicate;
    case RequestWindow::Place::outside: return ports::Admission::outside;
    case RequestWindow::Place::fresh: break;
  }
  return ports::Admission::fresh;
}

}  // namespace turnstile
