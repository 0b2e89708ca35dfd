// SPDX-License-Identifier: GPL-2.0-or-later
// What the manager of a shared drive has of its lease besides registers and memory: its clients. By
// pcilend.ko, or made up in a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "manager/fence_record.h"
#include "pcilend/error.h"
#include "pcilend/ids.h"
#include "pcilend/nvme/device.h"
#include "pcilend/share.h"

namespace pcilend::nvme {

// Memory beside the function that a client of another host connects. It ends with this object.
class NearMemory {
 public:
  virtual ~NearMemory() = default;
  [[nodiscard]] virtual FunctionId segment() const = 0;
  // That the function reads it by; it can't write there.
  [[nodiscard]] virtual uint64_t address() const = 0;
  [[nodiscard]] virtual size_t bytes() const = 0;
};

// As the functions of Lease of these names are (lease.h).
class ManagerLease {
 public:
  virtual ~ManagerLease() = default;
  [[nodiscard]] virtual Result<uint32_t> node() = 0;  // of this host
  virtual Result<> share(const SharePolicy& policy) = 0;
  virtual Result<std::optional<ClientNotice>> next_client() = 0;
  virtual Result<> cleared(const ClientNotice& notice) = 0;
  virtual Result<std::optional<Mail>> next_mail() = 0;
  virtual Result<> send_mail(const Mail& mail) = 0;
  // Nodes that are fenced: kept until they are not, whatever becomes of this process and host.
  virtual Result<std::set<uint32_t>> fenced() = 0;
  virtual Result<> keep_fenced(const std::set<uint32_t>& nodes) = 0;
  // For processes of that node.
  virtual Result<std::unique_ptr<NearMemory>> make_near(uint32_t node, size_t bytes) = 0;
};

// A drive that is leased by this process, to be shared. Memory made by `lease`, and the device,
// must both be gone before it is returned.
struct SharedDrive {
  std::unique_ptr<ManagerLease> lease;
  std::unique_ptr<Device> device;
};
// `slice`: for the manager's own memory and all that is beside the function.
Result<SharedDrive> open_shared_drive(const ThisHost& host, FunctionId id, uint64_t slice,
                                      FenceRecord record);

}  // namespace pcilend::nvme
