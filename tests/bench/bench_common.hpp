#pragma once
// What all benchmark programs share and what concerns neither Kafka nor PostgreSQL: arguments, clocks, the records that
// the loader writes, percentiles, and the one line of JSON in which a program reports.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

/// Prints "PROGRAM: why" to stderr and exits with 1: a benchmark that met an error has no figure.
[[noreturn]] void die(const std::string& why);

/// Arguments as `--name value`. Asking for one that was not given and has no default ends the program; so does an
/// argument that nobody asked for by the time of done().
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

/// Splitmix64: a record's id, key and amount follow from its number alone, so that the loader keeps no table of them.
std::uint64_t scramble(std::uint64_t x);

/// The payload that the loader writes: "NNNNNNNNNNNN AAAAAAAA TTTTTTTTTTTTTTTTTTT xxxx…" with the record's number, an
/// amount, and the CLOCK_MONOTONIC nanoseconds at which it was produced.
struct Record {
  static constexpr std::size_t kLeastBytes = 42;
  std::int64_t number = 0;
  std::int64_t amount = 0;
  std::int64_t produced_ns = 0;

  /// Fills all of `to`, which holds at least `kLeastBytes`.
  void write(std::string& to) const;
  /// Ends the program when the payload is not one of the loader's.
  static Record read(std::string_view payload);
};

/// Sorts; p from 0 to 1. 0 for no values.
double percentile(std::vector<double>& values, double p);

/// A group or topic name that no earlier run has used.
std::string unique_name(const std::string& prefix);

/// Resident memory of this process, now and at its highest, in bytes.
struct Resident {
  std::int64_t now = 0;
  std::int64_t highest = 0;
};
Resident resident();

/// CPU time of this process, user and system, in seconds.
double cpu_seconds();

/// One line of JSON to stdout. Numbers are printed with the digits that they need.
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
