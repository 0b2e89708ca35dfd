// SPDX-License-Identifier: GPL-2.0-or-later
// What is known of segments, and how one is connected.
#pragma once

#include <linux/pcilend.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/api.h"
#include "pcilend/ids.h"

namespace pcilend {

// A node that may connect a segment, or has it still.
struct SegmentOffer {
  uint32_t node = 0;
  std::string adapter;  // PCI address of the NTB that leads there
  bool read_only = false;
  bool withdrawn = false;  // it reaches nothing any more, but has not confirmed that
  uint32_t connections = 0;
};

// Memory that hosts share: of this host, or of a peer that offers it to this one.
struct Segment {
  FunctionId id;  // made as those of functions are: its owner's node, and an index
  std::string name;
  uint64_t size = 0;                         // bytes
  uint32_t state = PCILEND_SEGMENT_CREATED;  // enum pcilend_segment_state
  std::vector<SegmentOffer> offers;          // of this host's
  std::string adapter;                       // that leads to its owner; empty: it is this host's
  bool read_only = false;                    // it is connected, or offered to this host, so
  bool write_combining = false;              // it is connected so
};

// How a segment is connected.
struct ConnectOptions {
  bool read_only = false;        // stores are refused by this host
  bool write_combining = false;  // else uncached
  std::string adapter;           // PCI address; else any over which it is offered
};

// One word, as listings print it; "unknown" for a state newer than this library.
PCILEND_API std::string_view segment_state_name(uint32_t state);

}  // namespace pcilend
