// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/ids.h"

#include <gtest/gtest.h>

namespace pcilend {
namespace {

TEST(FunctionId, ReadsWhatItPrints) {
  for (const uint32_t value : {0x10001u, 0x40001u, 0x80002u, 0xc000au, 0xffffffffu}) {
    const auto id = parse_function_id(to_string(FunctionId{value}));
    ASSERT_TRUE(id) << id.error().message;
    EXPECT_EQ(id->value, value);
  }
  EXPECT_EQ(to_string(FunctionId{0xc000a}), "c000a");
  EXPECT_EQ(FunctionId{0xc000a}.node(), 12u);
}

TEST(FunctionId, RefusesOtherText) {
  for (const char* text :
       {"", "1", "ffff", "0x40001", "40001 ", " 40001", "-40001", "40001x", "140000001", "node4"}) {
    const auto id = parse_function_id(text);
    ASSERT_FALSE(id) << text;
    EXPECT_EQ(id.error().kind, ErrorClass::Usage);
  }
}

TEST(Uuid, ReadsWhatItPrints) {
  const char* const text = "70636c64-8899-8abb-8cdd-eeff00112233";
  const auto uuid = parse_uuid(text);
  ASSERT_TRUE(uuid) << uuid.error().message;
  EXPECT_EQ(to_string(*uuid), text);
  EXPECT_EQ(uuid->bytes[4], 0x88);
  EXPECT_TRUE(uuid->names_function());
  EXPECT_EQ(parse_uuid("70636C64-8899-8ABB-8CDD-EEFF00112233").value(), *uuid);
}

TEST(Uuid, OtherUuidsAreNotFunctions) {
  EXPECT_FALSE(parse_uuid("9c2c1b0a-8899-4abb-8cdd-eeff00112233")->names_function());
}

TEST(Uuid, RefusesOtherText) {
  for (const char* text :
       {"", "70636c64", "70636c64-8899-8abb-8cdd-eeff0011223",
        "70636c64-8899-8abb-8cdd-eeff001122334", "70636c6408899-8abb-8cdd-eeff001122330",
        "70636c64-8899-8abb-8cdd-eeff0011223g", "{0636c64-8899-8abb-8cdd-eeff0011223}",
        "70636c64-8899-8abb-8cdd- eff00112233"}) {
    EXPECT_FALSE(parse_uuid(text)) << text;
  }
}

TEST(PciAddress, ReadsBothForms) {
  EXPECT_EQ(to_string(parse_pci_address("00:05.0").value()), "0000:00:05.0");
  EXPECT_EQ(to_string(parse_pci_address("0:5.0").value()), "0000:00:05.0");
  EXPECT_EQ(to_string(parse_pci_address("0000:AF:1f.7").value()), "0000:af:1f.7");
  EXPECT_EQ(to_string(parse_pci_address("1e000:00:00.0").value()), "1e000:00:00.0");
}

TEST(PciAddress, RefusesOtherText) {
  for (const char* text : {"", "05.0", "00:05", "00:20.0", "00:05.8", "100:05.0", "0000:00:05.0 ",
                           "a:b:c:d.e", ":05.0", "00:.0", "00:05.", "0000::05.0", "-1:05.0"}) {
    const auto address = parse_pci_address(text);
    ASSERT_FALSE(address) << text;
    EXPECT_EQ(address.error().kind, ErrorClass::Usage);
  }
}

TEST(NodeId, IsADecimalNumber) {
  EXPECT_EQ(parse_node_id("8").value(), 8u);
  EXPECT_EQ(parse_node_id("65535").value(), 65535u);
  for (const char* text : {"", "0", "65536", "-1", "0x8", "8a", "host2", "99999999999"})
    EXPECT_FALSE(parse_node_id(text)) << text;
}

TEST(Ids, PlacesOfBorrowedFunctions) {
  EXPECT_EQ(to_string(place_of(FunctionId{0x40001}).value()), "8004:01:00.0");
  EXPECT_EQ(place_of(FunctionId{0x40100}), std::nullopt);
  EXPECT_EQ(place_of(FunctionId{0x80000001}), std::nullopt);
  const auto at = [](const char* place) { return function_at(parse_pci_address(place).value()); };
  EXPECT_EQ(at("8004:01:00.0"), FunctionId{0x40001});
  EXPECT_EQ(at("ffff:ff:00.0"), FunctionId{0x7fff00ff});
  for (const char* none : {"0004:01:00.0", "8000:01:00.0", "8004:00:00.0", "8004:01:01.0",
                           "8004:01:00.1", "1e000:00:00.0"})
    EXPECT_EQ(at(none), std::nullopt) << none;
}

}  // namespace
}  // namespace pcilend
