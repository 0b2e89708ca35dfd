// SPDX-License-Identifier: GPL-2.0-or-later
// Bytes from a hostile host or agent: frames and every body in them. What is accepted must come
// back the same when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "lab/agent/protocol.h"

namespace {

using namespace pcilend::lab::agent;

template <class Body>
void round_trip(const Frame& frame) {
  const auto body = Body::parse(frame.body);
  if (body && body->body() != frame.body) std::abort();
}

void parse_as_everything(const Frame& frame) {
  round_trip<Hello>(frame);
  round_trip<Welcome>(frame);
  round_trip<WindowSize>(frame);
  round_trip<RunRequest>(frame);
  round_trip<FileRequest>(frame);
  round_trip<FileInfo>(frame);
  round_trip<ExitStatus>(frame);
  round_trip<Refusal>(frame);
  if (const auto signal = parse_signal(frame.body); signal && signal_body(*signal) != frame.body)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // The first byte says into what pieces the rest is cut.
  const size_t step = data[0] == 0 ? size : data[0];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  FrameReader reader;
  for (size_t at = 0; at < bytes.size(); at += step) {
    reader.feed(bytes.substr(at, step), [](const Frame& frame) {
      if (frame.body.size() > kMaxBody) std::abort();
      parse_as_everything(frame);
      FrameReader again;
      bool same = false;
      again.feed(encode(frame), [&](const Frame& copy) { same = copy == frame; });
      if (!same) std::abort();
    });
  }
  return 0;
}
