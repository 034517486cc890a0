#pragma once
// Ids, responses and messages in the caller's own transaction: a handler's, or a libpqxx transaction (borrow()).

#include <memory>

#include "inbox/session.hpp"

namespace turnstile::postgres {

/// `transaction` must outlive it.
std::unique_ptr<ports::InboxSession> join(std::shared_ptr<Shared> shared, Transaction& transaction);

}  // namespace turnstile::postgres
