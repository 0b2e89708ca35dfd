// SPDX-License-Identifier: GPL-2.0-or-later
// What guests have written to a drive, and so what may be read from it: a write that was
// acknowledged is there, a read that succeeds gives what was written. Everything else is an error
// of the drive, which a fault may cause, or corruption, which nothing may.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/result.h"

namespace pcilend::scenarios {

class Ledger {
 public:
  static constexpr int kSlots = 4096;       // of a drive of 64 MiB
  static constexpr int kSlotBytes = 16384;  // one command (decision 0004)

  // A run of writes begins: any of its slots may change from now on, whether we are told or not.
  // Returns the first.
  int begin_run(int slots);
  // One line of the scripts below. Failure if a read that succeeded gave what was never written.
  Result<> note(std::string_view line);
  // Whole lines.
  Result<> note_all(std::string_view lines);

  [[nodiscard]] int writes() const { return writes_; }    // acknowledged, all runs
  [[nodiscard]] int errors() const { return errors_; }    // commands that failed, all runs
  [[nodiscard]] int checked() const { return checked_; }  // reads compared, all runs
  // Up to `most` slots of known content, those written last first.
  [[nodiscard]] std::vector<int> latest(size_t most) const;

 private:
  struct Content {
    std::string sum;
    int written;  // the how-manieth write it was
  };

  std::map<int, Content> known_;
  int next_ = 0;
  int writes_ = 0;
  int errors_ = 0;
  int checked_ = 0;
};

// Shell of the guest. One line for each command, with its slot; direct I/O to the device that was
// opened at the start, whatever has that name later.
//
// Writes slots one after the other, and reads back the one before; ends at the first error, after
// the last slot, or when /tmp/stop is there.
std::string write_script(int first, int slots);
// Reads slots; an error ends nothing.
std::string read_script(const std::vector<int>& slots);

}  // namespace pcilend::scenarios
