// The cost of the token log: members with a virtual clock, on a log that is read at once. Their demand changes all the
// time.
//  --members 64 --limiters 8 --each 8 --seconds 30 --changes 100 [--lease-ms 10000] [--apply 0]
//  --each     limiters that a member uses
//  --changes  of demand, in a second, of all members
//  --apply    then applies this many events of as many members whose demand always changes, and reports the speed

#include <chrono>
#include <random>
#include <vector>

#include "tests/bench/bench_common.hpp"
#include "tokens/member.hpp"
#include "tokens/wire.hpp"

namespace {

using namespace turnstile::tokens;

constexpr Micros kTick = 50'000;

class Domain {
 public:
  Domain(std::int64_t members, std::int64_t limiters, std::int64_t each, std::int64_t lease_ms) : each_(each) {
    for (std::int64_t i = 0; i < members; ++i) {
      MemberSettings settings;
      settings.about = {.host = "host-" + std::to_string(i),
                        .pid = 1,
                        .client = "client",
                        .lease_ms = static_cast<std::uint32_t>(lease_ms),
                        .weight = 1,
                        .knows = 1,
                        .was = {},
                        .knows_rest = true};
      settings.next_id = [this] { return random_() | 1; };
      Seat& seat = seats_.emplace_back(Member(settings), std::vector<std::string>{}, std::vector<Held>(each_));
      for (std::int64_t k = 0; k < each; ++k) {
        seat.limiters.push_back("limiter-" + std::to_string((i * each + k) % limiters));
        seat.member.declare(seat.limiters.back(), static_cast<Count>(members), false);
      }
    }
  }

  void run(std::int64_t seconds, std::int64_t changes) {
    for (Micros end = now_ + seconds * 1'000'000; now_ < end; now_ += kTick) {
      for (due_ += changes * kTick; due_ >= 1'000'000; due_ -= 1'000'000) change();
      // Keeps are spread over the lease, as those of processes that were started one after another.
      for (std::size_t i = 0; i < seats_.size(); ++i) {
        if (now_ >= static_cast<Micros>(i) * 2'500'000 / static_cast<Micros>(seats_.size())) step(seats_[i]);
      }
    }
  }
  void start_counting() { counted_from_ = log_.size(), bytes_ = 0, apply_ns_ = 0, read_ns_ = 0; }

  [[nodiscard]] const std::vector<Event>& log() const { return log_; }
  [[nodiscard]] std::int64_t events() const { return static_cast<std::int64_t>(log_.size() - counted_from_); }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// The time to decode and apply, which each member needs for each event.
  [[nodiscard]] double apply_us() const { return static_cast<double>(apply_ns_) / 1e3 / static_cast<double>(events()); }
  /// The time that a member needs after that.
  [[nodiscard]] double read_us() const {
    return static_cast<double>(read_ns_) / 1e3 / static_cast<double>(events()) / static_cast<double>(seats_.size());
  }
  [[nodiscard]] std::int64_t joined() const { return static_cast<std::int64_t>(state_.members.size()); }

 private:
  struct Held {
    Demand demand;
    Count given_back = 0;
    Count granted = 0;
  };
  struct Seat {
    Member member;
    std::vector<std::string> limiters;
    std::vector<Held> held;
  };

  void change() {
    Seat& seat = seats_[random_() % seats_.size()];
    const auto which = random_() % static_cast<std::uint64_t>(each_);
    Held& held = seat.held[which];
    held.demand.wants = random_() % 8;
    held.demand.busy = std::min(held.demand.busy, held.demand.wants);
    seat.member.demand(seat.limiters[which], held.demand);
    step(seat);
  }

  void step(Seat& seat) {
    seat.member.tick(state_, now_);
    obey(seat);
    for (const Event& event : seat.member.take_events()) write(event);
  }

  /// A pool that returns permits at once.
  void obey(Seat& seat) {
    for (const Order& order : seat.member.take_orders()) {
      if (order.kind != Order::Kind::surrender) continue;
      seat.member.given_back(order.limiter, order.total);
    }
  }

  void write(const Event& event) {
    const std::string bytes = encode(event);
    bytes_ += static_cast<std::int64_t>(bytes.size());
    const Position position = state_.last + 1;
    const std::int64_t start_ns = bench::now_ns();
    const Event read = decode(bytes);
    const Effects effects = apply(state_, position, read);
    const std::int64_t applied_ns = bench::now_ns();
    for (Seat& seat : seats_) seat.member.read(state_, position, read, effects, now_);
    apply_ns_ += applied_ns - start_ns;
    read_ns_ += bench::now_ns() - applied_ns;
    for (Seat& seat : seats_) obey(seat);
    log_.push_back(event);
  }

  const std::int64_t each_;
  std::mt19937_64 random_{1};
  Micros now_ = 1'000'000;
  std::int64_t due_ = 0;  ///< changes, in millionths
  State state_;
  std::vector<Seat> seats_;
  std::vector<Event> log_;
  std::size_t counted_from_ = 0;
  std::int64_t bytes_ = 0, apply_ns_ = 0, read_ns_ = 0;
};

/// Every event changes a member's demand for a limiter, and returns its surplus: none is a Keep without news.
std::vector<Event> busy_log(std::int64_t members, std::int64_t size) {
  std::mt19937_64 random(1);
  std::vector<Event> log;
  State state;
  const auto write = [&](const Event& event) {
    log.push_back(event);
    apply(state, state.last + 1, event);
  };
  std::vector<std::uint64_t> seq(static_cast<std::size_t>(members), 1);
  const auto id = [](std::size_t member) { return static_cast<MemberId>(member + 1); };
  for (std::size_t m = 0; m < seq.size(); ++m)
    write({.member = id(m), .epoch = 1, .seq = 1, .body = Joined{"host", 1, "client", 10'000, 1, 1}});
  while (log.size() < static_cast<std::size_t>(size)) {
    const std::size_t m = random() % seq.size();
    const Holding* holding = state.holding("psp", id(m));
    const Count held = holding == nullptr ? 0 : holding->held(), back = holding == nullptr ? 0 : holding->given_back;
    Line line{.limiter = "psp", .limit = 16, .wants = random() % 8};
    line.given_back = back + held - std::min(held, line.wants);
    const Event event{.member = id(m), .epoch = 1, .seq = ++seq[m], .body = {}};
    write({event.member, event.epoch, event.seq,
           line.wants > held ? decltype(Event::body){Acquire{line}} : decltype(Event::body){Release{line}}});
  }
  return log;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  const std::int64_t members = args.number("members", 64), limiters = args.number("limiters", 8);
  const std::int64_t each = args.number("each", 8), seconds = args.number("seconds", 30);
  const std::int64_t changes = args.number("changes", 100), lease_ms = args.number("lease-ms", 10'000);
  const std::int64_t wanted = args.number("apply", 0);
  args.done();
  Domain domain(members, limiters, each, lease_ms);
  domain.run(5, 0);
  if (domain.joined() != members) bench::die(std::to_string(domain.joined()) + " members joined");
  domain.start_counting();
  domain.run(seconds, changes);
  if (domain.joined() != members) bench::die(std::to_string(domain.joined()) + " members are left");

  bench::Report report("core_tokens");
  report.add("members", members).add("limiters", limiters).add("each", each).add("changes", changes);
  const auto per_second = [&](std::int64_t count) { return static_cast<double>(count) / static_cast<double>(seconds); };
  report.add("events_per_s", per_second(domain.events())).add("bytes_per_s", per_second(domain.bytes()));
  report.add("apply_us", domain.apply_us()).add("read_us", domain.read_us());
  if (wanted > 0) {
    const std::vector<Event> busy = busy_log(members, wanted);
    State state;
    const std::int64_t start_ns = bench::now_ns();
    for (const Event& event : busy) apply(state, state.last + 1, event);
    const auto took_ns = static_cast<double>(bench::now_ns() - start_ns);
    if (state.ignored > 0) bench::die(std::to_string(state.ignored) + " events were ignored");
    report.add("applied", wanted).add("apply_rate", static_cast<double>(wanted) * 1e9 / took_ns);
  }
  report.print();
  return 0;
}
