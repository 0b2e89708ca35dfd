// SPDX-License-Identifier: GPL-2.0-or-later
// The server's side of one vfio-user client: negotiates, answers commands from a Device, and sends
// DMA requests to the client. Never waits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "connection.h"
#include "protocol.h"
#include "recent_writes.h"

namespace pcilend::fabric {

// Names a REGION_READ that is still to be answered.
struct ReadTicket {
  Header header;
  RegionAccess access;
};

// What a session serves.
class Device {
 public:
  virtual ~Device() = default;

  // The client has negotiated; from here on it may send everything below.
  virtual void connected() = 0;

  // Sizes in bytes; 0: no such region. No such interrupt: 0.
  [[nodiscard]] virtual uint64_t region_size(uint32_t region) const = 0;
  [[nodiscard]] virtual uint32_t irq_count(uint32_t index) const = 0;

  // `fd` is empty when the client can't share the range. EEXIST if it overlaps one that is mapped.
  virtual Parsed<> dma_map(const DmaMap& map, UniqueFd fd) = 0;
  // Takes effect before it returns.
  virtual Parsed<> dma_unmap(const DmaUnmap& unmap) = 0;
  virtual Parsed<> set_irqs(const IrqRequest& request, std::vector<UniqueFd> fds) = 0;

  // The access lies inside the region. The device answers, now or later, exactly once, by
  // Session::complete_read; it may not answer after the session ended.
  virtual void region_read(const ReadTicket& ticket) = 0;
  virtual void region_write(const RegionAccess& access, std::span<const std::byte> data) = 0;

  virtual void reset() = 0;

  // The client refused a posted DMA_WRITE, with that message id.
  virtual void dma_write_failed(int error, uint16_t id) = 0;
};

// The data read (valid during the call), or the client's errno; ECANCELED when the session ended.
using DmaReadDone = std::function<void(Parsed<std::span<const std::byte>>)>;

class Session : private MessageHandler {
 public:
  // `socket`: connected, non-blocking. `device` outlives the session.
  Session(UniqueFd socket, Device& device);
  // Calls every outstanding DmaReadDone with ECANCELED.
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Connection& connection() { return connection_; }
  [[nodiscard]] const Connection& connection() const { return connection_; }
  [[nodiscard]] bool negotiated() const { return negotiated_; }

  void complete_read(const ReadTicket& ticket, std::span<const std::byte> data);

  // Posted write of at most kMaxTransfer bytes to the client's bus.
  void dma_write(uint64_t address, std::span<const std::byte> data, unsigned attempts = 1);
  [[nodiscard]] const RecentWrites& recent_writes() const { return recent_writes_; }
  // Read of at most kMaxDmaRead bytes; false if too many reads are unanswered already.
  bool dma_read(uint64_t address, uint64_t count, DmaReadDone done);
  [[nodiscard]] size_t unanswered_reads() const { return reads_.size(); }

 private:
  struct OutstandingRead {
    uint64_t count;
    DmaReadDone done;
  };

  bool on_message(Message& message) override;
  bool on_command(Message& message);
  void on_reply(const Message& message);
  void negotiate(const Message& message);
  void region_info(const Message& message);
  void irq_info(const Message& message);
  void region_read(const Message& message);
  void region_write(const Message& message);
  void acknowledge(const Header& header, const Parsed<>& result,
                   std::span<const std::byte> head = {});
  void refuse(const Header& header, int error);

  Device& device_;
  Connection connection_;
  bool negotiated_ = false;
  uint16_t next_id_ = 0;
  RecentWrites recent_writes_;
  // By message id. An entry stays until its reply comes, however late, so that no id is used twice.
  std::unordered_map<uint16_t, OutstandingRead> reads_;
};

}  // namespace pcilend::fabric
