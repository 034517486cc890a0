// Runs the transcripts. A failed expectation is reported with its file and line.

#include "tests/simulation/transcript.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace turnstile::simulation {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> transcripts() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path{TURNSTILE_SOURCE_DIR} / "tests/simulation/transcripts")) {
    if (entry.path().extension() == ".txt" && entry.path().stem() != "README") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class TranscriptOf : public ::testing::TestWithParam<std::string> {};

TEST_P(TranscriptOf, holds) {
  const fs::path file = fs::path{TURNSTILE_SOURCE_DIR} / "tests/simulation/transcripts" / (GetParam() + ".txt");
  std::ifstream in(file);
  ASSERT_TRUE(in) << file;
  Transcript transcript;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const bool begins = !line.empty() && line[0] != ' ' && line[0] != '#';
    if (begins && transcript.is_unfinished())
      ADD_FAILURE() << file.string() << ':' << number - 1 << ": nothing is expected of this record";
    if (const auto wrong = transcript.run(line))
      ADD_FAILURE() << file.string() << ':' << number << ": '" << line << "' " << *wrong;
  }
  EXPECT_FALSE(transcript.is_unfinished()) << file << ": nothing is expected of the last record";
  EXPECT_GT(transcript.expectations(), 3U);
}

INSTANTIATE_TEST_SUITE_P(All, TranscriptOf, ::testing::ValuesIn(transcripts()),
                         [](const auto& file) { return file.param; });

TEST(Transcript, says_what_is_wrong) {
  Transcript transcript;
  EXPECT_FALSE(transcript.run("alice: joined"));
  EXPECT_EQ(transcript.run("  stale"), "is not so, but: applied");
  EXPECT_FALSE(transcript.run("alice: acquire psp limit=4 wants=3"));
  EXPECT_EQ(transcript.run("  psp 4: alice 4"), "is not so, but: psp 4: alice 3");
  EXPECT_EQ(transcript.run("alice: shouts"), "cannot be read: nobody says shouts");
  EXPECT_EQ(transcript.run("alice: expire bob silent_since=then"), "cannot be read: no record is called then");
}

}  // namespace
}  // namespace turnstile::simulation
