// SPDX-License-Identifier: GPL-2.0-or-later
#include "vfio/bad_input.h"

#include <linux/pci_regs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pcilend/result.h"

namespace pcilend::vfio {
namespace {

constexpr size_t kPage = 4096;
constexpr uint32_t kAll = ~0U;

class Attempts {
 public:
  explicit Attempts(const Device& device) : device_(device) {}

  void note(const std::string& what, int error) {
    answers_[what] = error ? strerrorname_np(error) : "0";
  }
  void ioctl(const std::string& what, unsigned long request, void* argument) {
    note(what, ::ioctl(device_.fd(), request, argument) < 0 ? errno : 0);
  }
  void container(const std::string& what, unsigned long request, void* argument) {
    note(what, ::ioctl(device_.container(), request, argument) < 0 ? errno : 0);
  }
  void read(const std::string& what, uint64_t at, size_t count, void* to) {
    note_count(what, ::pread(device_.fd(), to, count, static_cast<off_t>(at)));
  }
  void write(const std::string& what, uint64_t at, size_t count, const void* from) {
    note_count(what, ::pwrite(device_.fd(), from, count, static_cast<off_t>(at)));
  }
  void map(const std::string& what, uint64_t at, size_t size, int flags) {
    void* memory = ::mmap(nullptr, size, PROT_READ, flags, device_.fd(), static_cast<off_t>(at));
    note(what, memory == MAP_FAILED ? errno : 0);
    if (memory != MAP_FAILED) ::munmap(memory, size);
  }
  void irqs(const std::string& what, uint32_t index, uint32_t flags, uint32_t start, uint32_t count,
            std::span<const int> data = {}) {
    note(what, device_.set_irqs(index, flags, start, count, std::as_bytes(data)));
  }

  Answers answers_;

 private:
  // Bytes are noted as their number.
  void note_count(const std::string& what, ssize_t count) {
    if (count < 0)
      note(what, errno);
    else
      answers_[what] = fmt::format("{} bytes", count);
  }

  const Device& device_;
};

template <class T>
void bad_info(Attempts& attempts, const std::string& name, unsigned long request, size_t size) {
  T info{.argsz = static_cast<uint32_t>(size - 1)};
  attempts.ioctl(name + ", argsz too small", request, &info);
  info.argsz = 0;
  attempts.ioctl(name + ", argsz 0", request, &info);
  attempts.ioctl(name + ", no memory", request, nullptr);
}

void try_info(Attempts& attempts) {
  bad_info<vfio_device_info>(attempts, "device info", VFIO_DEVICE_GET_INFO,
                             offsetof(vfio_device_info, cap_offset));
  bad_info<vfio_region_info>(attempts, "region info", VFIO_DEVICE_GET_REGION_INFO,
                             sizeof(vfio_region_info));
  bad_info<vfio_irq_info>(attempts, "irq info", VFIO_DEVICE_GET_IRQ_INFO, sizeof(vfio_irq_info));
  for (const uint32_t index : {uint32_t{VFIO_PCI_NUM_REGIONS}, kAll}) {
    vfio_region_info region{.argsz = sizeof(region), .index = index};
    attempts.ioctl(fmt::format("region info, index {}", index), VFIO_DEVICE_GET_REGION_INFO,
                   &region);
  }
  for (const uint32_t index : {uint32_t{VFIO_PCI_NUM_IRQS}, kAll}) {
    vfio_irq_info irq{.argsz = sizeof(irq), .index = index};
    attempts.ioctl(fmt::format("irq info, index {}", index), VFIO_DEVICE_GET_IRQ_INFO, &irq);
  }
  std::array<uint32_t, 64> anything{sizeof(anything)};
  attempts.ioctl("hot reset info", VFIO_DEVICE_GET_PCI_HOT_RESET_INFO, anything.data());
  attempts.ioctl("no such request", _IO(VFIO_TYPE, VFIO_BASE + 99), anything.data());
}

void try_irqs(Attempts& attempts, int event, int file) {
  constexpr uint32_t kMsix = VFIO_PCI_MSIX_IRQ_INDEX;
  constexpr uint32_t kIntx = VFIO_PCI_INTX_IRQ_INDEX;
  const std::array events{event, event};

  bad_info<vfio_irq_set>(attempts, "set irqs", VFIO_DEVICE_SET_IRQS, sizeof(vfio_irq_set));
  attempts.irqs("set irqs, index 5", VFIO_PCI_NUM_IRQS, kNone | kTrigger, 0, 1);
  attempts.irqs("set irqs, last index", kAll, kNone | kTrigger, 0, 1);
  attempts.irqs("error irq", VFIO_PCI_ERR_IRQ_INDEX, kEventFd | kTrigger, 0, 1, events);
  attempts.irqs("MSI of a function without", VFIO_PCI_MSI_IRQ_INDEX, kEventFd | kTrigger, 0, 1,
                events);

  attempts.irqs("not enabled: disable", kMsix, kNone | kTrigger, 0, 0);
  attempts.irqs("not enabled: trigger", kMsix, kNone | kTrigger, 0, 1);
  attempts.irqs("not enabled: INTx trigger", kIntx, kNone | kTrigger, 0, 1);
  attempts.irqs("not enabled: INTx mask", kIntx, kNone | kMask, 0, 1);
  attempts.irqs("not enabled: INTx unmask", kIntx, kNone | kUnmask, 0, 1);

  attempts.irqs("enabled", kMsix, kEventFd | kTrigger, 0, 2, events);
  attempts.irqs("two kinds at once", kIntx, kEventFd | kTrigger, 0, 1, events);
  attempts.irqs("no data type", kMsix, kTrigger, 0, 1);
  attempts.irqs("two data types", kMsix, kNone | kBool | kTrigger, 0, 1);
  attempts.irqs("no action", kMsix, kNone, 0, 1);
  attempts.irqs("two actions", kMsix, kNone | kMask | kTrigger, 0, 1);
  attempts.irqs("flag of no meaning", kMsix, kNone | kTrigger | 1 << 6, 0, 1);
  attempts.irqs("mask", kMsix, kNone | kMask, 0, 1);
  attempts.irqs("unmask", kMsix, kNone | kUnmask, 0, 1);
  attempts.irqs("start behind the last", kMsix, kNone | kTrigger, 65, 1);
  attempts.irqs("count beyond the last", kMsix, kNone | kTrigger, 64, 2);
  attempts.irqs("start and count overflow", kMsix, kNone | kTrigger, 2, kAll - 1);
  attempts.irqs("no eventfds for two", kMsix, kEventFd | kTrigger, 0, 2);
  attempts.irqs("no bytes for one", kMsix, kBool | kTrigger, 0, 1);
  attempts.irqs("count 0 with eventfds", kMsix, kEventFd | kTrigger, 0, 0);
  attempts.irqs("no eventfd", kMsix, kEventFd | kTrigger, 0, 1, {&file, 1});
  const int closed = 1023;
  attempts.irqs("no fd", kMsix, kEventFd | kTrigger, 2, 1, {&closed, 1});
  attempts.irqs("a vector that has none: trigger", kMsix, kNone | kTrigger, 60, 1);
  attempts.irqs("disabled", kMsix, kNone | kTrigger, 0, 0);

  attempts.irqs("INTx enabled", kIntx, kEventFd | kTrigger, 0, 1, events);
  attempts.irqs("INTx, second", kIntx, kEventFd | kTrigger, 1, 1, events);
  attempts.irqs("INTx, no action", kIntx, kNone, 0, 1);
  attempts.irqs("INTx, two actions", kIntx, kNone | kMask | kUnmask, 0, 1);
  attempts.irqs("INTx, count 0 to unmask", kIntx, kNone | kUnmask, 0, 0);
  attempts.irqs("INTx, eventfd that masks", kIntx, kEventFd | kMask, 0, 1, events);
  attempts.irqs("INTx, no eventfd", kIntx, kEventFd | kTrigger, 0, 1, {&file, 1});
  attempts.irqs("INTx, no eventfd to unmask", kIntx, kEventFd | kUnmask, 0, 1, {&file, 1});
  attempts.irqs("INTx disabled", kIntx, kNone | kTrigger, 0, 0);

  attempts.irqs("request, no eventfd", VFIO_PCI_REQ_IRQ_INDEX, kEventFd | kTrigger, 0, 1,
                {&file, 1});
  attempts.irqs("request, two", VFIO_PCI_REQ_IRQ_INDEX, kEventFd | kTrigger, 0, 2, events);
  attempts.irqs("request, mask", VFIO_PCI_REQ_IRQ_INDEX, kNone | kMask, 0, 1);
}

// The BAR is read from its end, where no register is.
void try_accesses(Attempts& attempts, const Region& bar, const Region& rom, const Region& config) {
  std::array<std::byte, 64> bytes{};
  volatile uintptr_t address = 8;  // the compiler would see through a constant
  auto* const nowhere = reinterpret_cast<void*>(address);
  attempts.read("BAR, at its end", bar.offset + bar.size, 4, bytes.data());
  attempts.read("BAR, across its end", bar.offset + bar.size - 3, 8, bytes.data());
  attempts.read("BAR, behind its end", bar.offset + bar.size + 1, 4, bytes.data());
  attempts.write("BAR, write behind its end", bar.offset + bar.size + 4, 4, bytes.data());
  attempts.read("BAR, odd", bar.offset + bar.size - 31, 7, bytes.data());
  attempts.read("BAR, no memory", bar.offset, 4, nowhere);
  attempts.write("BAR, write from no memory", bar.offset, 4, nowhere);
  attempts.read("BAR, nothing", bar.offset, 0, bytes.data());
  attempts.read("config, at its end", config.offset + config.size, 2, bytes.data());
  attempts.read("config, across its end", config.offset + config.size - 3, 8, bytes.data());
  attempts.write("config, write across its end", config.offset + config.size - 2, 4, bytes.data());
  attempts.read("config, behind its end", config.offset + 0x10000, 4, bytes.data());
  attempts.read("config, odd", config.offset + 1, 7, bytes.data());
  attempts.read("config, no memory", config.offset, 4, nowhere);
  attempts.read("ROM, at its end", rom.offset + rom.size, 4, bytes.data());
  attempts.read("ROM, across its end", rom.offset + rom.size - 3, 8, bytes.data());
  attempts.read("ROM, behind its end", rom.offset + rom.size + 1, 4, bytes.data());
  attempts.read("ROM, odd", rom.offset + 1, 7, bytes.data());
  attempts.read("ROM, no memory", rom.offset, 4, nowhere);
  attempts.write("ROM, write", rom.offset, 4, bytes.data());
  attempts.map("map, ROM", rom.offset, kPage, MAP_SHARED);
  for (const uint64_t index : {1, 8, 9, 1000})
    attempts.read(fmt::format("region {}", index), index << 40, 4, bytes.data());
  attempts.read("the last offset", INT64_MAX, 4, bytes.data());
  attempts.read("a negative offset", ~0ULL, 4, bytes.data());

  attempts.map("map, private", bar.offset, kPage, MAP_PRIVATE);
  attempts.map("map, behind its end", bar.offset + bar.size, kPage, MAP_SHARED);
  attempts.map("map, across its end", bar.offset + bar.size - kPage, 2 * kPage, MAP_SHARED);
  attempts.map("map, config", config.offset, kPage, MAP_SHARED);
  attempts.map("map, region 1", 1ULL << 40, kPage, MAP_SHARED);
  attempts.map("map, region 1000", 1000ULL << 40, kPage, MAP_SHARED);
}

// What is read-only stays, BARs tell their size, and nothing of it reaches the hardware.
Result<> try_config(Attempts& attempts, const Device& device) {
  const auto before = device.config();
  const auto region = device.region(VFIO_PCI_CONFIG_REGION_INDEX);
  if (!before) return tl::unexpected(before.error());
  if (!region) return tl::unexpected(region.error());
  const uint64_t ones = ~0ULL;
  for (const uint32_t at :
       {PCI_VENDOR_ID, PCI_CLASS_REVISION, PCI_SUBSYSTEM_VENDOR_ID, PCI_CAPABILITY_LIST})
    attempts.write(fmt::format("config, write to {:#x}", at), region->offset + at, 4, &ones);
  attempts.write("config, size of a BAR", region->offset + PCI_BASE_ADDRESS_0, 8, &ones);
  const auto after = device.config();
  if (!after) return tl::unexpected(after.error());
  uint64_t bar = 0;
  std::memcpy(&bar, after->data() + PCI_BASE_ADDRESS_0, sizeof(bar));
  attempts.answers_["config, size of a BAR"] = fmt::format("{:#x}", ~(bar & ~0xfULL) + 1);
  auto restored = *after;
  std::copy_n(before->begin() + PCI_BASE_ADDRESS_0, 8, restored.begin() + PCI_BASE_ADDRESS_0);
  attempts.answers_["config, all else"] = restored == *before ? "the same" : "changed";
  PCILEND_TRY(device.set_config_word(PCI_BASE_ADDRESS_0, 0));
  return {};
}

// Type 1 itself refuses what is no memory, and places that the device's IOMMU does not have.
Result<> try_dma(Attempts& attempts, const Device& device) {
  constexpr uint64_t kAt = 1ULL << 20;
  auto memory = device.map_dma(kAt, 4 * kPage);
  auto bar = device.map(VFIO_PCI_BAR0_REGION_INDEX);
  if (!memory) return tl::unexpected(memory.error());
  if (!bar) return tl::unexpected(bar.error());
  const auto map = [&](const std::string& what, uint64_t iova, uint64_t size, const void* at,
                       uint32_t flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE) {
    vfio_iommu_type1_dma_map argument{.argsz = sizeof(argument),
                                      .flags = flags,
                                      .vaddr = reinterpret_cast<uintptr_t>(at),
                                      .iova = iova,
                                      .size = size};
    attempts.container("DMA map, " + what, VFIO_IOMMU_MAP_DMA, &argument);
  };
  const auto unmap = [&](const std::string& what, uint64_t iova, uint64_t size) {
    vfio_iommu_type1_dma_unmap argument{.argsz = sizeof(argument), .iova = iova, .size = size};
    attempts.container("DMA unmap, " + what, VFIO_IOMMU_UNMAP_DMA, &argument);
  };
  const std::byte* const bytes = memory->bytes().data();
  PCILEND_TRY(device.enable());
  map("the same", kAt, 4 * kPage, bytes);
  map("overlap", kAt + kPage, 8 * kPage, bytes);
  map("odd", kAt + 8 * kPage + 1, kPage, bytes);
  map("nothing", kAt + 8 * kPage, 0, bytes);
  map("neither read nor write", kAt + 8 * kPage, kPage, bytes, 0);
  unmap("a part", kAt + kPage, kPage);
  unmap("odd", kAt + 1, kPage);
  unmap("nothing there", kAt + 64 * kPage, kPage);

  map("no memory", kAt + 16 * kPage, kPage, nullptr);
  map("read-only", kAt + 32 * kPage, kPage, bytes, VFIO_DMA_MAP_FLAG_READ);
  map("its own BAR", kAt + 4 * kPage, kPage, bar->bytes().data());
  map("at 0", 0, kPage, bytes);
  map("where messages go", 0xfee00000, kPage, bytes);
  map("the last page", ~0ULL - kPage + 1, kPage, bytes);
  unmap("no memory", kAt + 16 * kPage, kPage);
  unmap("read-only", kAt + 32 * kPage, kPage);
  unmap("its own BAR", kAt + 4 * kPage, kPage);
  unmap("at 0", 0, kPage);
  unmap("where messages go", 0xfee00000, kPage);
  unmap("the last page", ~0ULL - kPage + 1, kPage);
  return {};
}

}  // namespace

Result<Answers> try_bad_input(const Device& device) {
  const auto event = EventFd::make();
  const auto bar = device.region(VFIO_PCI_BAR0_REGION_INDEX);
  const auto rom = device.region(VFIO_PCI_ROM_REGION_INDEX);
  const auto config = device.region(VFIO_PCI_CONFIG_REGION_INDEX);
  if (!event) return tl::unexpected(event.error());
  if (!bar) return tl::unexpected(bar.error());
  if (!rom) return tl::unexpected(rom.error());
  if (!config) return tl::unexpected(config.error());
  Attempts attempts(device);
  try_info(attempts);
  try_irqs(attempts, event->get(), device.fd());
  try_accesses(attempts, *bar, *rom, *config);
  PCILEND_TRY(try_config(attempts, device));
  PCILEND_TRY(try_dma(attempts, device));
  return attempts.answers_;
}

}  // namespace pcilend::vfio
