// Each log line at warn and above, and each error, has a code; docs/operations/runbook.md explains each code. Reads the source tree,
// so that a line without a code fails here with its file and its line.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/support/read_file.hpp"
#include "tests/unit/repository/root.hpp"
#include "turnstile/code.hpp"
#include "turnstile/error.hpp"

namespace {

namespace fs = std::filesystem;

using turnstile::Code;
using turnstile::test::read_file;

/// Where the codes are made, and where the functions are that put them into a line.
bool defines_codes(const std::string& file) {
  static const std::set<std::string> all{"framework/include/turnstile/code.hpp",  "framework/src/message/code.cpp",
                                         "framework/include/turnstile/error.hpp", "framework/include/turnstile/log.hpp",
                                         "framework/src/support/logging.cpp",     "framework/src/support/run_log.cpp",
                                         "framework/src/support/run_log.hpp"};
  return all.contains(file);
}

/// The sources of framework/, adapters/ and cli/, by the path from the root; comments are blank, so that positions stay.
const std::map<std::string, std::string>& sources() {
  static const auto all = [] {
    std::map<std::string, std::string> texts;
    for (const auto* folder : {"framework", "adapters", "cli"}) {
      for (const auto& entry : fs::recursive_directory_iterator{root / folder}) {
        const auto kind = entry.path().extension();
        if (kind != ".hpp" && kind != ".cpp") continue;
        auto text = read_file(entry.path());
        for (std::size_t at = 0; (at = text.find("//", at)) != std::string::npos;) {
          if (at > 0 && text[at - 1] == ':') {  // an address in a string
            at += 2;
            continue;
          }
          for (; at < text.size() && text[at] != '\n'; ++at) text[at] = ' ';
        }
        texts.emplace(fs::relative(entry.path(), root).generic_string(), std::move(text));
      }
    }
    return texts;
  }();
  return all;
}

std::string place(const std::string& file, const std::string& text, std::ptrdiff_t at) {
  return file + ":" + std::to_string(1 + std::count(text.begin(), text.begin() + at, '\n'));
}

void expect_no(const std::regex& pattern, const std::string& remedy) {
  for (const auto& [file, text] : sources()) {
    if (defines_codes(file)) continue;
    for (std::sregex_iterator at{text.begin(), text.end(), pattern}, end; at != end; ++at)
      ADD_FAILURE() << place(file, text, at->position()) << ": " << at->str() << ": " << remedy;
  }
}

/// The enumerators of code.hpp.
std::set<std::string> enumerators() {
  const auto header = read_file(root / "framework/include/turnstile/code.hpp");
  static const std::regex enumerator{R"(\n  (\w+), +///< (?:[A-Z]|librdkafka)[^\n]*\.)"};
  std::set<std::string> names;
  for (std::sregex_iterator at{header.begin(), header.end(), enumerator}, end; at != end; ++at) names.insert((*at)[1]);
  return names;
}

struct Entry {
  int line = 0;
  std::string text;
};

/// Of the runbook: `### store_busy`, and what stands below it up to the next heading.
const std::multimap<std::string, Entry>& entries() {
  static const auto all = [] {
    std::multimap<std::string, Entry> found;
    std::istringstream page{read_file(root / "docs/operations/runbook.md")};
    auto open = found.end();
    int number = 0;
    for (std::string line; std::getline(page, line);) {
      ++number;
      if (line.starts_with("### ")) open = found.emplace(line.substr(4), Entry{number, {}});
      else if (line.starts_with("#")) open = found.end();
      else if (open != found.end()) open->second.text += line + '\n';
    }
    return found;
  }();
  return all;
}

TEST(Codes, are_documented_in_one_sentence_and_named_as_their_enumerators) {
  std::set<std::string> texts;
  for (const Code code : turnstile::codes()) texts.emplace(turnstile::to_text(code));
  EXPECT_EQ(texts, enumerators()) << "an enumerator of code.hpp has its sentence behind ///<, and its row in code.cpp";
  EXPECT_EQ(texts.size(), turnstile::codes().size());
  EXPECT_GE(texts.size(), 50U);
}

TEST(Codes, have_one_entry_in_the_runbook_each) {
  for (const Code code : turnstile::codes()) {
    const std::string name{turnstile::to_text(code)};
    EXPECT_EQ(entries().count(name), 1U) << "docs/operations/runbook.md: ### " << name;
  }
}

TEST(Codes, are_the_entries_of_the_runbook) {
  const auto known = enumerators();
  for (const auto& [name, entry] : entries()) {
    const std::string where = "docs/operations/runbook.md:" + std::to_string(entry.line) + ": ### " + name;
    EXPECT_TRUE(known.contains(name)) << where << ": there is no such code";
    std::size_t before = 0;
    for (const auto* part : {"**Meaning.** ", "**By itself.** ", "**Do.** ", "**Command.** "}) {
      const auto at = entry.text.find(part);
      EXPECT_NE(at, std::string::npos) << where << " lacks " << part;
      EXPECT_EQ(entry.text.find(part, at + 1), std::string::npos) << where << " has twice " << part;
      EXPECT_GE(at, before) << where << ": Meaning, By itself, Do, Command, in this order";
      before = at;
    }
  }
}

/// Adds each NAME of `Code::NAME`.
void add_codes_in(const std::string& text, std::set<std::string>& names) {
  constexpr std::string_view mark = "Code::";
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    const auto begin = at += mark.size();
    while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_')) ++at;
    names.insert(text.substr(begin, at - begin));
  }
}

// In a line or an error of framework/, adapters/ or cli/, or fixed by a type of error.hpp.
TEST(Codes, are_used) {
  std::set<std::string> used;
  add_codes_in(read_file(root / "framework/include/turnstile/error.hpp"), used);
  for (const auto& [file, text] : sources()) {
    if (!defines_codes(file)) add_codes_in(text, used);
  }
  for (const Code code : turnstile::codes()) {
    EXPECT_TRUE(used.contains(std::string{turnstile::to_text(code)}))
        << "framework/include/turnstile/code.hpp: " << turnstile::to_text(code) << " is in no line and no error";
  }
}

// run_log_->warn(Code::…, …), log_warning(logger, Code::…, …): not logger.warn("…").
TEST(Codes, are_in_each_log_line_at_warn_and_above) {
  expect_no(
      std::regex{R"((?:->|\.)(?:warn|error|critical)\((?!\)|\s*(?:Code::|code_of\(|code\b|\w+\.code\(\)))[^\n]*)"},
      "give the line a code, as its first argument");
  expect_no(std::regex{R"(\blog\([^;]{0,80}level::(?:warn|err|critical)\b)"}, "use log_warning() or log_error()");
}

TEST(Codes, are_in_each_error) {
  expect_no(std::regex{R"(\bthrow (?:turnstile::)?(?:Error|BrokerError|SchemaError|Halted)\()"
                       R"((?!\s*(?:Code::|code_of\(|code\b|\w+\.code\(\)))[^\n]*)"},
            "give the error a code, as its first argument");
}

TEST(Codes, are_the_field_of_an_error) {
  EXPECT_EQ(turnstile::StoreBusy("x").code(), Code::store_busy);
  EXPECT_EQ(turnstile::StoreUnavailable("x").code(), Code::store_unavailable);
  EXPECT_EQ(turnstile::StoreUnavailable(Code::store_read_only, "x").code(), Code::store_read_only);
  EXPECT_EQ(turnstile::StoreFailed("x", "XX001").code(), Code::store_failed);
  EXPECT_EQ(turnstile::DeferredSqlError("x", "23505", 1).code(), Code::sql_error);
  EXPECT_EQ(turnstile::ConfigError({"x"}).code(), Code::config_invalid);
  EXPECT_EQ(turnstile::code_of(turnstile::Fenced("x")), Code::partition_fenced);
  EXPECT_EQ(turnstile::code_of(std::runtime_error("x")), Code::unexpected);
  EXPECT_EQ(turnstile::code_of(std::runtime_error("x"), Code::member_halted), Code::member_halted);
}

}  // namespace
