// SPDX-License-Identifier: GPL-2.0-or-later
// One NTB adapter: a function that `host` sees towards `peer`. Ties registers, configuration
// space, interrupts and memory of that host together, and hands what crosses the link to its
// Bridge.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "adapter_model.h"
#include "config_space.h"
#include "counters.h"
#include "dma_table.h"
#include "irq_vectors.h"
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
  virtual void signal_peer(Adapter& adapter, const Signal& signal) = 0;
  virtual void dma_write_failed(Adapter& adapter, int error, uint16_t id) = 0;
  virtual void bad_map(Adapter& adapter, const DmaMap& map, int error) = 0;
};

class Adapter final : public Device, private AdapterModel::Owner {
 public:
  // All count from 0; the lower one of `host` and `peer` is the primary side.
  Adapter(size_t host, size_t peer, size_t path, std::unique_ptr<AdapterModel> model,
          const WindowSizes& windows, Bridge& bridge);

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
  void link_event(bool up) {
    if (told_) model_->link_event(up);
  }
  // Whether this host's driver hears of the link's events; what it has not heard of is over.
  void set_told(bool told) { told_ = told; }
  // Whether reads of functions are refused that its table of requesters does not let through.
  void set_strict(bool strict) { strict_ = strict; }
  [[nodiscard]] bool refuses_functions() const {
    return strict_ && !model_->lets_functions_through();
  }
  AdapterModel& model() { return *model_; }
  [[nodiscard]] const AdapterModel& model() const { return *model_; }

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
  void dma_write_failed(int error, uint16_t id) override;

  void raise(uint32_t vectors) override { interrupts_.raise(vectors); }
  void signal_peer(const Signal& signal) override { bridge_.signal_peer(*this, signal); }
  void ready_changed() override { bridge_.ready_changed(*this); }
  void loss_acknowledged() override { bridge_.loss_acknowledged(*this); }
  [[nodiscard]] bool takes_interrupts() const override { return interrupts_.enabled() != 0; }

  void registers_read(uint32_t offset, std::span<std::byte> data);
  void registers_write(uint32_t offset, std::span<const std::byte> data);
  void count_register_access(uint32_t offset);

  size_t host_;
  size_t peer_;
  size_t path_;
  std::string name_;
  WindowSizes windows_;
  Bridge& bridge_;
  std::unique_ptr<AdapterModel> model_;
  ConfigSpace config_;
  IrqVectors interrupts_;
  DmaTable memory_;
  AdapterCounters counters_;
  bool told_ = true;
  bool strict_ = false;
  std::unique_ptr<Session> session_;
  std::vector<std::byte> scratch_;
};

}  // namespace pcilend::fabric
