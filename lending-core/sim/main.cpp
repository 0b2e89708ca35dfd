// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-sim: the portable core on many simulated hosts; exits with 1 if a promise was broken.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ctime>
#include <map>
#include <string>

#include "share_simulation.h"
#include "simulation.h"

namespace {

using pcilend::sim::Counts;
using pcilend::sim::Plant;
using pcilend::sim::ShareCounts;
using pcilend::sim::ShareOptions;
using pcilend::sim::ShareSimulation;
using pcilend::sim::Simulation;

// Of CPU time: what else runs on the machine does not count.
double Seconds(std::clock_t since) {
  return static_cast<double>(std::clock() - since) / CLOCKS_PER_SEC;
}

void Print(const Counts& c, double seconds) {
  fmt::print(
      "events          {:>12}  in {:.1f} s of CPU time: {:.0f} a second; {:.0f} s of virtual "
      "time\n",
      c.events, seconds, static_cast<double>(c.events) / seconds,
      static_cast<double>(c.virtual_ms) / 1000);
  fmt::print("messages        {:>12}  passed the wire check, {} refused (lost, replayed, stale)\n",
             c.messages, c.refused);
  fmt::print("leases          {:>12}  granted; {} lost, {} expired\n", c.granted, c.lost,
             c.expired);
  fmt::print("resets          {:>12}  of them {} after a loss of the link, or a reset by others\n",
             c.resets, c.recovered);
  fmt::print("requests        {:>12}  declined; {} answers came late\n", c.declined, c.late);
  fmt::print("accidents       {:>12}  links down, {} hosts stalled, {} hosts died\n", c.flaps,
             c.stalls, c.deaths);
  fmt::print("longest error   {:>12}  ms a borrower believed in a lease that was over\n",
             c.longest_error);
}

void PrintSizes(const Simulation& simulation, size_t functions) {
  fmt::print(
      "bytes           lease state {} a function, access rights {}, reservation {}, its "
      "notice {}\n",
      sizeof(pcilend_lease), sizeof(pcilend_access), sizeof(pcilend_reservation),
      sizeof(pcilend_msg_function));
  fmt::print("                a lease: {} for each BAR and slot in an aperture\n",
             sizeof(pcilend_range_entry));
  const auto start = std::clock();
  const size_t bytes = simulation.ListAll();
  fmt::print(
      "list            {:>12}  functions in {:.1f} ms: notice encoded, checked, decoded and "
      "printed ({} bytes of text)\n",
      functions, Seconds(start) * 1000, bytes);
}

const std::map<std::string, Plant>& Plants() {
  static const std::map<std::string, Plant> plants = {
      {"unmap-before-cleared", Plant::kUnmapBeforeCleared},
      {"reuse-slice", Plant::kReuseSlice},
      {"second-manager", Plant::kSecondManager},
      {"cleared-by-anybody", Plant::kClearedByAnybody},
      {"master-off-for-all", Plant::kMasterOffForAll},
      {"no-timeout", Plant::kNoTimeout},
      {"no-rights", Plant::kNoRights},
      {"early-reboot", Plant::kEarlyReboot},
      {"told-too-early", Plant::kToldTooEarly},
      {"pages-stay-open", Plant::kPagesStayOpen},
      {"recall-of-the-manager-only", Plant::kRecallOfTheManagerOnly},
      {"mail-outlives-the-link", Plant::kMailOutlivesTheLink},
  };
  return plants;
}

int RunShared(const ShareOptions& options) {
  fmt::print("{} nodes, each lends a function to the others to share, seed {}\n", options.nodes,
             options.seed);
  std::fflush(stdout);
  ShareSimulation simulation(options);
  const auto start = std::clock();
  const std::string wrong = simulation.Run();
  const double seconds = Seconds(start);
  const ShareCounts c = simulation.counts();
  fmt::print(
      "events          {:>12}  in {:.1f} s of CPU time: {:.0f} a second; {:.0f} s of virtual "
      "time\n",
      c.events, seconds, static_cast<double>(c.events) / seconds,
      static_cast<double>(c.virtual_ms) / 1000);
  fmt::print("messages        {:>12}  passed the wire check\n", c.messages);
  fmt::print("clients         {:>12}  admitted, {} over; {} of one function at once, at most\n",
             c.joined, c.ended, c.most);
  fmt::print("requests        {:>12}  declined; {} of them are in the audit\n", c.refused,
             c.audits);
  fmt::print("quarantines     {:>12}  {} readmitted\n", c.quarantines, c.readmitted);
  fmt::print("mails answered  {:>12}\n", c.answered);
  fmt::print("fences          {:>12}  which cost all clients the function\n", c.fences);
  fmt::print("accidents       {:>12}  links down, {} hosts died\n", c.flaps, c.deaths);
  fmt::print("bytes           {:>12}  of state of a shared function, {} of them for each client\n",
             sizeof(pcilend_share), sizeof(pcilend_share_client));
  if (!wrong.empty()) {
    fmt::print(stderr, "broken promise: {}\n", wrong);
    return 1;
  }
  fmt::print("every promise was kept\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  pcilend::sim::Options options;
  CLI::App app("Runs the portable core of pcilend on many simulated hosts.");
  app.add_option("--nodes", options.nodes, "hosts")->check(CLI::Range(2, 4000));
  app.add_option("--functions", options.functions, "functions of each host")
      ->check(CLI::Range(1, 1024));
  app.add_option("--degree", options.degree, "links of each host, at least")
      ->check(CLI::Range(2, 4000));
  app.add_option("--pace", options.pace, "ms between the actions of a host's users, at most")
      ->check(CLI::Range(1, 60000));
  app.add_option("--events", options.events, "events until all comes to rest");
  app.add_option("--seed", options.seed, "of the random numbers");
  ShareOptions shared;
  bool share = false;
  app.add_flag("--shared", share, "functions that several hosts use at once; else they are lent");
  app.add_option("--plant", shared.plant, "a bug in the lender of shared functions")
      ->transform(CLI::CheckedTransformer(Plants()));
  CLI11_PARSE(app, argc, argv);

  if (share || shared.plant != Plant::kNone) {
    shared.nodes = options.nodes;
    shared.events = options.events;
    shared.pace = options.pace;
    shared.seed = options.seed;
    return RunShared(shared);
  }

  fmt::print("{} nodes, {} functions each, {} links each, seed {}\n", options.nodes,
             options.functions, std::min(options.degree, options.nodes - 1), options.seed);
  std::fflush(stdout);
  Simulation simulation(options);
  const auto start = std::clock();
  const std::string wrong = simulation.Run();
  Print(simulation.counts(), Seconds(start));
  if (!wrong.empty()) {
    fmt::print(stderr, "broken promise: {}\n", wrong);
    return 1;
  }
  PrintSizes(simulation, static_cast<size_t>(options.nodes) * options.functions);
  fmt::print("every promise was kept\n");
  return 0;
}
