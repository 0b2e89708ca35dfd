// SPDX-License-Identifier: GPL-2.0-or-later
#include "bench/line.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

class PairLine final : public Line {
 public:
  PairLine(const NamespaceInfo& name_space, const LineOptions& options)
      : name_space_(name_space), options_(options), places_(options.depth) {}

  Result<> open(Device& device, Queues& queues) {
    auto pair =
        QueuePair::create(device, queues, {options_.depth, options_.transfer, options_.vector});
    if (!pair) return tl::unexpected(std::move(pair).error());
    pair_ = std::move(*pair);
    if (!options_.data) {
      auto data = device.allocate(options_.depth * stride(), {});
      if (!data) return tl::unexpected(std::move(data).error());
      data_ = std::move(*data);
    }
    scratch_.resize(options_.data ? options_.transfer : 0);
    if (!options_.staged) return {};
    auto staged =
        device.allocate(options_.depth * stride(), {.device_writes = false, .host_reads = false});
    if (!staged) return tl::unexpected(std::move(staged).error());
    staged_ = std::move(*staged);
    return {};
  }
  PairLine(const PairLine&) = delete;
  PairLine& operator=(const PairLine&) = delete;
  ~PairLine() override { pair_.reset(); }

  Result<> submit(uint32_t place, const Task& task) override {
    Memory& memory = task.work == Work::Write && staged_ ? *staged_ : data_memory();
    const uint64_t address = memory.address() + place * stride();
    Result<std::optional<uint32_t>> slot;
    if (task.work == Work::Read) {
      slot = pair_->read(name_space_, task.block, task.blocks, address);
    } else if (task.work == Work::Write) {
      options_.fill(place, memory.bytes().subspan(place * stride(), task.bytes));
      slot = pair_->write(name_space_, task.block, task.blocks, address);
    } else {
      slot = pair_->flush(name_space_);
    }
    if (!slot) return tl::unexpected(slot.error());
    places_[**slot] = place;
    return {};
  }
  Result<PathDone> wait(std::chrono::milliseconds patience) override {
    const auto done = pair_->wait(patience);
    if (!done) return tl::unexpected(done.error());
    return PathDone{places_[done->slot], done->status};
  }
  [[nodiscard]] std::span<const std::byte> data(uint32_t place) const override {
    const auto bytes = data_memory().bytes().subspan(place * stride(), options_.transfer);
    if (!options_.data) return bytes;
    // Each load may wait for another host: one for a word.
    const auto* const words = reinterpret_cast<const volatile uint64_t*>(bytes.data());
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      const uint64_t word = words[at / sizeof(uint64_t)];
      std::memcpy(scratch_.data() + at, &word, sizeof word);
    }
    return scratch_;
  }
  void spoil(uint32_t place) override {
    const auto bytes = data_memory().bytes().subspan(place * stride(), options_.transfer);
    auto* const words = reinterpret_cast<volatile uint64_t*>(bytes.data());
    for (size_t at = 0; at < bytes.size() / sizeof(uint64_t); ++at) words[at] = 0x5a5a5a5a5a5a5a5a;
  }
  [[nodiscard]] uint32_t under_way() const override { return pair_->under_way(); }
  [[nodiscard]] uint64_t doorbells() const override { return pair_->doorbells(); }
  [[nodiscard]] uint64_t interrupts() override { return pair_->interrupts(); }
  [[nodiscard]] std::string remark() const override { return pair_->remark(); }

 private:
  [[nodiscard]] Memory& data_memory() const { return options_.data ? *options_.data : *data_; }
  // Each command's data begins a page.
  [[nodiscard]] size_t stride() const { return (options_.transfer + kPage - 1) / kPage * kPage; }

  NamespaceInfo name_space_;
  LineOptions options_;
  std::unique_ptr<Memory> data_;  // outlives the queues, as does the next
  std::unique_ptr<Memory> staged_;
  mutable std::vector<std::byte> scratch_;  // what data() has read of options_.data
  std::unique_ptr<QueuePair> pair_;
  std::vector<uint32_t> places_;  // by slot
};

class PathLine final : public Line {
 public:
  explicit PathLine(Paths& paths) : paths_(paths) {}
  PathLine(const PathLine&) = delete;
  PathLine& operator=(const PathLine&) = delete;
  ~PathLine() override { paths_.stop(); }

  Result<> open(const NamespaceInfo& name_space, const LineOptions& options) {
    auto queue =
        PathQueue::create(paths_,
                          {.name_space = name_space,
                           .depth = options.depth,
                           .transfer = options.transfer,
                           .staged = options.staged ? options.transfer : 0,
                           .interrupt = options.vector ? std::optional<uint16_t>(0) : std::nullopt},
                          [fill = options.fill](uint32_t place, std::span<std::byte> to) {
                            fill(place, to);
                            return true;
                          });
    if (!queue) return tl::unexpected(std::move(queue).error());
    queue_ = std::move(*queue);
    paths_.start();
    return {};
  }

  Result<> submit(uint32_t place, const Task& task) override { return queue_->submit(place, task); }
  Result<PathDone> wait(std::chrono::milliseconds patience) override {
    return queue_->wait(patience);
  }
  [[nodiscard]] std::span<const std::byte> data(uint32_t place) const override {
    return queue_->data(place);
  }
  void spoil(uint32_t place) override { queue_->spoil(place); }
  [[nodiscard]] uint32_t under_way() const override { return queue_->under_way(); }
  [[nodiscard]] uint64_t doorbells() const override { return queue_->doorbells(); }
  [[nodiscard]] uint64_t interrupts() override { return queue_->interrupts(); }
  [[nodiscard]] uint64_t repeated() const override { return queue_->repeated(); }
  [[nodiscard]] std::string remark() const override { return queue_->remark(); }

 private:
  Paths& paths_;
  std::unique_ptr<PathQueue> queue_;
};

}  // namespace

Result<std::unique_ptr<Line>> open_line(Device& device, Queues& queues,
                                        const NamespaceInfo& name_space,
                                        const LineOptions& options) {
  auto line = std::make_unique<PairLine>(name_space, options);
  PCILEND_TRY(line->open(device, queues));
  return line;
}

Result<std::unique_ptr<Line>> open_line(Paths& paths, const NamespaceInfo& name_space,
                                        const LineOptions& options) {
  auto line = std::make_unique<PathLine>(paths);
  PCILEND_TRY(line->open(name_space, options));
  return line;
}

}  // namespace pcilend::nvme
