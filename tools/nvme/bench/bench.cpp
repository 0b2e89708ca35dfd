// SPDX-License-Identifier: GPL-2.0-or-later
#include "bench/bench.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/line.h"
#include "pcilend/result.h"

namespace pcilend::nvme {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTellsLate{1000};
constexpr std::chrono::milliseconds kLook{10};

// POSIX's cksum: CRC-32 of the bytes, then of their number, most significant bit first.
class Cksum {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) step(static_cast<uint8_t>(byte));
    length_ += bytes.size();
  }
  [[nodiscard]] uint32_t finish() {
    for (uint64_t left = length_; left != 0; left >>= 8) step(static_cast<uint8_t>(left));
    return ~crc_;
  }

 private:
  void step(uint8_t byte) {
    crc_ ^= static_cast<uint32_t>(byte) << 24;
    for (int bit = 0; bit < 8; ++bit) crc_ = crc_ << 1 ^ (crc_ >> 31 ? 0x04c11db7U : 0U);
  }

  uint32_t crc_ = 0;
  uint64_t length_ = 0;
};

class Bench {
 public:
  Bench(const BenchTarget& target, const BenchOptions& options)
      : name_(target.device.name()),
        target_(target),
        options_(options),
        epoch_(target.device.epoch()) {}

  Result<> open() {
    PCILEND_TRY(check());
    LineOptions wanted{
        .depth = options_.depth,
        .transfer = options_.transfer,
        .staged = options_.staged,
        .data = target_.data,
        .fill = [this](uint32_t place, std::span<std::byte> to) { fill(to, commands_[place]); }};
    if (options_.interrupts) wanted.vector = target_.vector;
    auto line = target_.paths
                    ? open_line(*target_.paths, target_.name_space, wanted)
                    : open_line(target_.device, target_.queues, target_.name_space, wanted);
    if (!line) return tl::unexpected(std::move(line).error());
    line_ = std::move(*line);
    report_.remark = line_->remark();
    commands_.resize(options_.depth);
    expected_.resize(options_.transfer);
    return {};
  }

  Result<BenchReport> run(const std::function<bool(const BenchReport&)>& progress) {
    const auto begin = steady_clock::now();
    for (uint64_t round = 0; round < options_.rounds; ++round) {
      if (options_.write) {
        PCILEND_TRY(all(true));
        PCILEND_TRY(flush());
      }
      PCILEND_TRY(all(false));
      report_.rounds = round + 1;
      report_.doorbells = line_->doorbells();
      report_.interrupts = line_->interrupts();
      report_.repeated = line_->repeated();
      report_.seconds = steady_clock::now() - begin;
      if (progress && !progress(report_)) break;
    }
    if (compares()) report_.cksum = sum();
    return report_;
  }

 private:
  [[nodiscard]] bool compares() const { return options_.write || options_.verify; }
  [[nodiscard]] uint32_t blocks() const {
    return static_cast<uint32_t>(options_.transfer / target_.name_space.block_bytes);
  }
  [[nodiscard]] Result<> check() const {
    if (options_.interrupts && !target_.vector)
      return fail(ErrorClass::Unsupported, "no interrupt of {} reaches this process: poll", name_);
    const NamespaceInfo& name_space = target_.name_space;
    const uint32_t unit = name_space.block_bytes;
    if (options_.transfer == 0 || options_.transfer % unit != 0)
      return fail(ErrorClass::Usage, "{} bytes are no whole blocks of {}: give a multiple",
                  options_.transfer, unit);
    const uint64_t room =
        options_.block < name_space.blocks ? name_space.blocks - options_.block : 0;
    if (options_.commands == 0 || options_.commands > room / blocks())
      return fail(ErrorClass::Usage,
                  "{} commands of {} blocks from block {} on: namespace {} has {} blocks",
                  options_.commands, blocks(), options_.block, name_space.id, name_space.blocks);
    return {};
  }

  [[nodiscard]] uint64_t block_of(uint64_t command) const {
    return options_.block + command * blocks();
  }
  void fill(std::span<std::byte> bytes, uint64_t command) const {
    const uint64_t first = block_of(command) * target_.name_space.block_bytes;
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      const uint64_t word = content(options_.seed, first + at);
      std::memcpy(bytes.data() + at, &word, sizeof word);
    }
  }

  // One command for each piece, `depth` of them under way.
  Result<> all(bool writing) {
    std::vector<uint32_t> free;
    for (uint32_t place = 0; place < options_.depth; ++place) free.push_back(place);
    for (uint64_t next = 0; next < options_.commands || line_->under_way() != 0;) {
      while (next < options_.commands && !free.empty()) {
        const uint32_t place = free.back();
        free.pop_back();
        PCILEND_TRY(submit(writing, next++, place));
      }
      const auto done = line_->wait(options_.patience);
      if (!done) return tl::unexpected(done.error());
      const uint32_t place = done->tag;
      const uint64_t command = commands_[place];
      if (done->status != 0) return refused(writing ? "write" : "read", command, done->status);
      ++(writing ? report_.writes : report_.reads);
      if (!writing && compares()) PCILEND_TRY(compare(command, place));
      free.push_back(place);
    }
    return {};
  }

  Result<> submit(bool writing, uint64_t command, uint32_t place) {
    commands_[place] = command;
    // What is not written to must not be what is looked for.
    if (!writing && compares()) line_->spoil(place);
    return line_->submit(place, {.work = writing ? Work::Write : Work::Read,
                                 .block = block_of(command),
                                 .blocks = blocks(),
                                 .bytes = options_.transfer});
  }

  Result<> flush() {
    PCILEND_TRY(line_->submit(0, {.work = Work::Flush}));
    const auto done = line_->wait(options_.patience);
    if (!done) return tl::unexpected(done.error());
    if (done->status != 0) return refused("flush", 0, done->status);
    ++report_.flushes;
    return {};
  }

  Result<> compare(uint64_t command, uint32_t place) {
    fill(expected_, command);
    ++report_.compared;
    const auto bytes = line_->data(place);
    const auto at = std::ranges::mismatch(bytes, expected_).in1 - bytes.begin();
    if (static_cast<size_t>(at) == bytes.size()) return {};
    PCILEND_TRY(check_not_lost());
    return fail(ErrorClass::Failure,
                "block {} of namespace {} of {}, byte {}: it has not what seed {} has written",
                block_of(command) + static_cast<uint64_t>(at) / target_.name_space.block_bytes,
                target_.name_space.id, name_,
                static_cast<uint64_t>(at) % target_.name_space.block_bytes, options_.seed);
  }

  // Something is wrong. Memory that others have is taken first, and that is told afterwards.
  [[nodiscard]] Result<> check_not_lost() const {
    if (!target_.elsewhere) return {};
    const auto end = steady_clock::now() + kTellsLate;
    do {
      if (target_.device.epoch() != epoch_)
        return fail(ErrorClass::State,
                    "{}, or memory of its queues or data, was reset by others, taken back, or its "
                    "link was lost: open it again",
                    name_);
      std::this_thread::sleep_for(kLook);
    } while (steady_clock::now() < end);
    return {};
  }

  [[nodiscard]] Result<> refused(const char* what, uint64_t command, uint16_t status) const {
    PCILEND_TRY(check_not_lost());
    return fail(ErrorClass::Failure, "{} does not {} from block {} on: {}", name_, what,
                block_of(command), status_text(status));
  }

  uint32_t sum() {
    Cksum sum;
    for (uint64_t command = 0; command < options_.commands; ++command) {
      fill(expected_, command);
      sum.add(expected_);
    }
    return sum.finish();
  }

  std::string name_;  // the drive's
  BenchTarget target_;
  BenchOptions options_;
  uint64_t epoch_;  // when it began
  BenchReport report_;
  std::vector<uint64_t> commands_;  // by place
  std::vector<std::byte> expected_;
  std::unique_ptr<Line> line_;
};

}  // namespace

size_t data_bytes(const BenchOptions& options) {
  return options.depth * ((options.transfer + kPage - 1) / kPage * kPage);
}

size_t completion_bytes(const BenchOptions& options) {
  return ((options.depth + 1) * kCompletionBytes + kPage - 1) / kPage * kPage;
}

size_t queue_bytes(const BenchOptions& options) {
  const size_t ring = (options.depth + 1) * sizeof(Command);
  const size_t lists = options.transfer > kPage ? options.depth * kPage : 0;
  return (ring + kPage - 1) / kPage * kPage + lists + (options.staged ? data_bytes(options) : 0);
}

uint64_t content(uint64_t seed, uint64_t at) {
  uint64_t word = (at / sizeof word + 1) * 0x9e3779b97f4a7c15 + seed * 0xd1342543de82ef95;
  word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
  word = (word ^ word >> 27) * 0x94d049bb133111eb;
  return word ^ word >> 31;
}

Result<BenchReport> run_bench(const BenchTarget& target, const BenchOptions& options,
                              const std::function<bool(const BenchReport&)>& progress) {
  Bench bench(target, options);
  PCILEND_TRY(bench.open());
  return bench.run(progress);
}

}  // namespace pcilend::nvme
