#pragma once
// A log that a person writes, with the expected results (the format is in transcripts/README.txt). transcript_test.cpp
// uses it.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/apply.hpp"

namespace turnstile::simulation {

class Transcript {
 public:
  /// Runs a line. Returns an error in the line or in its expectation.
  std::optional<std::string> run(std::string_view line);
  /// Whether the last event has no expectation.
  [[nodiscard]] bool is_unfinished() const { return unexpected_; }
  [[nodiscard]] std::size_t expectations() const { return expectations_; }

 private:
  using Words = std::vector<std::string>;

  void append(const Words& words);
  std::optional<std::string> expect(const std::string& text);
  tokens::Event event(const Words& words);
  decltype(tokens::Event::body) body(const std::string& verb, Words words);
  tokens::Line line(Words words);
  tokens::MemberId member(const std::string& name);
  [[nodiscard]] std::string name_of(tokens::MemberId id) const;
  [[nodiscard]] std::string holders(const std::string& limiter) const;
  tokens::Position position(const std::string& label) const;

  tokens::State state_;
  tokens::Effects effects_;
  std::map<std::string, tokens::MemberId> members_;
  std::map<std::string, std::uint32_t> epochs_;
  std::map<std::string, std::uint64_t> seqs_;
  std::map<std::string, tokens::Position> labels_;
  std::vector<std::string> records_;  ///< as bytes
  bool unexpected_ = false;
  std::size_t expectations_ = 0;
};

}  // namespace turnstile::simulation
