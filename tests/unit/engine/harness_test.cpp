// turnstile::testing::Harness, and the ten lines of docs/guide/testing.md. Users' tests of their own handlers look like
// these.

#include "turnstile/testing/harness.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/eventually.hpp"
#include "turnstile/turnstile.hpp"

namespace {

using namespace turnstile;
using namespace std::chrono_literals;
using turnstile::testing::Harness;
using turnstile::testing::message;
using turnstile::testing::message_without_id;

void charge(const Message& message, Context& ctx) {
  if (message.text() == "no money") throw std::runtime_error("the bank refuses");
  ctx.defer("INSERT INTO payment (cents) VALUES ($1)", message.text());
}

void charge_with_id(const Message& message, Context& ctx) {
  ctx.defer("INSERT INTO payment (id, amount) VALUES ($1, $2)", message.id(), Numeric{message.text()});  // "12.50"
}

void charge_all(std::span<const Message> messages, Context& ctx) {
  std::vector<Numeric> amounts;
  for (const Message& message : messages) amounts.push_back({message.text()});  // "12.50"
  ctx.tx().exec("INSERT INTO payment (id, amount) SELECT * FROM unnest($1::uuid[], $2::numeric[])", ctx.ids(), amounts);
}

std::string header(const OwnedMessage& record, std::string_view name) {
  return std::string{Message(record).header(name).value_or("(absent)")};
}

TEST(Charge, takes_the_money_once) {
  Harness h{charge | transactional() | retry(exponential{1ms, 3}) | dead_letter()};
  EXPECT_EQ(h.deliver(message("order-1").payload("1250")), Settled::done);
  EXPECT_EQ(h.deliver(message("order-1").payload("1250")), Settled::duplicate);
  EXPECT_EQ(h.statements().size(), 1u);
  EXPECT_EQ(h.statements()[0].params[0], "1250");

  EXPECT_EQ(h.deliver(message("order-2").payload("no money")), Settled::dead_letter);
  EXPECT_EQ(h.runs(), 1 + 3);
  EXPECT_EQ(h.dead_letters().size(), 1u);
}

TEST(Harness, tells_a_stored_message_from_one_that_took_effect) {
  Harness h{charge | transactional() | retry(exponential{1h, 3, 6h}).durable() | dead_letter()};
  EXPECT_EQ(h.deliver(message("order-1").key("ada").payload("no money")), Settled::deferred);
  EXPECT_EQ(h.deliver(message("order-2").key("ada").payload("1250")), Settled::deferred) << "behind its key";
  EXPECT_EQ(h.runs(), 1);
  EXPECT_TRUE(h.statements().empty());
  EXPECT_EQ(h.deliver(message("order-1").key("ada").payload("no money")), Settled::duplicate);
  EXPECT_EQ(h.deliver(message("order-3").key("bob").payload("1250")), Settled::done);
  EXPECT_TRUE(h.dead_letters().empty());
}

TEST(Harness, redelivers_the_same_record) {
  Harness h{charge | transactional()};
  EXPECT_THROW(h.redeliver(), std::logic_error);
  EXPECT_EQ(h.deliver(message("order-1").payload("1")), Settled::done);
  EXPECT_EQ(h.redeliver(), Settled::duplicate);
  EXPECT_EQ(h.statements().size(), 1U);
}

TEST(Harness, counts_offsets_by_partition) {
  std::vector<TopicPartitionOffset> seen;
  auto note = [&](const Message& m) { seen.push_back({{std::string{m.topic()}, m.partition()}, m.offset()}); };
  Harness h{note | transactional()};
  h.deliver(message("a"));
  h.deliver(message("b").partition(3));
  h.deliver(message("c"));
  const std::vector<TopicPartitionOffset> expected{{{"test", 0}, 0}, {{"test", 3}, 0}, {{"test", 0}, 1}};
  EXPECT_EQ(seen, expected);
}

TEST(Harness, says_why_a_message_died) {
  Harness h{charge | transactional() | retry(exponential{1ms, 2}) | dead_letter("graveyard")};
  EXPECT_EQ(h.deliver(message("order-1").payload("no money").key("ada")), Settled::dead_letter);
  ASSERT_EQ(h.dead_letters().size(), 1U);
  const OwnedMessage dead = h.dead_letters().front();
  EXPECT_EQ(dead.topic, "graveyard");
  EXPECT_EQ(dead.key, "ada");
  EXPECT_EQ(dead.payload, "no money");
  std::string all;
  for (const auto& h_ : dead.headers) all += h_.name + '=' + h_.value.value_or("") + '\n';
  EXPECT_NE(all.find("the bank refuses"), std::string::npos) << all;
  EXPECT_EQ(header(dead, "message-id"), "order-1");
  EXPECT_TRUE(h.statements().empty());
  EXPECT_EQ(h.store().dead().size(), 1U);
}

TEST(Harness, a_message_without_an_id_is_not_run) {
  Harness h{charge | transactional() | dead_letter()};
  EXPECT_EQ(h.deliver(message_without_id().payload("1")), Settled::dead_letter);
  EXPECT_EQ(h.runs(), 0);
  EXPECT_EQ(h.dead_letters().size(), 1U);
}

TEST(Harness, the_configuration_wins_over_the_code) {
  TopicSettings settings;
  settings.retry = RetryPolicy{1, 1ms, 1ms};
  Harness h{charge | transactional() | retry(exponential{1ms, 5}) | dead_letter(), settings};
  EXPECT_EQ(h.deliver(message("order-1").payload("no money")), Settled::dead_letter);
  EXPECT_EQ(h.runs(), 1);
}

TEST(Harness, answers_statements_as_the_test_says) {
  const std::string ask = "SELECT cents FROM account WHERE name = $1";
  auto decide = [&](const Message& m, Context& ctx) {
    const Rows balance = ctx.tx().exec(ask, m.text());
    if (balance.empty()) return Outcome::dead_letter("no such account");
    if (balance.get<int>(0, 0) < 100) return Outcome::skip("too little");
    ctx.defer("UPDATE account SET cents = cents - 100 WHERE name = $1", m.text());
    return Outcome::done();
  };
  Harness h{decide | transactional() | dead_letter()};
  EXPECT_EQ(h.deliver(message("1").payload("nobody")), Settled::dead_letter);
  h.store().answer(ask, turnstile::testing::MemoryInbox::rows({{"50"}}));
  EXPECT_EQ(h.deliver(message("2").payload("ada")), Settled::skipped);
  h.store().answer(ask, turnstile::testing::MemoryInbox::rows({{"500"}}));
  EXPECT_EQ(h.deliver(message("3").payload("ada")), Settled::done);
  EXPECT_TRUE(h.statements().back().deferred);
}

TEST(Harness, sends_replies_to_topics_of_the_test) {
  const auto receipt = [](const Message&, Context& ctx) { ctx.reply("receipt"); };
  Harness h{receipt | transactional() | replies("receipts")};
  h.broker().create_topic("receipts", 1);
  EXPECT_EQ(h.deliver(message("order-1")), Settled::done);
  EXPECT_TRUE(turnstile::test::eventually([&] { return h.broker().records("receipts").size() == 1; }));
}

TEST(Harness, runs_a_decorator_of_ones_own) {
  std::vector<std::string> trace;
  auto traced = [&](std::string name) {
    return around([&trace, name = std::move(name)](std::span<const Message>, Context&, const Next& next) {
      trace.push_back(name + " in");
      auto outcome = next();
      trace.push_back(name + " out");
      return outcome;
    });
  };
  auto note = [&](const Message&) { trace.emplace_back("handler"); };
  Harness h{note | traced("inner") | transactional() | traced("outer")};
  h.deliver(message("1"));
  const std::vector<std::string> expected{"outer in", "inner in", "handler", "inner out", "outer out"};
  EXPECT_EQ(trace, expected);
}

TEST(Harness, takes_batch_handlers) {
  auto book = [](std::span<const Message> messages, Context& ctx) {
    ctx.tx().exec("INSERT INTO booking SELECT unnest($1::text[])", std::vector<std::string>(messages.size(), "x"));
  };
  Harness h{book | transactional()};
  EXPECT_EQ(h.deliver(message("1")), Settled::done);
  EXPECT_EQ(h.statements().at(0).params.at(0), "{x}");
}

TEST(Harness, messages_and_the_context_have_the_ids_of_the_inbox) {
  const std::string uuid = "00112233-4455-6677-8899-aabbccddeeff";
  std::vector<std::string> seen;
  const auto single = [&](const Message& message, Context& ctx) {
    ASSERT_EQ(ctx.ids().size(), 1U);
    ASSERT_EQ(message.id(), ctx.ids()[0]);
    seen.push_back(message.id()->text());
  };
  const auto batch = [&](std::span<const Message> messages, Context& ctx) {
    ASSERT_EQ(ctx.ids().size(), messages.size());
    for (std::size_t i = 0; i < messages.size(); ++i) {
      ASSERT_EQ(messages[i].id(), ctx.ids()[i]);
      seen.push_back(messages[i].id()->text());
    }
  };
  for (const auto& pipeline :
       {single | transactional(), batch | transactional(), single | leased(), batch | leased(), single | by_offset()}) {
    Harness h{pipeline};
    seen.clear();
    EXPECT_EQ(h.deliver(message(uuid)), Settled::done);
    EXPECT_EQ(h.deliver(message("order-1")), Settled::done);
    EXPECT_EQ(seen.size(), 2U);
    if (pipeline.settings.mode == Mode::by_offset) continue;  // its ids are of the places
    EXPECT_EQ(seen, (std::vector<std::string>{uuid, MessageId::from("order-1").text()}));
  }
}

TEST(Harness, without_a_mode_a_message_has_no_id) {
  int calls = 0;
  Harness single{[&](const Message& message, Context& ctx) { calls += message.id() || !ctx.ids().empty() ? 0 : 1; }};
  single.deliver(message("1"));
  Harness batch{[&](std::span<const Message> messages, Context& ctx) {
    calls += messages[0].id() || !ctx.ids().empty() ? 0 : 1;
  }};
  batch.deliver(message("1"));
  EXPECT_EQ(calls, 2);
}

TEST(Harness, shows_the_ids_and_numbers_of_a_batch) {
  Harness h{charge_all | transactional()};
  EXPECT_EQ(h.deliver(message("order-1").payload("12.50")), Settled::done);
  EXPECT_EQ(h.statements().at(0).params.at(0), "{" + MessageId::from("order-1").text() + "}");
  EXPECT_EQ(h.statements().at(0).params.at(1), "{12.50}");
}

TEST(Harness, shows_the_id_that_a_deferred_statement_gets) {
  Harness h{charge_with_id | transactional()};
  EXPECT_EQ(h.deliver(message("order-1").payload("12.50")), Settled::done);
  EXPECT_EQ(h.statements().at(0).params.at(0), MessageId::from("order-1").text());
  EXPECT_EQ(h.statements().at(0).params.at(1), "12.50");
}

TEST(Harness, reports_wrong_settings_at_the_first_message) {
  Harness h{charge | transactional() | limit(0)};
  EXPECT_THROW(h.deliver(message("1")), ConfigError);
}

}  // namespace
