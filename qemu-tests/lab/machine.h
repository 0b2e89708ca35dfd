// SPDX-License-Identifier: GPL-2.0-or-later
// One host VM: its QEMU, its power, its console, and the way to its agent.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "lab/agent/client.h"
#include "lab/deadline.h"
#include "lab/layout.h"
#include "lab/process.h"
#include "lab/state.h"
#include "pcilend/result.h"

namespace pcilend::lab {

enum class Condition {
  Off,       // no QEMU
  Running,   // its agent answers
  Panicked,  // its kernel says so, and its agent does not answer
  Silent,    // it boots, or hangs
};

std::string_view to_string(Condition condition);

class Machine {
 public:
  Machine(int number, Layout layout, HostState state)
      : number_(number), layout_(std::move(layout)), state_(std::move(state)) {}

  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] std::string name() const { return host_name(number_); }
  [[nodiscard]] const HostState& state() const { return state_; }
  [[nodiscard]] std::string console_path() const { return layout_.console(number_); }

  [[nodiscard]] std::optional<ProcessId> process() const;
  [[nodiscard]] Condition condition() const;

  // Starts QEMU. State if it runs.
  Result<> power_on() const;
  // Waits for the agent, and for libvirt. Unreachable with the console's last lines if they don't
  // come, or at once if it is known that they won't.
  Result<> wait_until_up(const Deadline& deadline) const;
  // Ends QEMU as a power cut would; what is on its drives stays. Nothing if it is off.
  Result<> power_off() const;
  // As the reset button; returns when the reset has happened, before it is up again.
  Result<> reset() const;
  // Makes its kernel panic; it stays so until it is reset or switched off.
  Result<> panic() const;
  // Has a device (QEMU's id) report an error of PCI Express to the port above it: bits of
  // PCI_ERR_UNCOR_STATUS. Failure if it can't, as when it has no AER capability.
  Result<> inject_pcie_error(const std::string& device, uint32_t status) const;

  // A session with the agent. State if the host is off.
  [[nodiscard]] Result<agent::Session> open_session(const Deadline& deadline) const;
  // Why the agent can't be expected to answer: QEMU ended, or the kernel panicked. Empty if nothing
  // is known.
  [[nodiscard]] std::string obituary() const;

  // Where each device with an id is: id -> 0000:bb:dd.f, as QEMU has it now.
  [[nodiscard]] Result<std::map<std::string, std::string>> pci_addresses() const;

  // The console from `offset` on, and its size now.
  [[nodiscard]] std::string console(uint64_t offset = 0) const;
  [[nodiscard]] uint64_t console_size() const;

 private:
  [[nodiscard]] Result<> begin_boot() const;
  // Gives up early where `obituary` says something.
  [[nodiscard]] Result<agent::Session> open_session(
      const Deadline& deadline, const std::function<std::string()>& obituary) const;
  [[nodiscard]] std::string this_boots_console() const;
  [[nodiscard]] std::string qemu_log() const;
  [[nodiscard]] std::string panic_line(std::string_view log) const;
  [[nodiscard]] Error with_console(Error error) const;
  Result<> off_error() const;

  int number_;
  Layout layout_;
  HostState state_;
  Processes processes_;
};

// The id -> address map of a query-pci answer.
std::map<std::string, std::string> parse_pci_addresses(const nlohmann::json& answer);

// The last `count` lines of a text that have something in them.
std::string last_lines(std::string_view text, size_t count);

}  // namespace pcilend::lab
