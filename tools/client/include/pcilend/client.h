// SPDX-License-Identifier: GPL-2.0-or-later
// What userspace can ask of pcilend.ko on this host.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/fd.h"
#include "pcilend/model.h"
#include "pcilend/result.h"
#include "pcilend/share.h"
#include "pcilend/transport.h"

namespace pcilend {

// What a function is from the moment that others see it.
struct AddOptions {
  std::optional<FunctionId> id;  // else the lowest that is free
  std::string label;
  std::optional<std::vector<uint32_t>> nodes;  // as in Client::allow()
};

// A segment that was made, and what ends it when it is closed.
struct CreatedSegment {
  FunctionId id;
  UniqueFd fd;
};

// A segment of a peer: a dma-buf to be mapped (shared), and what tells of its end
// (PCILEND_A_CONTROL_FD).
struct ConnectedSegment {
  Segment segment;
  UniqueFd buffer;
  UniqueFd control;
};

// A function that was leased to this process, and what returns it when it is closed
// (PCILEND_A_LEASE_FD). Class Lease (lease.h) is made of it.
struct LeasedFunction {
  Function function;
  UniqueFd fd;
};

// A function that this process shares.
struct JoinedFunction {
  LeasedFunction leased;
  ClientNotice client;
  std::vector<BarRange> ranges;  // its own pages
};

// For what fails after a change: the change is there.
inline Error after_change(Error error) {
  return std::move(error).in("it is done, but can't be shown");
}

// Refusals carry the kernel's own sentence. Changes need CAP_SYS_ADMIN; asking for what is so
// already succeeds.
class Client {
 public:
  virtual ~Client() = default;

  virtual Result<Node> node() = 0;
  virtual Result<std::vector<Link>> links() = 0;
  virtual Result<std::vector<Function>> functions() = 0;  // local ones and peers', by id
  virtual Result<Function> function(FunctionId id) = 0;
  virtual Result<Function> function(const PciAddress& local) = 0;

  // With an adapter (PCI address) the node is pinned to it: it is let in over that only.
  virtual Result<> connect(uint32_t node, const std::string& adapter = {}) = 0;
  virtual Result<> disconnect(uint32_t node) = 0;
  virtual Result<Function> add(const PciAddress& local, const AddOptions& options = {}) = 0;
  virtual Result<> remove(const PciAddress& local) = 0;
  virtual Result<Function> make_available(const PciAddress& local, const Lend& how) = 0;
  // `force`: though it is borrowed; the lease ends at once.
  virtual Result<> make_unavailable(const PciAddress& local, bool force) = 0;
  // Asks its borrower for it, and takes it when the grace is over; returns at once.
  virtual Result<> recall(const PciAddress& local, uint32_t grace_ms) = 0;
  virtual Result<Function> release_quarantine(const PciAddress& local) = 0;
  // For a function of this host or, through its lender, of a peer.
  virtual Result<> reserve(FunctionId id, const Reservation& reservation) = 0;
  // Only these nodes see it; without a list, all that are connected.
  virtual Result<> allow(const PciAddress& local,
                         const std::optional<std::vector<uint32_t>>& nodes) = 0;
  virtual Result<> label(const PciAddress& local, std::string_view text) = 0;
  // `frontend`: "vfio" or "shadow"; `owner`: at most 63 bytes, who uses it; `adapter`: the path
  // (PCI address), else the best one.
  virtual Result<Function> borrow(FunctionId id, std::string_view frontend, std::string_view owner,
                                  const std::string& adapter = {}) = 0;
  // With an owner, only that owner's lease is ended. Succeeds if nothing is borrowed.
  virtual Result<> give_back(FunctionId id, std::string_view owner) = 0;
  // Borrowed function `from` reaches the BARs of borrowed function `to` by DMA, or no longer.
  virtual Result<Function> reach(FunctionId from, FunctionId to, bool on) = 0;

  // This host's by id, then those of peers that are connected here.
  virtual Result<std::vector<Segment>> segments() = 0;
  // What peers offer to this host: they are asked. Needs CAP_SYS_ADMIN.
  virtual Result<std::vector<Segment>> offered_segments() = 0;
  // Of a dma-buf of this process; at most 63 bytes of name. Peers may raise the eventfd `event`,
  // if there is one.
  virtual Result<CreatedSegment> create_segment(int dma_buf, std::string_view name,
                                                int event = -1) = 0;
  virtual Result<> offer_segment(FunctionId id, uint32_t node, bool read_only,
                                 const std::string& adapter = {}) = 0;
  // From one node, or from all.
  virtual Result<> withdraw_segment(FunctionId id, std::optional<uint32_t> node) = 0;
  virtual Result<ConnectedSegment> connect_segment(FunctionId id,
                                                   const ConnectOptions& options) = 0;

  // An available function of this host, or of another, for this process, with device addresses for
  // `slice` bytes, a power of two. `owner`: as for borrow().
  virtual Result<LeasedFunction> lease(FunctionId id, std::string_view owner, uint64_t slice) = 0;
  // What a lease fd of this process allows, with no other right. A dma-buf of whole pages of a BAR;
  virtual Result<UniqueFd> lease_bar(int lease, uint32_t bar, uint64_t offset, uint64_t size) = 0;
  // the device address of the memory behind a dma-buf;
  virtual Result<uint64_t> lease_map(int lease, int dma_buf, bool read_only) = 0;
  virtual Result<> lease_unmap(int lease, uint64_t address) = 0;
  // memory of the lender's, beside a function of another host, connected;
  virtual Result<ConnectedSegment> lease_near(int lease, uint64_t size, bool write_combining) = 0;
  // an eventfd that an interrupt raises; -1: none any more.
  virtual Result<> lease_interrupt(int lease, uint32_t vector, int event) = 0;

  // Who has leased a function shares it: with whom;
  virtual Result<> lease_share(int lease, const SharePolicy& policy) = 0;
  // what it was not told yet of its clients, one of them;
  virtual Result<std::optional<ClientNotice>> lease_next_client(int lease) = 0;
  // that the function uses nothing of a client any more, as it was asked with that round.
  virtual Result<> lease_cleared(int lease, uint32_t client, uint32_t round) = 0;
  // Mail between a client and its manager: sent, with its client for 0 if it is a client's;
  virtual Result<> lease_send_mail(int lease, const Mail& mail) = 0;
  // the next one, if there is any.
  virtual Result<std::optional<Mail>> lease_next_mail(int lease) = 0;
  // Becomes a client of a shared function, over that adapter if one is named.
  virtual Result<JoinedFunction> join(FunctionId id, std::string_view owner, uint64_t slice,
                                      uint32_t vectors, const std::string& adapter = {}) = 0;

  // Whether a function of this host can be lent; a refusal says why. Changes nothing.
  virtual Result<> check(const PciAddress& local) = 0;
  // 256 or 4096 bytes of configuration space; `emulated`: as its borrower sees it.
  virtual Result<std::vector<uint8_t>> config(FunctionId id, bool emulated) = 0;
  virtual Result<Counters> counters() = 0;
};

// The client of the running kernel; Unreachable if pcilend.ko is not loaded.
Result<std::unique_ptr<Client>> open_client();

// The same over a transport of the caller's choice.
Result<std::unique_ptr<Client>> open_client(std::unique_ptr<Transport> transport);

}  // namespace pcilend
