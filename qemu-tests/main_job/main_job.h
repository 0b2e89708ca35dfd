// SPDX-License-Identifier: GPL-2.0-or-later
// The main job, in the steps an admin takes: a drive of the lender goes to a guest of the borrower
// and comes back. The demo shows it; the scenarios are made of its parts.
#pragma once

#include <optional>
#include <string>

#include "lab/fabric_client.h"
#include "lab/host.h"
#include "pcilend/result.h"

namespace pcilend::scenarios {

// What one host's kernel has spent on a borrowed function: nothing, while the guest does I/O.
struct LenderEffort {
  uint64_t messages = 0;    // control messages sent and received
  uint64_t interrupts = 0;  // taken from the adapter and from the lent function
};

// A drive that its borrower's own driver has.
struct BorrowedDrive {
  std::string address;     // of the virtual function
  std::string disk;        // /dev/nvme1n1
  std::string controller;  // nvme1
};

class MainJob {
 public:
  static constexpr int kFiles = 2;        // of 1 MiB each, written by the lender
  static constexpr int kGuestFiles = 2;   // written by the guest
  static constexpr int kGuestBlocks = 8;  // of 16 KiB, in each

  // `address`: of an NVMe drive on the lender, in the hands of its nvme driver.
  MainJob(lab::Host& lender, lab::Host& borrower, std::string address, std::string guest_name);

  // The lender puts a file system with files of known checksums on the drive.
  Result<> fill_drive();
  // Waits until the lender's own driver has it: /dev/nvme0n1.
  [[nodiscard]] Result<std::string> lender_disk() const;
  // connect, add, available with these options.
  Result<> lend(const std::string& options = {});
  // The borrower sees it as available.
  Result<> see_available();
  // For the borrower itself.
  [[nodiscard]] Result<BorrowedDrive> borrow() const;
  // The same; reads from it, and returns it.
  [[nodiscard]] Result<> borrow_and_use() const;
  // define and start: returns when virsh does.
  Result<> start_guest(lab::Hostdev kind = lab::Hostdev::Pci);
  // Waits for the drive in the guest; checks all files.
  Result<> read_in_guest();
  Result<> write_in_guest();
  Result<> shut_down_guest();
  // unavailable; the lender's own driver binds; what the guest wrote is there.
  Result<> take_back();

  // Undoes what was begun, whatever state it is in; for scenarios that share hosts.
  Result<> clean_up();

  [[nodiscard]] Result<LenderEffort> lender_effort() const;
  // Commands the guest's drive has completed: reads and writes.
  [[nodiscard]] Result<uint64_t> guest_commands() const;

  [[nodiscard]] lab::Host& lender() const { return lender_; }
  [[nodiscard]] lab::Host& borrower() const { return borrower_; }
  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] lab::Guest& guest() { return *guest_; }
  [[nodiscard]] Result<nlohmann::json> function_on(const lab::Host& host) const;
  // Waits until `host` lists the function in that state.
  Result<> await_state(const lab::Host& host, const std::string& state,
                       std::chrono::milliseconds within = lab::kPatience) const;
  // The guest is up and its nvme driver has made the disk.
  Result<> await_guest_disk();
  static Result<> await_disk(const lab::Guest& guest);
  // Another one after each boot.
  static Result<std::string> boot_id(const lab::Guest& guest);
  static Result<> await_next_boot(const lab::Guest& guest, const std::string& boot_id);
  // Writes to the drive of a guest, reads, and compares.
  static constexpr const char* kUseDisk =
      "dd if=/dev/urandom of=/tmp/x bs=16k count=4 2>/dev/null && "
      "dd if=/tmp/x of=/dev/nvme0n1 bs=16k oflag=direct 2>/dev/null && "
      "dd if=/dev/nvme0n1 of=/tmp/y bs=16k count=4 iflag=direct 2>/dev/null && cmp /tmp/x /tmp/y";
  // A second guest of the borrower, with the same function.
  Result<lab::Guest> another_guest(const std::string& name) const;

 private:
  lab::Host& lender_;
  lab::Host& borrower_;
  std::string address_;
  std::string guest_name_;
  std::string id_;
  std::optional<lab::Guest> guest_;
};

}  // namespace pcilend::scenarios
