// SPDX-License-Identifier: GPL-2.0-or-later
// What commands return: data, which the printers turn into text or JSON.
#pragma once

#include <chrono>
#include <string>
#include <variant>
#include <vector>

#include "disk/record.h"
#include "made_devices.h"
#include "pcilend/model.h"
#include "policy_answer.h"

namespace pcilend {

enum class Detail { Line, Full };

struct FunctionsAnswer {
  std::vector<Function> functions;
  uint32_t this_node = 0;
  Detail detail = Detail::Line;
};

// A function that was borrowed for this host's own drivers, and what they made of it.
struct AppearedAnswer {
  Function function;
  uint32_t this_node = 0;
  MadeDevices devices;
};

struct LinksAnswer {
  std::vector<Link> links;
  Detail detail = Detail::Line;
};

// Functions to be passed to a VM: as PCI devices at their places, or as mediated devices.
struct HostdevsAnswer {
  std::vector<Function> functions;
  bool mdev = false;
};

// Configuration spaces, 256 or 4096 bytes each.
struct ConfigAnswer {
  struct Entry {
    Function function;
    std::vector<uint8_t> bytes;
  };
  std::vector<Entry> entries;
  bool emulated = false;
  bool hex = false;  // all bytes too
};

struct SegmentsAnswer {
  std::vector<Segment> segments;
};

// Disks of leased drives.
struct DisksAnswer {
  std::vector<nvme::DiskRecord> disks;
};

struct StatusAnswer {
  Node node;
  std::vector<Link> links;
  std::vector<Function> functions;
  std::vector<std::string> ignored;  // adapters whose links may be down
};

// Functions that this host borrows, or lends and can't have back yet, and its disks of leased
// drives: of clients of a shared one the kernel knows no borrower.
struct InUseAnswer {
  std::vector<Function> functions;
  std::vector<nvme::DiskRecord> disks;
  uint32_t this_node = 0;
};

struct MetricsAnswer {
  Node node;
  std::vector<Link> links;
  std::vector<Function> functions;
  std::vector<Segment> segments;
  Counters counters;
};

// One thing that was looked at.
struct Finding {
  enum class Level { Ok, Note, Wrong };

  Level level = Level::Ok;
  std::string subject;
  std::string text;
  std::string cure;  // of what is wrong
};

struct CheckAnswer {
  std::vector<Finding> findings;
};

// What two hosts have found out about the adapters between them.
struct HwtestAnswer {
  struct Measure {
    std::string what;
    double value = 0;
    std::string unit;
  };

  Link link;
  uint32_t node = 0;
  std::string command;  // to be run on that node; empty in a report
  std::vector<Measure> measures;
  std::vector<Finding> findings;
};

using WallTime = std::chrono::system_clock::time_point;

struct EventAnswer {
  WallTime time;
  uint32_t this_node = 0;
  Event event;
};

// All that events tell about, at one time.
struct SnapshotAnswer {
  WallTime time;
  uint32_t this_node = 0;
  bool lost = false;  // events before it were
  std::vector<Link> links;
  std::vector<Function> functions;
  std::vector<Segment> segments;
};

// It is done, and that is all there is to say.
struct NothingAnswer {};

// All was printed while the command went on.
struct EmittedAnswer {};

using Answer =
    std::variant<NothingAnswer, EmittedAnswer, FunctionsAnswer, AppearedAnswer, LinksAnswer, Node,
                 HostdevsAnswer, ConfigAnswer, SegmentsAnswer, DisksAnswer, StatusAnswer,
                 InUseAnswer, MetricsAnswer, CheckAnswer, HwtestAnswer, EventAnswer, SnapshotAnswer,
                 RestoreAnswer, FiltersAnswer, KindsAnswer, SavedAnswer>;

// Exit status of a command that did what it was asked to, but found something to be seen to.
inline constexpr int kNeedsAttention = 8;

// The exit status of the command that returned the answer.
int exit_status(const Answer& answer);

}  // namespace pcilend
