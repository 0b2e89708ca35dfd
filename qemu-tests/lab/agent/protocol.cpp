// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/agent/protocol.h"

#include "pcilend/result.h"

namespace pcilend::lab::agent {
namespace {

constexpr size_t kHeader = 1 + 8;

// COBS needs one more byte for each 254, and one.
constexpr size_t kMaxEncoded = (kHeader + kMaxBody) / 254 + 1 + kHeader + kMaxBody;

template <class T>
void put_integer(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

void put_string(std::string& out, std::string_view text) {
  put_integer(out, static_cast<uint32_t>(text.size()));
  out.append(text);
}

// Takes values off the front of a body; once something is missing, ok() is false for good.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T integer() {
    if (bytes_.size() < sizeof(T)) return fail(), T{};
    T value{};
    for (size_t i = 0; i < sizeof(T); ++i)
      value |= static_cast<T>(static_cast<T>(static_cast<uint8_t>(bytes_[i])) << (8 * i));
    bytes_.remove_prefix(sizeof(T));
    return value;
  }

  std::string string() {
    const auto size = integer<uint32_t>();
    if (bytes_.size() < size) return fail(), std::string();
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }

  bool flag() {
    const auto value = integer<uint8_t>();
    if (value > 1) fail();
    return value == 1;
  }

  // All was there, and nothing is left.
  [[nodiscard]] bool whole() const { return ok_ && bytes_.empty(); }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  void fail() {
    ok_ = false;
    bytes_ = {};
  }

  std::string_view bytes_;
  bool ok_ = true;
};

// Byte loops, not searches: content full of zeros is common, and agents run under emulation.
std::string stuff(std::string_view bytes) {
  std::string out(bytes.size() + bytes.size() / 254 + 1, '\0');
  char* to = out.data();
  char* code = to++;
  uint8_t length = 1;
  const auto close_block = [&] {
    *code = static_cast<char>(length);
    code = to++;
    length = 1;
  };
  for (const char byte : bytes) {
    if (length == 255) close_block();
    if (byte == '\0') {
      close_block();
    } else {
      *to++ = byte;
      ++length;
    }
  }
  *code = static_cast<char>(length);
  out.resize(static_cast<size_t>(to - out.data()));
  return out;
}

std::optional<std::string> unstuff(std::string_view bytes) {
  std::string out(bytes.size(), '\0');
  char* to = out.data();
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  while (at != end) {
    const size_t code = static_cast<uint8_t>(*at++);
    if (code == 0 || static_cast<size_t>(end - at) < code - 1) return std::nullopt;
    for (size_t i = 1; i < code; ++i) *to++ = *at++;
    if (code != 255 && at != end) *to++ = '\0';
  }
  out.resize(static_cast<size_t>(to - out.data()));
  return out;
}

bool known(uint8_t type) {
  return (type >= static_cast<uint8_t>(FrameType::Hello) &&
          type <= static_cast<uint8_t>(FrameType::Window)) ||
         type == static_cast<uint8_t>(FrameType::Content) ||
         (type >= static_cast<uint8_t>(FrameType::Welcome) &&
          type <= static_cast<uint8_t>(FrameType::Restarted));
}

std::optional<Frame> decode(std::string_view piece) {
  const auto bytes = unstuff(piece);
  if (!bytes) return std::nullopt;
  Cursor cursor(*bytes);
  const auto type = cursor.integer<uint8_t>();
  const auto session = cursor.integer<uint64_t>();
  if (!cursor.ok() || !known(type) || bytes->size() > kHeader + kMaxBody) return std::nullopt;
  return Frame{static_cast<FrameType>(type), session, bytes->substr(kHeader)};
}

}  // namespace

std::string encode(const Frame& frame) {
  std::string plain;
  plain.reserve(kHeader + frame.body.size());
  plain.push_back(static_cast<char>(frame.type));
  put_integer(plain, frame.session);
  plain.append(frame.body);
  std::string wire = stuff(plain);
  wire.push_back('\0');
  return wire;
}

void FrameReader::feed(std::string_view bytes, const std::function<void(Frame)>& deliver) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\0');
    const std::string_view part = bytes.substr(0, end);
    if (piece_.size() + part.size() > kMaxEncoded) {
      too_long_ = true;
      piece_.clear();
    }
    if (!too_long_) piece_.append(part);
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);

    if (too_long_) {
      ++dropped_;
    } else if (!piece_.empty()) {
      if (auto frame = decode(piece_))
        deliver(std::move(*frame));
      else
        ++dropped_;
    }
    too_long_ = false;
    piece_.clear();
  }
}

std::string Hello::body() const {
  std::string out;
  put_integer(out, version);
  return out;
}

std::optional<Hello> Hello::parse(std::string_view body) {
  Cursor cursor(body);
  Hello hello{cursor.integer<uint32_t>()};
  if (!cursor.whole()) return std::nullopt;
  return hello;
}

std::string Welcome::body() const {
  std::string out;
  put_integer(out, version);
  put_string(out, boot_id);
  return out;
}

std::optional<Welcome> Welcome::parse(std::string_view body) {
  Cursor cursor(body);
  Welcome welcome;
  welcome.version = cursor.integer<uint32_t>();
  welcome.boot_id = cursor.string();
  if (!cursor.whole()) return std::nullopt;
  return welcome;
}

std::string WindowSize::body() const {
  std::string out;
  put_integer(out, rows);
  put_integer(out, columns);
  return out;
}

std::optional<WindowSize> WindowSize::parse(std::string_view body) {
  Cursor cursor(body);
  WindowSize window;
  window.rows = cursor.integer<uint16_t>();
  window.columns = cursor.integer<uint16_t>();
  if (!cursor.whole()) return std::nullopt;
  return window;
}

std::string RunRequest::body() const {
  std::string out;
  put_integer(out, static_cast<uint8_t>(input));
  put_integer(out, static_cast<uint8_t>(terminal));
  out.append(window.body());
  put_integer(out, static_cast<uint32_t>(argv.size()));
  for (const std::string& argument : argv) put_string(out, argument);
  return out;
}

std::optional<RunRequest> RunRequest::parse(std::string_view body) {
  Cursor cursor(body);
  RunRequest request;
  request.input = cursor.flag();
  request.terminal = cursor.flag();
  request.window.rows = cursor.integer<uint16_t>();
  request.window.columns = cursor.integer<uint16_t>();
  const auto count = cursor.integer<uint32_t>();
  for (uint32_t i = 0; i < count && cursor.ok(); ++i) {
    std::string argument = cursor.string();
    if (argument.find('\0') != std::string::npos) return std::nullopt;
    request.argv.push_back(std::move(argument));
  }
  if (!cursor.whole() || request.argv.empty()) return std::nullopt;
  return request;
}

std::string FileRequest::body() const {
  std::string out;
  put_string(out, path);
  put_string(out, name);
  put_integer(out, mode);
  return out;
}

std::optional<FileRequest> FileRequest::parse(std::string_view body) {
  Cursor cursor(body);
  FileRequest request;
  request.path = cursor.string();
  request.name = cursor.string();
  request.mode = cursor.integer<uint32_t>();
  if (!cursor.whole() || request.path.empty() || request.path.find('\0') != std::string::npos ||
      request.name.find('\0') != std::string::npos || request.mode > 07777)
    return std::nullopt;
  return request;
}

std::string FileInfo::body() const {
  std::string out;
  put_integer(out, mode);
  return out;
}

std::optional<FileInfo> FileInfo::parse(std::string_view body) {
  Cursor cursor(body);
  FileInfo info{cursor.integer<uint32_t>()};
  if (!cursor.whole() || info.mode > 07777) return std::nullopt;
  return info;
}

std::string ExitStatus::body() const {
  std::string out;
  put_integer(out, static_cast<uint8_t>(signalled));
  put_integer(out, static_cast<uint32_t>(value));
  return out;
}

std::optional<ExitStatus> ExitStatus::parse(std::string_view body) {
  Cursor cursor(body);
  ExitStatus status;
  status.signalled = cursor.flag();
  status.value = static_cast<int32_t>(cursor.integer<uint32_t>());
  if (!cursor.whole()) return std::nullopt;
  return status;
}

std::string Refusal::body() const {
  std::string out;
  put_integer(out, static_cast<uint32_t>(error));
  put_string(out, message);
  return out;
}

std::optional<Refusal> Refusal::parse(std::string_view body) {
  Cursor cursor(body);
  Refusal refusal;
  refusal.error = static_cast<int32_t>(cursor.integer<uint32_t>());
  refusal.message = cursor.string();
  if (!cursor.whole()) return std::nullopt;
  return refusal;
}

std::string signal_body(uint32_t signal) {
  std::string out;
  put_integer(out, signal);
  return out;
}

std::optional<uint32_t> parse_signal(std::string_view body) {
  Cursor cursor(body);
  const auto signal = cursor.integer<uint32_t>();
  if (!cursor.whole() || signal == 0 || signal > 64) return std::nullopt;
  return signal;
}

}  // namespace pcilend::lab::agent
