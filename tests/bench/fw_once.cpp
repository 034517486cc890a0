// Once, with the framework: the same job as raw_once, as a user would write it.
//  --brokers B --topic T --postgres URL --schema S --workers N --messages M
//  --way single|single-defer|sync|defer|set|user-defer|user-set|noop|noop-batch|retry
//  [--mode transactional]    as in the configuration
//  [--message-id header:message-id]
// retry: as sync, but each message fails at first, is stored, and comes back (retry(...).durable()).
// user-defer, user-set: as docs/guide/handlers.md tells a user to write them. The effect has the message's id.
// noop and noop-batch are for effects elsewhere: the handler does nothing. The runner creates the schema and the empty table
// fw_effects, and checks the table afterwards.

#include <span>
#include <stdexcept>
#include <vector>

#include "tests/bench/fw_common.hpp"

namespace {

using namespace turnstile;

constexpr const char* kInsertOne = "INSERT INTO fw_effects (payment, amount) VALUES ($1, $2)";
constexpr const char* insert_all =
    "INSERT INTO fw_effects (payment, amount) SELECT * FROM unnest($1::bigint[], $2::bigint[])";
constexpr const char* kInsertAllWithIds =
    "INSERT INTO fw_effects (payment, amount) SELECT * FROM unnest($1::uuid[], $2::bigint[])";

void effect_sync(const Message& message, Context& ctx) {
  const bench::Record record = bench::Record::read(message.text());
  ctx.tx().exec(kInsertOne, record.number, record.amount);
}

void effect_deferred(const Message& message, Context& ctx) {
  const bench::Record record = bench::Record::read(message.text());
  ctx.defer(kInsertOne, record.number, record.amount);
}

void effects_of_batch(std::span<const Message> messages, Context& ctx) {
  std::vector<std::int64_t> payments, amounts;
  payments.reserve(messages.size());
  amounts.reserve(messages.size());
  for (const Message& message : messages) {
    const bench::Record record = bench::Record::read(message.text());
    payments.push_back(record.number);
    amounts.push_back(record.amount);
  }
  ctx.tx().exec(insert_all, payments, amounts);
}

void user_deferred(const Message& message, Context& ctx) {
  ctx.defer(kInsertOne, message.id(), bench::Record::read(message.text()).amount);
}

void user_batch(std::span<const Message> messages, Context& ctx) {
  std::vector<std::int64_t> amounts;
  amounts.reserve(messages.size());
  for (const Message& message : messages) amounts.push_back(bench::Record::read(message.text()).amount);
  ctx.tx().exec(kInsertAllWithIds, ctx.ids(), amounts);
}

void effect_later(const Message& message, Context& ctx) {
  if (ctx.attempt() == 1) throw std::runtime_error("the first attempt fails");
  effect_sync(message, ctx);
}

void no_effect(const Message&, Context&) {}
void no_effects(std::span<const Message>, Context&) {}

/// The same handler name in all runs, so that the same ids of any topic are duplicates.
Pipeline pipeline_of(const std::string& way) {
  const auto name = handler_id("once");
  if (way == "single") return effect_sync | name | batch(1);
  if (way == "single-defer") return effect_deferred | name | batch(1);
  if (way == "sync") return effect_sync | name;
  if (way == "retry") {
    using std::chrono::milliseconds;
    return effect_later | name | retry(exponential{milliseconds(1), 3, milliseconds(1)}).durable();
  }
  if (way == "defer") return effect_deferred | name;
  if (way == "set") return effects_of_batch | name;
  if (way == "user-defer") return user_deferred | name;
  if (way == "user-set") return user_batch | name;
  if (way == "noop") return no_effect | name;
  if (way == "noop-batch") return no_effects | name;
  bench::die("--way: single, single-defer, sync, defer, set, user-defer, user-set, noop, noop-batch or retry, not " +
             way);
}

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  const std::string way = args.text("way"), mode = args.text("mode", "transactional");
  Config config = bench::plain_config(args.text("brokers"), "fw-once");
  config.postgres = bench::postgres_settings(args.text("postgres"), args.text("schema"));
  config.consumer.workers = static_cast<int>(args.number("workers", 4));
  const std::int64_t workers = config.consumer.workers;
  const std::string topic = args.text("topic");
  config.topics[topic] = bench::topic_settings(mode, args.text("message-id", ""));
  const std::int64_t wanted = args.number("messages");
  bench::add_admin(config, args);
  bench::add_tracing(config, args);
  args.done();

  Consumer app(std::move(config));
  const auto progress = std::make_shared<bench::Progress>(app, wanted);
  app.topic(topic, pipeline_of(way)).observe(progress);
  bench::run(app);
  const double seconds = progress->seconds();
  bench::Report("fw_once")
      .add("way", way)
      .add("mode", mode)
      .add("connections", workers)
      .add("messages", progress->settled())
      .add("duplicates", progress->duplicates())
      .add("failed", progress->failed())
      .add("seconds", seconds)
      .add("rate", static_cast<double>(progress->settled()) / seconds)
      .add("cpu_seconds", bench::cpu_seconds())
      .print();
  return 0;
}
