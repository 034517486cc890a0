// The lines of `turnstile top`: what fits, what is left out, and names with any bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "cli/src/top/fit.hpp"
#include "cli/src/top/screen.hpp"

namespace turnstile::cli::top {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Lines = std::vector<std::string>;

std::string joined(const Lines& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

TopicView topic(const std::string& name, std::int64_t lag, double rate = 0, std::int64_t stalled = 0) {
  return {.state = {.topic = name, .partitions = 3, .rate = rate, .lag = lag, .stalled = stalled}, .dead = 0};
}

Model model_of(std::vector<TopicView> topics, std::vector<LimiterView> limiters = {}) {
  Model model;
  model.now = 60s;
  model.time = "14:05:09 UTC";
  model.group = "billing";
  model.kafka = model.tokens = model.database = {.state = Source::State::ok, .answered = 60s};
  model.topics_known = true;
  model.topics = std::move(topics);
  model.limiters = std::move(limiters);
  model.facts = DatabaseSample{.claims = {.running = 1, .in_doubt = 2, .failed = 3, .parked = 4},
                               .outbox = {.waiting = 5, .oldest = 90s, .refused = 6},
                               .dead = {{.group = "billing", .topic = "payments", .count = 7}}};
  return model;
}

// --- texts ---

TEST(TopFit, what_a_terminal_could_execute_is_escaped) {
  EXPECT_EQ(escaped("\x1b[2J\r\n\x07\x7f"), "\\x1b[2J\\x0d\\x0a\\x07\\x7f");
  EXPECT_EQ(escaped(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(escaped("\xc2\x9b"), "\\u009b") << "a C1 control";
  EXPECT_EQ(escaped("\xff\xc3"), "\\xff\\xc3") << "no UTF-8";
  EXPECT_EQ(escaped("\xed\xa0\x80\xc0\xaf"), "\\xed\\xa0\\x80\\xc0\\xaf") << "a surrogate, and an overlong form";
}

TEST(TopFit, what_may_not_take_one_column_is_escaped) {
  EXPECT_EQ(escaped("Zürich Ωμ Жд"), "Zürich Ωμ Жд");
  EXPECT_EQ(escaped("中"), "\\u4e2d");
  EXPECT_EQ(escaped("e\xcc\x81"), "e\\u0301") << "an accent that combines";
  EXPECT_EQ(escaped("\xe2\x80\xae"), "\\u202e") << "text from right to left";
  EXPECT_EQ(escaped("\xf0\x9f\x92\xa5"), "\\u1f4a5");
}

TEST(TopFit, a_text_is_cut_between_characters) {
  EXPECT_EQ(cut("Zürich", 6), "Zürich");
  EXPECT_EQ(cut("Zürich", 3), "Zü…");
  EXPECT_EQ(cut("Zürich", 1), "…");
  EXPECT_EQ(cut("Zürich", 0), "");
}

TEST(TopFit, names_get_the_room_that_numbers_leave) {
  const std::vector<Column> columns{{"LAG", 7, 0}, {"PARTS", 5, 1}};
  const auto lines = fit_table("TOPIC", columns, {{std::string(100, 'x'), {"12", "3"}}}, 40);
  EXPECT_EQ(lines[0], "TOPIC                         LAG  PARTS");
  EXPECT_EQ(lines[1], std::string(23, 'x') + "…       12      3");
}

TEST(TopFit, a_narrow_table_leaves_out_columns_by_rank) {
  const std::vector<Column> columns{{"PARTS", 5, 2}, {"LAG", 7, 0}, {"RATE", 7, 1}};
  const std::vector<Row> rows{{"payments", {"3", "12", "4.5"}}};
  EXPECT_EQ(fit_table("TOPIC", columns, rows, 30)[0], "TOPIC             LAG     RATE");
  EXPECT_EQ(fit_table("TOPIC", columns, rows, 20)[1], "payments          12");
  EXPECT_EQ(fit_table("TOPIC", columns, rows, 10)[1], "payments");
  for (std::size_t width = 1; width < 60; ++width) {
    for (const auto& line : fit_table("TOPIC", columns, rows, width)) EXPECT_LE(columns_of(line), width);
  }
}

TEST(TopFit, lines_are_shared_equally_and_by_need) {
  using Shares = std::vector<std::size_t>;
  EXPECT_EQ(share_lines({2, 3, 4}, 20), (Shares{2, 3, 4}));
  EXPECT_EQ(share_lines({2, 30, 40}, 20), (Shares{2, 9, 9}));
  EXPECT_EQ(share_lines({0, 5, 5}, 3), (Shares{0, 2, 1}));
  EXPECT_EQ(share_lines({5, 5, 5}, 0), (Shares{0, 0, 0}));
}

// --- the screen ---

TEST(TopScreen, shows_topics_limiters_and_fates) {
  auto model =
      model_of({topic("payments", 1234, 56.78, 1)},
               {{.limiter = "psp",
                 .limit = 64,
                 .held = 64,
                 .in_use = 60,
                 .waiting = 12,
                 .processes = {{.client = "billing", .host = "host1", .pid = 4711, .held = 64, .in_use = 60}}}});
  model.stalls = {{.at = {"payments", 2}, .lag = 12, .committed = 8, .age = 14s}};
  const auto lines = draw(model, {});
  EXPECT_EQ(lines.size(), 24U);
  const auto text = joined(lines);
  EXPECT_THAT(text, AllOf(HasSubstr("group billing"), HasSubstr("14:05:09 UTC"),
                          HasSubstr("Kafka ok, token log ok, PostgreSQL ok")));
  EXPECT_THAT(text, HasSubstr("STALLED: 1\npayments[2]  12 behind, no progress for 14s\n"));
  EXPECT_THAT(text, ContainsRegex("payments +3 +56.8 +1,234 +1 +0\n"));
  EXPECT_THAT(text, ContainsRegex("psp +64 +64 +60 +12\n  billing@host1:4711 +64 +60 +0\n"));
  EXPECT_THAT(text, HasSubstr("dead letters 7, in doubt 2, parked 4, failed 3, running 1\n"));
  EXPECT_THAT(text, HasSubstr("outbox: 5 waiting for up to 1m 30s, 6 refused\n"));
  EXPECT_THAT(text, HasSubstr("done, duplicates, retried: see /metrics of each consumer"));
  EXPECT_THAT(lines.back(), HasSubstr("q quit"));
}

TEST(TopScreen, fits_into_every_terminal) {
  std::vector<TopicView> topics;
  std::vector<LimiterView> limiters;
  for (int i = 0; i < 50; ++i) {
    topics.push_back(topic("topic-" + std::string(40, 'x') + std::to_string(i), i));
    limiters.push_back(
        {.limiter = "limiter-" + std::to_string(i), .limit = 1, .processes = {{.client = "c", .host = "h"}}});
  }
  auto model = model_of(topics, limiters);
  for (int i = 0; i < 5'000; ++i)
    model.stalls.push_back({.at = {"topic", i}, .lag = 5'000 - i, .committed = {}, .age = 1min});
  model.kafka = {.state = Source::State::unavailable, .why = std::string(300, 'w'), .answered = 10s};
  for (std::size_t columns = 1; columns <= 130; columns += 6) {
    for (std::size_t rows = 1; rows <= 60; ++rows) {
      for (const bool help : {false, true}) {
        const auto lines = draw(model, {.columns = columns, .rows = rows, .help = help});
        EXPECT_EQ(lines.size(), rows) << columns << " columns";
        for (const auto& line : lines) ASSERT_LE(columns_of(line), columns) << rows << " rows: " << line;
      }
    }
  }
}

TEST(TopScreen, a_tiny_terminal_shows_one_line_of_each_part) {
  auto model =
      model_of({topic("payments", 5, 2), topic("refunds", 7, 1)}, {{.limiter = "psp", .limit = 64, .held = 3}});
  model.stalls = {{.at = {"payments", 2}, .lag = 12, .committed = 8, .age = 14s}};
  const auto lines = draw(model, {.columns = 60, .rows = 5});
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_THAT(lines[0], StartsWith("turnstile top"));
  EXPECT_THAT(lines[1], StartsWith("STALLED: 1, payments[2] 12 behind"));
  EXPECT_EQ(lines[2], "2 topics: lag 12, 3.0/s");
  EXPECT_EQ(lines[3], "1 limiter: 3 held, 0 in use, 0 waiting");
  EXPECT_THAT(lines[4], HasSubstr("q quit"));
  EXPECT_THAT(joined(draw(model, {.columns = 20, .rows = 5})), HasSubstr("STALLED: 1, payment…"));
}

TEST(TopScreen, the_worst_topics_are_shown_and_the_rest_is_counted) {
  std::vector<TopicView> topics;
  for (int i = 100; i < 200; ++i) topics.push_back(topic("topic-" + std::to_string(i), i, 300 - i));
  for (const auto sort : {Sort::lag, Sort::name}) {
    const auto text = joined(draw(model_of(topics), {.sort = sort}));
    EXPECT_THAT(text, AllOf(HasSubstr("topic-199"), HasSubstr("topic-190"), Not(HasSubstr("topic-150"))))
        << to_text(sort);
    EXPECT_THAT(text, ContainsRegex("… [0-9]+ more topics; all: 100 topics: lag 14,950"));
  }
  EXPECT_THAT(joined(draw(model_of(topics), {.sort = Sort::rate})),
              AllOf(HasSubstr("topic-100"), Not(HasSubstr("topic-199"))));
}

TEST(TopScreen, topics_are_sorted_as_chosen) {
  const auto order = [](Sort by) {
    std::vector<TopicView> topics{topic("b", 1, 9), topic("a", 5, 1), topic("c", 3, 5)};
    sort(topics, by);
    return topics[0].state.topic + topics[1].state.topic + topics[2].state.topic;
  };
  EXPECT_EQ(order(Sort::lag), "acb");
  EXPECT_EQ(order(Sort::rate), "bca");
  EXPECT_EQ(order(Sort::name), "abc");
}

TEST(TopScreen, limiters_are_sorted_as_chosen) {
  const auto order = [](Sort by) {
    std::vector<LimiterView> limiters{{.limiter = "b", .in_use = 9, .waiting = 0},
                                      {.limiter = "a", .in_use = 1, .waiting = 4},
                                      {.limiter = "c", .in_use = 5, .waiting = 7}};
    sort(limiters, by);
    return limiters[0].limiter + limiters[1].limiter + limiters[2].limiter;
  };
  EXPECT_EQ(order(Sort::lag), "cab");
  EXPECT_EQ(order(Sort::rate), "bca");
  EXPECT_EQ(order(Sort::name), "abc");
  EXPECT_EQ(next(next(next(Sort::lag))), Sort::lag);
}

TEST(TopScreen, many_limiters_are_counted) {
  std::vector<LimiterView> limiters;
  for (int i = 0; i < 50; ++i) limiters.push_back({.limiter = "limiter-" + std::to_string(i), .limit = 1, .held = 1});
  EXPECT_THAT(joined(draw(model_of({topic("t", 0)}, limiters), {})),
              ContainsRegex("… [0-9]+ more limiters; all 50 limiters: 50 held"));
}

TEST(TopScreen, processes_are_hidden_on_request) {
  const auto model = model_of({}, {{.limiter = "psp", .processes = {{.client = "billing", .host = "h", .pid = 1}}}});
  EXPECT_THAT(joined(draw(model, {})), HasSubstr("billing@h:1"));
  EXPECT_THAT(joined(draw(model, {.by_process = false})), Not(HasSubstr("billing@h:1")));
}

TEST(TopScreen, a_paused_limiter_with_waiting_handlers_is_stalled) {
  auto model = model_of({}, {{.limiter = "psp", .limit = 0, .waiting = 12}, {.limiter = "idle", .limit = 0}});
  const auto text = joined(draw(model, {}));
  EXPECT_THAT(text, AllOf(HasSubstr("STALLED: 1\n"), HasSubstr("limiter psp  paused: 12 wait")));
  model.limiters = {{.limiter = "psp", .limit = 4, .held = 9, .waiting = 2}};
  EXPECT_THAT(joined(draw(model, {})), HasSubstr("limiter psp  9 held, above its limit of 4: 2 wait"));
}

TEST(TopScreen, an_unavailable_source_is_named_and_the_rest_is_shown) {
  auto model = model_of({topic("payments", 5)});
  model.kafka = {.state = Source::State::unavailable, .why = "no broker answers\x1b[2J", .answered = 46s};
  model.database = {.state = Source::State::off, .why = "no database is named"};
  model.facts.reset();
  const auto text = joined(draw(model, {}));
  EXPECT_THAT(text, AllOf(HasSubstr("Kafka UNAVAILABLE"), HasSubstr("PostgreSQL off"),
                          HasSubstr("Kafka (for 14s): no broker answers\\x1b[2J"), HasSubstr("no database is named")));
  EXPECT_THAT(text, AllOf(HasSubstr("TOPIC, 14s ago"), HasSubstr("payments"), Not(HasSubstr("dead letters"))));
}

TEST(TopScreen, without_topics_and_limits_it_says_so) {
  auto model = model_of({});
  EXPECT_THAT(joined(draw(model, {})), AllOf(HasSubstr("no topics"), HasSubstr("no limits")));
  model.topics_known = false;
  EXPECT_THAT(joined(draw(model, {})), HasSubstr("topics: not known yet"));
}

TEST(TopScreen, hostile_names_stay_text) {
  const std::string name = "a\x1b]0;pwned\x07\nb" + std::string(300, 'x');
  auto model = model_of({topic(name, 1)}, {{.limiter = name, .processes = {{.client = name, .host = name}}}});
  model.group = name;
  model.stalls = {{.at = {name, 0}, .lag = 1, .committed = {}, .age = 14s}};
  for (const auto& line : draw(model, {})) {
    EXPECT_EQ(line.find_first_of("\x1b\n\x07"), std::string::npos) << line;
    EXPECT_LE(columns_of(line), 80U);
  }
}

TEST(TopScreen, a_topic_that_does_not_exist_is_named) {
  auto missing = topic("payments", 0);
  missing.state.exists = false;
  EXPECT_THAT(joined(draw(model_of({missing}), {})), HasSubstr("payments (does not exist)"));
}

TEST(TopScreen, once_shows_everything_but_thousands_of_partitions) {
  std::vector<TopicView> topics;
  for (int i = 0; i < 100; ++i) topics.push_back(topic("topic-" + std::to_string(i), i));
  auto model = model_of(topics);
  for (int i = 0; i < 5'000; ++i)
    model.stalls.push_back({.at = {"topic-1", i}, .lag = 9, .committed = {}, .age = 1min});
  const auto lines = draw(model, {.rows = 0, .keys = false});
  EXPECT_EQ(lines.size(), 2U + 22U + 101U + 1U + 3U);
  EXPECT_THAT(lines, Contains("… 4,980 more stalled"));
  EXPECT_THAT(joined(lines), Not(HasSubstr("q quit")));
}

TEST(TopScreen, a_prompt_takes_the_place_of_the_keys) {
  EXPECT_EQ(draw(model_of({}), {.prompt = "set psp to 3? y/n"}).back(), "set psp to 3? y/n");
  EXPECT_THAT(draw(model_of({}), {.paused = true})[0], HasSubstr("PAUSED"));
}

// --- the model ---

TEST(TopModel, knows_processes_and_dead_letters_of_its_group) {
  Progress progress;
  progress.add({.at = 0s, .topics = {{.topic = "payments", .partitions = {{.committed = 1, .begin = 0, .end = 3}}}}});
  PermitsView permits;
  permits.position = 41;
  permits.limiters.push_back({.limiter = "psp", .limit = 8, .set = 8, .configured = {16}, .holders = {}});
  permits.limiters[0].holders.push_back({.member = 1, .client = "idle", .host = "h"});
  permits.limiters[0].holders.push_back(
      {.member = 2, .client = "b", .host = "h", .pid = 7, .held = 4, .busy = 3, .wants = 6});
  const DatabaseSample facts{.dead = {{.group = "billing", .topic = "payments", .count = 3},
                                      {.group = "mail", .topic = "payments", .count = 9}}};
  const auto model = make_model(progress, 10s, "billing", TokenSample{.log = "topic x", .permits = permits}, facts);
  EXPECT_EQ(model.topics.at(0).dead, 3);
  EXPECT_EQ(model.topics.at(0).state.lag, 2);
  EXPECT_EQ(model.position, 41);
  const auto& psp = model.limiters.at(0);
  EXPECT_TRUE(psp.set);
  EXPECT_EQ(psp.held, 4);
  EXPECT_EQ(psp.in_use, 3);
  EXPECT_EQ(psp.waiting, 2);
  ASSERT_EQ(psp.processes.size(), 1U) << "a member that holds and wants nothing is left out";
  EXPECT_EQ(psp.processes[0].name(), "b@h:7");
}

TEST(TopModel, shows_what_is_paused) {
  Progress progress;
  for (int second = 0; second <= 12; ++second) {
    progress.add(
        {.at = std::chrono::seconds(second),
         .topics = {{.topic = "mails", .partitions = {{.committed = 1, .end = 3}}},
                    {.topic = "orders", .partitions = {{.committed = 1, .end = 3}}},
                    {.topic = "payments", .partitions = {{.committed = 1, .end = 3}, {.committed = 1, .end = 2}}}}});
  }
  DatabaseSample facts;
  facts.pauses = {{.part = {"mails", {}, {}, "another group"}, .by = "host1", .why = ""},
                  {.part = {"orders"}, .by = "anna", .why = ""},
                  {.part = {"payments", 1}, .by = "ben", .why = ""},
                  {.part = {"payments", {}, "key"}, .by = "ben", .why = ""}};
  auto model = make_model(progress, 10s, "billing", std::nullopt, facts);
  model.topics_known = true;
  const auto text = joined(draw(model, {.columns = 80, .rows = 24}));
  EXPECT_THAT(text, AllOf(ContainsRegex("orders \\(paused\\) +1"), ContainsRegex("payments \\(2 paused\\) +2"),
                          ContainsRegex("mails +1"), HasSubstr("orders[0]    2 behind, paused by anna\n"),
                          HasSubstr("payments[1]  1 behind, paused by ben\n"),
                          HasSubstr("payments[0]  2 behind, no progress for 12s\n"),
                          HasSubstr("mails[0]     2 behind, no progress for 12s\n")));
  const auto json = to_json(model, "");
  EXPECT_EQ(json["topics"][1]["paused"], true);
  EXPECT_EQ(json["topics"][2]["paused_parts"], 2);
  EXPECT_EQ(json["topics"][0]["paused"], false);
}

TEST(TopModel, json_has_all_of_it) {
  auto model = model_of({topic("payments", 5, 2.5)}, {{.limiter = "psp", .limit = 4, .processes = {{.held = 1}}}});
  model.stalls = {{.at = {"payments", 2}, .lag = 12, .committed = 8, .age = 14s}};
  model.tokens = {.state = Source::State::unavailable, .why = "no answer"};
  const auto json = to_json(model, "2026-03-01T14:05:09Z");
  EXPECT_EQ(json["group"], "billing");
  EXPECT_EQ(json["sources"]["kafka"]["state"], "ok");
  EXPECT_EQ(json["sources"]["token_log"]["why"], "no answer");
  EXPECT_EQ(json["sources"]["token_log"]["state"], "unavailable");
  EXPECT_EQ(json["topics"][0]["lag"], 5);
  EXPECT_EQ(json["topics"][0]["rate"], 2.5);
  EXPECT_EQ(json["stalled"][0]["partition"], 2);
  EXPECT_EQ(json["stalled"][0]["for_ms"], 14'000);
  EXPECT_EQ(json["limiters"][0]["processes"][0]["client"], nullptr);
  EXPECT_EQ(json["claims"]["in_doubt"], 2);
  EXPECT_EQ(json["outbox"]["refused"], 6);
  EXPECT_EQ(json["dead_letters"][0]["count"], 7);
  model.facts.reset();
  model.kafka = {.state = Source::State::asking, .why = "3 of 2,000 topics were looked up"};
  const auto early = to_json(model, "");
  EXPECT_EQ(early["claims"], nullptr);
  EXPECT_EQ(early["sources"]["kafka"]["state"], "asking");
  EXPECT_EQ(early["sources"]["kafka"]["why"], "3 of 2,000 topics were looked up");
}

}  // namespace
}  // namespace turnstile::cli::top
