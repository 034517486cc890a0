#include "problem.hpp"

#include <string>

namespace turnstile::http {

namespace {

std::string_view title_of(int status) {
  switch (status) {
    case 400: return "Bad Request";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 413: return "Content Too Large";
    case 422: return "Unprocessable Content";
    case 503: return "Service Unavailable";
    default: return "Internal Server Error";
  }
}

}  // namespace

void set_problem(httplib::Response& response, int status, std::string_view detail) {
  response.status = status;
  std::string body;
  body.append(R"({"type":"about:blank","title":")").append(title_of(status)).append(R"(","status":)");
  body.append(std::to_string(status)).append(R"(,"detail":")").append(detail).append("\"}\n");
  response.set_content(body, "application/problem+json");
}

void set_problem(httplib::Response& response, int status, std::string_view detail, std::chrono::seconds retry_after) {
  set_problem(response, status, detail);
  response.set_header("Retry-After", std::to_string(retry_after.count()));
}

}  // namespace turnstile::http
