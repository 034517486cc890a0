#include "http_sender.hpp"

#include <httplib.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <exception>
#include <iomanip>
#include <locale>
#include <memory>
#include <sstream>

namespace turnstile::otlp {

namespace {

constexpr std::size_t kLongestAnswer = std::size_t{64} << 10;
constexpr const char* kTooLong = "its answer has more than 64 KiB";
constexpr std::size_t kMostAddresses = 4;
constexpr const char* kType = "application/x-protobuf";

/// For the header Host.
std::string authority(const TracingSettings::Target& target) {
  const bool is_ipv6 = target.host.find(':') != std::string::npos;
  const std::string host = is_ipv6 ? "[" + target.host + "]" : target.host;
  return target.port == (target.is_https ? 443 : 80) ? host : host + ":" + std::to_string(target.port);
}

std::unique_ptr<httplib::ClientImpl> client_for(const TracingSettings::Target& target, const std::string& ca_file) {
  std::unique_ptr<httplib::ClientImpl> client;
  if (target.is_https) {
    client = std::make_unique<httplib::SSLClient>(target.host, target.port);
    client->enable_server_certificate_verification(true);
    if (!ca_file.empty()) client->set_ca_cert_path(ca_file);
  } else {
    client = std::make_unique<httplib::ClientImpl>(target.host, target.port);
  }
  client->set_keep_alive(false);
  client->set_follow_location(false);  // the headers may hold a token, which is for this host alone
  client->set_decompress(false);
  client->set_tcp_nodelay(true);
  return client;
}

std::string reason(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection: return "there is no connection: nothing listens, or the host does not answer";
    case httplib::Error::Read: return "the connection ended before the answer, or the answer is not HTTP";
    case httplib::Error::Write: return "the connection ended within the request";
    case httplib::Error::SSLConnection: return "the TLS handshake failed";
    case httplib::Error::SSLLoadingCerts: return "the certificates cannot be read; check [tracing] ca_file";
    case httplib::Error::SSLServerVerification:
      return "its certificate is not trusted, or is for another host; check [tracing] ca_file";
    default: return httplib::to_string(error);
  }
}

}  // namespace

HttpSender::HttpSender(const TracingSettings& settings)
    : target_(settings.target().value()),
      headers_(settings.header_list()),
      ca_file_(settings.ca_file),
      lookup_(target_.host) {}

HttpSender::Answer HttpSender::post(const std::string& body, std::chrono::milliseconds timeout) {
  Answer answer;
  deadline_.begin(std::chrono::steady_clock::now() + timeout);
  try {
    const auto addresses = lookup_.addresses(deadline_, answer.why);
    bool reached = false;
    for (std::size_t i = 0; i < addresses.size() && i < kMostAddresses && !reached; ++i) {
      if (std::chrono::steady_clock::now() >= deadline_.current()) break;
      post_to(addresses[i], body, answer, reached);
    }
  } catch (const std::exception& error) {
    answer.why = error.what();
  } catch (...) {
    answer.why = "an unknown exception";
  }
  const bool was_cut = deadline_.end() && !answer.is_whole;
  if (was_cut && deadline_.was_too_long()) answer.why = kTooLong;
  else if (was_cut) answer.why = answer.status == 0 ? "no answer in time" : "the answer did not end in time";
  else if (answer.status == 0 && answer.why.empty()) answer.why = "no time was left for a request";
  return answer;
}

/// `reached`: another address need not be tried.
void HttpSender::post_to(const std::string& address, const std::string& body, Answer& answer, bool& reached) {
  const auto client = client_for(target_, ca_file_);
  client->set_hostname_addr_map({{target_.host, address}});
  client->set_socket_options([this](socket_t socket) { deadline_.watch(socket); });
  const auto left = std::max<std::chrono::steady_clock::duration>(
      deadline_.current() - std::chrono::steady_clock::now(), std::chrono::milliseconds(1));
  client->set_connection_timeout(left);
  // The deadline comes first, and tells that it was the cause.
  client->set_read_timeout(left + std::chrono::seconds(1));
  client->set_write_timeout(left + std::chrono::seconds(1));

  httplib::Request request;
  request.method = "POST";
  request.path = target_.path;
  request.body = body;
  request.set_header("Host", authority(target_));
  request.set_header("Content-Type", kType);
  request.set_header("User-Agent", "turnstile");
  for (const auto& [name, value] : headers_) request.set_header(name.c_str(), value);
  request.response_handler = [&](const httplib::Response& response) {
    answer.status = response.status;
    answer.type = response.get_header_value("Content-Type");
    answer.retry_after = read_retry_after(response.get_header_value("Retry-After"), std::chrono::system_clock::now());
    return true;
  };
  bool is_too_long = false;
  request.content_receiver = [&](const char* data, std::size_t size, std::uint64_t, std::uint64_t) {
    is_too_long = answer.body.size() + size > kLongestAnswer;
    answer.body.append(data, std::min(size, kLongestAnswer - answer.body.size()));
    return !is_too_long;
  };
  const auto result = client->send(request);
  answer.is_whole = static_cast<bool>(result);
  reached = result || result.error() != httplib::Error::Connection;
  if (answer.is_whole) answer.why.clear();
  else if (is_too_long) answer.why = kTooLong;
  else answer.why = reason(result.error());
}

std::optional<std::chrono::seconds> read_retry_after(const std::string& text,
                                                     std::chrono::system_clock::time_point now) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!text.empty() && error == std::errc{} && end == text.data() + text.size() && number >= 0)
    return std::chrono::seconds(number);
  constexpr std::size_t date_length = 29;  // get_time() is content with the beginning of a date
  if (text.size() != date_length) return std::nullopt;
  std::tm parts{};
  std::istringstream date(text);
  date.imbue(std::locale::classic());
  date >> std::get_time(&parts, "%a, %d %b %Y %H:%M:%S GMT");
  if (date.fail() || date.peek() != std::istringstream::traits_type::eof()) return std::nullopt;
  const auto at = std::chrono::system_clock::from_time_t(::timegm(&parts));
  return std::max(std::chrono::ceil<std::chrono::seconds>(at - now), std::chrono::seconds(0));
}

}  // namespace turnstile::otlp
