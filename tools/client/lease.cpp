// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/lease.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>

#include "pcilend/client.h"

namespace pcilend {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPage = 4096;

LeaseInfo describe(Function function) {
  LeaseInfo info;
  info.id = function.id;
  info.vendor = function.vendor;
  info.device = function.device;
  info.class_revision = function.class_revision;
  info.bars = std::move(function.bars);
  info.adapter = std::move(function.adapter);
  return info;
}

}  // namespace

// When the lease is over nothing is mapped, and what is refused is so already.
DeviceMemory::~DeviceMemory() {
  if (const auto lease = lease_.lock()) (void)client_->lease_unmap(lease->get(), address_);
}

Result<Lease> Lease::borrow(const ThisHost& host, FunctionId id, std::string_view owner,
                            uint64_t slice) {
  auto leased = host.client_->lease(id, owner, slice);
  if (!leased) return tl::unexpected(std::move(leased).error());
  return open(host, std::move(*leased));
}

Result<Lease> Lease::join(const ThisHost& host, FunctionId id, std::string_view owner,
                          uint64_t slice, uint32_t vectors, const std::string& adapter) {
  auto joined = host.client_->join(id, owner, slice, vectors, adapter);
  if (!joined) return tl::unexpected(std::move(joined).error());
  auto lease = open(host, std::move(joined->leased));
  if (!lease) return lease;
  lease->self_ = joined->client;
  lease->ranges_ = std::move(joined->ranges);
  return lease;
}

Result<std::vector<std::string>> Lease::paths(const ThisHost& host, FunctionId id) {
  auto function = host.client_->function(id);
  if (!function) return tl::unexpected(std::move(function).error());
  return std::move(function->paths);
}

Result<Lease> Lease::open(const ThisHost& host, LeasedFunction leased) {
  Lease lease;
  lease.client_ = host.client_;
  lease.info_ = describe(std::move(leased.function));
  lease.fd_ = std::make_shared<UniqueFd>(std::move(leased.fd));
  auto status = Mapping::map(lease.fd_->get(), 0, kPage, false);
  if (!status) return tl::unexpected(std::move(status).error());
  lease.status_ = std::move(*status);
  return lease;
}

Result<Registers> Lease::bar(uint32_t index, uint64_t offset, size_t size) const {
  auto buffer = client_->lease_bar(fd(), index, offset, size);
  if (!buffer) return tl::unexpected(std::move(buffer).error());
  auto memory = Mapping::map(buffer->get(), 0, size, true);
  if (!memory) return tl::unexpected(std::move(memory).error());
  Registers registers;
  registers.buffer_ = std::move(*buffer);
  registers.memory_ = std::move(*memory);
  return registers;
}

Result<DeviceMemory> Lease::map(int dma_buf, bool read_only) const {
  const auto address = client_->lease_map(fd(), dma_buf, read_only);
  if (!address) return tl::unexpected(address.error());
  return DeviceMemory(client_, fd_, *address);
}

Result<UniqueFd> Lease::interrupt(uint32_t vector) const {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return fail_errno("eventfd");
  PCILEND_TRY(client_->lease_interrupt(fd(), vector, event.get()));
  return event;
}

Result<> Lease::end_interrupt(uint32_t vector) const {
  return client_->lease_interrupt(fd(), vector, -1);
}

Result<> Lease::share(const SharePolicy& policy) const {
  return client_->lease_share(fd(), policy);
}

Result<std::optional<ClientNotice>> Lease::next_client() const {
  return client_->lease_next_client(fd());
}

Result<> Lease::cleared(const ClientNotice& notice) const {
  return client_->lease_cleared(fd(), notice.lease, notice.round);
}

Result<> Lease::send_mail(const Mail& mail) const {
  if (mail.bytes.empty() || mail.bytes.size() > kMailMax)
    return fail(ErrorClass::Usage, "mail of {} bytes: give 1 to {} of them", mail.bytes.size(),
                kMailMax);
  return client_->lease_send_mail(fd(), mail);
}

Result<std::optional<Mail>> Lease::next_mail() const {
  return client_->lease_next_mail(fd());
}

Result<Mail> Lease::ask(std::span<const std::byte> question,
                        std::chrono::milliseconds patience) const {
  if (self_.lease == 0)
    return fail(ErrorClass::Usage, "only a client has a manager to ask: join the function");
  // The answer to a question that was given up may have come.
  if (auto late = next_mail(); !late) return tl::unexpected(std::move(late).error());
  PCILEND_TRY(send_mail(Mail{0, {question.begin(), question.end()}}));

  const auto until = Clock::now() + patience;
  pollfd look{fd(), POLLIN, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(until - Clock::now(), Clock::duration{}));
    if (::poll(&look, 1, static_cast<int>(std::min<int64_t>(left.count(), 60'000))) < 0 &&
        errno != EINTR)
      return fail_errno("poll");
    auto answer = next_mail();  // says so if the lease is over
    if (!answer) return tl::unexpected(std::move(answer).error());
    if (*answer) return std::move(**answer);
    if (left.count() == 0)
      return fail(ErrorClass::Unreachable,
                  "the manager of {} has not answered within {} ms: see whether it lives",
                  to_string(info_.id), patience.count());
  }
}

}  // namespace pcilend
