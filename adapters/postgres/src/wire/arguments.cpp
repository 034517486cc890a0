#include "wire/arguments.hpp"

#include <bit>
#include <charconv>
#include <chrono>
#include <cstring>

#include "turnstile/error.hpp"
#include "turnstile/ports/param_text.hpp"
#include "wire/encode.hpp"
#include "wire/numeric.hpp"

namespace turnstile::postgres {

namespace {

/// The server ends a connection that sends a message of 1 GB (its PQ_LARGE_MESSAGE_LIMIT). What a message has besides its
/// arguments needs less than the 1 MB that is missing here.
constexpr std::size_t kMostBytes = (std::size_t{1} << 30) - (std::size_t{1} << 20);

/// `before`: the bytes of the arguments before it.
int checked_length(std::size_t size, std::size_t before) {
  if (size > kMostBytes || before + size > kMostBytes) {
    throw SqlError("it has " + std::to_string(size) + " bytes, and those before it " + std::to_string(before) +
                       ", but PostgreSQL accepts less than 1 GB in a statement (SQLSTATE 54000)",
                   "54000");
  }
  return static_cast<int>(size);
}

/// An array of values of `size_of(value)` bytes each, which `write(out, value)` writes.
template <class T, class SizeOf, class Write>
void add_array(ArgumentBlock& to, Oid array, Oid element, std::span<const T> values, SizeOf size_of, Write write) {
  std::size_t size = BinaryWriter::kArrayHeader;
  for (const T& value : values) size += 4 + size_of(value);
  BinaryWriter out(to.add_binary(array, size));
  out.array_header(element, values.size());
  for (const T& value : values) {
    out.int32(static_cast<std::int32_t>(size_of(value)));
    write(out, value);
  }
}

constexpr std::size_t eight_bytes(const auto&) noexcept { return 8; }

/// The version of the form, and the document.
std::size_t size_on_wire(Jsonb value) noexcept { return 1 + value.text.size(); }
void write_json(BinaryWriter& out, Jsonb value) noexcept {
  constexpr char kVersion = 1;
  out.bytes(&kVersion, 1);
  out.bytes(value.text.data(), value.text.size());
}

struct Adder {
  ArgumentBlock& to;
  void operator()(std::monostate) const { to.add_null(0); }
  void operator()(bool value) const { to.add_text(value ? "t" : "f"); }
  void operator()(std::int64_t value) const { to.add_int(value); }
  void operator()(double value) const { to.add_text(*ports::param_text(value)); }
  void operator()(std::string_view text) const { to.add_text(text); }
  void operator()(std::span<const std::byte> bytes) const {
    BinaryWriter(to.add_binary(kBytea, bytes.size())).bytes(bytes.data(), bytes.size());
  }
  void operator()(const MessageId& id) const { add_uuid(to, id); }
  void operator()(Timestamp time) const {
    ports::check_time(time);
    BinaryWriter(to.add_binary(kTimestamptz, 8)).int64(time_on_wire(time));
  }
  void operator()(Numeric value) const {
    const NumericText number(value.text);
    BinaryWriter out(to.add_binary(kNumeric, number.size()));
    number.write(out);
  }
  void operator()(Jsonb value) const {
    BinaryWriter out(to.add_binary(kJsonb, size_on_wire(value)));
    write_json(out, value);
  }
  void operator()(std::span<const std::int64_t> numbers) const {
    add_int8_array(to, numbers.size(), [&](std::size_t i) { return std::optional(numbers[i]); });
  }
  void operator()(std::span<const double> numbers) const {
    add_array(to, kFloat8Array, kFloat8, numbers, eight_bytes<double>,
              [](BinaryWriter& out, double number) { out.int64(std::bit_cast<std::int64_t>(number)); });
  }
  // The server checks the encoding of texts, including NUL, and refuses it with 22021.
  void operator()(std::span<const std::string> texts) const { add_texts(texts); }
  void operator()(std::span<const std::string_view> texts) const { add_texts(texts); }
  void operator()(std::span<const MessageId> ids) const {
    add_uuid_array(to, ids.size(), [&](std::size_t i) -> const MessageId& { return ids[i]; });
  }
  void operator()(std::span<const Timestamp> times) const {
    for (const Timestamp time : times) ports::check_time(time);
    add_array(to, kTimestamptzArray, kTimestamptz, times, eight_bytes<Timestamp>,
              [](BinaryWriter& out, Timestamp time) { out.int64(time_on_wire(time)); });
  }
  void operator()(std::span<const Numeric> values) const {
    std::vector<NumericText> numbers;
    numbers.reserve(values.size());
    for (const Numeric& value : values) numbers.emplace_back(value.text);
    add_array(
        to, kNumericArray, kNumeric, std::span<const NumericText>(numbers),
        [](const NumericText& number) { return number.size(); },
        [](BinaryWriter& out, const NumericText& number) { number.write(out); });
  }
  void operator()(std::span<const Jsonb> values) const {
    add_array(to, kJsonbArray, kJsonb, values, size_on_wire, write_json);
  }

 private:
  template <class Text>
  void add_texts(std::span<const Text> texts) const {
    add_array(
        to, kTextArray, kText, texts, [](const Text& text) { return text.size(); },
        [](BinaryWriter& out, const Text& text) { out.bytes(text.data(), text.size()); });
  }
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
  ports::check_text(text);
  arguments_.push_back({block_.size(), checked_length(text.size(), block_.size()), 0, false, false});
  block_.append(text).push_back('\0');
}

void ArgumentBlock::add_null(Oid type) { arguments_.push_back({0, 0, type, false, true}); }

std::span<char> ArgumentBlock::add_binary(Oid type, std::size_t size) {
  const std::size_t begin = block_.size();
  const int length = checked_length(size, begin);
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
      case kUuid: out += 'U'; break;
      case kTimestamptz: out += 'T'; break;
      case kNumeric: out += 'N'; break;
      case kJsonb: out += 'J'; break;
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
