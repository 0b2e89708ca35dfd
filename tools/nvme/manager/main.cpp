// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-nvme-manager: has a drive of this host, and lets processes of several hosts share it
// (docs/nvme.md). What happens is said on stderr, for the journal.
#include <poll.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "manager/manager.h"
#include "pcilend/client.h"
#include "pcilend/result.h"
#include "pcilend/stop_signals.h"

namespace pcilend::nvme {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr auto kEndPatience = 15s;  // for clients, which the lender gives 5 s each
constexpr auto kLook = 1s;          // at the epoch, which polls nothing

struct Arguments {
  std::string function;
  ManagerOptions options;
};

void tell(const std::string& text) {
  fmt::print(stderr, "{}\n", text);
}

// By its PCI address or its id.
Result<Function> find(Client& client, const std::string& function) {
  const auto address = parse_pci_address(function);
  if (address) return client.function(*address);
  const auto id = parse_function_id(function);
  if (!id) return tl::unexpected(id.error());
  return client.function(*id);
}

// Clients are served until it is to stop.
Result<> work(Manager& manager, int lease, int stop) {
  for (;;) {
    PCILEND_TRY(manager.serve());
    pollfd wait[] = {{lease, POLLIN, 0}, {stop, POLLIN, 0}};
    if (::poll(wait, 2, static_cast<int>(std::chrono::milliseconds(kLook).count())) < 0 &&
        errno != EINTR)
      return fail_errno("poll");
    if (wait[0].revents & POLLHUP)
      return fail(ErrorClass::State, "the lease is over: all have lost the drive");
    if (wait[1].revents & POLLIN) return {};
  }
}

// They end in order: their queues are deleted before the drive is stopped.
Result<> end(Manager& manager, int lease) {
  if (manager.clients() != 0) tell(fmt::format("{} clients are ended", manager.clients()));
  PCILEND_TRY(manager.close());
  const auto until = steady_clock::now() + kEndPatience;
  for (;;) {
    PCILEND_TRY(manager.serve());
    if (manager.clients() == 0) return {};
    if (steady_clock::now() > until)
      return fail(ErrorClass::Unreachable,
                  "{} clients have not ended: the drive is taken from them", manager.clients());
    pollfd wait{lease, POLLIN, 0};
    if (::poll(&wait, 1, 100) < 0 && errno != EINTR) return fail_errno("poll");
  }
}

Result<> run(const Arguments& arguments) {
  const auto stop = open_stop_signals();
  if (!stop) return tl::unexpected(stop.error());
  const auto client = open_client();
  if (!client) return tl::unexpected(client.error());
  const auto function = find(**client, arguments.function);
  if (!function) return tl::unexpected(function.error());
  const FunctionId id = function->id;
  const auto shared = open_shared_drive(ThisHost(**client), id, manager_slice(arguments.options),
                                        FenceRecord(Environment(), to_string(function->uuid)));
  if (!shared) return tl::unexpected(shared.error());
  const auto manager = Manager::open(*shared->device, *shared->lease, arguments.options, tell);
  if (!manager) return tl::unexpected(manager.error());
  const ControllerInfo& drive = (*manager)->controller().info();
  tell(fmt::format("{} ({} {}) is shared: up to {} clients with {} pairs of queues each",
                   to_string(id), drive.model, drive.serial, (*manager)->admits(),
                   arguments.options.each.pairs));
  const int lease = shared->device->fd();
  PCILEND_TRY(work(**manager, lease, stop->get()));
  return end(**manager, lease);
}

int main(int argc, char** argv) {
  Arguments arguments;
  ManagerOptions& options = arguments.options;
  std::vector<uint32_t> nodes;
  CLI::App app("Has an NVMe drive of this host, and lets processes of several hosts share it.");
  app.add_option("FUNCTION", arguments.function,
                 "its id, as `pcilend list` has it, or its PCI address; it is available")
      ->required();
  app.add_option("--clients", options.clients,
                 "at most; else as many as there are queues for, up to 16")
      ->check(CLI::Range(1, 64));
  app.add_option("--pairs", options.each.pairs, "of queues, that each may have")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--entries", options.each.entries, "of a queue, at most")
      ->capture_default_str()
      ->check(CLI::Range(2, 65536));
  app.add_option("--vectors", options.vectors, "interrupts of each")
      ->capture_default_str()
      ->check(CLI::Range(0, 32));
  app.add_option("--slice", options.slice, "memory that each may map for the drive: 64M")
      ->capture_default_str()
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--near", options.near_bytes,
                 "memory beside the drive for each on another host; 0: their commands are in "
                 "their hosts, which is not safe when a link dies")
      ->capture_default_str()
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--cmb", options.own_bytes,
                 "of the drive's own memory, for each client's commands: 64K; else they are in "
                 "memory beside it, which it can't write")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--nodes", nodes, "whose processes may join: 8,12; else all that may borrow it")
      ->delimiter(',');
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorClass::Usage);
  }
  if (!nodes.empty()) options.nodes = nodes;
  const auto done = run(arguments);
  if (done) return 0;
  tell(done.error().message);
  return static_cast<int>(done.error().kind);
}

}  // namespace
}  // namespace pcilend::nvme

int main(int argc, char** argv) {
  return pcilend::nvme::main(argc, argv);
}
