// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/nvme/client_lease.h"

#include <poll.h>

#include <algorithm>
#include <atomic>

#include "leased_device.h"
#include "pcilend/result.h"
#include "pcilend/segment.h"

namespace pcilend::nvme {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kDoorbellBytes = 0x1000;

class KernelClientLease final : public ClientLease {
 public:
  KernelClientLease(const ThisHost& host, Lease lease, Registers doorbells)
      : host_(host),
        name_(to_string(lease.info().id)),
        client_(lease.client()),
        lease_(std::make_unique<Lease>(std::move(lease))),
        doorbells_(std::move(doorbells)) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] uint32_t lease() const override { return client_.lease; }
  [[nodiscard]] uint32_t vectors() const override { return client_.vectors; }
  void ring(size_t offset, uint32_t value) override {
    if (offset < kDoorbellPage || offset - kDoorbellPage > kDoorbellBytes - sizeof value) return;
    // What was gathered for memory beside the drive leaves with it.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    doorbells_.store(offset - kDoorbellPage, value);
  }
  Result<std::unique_ptr<Memory>> allocate(size_t bytes, const Access& access) override {
    if (!lease_) return ended();
    return allocate_leased(*lease_, bytes, access, true);
  }
  Result<std::span<std::byte>> connect(FunctionId segment) override {
    if (!lease_) return ended();
    auto connection = Connection::open(
        host_, segment, {.write_combining = true, .adapter = lease_->info().adapter});
    if (!connection) return tl::unexpected(std::move(connection).error());
    near_ = std::make_unique<Connection>(std::move(*connection));
    return near_->bytes();
  }
  Result<std::span<std::byte>> bar(uint32_t index, uint64_t offset, size_t bytes) override {
    if (!lease_) return ended();
    auto part = lease_->bar(index, offset, bytes);
    if (!part) return tl::unexpected(std::move(part).error());
    parts_.push_back(std::move(*part));
    return parts_.back().bytes();
  }
  Result<std::unique_ptr<Reach>> map(int dma_buf) override {
    if (!lease_) return ended();
    return reach_leased(*lease_, dma_buf);
  }
  Result<UniqueFd> interrupt(uint32_t vector) override {
    if (!lease_) return ended();
    return lease_->interrupt(vector);
  }
  Result<> end_interrupt(uint32_t vector) override {
    if (!lease_) return ended();
    return lease_->end_interrupt(vector);
  }
  Result<std::vector<std::byte>> ask(std::span<const std::byte> question,
                                     milliseconds patience) override {
    const auto until = steady_clock::now() + patience;
    for (;;) {
      if (over()) return ended();
      const auto left = std::max(
          milliseconds(1), std::chrono::duration_cast<milliseconds>(until - steady_clock::now()));
      auto answer = lease_->ask(question, left);
      if (answer) return std::move(answer->bytes);
      // A question that was given up is under way still: this one is asked behind its answer.
      if (answer.error().kind != ErrorClass::State || over() || steady_clock::now() > until)
        return tl::unexpected(std::move(answer).error());
      pollfd wait{fd(), POLLIN, 0};
      if (::poll(&wait, 1, static_cast<int>(std::min(left, kLook).count())) < 0 && errno != EINTR)
        return fail_errno("poll");
    }
  }
  void leave() override { lease_.reset(); }
  [[nodiscard]] uint64_t epoch() const override { return lease_ ? lease_->epoch() : ~uint64_t{0}; }
  [[nodiscard]] bool over() const override { return !lease_ || lease_->over(); }
  [[nodiscard]] int fd() const override { return lease_ ? lease_->fd() : -1; }

 private:
  static constexpr milliseconds kLook{100};

  [[nodiscard]] tl::unexpected<Error> ended() const {
    return fail(ErrorClass::State, "{} is shared with this process no more: join again", name_);
  }

  ThisHost host_;
  std::string name_;
  ClientNotice client_;
  std::unique_ptr<Lease> lease_;
  Registers doorbells_;
  std::unique_ptr<Connection> near_;
  std::vector<Registers> parts_;
};

}  // namespace

Result<std::unique_ptr<Reach>> ClientLease::map(int) {
  return fail(ErrorClass::Unsupported, "{} reaches nothing but memory of this process", name());
}

Result<std::unique_ptr<Drive>> Drive::join(const ThisHost& host, FunctionId id,
                                           std::string_view owner, const JoinOptions& options) {
  auto lease =
      Lease::join(host, id, owner, options.slice, options.interrupt ? 1 : 0, options.adapter);
  if (!lease) return tl::unexpected(std::move(lease).error());
  PCILEND_TRY(check_class(*lease));
  auto doorbells = lease->bar(0, kDoorbellPage, kDoorbellBytes);
  if (!doorbells) return tl::unexpected(std::move(doorbells).error());
  return join_by(
      std::make_unique<KernelClientLease>(host, std::move(*lease), std::move(*doorbells)),
      options.patience, options.key);
}

}  // namespace pcilend::nvme
