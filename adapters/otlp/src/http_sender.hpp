#pragma once
// One request to a collector. It ends within its time, and reads a bounded answer, whatever the server does.

#include <chrono>
#include <optional>
#include <string>

#include "deadline.hpp"
#include "lookup.hpp"
#include "turnstile/config.hpp"

namespace turnstile::otlp {

/// Used by one thread, but for end_all_at().
class HttpSender {
 public:
  struct Answer {
    int status = 0;                                     ///< 0: there was none
    std::string type{};                                 ///< its content type
    std::string body{};                                 ///< up to 64 KiB of it
    bool is_whole = false;                              ///< the body was read to its end, and was not longer
    std::optional<std::chrono::seconds> retry_after{};  ///< from now on
    std::string why{};                                  ///< why there was none, or why the body is not whole
  };

  explicit HttpSender(const TracingSettings& settings);
  /// Without an exception.
  Answer post(const std::string& body, std::chrono::milliseconds timeout);
  /// This request and later ones end at this time at the latest. Thread-safe.
  void end_all_at(Deadline::Time time) { deadline_.end_all_at(time); }

 private:
  void post_to(const std::string& address, const std::string& body, Answer& answer, bool& reached);

  const TracingSettings::Target target_;
  const std::vector<std::pair<std::string, std::string>> headers_;
  const std::string ca_file_;
  Lookup lookup_;
  Deadline deadline_;
};

/// The value of a header Retry-After: seconds, or a date. Absent: it is neither.
std::optional<std::chrono::seconds> read_retry_after(const std::string& text,
                                                     std::chrono::system_clock::time_point now);

}  // namespace turnstile::otlp
