#pragma once
// The common part of all benchmark programs, without Kafka and PostgreSQL: arguments, clocks, the loader's records,
// percentiles, and the line of JSON with a program's results.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

/// Prints "PROGRAM: why" to stderr and exits with 1: after an error a benchmark has no result.
[[noreturn]] void die(const std::string& why);

/// Arguments as `--name value`. A missing argument without a default ends the program. An argument that was not read
/// before done() ends it too.
class Args {
 public:
  Args(int argc, char** argv);
  std::string text(const std::string& name);
  std::string text(const std::string& name, const std::string& fallback);
  std::int64_t number(const std::string& name);
  std::int64_t number(const std::string& name, std::int64_t fallback);
  double real(const std::string& name, double fallback);
  void done() const;

 private:
  std::map<std::string, std::string> values_;
  std::map<std::string, bool> asked_;
};

/// CLOCK_MONOTONIC: comparable between processes of one machine.
std::int64_t now_ns();
double seconds_since(std::int64_t start_ns);

/// Splitmix64: a record's id, key and amount follow from its number, so that the loader needs no table of them.
std::uint64_t scramble(std::uint64_t x);

/// The loader's payload: "NNNNNNNNNNNN AAAAAAAA TTTTTTTTTTTTTTTTTTT xxxx…". It contains the record's number, an amount,
/// and its CLOCK_MONOTONIC nanoseconds.
struct Record {
  static constexpr std::size_t kLeastBytes = 42;
  std::int64_t number = 0;
  std::int64_t amount = 0;
  std::int64_t produced_ns = 0;

  /// Fills all of `to`, which must have at least `kLeastBytes`.
  void write(std::string& to) const;
  /// Ends the program if the loader has not written the payload.
  static Record read(std::string_view payload);
};

/// Sorts; p from 0 to 1. 0 for no values.
double percentile(std::vector<double>& values, double p);

/// A name for a group or topic that no earlier run has used.
std::string unique_name(const std::string& prefix);

/// The resident memory of this process, now and at its peak, in bytes.
struct Resident {
  std::int64_t now = 0;
  std::int64_t highest = 0;
};
Resident resident();

/// CPU time of this process, user and system, in seconds.
double cpu_seconds();

/// A line of JSON to stdout. Numbers are printed with as many digits as they need.
class Report {
 public:
  explicit Report(const std::string& program);
  Report& add(const std::string& name, double value);
  Report& add(const std::string& name, std::int64_t value);
  Report& add(const std::string& name, const std::string& value);
  void print() const;

 private:
  std::string fields_;
};

}  // namespace bench
