#pragma once

#include <memory>
#include <string_view>

#include "inbox/session.hpp"
#include "turnstile/ports/outbox.hpp"

namespace turnstile::postgres {

/// The shard of a key. It must be the same in every build, because several builds may write rows of one key.
ports::OutboxShard shard_of(std::string_view key);

/// The shard of this message, which is published under `id`.
ports::OutboxShard outbox_shard(const OwnedMessage& message, const MessageId& id);

/// ports::is_scheduled() by the clock of this process.
bool is_scheduled_now(const OwnedMessage& message);

std::shared_ptr<ports::Outbox> open_outbox(std::shared_ptr<Shared> shared);

}  // namespace turnstile::postgres
