// The caller's view of a token domain: turnstile/tokens.hpp over a DomainMember.

#include <memory>
#include <string>

#include "permits/token_domain.hpp"
#include "turnstile/log.hpp"

namespace turnstile {

namespace {

/// The handle of the callers. A limiter keeps it alive, and so does a permit. The member leaves the domain when the
/// last reference is dropped.
class DomainHandle final : public TokenDomain, public std::enable_shared_from_this<DomainHandle> {
 public:
  explicit DomainHandle(std::shared_ptr<detail::DomainMember> member) : member_(std::move(member)) { member_->start(); }
  ~DomainHandle() override { member_->stop(); }
  DomainHandle(const DomainHandle&) = delete;
  DomainHandle& operator=(const DomainHandle&) = delete;

  std::shared_ptr<ports::Limiter> open(const std::string& name, std::int64_t limit) override {
    return member_->open(name, limit, true, shared_from_this());
  }
  std::shared_ptr<ports::Limiter> open_for_partitions(const std::string& name, std::int64_t limit) override {
    return member_->open(name, limit, false, shared_from_this());
  }
  void on_claimed(const std::string& group, const std::string& store, const TopicPartition& at, Epoch epoch) override {
    member_->on_claimed(group, store, at, epoch);
  }
  void wait_until_claimed() override { member_->wait_until_claimed(); }
  void on_revoked(const std::string& group, std::span<const TopicPartition> partitions) override {
    member_->on_revoked(group, partitions);
  }
  PermitsView permits() const override { return member_->permits(); }
  bool set_limit(const std::string& limiter, std::optional<std::int64_t> limit,
                 std::chrono::milliseconds timeout) override {
    return member_->set_limit(limiter, limit, timeout);
  }
  bool wait_until_joined(std::chrono::milliseconds timeout) override { return member_->wait_until_joined(timeout); }
  std::string halted() const override { return member_->halted(); }
  LimitersHealth health() const override { return member_->health(); }
  std::optional<ports::TokenLogState> log() const override { return member_->log_state(); }

 private:
  const std::shared_ptr<detail::DomainMember> member_;
};

}  // namespace

std::shared_ptr<TokenDomain> join_token_domain(std::unique_ptr<ports::TokenLog> log, const TokenSettings& settings,
                                               std::shared_ptr<spdlog::logger> logger) {
  if (!logger) logger = make_logger({});
  return std::make_shared<DomainHandle>(
      std::make_shared<detail::DomainMember>(std::move(log), settings, std::move(logger)));
}

}  // namespace turnstile
