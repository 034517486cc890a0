#include "dead_edit.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "database.hpp"
#include "text.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::cli {

namespace {

/// Replaces the headers of this name by one, in the place of the first; a new one comes last.
void set_header(std::vector<Header>& headers, const Header& header) {
  const auto same = [&](const Header& other) { return other.name == header.name; };
  const auto first = std::find_if(headers.begin(), headers.end(), same);
  if (first == headers.end()) {
    headers.push_back(header);
    return;
  }
  *first = header;
  headers.erase(std::remove_if(first + 1, headers.end(), same), headers.end());
}

}  // namespace

OwnedMessage changed(const postgres::DeadRecord& dead, const DeadChanges& changes) {
  OwnedMessage record = dead.record;
  if (changes.payload) record.payload = changes.payload;
  for (const auto& header : changes.headers) set_header(record.headers, header);
  for (const auto& name : changes.removed) {
    if (std::erase_if(record.headers, [&](const Header& header) { return header.name == name; }) == 0)
      throw UsageError(fmt::format("--remove-header {}: dead letter {} has no such header", one_line(name, 80),
                                   dead.summary.number));
  }
  return record;
}

void require_editable(const postgres::DeadRecord& dead) {
  const auto& letter = dead.summary;
  if (letter.replayed_at) {
    throw Refusal(fmt::format("dead letter {} was replayed {}: its message is in the topic as it was", letter.number,
                              when(*letter.replayed_at)));
  }
  if (letter.replay_in_doubt) throw Refusal(fmt::format("dead letter {}: {}", letter.number, how_to_settle(letter)));
  if (dead.damage) throw Refusal(fmt::format("dead letter {}: {}", letter.number, *dead.damage));
}

void edit_dead(postgres::Admin& admin, const postgres::DeadRecord& dead, const OwnedMessage& record,
               const std::string& by) {
  const auto number = dead.summary.number;
  if (record.payload == dead.record.payload && record.headers == dead.record.headers)
    throw UsageError(fmt::format("dlq edit: dead letter {} has this content already; nothing was changed", number));
  if (const auto& id = dead.summary.id) {
    if (const auto source = changed_id_source(dead.record, record, *id)) {
      throw Refusal(fmt::format(
          "dead letter {}: its id may come from {}, which this edit changes. With another id it would be another message, "
          "and could take effect twice; keep that part as it is",
          number, one_line(*source, 200)));
    }
  }
  if (!admin.edit_dead(dead, record, by)) {
    throw Refusal(
        fmt::format("dead letter {}: another operator has replayed or edited it meanwhile; see: turnstile dlq show {}",
                    number, number));
  }
}

}  // namespace turnstile::cli
