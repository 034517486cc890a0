#include "wire/arguments.hpp"

#include <charconv>
#include <climits>
#include <cmath>
#include <cstring>
#include <limits>

#include "turnstile/error.hpp"

namespace turnstile::postgres {

namespace {

/// PostgreSQL takes no argument of 1 GB or more; libpq counts in int.
int checked_length(std::size_t size) {
  if (size > static_cast<std::size_t>(INT_MAX) / 2) {
    throw SqlError(
        "an argument of " + std::to_string(size) + " bytes is larger than PostgreSQL accepts (SQLSTATE 54000)",
        "54000");
  }
  return static_cast<int>(size);
}

template <class Texts>
void add_texts(ArgumentBlock& arguments, const Texts& texts) {
  std::size_t size = BinaryWriter::kArrayHeader;
  for (const auto& text : texts) {
    // For the binary form the server checks the encoding, including NUL, and refuses it with 22021.
    size += 4 + text.size();
  }
  checked_length(size);
  BinaryWriter to(arguments.add_binary(kTextArray, size));
  to.array_header(kText, texts.size());
  for (const auto& text : texts) {
    to.int32(static_cast<std::int32_t>(text.size()));
    to.bytes(text.data(), text.size());
  }
}

struct Adder {
  ArgumentBlock& to;
  void operator()(std::monostate) const { to.add_null(0); }
  void operator()(bool value) const { to.add_text(value ? "t" : "f"); }
  void operator()(std::int64_t value) const { to.add_int(value); }
  void operator()(double value) const {
    if (std::isnan(value)) return to.add_text("NaN");
    if (std::isinf(value)) return to.add_text(value > 0 ? "Infinity" : "-Infinity");
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    to.add_text({text, static_cast<std::size_t>(end - text)});
  }
  void operator()(std::string_view text) const { to.add_text(text); }
  void operator()(std::span<const std::byte> bytes) const {
    const auto space = to.add_binary(kBytea, bytes.size());
    if (!bytes.empty()) std::memcpy(space.data(), bytes.data(), bytes.size());
  }
  void operator()(std::span<const std::int64_t> numbers) const {
    BinaryWriter out(to.add_binary(kInt8Array, BinaryWriter::kArrayHeader + 12 * numbers.size()));
    out.array_header(kInt8, numbers.size());
    for (const auto number : numbers) {
      out.int32(8);
      out.int64(number);
    }
  }
  void operator()(std::span<const std::string> texts) const { add_texts(to, texts); }
  void operator()(std::span<const std::string_view> texts) const { add_texts(to, texts); }
};

}  // namespace

void BinaryWriter::bytes(const void* from, std::size_t size) noexcept {
  if (size == 0) return;
  std::memcpy(to_, from, size);
  to_ += size;
}

void BinaryWriter::array_header(Oid element, std::size_t count, bool with_null) noexcept {
  int32(1);  // dimensions; an array of length 0 reads as empty
  int32(with_null ? 1 : 0);
  int32(static_cast<std::int32_t>(element));
  int32(static_cast<std::int32_t>(count));
  int32(1);  // lower bound
}

void ArgumentBlock::clear() noexcept {
  block_.clear();
  arguments_.clear();
  // A very large message must not keep its memory for the life of the connection.
  if (block_.capacity() > (std::size_t{8} << 20)) block_.shrink_to_fit();
}

void ArgumentBlock::add(const Param& param) { std::visit(Adder{*this}, param.value()); }

void ArgumentBlock::add_int(std::int64_t value) {
  char text[24];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  add_text({text, static_cast<std::size_t>(end - text)});
}

void ArgumentBlock::add_text(std::string_view text) {
  if (std::memchr(text.data(), 0, text.size()) != nullptr && !text.empty()) {
    throw SqlError(
        "a text argument has a NUL byte, which PostgreSQL's type text cannot store; pass bytes (SQLSTATE 22021)",
        "22021");
  }
  arguments_.push_back({block_.size(), checked_length(text.size()), 0, false, false});
  block_.append(text).push_back('\0');
}

void ArgumentBlock::add_null(Oid type) { arguments_.push_back({0, 0, type, false, true}); }

std::span<char> ArgumentBlock::add_binary(Oid type, std::size_t size) {
  const std::size_t begin = block_.size();
  const int length = checked_length(size);
  block_.resize(begin + size + 1);
  arguments_.push_back({begin, length, type, true, false});
  return {block_.data() + begin, size};
}

void ArgumentBlock::signature(Mark from, std::string& out) const {
  for (std::size_t i = from.first; i < arguments_.size(); ++i) {
    switch (arguments_[i].type) {
      case 0: out += 't'; break;
      case kBytea: out += 'b'; break;
      case kInt8Array: out += 'i'; break;
      case kTextArray: out += 's'; break;
      case kUuidArray: out += 'u'; break;
      default: out += std::to_string(arguments_[i].type); break;
    }
  }
}

ArgumentBlock::View ArgumentBlock::view(std::size_t first, std::size_t count) {
  types_.clear();
  values_.clear();
  lengths_.clear();
  formats_.clear();
  for (std::size_t i = first; i < first + count; ++i) {
    const Argument& argument = arguments_[i];
    types_.push_back(argument.type);
    values_.push_back(argument.null ? nullptr : block_.data() + argument.begin);
    lengths_.push_back(argument.length);
    formats_.push_back(argument.binary ? 1 : 0);
  }
  return {static_cast<int>(count), types_.data(), values_.data(), lengths_.data(), formats_.data()};
}

}  // namespace turnstile::postgres
