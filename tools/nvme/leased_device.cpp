// SPDX-License-Identifier: GPL-2.0-or-later
#include "leased_device.h"

#include <atomic>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

constexpr uint32_t kClass = 0x0108;  // mass storage, non-volatile memory
// Registers, and the first page of doorbells. What is behind may be the table of interrupts.
constexpr size_t kRegisterBytes = 0x2000;

class LeasedMemory final : public Memory {
 public:
  explicit LeasedMemory(DeviceBuffer buffer) : buffer_(std::move(buffer)) {}
  std::span<std::byte> bytes() override { return buffer_.bytes(); }
  [[nodiscard]] uint64_t address() const override { return buffer_.address(); }
  [[nodiscard]] std::string remark() const override { return buffer_.remark(); }

 private:
  DeviceBuffer buffer_;
};

class LeasedDevice final : public Device {
 public:
  LeasedDevice(std::shared_ptr<Lease> lease, Registers registers, bool near)
      : lease_(std::move(lease)), registers_(std::move(registers)), near_(near) {}

  [[nodiscard]] std::string name() const override { return to_string(lease_->info().id); }
  [[nodiscard]] uint32_t load(size_t offset) const override {
    return registers_.load<uint32_t>(offset);
  }
  void store(size_t offset, uint32_t value) override {
    // What was gathered for memory beside the drive leaves with it.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    registers_.store(offset, value);
  }
  [[nodiscard]] size_t register_bytes() const override { return registers_.size(); }
  Result<std::unique_ptr<Memory>> allocate(size_t bytes, const Access& access) override {
    return allocate_leased(*lease_, bytes, access, near_);
  }
  Result<std::span<std::byte>> bar(uint32_t index, uint64_t offset, size_t bytes) override {
    auto part = lease_->bar(index, offset, bytes);
    if (!part) return tl::unexpected(std::move(part).error());
    parts_.push_back(std::move(*part));
    return parts_.back().bytes();
  }
  Result<std::unique_ptr<Reach>> map(int dma_buf) override {
    return reach_leased(*lease_, dma_buf);
  }
  Result<UniqueFd> interrupt(uint32_t vector) override { return lease_->interrupt(vector); }
  Result<> end_interrupt(uint32_t vector) override { return lease_->end_interrupt(vector); }
  [[nodiscard]] uint64_t epoch() const override { return lease_->epoch(); }
  [[nodiscard]] int fd() const override { return lease_->fd(); }

 private:
  std::shared_ptr<Lease> lease_;
  Registers registers_;
  bool near_;
  std::vector<Registers> parts_;
};

class LeasedReach final : public Reach {
 public:
  explicit LeasedReach(DeviceMemory memory) : memory_(std::move(memory)) {}
  [[nodiscard]] uint64_t address() const override { return memory_.address(); }

 private:
  DeviceMemory memory_;
};

}  // namespace

Result<std::unique_ptr<Reach>> Device::map(int) {
  return fail(ErrorClass::Unsupported, "{} reaches nothing but memory of this process", name());
}

Result<std::unique_ptr<Reach>> reach_leased(const Lease& lease, int dma_buf) {
  auto memory = lease.map(dma_buf);
  if (!memory) return tl::unexpected(std::move(memory).error());
  return std::make_unique<LeasedReach>(std::move(*memory));
}

Result<std::unique_ptr<Memory>> allocate_leased(const Lease& lease, size_t bytes,
                                                const Access& access, bool near) {
  BufferOptions options{.access = access, .gathered = true};
  if (!near) options.place = Place::Process;
  auto buffer = DeviceBuffer::create(lease, bytes, options);
  if (!buffer) return tl::unexpected(std::move(buffer).error());
  return std::make_unique<LeasedMemory>(std::move(*buffer));
}

Result<> check_class(const Lease& lease) {
  if (lease.info().class_revision >> 16 == kClass) return {};
  return fail(ErrorClass::Unsupported, "{} is no NVMe controller: its class is {:06x}",
              to_string(lease.info().id), lease.info().class_revision >> 8);
}

Result<std::unique_ptr<Device>> make_leased(std::shared_ptr<Lease> lease, bool near) {
  PCILEND_TRY(check_class(*lease));
  auto registers = lease->bar(0, 0, kRegisterBytes);
  if (!registers) return tl::unexpected(std::move(registers).error());
  return std::make_unique<LeasedDevice>(std::move(lease), std::move(*registers), near);
}

Result<std::unique_ptr<Device>> open_leased(const ThisHost& host, FunctionId id,
                                            std::string_view owner, uint64_t slice, bool near) {
  auto lease = Lease::borrow(host, id, owner, slice);
  if (!lease) return tl::unexpected(std::move(lease).error());
  return make_leased(std::make_shared<Lease>(std::move(*lease)), near);
}

}  // namespace pcilend::nvme
