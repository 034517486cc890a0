#pragma once
// Notices that a log was deleted and created again while its reader was suspended or cut off. The new log can be longer
// than what the reader had read, and then nothing else tells the two apart. So the reader reads the last record again,
// and compares it. It costs nothing while records arrive.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "tokens/order.hpp"
#include "turnstile/ports/token_log.hpp"

namespace turnstile::detail {

/// Not thread-safe.
class SameLog {
 public:
  using Record = ports::TokenLog::Record;

  /// The last record that was applied. A position without a record (see TokenLog) is not compared.
  void applied(Record last) {
    if (last.bytes.empty()) has_gaps_ = true;
    else last_ = std::move(last);
  }
  /// The reader was suspended or cut off. Until `silent_until` it writes nothing, unless the last record comes again before.
  void doubt(tokens::Micros silent_until = 0) {
    stage_ = Stage::doubtful;
    silent_until_ = std::max(silent_until_, silent_until);
  }
  [[nodiscard]] bool is_silent(tokens::Micros now) const { return stage_ != Stage::sure && now < silent_until_; }
  [[nodiscard]] bool is_doubtful() const { return stage_ == Stage::doubtful; }
  /// `last`: the last position that was applied. Returns where reading must continue. Throws TokenLogTrimmed if no record
  /// is known, because the state came from a snapshot.
  std::int64_t look_again(std::int64_t last, const ports::TokenLog& log) {
    stage_ = last_.position < 0 ? Stage::sure : Stage::looking;
    if (stage_ == Stage::looking) return last_.position;
    if (last >= 0 && !has_gaps_)
      throw TokenLogTrimmed(
          "this process was suspended or cut off, or the log was deleted, and it had read nothing of " + log.name() +
          " since its snapshot");
    return last + 1;
  }
  /// Call it for each record, before it is applied. Throws TokenLogBroken if the log is another one, and TokenLogTrimmed
  /// if the last record was deleted.
  void read(const Record& record, const ports::TokenLog& log) {
    if (stage_ != Stage::looking || record.position < last_.position) return;
    if (record.position > last_.position)
      throw TokenLogTrimmed("position " + std::to_string(last_.position) + " is missing in " + log.name());
    if (record.bytes != last_.bytes)
      throw TokenLogBroken(
          log.name() + ": position " + std::to_string(record.position) +
          " has another record than before: the topic was deleted and created again while this process was suspended or "
          "cut off. No handler under a limit starts in this process. Restart it");
    stage_ = Stage::sure;
  }

 private:
  enum class Stage : std::uint8_t { sure, doubtful, looking };
  Stage stage_ = Stage::sure;
  Record last_{.position = -1, .bytes = {}};
  bool has_gaps_ = false;
  tokens::Micros silent_until_ = 0;
};

}  // namespace turnstile::detail
