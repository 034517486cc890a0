// Which values Idempotency-Key may have, and how a response is kept.

#include "adapters/http/src/key.hpp"

#include <gmock/gmock.h>

#include "adapters/http/src/kept.hpp"

namespace turnstile::http {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

std::string key_in(std::string_view value) {
  const Key key = parse_key(value, 255);
  const auto* text = std::get_if<std::string>(&key);
  return text != nullptr ? *text : "malformed";
}
std::string why_not(std::string_view value, std::size_t max = 255) {
  const Key key = parse_key(value, max);
  const auto* malformed = std::get_if<Malformed>(&key);
  return malformed != nullptr ? malformed->why : "a key: " + std::get<std::string>(key);
}

TEST(HttpKey, is_a_string_of_structured_fields_or_a_bare_word) {
  EXPECT_EQ(key_in("\"8e03978e-40d5-43dd-bc93-6894a57f9324\""), "8e03978e-40d5-43dd-bc93-6894a57f9324");
  EXPECT_EQ(key_in("8e03978e-40d5-43dd-bc93-6894a57f9324"), "8e03978e-40d5-43dd-bc93-6894a57f9324");
  EXPECT_EQ(key_in(R"("say \"hello\" and \\")"), R"(say "hello" and \)");
  EXPECT_EQ(key_in("\" \""), " ");
  EXPECT_EQ(key_in("order/17;a=b~!"), "order/17;a=b~!");
  EXPECT_EQ(key_in(R"(a\b)"), R"(a\b)");
  EXPECT_EQ(key_in(std::string(255, 'k')), std::string(255, 'k'));
  EXPECT_EQ(key_in('"' + std::string(255, 'k') + '"'), std::string(255, 'k'));
}

TEST(HttpKey, what_is_neither_is_refused_with_the_reason) {
  for (const auto& value : {""s, "\"\""s}) EXPECT_THAT(why_not(value), HasSubstr("is empty"));
  for (const auto& value : {"a\0b"s, "\"a\0b\""s, "\0"s, "a\tb"s, "\"\x7f\""s, "sch\xc3\xb6n"s, "\"\xff\""s})
    EXPECT_THAT(why_not(value), HasSubstr("not printable ASCII"));
  for (const auto& value :
       {"\""s, "\"a"s, R"("a\")"s, R"("a\b")"s, R"("a"b)"s, R"("a";p=1)"s, R"("a", "b")"s, "\"a\\"s})
    EXPECT_THAT(why_not(value), HasSubstr("RFC 8941"));
  for (const auto& value : {"a b"s, "a,b"s, R"(a"b)"s, "' a'"s}) EXPECT_THAT(why_not(value), HasSubstr("in quotes"));
  for (const auto& value : {std::string(256, 'k'), '"' + std::string(256, 'k') + '"'})
    EXPECT_THAT(why_not(value), HasSubstr("256 bytes, more than the maximum of 255"));
  EXPECT_EQ(
      why_not("abcd", 3),
      "Idempotency-Key has 4 bytes, more than the maximum of 3; send a new key for each operation, such as a UUID");
}

TEST(HttpKept, what_is_kept_comes_back_bit_for_bit) {
  for (const Kept& kept : {Kept{}, Kept{204, {}, ""}, Kept{201, {{"Content-Type", "text/plain"}}, "hello, 3:abc,"},
                           Kept{200, {{"Set-Cookie", "a=1"}, {"Set-Cookie", "b=2"}, {"X-Empty", ""}}, "\0\r\n\xff,:"s},
                           Kept{404, {{"A", "2:H1,"}}, std::string(100'000, ',')}}) {
    EXPECT_EQ(decode(encode(kept)), kept);
  }
  EXPECT_EQ(encode({201, {{"A", "b"}}, "hi"}), "2:H1,3:201,1:A,1:b,2:hi,") << "stored: it must not change";
}

TEST(HttpKept, what_is_no_kept_response_is_refused) {
  for (const auto& bytes :
       {""s, "receipt 17"s, "2:H2,3:201,0:,"s, "2:H1,3:abc,0:,"s, "2:H1,3:201,"s, "2:H1,3:201,1:A,1:b,"s,
        "2:H1,3:201,99999999999999999999:x,"s, "2:H1,3:201,-1:x,"s, "2:H1,3:201,5:hello"s}) {
    EXPECT_FALSE(decode(bytes)) << bytes;
  }
}

TEST(HttpKept, what_a_content_provider_makes_cannot_be_kept) {
  httplib::Response made;
  made.set_content_provider(3, "text/plain",
                            [](std::size_t, std::size_t, httplib::DataSink& sink) { return sink.write("abc", 3); });
  EXPECT_FALSE(taken_from(std::move(made)));
}

}  // namespace
}  // namespace turnstile::http
