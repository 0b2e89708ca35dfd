// SPDX-License-Identifier: GPL-2.0-or-later
// What makes an adapter the product that it is: what it is to PCI, its registers, and where the
// peer's windows lead. Each product is a file of its own; models.h makes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pcilend::fabric {

inline constexpr unsigned kWindowCount = 2;  // BAR2 and BAR4
using WindowSizes = std::array<uint64_t, kWindowCount>;

struct Identity {
  uint16_t vendor;
  uint16_t device;
  uint64_t register_size;  // of BAR0, a power of two
  bool register_wide;      // BAR0 is a prefetchable one of 64 bits, else one of 32
  uint32_t vectors;        // MSI-X, at most 32
  uint32_t msix_table;     // offset in BAR0
  uint32_t msix_pba;       // offset in BAR0
  uint16_t link;           // speed and width as in PCI_EXP_LNKSTA
};

// What the registers of one side have for those of the other. It crosses the link in order with
// posted writes, and is lost with it.
struct Signal {
  enum class Kind { Doorbells, Scratchpad, Message };
  Kind kind;
  unsigned index;  // of the scratchpad or message
  uint64_t value;
};

// A part of one of the peer's windows that leads to this host's bus. Length 0: closed.
struct Opening {
  uint64_t offset;
  uint64_t length;
  uint64_t address;

  bool operator==(const Opening&) const = default;
};

// An entry of a table of those who may send through the adapter.
struct Requester {
  uint16_t id;    // bus, device and function on this host
  uint8_t proxy;  // device and function that the peer sees in its place
};

class AdapterModel {
 public:
  // The adapter around it.
  class Owner {
   public:
    // MSI-X vectors of this side.
    virtual void raise(uint32_t vectors) = 0;
    virtual void signal_peer(const Signal& signal) = 0;
    virtual void ready_changed() = 0;
    // The driver knows that the link was lost.
    virtual void loss_acknowledged() = 0;
    // Somebody would take an interrupt.
    [[nodiscard]] virtual bool takes_interrupts() const = 0;

   protected:
    ~Owner() = default;
  };

  virtual ~AdapterModel() = default;
  // Once, before all else.
  void set_owner(Owner& owner) { owner_ = &owner; }

  [[nodiscard]] virtual const Identity& identity() const = 0;
  // Of the two sides, the one with the lower number.
  [[nodiscard]] virtual bool primary() const = 0;

  // Registers in BAR0, any size and alignment. Unknown ones read 0 and ignore writes.
  virtual void read(uint32_t offset, std::span<std::byte> data) = 0;
  virtual void write(uint32_t offset, std::span<const std::byte> data) = 0;
  [[nodiscard]] virtual bool is_scratchpad(uint32_t offset) const = 0;

  // From the peer's registers.
  virtual void arrive(const Signal& signal) = 0;
  // Whether anything crosses the link from now on.
  virtual void set_link(bool up) = 0;
  // The driver is to hear of it.
  virtual void link_event(bool up) = 0;
  // It is a while since ready(): what is held until a driver can take it may go.
  virtual void driver_settled() = 0;

  // A driver is loaded, as far as registers show.
  [[nodiscard]] virtual bool ready() const = 0;
  // A driver that listens has not taken note yet of a loss of the link.
  [[nodiscard]] virtual bool loss_pending() const = 0;
  // What raised `vector` still waits for the driver.
  [[nodiscard]] virtual bool cause_stands(unsigned vector) const = 0;
  // Written since the last reset.
  [[nodiscard]] virtual bool touched() const = 0;

  // Where accesses of the peer through its `window` land here, by offset. Valid until the next
  // write or reset of either side.
  [[nodiscard]] virtual std::span<const Opening> inbound(unsigned window) const = 0;
  // Who on this host may send through it, where the product has a table of those.
  [[nodiscard]] virtual std::vector<Requester> requesters() const { return {}; }

  // It names some function that is no processor; or everybody may send.
  [[nodiscard]] virtual bool lets_functions_through() const { return true; }
  // As if somebody else had taken all free entries, or gave those back.
  virtual void fill_requesters(bool /*full*/) {}

  // The product has message registers, so signals of that kind arrive().
  [[nodiscard]] virtual bool takes_messages() const { return false; }

  // Power-on state of this side.
  virtual void reset() = 0;

 protected:
  [[nodiscard]] Owner& owner() const { return *owner_; }

 private:
  Owner* owner_ = nullptr;
};

}  // namespace pcilend::fabric
