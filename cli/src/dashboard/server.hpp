#pragma once
// The dashboard over HTTP.

#include <memory>

#include "api.hpp"
#include "guard.hpp"

namespace turnstile::cli::dashboard {

class Server {
 public:
  struct Options {
    Rules rules;
    int port = 0;    ///< 0: any free port
    std::string by;  ///< for the page
  };
  /// Binds the address. Throws UsageError if that is not possible. `api` must outlive it.
  Server(Api& api, Options options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] int port() const noexcept;
  /// Answers requests until stop().
  void run();
  /// Any thread may call it.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// 32 bytes that nobody can guess, in hex.
std::string random_token();

}  // namespace turnstile::cli::dashboard
