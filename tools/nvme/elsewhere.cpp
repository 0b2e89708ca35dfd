// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/elsewhere.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "near_device.h"
#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

constexpr const char* kSyntax = "FUNCTION:BAR[+OFFSET] or fd:N[+OFFSET]";

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// With a unit of K, M or G.
std::optional<uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kUnits = "KMG";
  unsigned shift = 0;
  if (const size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
      unit != kUnits.npos) {
    shift = 10 * (static_cast<unsigned>(unit) + 1);
    text.remove_suffix(1);
  }
  const auto value = parse_number<uint64_t>(text);
  if (!value || *value > ~uint64_t{0} >> shift) return std::nullopt;
  return *value << shift;
}

Result<> check_part(const std::string& name, uint64_t whole, uint64_t offset, size_t bytes) {
  if (offset % kPage != 0)
    return fail(ErrorClass::Usage, "{}: {} is no multiple of {}, a page: give such an offset", name,
                offset, kPage);
  if (offset > whole || bytes > whole - offset)
    return fail(ErrorClass::Usage, "{} has {} bytes: {} are needed from {} on", name, whole, bytes,
                offset);
  return {};
}

// Memory has no effects when it is read, which its function says of it.
Result<> check_bar(const LeaseInfo& info, uint32_t index, uint64_t offset, size_t bytes) {
  const std::string name = fmt::format("BAR {} of {}", index, to_string(info.id));
  const auto bar = std::ranges::find(info.bars, index, &Bar::index);
  if (bar == info.bars.end() || index > 5 || bar->size == 0)
    return fail(ErrorClass::Usage, "{} has no BAR {}: see 'pcilend show {}'", to_string(info.id),
                index, to_string(info.id));
  if ((bar->flags & kBarIo) != 0 || (bar->flags & kBarPrefetch) == 0)
    return fail(ErrorClass::Usage,
                "{} is no memory: it is not prefetchable, so it has registers; name another one",
                name);
  return check_part(name, bar->size, offset, bytes);
}

std::span<std::byte> bytes_of(Elsewhere* memory) {
  return memory ? memory->bytes() : std::span<std::byte>();
}

class PlacedDevice final : public NearDevice {
 public:
  PlacedDevice(Device& device, QueuePlaces places)
      : NearDevice(device, bytes_of(places.queues), places.queues ? places.queues->address() : 0),
        places_(std::move(places)) {
    if (places_.queues) places_.also.push_back(places_.queues);
    if (!places_.completions) return;
    places_.also.push_back(places_.completions);
    const auto bytes = places_.completions->bytes();
    const size_t at = std::min(places_.completions_at, bytes.size());
    completions_.emplace(bytes.subspan(at), places_.completions->address() + at);
  }

  Result<std::unique_ptr<Memory>> allocate(size_t bytes, const Access& access) override {
    const bool completions = !access.device_reads && !access.host_writes;
    std::unique_ptr<Memory> memory;
    if (completions_ && completions)
      memory = completions_->take(bytes);
    else if (places_.queues && NearPages::wants(access))
      memory = near_allocate(bytes, access);
    else
      return NearDevice::allocate(bytes, access);
    if (memory) return memory;
    return fail(ErrorClass::Usage,
                "{} bytes of queues of {} don't fit into the memory that is theirs: give more",
                bytes, name());
  }
  [[nodiscard]] uint64_t epoch() const override {
    uint64_t sum = NearDevice::epoch();
    for (const Elsewhere* memory : places_.also) sum += memory->epoch();
    return sum;
  }

 private:
  QueuePlaces places_;
  std::optional<NearPages> completions_;
};

}  // namespace

Result<ElsewhereName> parse_elsewhere(std::string_view text) {
  const auto refused = [text] {
    return fail(ErrorClass::Usage, "'{}' names no memory: give {}", text, kSyntax);
  };
  ElsewhereName name;
  std::string_view rest = text;
  if (const size_t plus = rest.find('+'); plus != rest.npos) {
    const auto offset = parse_bytes(rest.substr(plus + 1));
    if (!offset) return refused();
    name.offset = *offset;
    rest = rest.substr(0, plus);
  }
  const size_t colon = rest.find(':');
  if (colon == rest.npos) return refused();
  const std::string_view which = rest.substr(colon + 1);
  if (rest.substr(0, colon) == "fd") {
    const auto buffer = parse_number<int>(which);
    if (!buffer || *buffer < 0) return refused();
    name.buffer = *buffer;
    return name;
  }
  const auto function = parse_function_id(rest.substr(0, colon));
  const auto bar = parse_number<uint32_t>(which);
  if (!function || !bar) return refused();
  name.function = *function;
  name.bar = *bar;
  return name;
}

Result<std::unique_ptr<Elsewhere>> Elsewhere::in_bar(Device& device,
                                                     std::shared_ptr<const Lease> of, uint32_t bar,
                                                     uint64_t offset, size_t bytes) {
  bytes = (bytes + kPage - 1) / kPage * kPage;
  PCILEND_TRY(check_bar(of->info(), bar, offset, bytes));
  std::unique_ptr<Elsewhere> memory(new Elsewhere);
  auto part = of->bar(bar, offset, bytes);
  if (!part) return tl::unexpected(std::move(part).error());
  memory->part_.emplace(std::move(*part));
  auto reach = device.map(memory->part_->buffer());
  if (!reach)
    return tl::unexpected(
        std::move(reach).error().in(fmt::format("BAR {} of {}", bar, to_string(of->info().id))));
  memory->reach_ = std::move(*reach);
  memory->of_ = std::move(of);
  return memory;
}

Result<std::unique_ptr<Elsewhere>> Elsewhere::behind(Device& device, int dma_buf, uint64_t offset,
                                                     size_t bytes) {
  bytes = (bytes + kPage - 1) / kPage * kPage;
  const std::string name = fmt::format("descriptor {}", dma_buf);
  // Of a dma-buf that is its size.
  const off_t whole = ::lseek(dma_buf, 0, SEEK_END);
  if (whole <= 0)
    return fail(ErrorClass::Usage, "{} is no dma-buf: have the caller pass one on", name);
  PCILEND_TRY(check_part(name, static_cast<uint64_t>(whole), offset, bytes));
  std::unique_ptr<Elsewhere> memory(new Elsewhere);
  auto reach = device.map(dma_buf);
  if (!reach) return tl::unexpected(std::move(reach).error().in(name));
  memory->reach_ = std::move(*reach);
  memory->offset_ = offset;
  // An exporter may have no way for CPUs.
  if (auto view = Mapping::map(dma_buf, offset, bytes, true)) memory->view_ = std::move(*view);
  return memory;
}

std::span<std::byte> Elsewhere::bytes() {
  return part_ ? part_->bytes() : view_.bytes();
}

std::unique_ptr<Device> place_queues(Device& device, QueuePlaces places) {
  return std::make_unique<PlacedDevice>(device, std::move(places));
}

}  // namespace pcilend::nvme
