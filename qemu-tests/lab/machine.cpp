// SPDX-License-Identifier: GPL-2.0-or-later
#include "lab/machine.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "lab/lab_lock.h"
#include "lab/qemu_command.h"
#include "lab/qmp.h"
#include "lab/unix_socket.h"

namespace pcilend::lab {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto kQmp = 60s;
// From a crash order to the panic's message, under load.
constexpr auto kPanic = 60s;
constexpr auto kStatus = 10s;
// From QEMU's closing of its sockets to its end, under load.
constexpr auto kObituary = 5s;
constexpr size_t kTail = 12;

constexpr std::string_view kPanicText = "Kernel panic - not syncing";
// Said by a host's init, in the initramfs, before it gives up.
constexpr std::string_view kInitText = "pcilend-lab: initramfs: ";

void collect_addresses(const json& devices, std::map<std::string, std::string>& found) {
  for (const json& device : devices) {
    const std::string id = device.value("qdev_id", "");
    if (!id.empty())
      found[id] = fmt::format("0000:{:02x}:{:02x}.{:x}", device.value("bus", 0U),
                              device.value("slot", 0U), device.value("function", 0U));
    if (const auto bridge = device.find("pci_bridge"); bridge != device.end())
      collect_addresses(bridge->value("devices", json::array()), found);
  }
}

std::string line_with(std::string_view text, std::string_view part) {
  const size_t at = text.find(part);
  if (at == std::string_view::npos) return {};
  std::string_view line = text.substr(at, text.find('\n', at) - at);
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return std::string(line);
}

// The last line that has something in it, behind `lead`.
std::string last_line(std::string_view text, std::string_view lead) {
  constexpr std::string_view kEnds = "\r\n";
  const size_t end = text.find_last_not_of(kEnds);
  if (end == std::string_view::npos) return {};
  text = text.substr(0, end + 1);
  return std::string(lead).append(text.substr(text.find_last_of(kEnds) + 1));
}

}  // namespace

std::string_view to_string(Condition condition) {
  switch (condition) {
    case Condition::Off:
      return "off";
    case Condition::Running:
      return "running";
    case Condition::Panicked:
      return "panicked";
    case Condition::Silent:
      break;
  }
  return "not answering";
}

std::map<std::string, std::string> parse_pci_addresses(const json& answer) {
  std::map<std::string, std::string> found;
  for (const json& bus : answer) collect_addresses(bus.value("devices", json::array()), found);
  return found;
}

std::string last_lines(std::string_view text, size_t count) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!line.empty()) lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::string out;
  for (size_t i = lines.size() - std::min(lines.size(), count); i < lines.size(); ++i)
    out += fmt::format("\n  | {}", lines[i]);
  return out;
}

std::optional<ProcessId> Machine::process() const {
  return processes_.find(layout_.qemu_pid(number_));
}

Condition Machine::condition() const {
  if (!process()) return Condition::Off;
  // Whatever the console says, an agent that answers is believed.
  const auto session = open_session(Deadline(kStatus), {});
  // All ports in use: it runs so well that it is busy.
  if (session || session.error().kind == ErrorClass::State) return Condition::Running;
  return panic_line(this_boots_console()).empty() ? Condition::Silent : Condition::Panicked;
}

uint64_t Machine::console_size() const {
  std::error_code error;
  const auto size = std::filesystem::file_size(console_path(), error);
  return error ? 0 : size;
}

std::string Machine::console(uint64_t offset) const {
  std::string text = Environment().read(console_path()).value_or(std::string());
  text.erase(0, std::min<uint64_t>(offset, text.size()));
  return text;
}

// Remembers where in the console's log this boot begins.
Result<> Machine::begin_boot() const {
  return Environment().replace_file(layout_.boot(number_), fmt::format("{}\n", console_size()));
}

std::string Machine::this_boots_console() const {
  uint64_t offset = 0;
  if (const auto text = Environment().read(layout_.boot(number_)))
    std::from_chars(text->data(), text->data() + text->size(), offset);
  return console(offset);
}

std::string Machine::panic_line(std::string_view log) const {
  return line_with(log, kPanicText);
}

std::string Machine::obituary() const {
  if (!process()) {
    return fmt::format("it is off, or its QEMU ended; {} ends:{}", layout_.qemu_log(number_),
                       last_lines(qemu_log(), 3));
  }
  const std::string log = this_boots_console();
  if (const std::string line = panic_line(log); !line.empty())
    return "its kernel panicked: " + line;
  return line_with(log, kInitText);
}

Error Machine::with_console(Error error) const {
  // Why it ended says more than how that was noticed; its sockets tell of its end first.
  std::string why;
  const auto known = [&] { return !(why = obituary()).empty(); };
  if (!known() && error.kind == ErrorClass::Unreachable)
    wait_until(Deadline(kObituary), known, 5ms);
  if (!process()) why = "its QEMU ended" + last_line(qemu_log(), ": ");
  if (!why.empty()) error = {ErrorClass::Unreachable, std::move(why)};
  const std::string console = last_lines(this_boots_console(), kTail);
  error.message =
      fmt::format("{} does not come up: {}{}{}", name(), error.message,
                  console.empty() ? "; its console is empty" : "\nits console ends:", console);
  return error;
}

std::string Machine::qemu_log() const {
  return Environment().read(layout_.qemu_log(number_)).value_or(std::string());
}

Result<> Machine::off_error() const {
  return fail(ErrorClass::State, "{} is off: 'pcilend-lab power {} on' starts it", name(), name());
}

Result<> Machine::power_on() const {
  // Two commands must not both find it off.
  const auto lock = LabLock::take(layout_.power_lock(number_), Deadline(kQmp));
  if (!lock) return tl::unexpected(lock.error());
  if (process()) return fail(ErrorClass::State, "{} is on already", name());
  PCILEND_TRY(begin_boot());
  PCILEND_TRY(
      processes_.spawn({state_.command, layout_.qemu_log(number_), layout_.qemu_pid(number_)}));
  return {};
}

Result<> Machine::wait_until_up(const Deadline& deadline) const {
  // QEMU makes its sockets in the order of its command line: until the last one listens.
  const std::string last_port = fmt::format("{}.{}", layout_.agent(number_), kAgentPorts - 1);
  bool dead = false;
  const auto listening = [&] {
    return (dead = !obituary().empty()) || connect_unix(last_port).has_value();
  };
  if (!wait_until(deadline, listening, 5ms) || dead)
    return tl::unexpected(with_console({ErrorClass::Unreachable, "it does not answer"}));
  auto session = open_session(deadline);
  if (!session) return tl::unexpected(with_console(std::move(session).error()));
  return {};
}

Result<> Machine::power_off() const {
  const auto running = process();
  if (!running) return {};
  return processes_.kill({*running});
}

Result<> Machine::reset() const {
  if (!process()) return off_error();
  const Deadline deadline(kQmp);
  auto qmp = Qmp::connect(layout_.qmp(number_), deadline);
  if (!qmp) return tl::unexpected(std::move(qmp).error().in(name()));
  PCILEND_TRY(begin_boot());
  PCILEND_TRY(qmp->execute("system_reset"));
  return qmp->wait_for_event("RESET", deadline);
}

Result<> Machine::panic() const {
  if (!process()) return off_error();
  const uint64_t before = console_size();
  auto qmp = Qmp::connect(layout_.qmp(number_), Deadline(kQmp));
  if (!qmp) return tl::unexpected(std::move(qmp).error().in(name()));
  // As a server's crash button: unknown_nmi_panic is on the kernel's command line. It needs no
  // process in the host, and works when its CPU spins.
  PCILEND_TRY(qmp->execute("inject-nmi"));
  if (!wait_until(Deadline(kPanic), [&] { return !panic_line(console(before)).empty(); }))
    return fail(ErrorClass::Failure, "{} did not panic on an NMI; its console ({}) ends:{}", name(),
                console_path(), last_lines(console(before), kTail));
  return {};
}

Result<> Machine::inject_pcie_error(const std::string& device, uint32_t status) const {
  if (!process()) return off_error();
  auto qmp = Qmp::connect(layout_.qmp(number_), Deadline(kQmp));
  if (!qmp) return tl::unexpected(std::move(qmp).error().in(name()));
  const auto said = qmp->execute(
      "human-monitor-command",
      {{"command-line", fmt::format("pcie_aer_inject_error {} {:#x}", device, status)}});
  if (!said) return tl::unexpected(said.error());
  const auto words = said->is_string() ? said->get<std::string>() : said->dump();
  if (!words.starts_with("OK "))
    return fail(ErrorClass::Failure, "{}: {} reports no error of PCI Express: {}", name(), device,
                words);
  return {};
}

Result<agent::Session> Machine::open_session(const Deadline& deadline) const {
  return open_session(deadline, [this] { return obituary(); });
}

Result<agent::Session> Machine::open_session(const Deadline& deadline,
                                             const std::function<std::string()>& obituary) const {
  if (!process()) return tl::unexpected(off_error().error());
  auto connection = agent::connect(layout_.agent(number_), deadline);
  if (!connection) return tl::unexpected(std::move(connection).error().in(name()));
  auto session = agent::Session::open(std::move(*connection), deadline, obituary);
  if (!session) return tl::unexpected(std::move(session).error().in(name()));
  return session;
}

Result<std::map<std::string, std::string>> Machine::pci_addresses() const {
  if (!process()) return tl::unexpected(off_error().error());
  auto qmp = Qmp::connect(layout_.qmp(number_), Deadline(kQmp));
  if (!qmp) return tl::unexpected(std::move(qmp).error().in(name()));
  return qmp->execute("query-pci").map(parse_pci_addresses);
}

}  // namespace pcilend::lab
