// SPDX-License-Identifier: GPL-2.0-or-later
// xHCI 1.2: registers in 5.3 to 5.5, the event ring's segment table in 6.5. No event is needed for
// an interrupt: the controller raises one when software acknowledges fewer events than there are.
#include "vfio/xhci.h"

#include "pcilend/result.h"

namespace pcilend::vfio {

namespace {

constexpr uint64_t kMemoryAt = 1ULL << 20;
constexpr size_t kPage = 4096;
constexpr uint64_t kRing = kMemoryAt + kPage;
constexpr uint32_t kRingEntries = 16;

constexpr uint32_t kInterruptsOn = 1 << 2;  // USBCMD.INTE
constexpr uint32_t kPending = 1 << 0;       // IMAN.IP, cleared by writing it
constexpr uint32_t kEnabled = 1 << 1;       // IMAN.IE
constexpr uint32_t kHandled = 1 << 3;       // ERDP.EHB, as that

}  // namespace

Result<Xhci> Xhci::start(const Device& device) {
  auto bar = device.map(VFIO_PCI_BAR0_REGION_INDEX);
  if (!bar) return tl::unexpected(bar.error());
  auto memory = device.map_dma(kMemoryAt, 2 * kPage);
  if (!memory) return tl::unexpected(memory.error());
  Xhci xhci(std::move(*bar), std::move(*memory));
  PCILEND_TRY(xhci.set_up(device));
  return xhci;
}

Result<> Xhci::set_up(const Device& device) {
  PCILEND_TRY(device.enable());
  const auto registers = bar_.bytes();
  const size_t operational = load<uint32_t>(registers, 0) & 0xff;
  runtime_ = load<uint32_t>(registers, 0x18) & ~31U;
  if (interrupter(kInterrupters) > registers.size())
    return fail(ErrorClass::Failure, "its registers are at {:#x}", runtime_);

  store<uint64_t>(memory_.bytes(), 0, kRing);
  store<uint64_t>(memory_.bytes(), 8, kRingEntries);
  for (unsigned i = 0; i < kInterrupters; ++i) {
    const size_t at = interrupter(i);
    store<uint32_t>(registers, at, kPending | kEnabled);
    store<uint32_t>(registers, at + 0x08, 1);  // segments
    store<uint32_t>(registers, at + 0x10, kMemoryAt);
    store<uint32_t>(registers, at + 0x14, 0);
  }
  store<uint32_t>(registers, operational, kInterruptsOn);
  return {};
}

void Xhci::raise(unsigned number) const {
  const size_t at = interrupter(number);
  store<uint32_t>(bar_.bytes(), at + 0x1c, 0);
  store<uint32_t>(bar_.bytes(), at + 0x18, (kRing + 16) | kHandled);
}

void Xhci::acknowledge(unsigned number) const {
  store<uint32_t>(bar_.bytes(), interrupter(number), kPending | kEnabled);
}

}  // namespace pcilend::vfio
