// SPDX-License-Identifier: GPL-2.0-or-later
#include "vfio/device.h"

#include <fcntl.h>
#include <linux/pci_regs.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

#include "pcilend/result.h"

namespace pcilend::vfio {

namespace fs = std::filesystem;

namespace {

constexpr int kPatienceMs = 120'000;

Result<UniqueFd> open_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return fail_errno(path);
  return fd;
}

}  // namespace

Result<EventFd> EventFd::make() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return fail_errno("eventfd");
  return EventFd(std::move(fd));
}

Result<> EventFd::wait() const {
  pollfd event{get(), POLLIN, 0};
  const int ready = ::poll(&event, 1, kPatienceMs);
  if (ready < 0) return fail_errno("poll");
  if (ready == 0) return fail(ErrorClass::Unreachable, "the event does not come");
  take();
  return {};
}

uint64_t EventFd::take() const {
  uint64_t count = 0;
  return ::read(get(), &count, sizeof(count)) == sizeof(count) ? count : 0;
}

DmaMemory::~DmaMemory() {
  vfio_iommu_type1_dma_unmap unmap{.argsz = sizeof(unmap), .iova = iova_, .size = bytes().size()};
  if (container_ >= 0) ::ioctl(container_, VFIO_IOMMU_UNMAP_DMA, &unmap);
}

Result<Device> Device::open(const std::string& name) {
  std::error_code error;
  auto group = fs::read_symlink("/sys/bus/mdev/devices/" + name + "/iommu_group", error);
  if (error) group = fs::read_symlink("/sys/bus/pci/devices/" + name + "/iommu_group", error);
  if (error) return fail(ErrorClass::NotFound, "{}: {}", name, error.message());

  Device device;
  auto container = open_file("/dev/vfio/vfio");
  if (!container) return tl::unexpected(container.error());
  device.container_ = std::move(*container);
  auto group_fd = open_file("/dev/vfio/" + group.filename().native());
  if (!group_fd) return tl::unexpected(group_fd.error());
  device.group_ = std::move(*group_fd);

  int container_fd = device.container();
  if (::ioctl(device.group_.get(), VFIO_GROUP_SET_CONTAINER, &container_fd))
    return fail_errno("VFIO_GROUP_SET_CONTAINER");
  if (::ioctl(container_fd, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU))
    return fail_errno("VFIO_SET_IOMMU");
  device.device_.reset(::ioctl(device.group_.get(), VFIO_GROUP_GET_DEVICE_FD, name.c_str()));
  if (!device.device_) return fail_errno("VFIO_GROUP_GET_DEVICE_FD");
  return device;
}

Result<vfio_device_info> Device::info() const {
  vfio_device_info info{.argsz = sizeof(info)};
  if (::ioctl(fd(), VFIO_DEVICE_GET_INFO, &info)) return fail_errno("VFIO_DEVICE_GET_INFO");
  return info;
}

Result<Region> Device::region(uint32_t index) const {
  // First without room for capabilities: VFIO says how much it needs.
  alignas(vfio_region_info) std::array<std::byte, 512> buffer{};
  auto& info = *reinterpret_cast<vfio_region_info*>(buffer.data());
  info = {.argsz = sizeof(info), .index = index};
  if (::ioctl(fd(), VFIO_DEVICE_GET_REGION_INFO, &info))
    return fail_errno("VFIO_DEVICE_GET_REGION_INFO");
  if (info.argsz > sizeof(info)) {
    if (info.cap_offset != 0 || info.argsz > buffer.size())
      return fail(ErrorClass::Failure, "capabilities at {} of {} bytes", info.cap_offset,
                  info.argsz);
    if (::ioctl(fd(), VFIO_DEVICE_GET_REGION_INFO, &info))
      return fail_errno("VFIO_DEVICE_GET_REGION_INFO");
  }
  Region region{info.flags, info.size, info.offset, {}};
  for (uint32_t at = info.cap_offset; at;) {
    if (at > buffer.size() - sizeof(vfio_info_cap_header))
      return fail(ErrorClass::Failure, "a capability of region {} is at {}", index, at);
    const auto& header = *reinterpret_cast<const vfio_info_cap_header*>(buffer.data() + at);
    region.capabilities.push_back(header.id);
    at = header.next;
  }
  return region;
}

std::optional<vfio_irq_info> Device::irq(uint32_t index) const {
  vfio_irq_info info{.argsz = sizeof(info), .index = index};
  if (::ioctl(fd(), VFIO_DEVICE_GET_IRQ_INFO, &info)) return std::nullopt;
  return info;
}

Result<Mapping> Device::map(uint32_t index) const {
  const auto region = this->region(index);
  if (!region) return tl::unexpected(region.error());
  return Mapping::map(fd(), region->offset, region->size, true);
}

int Device::set_irqs(uint32_t index, uint32_t flags, uint32_t start, uint32_t count,
                     std::span<const std::byte> data) const {
  std::vector<std::byte> buffer(sizeof(vfio_irq_set) + data.size());
  auto& set = *reinterpret_cast<vfio_irq_set*>(buffer.data());
  set.argsz = buffer.size();
  set.flags = flags;
  set.index = index;
  set.start = start;
  set.count = count;
  std::copy(data.begin(), data.end(), buffer.begin() + sizeof(set));
  return ::ioctl(fd(), VFIO_DEVICE_SET_IRQS, &set) ? errno : 0;
}

int Device::set_eventfds(uint32_t index, uint32_t start, std::span<const int> fds) const {
  return set_irqs(index, VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER, start, fds.size(),
                  std::as_bytes(fds));
}

int Device::reset() const {
  return ::ioctl(fd(), VFIO_DEVICE_RESET) ? errno : 0;
}

Result<std::vector<std::byte>> Device::config() const {
  const auto region = this->region(VFIO_PCI_CONFIG_REGION_INDEX);
  if (!region) return tl::unexpected(region.error());
  std::vector<std::byte> bytes(region->size);
  if (::pread(fd(), bytes.data(), bytes.size(), region->offset) !=
      static_cast<ssize_t>(bytes.size()))
    return fail_errno("configuration space");
  return bytes;
}

Result<uint16_t> Device::config_word(uint32_t offset) const {
  const auto region = this->region(VFIO_PCI_CONFIG_REGION_INDEX);
  if (!region) return tl::unexpected(region.error());
  uint16_t value = 0;
  if (::pread(fd(), &value, sizeof(value), region->offset + offset) != sizeof(value))
    return fail_errno("configuration space");
  return value;
}

Result<> Device::set_config_word(uint32_t offset, uint16_t value) const {
  const auto region = this->region(VFIO_PCI_CONFIG_REGION_INDEX);
  if (!region) return tl::unexpected(region.error());
  if (::pwrite(fd(), &value, sizeof(value), region->offset + offset) != sizeof(value))
    return fail_errno("configuration space");
  return {};
}

Result<> Device::enable() const {
  const auto command = config_word(PCI_COMMAND);
  if (!command) return tl::unexpected(command.error());
  return set_config_word(PCI_COMMAND, *command | PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
}

Result<DmaMemory> Device::map_dma(uint64_t iova, size_t size) const {
  const UniqueFd file(::memfd_create("dma", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(size))) return fail_errno("memfd");
  auto memory = Mapping::map(file.get(), 0, size, true);
  if (!memory) return tl::unexpected(memory.error());
  vfio_iommu_type1_dma_map map{.argsz = sizeof(map),
                               .flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE,
                               .vaddr = reinterpret_cast<uintptr_t>(memory->bytes().data()),
                               .iova = iova,
                               .size = size};
  if (::ioctl(container(), VFIO_IOMMU_MAP_DMA, &map)) return fail_errno("VFIO_IOMMU_MAP_DMA");
  return DmaMemory(container(), iova, std::move(*memory));
}

}  // namespace pcilend::vfio
