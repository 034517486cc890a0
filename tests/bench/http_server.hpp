#pragma once
// The common part of the benchmark's two HTTP servers: everything except the handler.

#include <httplib.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <thread>

#include "tests/bench/bench_common.hpp"

namespace bench {

/// Listens on a free port of 127.0.0.1, prints "port N", and returns when the standard input has ended.
inline void serve(httplib::Server& server, std::int64_t threads) {
  server.new_task_queue = [threads] { return new httplib::ThreadPool(static_cast<std::size_t>(threads)); };
  server.set_keep_alive_max_count(std::size_t{1} << 40);
  server.set_tcp_nodelay(true);
  const int port = server.bind_to_any_port("127.0.0.1");
  if (port <= 0) die("no free port on 127.0.0.1");
  std::jthread end([&] {
    while (std::cin.get() != std::char_traits<char>::eof()) {
    }
    server.stop();
  });
  std::cout << "port " << port << std::endl;
  server.listen_after_bind();
}

}  // namespace bench
