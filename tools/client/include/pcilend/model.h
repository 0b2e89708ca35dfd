// SPDX-License-Identifier: GPL-2.0-or-later
// What pcilend.ko tells about nodes, links and functions (lending-core/netlink/pcilend.yaml).
#pragma once

#include <linux/pcilend.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/ids.h"
#include "pcilend/lease_info.h"
#include "pcilend/segment_info.h"

namespace pcilend {

// This host.
struct Node {
  uint32_t id = 0;       // 0: none was given to the module, and links are refused
  uint64_t boot_id = 0;  // new at every load of the module
  uint32_t abi = 0;      // version of the protocol between hosts
};

// A memory window of an adapter.
struct Window {
  uint32_t index = 0;
  uint64_t size = 0;           // bytes that this host sees of the peer
  uint64_t size_max = 0;       // of an inbound translation; 0: not known
  uint64_t address_align = 0;  // of an inbound translation
  uint64_t size_align = 0;
};

// A range of this host's aperture.
struct Region {
  uint32_t kind = PCILEND_REGION_DMA;
  uint64_t iova = 0;
  uint64_t size = 0;             // bytes
  uint32_t window = 0;           // of the peer's windows, the one that reaches it
  std::optional<uint64_t> used;  // bytes; of exports and slots
};

// One NTB adapter of this host and the peer behind it.
struct Link {
  uint32_t index = 0;
  std::string adapter;  // PCI address of the NTB
  std::string driver;   // the NTB's hardware driver
  uint32_t state = PCILEND_LINK_DOWN;
  std::string reason;  // why it is refused, and the cure
  std::optional<uint32_t> peer;
  std::optional<uint64_t> peer_boot_id;
  bool connected = false;       // this host offers its functions to the peer
  bool peer_connected = false;  // the peer offers its functions to this host
  uint64_t tx_messages = 0;
  uint64_t rx_messages = 0;
  uint64_t bad_messages = 0;
  uint64_t timeouts = 0;
  uint64_t export_bytes = 0;         // local BARs the peer can reach
  uint64_t slot_bytes = 0;           // guest memory the peer can reach
  std::optional<uint32_t> lease_ms;  // silence that ends the leases of this host
  std::vector<Window> windows;
  std::vector<Region> regions;        // once planned
  std::vector<std::string> degraded;  // what the windows are too small for, and the cure
  std::optional<uint64_t> hole;       // start of this host's lowest PCI hole
  std::optional<uint64_t> peer_hole;
  uint64_t downs = 0;              // times the link was lost
  std::optional<uint32_t> pinned;  // the only node that is let in
  std::optional<uint32_t> leases;  // functions borrowed and lent over it
  bool direct = false;             // no IOMMU: the peer reaches all memory of this host
  // Of the adapter's table of those who may send through it; absent: all may.
  std::optional<uint32_t> requesters;       // entries
  std::optional<uint32_t> requesters_used;  // by the driver, lent functions, others
  std::optional<uint32_t> requesters_lent;
};

// Another function of a function's IOMMU group.
struct Member {
  std::string bdf;
  std::optional<FunctionId> id;  // absent unless added
  uint32_t state = PCILEND_FUNCTION_LOCAL;
};

// Who shares a function with its borrower.
struct ShareClient {
  uint32_t lease = 0;
  uint32_t node = 0;
  uint32_t state = PCILEND_CLIENT_NONE;
};

// A PCIe function that this host, or a peer, lends.
struct Function {
  FunctionId id;
  Uuid uuid;
  uint32_t lender = 0;  // node id
  std::string bdf;      // address on the lender
  uint32_t state = PCILEND_FUNCTION_LOCAL;
  uint16_t vendor = 0;
  uint16_t device = 0;
  uint16_t subsystem_vendor = 0;
  uint16_t subsystem_device = 0;
  uint32_t class_revision = 0;  // class << 8 | revision, as in config space 0x08
  std::optional<uint32_t> borrower;
  std::optional<uint32_t> lease;
  std::string frontend;         // on the borrower
  std::string owner;            // on the borrower
  std::string virtual_address;  // PCI address of the virtual function on this host
  std::string reason;           // why quarantined
  std::string driver;           // bound on the lender
  std::vector<Bar> bars;
  std::optional<uint64_t> guest_bytes;  // what its user of VFIO has mapped
  std::optional<uint32_t> resets;
  std::optional<uint64_t> faults;
  std::string label;                             // whose function it is
  std::optional<std::vector<uint32_t>> allowed;  // nodes that see it; absent: all connected ones
  std::optional<uint32_t> reserved_node;
  std::optional<Uuid> reserved_uuid;      // of a domain
  std::optional<uint32_t> reserved_ms;    // for how long still; on the lender
  std::optional<uint32_t> lease_ms;       // silence that ends the lease; on the lender
  std::optional<uint32_t> lease_left_ms;  // until silence ends it; on the lender
  std::optional<uint32_t> recall_ms;      // until its lender takes it back
  std::optional<uint32_t> group;          // IOMMU group; on others only if lent as a set
  std::vector<Member> members;            // the others in it; on the lender
  std::string adapter;                    // NTB that the lease goes over; empty without one
  std::vector<std::string> paths;         // NTBs it can be reached over; on the borrower
  std::vector<uint32_t> reaches;          // ids of those whose BARs it reaches; on the borrower
  bool direct = false;                    // no IOMMU: it reaches all memory of its lender
  bool relayed = false;                   // its lender relays its MSI
  bool sanitize = false;                  // erased after each lease; on the lender, as the next
  bool dirty = false;                     // it was not, since the last one
  std::optional<uint64_t> near;           // bytes of its lender's memory that its borrower may have
  uint64_t near_used = 0;                 // what it has of these; both on the lender
  bool shared = false;                    // its borrower is its manager, and admits clients
  std::vector<ShareClient> clients;       // on the lender
};

// How a function is lent.
struct Lend {
  bool direct = false;           // without an IOMMU between it and this host's memory
  bool sanitize = false;         // it is quarantined after each lease, until it was erased
  bool sanitized = false;        // that was done
  std::optional<uint64_t> near;  // bytes of this host's memory that its borrower may have
};

// For whom a function is reserved; for nobody: the reservation ends.
struct Reservation {
  std::optional<uint32_t> node;
  std::optional<Uuid> uuid;  // of a domain
  uint32_t ttl_ms = 0;
};

// Counts since pcilend.ko was loaded.
struct Counters {
  uint64_t granted = 0;   // leases, to borrowers
  uint64_t returned = 0;  // by borrowers
  uint64_t expired = 0;
  uint64_t revoked = 0;  // by this host
  uint64_t refused = 0;  // requests of borrowers
  uint64_t resets = 0;
  uint64_t reset_failures = 0;
  uint64_t faults = 0;     // DMA faults of lent functions
  uint64_t borrowed = 0;   // by this host
  uint64_t lost = 0;       // leases of this host that ended without its doing
  uint64_t relayed = 0;    // interrupts
  uint64_t strangers = 0;  // peers refused, as their node is known elsewhere
};

// Who changed what, or was refused.
struct Audit {
  uint64_t time_ns = 0;          // since 1970
  std::optional<uint32_t> uid;   // of this host, or else
  std::optional<uint32_t> node;  // that asked
  std::string action;
  std::optional<FunctionId> function;
  std::optional<uint32_t> target_node;
  int32_t result = 0;                // 0 or a negative errno
  std::optional<FunctionId> target;  // that `function` is to reach, or no longer
};

// A change that the kernel announces: of its kind's things one is there.
struct Event {
  uint32_t kind = 0;  // enum pcilend_event
  std::optional<Link> link;
  std::optional<Function> function;
  std::optional<Audit> audit;
  std::optional<Segment> segment;  // with what has changed only
};

// One word, as listings print them; "unknown" for a state newer than this program.
std::string_view client_state_name(uint32_t state);  // "active"
std::string_view function_state_name(uint32_t state);
std::string_view link_state_name(uint32_t state);
std::string_view region_kind_name(uint32_t kind);
std::string_view event_name(uint32_t kind);

}  // namespace pcilend
