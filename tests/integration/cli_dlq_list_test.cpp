// turnstile dlq list, groups, edit and purge with many dead letters, on a real PostgreSQL.

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tests/integration/cli_dlq.hpp"
#include "tests/support/eventually.hpp"

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class CliDeadLetters : public CliDlq {
 protected:
  /// Dead letters of handler charge from partitions 0 to 3 of `topic`, one a minute, the last of them now. Every tenth
  /// was rejected, and the others failed.
  void bury_many(const std::string& topic, int count) {
    sql("INSERT INTO fence (consumer_group, topic, partition) SELECT 'billing', '" + topic +
        "', p FROM generate_series(0, 3) p ON CONFLICT DO NOTHING");
    sql("INSERT INTO dead (handler, slot, incarnation, record_offset, message_id, reason, error, attempts, record_payload, "
        "header_names, header_values, died_at) "
        "SELECT 1, f.slot, 0, n, md5(n::text)::uuid, CASE n % 10 WHEN 0 THEN 'rejected' ELSE 'failed' END, "
        "'order ' || n || ' has no customer', 5, convert_to('{\"amount\": ' || n || '}', 'UTF8'), ARRAY['region'::bytea], "
        "ARRAY[CASE n % 2 WHEN 0 THEN 'eu' ELSE 'us' END::bytea], now() - (" +
        std::to_string(count) + " - n) * interval '1 minute' FROM generate_series(1, " + std::to_string(count) +
        ") n JOIN fence f ON f.topic = '" + topic + "' AND f.partition = n % 4 ORDER BY n");
    sql("ANALYZE dead");
  }

  Json run_json(std::vector<std::string> verb, int code = 0) {
    verb.insert(verb.begin(), "dlq");
    verb.emplace_back("--json");
    const auto result = cli_.run_all(verb);
    EXPECT_EQ(result.code, code) << result.err;
    return Json::parse(result.out, nullptr, false);
  }

  static std::vector<std::int64_t> numbers(const Json& page) {
    std::vector<std::int64_t> all;
    for (const auto& letter : page["dead"]) all.push_back(letter["number"]);
    return all;
  }

  std::string scans(const std::string& column) {
    return sql("SELECT pg_stat_clear_snapshot(); SELECT coalesce(sum(" + column +
               "), 0) FROM pg_stat_user_tables WHERE schemaname = '" + schema_ + "' AND relname = 'dead'");
  }
};

TEST_F(CliDeadLetters, pages_have_each_letter_once_in_the_order_of_time) {
  bury_many("orders", 95);
  // At one time, in another order than their numbers, and not by this clock.
  sql("UPDATE dead SET died_at = '2026-03-01' WHERE id BETWEEN 20 AND 40");
  sql("UPDATE dead SET died_at = 'infinity' WHERE id IN (3, 4, 5)");
  sql("UPDATE dead SET died_at = '-infinity' WHERE id IN (6, 7)");
  sql("UPDATE dead SET replayed_at = now() WHERE id = 50");
  for (const bool all : {false, true}) {
    std::vector<std::int64_t> read;
    std::vector<std::string> verb{"list", "--limit", "10"};
    if (all) verb.emplace_back("--all");
    Json page = run_json(verb);
    for (int pages = 1; pages < 20; ++pages) {
      for (const auto number : numbers(page)) read.push_back(number);
      if (page["next"].is_null()) break;
      auto next = verb;
      next.insert(next.end(), {"--after", page["next"]});
      page = run_json(next);
    }
    ASSERT_EQ(read.size(), all ? 95U : 94U);
    const std::vector<std::int64_t> first(read.begin(), read.begin() + 3), last(read.end() - 3, read.end());
    EXPECT_THAT(first, ElementsAre(6, 7, 20));
    EXPECT_THAT(last, ElementsAre(3, 4, 5));
    EXPECT_EQ(std::set<std::int64_t>(read.begin(), read.end()).size(), read.size());
  }
}

TEST_F(CliDeadLetters, filters_narrow_the_list) {
  bury_many("orders", 100);
  bury(7, "'{\"amount\": 12}'");
  EXPECT_EQ(numbers(run_json({"list", "--topic", "orders", "--reason", "rejected"})).size(), 10U);
  EXPECT_EQ(numbers(run_json({"list", "--topic", "orders", "--since", "30m ago"})).size(), 30U);
  EXPECT_THAT(numbers(run_json({"list", "--topic", "orders", "--until", "97m ago"})), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers(run_json({"list", "--text", "\"amount\": 12}"})), ElementsAre(12, 101));
  EXPECT_THAT(numbers(run_json({"list", "--text", "\"amount\": 1", "--header", "region=eu", "--reason", "rejected"})),
              ElementsAre(10, 100));
  EXPECT_THAT(numbers(run_json({"list", "--header", "message-id=order-17"})), ElementsAre(101));
  EXPECT_THAT(numbers(run_json({"list", "--header", "trace=order-17"})), ElementsAre());
  sql("UPDATE dead SET replayed_at = now() WHERE id = 12");
  EXPECT_THAT(numbers(run_json({"list", "--text", "\"amount\": 12}"})), ElementsAre(101));
  EXPECT_THAT(numbers(run_json({"list", "--text", "\"amount\": 12}", "--all"})), ElementsAre(12, 101));
  const auto page = cli_.run("dlq", "list", "--topic", "orders", "--limit", "2");
  EXPECT_THAT(page.out, HasSubstr("there are more: --after 20"));
}

TEST_F(CliDeadLetters, bad_input_gets_one_line) {
  bury(7, "'{}'");
  const auto refused = [&](const std::vector<std::string>& verb, int code = 2) {
    const auto result = cli_.run_all(verb);
    EXPECT_EQ(result.code, code) << result.out;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    return result.err;
  };
  EXPECT_THAT(refused({"dlq", "list", "--since", "yesterday"}), HasSubstr("--since yesterday: not a time"));
  EXPECT_THAT(refused({"dlq", "list", "--since", "17"}), HasSubstr("--since 17: not a time"));
  EXPECT_THAT(refused({"dlq", "list", "--since", "1h ago", "--until", "2h ago"}),
              HasSubstr("no dead letter can match"));
  EXPECT_THAT(refused({"dlq", "list", "--header", "region"}), HasSubstr("write it as NAME=VALUE"));
  EXPECT_THAT(refused({"dlq", "list", "--text", ""}), HasSubstr("at least one character"));
  EXPECT_THAT(refused({"dlq", "list", "--reason", "bogus"}), HasSubstr("the reasons are: failed"));
  EXPECT_THAT(refused({"dlq", "list", "--after", "x"}), HasSubstr("not where a page of dead letters begins"));
  EXPECT_THAT(refused({"dlq", "list", "--after", "2026-99-99/7"}),
              HasSubstr("not where a page of dead letters begins"));
  EXPECT_THAT(refused({"dlq", "purge", "--older-than", "30"}), HasSubstr("--older-than 30: not a time"));
  EXPECT_THAT(refused({"dlq", "edit", "1"}), HasSubstr("give what to change"));
  EXPECT_THAT(refused({"dlq", "edit", "1", "--file", "nowhere"}), HasSubstr("--file nowhere: cannot be read"));
  EXPECT_THAT(refused({"dlq", "edit", "1", "--remove-header", "x"}), HasSubstr("has no such header"));
  EXPECT_THAT(refused({"dlq", "edit", "1", "--value", "{}"}), HasSubstr("has this content already"));
  EXPECT_THAT(refused({"dlq", "edit", "9", "--value", "{}"}, 1), HasSubstr("there is no dead letter 9"));
}

TEST_F(CliDeadLetters, groups_count_errors_that_differ_only_in_numbers_as_one) {
  bury_many("orders", 100);
  bury(7, "'{}'");
  sql("UPDATE dead SET error = 'customer ' || gen_random_uuid() || ' is blocked' WHERE id IN (1, 2)");
  sql("UPDATE dead SET error = 'bad object at 0x7f3' || to_hex(id) || 'a' WHERE id IN (12, 13, 14)");
  sql("UPDATE dead SET replayed_at = now() WHERE id = 3");
  const auto found = run_json({"groups"});
  EXPECT_EQ(found["dead_letters"], 100);
  EXPECT_EQ(found["of_groups"], 5);
  const auto& largest = found["groups"][0];
  EXPECT_EQ(largest["error"], "order # has no customer");
  EXPECT_EQ(largest["count"], 84);
  EXPECT_EQ(largest["reason"], "failed");
  EXPECT_EQ(largest["example"], 4);
  EXPECT_EQ(found["groups"][2]["error"], "bad object at #");
  EXPECT_EQ(found["groups"][3]["error"], "customer # is blocked");
  EXPECT_THAT(
      cli_.run("dlq", "groups", "--limit", "1").out,
      AllOf(HasSubstr("100 dead letters in 5 groups; there are more: --limit 10"), Not(HasSubstr("card declined"))));
  EXPECT_THAT(cli_.run("dlq", "groups", "--topic", "payments").out,
              AllOf(HasSubstr("ERROR\n"), HasSubstr("1 dead letter in 1 group")));
}

TEST_F(CliDeadLetters, an_edit_keeps_the_original_and_who_made_it) {
  bury(7, "'{\"amount\": 12}'");
  cli_.folder().write("new.json", "{\"amount\": 13}");
  const auto edit = cli_.run("dlq", "edit", "1", "--file", "new.json", "--header", "trace=x", "--header", "new=y",
                             "--remove-header", "empty");
  EXPECT_EQ(edit.code, 0) << edit.err;
  EXPECT_THAT(edit.out, HasSubstr("1 edited"));
  auto shown = run_json({"show", "1"});
  EXPECT_EQ(shown["payload"], "{\"amount\": 13}");
  EXPECT_EQ(shown["headers"].dump(),
            R"([{"name":"message-id","value":"order-17"},{"name":"trace","value":"x"},{"name":"new","value":"y"}])");
  EXPECT_EQ(shown["id"], MessageId::from("order-17").text());
  EXPECT_THAT(shown["edited"][0]["by"].get<std::string>(), AllOf(HasSubstr("@"), HasSubstr(", role ")));
  EXPECT_EQ(cli_.run("dlq", "edit", "1", "--value", "again").code, 0);
  const auto original = run_json({"show", "1", "--original"});
  EXPECT_EQ(original["payload"], "{\"amount\": 12}");
  EXPECT_EQ(original["headers"][1]["value"]["base64"], "AP8=");
  EXPECT_EQ(original["headers"][2]["value"], nullptr);
  EXPECT_EQ(original["edited"].size(), 2U);
  EXPECT_THAT(cli_.run("dlq", "show", "1", "--original").out, HasSubstr("the record as it died"));
  EXPECT_THAT(cli_.run("dlq", "show", "1").out, HasSubstr("the record as it was edited last"));
  EXPECT_THAT(cli_.run("dlq", "list").out, HasSubstr("failed (edited)"));
}

TEST_F(CliDeadLetters, an_edit_never_changes_the_id) {
  bury(7, "'{}'");
  const auto refused = cli_.run("dlq", "edit", "1", "--header", "message-id=order-18");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("its id may come from header:message-id"), HasSubstr("keep that part")));
  EXPECT_EQ(cli_.run("dlq", "edit", "1", "--remove-header", "message-id").code, 4);
  EXPECT_EQ(sql("SELECT count(*) FROM dead_edit"), "0");
}

TEST_F(CliDeadLetters, what_was_replayed_cannot_be_edited) {
  bury(7, "'{}'");
  sql("UPDATE dead SET replayed_at = now()");
  EXPECT_THAT(cli_.run("dlq", "edit", "1", "--value", "x").err, HasSubstr("dead letter 1 was replayed"));
  sql("UPDATE dead SET replayed_at = clock_timestamp() + interval '200000 years'");
  const auto doubted = cli_.run("dlq", "edit", "1", "--value", "x");
  EXPECT_EQ(doubted.code, 4);
  EXPECT_THAT(doubted.err, HasSubstr("may have been published"));
}

TEST_F(CliDeadLetters, a_purge_shows_first_what_it_would_delete) {
  bury_many("orders", 100);
  sql("UPDATE dead SET died_at = died_at - interval '40 days' WHERE id <= 60");
  sql("UPDATE dead SET replayed_at = now() WHERE id <= 20");
  sql("UPDATE dead SET replayed_at = clock_timestamp() + interval '200000 years' WHERE id = 30");
  const auto shown = cli_.run("dlq", "purge", "--older-than", "30d");
  EXPECT_EQ(shown.code, 2);
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("EXAMPLE\n"), HasSubstr("would delete 59 dead letters, of which 39 were never replayed"),
                    HasSubstr("would keep 1 dead letter whose replay is in doubt")));
  EXPECT_THAT(shown.err, HasSubstr("nothing was deleted"));
  EXPECT_EQ(sql("SELECT count(*) FROM dead"), "100");
  EXPECT_EQ(run_json({"purge", "--older-than", "30d", "--replayed", "--yes"})["deleted"], 20);
  EXPECT_EQ(run_json({"purge", "--older-than", "30d", "--reason", "rejected", "--yes"})["deleted"], 3);
  EXPECT_EQ(run_json({"purge", "--older-than", "30d", "--yes"})["deleted"], 36);
  EXPECT_EQ(sql("SELECT count(*) FROM dead"), "41");
  EXPECT_EQ(sql("SELECT count(*) FROM dead WHERE id = 30"), "1") << "the one in doubt";
  EXPECT_EQ(cli_.run("dlq", "purge", "--older-than", "30d", "--postgres", consumer_url(), "--yes").code, 3);
}

/// Of more rows than one transaction deletes, and beside a replay that holds a row.
TEST_F(CliDeadLetters, a_purge_goes_on_over_its_batches_and_past_locked_rows) {
  bury_many("orders", 3'500);
  sql("UPDATE dead SET died_at = died_at - interval '40 days' WHERE id <= 3400");
  pqxx::connection other(url_);
  pqxx::work replay(other);
  replay.exec("SELECT 1 FROM " + schema_ + ".dead WHERE id = 1700 FOR UPDATE");
  EXPECT_EQ(run_json({"purge", "--older-than", "30d", "--yes"})["deleted"], 3'399);
  EXPECT_EQ(sql("SELECT string_agg(id::text, ' ') FROM dead WHERE id <= 3400"), "1700");
}

/// The server counts which way each statement reads the table.
TEST_F(CliDeadLetters, a_page_by_topic_reason_and_time_is_an_index_scan_among_many_rows) {
  bury_many("orders", 200'000);
  bury_many("refunds", 50'000);
  sql("SELECT pg_stat_force_next_flush()");
  const std::string before = scans("seq_scan");
  const auto page = run_json({"list", "--topic", "orders", "--reason", "rejected", "--since", "100d ago", "--until",
                              "1h ago", "--limit", "50"});
  EXPECT_EQ(page["dead"].size(), 50U);
  EXPECT_EQ(run_json({"list", "--topic", "orders", "--reason", "rejected", "--since", "100d ago", "--after",
                      page["next"]})["dead"]
                .size(),
            50U);
  EXPECT_TRUE(eventually([&] {
    return sql("SELECT pg_stat_clear_snapshot(); SELECT idx_scan > 0 FROM pg_stat_user_indexes WHERE schemaname = '" +
               schema_ + "' AND indexrelname = 'dead_waiting'") == "t";
  }));
  EXPECT_EQ(scans("seq_scan"), before) << "a page was read by a scan of the whole table";
}

}  // namespace
}  // namespace turnstile::test
