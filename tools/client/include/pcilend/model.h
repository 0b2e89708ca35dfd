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

namespace pcilend {

// This host.
struct Node {
  uint32_t id = 0;       // 0: none was given to the module, and links are refused
  uint64_t boot_id = 0;  // new at every load of the module
  uint32_t abi = 0;      // version of the protocol between hosts
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
  uint64_t export_bytes = 0;  // local BARs the peer can reach
  uint64_t slot_bytes = 0;    // guest memory the peer can reach
};

struct Bar {
  uint32_t index = 0;  // 0 to 5, 6 = expansion ROM
  uint64_t size = 0;   // bytes
  uint32_t flags = 0;  // kBar*
};

// PCILEND_BAR_* of the wire protocol.
inline constexpr uint32_t kBarMem64 = 0x01;
inline constexpr uint32_t kBarPrefetch = 0x02;
inline constexpr uint32_t kBarIo = 0x04;

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
  std::optional<uint64_t> guest_bytes;
  std::optional<uint64_t> guest_map_us;
  std::optional<uint32_t> resets;
  std::optional<uint64_t> faults;
  std::string label;                             // whose function it is
  std::optional<std::vector<uint32_t>> allowed;  // nodes that see it; absent: all connected ones
};

// One word, as listings print them; "unknown" for a state newer than this program.
std::string_view function_state_name(uint32_t state);
std::string_view link_state_name(uint32_t state);

}  // namespace pcilend
