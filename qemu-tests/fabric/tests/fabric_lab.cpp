// SPDX-License-Identifier: GPL-2.0-or-later
#include "fabric_lab.h"

#include <linux/pci_regs.h>
#include <sys/socket.h>

#include <algorithm>

namespace pcilend::fabric::test {

std::optional<Received> Host::take(Command command, std::optional<uint16_t> reply_to) {
  drain();
  const auto found = std::find_if(inbox.begin(), inbox.end(), [&](const Received& message) {
    if (message.command() != command || message.header.is_reply() != reply_to.has_value())
      return false;
    return !reply_to || message.header.id == *reply_to;
  });
  if (found == inbox.end()) return std::nullopt;
  Received message = std::move(*found);
  inbox.erase(found);
  return message;
}

size_t Host::count(Command command) const {
  return static_cast<size_t>(
      std::count_if(inbox.begin(), inbox.end(), [&](const Received& message) {
        return message.command() == command && !message.header.is_reply();
      }));
}

void FabricLab::make(size_t hosts, FabricOptions options) {
  fabric.reset();
  hosts_.clear();
  lines.clear();
  options.hosts = hosts;
  log = std::make_unique<Log>([this] { return now; },
                              [this](std::string_view line) { lines.emplace_back(line); });
  fabric = std::make_unique<Fabric>(
      options, [this] { return now; }, *log);
}

void FabricLab::TearDown() {
  fabric.reset();
  hosts_.clear();
}

Host& FabricLab::connect(size_t a, size_t b, size_t path) {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  auto host = std::make_unique<Host>(UniqueFd(ends[0]));
  fabric->attach(fabric->adapter(a - 1, b - 1, path - 1), UniqueFd(ends[1]));
  const uint16_t id = host->client.send_version();
  Host& connected = *(hosts_[{a, b, path}] = std::move(host));
  run();
  EXPECT_TRUE(connected.take_reply(Command::Version, id));
  return connected;
}

Host& FabricLab::boot(size_t a, size_t b, uint64_t window1, size_t path) {
  Host& host = connect(a, b, path);
  const uint16_t id = host.client.send_map(Host::kRamBus, Host::kRamSize, host.ram.fd());
  put<uint16_t>(host, kRegionConfig, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
  set_translation(host, 0, Host::kRamBus, Host::kRamSize);
  set_translation(host, 1, window1, 1 << 28);
  const auto mapped = host.take_reply(Command::DmaMap, id);
  EXPECT_TRUE(mapped && !mapped->failed());
  return host;
}

void FabricLab::power_off(size_t a, size_t b) {
  host(a, b).client.hang_up();
  run();
}

void FabricLab::run() {
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& adapter : fabric->adapters()) {
      if (adapter->session() == nullptr) continue;
      Connection& connection = adapter->session()->connection();
      const auto progress = connection.receive();
      if (progress == Connection::Progress::Closed)
        fabric->detach(*adapter, std::string(connection.why()));
      moved |= progress != Connection::Progress::None;
    }
    fabric->timers().run(now);
    for (const auto& adapter : fabric->adapters()) {
      if (adapter->session() != nullptr) adapter->session()->connection().flush();
    }
  }
}

void FabricLab::advance(milliseconds time) {
  const TimePoint end = now + time;
  for (auto next = fabric->timers().next(); next && *next <= end; next = fabric->timers().next()) {
    now = std::max(now, *next);
    run();
  }
  now = end;
  run();
}

uint64_t FabricLab::get(Host& host, uint32_t region, uint64_t offset, uint32_t size) {
  const auto value = answer_of(host, begin_read(host, region, offset, size));
  EXPECT_TRUE(value) << "no answer at once";
  return value.value_or(0xbad);
}

std::optional<uint64_t> FabricLab::answer_of(Host& host, uint16_t id) {
  run();
  const auto answer = host.take_reply(Command::RegionRead, id);
  if (!answer) return std::nullopt;
  EXPECT_FALSE(answer->failed());
  EXPECT_FALSE(host.take_reply(Command::RegionRead, id)) << "answered twice";
  uint64_t value = 0;
  std::memcpy(&value, answer->data().data(), std::min(answer->data().size(), sizeof value));
  return value;
}

uint32_t FabricLab::take_event(Host& host) {
  const auto status = static_cast<uint32_t>(get(host, kRegionBar0, reg::kInterruptStatus, 4));
  if (status != 0) put<uint32_t>(host, kRegionBar0, reg::kInterruptStatus, status);
  return status;
}

bool FabricLab::logged(std::string_view text) const {
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

}  // namespace pcilend::fabric::test
