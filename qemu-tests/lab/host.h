// SPDX-License-Identifier: GPL-2.0-or-later
// A host of a lab as a test sees it. Every command is echoed into the lab's transcript.
#pragma once

#include <chrono>
#include <future>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lab/domain_xml.h"
#include "lab/kernel_log.h"
#include "lab/machine.h"
#include "lab/transcript.h"

namespace pcilend::lab {

using namespace std::chrono_literals;

// A command: one string is a line for the shell, a list is a program and its arguments.
class Command {
 public:
  Command(const char* line) : Command(std::string(line)) {}  // NOLINT(google-explicit-constructor)
  Command(std::string line)                                  // NOLINT(google-explicit-constructor)
      : text_(line), argv_{"/bin/sh", "-c", std::move(line)} {}
  Command(std::vector<std::string> argv);  // NOLINT(google-explicit-constructor)
  Command(std::initializer_list<std::string> argv) : Command(std::vector<std::string>(argv)) {}

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::vector<std::string>& argv() const { return argv_; }

  // The same command, run by `prefix` in front of it; its text stays.
  [[nodiscard]] Command behind(std::vector<std::string> prefix) const;

 private:
  std::string text_;
  std::vector<std::string> argv_;
};

struct Output {
  int code = 0;     // exit code; 128 + signal if one ended it
  std::string out;  // stdout
  std::string err;  // stderr
  std::chrono::milliseconds time{};

  // stdout without its last newline.
  [[nodiscard]] std::string text() const;
};

// What any step of a host or guest may take on a busy machine, such as a driver that gives its
// device up after a lease. Nothing takes longer unless it hangs.
inline constexpr std::chrono::milliseconds kPatience = 2min;

struct ExecOptions {
  std::string input;  // stdin
  std::chrono::milliseconds timeout = kPatience;
};

// A command that runs in the background. Ended (SIGINT, SIGKILL) when this goes.
class Running {
 public:
  Running(Running&&) noexcept;
  Running& operator=(Running&&) = delete;
  ~Running();

  // Waits for its end; Unreachable if the host died under it or the options' timeout is over.
  Result<Output> wait();
  [[nodiscard]] bool ended() const;
  // What it has written to stdout until now.
  [[nodiscard]] std::string output_so_far() const;
  void interrupt();

 private:
  friend class Host;
  struct Shared;
  Running(std::shared_ptr<Shared> shared, std::shared_future<Result<Output>> result)
      : shared_(std::move(shared)), result_(std::move(result)) {}

  std::shared_ptr<Shared> shared_;
  std::shared_future<Result<Output>> result_;
};

class Guest;

// How a guest gets a function.
enum class Hostdev { Pci, Mdev };

class Host {
 public:
  // The transcript must outlive the host.
  Host(Machine machine, Transcript& transcript);

  [[nodiscard]] std::string name() const { return machine_.name(); }
  [[nodiscard]] int number() const { return machine_.number(); }
  [[nodiscard]] int node() const { return node_id(machine_.number()); }
  [[nodiscard]] const Machine& machine() const { return machine_; }

  // Runs a command to its end, whatever its exit code.
  Result<Output> exec(const Command& command, const ExecOptions& options = {}) const;
  // The same for a command that must succeed: its stdout. Any other exit code is a Failure that
  // quotes stderr.
  Result<std::string> run(const Command& command, const ExecOptions& options = {}) const;
  // run(), and its stdout parsed.
  Result<nlohmann::json> json(const Command& command, const ExecOptions& options = {}) const;
  // Begins a command.
  Result<Running> start(const Command& command, const ExecOptions& options = {}) const;

  // Runs a command again and again until `accept` takes its result, or until it succeeds.
  using Accept = std::function<bool(const Output&)>;
  Result<Output> until(const Command& command, const Accept& accept,
                       std::chrono::milliseconds within = kPatience) const;
  Result<Output> until(const Command& command, std::chrono::milliseconds within = kPatience) const;

  Result<> put(const std::string& file, const std::string& to) const;
  Result<> get(const std::string& from, const std::string& file) const;
  Result<> write(const std::string& path, std::string_view content, mode_t mode = 0644) const;
  Result<std::string> read(const std::string& path) const;

  // power_on() and reset() return when the host is up again.
  Result<> power_off() const;
  Result<> power_on(std::chrono::milliseconds within = 5min) const;
  Result<> reset(std::chrono::milliseconds within = 5min) const;
  Result<> panic() const;
  // Of a device of the lab, by its id; bits of PCI_ERR_UNCOR_STATUS.
  Result<> inject_pcie_error(const std::string& device, uint32_t status) const;

  // The address of one of the lab's devices (its id, or its place among this host's --device, from
  // 0).
  [[nodiscard]] Result<std::string> address(const std::string& id) const;
  [[nodiscard]] Result<std::string> address(size_t index) const;

  // From now on the kernel log counts.
  Result<> mark_log();
  // What it has said until now does not count, for a host that is off or has panicked.
  void forget_log();
  // The kernel log since the mark (or the lab's beginning), boots in between included.
  [[nodiscard]] std::string log() const;
  // Failure that lists what log() has in it that must not be there; with the debug kernel also
  // which checker has switched itself off.
  [[nodiscard]] Result<> check_log(const Expected& expected = {}) const;
  // Failure that lists what has leaked since the last call. Only the debug kernel knows, and takes
  // half a minute to find out; nothing of a host that does not run.
  [[nodiscard]] Result<> check_leaks() const;

  // A guest of the lab's image on this host, with the functions of these ids as PCI devices, or as
  // mediated ones.
  [[nodiscard]] Result<GuestSpec> guest_spec(const std::string& name,
                                             const std::vector<std::string>& ids,
                                             Hostdev kind = Hostdev::Pci) const;
  [[nodiscard]] Guest guest(GuestSpec spec) const;

 private:
  friend class Guest;

  Result<Output> exec_as(const std::string& who, const Command& command,
                         const ExecOptions& options) const;
  Result<Running> start_as(const std::string& who, const Command& command,
                           const ExecOptions& options) const;

  [[nodiscard]] Result<std::vector<LogFinding>> ask_checkers(const char* script) const;
  [[nodiscard]] Result<> none_of(const std::vector<LogFinding>& findings) const;

  Machine machine_;
  Transcript& transcript_;
  unsigned marks_ = 0;
  uint64_t console_mark_ = 0;
};

// A guest of a host; the host must outlive it.
class Guest {
 public:
  Guest(const Host& host, GuestSpec spec) : host_(host), spec_(std::move(spec)) {}

  [[nodiscard]] const std::string& name() const { return spec_.name; }
  [[nodiscard]] std::string xml() const { return domain_xml(spec_); }

  Result<> define() const;
  Result<> undefine() const;
  // start() returns when virsh does; boot() when the guest's agent answers, so that commands can be
  // run.
  Result<> start() const;
  Result<> boot() const;
  Result<> await_answer() const;
  // As the power cord; returns when libvirt has shut it off.
  Result<> destroy() const;
  // From inside; the same.
  Result<> shut_down(std::chrono::milliseconds within = kPatience) const;
  // virsh shutdown, which the guest must heed; the same.
  Result<> press_power_button(std::chrono::milliseconds within = kPatience) const;
  // virsh domstate.
  [[nodiscard]] Result<std::string> state() const;

  Result<Output> exec(const Command& command, const ExecOptions& options = {}) const;
  Result<std::string> run(const Command& command, const ExecOptions& options = {}) const;
  Result<Running> start(const Command& command, const ExecOptions& options = {}) const;
  [[nodiscard]] Result<std::string> console() const;

 private:
  Result<> await_off(std::chrono::milliseconds within) const;
  [[nodiscard]] std::string who() const;
  [[nodiscard]] Command inside(const Command& command) const;

  const Host& host_;
  GuestSpec spec_;
};

// Where the agent is in a host, and a command of a host that runs `command` in its guest.
inline constexpr const char* kAgentInHost = "/usr/lib/pcilend-lab/agent";
std::vector<std::string> guest_call(const std::string& guest, bool input, bool terminal);

// What `pcilend list --json` gives in that column for these ids. NotFound names the ids that there
// are.
Result<std::vector<std::string>> column_of(const nlohmann::json& list, const std::string& column,
                                           const std::vector<std::string>& ids);

}  // namespace pcilend::lab
