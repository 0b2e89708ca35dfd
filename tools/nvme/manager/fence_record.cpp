// SPDX-License-Identifier: GPL-2.0-or-later
#include "manager/fence_record.h"

#include <charconv>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

constexpr std::string_view kDirectory = "/var/lib/pcilend";

}  // namespace

FenceRecord::FenceRecord(Environment environment, const std::string& drive)
    : environment_(std::move(environment)), path_(fmt::format("{}/fenced-{}", kDirectory, drive)) {}

Result<std::set<uint32_t>> FenceRecord::read() const {
  std::set<uint32_t> nodes;
  const auto text = environment_.read(path_);
  if (!text && text.error().kind == ErrorClass::NotFound) return nodes;
  if (!text) return tl::unexpected(text.error());
  for (const char *at = text->data(), *end = at + text->size(); at != end;) {
    uint32_t node = 0;
    const auto [after, error] = std::from_chars(at, end, node);
    if (error != std::errc() || after == end || *after != '\n' || node == 0)
      return fail(
          ErrorClass::Failure,
          "{} is not what pcilend-nvme-manager writes: nodes that are fenced, one on each line",
          path_);
    nodes.insert(node);
    at = after + 1;
  }
  return nodes;
}

Result<> FenceRecord::write(const std::set<uint32_t>& nodes) const {
  if (nodes.empty()) return environment_.remove_file(path_);
  return environment_.replace_file(path_, fmt::format("{}\n", fmt::join(nodes, "\n")));
}

}  // namespace pcilend::nvme
