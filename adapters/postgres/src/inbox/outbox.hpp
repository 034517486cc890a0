#pragma once

#include <memory>
#include <string_view>

#include "inbox/session.hpp"
#include "turnstile/ports/outbox.hpp"

namespace turnstile::postgres {

/// Where records of this key belong: the same in every build, since rows of one key may come from several.
OutboxShard shard_of(std::string_view key);

/// Where this message goes, which is published under `id`.
OutboxShard outbox_shard(const OwnedMessage& message, const MessageId& id);

std::shared_ptr<Outbox> open_outbox(std::shared_ptr<Shared> shared);

}  // namespace turnstile::postgres
