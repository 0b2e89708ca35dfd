// SPDX-License-Identifier: GPL-2.0-or-later
// ntb-fabric: joins the QEMUs of several hosts by simulated NTBs.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <chrono>
#include <cstdio>

#include "event_loop.h"
#include "fabric.h"
#include "server.h"

namespace {

using namespace pcilend;
using namespace pcilend::fabric;

struct Options {
  std::string directory;
  std::string log;
  unsigned spin_us = 100;
  unsigned read_timeout_ms = 1000;
  unsigned cycle_ms = 3;
  std::string products = "amd";
  FabricOptions fabric;
};

// "amd,switchtec": by path.
Result<std::vector<Product>> parse_products(std::string_view text) {
  std::vector<Product> products;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const auto product = parse_product(text.substr(at, end - at));
    if (!product) return tl::unexpected(product.error());
    products.push_back(*product);
    at = end + 1;
  }
  return products;
}

Result<> write_text(int fd, std::string_view text) {
  return write_all(fd, std::as_bytes(std::span(text)));
}

// SIGTERM and SIGINT as a descriptor, so that they end the event loop.
Result<UniqueFd> take_signals() {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) < 0) return fail_errno("sigprocmask");
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return fail_errno("signalfd");
  return fd;
}

Result<> serve(const Options& options) {
  const auto signals = take_signals();
  if (!signals) return tl::unexpected(signals.error());

  UniqueFd log_file;
  if (!options.log.empty()) {
    log_file.reset(::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log_file) return fail_errno(options.log);
  }
  const int log_fd = log_file ? log_file.get() : STDERR_FILENO;
  const Clock clock = [] { return std::chrono::steady_clock::now(); };
  Log log(clock, [log_fd](std::string_view line) {
    // A full disk must not end the lab.
    [[maybe_unused]] const auto written = write_text(log_fd, line);
  });

  Fabric fabric(options.fabric, clock, log);
  auto loop = EventLoop::create(fabric.timers(), std::chrono::microseconds(options.spin_us));
  if (!loop) return tl::unexpected(loop.error());
  PCILEND_TRY((*loop)->add(signals->get(), EPOLLIN, [&](uint32_t) { (*loop)->stop(); }));
  const auto server = Server::create(options.directory, fabric, **loop, log);
  if (!server) return tl::unexpected(server.error());

  log.info("{} hosts in {}", options.fabric.hosts, options.directory);
  PCILEND_TRY(write_text(STDOUT_FILENO, "ready\n"));
  (*loop)->run();
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Joins the QEMUs of several hosts by simulated NTBs (vfio-user)."};
  Options options;
  app.add_option("--dir", options.directory,
                 "directory of the sockets: hostA-hostB[.PATH].sock for each adapter, control.sock")
      ->required();
  app.add_option("--hosts", options.fabric.hosts, "number of hosts, all joined with each other")
      ->required()
      ->check(CLI::Range(2, 16));
  app.add_option("--paths", options.fabric.paths, "links between each pair of hosts (default 1)")
      ->check(CLI::Range(1, 4));
  app.add_option("--adapter", options.products, "amd or switchtec, or one for each path")
      ->capture_default_str();
  app.add_option("--log", options.log, "file the log is appended to (default: stderr)");
  app.add_option("--window0", options.fabric.windows[0],
                 "size of BAR2 (default: amd 64G, switchtec 64M)")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--window1", options.fabric.windows[1],
                 "size of BAR4 (default: amd 16G, switchtec 64G)")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--spin-us", options.spin_us,
                 "look for work this long, at most, before sleeping; 0: never")
      ->capture_default_str()
      ->check(CLI::Range(0, 10000));
  app.add_option("--read-timeout-ms", options.read_timeout_ms,
                 "answer all-ones when a peer's register isn't read in this time")
      ->capture_default_str()
      ->check(CLI::Range(10, 4000));
  app.add_option("--cycle-ms", options.cycle_ms,
                 "answer all-ones when hosts wait for each other in a circle for this long")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorClass::Usage);
  }

  for (const uint64_t size : options.fabric.windows) {
    if (size == 0) continue;
    if (!std::has_single_bit(size) || size < (1 << 20) || size > (1ull << 38)) {
      fmt::print(stderr, "ntb-fabric: window of {} bytes: use a power of two, 1M to 256G\n", size);
      return static_cast<int>(ErrorClass::Usage);
    }
  }
  auto products = parse_products(options.products);
  if (!products) {
    fmt::print(stderr, "ntb-fabric: {}\n", products.error().message);
    return static_cast<int>(ErrorClass::Usage);
  }
  options.fabric.products = std::move(*products);
  options.fabric.read_timeout = std::chrono::milliseconds(options.read_timeout_ms);
  options.fabric.cycle_patience = std::chrono::milliseconds(options.cycle_ms);

  const auto served = serve(options);
  if (!served) {
    fmt::print(stderr, "ntb-fabric: {}\n", served.error().message);
    return static_cast<int>(served.error().kind);
  }
  return 0;
}
