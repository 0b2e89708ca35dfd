// SPDX-License-Identifier: GPL-2.0-or-later
#include "disk/translator.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

constexpr unsigned kPageShift = 12;
constexpr uint64_t kSectorsMax = uint64_t{1} << 54;  // the kernel counts bytes in 63 bits
// Of one discard; the kernel makes more of a larger one. 2 GiB, which drives have room for.
constexpr uint32_t kDeallocateSectors = 1U << 22;
constexpr uint32_t kCommandBlocks = 1U << 16;

}  // namespace

Result<Translator> Translator::make(const DiskTraits& traits) {
  const NamespaceInfo& name_space = traits.name_space;
  if (name_space.command_set == 2)
    return fail(ErrorClass::Unsupported,
                "namespace {} has zones, which a disk made of it would not keep: borrow the drive "
                "(pcilend borrow)",
                name_space.id);
  if (name_space.command_set != 0)
    return fail(ErrorClass::Unsupported,
                "namespace {} is not of blocks (its command set is {}): borrow the drive "
                "(pcilend borrow)",
                name_space.id, name_space.command_set);
  const auto shift = static_cast<unsigned>(std::countr_zero(name_space.block_bytes));
  if (!std::has_single_bit(name_space.block_bytes) || shift < kSectorShift || shift > kPageShift)
    return fail(ErrorClass::Unsupported,
                "blocks of namespace {} have {} bytes: a disk can have 512 to 4096; format it so "
                "(nvme format)",
                name_space.id, name_space.block_bytes);
  if (name_space.blocks == 0 || name_space.blocks > kSectorsMax >> (shift - kSectorShift))
    return fail(ErrorClass::Unsupported, "namespace {} says that it has {} blocks: no disk has",
                name_space.id, name_space.blocks);
  if (traits.transfer < kPage)
    return fail(ErrorClass::Unsupported, "its commands have {} bytes at most: 4096 are needed",
                traits.transfer);
  return Translator(traits, shift);
}

ublk_params Translator::parameters() const {
  const auto block = static_cast<__u8>(shift_);
  const auto sectors = static_cast<uint32_t>(
      std::min<uint64_t>(traits_.transfer, uint64_t{kCommandBlocks} << shift_) >> kSectorShift);
  ublk_params parameters{};
  parameters.len = sizeof parameters;
  parameters.types = UBLK_PARAM_TYPE_BASIC;
  auto& basic = parameters.basic;
  basic.logical_bs_shift = basic.physical_bs_shift = basic.io_min_shift = basic.io_opt_shift =
      block;
  basic.max_sectors = sectors;
  basic.dev_sectors = traits_.name_space.blocks << (shift_ - kSectorShift);
  if (traits_.volatile_cache) basic.attrs |= UBLK_ATTR_VOLATILE_CACHE | UBLK_ATTR_FUA;
  if (traits_.read_only) basic.attrs |= UBLK_ATTR_READ_ONLY;
  if (traits_.read_only || (!traits_.deallocates && !traits_.writes_zeroes)) return parameters;
  parameters.types |= UBLK_PARAM_TYPE_DISCARD;
  auto& discard = parameters.discard;
  discard.discard_granularity = traits_.name_space.block_bytes;
  if (traits_.deallocates) {
    discard.max_discard_sectors = kDeallocateSectors;
    discard.max_discard_segments = 1;
  }
  if (traits_.writes_zeroes) discard.max_write_zeroes_sectors = sectors;
  return parameters;
}

tl::expected<Task, int> Translator::translate(const ublksrv_io_desc& request) const {
  Task task;
  switch (request.op_flags & 0xff) {
    case UBLK_IO_OP_FLUSH:
      return task;
    case UBLK_IO_OP_READ:
      task.work = Work::Read;
      break;
    case UBLK_IO_OP_WRITE:
      task.work = Work::Write;
      task.through = (request.op_flags & UBLK_IO_F_FUA) != 0;
      break;
    case UBLK_IO_OP_DISCARD:
      if (!traits_.deallocates) return tl::unexpected(-EOPNOTSUPP);
      task.work = Work::Deallocate;
      break;
    case UBLK_IO_OP_WRITE_ZEROES:
      if (!traits_.writes_zeroes) return tl::unexpected(-EOPNOTSUPP);
      task.work = Work::WriteZeroes;
      break;
    default:
      return tl::unexpected(-EOPNOTSUPP);
  }
  if (traits_.read_only && task.work != Work::Read) return tl::unexpected(-EROFS);
  const unsigned sectors = shift_ - kSectorShift;  // in a block, as a power of two
  const uint64_t rest = (uint64_t{1} << sectors) - 1;
  if (request.nr_sectors == 0 || ((request.start_sector | request.nr_sectors) & rest) != 0)
    return tl::unexpected(-EINVAL);
  task.block = request.start_sector >> sectors;
  task.blocks = request.nr_sectors >> sectors;
  if (task.block >= traits_.name_space.blocks ||
      task.blocks > traits_.name_space.blocks - task.block)
    return tl::unexpected(-EIO);
  if (task.work == Work::Deallocate) return task;
  const uint64_t bytes = uint64_t{task.blocks} << shift_;
  if (bytes > traits_.transfer || task.blocks > kCommandBlocks) return tl::unexpected(-EINVAL);
  if (task.work != Work::WriteZeroes) task.bytes = bytes;
  return task;
}

// Those that the kernel tells apart (errno_to_blk_status()).
int answer_to(uint16_t status) {
  switch (status_code(status)) {
    case 0x000:
      return 0;
    case 0x001:  // the command, or a field of it, is not known
    case 0x002:
      return -EOPNOTSUPP;
    case 0x081:  // full
      return -ENOSPC;
    case 0x280:  // the medium
    case 0x281:
    case 0x287:
      return -ENODATA;
    default:
      return -EIO;
  }
}

}  // namespace pcilend::nvme
