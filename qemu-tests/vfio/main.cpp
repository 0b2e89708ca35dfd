// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-vfio-client NAME COMMAND: a plain user of VFIO, for a borrowed function: its mediated
// device's UUID, or its PCI address. Answers in JSON.
#include <linux/pci_regs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "pcilend/result.h"
#include "vfio/bad_input.h"
#include "vfio/device.h"
#include "vfio/interrupts.h"
#include "vfio/nvme.h"

namespace pcilend::vfio {
namespace {

using Json = nlohmann::ordered_json;
using namespace std::chrono_literals;

void say(const Json& json) {
  fmt::print("{}\n", json.dump());
  std::fflush(stdout);
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

// What VFIO says about the device.
Result<> describe(const Device& device) {
  const auto info = device.info();
  if (!info) return tl::unexpected(info.error());
  Json regions = Json::array();
  for (uint32_t index = 0; index < info->num_regions; ++index) {
    const auto region = device.region(index);
    if (!region) continue;  // VGA: there is none
    regions.push_back({{"index", index},
                       {"flags", region->flags},
                       {"size", region->size},
                       {"capabilities", region->capabilities}});
  }
  Json irqs = Json::array();
  for (uint32_t index = 0; index < info->num_irqs; ++index)
    if (const auto irq = device.irq(index))
      irqs.push_back({{"index", index}, {"flags", irq->flags}, {"count", irq->count}});
  const auto config = device.config();
  if (!config) return tl::unexpected(config.error());
  say({{"flags", info->flags},
       {"regions", regions},
       {"num_regions", info->num_regions},
       {"irqs", irqs},
       {"num_irqs", info->num_irqs},
       {"config", hex(*config)}});
  return {};
}

// The expansion ROM, and what its BAR reads after writes to it.
Result<> show_rom(const Device& device) {
  const auto region = device.region(VFIO_PCI_ROM_REGION_INDEX);
  const auto config = device.region(VFIO_PCI_CONFIG_REGION_INDEX);
  if (!region) return tl::unexpected(region.error());
  if (!config) return tl::unexpected(config.error());
  const auto at = static_cast<off_t>(config->offset + PCI_ROM_ADDRESS);
  Json bar = Json::array();
  for (const uint32_t value : {0xfffff800U, 0xfebf8000U | PCI_ROM_ADDRESS_ENABLE, 0U}) {
    uint32_t word = value;
    if (::pwrite(device.fd(), &word, sizeof(word), at) != sizeof(word) ||
        ::pread(device.fd(), &word, sizeof(word), at) != sizeof(word))
      return fail_errno("ROM BAR");
    bar.push_back(word);
  }
  std::vector<std::byte> bytes(region->size);
  if (region->size &&
      ::pread(device.fd(), bytes.data(), bytes.size(), static_cast<off_t>(region->offset)) !=
          static_cast<ssize_t>(bytes.size()))
    return fail_errno("ROM");
  say({{"bar", bar}, {"bytes", hex(bytes)}});
  return {};
}

// Where a PC has memory.
constexpr uint64_t kLow = 1ULL << 20;  // the drive's queues
constexpr uint64_t kHigh = 1ULL << 32;
constexpr size_t kPage = 4096;

// Identifies the drive, into memory that was mapped before the drive was started, and into some
// that was mapped later. All this twice: a reset stops it.
Result<> use_nvme(const Device& device) {
  Json serials = Json::array();
  Json stopped = Json::array();
  for (int i = 0; i < 2; ++i) {
    const auto early = device.map_dma(kHigh, kPage);
    if (!early) return tl::unexpected(early.error());
    auto nvme = Nvme::start(device, kLow);
    if (!nvme) return tl::unexpected(nvme.error());
    const auto late = device.map_dma(kHigh + (1ULL << 30), kPage);
    if (!late) return tl::unexpected(late.error());
    for (int command = 0; command < 6; ++command) {
      const auto serial = nvme->identify(command % 2 ? *late : *early);
      if (!serial) return tl::unexpected(serial.error());
      serials.push_back(*serial);
    }
    if (const int error = device.reset()) return fail_errno("VFIO_DEVICE_RESET", error);
    PCILEND_TRY(device.enable());
    stopped.push_back(!nvme->ready());
  }
  say({{"serials", serials}, {"stopped", stopped}});
  return {};
}

// Has the drive write to its user's memory, then, with `strays`, to where none of that is, and to
// the first once more. (QEMU's drives say of a page that nothing took that it was written.)
Result<> stray(const Device& device, bool strays) {
  const auto data = device.map_dma(kHigh, kPage);
  if (!data) return tl::unexpected(data.error());
  auto nvme = Nvme::start(device, kLow);
  if (!nvme) return tl::unexpected(nvme.error());
  std::vector<uint64_t> places;
  if (strays) places = {kPage, kLow - kPage, kLow + 2 * kPage, kHigh - kPage, kHigh + kPage};
  for (uint64_t at = 0; strays && at <= 1ULL << 36; at += 256ULL << 20)
    if (at != kHigh) places.push_back(at);
  const auto before = nvme->identify(*data);
  if (!before) return tl::unexpected(before.error());
  for (const uint64_t at : places) PCILEND_TRY(nvme->identify(at));
  const auto after = nvme->identify(*data);
  if (!after) return tl::unexpected(after.error());
  say({{"serials", {*before, *after}}, {"strays", places.size()}});
  return {};
}

// Where a function that may reaches the interrupt controller of its user's host.
constexpr uint64_t kInterruptAlias = 0xfe000000;

// Has the drive write there, and to its user's memory before and afterwards.
Result<> write_interrupts(const Device& device) {
  const auto data = device.map_dma(kHigh, kPage);
  if (!data) return tl::unexpected(data.error());
  auto nvme = Nvme::start(device, kLow);
  if (!nvme) return tl::unexpected(nvme.error());
  const auto before = nvme->identify(*data);
  if (!before) return tl::unexpected(before.error());
  PCILEND_TRY(nvme->identify(kInterruptAlias));
  const auto after = nvme->identify(*data);
  if (!after) return tl::unexpected(after.error());
  say({{"serials", {*before, *after}}});
  return {};
}

// Does not let go when it is asked, and looks what becomes of the device.
Result<> hold(const Device& device) {
  const auto data = device.map_dma(kHigh, kPage);
  if (!data) return tl::unexpected(data.error());
  auto nvme = Nvme::start(device, kLow);
  if (!nvme) return tl::unexpected(nvme.error());
  const auto request = EventFd::make();
  if (!request) return tl::unexpected(request.error());
  const int fd = request->get();
  if (const int error = device.set_eventfds(VFIO_PCI_REQ_IRQ_INDEX, 0, {&fd, 1}))
    return fail_errno("device request", error);
  const auto bar = device.region(VFIO_PCI_BAR0_REGION_INDEX);
  const auto rom = device.region(VFIO_PCI_ROM_REGION_INDEX);
  if (!bar) return tl::unexpected(bar.error());
  if (!rom) return tl::unexpected(rom.error());
  say({{"ready", nvme->ready()}});

  PCILEND_TRY(request->wait());
  const auto serial = nvme->identify(*data);
  if (!serial) return tl::unexpected(serial.error());
  say({{"asked", true}, {"serial", *serial}});

  const auto end = std::chrono::steady_clock::now() + 2min;
  while (load<uint32_t>(nvme->registers(), 0) != ~0U) {
    if (std::chrono::steady_clock::now() > end)
      return fail(ErrorClass::Unreachable, "the device is not taken");
    std::this_thread::sleep_for(10ms);
  }
  // Asked once more as it is taken.
  PCILEND_TRY(request->wait());
  const auto read = [&](const Region& region) {
    uint32_t word = 0;
    return ::pread(device.fd(), &word, 4, static_cast<off_t>(region.offset)) == 4 ? Json(word)
                                                                                  : Json();
  };
  const auto config = device.config();
  if (!config) return tl::unexpected(config.error());
  store<uint32_t>(nvme->registers(), 0x14, 0);
  say({{"mapped", load<uint32_t>(nvme->registers(), 0x1000)},
       {"read", read(*bar)},
       {"rom", read(*rom)},
       {"config", std::all_of(config->begin(), config->end(),
                              [](std::byte byte) { return byte == std::byte{0xff}; })},
       {"interrupts", strerrorname_np(device.set_eventfds(VFIO_PCI_MSIX_IRQ_INDEX, 0, {&fd, 1}))},
       {"reset", strerrorname_np(device.reset())}});
  return {};
}

Result<> await(const char* what, const std::function<bool()>& happened) {
  const auto end = std::chrono::steady_clock::now() + 2min;
  while (!happened()) {
    if (std::chrono::steady_clock::now() > end) return fail(ErrorClass::Unreachable, "{}", what);
    std::this_thread::sleep_for(10ms);
  }
  return {};
}

// While the link is down it writes to memory of this host, not to the drive, and reads that back,
// as a window that leads nowhere could not be. Then the drive is back, as after a reset. Who polls
// its registers can see that before this host has heard of the reset, and what it stores until then
// may be lost: so it starts the drive when kHeard is there.
Result<> outlive_link(const Device& device) {
  constexpr size_t kVersion = 8;
  constexpr size_t kQueueSizes = 0x24;
  constexpr uint32_t kWritten = 0x00050005;
  constexpr const char* kHeard = "/run/vfio-client.heard";
  const auto data = device.map_dma(kHigh, kPage);
  if (!data) return tl::unexpected(data.error());
  {
    auto nvme = Nvme::start(device, kLow);
    if (!nvme) return tl::unexpected(nvme.error());
    const auto registers = nvme->registers();
    const auto bar = device.region(VFIO_PCI_BAR0_REGION_INDEX);
    if (!bar) return tl::unexpected(bar.error());
    const auto version = load<uint32_t>(registers, kVersion);
    say({{"ready", nvme->ready()}});
    PCILEND_TRY(await("it stays", [&] { return load<uint32_t>(registers, kVersion) == ~0U; }));
    PCILEND_TRY(await("its window stays", [&] {
      store<uint32_t>(registers, kQueueSizes, kWritten);
      return load<uint32_t>(registers, kQueueSizes) == kWritten;
    }));
    uint32_t word = 0;
    const bool read =
        ::pread(device.fd(), &word, 4, static_cast<off_t>(bar->offset + kVersion)) == 4 &&
        word == ~0U;
    word = kWritten;
    const bool written =
        ::pwrite(device.fd(), &word, 4, static_cast<off_t>(bar->offset + kQueueSizes)) == 4;
    say({{"away", true}, {"read", read}, {"written", written}});
    PCILEND_TRY(await("it does not return",
                      [&] { return load<uint32_t>(registers, kVersion) == version; }));
    PCILEND_TRY(await("it was not reset", [&] {
      return load<uint32_t>(registers, kVersion) == version && !nvme->ready();
    }));
    PCILEND_TRY(
        await("its host has not heard of the reset", [] { return ::access(kHeard, F_OK) == 0; }));
  }
  PCILEND_TRY(device.enable());
  auto nvme = Nvme::start(device, kLow);
  if (!nvme) return tl::unexpected(nvme.error());
  const auto serial = nvme->identify(*data);
  if (!serial) return tl::unexpected(serial.error());
  say({{"serial", *serial}});
  return {};
}

// Looks at a BAR when it is asked to let go, and lets go.
Result<> look(const Device& device) {
  auto nvme = Nvme::start(device, kLow);
  if (!nvme) return tl::unexpected(nvme.error());
  const auto request = EventFd::make();
  if (!request) return tl::unexpected(request.error());
  const int fd = request->get();
  if (const int error = device.set_eventfds(VFIO_PCI_REQ_IRQ_INDEX, 0, {&fd, 1}))
    return fail_errno("device request", error);
  say({{"ready", nvme->ready()}});
  PCILEND_TRY(request->wait());
  say({{"mapped", load<uint32_t>(nvme->registers(), 0)}});
  return {};
}

// Below it AMD's IOMMU translates, from there to 1 TiB it does not (HyperTransport).
constexpr uint64_t kHyperTransport = 0xfd00000000;

// Whether memory can be mapped right below what the lender's IOMMU reserves, and there.
Result<> map_reserved(const Device& device) {
  const bool below = device.map_dma(kHyperTransport - kPage, kPage).has_value();
  const bool reserved = device.map_dma(kHyperTransport, kPage).has_value();
  say({{"below", below}, {"reserved", reserved}});
  return {};
}

// The largest BAR, mapped where huge pages can be: a read of each page of its first 4 MiB, and of
// each 2 MiB of the rest. How many page faults that takes, and how long.
Result<> touch(const Device& device) {
  constexpr size_t kHuge = 2UL << 20;
  constexpr size_t kFirst = 2 * kHuge;
  Region bar;
  for (uint32_t index = VFIO_PCI_BAR0_REGION_INDEX; index <= VFIO_PCI_BAR5_REGION_INDEX; ++index)
    if (const auto region = device.region(index); region && region->size > bar.size) bar = *region;
  if (bar.size <= kFirst) return fail(ErrorClass::Failure, "no BAR of more than 4 MiB");
  PCILEND_TRY(device.enable());
  const size_t reserved = 2 * bar.size;
  void* const room = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return fail_errno("reserve addresses");
  const uintptr_t start = (reinterpret_cast<uintptr_t>(room) + bar.size - 1) & ~(bar.size - 1);
  void* const mapped = ::mmap(reinterpret_cast<void*>(start), bar.size, PROT_READ,
                              MAP_SHARED | MAP_FIXED, device.fd(), static_cast<off_t>(bar.offset));
  if (mapped == MAP_FAILED) return fail_errno("map the BAR");
  const auto faults = [] {
    rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const std::span bytes(static_cast<const std::byte*>(mapped), bar.size);
  const auto before = faults();
  const auto began = std::chrono::steady_clock::now();
  for (size_t at = 0; at < bar.size; at += at < kFirst ? kPage : kHuge)
    static_cast<void>(*reinterpret_cast<const volatile uint32_t*>(&bytes[at]));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  say({{"size", bar.size}, {"faults", faults() - before}, {"ms", took.count()}});
  ::munmap(room, reserved);
  return {};
}

// Has memory mapped, and keeps that and the device whatever happens, until it is interrupted.
Result<> keep(const Device& device) {
  const auto data = device.map_dma(kHigh, kPage);
  if (!data) return tl::unexpected(data.error());
  say({{"ready", true}});
  for (;;) ::pause();
}

// The same of pages that are far from one another, each of which takes page tables.
Result<> keep_sparse(const Device& device) {
  constexpr uint64_t kPages = 128;
  constexpr uint64_t kApart = 64UL << 20;
  std::vector<DmaMemory> pages;
  for (uint64_t i = 1; i < kPages; ++i) {
    auto page = device.map_dma(kHigh + i * kApart, kPage);
    if (!page) return tl::unexpected(page.error());
    pages.push_back(std::move(*page));
  }
  return keep(device);
}

// Lets go when it is asked.
Result<> let_go(const Device& device) {
  const auto request = EventFd::make();
  if (!request) return tl::unexpected(request.error());
  const int fd = request->get();
  if (const int error = device.set_eventfds(VFIO_PCI_REQ_IRQ_INDEX, 0, {&fd, 1}))
    return fail_errno("device request", error);
  say({{"ready", true}});
  return request->wait();
}

// Closes the device when it is asked, and uses its container for a while as before: a VMM does so,
// which unmaps its memory then.
Result<> leave_late(Device device) {
  PCILEND_TRY(let_go(device));
  device.close_device();
  int maps = 0;
  for (const auto end = std::chrono::steady_clock::now() + 3s;
       std::chrono::steady_clock::now() < end; ++maps)
    if (const auto data = device.map_dma(kHigh, kPage); !data)
      return tl::unexpected(Error(data.error()).in(fmt::format("after {} maps", maps)));
  return {};
}

Result<> run(const std::string& name, std::string_view command) {
  auto device = Device::open(name);
  if (!device) return tl::unexpected(device.error());
  if (command == "leave-late") return leave_late(std::move(*device));
  if (command == "info") return describe(*device);
  if (command == "rom") return show_rom(*device);
  if (command == "nvme") return use_nvme(*device);
  if (command == "stay") return stray(*device, false);
  if (command == "stray") return stray(*device, true);
  if (command == "write-interrupts") return write_interrupts(*device);
  if (command == "msix") return use_msix(*device);
  if (command == "msi") return use_msi(*device);
  if (command == "intx") return use_intx(*device);
  if (command == "hold") return hold(*device);
  if (command == "outlive-link") return outlive_link(*device);
  if (command == "look") return look(*device);
  if (command == "touch") return touch(*device);
  if (command == "let-go") return let_go(*device);
  if (command == "keep") return keep(*device);
  if (command == "keep-sparse") return keep_sparse(*device);
  if (command == "map-reserved") return map_reserved(*device);
  if (command == "bad-input") {
    const auto answers = try_bad_input(*device);
    if (!answers) return tl::unexpected(answers.error());
    say(*answers);
    return {};
  }
  return fail(ErrorClass::Usage, "no command '{}'", command);
}

}  // namespace
}  // namespace pcilend::vfio

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} NAME COMMAND\n", argv[0]);
    return static_cast<int>(pcilend::ErrorClass::Usage);
  }
  const auto done = pcilend::vfio::run(argv[1], argv[2]);
  if (done) return 0;
  fmt::print(stderr, "{}\n", done.error().message);
  return static_cast<int>(done.error().kind);
}
