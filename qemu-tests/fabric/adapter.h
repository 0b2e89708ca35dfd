// SPDX-License-Identifier: GPL-2.0-or-later
// One NTB adapter: a function that `host` sees towards `peer`. Ties registers, configuration
// space, interrupts and memory of that host together, and hands what crosses the link to its
// Bridge.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "config_space.h"
#include "counters.h"
#include "dma_table.h"
#include "irq_vectors.h"
#include "ntb_registers.h"
#include "session.h"

namespace pcilend::fabric {

class Adapter;

// What an adapter needs of the fabric around it.
class Bridge {
 public:
  virtual ~Bridge() = default;
  virtual void connected(Adapter& adapter) = 0;
  // The host reset the function: registers are at their power-on state. `was_touched`: they
  // weren't.
  virtual void was_reset(Adapter& adapter, bool was_touched) = 0;
  virtual void ready_changed(Adapter& adapter) = 0;
  // The driver knows that the link was lost.
  virtual void loss_acknowledged(Adapter& adapter) = 0;
  virtual void window_read(Adapter& adapter, unsigned window, const ReadTicket& ticket) = 0;
  virtual void window_write(Adapter& adapter, unsigned window, uint64_t offset,
                            std::span<const std::byte> data) = 0;
  virtual void ring_peer(Adapter& adapter, uint16_t doorbells) = 0;
  virtual void show_scratchpad(Adapter& adapter, unsigned index, uint32_t value) = 0;
  virtual void dma_write_failed(Adapter& adapter, int error) = 0;
  virtual void bad_map(Adapter& adapter, const DmaMap& map, int error) = 0;
  [[nodiscard]] virtual NtbRegisters::PeerView peer_view(const Adapter& adapter) const = 0;
};

class Adapter final : public Device {
 public:
  using WindowSizes = std::array<uint64_t, kWindowCount>;

  // All count from 0; the lower one of `host` and `peer` is the primary side.
  Adapter(size_t host, size_t peer, size_t path, const WindowSizes& windows, Bridge& bridge);

  [[nodiscard]] size_t host() const { return host_; }
  [[nodiscard]] size_t peer() const { return peer_; }
  // Which of the adapters towards that peer.
  [[nodiscard]] size_t path() const { return path_; }
  // "host1-host2": of host1 towards host2; "host1-host2.2": the second one.
  [[nodiscard]] const std::string& name() const { return name_; }

  // A client came or went. detach() returns the session, to be destroyed by the caller last.
  void attach(UniqueFd socket);
  std::unique_ptr<Session> detach();
  [[nodiscard]] Session* session() const { return session_.get(); }
  [[nodiscard]] bool present() const { return session_ && session_->negotiated(); }

  // What an inbound access through `window` of the peer meets on this host's bus.
  enum class Where {
    Nowhere,    // closed, beyond the limit, bus master off, or refused
    Memory,     // `bytes`
    Interrupt,  // 0xfee00000, 1 MiB
    Message,    // ask the host's QEMU
  };
  struct Landing {
    Where where;
    uint64_t address;            // on this host's bus
    uint64_t size;               // bytes that land alike, at most those asked for, at least 1
    std::span<std::byte> bytes;  // `size` of them for Memory
    Target target;               // how it is counted
  };
  [[nodiscard]] Landing land(unsigned window, uint64_t offset, uint64_t size, bool write) const;

  // Arrivals from the link.
  void ring(uint16_t doorbells) { raise(registers_.ring_doorbells(doorbells)); }
  void link_event(LinkEvent event) {
    if (told_) raise(registers_.link_event(event));
  }
  // Whether this host's driver hears of the link's events; what it has not heard of is over.
  void set_told(bool told) { told_ = told; }
  void release_events() { raise(registers_.release_events()); }
  NtbRegisters& registers() { return registers_; }
  [[nodiscard]] const NtbRegisters& registers() const { return registers_; }

  [[nodiscard]] const DmaTable& memory() const { return memory_; }
  [[nodiscard]] const IrqVectors& interrupts() const { return interrupts_; }
  [[nodiscard]] bool bus_master() const { return config_.bus_master(); }
  [[nodiscard]] uint64_t window_size(unsigned window) const { return windows_[window]; }
  AdapterCounters& counters() { return counters_; }
  [[nodiscard]] const AdapterCounters& counters() const { return counters_; }
  void reset_counters() {
    counters_ = {};
    interrupts_.forget_raised();
  }

 private:
  void connected() override;
  [[nodiscard]] uint64_t region_size(uint32_t region) const override;
  [[nodiscard]] uint32_t irq_count(uint32_t index) const override;
  Parsed<> dma_map(const DmaMap& map, UniqueFd fd) override;
  Parsed<> dma_unmap(const DmaUnmap& unmap) override;
  Parsed<> set_irqs(const IrqRequest& request, std::vector<UniqueFd> fds) override;
  void region_read(const ReadTicket& ticket) override;
  void region_write(const RegionAccess& access, std::span<const std::byte> data) override;
  void reset() override;
  void dma_write_failed(int error) override;

  void registers_read(uint32_t offset, std::span<std::byte> data);
  void registers_write(uint32_t offset, std::span<const std::byte> data);
  void count_register_access(uint32_t offset);
  void raise(uint32_t vectors) { interrupts_.raise(vectors); }

  size_t host_;
  size_t peer_;
  size_t path_;
  std::string name_;
  WindowSizes windows_;
  Bridge& bridge_;
  NtbRegisters registers_;
  ConfigSpace config_;
  IrqVectors interrupts_;
  DmaTable memory_;
  AdapterCounters counters_;
  bool told_ = true;
  std::unique_ptr<Session> session_;
  std::vector<std::byte> scratch_;
};

}  // namespace pcilend::fabric
