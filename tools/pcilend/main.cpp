// SPDX-License-Identifier: GPL-2.0-or-later
#include <iostream>
#include <thread>

#include "cli.h"

int main(int argc, char** argv) {
  pcilend::Surroundings surroundings{
      pcilend::Environment(),
      pcilend::PciNames(),
      [] { return pcilend::open_client(); },
      [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); },
      std::cout,
      std::cerr};
  return pcilend::run(surroundings, {argv + 1, argv + argc});
}
