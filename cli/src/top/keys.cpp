#include "keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "fit.hpp"
#include "turnstile/text.hpp"

namespace turnstile::cli::top {

namespace {

using Kind = Key::Kind;
using text::number;

/// Longer numbers are above each limit.
constexpr std::size_t kMostDigits = 10;
constexpr std::size_t kMostTyped = 60;

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string now(const std::vector<LimiterView>& limiters, const std::string& name) {
  const auto found = std::find_if(limiters.begin(), limiters.end(), [&](const auto& l) { return l.limiter == name; });
  if (found == limiters.end()) return "gone";
  return fmt::format("now {}{}", number(found->limit), found->set ? ", set" : "");
}

/// The end of a question must stay visible, so a long name is cut.
std::string with_name(const std::string& name, std::size_t columns, const std::string& before,
                      const std::string& after) {
  const std::size_t taken = columns_of(before) + columns_of(after);
  const std::size_t room = columns > taken ? columns - taken : 0;
  return cut(before + cut(escaped(name), std::max<std::size_t>(room, 4)) + after, columns);
}

}  // namespace

std::vector<Key> KeyParser::parse(std::string_view bytes) {
  std::vector<Key> keys;
  for (const char byte : bytes) {
    const auto code = static_cast<unsigned char>(byte);
    if (state_ == State::in_sequence) {
      if (code < 0x40 || code > 0x7e) continue;  // its parameters
      state_ = State::plain;
      if (byte == 'A' || byte == 'Z') keys.push_back({Kind::previous});
      else if (byte == 'B') keys.push_back({Kind::next});
      continue;
    }
    if (state_ == State::after_escape && (byte == '[' || byte == 'O')) {
      state_ = State::in_sequence;
      if (!keys.empty() && keys.back().kind == Kind::escape) keys.pop_back();
      continue;
    }
    state_ = State::plain;
    if (code == 0x1b) {
      state_ = State::after_escape;
      keys.push_back({Kind::escape});
    } else if (byte == '\r' || byte == '\n') {
      keys.push_back({Kind::enter});
    } else if (byte == '\t') {
      keys.push_back({Kind::next});
    } else if (code == 0x7f || byte == '\b') {
      keys.push_back({Kind::backspace});
    } else if (code >= 0x20 && code < 0x7f) {
      keys.push_back({Kind::character, byte});
    }
  }
  return keys;
}

void LimitDialog::begin() {
  step_ = Step::limiter;
  typed_.clear();
  chosen_ = 0;
}

std::vector<const LimiterView*> LimitDialog::matching(const std::vector<LimiterView>& limiters) const {
  std::vector<const LimiterView*> found;
  for (const auto& limiter : limiters) {
    if (escaped(limiter.limiter).find(typed_) != std::string::npos) found.push_back(&limiter);
  }
  // A name that is part of another one comes first when it was typed as a whole.
  std::stable_partition(found.begin(), found.end(),
                        [&](const auto* limiter) { return escaped(limiter->limiter) == typed_; });
  return found;
}

std::optional<LimitChange> LimitDialog::press(const Key& key, const std::vector<LimiterView>& limiters) {
  if (key.kind == Kind::escape) {
    close();
  } else if (step_ == Step::limiter) {
    press_in_name(key, limiters);
  } else if (step_ == Step::number) {
    press_in_number(key);
  } else if (step_ == Step::confirmation) {
    if (key.kind != Kind::character) return std::nullopt;
    close();
    if (key.character == 'y' || key.character == 'Y') return change_;
  }
  return std::nullopt;
}

void LimitDialog::press_in_name(const Key& key, const std::vector<LimiterView>& limiters) {
  const auto found = matching(limiters);
  const std::size_t all = std::max<std::size_t>(found.size(), 1);
  chosen_ = std::min(chosen_, all - 1);
  switch (key.kind) {
    case Kind::next: chosen_ = (chosen_ + 1) % all; return;
    case Kind::previous: chosen_ = (chosen_ + all - 1) % all; return;
    case Kind::enter:
      if (found.empty()) return;
      change_ = {.limiter = found[chosen_]->limiter};
      step_ = Step::number;
      typed_.clear();
      return;
    case Kind::backspace:
      if (!typed_.empty()) typed_.pop_back();
      break;
    case Kind::character:
      if (typed_.size() < kMostTyped) typed_ += key.character;
      break;
    case Kind::escape: break;
  }
  chosen_ = 0;
}

void LimitDialog::press_in_number(const Key& key) {
  if (key.kind == Kind::backspace) {
    if (typed_ == "unset") typed_.clear();
    else if (!typed_.empty()) typed_.pop_back();
  } else if (key.kind == Kind::character) {
    if (key.character == 'u') typed_ = "unset";
    else if (is_digits({&key.character, 1}) && typed_ != "unset" && typed_.size() < kMostDigits)
      typed_ += key.character;
  } else if (key.kind == Kind::enter && !typed_.empty()) {
    change_.limit.reset();
    if (typed_ != "unset") {
      std::int64_t limit = 0;
      std::from_chars(typed_.data(), typed_.data() + typed_.size(), limit);
      change_.limit = limit;
    }
    step_ = Step::confirmation;
  }
}

std::string LimitDialog::question(const std::vector<LimiterView>& limiters, std::size_t columns) const {
  switch (step_) {
    case Step::closed: return "";
    case Step::limiter: {
      const auto found = matching(limiters);
      const std::string typed = fmt::format("limit of: {}_ ", typed_);
      if (found.empty())
        return cut(typed + (limiters.empty() ? "(no limits)  Esc" : "(no such limiter)  Esc"), columns);
      const std::size_t at = std::min(chosen_, found.size() - 1);
      return with_name(found[at]->limiter, columns, typed + "-> ",
                       fmt::format("  ({} of {})  Tab, Enter, Esc", at + 1, found.size()));
    }
    case Step::number:
      return with_name(
          change_.limiter, columns, "",
          fmt::format(" ({}): new limit, 0 pauses, u unsets: {}_", now(limiters, change_.limiter), typed_));
    case Step::confirmation:
      return with_name(change_.limiter, columns, change_.limit ? "set " : "unset ",
                       fmt::format(" ({}){}, for all processes? y/n", now(limiters, change_.limiter),
                                   !change_.limit        ? ""
                                   : *change_.limit == 0 ? " to 0: no handler starts"
                                                         : " to " + number(*change_.limit)));
  }
  return "";
}

}  // namespace turnstile::cli::top
