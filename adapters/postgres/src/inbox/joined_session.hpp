#pragma once
// Ids, responses and messages in somebody's own transaction: one of ours (a handler's), or one of libpqxx (borrow()).

#include <memory>

#include "inbox/session.hpp"

namespace turnstile::postgres {

/// `transaction` must outlive it.
std::unique_ptr<InboxSession> join(std::shared_ptr<Shared> shared, Transaction& transaction);

}  // namespace turnstile::postgres
