#include "turnstile/kafka/group.hpp"

#include "client.hpp"
#include "errors.hpp"
#include "partition_list.hpp"

namespace turnstile::kafka {

namespace {

constexpr int kWaitMs = 15'000;

using GroupList = std::unique_ptr<const rd_kafka_group_list, FreedBy<rd_kafka_group_list_destroy>>;

bool is_of_members(rd_kafka_resp_err_t code) {
  return code == RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID || code == RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION ||
         code == RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS;
}

}  // namespace

GroupAdmin::GroupAdmin(const Settings& settings) : client_(Client::open(Role::consumer, settings, nullptr)) {
  rd_kafka_poll_set_consumer(client_->handle());
}

GroupAdmin::~GroupAdmin() = default;

std::vector<std::string> GroupAdmin::members() const {
  const std::string group(client_->where().group);
  const rd_kafka_group_list* raw = nullptr;
  const auto code = rd_kafka_list_groups(client_->handle(), group.c_str(), &raw, kWaitMs);
  const GroupList list(raw);
  if (code) throw client_->no_answer(code, "looking for the members of the group");
  std::vector<std::string> members;
  for (int i = 0; i < list->group_cnt; ++i) {
    const auto& found = list->groups[i];
    if (found.err && found.err != RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND)
      throw broker_error(found.err, "looking for the members of the group", client_->where());
    for (int m = 0; m < found.member_cnt; ++m) {
      const auto& member = found.members[m];
      members.push_back(std::string(member.client_id) + " at " + member.client_host);
    }
  }
  return members;
}

std::vector<std::optional<ports::GroupOffset>> GroupAdmin::committed(std::span<const TopicPartition> of) const {
  const auto list = list_of(of);
  if (const auto code = rd_kafka_committed(client_->handle(), list.get(), kWaitMs))
    throw client_->no_answer(code, "requesting committed offsets");
  std::vector<std::optional<ports::GroupOffset>> offsets;
  for (const auto& element : elements(list.get())) {
    if (element.err) throw broker_error(element.err, "requesting committed offsets", client_->where(element.topic));
    auto& offset = offsets.emplace_back();
    if (element.offset < 0) continue;
    offset = ports::GroupOffset{element.offset,
                                std::string(static_cast<const char*>(element.metadata), element.metadata_size)};
  }
  return offsets;
}

std::vector<std::optional<Offset>> GroupAdmin::at_time(std::span<const TopicPartition> of, Timestamp time) const {
  const auto list = list_of(of);
  for (auto& element : elements(list.get())) element.offset = time.time_since_epoch().count();
  if (const auto code = rd_kafka_offsets_for_times(client_->handle(), list.get(), kWaitMs))
    throw client_->no_answer(code, "requesting the offsets of a time");
  std::vector<std::optional<Offset>> offsets;
  for (const auto& element : elements(list.get())) {
    if (element.err) throw broker_error(element.err, "requesting the offsets of a time", client_->where(element.topic));
    offsets.push_back(element.offset >= 0 ? std::optional<Offset>(element.offset) : std::nullopt);
  }
  return offsets;
}

bool GroupAdmin::set(std::span<const ports::OffsetCommit> offsets) const {
  const auto list = list_of(offsets);
  const auto code = rd_kafka_commit(client_->handle(), list.get(), 0);
  if (is_of_members(code)) return false;
  for (const auto& element : elements(list.get())) {
    if (is_of_members(element.err)) return false;
    if (element.err) throw broker_error(element.err, "committing offsets", client_->where(element.topic));
  }
  if (code) throw client_->no_answer(code, "committing offsets");
  return true;
}

}  // namespace turnstile::kafka
