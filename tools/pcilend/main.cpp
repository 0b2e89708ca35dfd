// SPDX-License-Identifier: GPL-2.0-or-later
#include <unistd.h>

#include <iostream>
#include <thread>

#include "cli.h"
#include "pcilend/stop_signals.h"
#include "run_program.h"

namespace {

pcilend::Result<std::unique_ptr<pcilend::EventStream>> open_events() {
  auto stop = pcilend::open_stop_signals();
  if (!stop) return tl::unexpected(std::move(stop).error());
  return pcilend::open_events(std::move(*stop));
}

}  // namespace

int main(int argc, char** argv) {
  pcilend::Surroundings surroundings{
      pcilend::Environment(),
      pcilend::PciNames(),
      [] { return pcilend::open_client(); },
      open_events,
      [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); },
      [] { return std::chrono::steady_clock::now(); },
      [] { return std::chrono::system_clock::now(); },
      pcilend::run_program,
      pcilend::read_program,
      ::isatty(STDERR_FILENO) == 1,
      std::cin,
      std::cout,
      std::cerr};
  return pcilend::run(surroundings, {argv + 1, argv + argc});
}
