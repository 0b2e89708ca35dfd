// SPDX-License-Identifier: GPL-2.0-or-later
// The protocol between a client on the outside and pcilend-lab-agent behind a virtio-serial port
// (or any byte stream).
//
// A stream carries frames. On the wire a frame is its bytes in COBS (consistent overhead byte
// stuffing, Cheshire and Baker, SIGCOMM 1997), which leaves no zero byte in it, and then one zero
// byte. A reader that joins in the middle of anything is in step again after the next zero byte:
// so a client that died half way through a frame harms nobody.
//
// A decoded frame is: u8 type, u64 session, body. All integers are little-endian. Strings are a u32
// length and that many bytes. One port serves one session at a time. The client draws a session
// number, sends Hello until it gets Welcome, then one of Run, Put and Get; the agent ends it with
// Done or Refused. A frame with another session's number is a left-over and is ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pcilend::lab::agent {

inline constexpr uint32_t kVersion = 1;

// Most bytes of a frame's body. A reader drops what is longer.
inline constexpr size_t kMaxBody = 64 * 1024;

// Most bytes of file or stream content that a writer puts into one frame.
inline constexpr size_t kMaxContent = 32 * 1024;

enum class FrameType : uint8_t {
  // From the client.
  Hello = 1,   // Hello: opens a session, ends any other on this port
  Run = 2,     // RunRequest
  Put = 3,     // FileRequest; the content follows in Content, then End
  Get = 4,     // FileRequest; answered by FileInfo, Content…, Done
  End = 5,     // no more Content: end of the command's stdin or of the file
  Signal = 6,  // u32: a signal for the command's process group
  Window = 7,  // WindowSize of the command's terminal

  // From either side: stdin or a file's bytes to the agent, stdout or a file's bytes from it.
  Content = 16,

  // From the agent.
  Welcome = 32,    // Welcome
  Errors = 33,     // bytes of the command's stderr
  FileInfo = 34,   // FileInfo
  Done = 35,       // ExitStatus
  Refused = 36,    // Refusal: the request was not carried out
  Alive = 37,      // empty: sent about every second while a command runs
  Restarted = 38,  // empty, session 0: the agent has just begun; no session lives
};

struct Frame {
  FrameType type{};
  uint64_t session = 0;
  std::string body;

  bool operator==(const Frame&) const = default;
};

// The frame as it goes on the wire, closing zero byte included.
[[nodiscard]] std::string encode(const Frame& frame);

// Cuts a byte stream into frames. What is malformed or too long is counted and skipped.
class FrameReader {
 public:
  // Takes bytes as they came; calls `deliver` for each whole frame in them.
  void feed(std::string_view bytes, const std::function<void(Frame)>& deliver);

  // Pieces between zero bytes that were no frame.
  [[nodiscard]] uint64_t dropped() const { return dropped_; }

 private:
  std::string piece_;
  bool too_long_ = false;
  uint64_t dropped_ = 0;
};

// Bodies. parse() returns nothing if the bytes are not exactly one such body.

struct Hello {
  uint32_t version = kVersion;

  [[nodiscard]] std::string body() const;
  static std::optional<Hello> parse(std::string_view body);
};

struct Welcome {
  uint32_t version = kVersion;
  std::string boot_id;  // of the machine that the agent runs on

  [[nodiscard]] std::string body() const;
  static std::optional<Welcome> parse(std::string_view body);
};

struct WindowSize {
  uint16_t rows = 0;
  uint16_t columns = 0;

  [[nodiscard]] std::string body() const;
  static std::optional<WindowSize> parse(std::string_view body);
};

struct RunRequest {
  std::vector<std::string> argv;  // at least one; found through PATH
  bool input = false;             // the client will send stdin; else it is /dev/null
  bool terminal = false;          // on a terminal of size `window`: stdout and stderr are one
  WindowSize window;

  [[nodiscard]] std::string body() const;
  static std::optional<RunRequest> parse(std::string_view body);
};

struct FileRequest {
  std::string path;   // on the agent's machine
  std::string name;   // Put: the file's name if `path` is a directory
  uint32_t mode = 0;  // Put: permission bits
  bool operator==(const FileRequest&) const = default;

  [[nodiscard]] std::string body() const;
  static std::optional<FileRequest> parse(std::string_view body);
};

struct FileInfo {
  uint32_t mode = 0;

  [[nodiscard]] std::string body() const;
  static std::optional<FileInfo> parse(std::string_view body);
};

struct ExitStatus {
  bool signalled = false;
  int32_t value = 0;  // exit code, or the signal that ended it

  // As a shell gives it: the exit code, or 128 + signal.
  [[nodiscard]] int code() const { return signalled ? 128 + value : value; }

  bool operator==(const ExitStatus&) const = default;
  [[nodiscard]] std::string body() const;
  static std::optional<ExitStatus> parse(std::string_view body);
};

struct Refusal {
  int32_t error = 0;  // errno
  std::string message;

  [[nodiscard]] std::string body() const;
  static std::optional<Refusal> parse(std::string_view body);
};

// Body of Signal.
[[nodiscard]] std::string signal_body(uint32_t signal);
[[nodiscard]] std::optional<uint32_t> parse_signal(std::string_view body);

}  // namespace pcilend::lab::agent
