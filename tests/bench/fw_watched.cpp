// One of several processes to look at with `turnstile top`. The handlers of each topic need a limiter, and threads take
// and release permits of the other limiters. It runs until SIGTERM, and prints "ready" once each limiter has granted a
// permit.
//   --brokers B --topics T,… --group G --postgres URL --schema S [--limiters 50 | --names N,…] [--limit 4] [--ms 100]
//   [--client turnstile]
//   --limiters  how many; --names gives their names instead. The first ones are those of the topics
//   --ms        how long a handler sleeps, and how long a thread holds its permit
//   --client    the name of the process

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/fw_common.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/token_service.hpp"

namespace {

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace turnstile;
  using namespace std::chrono_literals;
  bench::Args args(argc, argv);
  Config config = bench::plain_config(args.text("brokers"), "unused");
  config.kafka["group.id"] = args.text("group");
  config.kafka["client.id"] = args.text("client", "turnstile");
  const std::string postgres = args.text("postgres"), schema = args.text("schema");
  config.postgres = bench::postgres_settings(postgres, schema);
  const auto topics = parts_of(args.text("topics"));
  auto names = parts_of(args.text("names", ""));
  const std::int64_t limiters = args.number("limiters", 50), at_once = args.number("limit", 4);
  for (std::int64_t n = 1; args.text("names", "").empty() && n <= limiters; ++n)
    names.push_back((n < 10 ? "limiter-0" : "limiter-") + std::to_string(n));
  if (topics.size() > names.size()) bench::die("each topic needs a limiter");
  const std::chrono::milliseconds each(args.number("ms", 100));
  args.done();

  const auto logger = make_logger({"warn", "text"});
  TokenSettings settings;
  settings.client = config.kafka.at("client.id");
  const auto domain = kafka::open_limiters(config.kafka, {.name = args.text("group") + ".tokens"}, settings, logger);
  if (!domain->wait_until_joined(30s)) bench::die("not joined within 30 s");
  Backends backends;
  backends.broker = kafka::open_broker(config.kafka, logger);
  backends.limiters = domain;
  backends.store = postgres::open_store(*config.postgres);

  std::atomic<std::size_t> granted{0};
  const auto now_granted = [&] {
    if (++granted == names.size()) {
      std::puts("ready");
      std::fflush(stdout);
    }
  };
  Consumer app(config, backends);
  for (std::size_t i = 0; i < topics.size(); ++i) {
    Pipeline pipeline([&, handled = std::make_shared<std::atomic<bool>>(false)](const Message&) {
      if (!handled->exchange(true)) now_granted();
      std::this_thread::sleep_for(each);
    });
    ordered_by(Order::none).decorate(pipeline);
    limit(names[i], at_once).decorate(pipeline);
    transactional().decorate(pipeline);
    app.topic(topics[i], std::move(pipeline));
  }

  TokenService tokens(domain);
  std::vector<std::jthread> callers;
  for (std::size_t i = topics.size(); i < names.size(); ++i) {
    tokens.limit(names[i], at_once);
    callers.emplace_back([&, name = names[i]](const std::stop_token& stop) {
      bool first = true;
      while (!stop.stop_requested()) {
        const Permit permit = tokens.acquire(name, std::chrono::milliseconds::max(), stop);
        if (!permit) return;
        if (std::exchange(first, false)) now_granted();
        std::this_thread::sleep_for(each);
      }
    });
  }
  try {
    app.run();
  } catch (const std::exception& e) {
    bench::die(std::string("the framework: ") + e.what());
  }
  return 0;
}
