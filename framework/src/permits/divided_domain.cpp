#include "permits/divided_domain.hpp"

#include <algorithm>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "permits/permits_view.hpp"
#include "support/deadline.hpp"
#include "support/process_name.hpp"
#include "tokens/parts.hpp"
#include "turnstile/log.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;

/// How often the mover looks while something has to move, and while a part cannot be opened.
constexpr milliseconds kLookAgain{200};
/// How long a rebalance waits for the claims of its partitions to be read back from all parts.
constexpr milliseconds kLongestClaim{10'000};

std::string text_of_unopened(std::uint32_t part, const std::string& why) {
  return "part " + std::to_string(part) +
         " of the token log could not be opened, so no handler starts under the limits that live there; retrying: " +
         why;
}

}  // namespace

DividedDomain::DividedDomain(TokenLogParts open_log, const TokenSettings& settings,
                             std::shared_ptr<spdlog::logger> logger, DomainEnvironment environment, Hands hands)
    : open_log_(std::move(open_log)),
      settings_(settings),
      logger_(std::move(logger)),
      environment_(std::move(environment)),
      hands_(std::move(hands)),
      run_log_(logger_, own_name(settings.client.substr(0, tokens::kLongestName))),
      first_(std::make_shared<DomainMember>(open_log_(0), settings_, logger_, environment_)) {
  wake_up_->attach(*this);
  first_->on_moved([wake_up = wake_up_] { wake_up->call([](DividedDomain& self) { self.look_soon(); }); });
  first_->on_halted([wake_up = wake_up_] { wake_up->call([](DividedDomain& self) { self.halt_all(); }); });
  if (hands_.start) hands_.start(*first_, 0);
  else first_->start();
}

DividedDomain::~DividedDomain() {
  wake_up_->detach();
  mover_.stop();
  if (hands_.start) return;
  const Members all = members();
  for (const auto& member : all) member->request_stop();
  for (const auto& member : all) member->stop();
}

DividedDomain::Members DividedDomain::members() const {
  const std::lock_guard lock(mutex_);
  Members all{first_};
  for (const auto& [part, member] : others_) all.push_back(member);
  return all;
}

DividedDomain::Member DividedDomain::known(Part part) const {
  const std::lock_guard lock(mutex_);
  const auto found = others_.find(part);
  return found == others_.end() ? nullptr : found->second;
}

void DividedDomain::look_soon() { hands_.move_soon ? hands_.move_soon() : mover_.wake(); }

// --- opening ---------------------------------------------------------------------------------------------------------

/// The opening in progress, or a new one. Its thread owns all that it uses: if a broker does not answer, it can outlast
/// the domain, and what it has opened is dropped.
std::shared_future<DividedDomain::Member> DividedDomain::opening_of(Part part) {
  auto first = first_->first_state_of(part);
  std::unique_lock lock(mutex_);
  if (const auto found = others_.find(part); found != others_.end()) {
    std::promise<Member> opened;
    opened.set_value(found->second);
    return opened.get_future().share();
  }
  Opening& opening = openings_[part];
  if (opening.member.valid()) return opening.member;
  auto open = [part, first = std::move(first), open_log = open_log_, settings = settings_, logger = logger_,
               environment = environment_, wake_up = wake_up_] {
    try {
      auto member = std::make_shared<DomainMember>(open_log(part), settings, logger, environment, first);
      wake_up->call([&](DividedDomain& self) { self.enter(part, member); });
      return member;
    } catch (const std::exception& error) {
      wake_up->call(
          [&](DividedDomain& self) { self.fail(part, code_of(error, Code::kafka_unavailable), error.what()); });
      throw;
    } catch (...) {
      wake_up->call([&](DividedDomain& self) { self.fail(part, Code::kafka_unavailable, "an unknown exception"); });
      throw;
    }
  };
  const auto task = std::make_shared<std::packaged_task<Member()>>(std::move(open));
  auto member = opening.member = task->get_future().share();
  lock.unlock();
  if (hands_.start) {
    (*task)();
    return member;
  }
  try {
    std::thread([task] { (*task)(); }).detach();
  } catch (const std::system_error&) {
    (*task)();  // the system has no thread left
  }
  return member;
}

/// Its claims come before its limiters, so that no permit is granted to it before the part knows them.
void DividedDomain::enter(Part part, const Member& member) {
  member->on_halted([wake_up = wake_up_] { wake_up->call([](DividedDomain& self) { self.halt_all(); }); });
  {
    const std::lock_guard claims(claims_mutex_);
    for (const auto& [claim, by] : claims_) member->on_claimed(claim.first, by.first, claim.second, by.second);
    if (hands_.start) hands_.start(*member, part);
    else member->start();
    const std::lock_guard lock(mutex_);
    others_[part] = member;
    openings_.erase(part);
  }
  halt_all();  // another member may have halted before this one was known
  look_soon();
}

void DividedDomain::fail(Part part, Code code, const std::string& why) {
  const std::lock_guard lock(mutex_);
  Opening& opening = openings_[part];
  opening.member = {};
  opening.code = code;
  opening.failure = why;
}

/// Opens the part if it is not open. Throws why it cannot be opened. Null: it was not opened in time.
DividedDomain::Member DividedDomain::member_of(Part part, std::optional<std::chrono::steady_clock::time_point> until) {
  if (auto member = known(part)) return member;
  const auto opening = opening_of(part);
  if (until && opening.wait_until(*until) == std::future_status::timeout) return nullptr;
  return opening.get();
}

// --- halts -----------------------------------------------------------------------------------------------------------

/// A part whose log was deleted, created and divided again is not told from its old one by a process that has opened it
/// already, or that opens it. So nothing starts any more in any part, and nothing is opened. Returns whether a member has
/// halted.
bool DividedDomain::halt_all() const {
  const std::string why = halted();
  if (why.empty()) return false;
  for (const auto& member : members()) member->request_halt(why);
  return true;
}

void DividedDomain::must_not_be_halted() const {
  if (first_->parts() == 1) return;  // then nothing is opened elsewhere
  if (const std::string why = halted(); !why.empty()) throw Error(Code::member_halted, why);
}

// --- the mover -------------------------------------------------------------------------------------------------------

/// Under routes_. The limiters of this process that have left part 0 and live in this part.
void DividedDomain::adopt(Part home, DomainMember& member) {
  arriving_.merge(first_->take_moved());
  NamedLimiters same;
  for (auto at = arriving_.begin(); at != arriving_.end();) {
    const auto next = std::next(at);
    if (at->second.home == home) same.insert(arriving_.extract(at));
    at = next;
  }
  if (!same.empty()) member.adopt(std::move(same));
}

/// Returns whether all limiters that have left part 0 have a new member.
bool DividedDomain::move_limiters() {
  std::set<Part> homes;
  {
    const std::lock_guard routes(routes_);
    arriving_.merge(first_->take_moved());
    for (const auto& [name, named] : arriving_) homes.insert(named.home);
  }
  bool all = true;
  for (const Part home : homes) {
    auto member = known(home);
    if (!member) {
      (void)opening_of(home);
      member = known(home);
    }
    all = all && member;
    const std::lock_guard routes(routes_);
    if (member) adopt(home, *member);
  }
  const std::lock_guard lock(mutex_);
  for (const Part home : homes) {
    const auto opening = openings_.find(home);
    if (opening == openings_.end()) continue;
    auto& [opens, code, failure, is_told] = opening->second;
    if (!failure.empty() && !std::exchange(is_told, true)) run_log_.warn(code, text_of_unopened(home, failure));
  }
  return all;
}

bool DividedDomain::move() {
  if (halt_all()) return false;
  bool again = !move_limiters();
  std::map<Part, Member> others;
  {
    const std::lock_guard lock(mutex_);
    others = others_;
  }
  std::shared_ptr<const tokens::Openings> openings;
  for (const auto& [part, member] : others) {
    if (!member->is_closed()) continue;
    again = true;
    if (!openings) openings = first_->openings();
    if (const auto opened = openings->find(part); opened != openings->end()) member->open_part(opened->second);
  }
  return again;
}

PeriodicThread::Time DividedDomain::step() {
  return move() ? PeriodicThread::after(kLookAgain) : PeriodicThread::kWhenWoken;
}

// --- limiters --------------------------------------------------------------------------------------------------------

std::shared_ptr<ports::Limiter> DividedDomain::open(const std::string& name, std::int64_t limit) {
  return open(name, limit, true);
}

std::shared_ptr<ports::Limiter> DividedDomain::open_for_partitions(const std::string& name, std::int64_t limit) {
  return open(name, limit, false);
}

std::shared_ptr<ports::Limiter> DividedDomain::open(const std::string& name, std::int64_t limit, bool outlives_fence) {
  const auto look = [self = shared_from_this(), name, limit] { return self->state_of(name, limit); };
  must_not_be_halted();
  if (auto limiter = first_->open(name, limit, outlives_fence, look)) return limiter;
  // It is not used in part 0, so it is new, or has left it.
  const Part home = tokens::part_of(name, first_->parts());
  const auto member = member_of(home);
  const std::lock_guard routes(routes_);
  must_not_be_halted();
  adopt(home, *member);
  auto limiter = member->open(name, limit, outlives_fence, look);
  if (member->is_closed()) look_soon();
  return limiter;
}

ports::LimiterState DividedDomain::state_of(const std::string& name, std::int64_t configured) const {
  const auto member = known(tokens::part_of(name, first_->parts()));
  return member && member->uses(name) ? member->state_of(name, configured) : first_->state_of(name, configured);
}

bool DividedDomain::set_limit(const std::string& limiter, std::optional<std::int64_t> limit, milliseconds timeout) {
  const auto until = deadline_after(timeout);
  must_not_be_halted();
  if (first_->parts() == 1) {
    if (const auto done = first_->set_limit(limiter, limit, timeout)) return *done;
  }
  const auto member = member_of(tokens::part_of(limiter, first_->parts()), until);
  if (!member) return false;
  must_not_be_halted();
  if (const std::string why = member->halted(); !why.empty()) throw Error(Code::member_halted, why);
  if (member->is_closed()) look_soon();
  return member->set_limit(limiter, limit, time_left(until)).value_or(false);
}

// --- partitions ------------------------------------------------------------------------------------------------------

/// To all parts that this process has joined: their previous owner may have permits in each.
void DividedDomain::on_claimed(const std::string& group, const std::string& store, const TopicPartition& at,
                               Epoch epoch) {
  const std::lock_guard claims(claims_mutex_);
  claims_[{group, at}] = {store, epoch};
  for (const auto& member : members()) member->on_claimed(group, store, at, epoch);
}

void DividedDomain::wait_until_claimed() {
  const auto until = deadline_after(kLongestClaim);
  for (const auto& member : members()) member->wait_until_claimed(until);
}

void DividedDomain::on_revoked(const std::string& group, std::span<const TopicPartition> partitions) {
  const std::lock_guard claims(claims_mutex_);
  for (const auto& at : partitions) claims_.erase({group, at});
  for (const auto& member : members()) member->on_revoked(group, partitions);
}

// --- the domain ------------------------------------------------------------------------------------------------------

bool DividedDomain::wait_until_joined(milliseconds timeout) {
  const auto until = deadline_after(timeout);
  const Members all = members();
  return std::all_of(all.begin(), all.end(),
                     [&](const auto& member) { return member->wait_until_joined(time_left(until)); });
}

PermitsView DividedDomain::permits() const {
  const Members all = members();
  std::vector<PartView> views;
  for (const auto& member : all) views.push_back(member->permits());
  return merged(std::move(views));
}

/// A part that rejected this process concerns only the limiters that live there.
std::string DividedDomain::halted() const {
  for (const auto& member : members()) {
    if (std::string why = member->why_all_must_halt(); !why.empty()) return why;
  }
  return {};
}

/// The worst of all members, and of the parts that it cannot join.
LimitersHealth DividedDomain::health() const {
  LimitersHealth worst;
  for (const auto& member : members()) {
    LimitersHealth health = member->health();
    if (health.state == LimitersHealth::State::halted && member->why_all_must_halt().empty())
      health.state = LimitersHealth::State::cut_off;
    if (health.state > worst.state) worst = std::move(health);
  }
  if (worst.state != LimitersHealth::State::working) return worst;
  if (std::string why = why_unopened(); !why.empty()) return {LimitersHealth::State::cut_off, std::move(why)};
  return worst;
}

/// Why a part with limiters of this process cannot be opened. Empty: each can.
std::string DividedDomain::why_unopened() const {
  std::set<Part> homes;
  {
    const std::lock_guard routes(routes_);
    for (const auto& [name, named] : arriving_) homes.insert(named.home);
  }
  const std::lock_guard lock(mutex_);
  for (const Part home : homes) {
    const auto opening = openings_.find(home);
    if (opening != openings_.end() && !opening->second.failure.empty())
      return text_of_unopened(home, opening->second.failure);
  }
  return {};
}

std::optional<ports::TokenLogState> DividedDomain::log() const {
  const Members all = members();
  std::optional<ports::TokenLogState> whole;
  for (const auto& member : all) {
    const auto one = member->log_state();
    if (!one) continue;
    if (!whole) {
      whole = one;
      continue;
    }
    whole->available = whole->available && one->available;
    whole->lease_left = std::min(whole->lease_left, one->lease_left);
    if (one->unread) whole->unread = whole->unread.value_or(0) + *one->unread;
    whole->quiet = std::max(whole->quiet, one->quiet);
    whole->epochs += one->epochs;
  }
  return whole;
}

}  // namespace turnstile::detail
