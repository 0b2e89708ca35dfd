// SPDX-License-Identifier: GPL-2.0-or-later
#include "bench/placement.h"

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

// Nothing is mapped for those functions: the smallest slice there is.
constexpr uint64_t kSlice = 4096;

}  // namespace

Result<std::unique_ptr<Elsewhere>> Placement::open(const ThisHost& host, Device& device,
                                                   std::string_view owner, const std::string& where,
                                                   size_t bytes) {
  const auto name = parse_elsewhere(where);
  if (!name) return tl::unexpected(name.error());
  if (!name->function) return Elsewhere::behind(device, name->buffer, name->offset, bytes);
  if (to_string(*name->function) == device.name())
    return fail(ErrorClass::Usage, "{} is the drive itself: its own memory is --cmb",
                device.name());
  auto& lease = leases_[name->function->value];
  if (!lease) {
    auto borrowed = Lease::borrow(host, *name->function, owner, kSlice);
    if (!borrowed)
      return tl::unexpected(std::move(borrowed).error().in(to_string(*name->function)));
    lease = std::make_shared<Lease>(std::move(*borrowed));
  }
  return Elsewhere::in_bar(device, lease, name->bar, name->offset, bytes);
}

Result<std::unique_ptr<Placement>> Placement::make(const ThisHost& host, Device& device,
                                                   std::string_view owner,
                                                   const PlacementWish& wish) {
  std::unique_ptr<Placement> placement(new Placement);
  for (const auto& [where, bytes, memory] :
       {std::tuple(&wish.queues, wish.queue_bytes, &placement->queues_),
        std::tuple(&wish.data, wish.data_bytes + wish.completion_bytes, &placement->data_)}) {
    if (where->empty()) continue;
    auto opened = placement->open(host, device, owner, *where, bytes);
    if (!opened) return tl::unexpected(std::move(opened).error());
    *memory = std::move(*opened);
  }
  if (placement->queues_ && placement->queues_->bytes().empty())
    return fail(ErrorClass::Unsupported,
                "{}: who exports it lets no CPU store commands there: have them elsewhere",
                wish.queues);
  QueuePlaces places{.queues = placement->queues_.get()};
  if (placement->data_) places.also.push_back(placement->data_.get());
  if (placement->data_ && wish.completion_bytes != 0) {
    if (placement->data_->bytes().empty())
      return fail(ErrorClass::Unsupported,
                  "{}: who exports it lets no CPU look at it: read only, without --write and "
                  "--verify",
                  wish.data);
    places.completions = placement->data_.get();
    places.completions_at = wish.data_bytes;
  }
  placement->placed_ = place_queues(device, std::move(places));
  return placement;
}

}  // namespace pcilend::nvme
