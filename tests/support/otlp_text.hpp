#pragma once
// Reads a request for a collector with the official files of the OpenTelemetry protocol, and not with Turnstile's.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/support/read_file.hpp"

namespace turnstile::test {

/// An ExportTraceServiceRequest as protobuf text, by protoc. A body that is none fails the test.
inline std::string otlp_text(const std::string& body) {
  std::string folder = (std::filesystem::temp_directory_path() / "otlp-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no temporary folder");
  std::ofstream(folder + "/request", std::ios::binary) << body;
  const std::string command = "protoc -I " TURNSTILE_SOURCE_DIR
                              "/tests/support/opentelemetry-proto "
                              "--decode=opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest "
                              "opentelemetry/proto/collector/trace/v1/trace_service.proto <" +
                              folder + "/request >" + folder + "/text 2>&1";
  const int result = std::system(command.c_str());
  std::string text = read_file(folder + "/text");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(result, 0) << text;
  return text;
}

}  // namespace turnstile::test
