// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/rogue.h"

#include "lab/json_lines.h"
#include "lab/options.h"
#include "lab/unix_socket.h"

namespace pcilend::lab {

using nlohmann::json;

namespace {

// The longest attacks ask a hundred times, each with a time limit of its own.
constexpr auto kAttack = std::chrono::minutes(5);

}  // namespace

Result<json> Rogue::request(const json& request) const {
  const Deadline deadline(kAttack);
  auto stream = connect_unix(control_);
  if (!stream)
    return fail(ErrorClass::Unreachable, "there is no rogue node ({}): start the lab with --rogue",
                stream.error().message);
  JsonLines lines(std::move(*stream));
  PCILEND_TRY(lines.send(request, deadline));
  auto answer = lines.receive(deadline);
  if (!answer) return tl::unexpected(std::move(answer).error().in("rogue"));
  if (!answer->value("ok", false))
    return fail(ErrorClass::Failure, "rogue: {}", answer->value("error", answer->dump()));
  answer->erase("ok");
  return *answer;
}

Result<json> Rogue::attack(const std::string& name, int victim, std::chrono::milliseconds time,
                           uint32_t value) const {
  return request({{"op", name},
                  {"victim", host_name(victim)},
                  {"ms", static_cast<uint64_t>(time.count())},
                  {"value", value}});
}

Result<json> Rogue::status() const {
  return request({{"op", "status"}});
}

}  // namespace pcilend::lab
