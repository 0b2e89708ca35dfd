// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/identity.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using Bytes = std::array<u8, 16>;

std::string Hex(const Bytes& bytes) {
  std::string text;
  for (const u8 byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  return text;
}

std::string IdText(u32 id) {
  char text[PCILEND_ID_TEXT_BYTES];
  return pcilend_id_format(id, text);
}

std::string UuidText(const Bytes& uuid) {
  char text[PCILEND_UUID_TEXT_BYTES];
  return pcilend_uuid_format(uuid.data(), text);
}

Bytes Make(const pcilend_identity& identity) {
  Bytes uuid;
  pcilend_uuid_make(uuid.data(), &identity);
  return uuid;
}

pcilend_identity Nvme() {
  pcilend_identity identity = {};
  identity.vendor = 0x1b36;
  identity.device = 0x0010;
  identity.subsystem_vendor = 0x1af4;
  identity.subsystem_device = 0x1100;
  identity.class_code = 0x010802;
  identity.lender = 4;
  identity.devfn = 0x28;
  return identity;
}

TEST(Id, PciPlace) {
  u32 domain = 0;
  u8 bus = 0;
  EXPECT_TRUE(pcilend_pci_place(0x40001, &domain, &bus));
  EXPECT_EQ(domain, 0x8004u);
  EXPECT_EQ(bus, 1);
  EXPECT_TRUE(pcilend_pci_place(0x7fff00ff, &domain, &bus));
  EXPECT_EQ(domain, 0xffffu);
  EXPECT_EQ(bus, 0xff);
  EXPECT_FALSE(pcilend_pci_place(0x80000001, &domain, &bus)) << "domains have 16 bits";
  EXPECT_FALSE(pcilend_pci_place(0x40100, &domain, &bus)) << "buses have 8 bits";
  EXPECT_EQ(domain, 0xffffu) << "untouched";
}

TEST(Id, Parts) {
  const u32 id = pcilend_id(4, 1);
  EXPECT_EQ(id, 0x40001u);
  EXPECT_EQ(pcilend_id_node(id), 4);
  EXPECT_EQ(pcilend_id_index(id), 1);
  EXPECT_TRUE(pcilend_id_valid(id));
  EXPECT_FALSE(pcilend_id_valid(0x40000));
  EXPECT_FALSE(pcilend_id_valid(1));
  EXPECT_FALSE(pcilend_id_valid(0));
}

TEST(Id, Text) {
  EXPECT_EQ(IdText(0x40001), "40001");
  EXPECT_EQ(IdText(0xffffffff), "ffffffff");
  EXPECT_EQ(IdText(0xa0bcd), "a0bcd");
  EXPECT_EQ(IdText(0), "0");
}

TEST(Id, ParseTakesWhatFormatMakes) {
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    u32 id = random() >> (random() % 16);
    if (!pcilend_id_valid(id)) continue;
    u32 parsed = 0;
    ASSERT_EQ(pcilend_id_parse(IdText(id).c_str(), &parsed), 0) << IdText(id);
    ASSERT_EQ(parsed, id);
  }
}

TEST(Id, ParseRefusesAllElse) {
  for (const char* text :
       {"", "0", "1", "10000", "040001", "0x40001", "4000A", "40001 ", " 40001", "40001\n", "-1",
        "4000g", "400010000", "fffffffff", "ffff0000", "100000000", "40001.1", "4:1"}) {
    u32 id = 7;
    EXPECT_EQ(pcilend_id_parse(text, &id), -EINVAL) << text;
    EXPECT_EQ(id, 7u) << text;
  }
}

// Reference vectors of SipHash-2-4 with 128-bit output: key 00..0f, message 00..(n-1).
TEST(SipHash, ReferenceVectors) {
  const std::vector<std::string> vectors = {
      "a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45",
      "8177228da4a45dc7fca38bdef60affe4", "9c70b60c5267a94e5f33b6b02985ed51",
      "f88164c12d9c8faf7d0f6e7c7bcd5579", "1368875980776f8854527a07690e9627",
      "14eeca338b208613485ea0308fd7a15e", "a1f1ebbed8dbc153c0b84aa61ff08239",
      "3b62a9ba6258f5610f83e264f31497b4"};
  Bytes key;
  for (u8 i = 0; i < 16; ++i) key[i] = i;
  std::vector<u8> message;
  for (const std::string& expected : vectors) {
    Bytes hash;
    pcilend_siphash128(key.data(), message.data(), message.size(), hash.data());
    EXPECT_EQ(Hex(hash), expected) << "length " << message.size();
    message.push_back(static_cast<u8>(message.size()));
  }
}

// These are in people's domain XML: they must never change.
TEST(Uuid, NeverChanges) {
  pcilend_identity identity = Nvme();
  EXPECT_EQ(UuidText(Make(identity)), "70636c64-291d-8c66-af46-57ee902d2847");
  identity.serial = 0x525400ffff123456;
  EXPECT_EQ(UuidText(Make(identity)), "70636c64-524d-88c7-914b-2f007fbf9f16");
}

TEST(Uuid, FormIsVersion8WithOurPrefix) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1000; ++i) {
    pcilend_identity identity = Nvme();
    identity.serial = random();
    const Bytes uuid = Make(identity);
    EXPECT_TRUE(pcilend_uuid_is_ours(uuid.data()));
    const std::string text = UuidText(uuid);
    EXPECT_EQ(text.substr(0, 9), "70636c64-");
    EXPECT_EQ(text[14], '8');
    EXPECT_NE(std::string("89ab").find(text[19]), std::string::npos);
  }
}

TEST(Uuid, EveryPartOfTheIdentityCounts) {
  const std::vector<std::function<void(pcilend_identity&)>> changes = {
      [](auto& i) { i.vendor++; },           [](auto& i) { i.device++; },
      [](auto& i) { i.subsystem_vendor++; }, [](auto& i) { i.subsystem_device++; },
      [](auto& i) { i.class_code++; },       [](auto& i) { i.lender++; },
      [](auto& i) { i.serial++; },
  };
  const std::vector<std::function<void(pcilend_identity&)>> places = {
      [](auto& i) { i.segment++; }, [](auto& i) { i.bus++; }, [](auto& i) { i.devfn++; }};
  pcilend_identity with_serial = Nvme();
  with_serial.serial = 99;
  std::set<std::string> seen = {UuidText(Make(Nvme())), UuidText(Make(with_serial))};
  for (const auto& change : changes) {
    pcilend_identity identity = Nvme();
    change(identity);
    EXPECT_TRUE(seen.insert(UuidText(Make(identity))).second);
  }
  for (const auto& change : places) {
    pcilend_identity identity = Nvme();
    change(identity);
    EXPECT_TRUE(seen.insert(UuidText(Make(identity))).second) << "place counts without serial";
    identity.serial = 99;
    EXPECT_EQ(Make(identity), Make(with_serial)) << "place doesn't count with a serial";
  }
  pcilend_identity function = with_serial;
  function.function = 1;
  EXPECT_TRUE(seen.insert(UuidText(Make(function))).second) << "functions of one device";
  pcilend_identity revision = Nvme();
  revision.class_code |= 0xff000000;
  EXPECT_EQ(Make(revision), Make(Nvme())) << "only 24 bits of the class count";
}

TEST(Uuid, TextRoundTrip) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 10000; ++i) {
    Bytes uuid;
    for (u8& byte : uuid) byte = static_cast<u8>(random());
    std::string text = UuidText(uuid);
    Bytes parsed = {};
    ASSERT_EQ(pcilend_uuid_parse(text.c_str(), parsed.data()), 0);
    ASSERT_EQ(parsed, uuid);
    for (char& c : text) c = static_cast<char>(std::toupper(c));
    ASSERT_EQ(pcilend_uuid_parse(text.c_str(), parsed.data()), 0);
    ASSERT_EQ(parsed, uuid);
  }
}

TEST(Uuid, ParseRefusesAllElse) {
  const std::string good = "70636c64-0123-8456-89ab-cdef01234567";
  Bytes uuid = {};
  ASSERT_EQ(pcilend_uuid_parse(good.c_str(), uuid.data()), 0);
  const Bytes before = uuid;
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(pcilend_uuid_parse(good.substr(0, length).c_str(), uuid.data()), -EINVAL) << length;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = bad[at] == '-' ? '0' : '-';
    EXPECT_EQ(pcilend_uuid_parse(bad.c_str(), uuid.data()), -EINVAL) << bad;
    bad[at] = 'g';
    EXPECT_EQ(pcilend_uuid_parse(bad.c_str(), uuid.data()), -EINVAL) << bad;
  }
  EXPECT_EQ(pcilend_uuid_parse((good + "0").c_str(), uuid.data()), -EINVAL);
  EXPECT_EQ(pcilend_uuid_parse(("{" + good + "}").c_str(), uuid.data()), -EINVAL);
  EXPECT_EQ(uuid, before);
}

TEST(Uuid, OthersAreNotOurs) {
  const Bytes ours = Make(Nvme());
  for (int i = 0; i < 4; ++i) {
    Bytes uuid = ours;
    uuid[i] ^= 1;
    EXPECT_FALSE(pcilend_uuid_is_ours(uuid.data()));
  }
  Bytes uuid = ours;
  uuid[6] = 0x40 | (uuid[6] & 0xf);
  EXPECT_FALSE(pcilend_uuid_is_ours(uuid.data())) << "version 4";
  uuid = ours;
  uuid[8] |= 0x40;
  EXPECT_FALSE(pcilend_uuid_is_ours(uuid.data())) << "other variant";
}

}  // namespace
