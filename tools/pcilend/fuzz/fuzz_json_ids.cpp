// SPDX-License-Identifier: GPL-2.0-or-later
// Any bytes as functions on stdin: refused with one line, or ids that name the same when they are
// read again.
#include <fmt/format.h>

#include "json_ids.h"
#include "pcilend/ids.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pcilend;
  const auto ids = ids_of_json("stdin", {reinterpret_cast<const char*>(data), size});
  if (!ids) {
    const std::string& message = ids.error().message;
    if (message.empty() || message.find('\n') != std::string::npos) __builtin_trap();
    return 0;
  }
  std::string written = "{\"functions\":[";
  for (const auto& id : *ids) {
    if (!parse_function_id(id)) __builtin_trap();
    written += fmt::format("{}{{\"id\":\"{}\"}}", written.back() == '[' ? "" : ",", id);
  }
  const auto again = ids_of_json("stdin", written + "]}");
  if (!again || *again != *ids) __builtin_trap();
  return 0;
}
