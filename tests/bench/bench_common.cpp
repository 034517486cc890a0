#include "tests/bench/bench_common.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

namespace bench {

void die(const std::string& why) {
  std::fflush(stdout);
  std::fprintf(stderr, "bench: %s\n", why.c_str());
  std::_Exit(1);
}

Args::Args(int argc, char** argv) {
  for (int i = 1; i < argc; i += 2) {
    if (std::strncmp(argv[i], "--", 2) != 0) die(std::string("expected --name value, got ") + argv[i]);
    if (i + 1 >= argc) die(std::string(argv[i]) + " needs a value");
    values_[argv[i] + 2] = argv[i + 1];
  }
}

std::string Args::text(const std::string& name) {
  asked_[name] = true;
  const auto it = values_.find(name);
  if (it == values_.end()) die("--" + name + " is missing");
  return it->second;
}

std::string Args::text(const std::string& name, const std::string& fallback) {
  asked_[name] = true;
  const auto it = values_.find(name);
  return it == values_.end() ? fallback : it->second;
}

std::int64_t Args::number(const std::string& name) {
  const std::string value = text(name);
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (error != std::errc{} || end != value.data() + value.size()) die("--" + name + ": not a whole number: " + value);
  return out;
}

std::int64_t Args::number(const std::string& name, std::int64_t fallback) {
  asked_[name] = true;
  return values_.contains(name) ? number(name) : fallback;
}

double Args::real(const std::string& name, double fallback) {
  asked_[name] = true;
  return values_.contains(name) ? std::stod(text(name)) : fallback;
}

void Args::done() const {
  for (const auto& [name, value] : values_) {
    if (!asked_.contains(name)) die("no such argument: --" + name);
  }
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double seconds_since(std::int64_t start_ns) { return static_cast<double>(now_ns() - start_ns) / 1e9; }

std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

void Record::write(std::string& to) const {
  char text[Record::kLeastBytes + 1];
  std::snprintf(text, sizeof text, "%012lld %08lld %019lld ", static_cast<long long>(number),
                static_cast<long long>(amount), static_cast<long long>(produced_ns));
  std::memcpy(to.data(), text, kLeastBytes);
  std::fill(to.begin() + kLeastBytes, to.end(), 'x');
}

namespace {
std::int64_t digits(std::string_view text) {
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || end != text.data() + text.size()) die("not a payload of the loader's");
  return out;
}
}  // namespace

Record Record::read(std::string_view payload) {
  if (payload.size() < kLeastBytes)
    die("a payload of " + std::to_string(payload.size()) + " bytes is not the loader's");
  return {digits(payload.substr(0, 12)), digits(payload.substr(13, 8)), digits(payload.substr(22, 19))};
}

double percentile(std::vector<double>& values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(values.size())));
  return values[std::min(values.size() - 1, rank == 0 ? 0 : rank - 1)];
}

std::string unique_name(const std::string& prefix) {
  std::random_device random;
  char text[32];
  std::snprintf(text, sizeof text, "%08x%08x", random(), random());
  return prefix + "-" + text;
}

Resident resident() {
  Resident out;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) out.now = std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
    if (line.starts_with("VmHWM:")) out.highest = std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return out;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Report::Report(const std::string& program) : fields_("\"program\":\"" + program + "\"") {}

Report& Report::add(const std::string& name, double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  fields_ += ",\"" + name + "\":" + text;
  return *this;
}

Report& Report::add(const std::string& name, std::int64_t value) {
  fields_ += ",\"" + name + "\":" + std::to_string(value);
  return *this;
}

Report& Report::add(const std::string& name, const std::string& value) {
  fields_ += ",\"" + name + "\":\"" + value + "\"";
  return *this;
}

void Report::print() const {
  std::printf("{%s}\n", fields_.c_str());
  std::fflush(stdout);
}

}  // namespace bench
