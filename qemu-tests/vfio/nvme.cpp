// SPDX-License-Identifier: GPL-2.0-or-later
// NVM Express base specification 2.0: registers in 3.1.3, queues in 3.3, Identify in 5.17.
#include "vfio/nvme.h"

#include <chrono>
#include <thread>

#include "pcilend/result.h"

namespace pcilend::vfio {

using namespace std::chrono_literals;

namespace {

constexpr size_t kControl = 0x14;
constexpr size_t kStatus = 0x1c;
constexpr size_t kQueueSizes = 0x24;
constexpr size_t kSubmissionQueue = 0x28;
constexpr size_t kCompletionQueue = 0x30;
constexpr size_t kSubmissionDoorbell = 0x1000;
constexpr size_t kCompletionDoorbell = 0x1004;        // QEMU's doorbells have no stride
constexpr uint32_t kEnabled = 1 | 6 << 16 | 4 << 20;  // entries of 64 and 16 bytes

constexpr uint32_t kEntries = 4;
constexpr size_t kPage = 4096;

}  // namespace

bool Nvme::ready() const {
  return load<uint32_t>(registers(), kStatus) & 1;
}

Result<> Nvme::await_ready(bool ready) const {
  const auto end = std::chrono::steady_clock::now() + 1min;
  while (this->ready() != ready) {
    if (std::chrono::steady_clock::now() > end)
      return fail(ErrorClass::Unreachable, "the controller does not {}", ready ? "start" : "stop");
    std::this_thread::sleep_for(1ms);
  }
  return {};
}

Result<Nvme> Nvme::start(const Device& device, uint64_t queues_at) {
  auto bar = device.map(VFIO_PCI_BAR0_REGION_INDEX);
  if (!bar) return tl::unexpected(bar.error());
  auto queues = device.map_dma(queues_at, 2 * kPage);
  if (!queues) return tl::unexpected(queues.error());
  auto interrupt = EventFd::make();
  if (!interrupt) return tl::unexpected(interrupt.error());
  PCILEND_TRY(device.enable());
  const int fd = interrupt->get();
  if (const int error = device.set_eventfds(VFIO_PCI_MSIX_IRQ_INDEX, 0, {&fd, 1}))
    return fail_errno("MSI-X vector 0", error);

  Nvme nvme(std::move(*bar), std::move(*queues), std::move(*interrupt));
  store<uint32_t>(nvme.registers(), kControl, 0);
  PCILEND_TRY(nvme.await_ready(false));
  store<uint32_t>(nvme.registers(), kQueueSizes, (kEntries - 1) << 16 | (kEntries - 1));
  store<uint64_t>(nvme.registers(), kSubmissionQueue, queues_at);
  store<uint64_t>(nvme.registers(), kCompletionQueue, queues_at + kPage);
  store<uint32_t>(nvme.registers(), kControl, kEnabled);
  PCILEND_TRY(nvme.await_ready(true));
  return nvme;
}

Result<std::string> Nvme::identify(const DmaMemory& data) {
  std::fill_n(data.bytes().begin(), kPage, std::byte{0});
  PCILEND_TRY(identify(data.iova()));
  std::string serial(reinterpret_cast<const char*>(data.bytes().data()) + 4, 20);
  serial.erase(serial.find_last_not_of(' ') + 1);
  return serial;
}

Result<> Nvme::identify(uint64_t iova) {
  const uint32_t slot = commands_ % kEntries;
  const uint32_t next = (commands_ + 1) % kEntries;
  const bool phase = commands_ / kEntries % 2 == 0;  // of a new completion
  const auto command = queues_.bytes().subspan(slot * 64, 64);
  const auto completion = queues_.bytes().subspan(kPage + slot * 16, 16);
  store<uint32_t>(command, 0, 6 | commands_ << 16);
  store<uint64_t>(command, 24, iova);
  store<uint32_t>(command, 40, 1);  // of the controller
  ++commands_;

  store<uint32_t>(registers(), kSubmissionDoorbell, next);
  PCILEND_TRY(interrupt_.wait());
  const auto status = load<uint16_t>(completion, 14);
  if ((status & 1) != phase || status >> 1)
    return fail(ErrorClass::Failure, "the interrupt came with completion status {:04x}", status);
  store<uint32_t>(registers(), kCompletionDoorbell, next);
  return {};
}

}  // namespace pcilend::vfio
