// SPDX-License-Identifier: GPL-2.0-or-later
// Where the bench has its commands and data, if not where the drive's device has them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "pcilend/nvme/elsewhere.h"

namespace pcilend::nvme {

struct PlacementWish {
  std::string queues;  // parse_elsewhere(); empty: as the device has it
  std::string data;
  size_t queue_bytes = 0;
  size_t data_bytes = 0;
  // Behind data elsewhere, as a CPU is to look at that when they have come; 0: not there.
  size_t completion_bytes = 0;
};

// Ends with its leases. The device must outlive it.
class Placement {
 public:
  // Leases the functions for `owner`, each once. Errors are those of Lease::borrow() and Elsewhere.
  static Result<std::unique_ptr<Placement>> make(const ThisHost& host, Device& device,
                                                 std::string_view owner, const PlacementWish& wish);

  // That the queues are of.
  [[nodiscard]] Device& device() const { return *placed_; }
  // NULL: not elsewhere.
  [[nodiscard]] Memory* data() const { return data_.get(); }

 private:
  Placement() = default;

  Result<std::unique_ptr<Elsewhere>> open(const ThisHost& host, Device& device,
                                          std::string_view owner, const std::string& where,
                                          size_t bytes);

  std::map<uint32_t, std::shared_ptr<Lease>> leases_;  // by id
  std::unique_ptr<Elsewhere> queues_;
  std::unique_ptr<Elsewhere> data_;
  std::unique_ptr<Device> placed_;
};

}  // namespace pcilend::nvme
