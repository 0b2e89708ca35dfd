// SPDX-License-Identifier: GPL-2.0-or-later
#include "rogue/driver.h"

#include <poll.h>

#include <array>
#include <bit>

#include "memory_access.h"
#include "ntb_registers.h"
#include "switchtec_registers.h"

namespace pcilend::rogue {

using namespace fabric;

namespace {

constexpr uint32_t kAmd = 0x148b1022;
constexpr uint32_t kSwitchtec = 0x400011f8;

class AmdDriver final : public Driver {
 public:
  explicit AmdDriver(Port& port) : port_(port) {
    const auto side = port_.get<uint32_t>(kRegionBar0, reg::kSideInfo);
    primary_ = side && (*side & reg::kSideSecondary) == 0;
  }

  [[nodiscard]] Window window(unsigned number) const override {
    return number == 0 ? Window{kRegionBar2, 0, 64ull << 30} : Window{kRegionBar4, 0, 16ull << 30};
  }
  [[nodiscard]] unsigned memory_window() const override { return 0; }
  Result<> open(uint64_t bars) override {
    translate(0, 0);
    translate(1, bars);
    return {};
  }
  void set_ready(bool ready) override {
    port_.put<uint32_t>(kRegionBar0, reg::kSideInfo, ready ? reg::kSideReady : 0);
  }
  void ring(uint16_t doorbells) override {
    port_.put(kRegionBar0, reg::kDoorbellRequest, doorbells);
  }
  void set_scratchpad(unsigned index, uint32_t value) override {
    const unsigned at = index + (primary_ ? kUpperScratchpads : 0);
    port_.put<uint32_t>(kRegionBar0, reg::kScratchpad + 4 * at, value);
  }
  bool scratchpads(std::span<uint32_t> values) override {
    const unsigned first = primary_ ? 0 : kUpperScratchpads;
    return port_.read(kRegionBar0, reg::kScratchpad + 4 * first, std::as_writable_bytes(values));
  }
  void take_events() override { port_.put<uint32_t>(kRegionBar0, reg::kInterruptStatus, ~0u); }

 private:
  // The secondary side reads these, and writes the first ones; the primary the other way round.
  static constexpr unsigned kUpperScratchpads = 8;

  void translate(unsigned number, uint64_t bus) {
    port_.put<uint64_t>(kRegionBar0, reg::kPeer + reg::kTranslation + 8 * number, bus);
    port_.put<uint64_t>(kRegionBar0, reg::kPeer + reg::kLimit + 8 * number, window(number).size);
  }

  Port& port_;
  bool primary_;
};

// As ntb_hw_switchtec: scratchpads are memory that the peer reaches through its look-up table, and
// each side sets its windows in the other's partition.
class SwitchtecDriver final : public Driver {
 public:
  SwitchtecDriver(Port& port, std::span<std::byte> shared, uint64_t shared_bus)
      : port_(port), shared_(shared), shared_bus_(shared_bus) {
    self_ = port_.get<uint32_t>(kRegionBar0, gas::kPartitionId).value_or(0) & 1;
    peer_ = 1 - self_;
    show(kMagic, kMagicValue);
    show(kPartition, self_);
    for (unsigned number = 0; number < kWindowCount; number++)
      show(kSizes + 8 * number, window(number).size);
  }

  [[nodiscard]] Window window(unsigned number) const override {
    return number == 0 ? Window{kRegionBar2, kLutBytes, kLutBytes}
                       : Window{kRegionBar4, 0, 64ull << 30};
  }
  [[nodiscard]] unsigned memory_window() const override { return 1; }

  Result<> open(uint64_t bars) override {
    PCILEND_TRY(operate(gas::kLock, gas::kLocked));
    set_bar(2, gas::kBarLut | kLutShift << 8 | (SwitchtecRegisters::kLutEntries - 1) << 14, bars,
            window(0).size);
    set_bar(4, 0, 0, window(1).size);
    port_.put<uint64_t>(kRegionBar0, control() + gas::kLut,
                        shared_bus_ | uint64_t{self_} << 1 | gas::kEntryEnabled);
    return operate(gas::kConfigure, gas::kNormal);
  }
  void set_ready(bool ready) override {
    show(kLinkState, uint32_t{ready});
    port_.put<uint64_t>(kRegionBar0, messages() + gas::kOutMask, ~0ull);
    port_.put<uint32_t>(kRegionBar0, events(), ready ? gas::kEventInterrupts : 0);
    port_.put<uint32_t>(kRegionBar0, messages() + gas::kOutMessages,
                        ready ? kMessageUp : kMessageDown);
  }
  void ring(uint16_t doorbells) override {
    port_.put<uint64_t>(kRegionBar0, messages() + gas::kOutDoorbells,
                        uint64_t{doorbells} << 32 * peer_);
  }
  void set_scratchpad(unsigned index, uint32_t value) override {
    for (const size_t scratchpads : kScratchpads)
      port_.put<uint32_t>(kRegionBar2, scratchpads + 4 * index, value);
  }
  bool scratchpads(std::span<uint32_t> values) override {
    for (size_t index = 0; index < values.size(); index++) {
      values[index] = 0;
      for (const size_t scratchpads : kScratchpads) {
        uint32_t value = 0;
        load(std::as_writable_bytes(std::span(&value, 1)),
             shared_.subspan(scratchpads + 4 * index, 4));
        values[index] |= value;
      }
    }
    return true;
  }
  void take_events() override {
    const auto event = port_.get<uint32_t>(kRegionBar0, events());
    if (event && (*event & gas::kEventOccurred) != 0)
      port_.put<uint32_t>(kRegionBar0, events(), gas::kEventOccurred | gas::kEventInterrupts);
  }

 private:
  static constexpr uint32_t kLutShift = 16;
  static constexpr uint64_t kLutBytes = uint64_t{SwitchtecRegisters::kLutEntries} << kLutShift;
  // What a host shows the other in its memory: struct shared_mw of ntb_hw_switchtec.
  static constexpr size_t kMagic = 0;
  static constexpr size_t kLinkState = 4;
  static constexpr size_t kPartition = 8;
  static constexpr size_t kSizes = 16;
  // MAX_MWS is 128 in 6.12 and 256 in 7.3: both places are written, and one of them stays zero.
  static constexpr std::array kScratchpads{kSizes + size_t{128} * 8, kSizes + size_t{256} * 8};
  static constexpr uint32_t kMagicValue = 0x45cc0001;
  static constexpr uint32_t kMessageUp = 1;
  static constexpr uint32_t kMessageDown = 2;

  [[nodiscard]] uint32_t control() const { return gas::kControl + 0x2000 * peer_; }
  [[nodiscard]] uint32_t messages() const { return gas::kDoorbellsMessages + 0x4000 * self_; }
  [[nodiscard]] uint32_t events() const {
    return gas::kPorts + 0x1000 * 2 * peer_ + gas::kPortLinkEvent;
  }

  template <class T>
  void show(size_t offset, T value) {
    store(shared_.subspan(offset, sizeof value), bytes_of(value));
  }

  void set_bar(uint32_t bar, uint32_t bits, uint64_t bus, uint64_t size) {
    const uint32_t at = control() + gas::kBars + 16 * bar;
    const auto position = static_cast<uint32_t>(std::countr_zero(size));
    port_.put<uint32_t>(kRegionBar0, at + gas::kBarControl, gas::kBarDirect | bits);
    port_.put<uint32_t>(kRegionBar0, at + gas::kBarSize, static_cast<uint32_t>(size) | position);
    port_.put<uint64_t>(kRegionBar0, at + gas::kBarTarget, bus | self_);
    port_.put<uint32_t>(kRegionBar0, control() + gas::kBarExtra + 16 * bar,
                        static_cast<uint32_t>(size >> 32));
  }

  // The other host may hold the lock for some steps of its own.
  Result<> operate(uint32_t operation, uint32_t state) {
    constexpr int kTries = 500;
    port_.put<uint32_t>(kRegionBar0, control() + gas::kOperation, operation);
    for (int i = 0; i < kTries && port_.alive(); i++) {
      const auto now = port_.get<uint32_t>(kRegionBar0, control() + gas::kStatus);
      if (now && (*now & 0xffff) == state) return {};
      ::poll(nullptr, 0, 10);
    }
    return fail(ErrorClass::Failure, "the switch does not carry out operation {}", operation);
  }

  Port& port_;
  std::span<std::byte> shared_;
  uint64_t shared_bus_;
  uint32_t self_;
  uint32_t peer_;
};

}  // namespace

Result<std::unique_ptr<Driver>> Driver::make(Port& port, std::span<std::byte> shared,
                                             uint64_t shared_bus) {
  const auto id = port.get<uint32_t>(kRegionConfig, 0);
  if (!id) return fail(ErrorClass::Unreachable, "the fabric does not say what adapter it is");
  if (*id == kAmd) return std::make_unique<AmdDriver>(port);
  if (*id == kSwitchtec) return std::make_unique<SwitchtecDriver>(port, shared, shared_bus);
  return fail(ErrorClass::Unsupported, "no driver of the rogue node for {:08x}", *id);
}

}  // namespace pcilend::rogue
