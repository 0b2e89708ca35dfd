// SPDX-License-Identifier: GPL-2.0-or-later
// A fabric with scripted hosts, on a clock that the test moves.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "amd_model.h"
#include "fabric.h"
#include "tests/client.h"

namespace pcilend::fabric::test {

using std::chrono::milliseconds;

// One adapter of one host, played by the test: QEMU and the guest's NTB driver at once.
class Host {
 public:
  static constexpr uint64_t kRamBus = 0x80000000;  // where its RAM is on its bus
  static constexpr size_t kRamSize = 1 << 20;

  Host(UniqueFd socket) : client(std::move(socket)) {}

  Client client;
  Memory ram{kRamSize};
  std::vector<Received> inbox;  // read from the stream, not looked at yet

  // What came since, answers and requests alike.
  void drain() {
    while (auto received = client.receive()) inbox.push_back(std::move(*received));
  }
  // Takes the first message of this kind (replies: with this id) out of the inbox.
  std::optional<Received> take(Command command, std::optional<uint16_t> reply_to = {});
  std::optional<Received> take_request(Command command) { return take(command); }
  std::optional<Received> take_reply(Command command, uint16_t id) { return take(command, id); }
  size_t count(Command command) const;
};

class FabricLab : public testing::Test {
 protected:
  void make(size_t hosts, FabricOptions options = {});
  void SetUp() override { make(2); }
  void TearDown() override;

  // Connects host `a`'s adapter towards `b` (numbers from 1, as in names) and negotiates.
  Host& connect(size_t a, size_t b, size_t path = 1);
  // As connect(); then maps its RAM, sets bus master and opens window 0 onto kRamBus, window 1 onto
  // bus address `window1`.
  Host& boot(size_t a, size_t b, uint64_t window1 = 0xfe000000, size_t path = 1);
  Host& host(size_t a, size_t b) { return *hosts_.at({a, b, 1}); }
  Host& path_host(size_t a, size_t b, size_t path) { return *hosts_.at({a, b, path}); }
  void power_off(size_t a, size_t b);

  // Lets the fabric run until nothing moves.
  void run();
  void advance(milliseconds time);

  // One register access of a host, answered at once.
  uint64_t get(Host& host, uint32_t region, uint64_t offset, uint32_t size);
  template <class T>
  void put(Host& host, uint32_t region, uint64_t offset, T value) {
    host.client.post(region, offset, value);
    run();
  }
  void set_translation(Host& host, unsigned window, uint64_t address, uint64_t limit) {
    put<uint64_t>(host, kRegionBar0, reg::kPeer + reg::kTranslation + 8 * window, address);
    put<uint64_t>(host, kRegionBar0, reg::kPeer + reg::kLimit + 8 * window, limit);
  }
  void set_ready(Host& host, bool ready = true) {
    put<uint32_t>(host, kRegionBar0, reg::kSideInfo, ready ? reg::kSideReady : 0);
  }
  bool peer_ready(Host& host) {
    return (get(host, kRegionBar0, reg::kPeer + reg::kSideInfo, 4) & reg::kSideReady) != 0;
  }
  // Takes the event its driver would handle next, 0 if there is none.
  uint32_t take_event(Host& host);

  // A read that is not answered at once; ask answer_of() later.
  uint16_t begin_read(Host& host, uint32_t region, uint64_t offset, uint32_t size = 4) {
    const uint16_t id = host.client.send_read(region, offset, size);
    run();
    return id;
  }
  // The value read; nothing if there is no answer yet. Fails the test when it came twice.
  std::optional<uint64_t> answer_of(Host& host, uint16_t id);

  uint64_t lost_reads(size_t from, size_t to, Loss loss) {
    return fabric->traffic(fabric->adapter(from - 1, to - 1)).lost_reads[static_cast<size_t>(loss)];
  }
  uint64_t lost_writes(size_t from, size_t to, Loss loss) {
    return fabric->traffic(fabric->adapter(from - 1, to - 1))
        .lost_writes[static_cast<size_t>(loss)];
  }
  const Traffic& traffic(size_t from, size_t to, Target target) {
    return fabric->traffic(fabric->adapter(from - 1, to - 1)).traffic[static_cast<size_t>(target)];
  }
  bool logged(std::string_view text) const;

  TimePoint now{};
  std::vector<std::string> lines;
  std::unique_ptr<Log> log;
  std::unique_ptr<Fabric> fabric;
  std::map<std::tuple<size_t, size_t, size_t>, std::unique_ptr<Host>> hosts_;
};

}  // namespace pcilend::fabric::test
