#pragma once
// The settings of the token log's clients. They take the connection from [kafka], and nothing that suits a consumer of
// many messages: a permit would wait for it.

#include "settings.hpp"

namespace turnstile::kafka {

/// How long a request of the token log's clients may take.
inline constexpr int kTokenLogRequestMs = 10'000;

/// `waits_for_end`: the reader is told that it has read all records. A member need not know that at once.
Settings token_log_reader_settings(const Settings& of_user, bool waits_for_end);
Settings token_log_writer_settings(const Settings& of_user);

}  // namespace turnstile::kafka
