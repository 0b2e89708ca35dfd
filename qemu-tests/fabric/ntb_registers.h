// SPDX-License-Identifier: GPL-2.0-or-later
// The register file of one side of an AMD NTB (1022:148b) as Linux's drivers/ntb/hw/amd drives it.
// Pure: no I/O, no clock; what a write causes outside is returned to the caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "adapter_model.h"

namespace pcilend::fabric {

inline constexpr unsigned kScratchpadCount =
    16;  // 0-7 belong to the primary side, 8-15 to the other
inline constexpr unsigned kDoorbellCount = 16;
inline constexpr unsigned kEventVector = 16;  // the driver takes any vector above the doorbells'

// Register offsets in bytes (ntb_hw_amd.h). Those of the peer are seen at +kPeer.
namespace reg {
inline constexpr uint32_t kCntl = 0x200;
inline constexpr uint32_t kScratchpad = 0x210;
inline constexpr uint32_t kSideInfo = 0x408;
inline constexpr uint32_t kLimit = 0x418;        // 8 bytes a window
inline constexpr uint32_t kTranslation = 0x438;  // 8 bytes a window
inline constexpr uint32_t kDoorbellRequest = 0x454;
inline constexpr uint32_t kDoorbellMask = 0x45c;
inline constexpr uint32_t kDoorbellStatus = 0x460;
inline constexpr uint32_t kInterruptMask = 0x470;
inline constexpr uint32_t kInterruptStatus = 0x474;
inline constexpr uint32_t kSmuAck = 0x4a0;
inline constexpr uint32_t kPeer = 0x400;

inline constexpr uint32_t kSideSecondary = 1;  // in kSideInfo
inline constexpr uint32_t kSideReady = 2;
}  // namespace reg

enum class Side { Primary, Secondary };

// Bits of kInterruptStatus.
enum class LinkEvent : uint32_t { Up = 1 << 5, Down = 1 << 6 };

// Where accesses of the peer through one window land on this side's bus.
struct Translation {
  uint64_t address = 0;
  uint64_t limit = 0;  // bytes that are open, from the window's start; 0: closed
};
using Translations = std::array<Translation, kWindowCount>;

class NtbRegisters {
 public:
  explicit NtbRegisters(Side side) : side_(side) { reset(); }

  // What this side sees of the other one.
  struct PeerView {
    bool ready = false;  // the peer's driver is loaded, and the link is up
    Translations translations;
  };

  struct ScratchpadWrite {
    unsigned index;
    uint32_t value;
  };
  struct Effects {
    uint32_t vectors = 0;                      // MSI-X vectors to raise on this side
    uint16_t peer_doorbells = 0;               // to be rung on the other side
    std::vector<ScratchpadWrite> scratchpads;  // to be shown to the other side
  };

  // Any size and alignment. Unknown registers read 0 and ignore writes.
  void read(uint32_t offset, std::span<std::byte> data, const PeerView& peer) const;
  Effects write(uint32_t offset, std::span<const std::byte> data);

  // What arrives from the other side or the link. They return the vectors to raise.
  [[nodiscard]] uint32_t ring_doorbells(uint16_t bits);
  void show_scratchpad(unsigned index, uint32_t value) { scratchpads_.at(index) = value; }
  // Dropped while no driver is loaded.
  [[nodiscard]] uint32_t link_event(LinkEvent event);

  // A driver sets its ready bit shortly before it can take link events, so they are held from then
  // on until they are released.
  [[nodiscard]] uint32_t release_events();

  // A driver that listens has not acknowledged yet that the link was lost.
  [[nodiscard]] bool loss_pending() const;

  // What raised `vector` still waits for the driver.
  [[nodiscard]] bool cause_stands(unsigned vector) const;

  [[nodiscard]] bool ready() const { return ready_; }
  [[nodiscard]] Side side() const { return side_; }
  [[nodiscard]] const Translations& translations() const { return translations_; }
  [[nodiscard]] uint32_t scratchpad(unsigned index) const { return scratchpads_.at(index); }
  [[nodiscard]] bool owns_scratchpad(unsigned index) const {
    return (index < kScratchpadCount / 2) == (side_ == Side::Primary);
  }
  // Written since the last reset.
  [[nodiscard]] bool touched() const { return touched_; }

  // Power-on state.
  void reset();

 private:
  [[nodiscard]] uint32_t read_word(uint32_t offset, const PeerView& peer) const;
  // Only the bits in `mask` are written.
  void write_word(uint32_t offset, uint32_t value, uint32_t mask, Effects& effects);
  void set_ready(bool ready);
  [[nodiscard]] uint32_t present_event();

  Side side_;
  bool touched_;
  bool ready_;
  uint32_t control_;
  std::array<uint32_t, kScratchpadCount> scratchpads_;
  Translations translations_;
  uint16_t doorbell_mask_;
  uint16_t doorbell_status_;
  uint32_t interrupt_mask_;
  uint32_t interrupt_status_;
  uint32_t smu_ack_;
  std::deque<LinkEvent> events_;  // behind the one in interrupt_status_
  bool events_held_;
};

}  // namespace pcilend::fabric
