// SPDX-License-Identifier: GPL-2.0-or-later
#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>

#include "fence/agent.h"
#include "pcilend/lease.h"
#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 30s;
constexpr uint64_t kSlice = uint64_t{2} << 20;  // in which nothing is mapped
constexpr int kFailed = 1;                      // of all that a fence agent can't do

// As one more client of the drive, for as long as that takes.
Result<bool> ask_manager(FunctionId drive, const mail::Fence& fence) {
  const auto host = ThisHost::open();
  if (!host) return tl::unexpected(host.error());
  const auto lease = Lease::join(*host, drive, "fence_pcilend", kSlice);
  if (!lease) return tl::unexpected(lease.error());
  const auto mail = lease->ask(mail::encode(1, fence), kPatience);
  if (!mail) return tl::unexpected(mail.error());
  const auto answer = mail::decode_answer(mail->bytes);
  if (!answer) return tl::unexpected(answer.error());
  if (const auto* refusal = std::get_if<mail::Refusal>(&answer->what))
    return tl::unexpected(refusal->error);
  if (const auto* fenced = std::get_if<mail::Fenced>(&answer->what)) return fenced->fenced;
  return fail(ErrorClass::Failure, "the manager of {} answers what was not asked",
              to_string(drive));
}

int main(int argc, char** argv) {
  FenceOptions options;
  CLI::App app(
      "Fences a node from an NVMe drive that pcilend shares. Without options they are read from "
      "standard input, as cluster managers say them.");
  app.add_option("-o,--action", options.action,
                 "off, on, status, monitor, metadata or validate-all")
      ->capture_default_str();
  app.add_option("-f,--function", options.function, "id of the drive, as `pcilend list` has it");
  app.add_option("-n,--plug", options.plug, "node id of the host, as `pcilend link` has it");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kFailed;
  }
  if (argc == 1) read_options(std::string(std::istreambuf_iterator<char>(std::cin), {}), options);
  const auto done = run_fence(options, ask_manager);
  if (!done) {
    fmt::print(stderr, "fence_pcilend: {}\n", done.error().message);
    return kFailed;
  }
  fmt::print("{}", done->said);
  return done->code;
}

}  // namespace
}  // namespace pcilend::nvme

int main(int argc, char** argv) {
  return pcilend::nvme::main(argc, argv);
}
