// SPDX-License-Identifier: GPL-2.0-or-later
// A drive as its user has it, whether it has the drive alone or shares it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/nvme/client_name.h"
#include "pcilend/nvme/device.h"
#include "pcilend/nvme/drive_event.h"
#include "pcilend/nvme/identify.h"
#include "pcilend/nvme/queues.h"

namespace pcilend::nvme {

// How a drive is shared.
struct JoinOptions {
  uint64_t slice = Lease::kSlice;  // memory that can be mapped for it at once
  bool interrupt = false;          // one, for vector(); on another host than the drive's it may be
                                   // refused
  uint64_t key = 0;     // who has it may clear() this one: at random, and another one for
                        // each join; 0: nobody
  std::string adapter;  // that it goes over; empty: one is chosen
  std::chrono::milliseconds patience = std::chrono::seconds(30);  // for each answer
};

// Where what a drive only reads is, commands for instance, as long as there is room; else it is in
// the host of its user.
enum class DrivePlace {
  Near,  // in the host of the drive
  Own,   // in memory of its own (Controller::open_memory())
  Far,   // in the host of its user
};

// I/O goes by queue pairs of device() and queues() (queue_pair.h), which this must outlive, as it
// must all memory that was allocated. For one thread at a time.
class Drive {
 public:
  // All of it: leased for this process, reset and enabled. The errors are those of open_leased()
  // and Controller::start(). What the drive only reads is beside it, unless `place` says otherwise.
  static Result<std::unique_ptr<Drive>> open_alone(const ThisHost& host, FunctionId id,
                                                   std::string_view owner,
                                                   uint64_t slice = Lease::kSlice,
                                                   DrivePlace place = DrivePlace::Near);
  // A part of it, that its manager gives (pcilend-nvme-manager(8)), beside those of others. The
  // errors are those of Lease::join(); Unreachable if the manager does not answer, State if it does
  // not let this in (now). Memory that the drive only reads, and this process only writes, is
  // beside the drive while there is room (Access), so that neither waits for the NTB.
  static Result<std::unique_ptr<Drive>> join(const ThisHost& host, FunctionId id,
                                             std::string_view owner,
                                             const JoinOptions& options = {});
  virtual ~Drive() = default;

  [[nodiscard]] virtual Device& device() = 0;
  [[nodiscard]] virtual Queues& queues() = 0;
  [[nodiscard]] virtual const ControllerInfo& info() const = 0;
  // The first 1,024 of them.
  [[nodiscard]] virtual Result<std::vector<uint32_t>> namespaces() = 0;
  [[nodiscard]] virtual Result<NamespaceInfo> name_space(uint32_t id) = 0;
  [[nodiscard]] virtual Result<Health> health() = 0;
  // Which namespaces have changed, come or gone since this was asked last, or since it was opened:
  // for name_space() to be asked anew. Of a shared drive its manager is asked, who knows it from
  // the drive; nothing comes by itself.
  [[nodiscard]] virtual Result<NamespaceChanges> changes() = 0;
  // An interrupt that a queue pair may have; nothing if none reach this process.
  [[nodiscard]] virtual std::optional<uint16_t> vector() const = 0;
  // It was reset by others, taken back, its link was lost, or its manager has cleared it: nothing
  // can be submitted any more, and what was under way may be done or not. Destroy it and open it
  // again. A write may be repeated when clear() of this one, by the new one, has succeeded.
  [[nodiscard]] virtual bool lost() const = 0;
  // As what its manager knows this one.
  [[nodiscard]] virtual ClientName client() const { return {}; }
  // Has the queues deleted of another client of it: once this returns, nothing of what that one had
  // under way is done any more. Any thread may ask.
  // Unsupported if it is not shared; Unreachable if the manager does not answer: then nothing is
  // known.
  virtual Result<> clear(const ClientName& client);
  // It is given up, whatever the manager says: queues that are removed afterwards wait for nobody,
  // and memory stays where it is until the manager has confirmed. No-op if it is not shared.
  virtual void leave() {}
};

}  // namespace pcilend::nvme
