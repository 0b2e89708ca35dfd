// SPDX-License-Identifier: GPL-2.0-or-later
#include "adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace pcilend::fabric {
namespace {

constexpr uint64_t kInterruptBase = 0xfee00000;
constexpr uint64_t kInterruptSize = 1 << 20;

}  // namespace

Adapter::Adapter(size_t host, size_t peer, size_t path, std::unique_ptr<AdapterModel> model,
                 const WindowSizes& windows, Bridge& bridge)
    : host_(host),
      peer_(peer),
      path_(path),
      name_(fmt::format("host{}-host{}", host + 1, peer + 1) +
            (path == 0 ? std::string() : fmt::format(".{}", path + 1))),
      windows_(windows),
      bridge_(bridge),
      model_(std::move(model)),
      config_(model_->identity(), windows),
      interrupts_(model_->identity().vectors) {
  model_->set_owner(*this);
}

void Adapter::attach(UniqueFd socket) {
  session_ = std::make_unique<Session>(std::move(socket), *this);
}

std::unique_ptr<Session> Adapter::detach() {
  model_->reset();
  config_.reset();
  interrupts_.clear();
  memory_.clear();
  return std::move(session_);
}

Adapter::Landing Adapter::land(unsigned window, uint64_t offset, uint64_t size, bool write) const {
  const std::span<const Opening> openings = model_->inbound(window);
  const auto opening = std::find_if(openings.begin(), openings.end(), [&](const Opening& one) {
    return offset < one.offset + one.length;
  });
  if (opening == openings.end()) return {Where::Nowhere, 0, size, {}, Target::Bar};
  if (offset < opening->offset)
    return {Where::Nowhere, 0, std::min(size, opening->offset - offset), {}, Target::Bar};
  const uint64_t inside = offset - opening->offset;
  size = std::min(size, opening->length - inside);
  const uint64_t address = opening->address + inside;
  if (address < inside || size - 1 > UINT64_MAX - address || !config_.bus_master())
    return {Where::Nowhere, address, size, {}, Target::Bar};

  if (address >= kInterruptBase && address - kInterruptBase < kInterruptSize) {
    size = std::min(size, kInterruptBase + kInterruptSize - address);
    return {Where::Interrupt, address, size, {}, Target::Interrupt};
  }
  if (address < kInterruptBase) size = std::min(size, kInterruptBase - address);

  const DmaTable::Piece piece = memory_.find(address, size, write);
  switch (piece.kind) {
    case DmaTable::Kind::Memory:
      return {Where::Memory, address, piece.size, piece.bytes, Target::Memory};
    case DmaTable::Kind::Message:
      return {Where::Message, address, piece.size, {}, Target::Memory};
    case DmaTable::Kind::None:
      return {Where::Message, address, piece.size, {}, Target::Bar};
    case DmaTable::Kind::Refused:
      break;
  }
  return {Where::Nowhere, address, piece.size, {}, Target::Memory};
}

void Adapter::connected() {
  bridge_.connected(*this);
}

uint64_t Adapter::region_size(uint32_t region) const {
  switch (region) {
    case kRegionBar0:
      return model_->identity().register_size;
    case kRegionBar2:
      return windows_[0];
    case kRegionBar4:
      return windows_[1];
    case kRegionConfig:
      return ConfigSpace::kSize;
    default:
      return 0;
  }
}

uint32_t Adapter::irq_count(uint32_t index) const {
  return index == kIrqMsix ? model_->identity().vectors : 0;
}

Parsed<> Adapter::dma_map(const DmaMap& map, UniqueFd fd) {
  counters_.maps++;
  auto mapped = memory_.map(map, std::move(fd));
  if (!mapped) bridge_.bad_map(*this, map, mapped.error());
  return mapped;
}

Parsed<> Adapter::dma_unmap(const DmaUnmap& unmap) {
  counters_.unmaps++;
  if ((unmap.flags & DmaUnmap::kAll) != 0)
    memory_.unmap_all();
  else
    memory_.unmap(unmap.address, unmap.size);
  return {};
}

Parsed<> Adapter::set_irqs(const IrqRequest& request, std::vector<UniqueFd> fds) {
  if (request.set.index != kIrqMsix) {
    // QEMU may disable what was never there.
    const bool disable = (request.set.flags & IrqSet::kDataNone) != 0 && request.set.count == 0;
    return disable ? Parsed<>() : tl::unexpected(EINVAL);
  }
  const auto set = interrupts_.set(
      request, std::move(fds), [this](unsigned vector) { return model_->cause_stands(vector); });
  // A driver that takes no interrupts is not waited for.
  bridge_.loss_acknowledged(*this);
  return set;
}

void Adapter::region_read(const ReadTicket& ticket) {
  const RegionAccess& access = ticket.access;
  switch (access.region) {
    case kRegionBar2:
      return bridge_.window_read(*this, 0, ticket);
    case kRegionBar4:
      return bridge_.window_read(*this, 1, ticket);
    default:
      break;
  }
  scratch_.assign(access.count, std::byte{0});
  const auto offset = static_cast<uint32_t>(access.offset);
  if (access.region == kRegionConfig)
    config_.read(offset, scratch_);
  else
    registers_read(offset, scratch_);
  session_->complete_read(ticket, scratch_);
}

void Adapter::region_write(const RegionAccess& access, std::span<const std::byte> data) {
  if (data.empty()) return;
  const auto offset = static_cast<uint32_t>(access.offset);
  switch (access.region) {
    case kRegionBar2:
      bridge_.window_write(*this, 0, access.offset, data);
      break;
    case kRegionBar4:
      bridge_.window_write(*this, 1, access.offset, data);
      break;
    case kRegionConfig:
      config_.write(offset, data);
      break;
    default:
      registers_write(offset, data);
      break;
  }
}

void Adapter::registers_read(uint32_t offset, std::span<std::byte> data) {
  const uint32_t pba = model_->identity().msix_pba;
  const uint64_t pending = interrupts_.latched();
  const auto bytes = std::as_bytes(std::span(&pending, 1));
  if (offset >= pba && offset - pba < bytes.size()) {
    for (size_t i = 0; i < data.size() && offset - pba + i < bytes.size(); i++)
      data[i] = bytes[offset - pba + i];
    return;
  }
  count_register_access(offset);
  model_->read(offset, data);
}

void Adapter::registers_write(uint32_t offset, std::span<const std::byte> data) {
  count_register_access(offset);
  model_->write(offset, data);
}

void Adapter::count_register_access(uint32_t offset) {
  counters_.registers++;
  if (model_->is_scratchpad(offset)) counters_.scratchpads++;
}

void Adapter::reset() {
  const bool was_touched = model_->touched();
  model_->reset();
  config_.reset();
  interrupts_.forget_latched();
  bridge_.was_reset(*this, was_touched);
}

void Adapter::dma_write_failed(int error, uint16_t id) {
  bridge_.dma_write_failed(*this, error, id);
}

}  // namespace pcilend::fabric
