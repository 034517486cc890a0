#include "limits/limiter_worker.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "limits/limiter_arguments.hpp"
#include "limits/limiter_shares.hpp"
#include "turnstile/error.hpp"
#include "turnstile/log.hpp"
#include "wire/text_rows.hpp"

namespace turnstile::postgres {

namespace {

using namespace std::chrono_literals;

/// How long a limiter whose rows are locked may keep the others waiting, each time that it is tried.
constexpr std::chrono::milliseconds kLockWait = 100ms;
constexpr std::chrono::milliseconds kFirstBackoff = 50ms, kLastBackoff = 1'000ms;
/// How long stop() may take, for any behaviour of the database.
constexpr std::chrono::milliseconds kFarewell = 2'000ms;

std::int64_t number_at(const Result& rows, int row, ViewColumn column) {
  return postgres::number_at(rows, row, static_cast<int>(column));
}
bool is_true(const Result& rows, int row, ViewColumn column) {
  return *PQgetvalue(rows.get(), row, static_cast<int>(column)) == 't';
}

struct LimiterGone {
  std::string why;
};

bool writes(const LimiterErrand& errand) {
  return !errand.give_back.empty() || errand.settle || errand.sweep || errand.take > 0 || errand.waiting > 0 ||
         errand.wait_no_more;
}

/// The slots that a statement granted.
std::vector<Slot> slots_in(const Result& rows) {
  std::vector<Slot> slots;
  for (int row = 0; row < PQntuples(rows.get()); ++row)
    slots.push_back({number_at(rows, row, 0), number_at(rows, row, 1)});
  return slots;
}

}  // namespace

LimiterWorker::LimiterWorker(const PostgresSettings& settings, const LimiterPace& pace, std::string holder,
                             std::shared_ptr<spdlog::logger> logger)
    : settings_(settings),
      pace_(pace),
      holder_(std::move(holder)),
      logger_(std::move(logger)),
      sql_(settings.schema),
      troubles_(logger_) {}

void LimiterWorker::start() {
  speaking_ = std::thread([self = shared_from_this()] { self->speak(); });
  watching_ = std::thread([self = shared_from_this()] { self->watch(); });
}

void LimiterWorker::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    end_at_ = LeaseClock::now() + kFarewell;
  }
  rung_.notify_all();
  clock_changed_.notify_all();
  const auto me = std::this_thread::get_id();
  const bool on_own_thread = me == speaking_.get_id() || me == watching_.get_id();
  for (std::thread* thread : {&speaking_, &watching_}) {
    if (on_own_thread) thread->detach();  // the thread keeps the data that it needs
    else thread->join();
  }
}

std::shared_ptr<LimiterBook> LimiterWorker::open(const std::string& name, std::int64_t limit) {
  std::shared_ptr<LimiterBook> book;
  {
    const std::lock_guard lock(mutex_);
    auto& known = by_name_[name];
    if (!known) known = std::make_shared<LimiterBook>(name, limit, pace_, [this] { ring(); });
    book = known;
  }
  if (book->configured() != limit) {
    throw Error(
        Code::limit_invalid,
        fmt::format(
            "limiter '{}' has a limit of {} and cannot also have {}; set the same limit wherever you name it, or name "
            "another limiter",
            name, book->configured(), limit));
  }
  ring();
  return book;
}

void LimiterWorker::ring() {
  {
    const std::lock_guard lock(mutex_);
    if (has_rung_) return;
    has_rung_ = true;
  }
  rung_.notify_one();
}

LimiterWorker::Books LimiterWorker::books() {
  const std::lock_guard lock(mutex_);
  Books all;
  for (const auto& [name, book] : by_name_) all.push_back(book);
  return all;
}

// --- the clock -------------------------------------------------------------------------------------------------------

void LimiterWorker::watch() {
  for (;;) {
    Time next = Time::max();
    const auto now = LeaseClock::now();
    for (const auto& book : books()) {
      tell_lost(*book, book->expire(now), "their leases ended before PostgreSQL had renewed them");
      next = std::min(next, book->next_deadline());
    }
    std::unique_lock lock(mutex_);
    if (ended_) return;
    if (end_at_ <= now) *cut_ = true;
    else next = std::min(next, end_at_);
    if (socket_ >= 0) {
      // A host that vanished without a FIN would block the other thread for as long as TCP waits.
      if (give_up_at_ <= now) ::shutdown(socket_, SHUT_RDWR);
      else next = std::min(next, give_up_at_);
    }
    // A deadline that is added during the wait lies a lease ahead, so this wait ends before it.
    clock_changed_.wait_until(lock, std::min(next, now + pace_.lease / 8));
  }
}

void LimiterWorker::tell_lost(const LimiterBook& book, std::int64_t in_use, const char* why) {
  if (in_use == 0) return;
  log_error(
      *logger_, Code::permits_lost,
      fmt::format("limiter '{}': {} permits in use were lost: {}; handlers that run under them were asked to stop",
                  book.name(), in_use, why));
}

// --- the database ----------------------------------------------------------------------------------------------------

Time LimiterWorker::due() {
  Time due = Time::max();
  bool counts = false;  // a process without permits lives, too: its values count
  for (const auto& book : books()) {
    due = std::min(due, this->due(*book));
    counts = counts || book->known();
  }
  if (counts) due = all_anew_ ? Time{} : std::min(due, renewed_at_ + pace_.lease / 4);
  return std::max(due, retry_at_);
}

Time LimiterWorker::due(const LimiterBook& book) const {
  const Time due = undeclared_.contains(&book) ? Time{} : book.due();
  return std::max(due, troubles_.retry_at(book));
}

bool LimiterWorker::is_renewal_due() const { return all_anew_ || LeaseClock::now() >= renewed_at_ + pace_.lease / 4; }

void LimiterWorker::speak() {
  for (;;) {
    const auto next = due();
    {
      std::unique_lock lock(mutex_);
      const auto wakes = [&] { return has_rung_ || stopping_; };
      if (next == Time::max()) rung_.wait(lock, wakes);
      else if (next > LeaseClock::now()) rung_.wait_until(lock, next, wakes);
      has_rung_ = false;
      if (stopping_) break;
    }
    if (LeaseClock::now() >= due()) round();
    else if (retry_at_ > LeaseClock::now()) {
      // Rung in the meantime, but the database is unavailable: many threads ring.
      std::unique_lock lock(mutex_);
      rung_.wait_until(lock, retry_at_, [&] { return stopping_; });
    }
  }
  leave();
  disconnect();
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  clock_changed_.notify_all();
}

void LimiterWorker::round() {
  const auto all = books();
  try {
    connect();
    const auto now = LeaseClock::now();
    if (is_renewal_due()) renew();
    for (const auto& book : all) {
      if (due(*book) <= now) attend(*book);
      if (is_renewal_due()) renew();  // no limiter costs the others their leases
    }
    answered();
  } catch (const ConnectionLost& lost) {
    disconnect();
    failed(Code::store_unavailable, "lost the connection: " + describe(lost.last_words));
  } catch (const StoreBusy& busy) {
    // The renewal was rolled back, by a deadlock or a lock timeout: repeat it.
    all_anew_ = true;
    retry_at_ = LeaseClock::now() + pace_.poll;
    not_renewed(busy.what());
  } catch (const std::exception& error) {
    disconnect();
    failed(code_of(error), error.what());
  }
}

/// What concerns one limiter ends here. Throws what concerns all.
void LimiterWorker::attend(LimiterBook& book) {
  const auto sent = LeaseClock::now();
  try {
    visit(book);
    troubles_.succeeded(book);
    return;
  } catch (const StoreFailed& failed) {
    troubles_.rejected(book, failed.code(), failed.what());
  } catch (const StoreBusy& busy) {
    troubles_.locked_out(book, sent, settings_.lock_timeout, busy.what());
  } catch (const LimiterGone& gone) {
    troubles_.rejected(book, Code::limiter_unknown, gone.why);
  }
  all_anew_ = true;  // permits that it should have returned
}

void LimiterWorker::not_renewed(const char* why) {
  if (told_not_renewed_ || LeaseClock::now() - renewed_at_ < settings_.lock_timeout) return;
  told_not_renewed_ = true;
  log_warning(
      *logger_, Code::store_busy,
      fmt::format("limiters: another session has locked rows of PostgreSQL's limits, and permits are not renewed. "
                  "Those that are held end with their leases of {} ms: {}",
                  pace_.lease.count(), why));
}

void LimiterWorker::connect() {
  if (link_) return;
  all_anew_ = true;
  auto link = std::make_unique<Link>(settings_, cut_);
  link->limit_lock_waits(longest_lock_wait(), answer_within(settings_, {}));
  link_ = std::move(link);
}

void LimiterWorker::disconnect() noexcept {
  link_.reset();
  all_anew_ = true;
}

void LimiterWorker::failed(Code code, const std::string& why) {
  backoff_ = std::clamp(2 * backoff_, kFirstBackoff, kLastBackoff);
  retry_at_ = LeaseClock::now() + backoff_;
  if (away_) return;
  away_ = true;
  log_error(
      *logger_, code,
      fmt::format("limiters: PostgreSQL ({}) cannot be used. No new permits are given until it can, and those that are "
                  "held end with their leases of {} ms: {}",
                  describe_target(settings_), pace_.lease.count(), why));
}

void LimiterWorker::answered() {
  backoff_ = {};
  retry_at_ = {};
  if (!away_) return;
  away_ = false;
  logger_->info("limiters: PostgreSQL answers again, and permits are given again");
}

std::chrono::milliseconds LimiterWorker::longest_lock_wait() const {
  return std::min(settings_.lock_timeout, pace_.lease / 4);
}

/// Runs the statements that `fill` queues as one transaction. Without `lock_wait` they lock nothing. Throws
/// ConnectionLost, StoreBusy, StoreUnavailable.
template <class Fill>
std::vector<Result> LimiterWorker::ask(Fill fill, std::optional<std::chrono::milliseconds> lock_wait) {
  Pipeline& pipeline = link_->pipeline;
  pipeline.drop_unsent();
  pipeline.next_transaction();
  if (lock_wait) {
    pipeline.arguments().add_int(lock_wait->count());
    pipeline.add(sql_.lock_timeout, kCaller);
  }
  fill(pipeline);
  {
    const std::lock_guard lock(mutex_);
    socket_ = PQsocket(link_->connection.raw());
    give_up_at_ = LeaseClock::now() + pace_.lease / 2;
  }
  Answers answers;
  const auto no_more_waiting = [&] {
    const std::lock_guard lock(mutex_);
    socket_ = -1;
  };
  try {
    pipeline.finish(answers);
  } catch (...) {
    no_more_waiting();
    throw;
  }
  no_more_waiting();
  if (!answers.failure) return std::move(answers.kept);
  if (answers.failure->stale_plan) throw StoreBusy(describe(answers.failure->error));
  throw_store_error(answers.failure->error, settings_.schema, link_->connection.user());
}

/// Renews this process and all permits that it holds. Permits that it does not know are returned.
void LimiterWorker::renew() {
  Holdings held, kept;
  std::vector<std::pair<std::shared_ptr<LimiterBook>, std::vector<Slot>>> asked;
  for (const auto& book : books()) {
    const auto view = book->known();
    if (!view) continue;
    auto slots = book->held();
    held.add(view->id, slots);
    kept.add(view->id, slots);
    kept.add(view->id, book->overstaying());
    asked.emplace_back(book, std::move(slots));
  }
  const auto sent = LeaseClock::now();
  const auto kept_rows = ask(
      [&](Pipeline& pipeline) {
        if (all_anew_) pipeline.add(sql_.forget, kCaller);
        queue_life(pipeline);
        held.write(pipeline.arguments());
        pipeline.arguments().add_text(holder_);
        pipeline.arguments().add_int(micros(pace_.lease));
        pipeline.add(sql_.renew, kCaller, Pipeline::Keep::text);
        kept.write(pipeline.arguments());
        pipeline.arguments().add_text(holder_);
        pipeline.add(sql_.keep_only, kCaller);
        pipeline.arguments().add_text(holder_);
        pipeline.add(sql_.values, kCaller, Pipeline::Keep::text);
      },
      longest_lock_wait());
  std::set<std::int64_t> declared;
  for (int row = 0; row < PQntuples(kept_rows[1].get()); ++row) declared.insert(number_at(kept_rows[1], row, 0));
  std::map<std::int64_t, std::vector<Slot>> renewed;
  for (int row = 0; row < PQntuples(kept_rows[0].get()); ++row) {
    renewed[number_at(kept_rows[0], row, 0)].push_back(
        {number_at(kept_rows[0], row, 1), number_at(kept_rows[0], row, 2)});
  }
  for (const auto& [book, slots] : asked) {
    const auto id = book->known()->id;
    tell_lost(*book, book->renewed(slots, renewed[id], sent), "their leases are over in PostgreSQL");
    if (!declared.contains(id)) undeclared_.insert(book.get());
  }
  renewed_at_ = sent;
  told_not_renewed_ = false;
  all_anew_ = false;
}

/// One transaction: the errand's statements, and then the limiter as it is.
void LimiterWorker::visit(LimiterBook& book) {
  const auto known = book.known();
  const bool declares = !known || undeclared_.contains(&book);
  const LimiterErrand errand = book.errand(LeaseClock::now());
  const auto sent = LeaseClock::now();
  std::vector<Result> kept;
  try {
    kept = ask(
        [&](Pipeline& pipeline) {
          if (declares) queue_declaration(pipeline, book);
          else if (errand.settle) queue_settling(pipeline, book);
          queue_errand(pipeline, known, errand);
          pipeline.arguments().add_text(book.name());
          pipeline.add(sql_.view, kCaller, Pipeline::Keep::text);
        },
        declares || writes(errand) ? std::optional(std::min(longest_lock_wait(), kLockWait)) : std::nullopt);
  } catch (...) {
    book.undone(errand);
    throw;
  }
  if (PQntuples(kept.back().get()) == 0) {
    book.undone(errand);
    throw LimiterGone{
        fmt::format("it was deleted from the schema {} while in use; restart the program", settings_.schema)};
  }
  undeclared_.erase(&book);
  const LimiterView view = read_view(book, kept.back());
  tell_change(book, view);
  book.done(errand, errand.take > 0 ? slots_in(kept.front()) : std::vector<Slot>{}, sent, view);
  clock_changed_.notify_one();
}

LimiterView LimiterWorker::read_view(LimiterBook& book, const Result& rows) {
  LimiterView view;
  view.id = number_at(rows, 0, ViewColumn::id);
  view.version = number_at(rows, 0, ViewColumn::version);
  view.limit = number_at(rows, 0, ViewColumn::limit);
  view.ordered = is_true(rows, 0, ViewColumn::ordered);
  view.overdue = is_true(rows, 0, ViewColumn::overdue);
  view.unsettled = is_true(rows, 0, ViewColumn::unsettled);
  view.free = view.limit;
  std::vector<LimiterMember> members;
  LimiterMember me;
  me.me = true;
  me.waiting = book.wanted();
  for (int row = 0; row < PQntuples(rows.get()); ++row) {
    if (PQgetisnull(rows.get(), row, static_cast<int>(ViewColumn::holder))) continue;
    LimiterMember member;
    member.me = PQgetvalue(rows.get(), row, static_cast<int>(ViewColumn::holder)) == holder_;
    member.held = number_at(rows, row, ViewColumn::held);
    member.held_for = std::chrono::microseconds(number_at(rows, row, ViewColumn::held_us));
    member.waiting = number_at(rows, row, ViewColumn::waiting);
    member.waited_for = std::chrono::microseconds(number_at(rows, row, ViewColumn::waited_us));
    view.free -= member.held;
    if (member.me) {
      member.waiting = me.waiting;
      if (book.is_turn_over()) member.waited_for = {};
      me = member;
    } else {
      view.rivals = view.rivals || member.waiting > 0;
      members.push_back(member);
    }
  }
  members.push_back(me);
  view.share = fair_share(view.limit, members, pace_.turn());
  return view;
}

void LimiterWorker::tell_change(const LimiterBook& book, const LimiterView& view) {
  const auto before = book.known();
  if (before ? before->limit == view.limit : view.limit == book.configured()) return;
  logger_->info("limiter '{}': the limit is {}{}{}", book.name(), view.limit,
                view.ordered ? ", set by an operator" : ", the lowest value that a live process is configured with",
                view.limit == 0 ? ": paused, nothing starts until it is raised"
                                : fmt::format(" (this one is configured with {})", book.configured()));
}

void LimiterWorker::leave() noexcept {
  if (!link_ || away_) return;
  try {
    const Holdings nothing;
    ask(
        [&](Pipeline& pipeline) {
          nothing.write(pipeline.arguments());
          pipeline.arguments().add_text(holder_);
          pipeline.add(sql_.keep_only, kCaller);
          pipeline.arguments().add_text(holder_);
          pipeline.add(sql_.leave, kCaller);
          pipeline.arguments().add_text(holder_);
          pipeline.add(sql_.end, kCaller);
        },
        longest_lock_wait());
  } catch (...) {
    // The permits return with their leases.
  }
}

}  // namespace turnstile::postgres
