#include "support/logging.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/captured_log.hpp"
#include "turnstile/error.hpp"
#include "turnstile/log.hpp"

namespace turnstile::detail {
namespace {

namespace level = spdlog::level;

const LogFields all_fields{.code = Code::dead_lettered,
                           .topic = "payments",
                           .partition = 3,
                           .offset = 1042,
                           .handler = "charge",
                           .member = "m-1",
                           .trace_id = "4bf92f35"};

class LoggingTest : public ::testing::Test {
 protected:
  std::shared_ptr<spdlog::logger> logger(const std::string& format, const std::string& least = "info") {
    LogSettings settings;
    settings.level = least;
    settings.format = format;
    return make_logger(settings, out_.sink());
  }
  nlohmann::json only_line() {
    const std::string text = out_.str();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    return nlohmann::json::parse(text);
  }
  test::CapturedLog out_;
};

TEST_F(LoggingTest, text_has_the_fields_behind_the_message) {
  log(*logger("text"), level::warn, "dead-lettered", all_fields);
  EXPECT_TRUE(std::regex_match(
      out_.str(),
      std::regex(
          R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d warning dead-lettered )"
          R"(code=dead_lettered topic=payments partition=3 offset=1042 handler=charge member=m-1 trace_id=4bf92f35\n)")))
      << out_.str();
}

TEST_F(LoggingTest, json_has_the_fields_as_fields) {
  log(*logger("json"), level::err, "dead-lettered", all_fields);
  const auto line = only_line();
  EXPECT_EQ(line["level"], "error");
  EXPECT_EQ(line["message"], "dead-lettered");
  EXPECT_EQ(line["code"], "dead_lettered");
  EXPECT_EQ(line["topic"], "payments");
  EXPECT_EQ(line["partition"], 3);
  EXPECT_EQ(line["offset"], 1042);
  EXPECT_EQ(line["handler"], "charge");
  EXPECT_EQ(line["member"], "m-1");
  EXPECT_EQ(line["trace_id"], "4bf92f35");
  EXPECT_TRUE(
      std::regex_match(line["time"].get<std::string>(), std::regex(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)")));
}

TEST_F(LoggingTest, a_long_text_is_cut_between_characters_and_its_size_is_told) {
  const std::string long_text = "x" + [] {
    std::string text;
    for (int i = 0; i < 500'000; ++i) text += "\u00E9";
    return text;
  }();
  LogFields fields;
  fields.topic = "payments";
  fields.handler = long_text;
  const std::string cut = long_text.substr(0, 8'191) + "\u2026 (1,000,001 bytes)";
  log(*logger("json"), level::warn, long_text, fields);
  const auto line = only_line();
  EXPECT_EQ(line["message"], cut);
  EXPECT_EQ(line["handler"], cut);
  EXPECT_EQ(line["topic"], "payments");
  out_.clear();
  log(*logger("text"), level::warn, long_text, fields);
  EXPECT_TRUE(out_.str().ends_with(" warning " + cut + " topic=payments handler=\"" + cut + "\"\n"));
  out_.clear();
  logger("json")->warn("{}", long_text);
  EXPECT_EQ(only_line()["message"], cut);
}

TEST_F(LoggingTest, a_long_text_is_cut_whatever_its_bytes_are) {
  log(*logger("text"), level::warn, std::string(100'000, '\x80'));
  EXPECT_LT(out_.str().size(), 40'000U);
  out_.clear();
  log(*logger("text"), level::warn, std::string(8'192, 'x'));
  EXPECT_TRUE(out_.str().ends_with(" " + std::string(8'192, 'x') + "\n")) << "it is not cut";
}

TEST_F(LoggingTest, what_is_redirected_has_the_form_and_the_level_of_its_target) {
  const auto first = make_redirectable_logger({.level = "off", .format = "text"});
  log(*first, level::err, "to nobody");
  redirect(*first, logger("json"));
  log(*first, level::warn, "fenced", all_fields);
  log(*first, level::debug, "too quiet for the target");
  auto line = only_line();
  EXPECT_EQ(line["message"], "fenced");
  EXPECT_EQ(line["topic"], "payments");
  out_.clear();
  first->warn("as the Kafka client says it: {}", 7);
  EXPECT_EQ(only_line()["message"], "as the Kafka client says it: 7");
}

TEST_F(LoggingTest, only_what_was_made_for_it_is_redirected) {
  const auto own = logger("text");
  redirect(*own, turnstile::make_logger({.level = "off", .format = "text"}));
  log(*own, level::warn, "still here");
  EXPECT_NE(out_.str().find("still here"), std::string::npos);
  const auto itself = make_redirectable_logger({.level = "off", .format = "text"});
  redirect(*itself, itself);
  log(*itself, level::warn, "does not go round");
}

TEST_F(LoggingTest, what_is_not_known_is_left_out) {
  log(*logger("json"), level::info, "started");
  EXPECT_EQ(only_line().size(), 3U);
}

TEST_F(LoggingTest, a_warning_and_an_error_have_their_code) {
  log_warning(*logger("text"), Code::store_busy, "the row is locked");
  EXPECT_NE(out_.str().find("warning the row is locked code=store_busy\n"), std::string::npos) << out_.str();
  out_.clear();
  log_error(*logger("json"), Code::kafka_unavailable, "no broker answers");
  const auto line = only_line();
  EXPECT_EQ(line["level"], "error");
  EXPECT_EQ(line["message"], "no broker answers");
  EXPECT_EQ(line["code"], "kafka_unavailable");
}

TEST_F(LoggingTest, plain_calls_on_a_json_logger_are_json_too) {
  logger("json")->info("{} of {}", 1, 2);
  EXPECT_EQ(only_line()["message"], "1 of 2");
}

TEST_F(LoggingTest, a_clone_of_a_json_logger_writes_json) {
  const auto clone = logger("json")->clone("other");
  log(*clone, level::info, "cloned", all_fields);
  EXPECT_EQ(clone->name(), "other");
  EXPECT_EQ(only_line()["partition"], 3);
}

TEST_F(LoggingTest, any_bytes_of_a_message_make_one_valid_line) {
  const std::string nasty("a \"b\"\n{}\\\t\xff\0z", 13);
  log(*logger("json"), level::info, nasty, {.handler = "x\ny"});
  const auto line = only_line();
  EXPECT_EQ(line["handler"], "x\ny");
  EXPECT_EQ(line["message"].get<std::string>().substr(0, 5), "a \"b\"");
}

TEST_F(LoggingTest, a_line_break_cannot_forge_a_line_of_text) {
  log(*logger("text"), level::info, "bad\ninfo forged", {.handler = "two words=\"x\""});
  const std::string text = out_.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_NE(text.find("bad\\ninfo forged handler=\"two words=\\\"x\\\"\""), std::string::npos) << text;
}

TEST_F(LoggingTest, what_a_terminal_could_act_on_is_escaped_in_text) {
  log(*logger("text"), level::info, "Zürich \x1b[2J \xc2\x9b \xe2\x80\xae \xff.", {.handler = "\xe2\x81\xa6"});
  const std::string text = out_.str();
  EXPECT_NE(text.find("Zürich \\x1b[2J \\u009b \\u202e \\xff. handler=\\u2066"), std::string::npos) << text;
}

TEST_F(LoggingTest, somebody_elses_logger_gets_the_fields_in_the_message) {
  spdlog::logger own("app", out_.sink());
  own.set_pattern("%n|%l|%v");
  log(own, level::info, "retrying {}", {.topic = "payments", .partition = 0, .offset = 7});
  EXPECT_EQ(out_.str(), "app|info|retrying {} topic=payments partition=0 offset=7\n");
}

TEST_F(LoggingTest, what_is_below_the_level_is_not_written) {
  const auto quiet = logger("json", "error");
  log(*quiet, level::warn, "unheard");
  quiet->warn("unheard");
  log(*logger("text", "off"), level::critical, "unheard");
  EXPECT_EQ(out_.str(), "");
}

TEST_F(LoggingTest, a_level_or_a_format_that_does_not_exist_is_refused) {
  const auto refusal = [this](const std::string& format, const std::string& least) -> std::string {
    try {
      logger(format, least);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("text", "loud"), "log.level: 'loud' is not a level; use trace, debug, info, warn, error or off");
  EXPECT_EQ(refusal("xml", "info"), "log.format: 'xml' is not a format; use text or json");
}

}  // namespace
}  // namespace turnstile::detail
