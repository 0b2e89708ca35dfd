// SPDX-License-Identifier: GPL-2.0-or-later
#include "manager/shared_drive.h"

#include "leased_device.h"
#include "pcilend/result.h"
#include "pcilend/segment.h"

namespace pcilend::nvme {
namespace {

class LeasedNear final : public NearMemory {
 public:
  LeasedNear(OwnedSegment segment, DeviceMemory memory)
      : segment_(std::move(segment)), memory_(std::move(memory)) {}
  [[nodiscard]] FunctionId segment() const override { return segment_.id(); }
  [[nodiscard]] uint64_t address() const override { return memory_.address(); }
  [[nodiscard]] size_t bytes() const override { return segment_.bytes().size(); }

 private:
  OwnedSegment segment_;
  DeviceMemory memory_;
};

class KernelManagerLease final : public ManagerLease {
 public:
  KernelManagerLease(const ThisHost& host, std::shared_ptr<Lease> lease, FenceRecord record)
      : host_(host), lease_(std::move(lease)), record_(std::move(record)) {}

  Result<uint32_t> node() override { return host_.node(); }
  Result<> share(const SharePolicy& policy) override { return lease_->share(policy); }
  Result<std::optional<ClientNotice>> next_client() override { return lease_->next_client(); }
  Result<> cleared(const ClientNotice& notice) override { return lease_->cleared(notice); }
  Result<std::optional<Mail>> next_mail() override { return lease_->next_mail(); }
  Result<> send_mail(const Mail& mail) override { return lease_->send_mail(mail); }
  Result<std::set<uint32_t>> fenced() override { return record_.read(); }
  Result<> keep_fenced(const std::set<uint32_t>& nodes) override { return record_.write(nodes); }
  Result<std::unique_ptr<NearMemory>> make_near(uint32_t node, size_t bytes) override {
    auto segment = OwnedSegment::create(
        host_, bytes, {.name = fmt::format("nvme {} node {}", to_string(lease_->info().id), node)});
    if (!segment) return tl::unexpected(std::move(segment).error());
    auto memory = lease_->map(segment->buffer(), true);
    if (!memory) return tl::unexpected(std::move(memory).error());
    // Whichever of them the client goes over.
    PCILEND_TRY(segment->offer_over_all(node));
    return std::make_unique<LeasedNear>(std::move(*segment), std::move(*memory));
  }

 private:
  ThisHost host_;
  std::shared_ptr<Lease> lease_;
  FenceRecord record_;
};

}  // namespace

Result<SharedDrive> open_shared_drive(const ThisHost& host, FunctionId id, uint64_t slice,
                                      FenceRecord record) {
  auto leased = Lease::borrow(host, id, "pcilend-nvme-manager", slice);
  if (!leased) return tl::unexpected(std::move(leased).error());
  if (!leased->info().adapter.empty())
    return fail(ErrorClass::Unsupported,
                "{} is in another host: its manager must run there, as it dies with the drive",
                to_string(id));
  auto lease = std::make_shared<Lease>(std::move(*leased));
  auto device = make_leased(lease);
  if (!device) return tl::unexpected(std::move(device).error());
  return SharedDrive{
      std::make_unique<KernelManagerLease>(host, std::move(lease), std::move(record)),
      std::move(*device)};
}

}  // namespace pcilend::nvme
