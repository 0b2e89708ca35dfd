// SPDX-License-Identifier: GPL-2.0-or-later
// The fabric: a full mesh of hosts; for each pair one or several links with an adapter at both
// ends. Routes what hosts do in their windows to memory, functions and interrupts of the peer;
// decides what a read gets when nobody can answer it. Single-threaded; sockets and time are the
// caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "adapter.h"
#include "counters.h"
#include "link.h"
#include "log.h"
#include "models.h"
#include "pcilend/result.h"
#include "tampering.h"
#include "timers.h"
#include "wait_graph.h"

namespace pcilend::fabric {

struct FabricOptions {
  size_t hosts = 2;
  size_t paths = 1;  // links between each pair of hosts
  // By path; the last one is that of all further paths.
  std::vector<Product> products{Product::Amd};
  // BAR2 and BAR4 in bytes, powers of two; 0: the product's default.
  WindowSizes windows{};
  // A read of a peer's register is answered with all-ones after this. Well below QEMU's
  // x-msg-timeout: an answer behind that kills the connection for good.
  Duration read_timeout = std::chrono::milliseconds(1000);
  // How long hosts may wait for each other in a circle before one gets all-ones.
  Duration cycle_patience = std::chrono::milliseconds(3);
  // Bytes that may be queued for one host's QEMU before posted writes to it are dropped.
  size_t posted_limit = 64 << 20;
};

// Read completions cross twice and must stay below the read timeout.
inline constexpr unsigned kMaxDelayMs = 400;

class Fabric final : private Bridge {
 public:
  Fabric(const FabricOptions& options, Clock clock, Log& log);
  ~Fabric() override;

  [[nodiscard]] size_t hosts() const { return options_.hosts; }
  [[nodiscard]] const FabricOptions& options() const { return options_; }
  [[nodiscard]] size_t paths() const { return options_.paths; }
  // An adapter of `host` towards `peer`; all count from 0, and the hosts differ.
  [[nodiscard]] Adapter& adapter(size_t host, size_t peer, size_t path = 0) const;
  [[nodiscard]] const std::vector<std::unique_ptr<Adapter>>& adapters() const { return adapters_; }
  // "host3" -> 2; an error that names the hosts there are.
  [[nodiscard]] Result<size_t> host_named(std::string_view name) const;

  // A QEMU connected to the adapter's socket, or is gone. Only one at a time.
  void attach(Adapter& adapter, UniqueFd socket);
  void detach(Adapter& adapter, std::string_view why);

  [[nodiscard]] const Link& link(size_t a, size_t b, size_t path = 0) const;
  void set_link(size_t a, size_t b, bool enabled, size_t path = 0);
  // Down, and up again after `time`, when the drivers that hear of it have acknowledged that.
  void flap(size_t a, size_t b, std::chrono::milliseconds time, size_t path = 0);
  void set_delay(size_t a, size_t b, std::chrono::milliseconds delay, size_t path = 0);

  // Posted writes of this adapter's host wait, before they reach the peer, until they are let go:
  // then they arrive whatever has become of the link, in order. Returns how many that were.
  size_t hold(Adapter& from, bool holds);
  // The link goes down when the functions of this adapter's host have done so much.
  void set_trip(const Adapter& from, const Trip& trip);
  [[nodiscard]] const Tampering& tampering(const Adapter& from) const {
    return tampering_[adapter_index(from)];
  }

  // What went through an adapter of `from` towards `to`.
  [[nodiscard]] const PathCounters& traffic(const Adapter& from) const;
  void reset_counters();
  // Bytes of the peer's bus (2 MiB granules) that answered a message through an adapter of `host`
  // towards `peer`: where functions are lent, as far as traffic has shown.
  [[nodiscard]] const std::vector<uint64_t>& answered_granules(const Adapter& adapter) const;

  // One read of an attacker behind an adapter of the victim, not counted as traffic.
  enum class Probe { NoAnswer, Memory, Bar, Interrupt };
  void probe(const Adapter& victim, unsigned window, uint64_t offset,
             const std::function<void(Probe)>& done);

  Timers& timers() { return timers_; }
  [[nodiscard]] TimePoint now() const { return clock_(); }
  [[nodiscard]] size_t pending_reads() const { return reads_.size(); }

 private:
  // A REGION_READ that waits for messages to the peer's QEMU.
  struct PendingRead {
    Adapter* from;
    ReadTicket ticket;
    std::vector<std::byte> data;
    size_t unanswered = 0;  // messages
    bool failed = false;    // one was refused
    Timers::Id deadline;
    std::optional<Timers::Id> cycle_check;
  };

  void connected(Adapter& adapter) override;
  void was_reset(Adapter& adapter, bool was_touched) override;
  void ready_changed(Adapter& adapter) override;
  void loss_acknowledged(Adapter& adapter) override;
  void window_read(Adapter& adapter, unsigned window, const ReadTicket& ticket) override;
  void window_write(Adapter& adapter, unsigned window, uint64_t offset,
                    std::span<const std::byte> data) override;
  void signal_peer(Adapter& adapter, const Signal& signal) override;
  void dma_write_failed(Adapter& adapter, int error, uint16_t id) override;
  bool write_again(Adapter& adapter, uint16_t id);
  void bad_map(Adapter& adapter, const DmaMap& map, int error) override;

  [[nodiscard]] Adapter& peer_of(const Adapter& adapter) const {
    return this->adapter(adapter.peer(), adapter.host(), adapter.path());
  }
  [[nodiscard]] size_t adapter_index(size_t host, size_t peer, size_t path) const;
  [[nodiscard]] size_t adapter_index(const Adapter& adapter) const {
    return adapter_index(adapter.host(), adapter.peer(), adapter.path());
  }
  [[nodiscard]] size_t link_index(size_t a, size_t b, size_t path) const;
  [[nodiscard]] Link& link_of(const Adapter& adapter);
  [[nodiscard]] Channel& channel_from(const Adapter& adapter);
  PathCounters& traffic_of(const Adapter& from) { return traffic_[adapter_index(from)]; }
  Tampering& tampering_of(const Adapter& from) { return tampering_[adapter_index(from)]; }
  void spring(Adapter& from);
  bool keep_back(Adapter& from, unsigned window, uint64_t offset, std::span<const std::byte> data);

  // Carries something over the link, at once or when its time has come. Without a link it is lost.
  template <class Deliver, class Lose>
  void carry(Adapter& from, Deliver deliver, Lose lose);
  void arm_channel(Adapter& from);
  void update_link(Adapter& one);
  void take_down(Adapter& one);

  void arrive_read(Adapter& from, unsigned window, const ReadTicket& ticket);
  void arrive_write(Adapter& from, unsigned window, uint64_t offset,
                    std::span<const std::byte> data);
  void send_write(Adapter& from, const Adapter::Landing& landing, std::span<const std::byte> data);
  void begin_wait(Adapter& from, const ReadTicket& ticket,
                  const std::vector<Adapter::Landing>& landings,
                  const std::vector<size_t>& positions);
  void on_read_answer(uint64_t sequence, size_t position, uint64_t address, Target target,
                      Parsed<std::span<const std::byte>> answer);
  void on_cycle_check(uint64_t sequence);
  void finish_read(uint64_t sequence, std::optional<Loss> loss);
  void complete(Adapter& from, const ReadTicket& ticket, std::span<const std::byte> data);
  void answer_ones(Adapter& from, const ReadTicket& ticket, Loss loss);
  void note_answer(Adapter& from, uint64_t address);

  FabricOptions options_;
  Clock clock_;
  Log& log_;
  Timers timers_;
  WaitGraph waits_;
  std::vector<std::unique_ptr<Adapter>> adapters_;
  std::vector<Link> links_;
  std::vector<PathCounters> traffic_;                                       // by adapter
  std::vector<Tampering> tampering_;                                        // by adapter
  std::vector<std::vector<uint64_t>> answered_;                             // by adapter
  std::unordered_map<const Adapter*, std::optional<Timers::Id>> releases_;  // of held link events
  std::unordered_map<uint64_t, PendingRead> reads_;
  uint64_t next_read_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace pcilend::fabric
