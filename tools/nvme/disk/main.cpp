// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-nvme-disk: a namespace of a leased drive as a block device, for as long as it runs
// (`pcilend nvme`, docs/nvme.md).
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "disk/disk.h"
#include "pcilend/fd.h"
#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

constexpr const char* kLog = "/dev/kmsg";

// Without systemd: goes on without the one who has started it.
Result<> leave_caller() {
  std::cout.flush();
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child != 0) ::_exit(0);
  if (::setsid() < 0) return fail_errno("setsid");
  const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd log(::open(kLog, O_WRONLY | O_CLOEXEC));
  if (!nothing) return fail_errno("/dev/null");
  ::dup2(nothing.get(), STDIN_FILENO);
  ::dup2(nothing.get(), STDOUT_FILENO);
  ::dup2(log ? log.get() : nothing.get(), STDERR_FILENO);
  if (::chdir("/") != 0) return fail_errno("/");
  return {};
}

Result<> run(DiskOptions& options, const std::string& function, bool remove, bool daemon) {
  const auto id = parse_function_id(function);
  if (!id) return tl::unexpected(id.error());
  options.function = *id;
  const Environment environment;
  if (remove) return remove_disk(environment, *id);
  PCILEND_TRY(check_writers(options.alone, options.read_only, options.shared_fs));
  if (daemon) PCILEND_TRY(leave_caller());
  return run_disk(environment, options);
}

int main(int argc, char** argv) {
  DiskOptions options;
  std::string function;
  bool remove = false;
  bool daemon = false;
  long wait = 0;
  long patience = options.patience.count();
  CLI::App app(
      "Makes a block device of a namespace of an NVMe drive that is leased: see pcilend(8).");
  app.add_option("FUNCTION", function, "id of the function, as `pcilend list` has it")->required();
  app.add_option("--namespace", options.name_space, "")->capture_default_str();
  app.add_option("--queues", options.queues, "")->capture_default_str()->check(CLI::Range(1, 64));
  app.add_option("--depth", options.depth, "requests of a queue that are under way at once")
      ->capture_default_str()
      ->check(CLI::Range(1U, kDiskDepthMax));
  app.add_flag("--alone", options.alone, "have all of the drive; else as a client of its manager");
  app.add_flag("--read-only", options.read_only);
  app.add_flag("--shared-fs", options.shared_fs, "others use it, too: nothing mounts it by itself");
  app.add_option("--wait", wait, "seconds, for its lender")
      ->capture_default_str()
      ->check(CLI::Range(0, 3600));
  app.add_option("--patience", patience, "seconds, for a drive that was lost, before I/O fails")
      ->capture_default_str()
      ->check(CLI::Range(0, 3600));
  app.add_option_function<long>(
      "--lost-since", [&](long value) { options.lost_since = std::chrono::milliseconds(value); },
      "for its own use");
  app.add_option(
         "--path", options.paths,
         "adapters to go over, 0000:00:04.0,0000:00:05.0; else all over which it is offered")
      ->delimiter(',');
  app.add_flag("--daemon", daemon, "go on in the background");
  app.add_flag("--remove", remove, "remove a disk whose program is gone");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorClass::Usage);
  }
  options.wait = std::chrono::seconds(wait);
  options.patience = std::chrono::seconds(patience);
  const auto done = run(options, function, remove, daemon);
  if (done) return 0;
  std::cerr << done.error().message << std::endl;
  return static_cast<int>(done.error().kind);
}

}  // namespace
}  // namespace pcilend::nvme

int main(int argc, char** argv) {
  return pcilend::nvme::main(argc, argv);
}
