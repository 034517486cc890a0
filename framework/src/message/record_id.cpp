#include "turnstile/record_id.hpp"

#include "message/message_id.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

struct RecordId::Source {
  detail::IdSource source;
};

RecordId::RecordId(const std::string& source) {
  auto parsed = detail::IdSource::parse(source);
  if (const auto* problem = std::get_if<std::string>(&parsed)) throw ConfigError({"message_id: " + *problem});
  source_ = std::make_unique<const Source>(Source{std::get<detail::IdSource>(std::move(parsed))});
}

RecordId::~RecordId() = default;
RecordId::RecordId(RecordId&&) noexcept = default;
RecordId& RecordId::operator=(RecordId&&) noexcept = default;

std::optional<MessageId> RecordId::of(const Message& message, std::int32_t incarnation) const {
  const auto found = source_->source.of(message, incarnation);
  if (const auto* id = std::get_if<MessageId>(&found)) return *id;
  return std::nullopt;
}

bool RecordId::is_offset() const noexcept { return source_->source.is_offset(); }

}  // namespace turnstile
