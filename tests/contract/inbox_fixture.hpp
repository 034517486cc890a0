#pragma once
// A common view of the two inboxes: what the suite needs besides the port.

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "turnstile/ports/store.hpp"

namespace turnstile::test {

class InboxFixture {
 public:
  virtual ~InboxFixture() = default;
  virtual ports::Store& store() = 0;
  /// The first arguments of the committed statements kEffect, in the order of the commits.
  virtual std::vector<std::string> effects() = 0;
  /// The next commit is carried out or not, and its answer is lost.
  virtual void lose_next_commit(bool carried_out) = 0;
  /// Nothing answers from here on, until come_back().
  virtual void go_away() = 0;
  virtual void come_back() = 0;
  /// Simulates that this time has passed since the last heartbeat of all producers, and since they expired.
  virtual void age_producers(std::chrono::milliseconds by) = 0;

  static constexpr const char* kEffect = "INSERT INTO effect (what) VALUES ($1)";
  /// Both refuse it with 42P01.
  static constexpr const char* kRefused = "INSERT INTO no_such_table (what) VALUES ($1)";
};

/// A fixture in memory, and one in PostgreSQL; null without PostgreSQL.
std::unique_ptr<InboxFixture> make_memory_world();
std::unique_ptr<InboxFixture> make_postgres_world();
/// As make_postgres_world(), with an inbox of hash partitions.
std::unique_ptr<InboxFixture> make_partitioned_world();

struct InboxKind {
  const char* name;
  std::unique_ptr<InboxFixture> (*make)();
};
inline void PrintTo(const InboxKind& kind, std::ostream* out) { *out << kind.name; }
/// Both kinds, with their names.
inline auto inbox_kinds() {
  return ::testing::Values(InboxKind{"memory", make_memory_world}, InboxKind{"postgres", make_postgres_world});
}
/// Both kinds, and PostgreSQL again with an inbox of hash partitions.
inline auto all_inbox_kinds() {
  return ::testing::Values(InboxKind{"memory", make_memory_world}, InboxKind{"postgres", make_postgres_world},
                           InboxKind{"postgres_in_partitions", make_partitioned_world});
}
inline std::string kind_name(const ::testing::TestParamInfo<InboxKind>& kind) { return kind.param.name; }

class InboxContract : public ::testing::TestWithParam<InboxKind> {
 protected:
  void SetUp() override;
  ports::Store& store() { return world_->store(); }
  /// A fence of a partition that no other owner has claimed.
  Fence claim(std::int32_t partition = 0, const std::string& topic = "payments");
  [[nodiscard]] ports::InboxScope scope(const Fence& fence) const {
    return {handler_, fence, std::chrono::seconds(5), std::chrono::seconds(30)};
  }
  /// Opens a transaction in `session`, and returns a letter for each admission: f(resh), d(uplicate), m(ismatch),
  /// o(utside), n(o session).
  std::string admit(ports::InboxSession& session, const std::vector<std::string>& ids);
  std::string admit(ports::InboxSession& session, const ports::InboxScope& scope,
                    const std::vector<ports::InboxEntry>& entries);
  /// The same for several partitions, by their fences.
  std::string admit_shared(ports::InboxSession& session,
                           const std::vector<std::pair<Fence, std::vector<std::string>>>& shares);
  /// A whole transaction with an effect for each fresh id, named after the id.
  std::string once(const std::vector<std::string>& ids);
  static std::vector<ports::InboxEntry> entries(const std::vector<std::string>& ids);

  std::unique_ptr<InboxFixture> world_;
  HandlerId handler_;
  Fence fence_;
};

}  // namespace turnstile::test
