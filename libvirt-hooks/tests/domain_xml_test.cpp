// SPDX-License-Identifier: GPL-2.0-or-later
#include "domain_xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace pcilend {
namespace {

using ::testing::HasSubstr;

std::string testdata(const std::string& name) {
  std::ifstream file(std::string(PCILEND_TESTDATA_DIR) + "/" + name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

// A domain around `devices`.
std::string domain_with(const std::string& devices) {
  return "<domain type='kvm'><name>g</name><uuid>2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01</uuid>"
         "<devices>" +
         devices + "</devices></domain>";
}

std::string hostdev(const std::string& type, const std::string& uuid) {
  return "<hostdev mode='subsystem' type='" + type + "'><source><address uuid='" + uuid +
         "'/></source></hostdev>";
}

constexpr const char* kOurs = "70636c64-0000-8000-8000-000000000001";
constexpr const char* kForeign = "9c2c1b0a-8899-4abb-8cdd-eeff00112233";

TEST(DomainXml, FindsTheFunctionsAmongOtherDevices) {
  const auto domain = parse_domain_xml(domain_with(
      "<disk type='file'/>" + hostdev("mdev", kForeign) + hostdev("mdev", kOurs) +
      "<hostdev mode='subsystem' type='pci'><source><address domain='0x0000' "
      "bus='0x00' slot='0x05' function='0x0'/></source></hostdev>" +
      hostdev("mdev", "70636c64-0000-8000-8000-000000000002") + hostdev("mdev", kOurs)));
  ASSERT_TRUE(domain) << domain.error().message;
  EXPECT_EQ(domain->name, "g");
  EXPECT_EQ(to_string(domain->uuid), "2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01");
  ASSERT_EQ(domain->functions.size(), 2u);
  EXPECT_EQ(to_string(domain->functions[0]), kOurs);
}

// What libvirt 11.3 gave its hook on Debian trixie.
TEST(DomainXml, IsReadInEveryPhase) {
  for (const char* phase :
       {"prepare-begin", "started-begin", "reconnect-begin", "stopped-end", "release-end"}) {
    const auto domain = parse_domain_xml(testdata(std::string(phase) + ".xml"));
    ASSERT_TRUE(domain) << phase << ": " << domain.error().message;
    EXPECT_EQ(domain->name, "vm1") << phase;
    EXPECT_EQ(to_string(domain->uuid), "6eb61858-c9a4-47b5-991f-31aae14f91c5") << phase;
    ASSERT_EQ(domain->functions.size(), 1u) << phase;
    EXPECT_EQ(to_string(domain->functions[0]), "70636c64-9a83-8129-b2cc-fbad277ec083") << phase;
  }
}

TEST(DomainXml, OtherPlacesForAUuidDoNotCount) {
  for (const std::string& devices : std::vector<std::string>{
           hostdev("pci", kOurs),
           "<hostdev type='mdev'><address uuid='" + std::string(kOurs) + "'/></hostdev>",
           std::string("<hostdev type='mdev'><source/></hostdev>"),
           std::string("<hostdev type='mdev'><source><address/></source></hostdev>"),
           "<interface>" + hostdev("mdev", kOurs) + "</interface>",
           "<!-- " + hostdev("mdev", kOurs) + " -->",
           hostdev("mdev", "70636c64-nonsense"),
       }) {
    const auto domain = parse_domain_xml(domain_with(devices));
    ASSERT_TRUE(domain) << devices;
    EXPECT_TRUE(domain->functions.empty()) << devices;
  }
}

TEST(DomainXml, ADomainWithoutDevicesIsFine) {
  EXPECT_TRUE(
      parse_domain_xml("<domain><uuid>2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01</uuid></domain>"));
}

TEST(DomainXml, RefusesWhatIsNoDomain) {
  for (const char* xml :
       {"", " ", "no xml", "<domain>", "<network/>", "<domain/>", "<domain><uuid>x</uuid></domain>",
        "<domain><uuid>../../etc/passwd-0000-000000000000</uuid></domain>",
        "<domain><name>g</name></domain>", "\xff\xfe<\0d"}) {
    const auto domain = parse_domain_xml(xml);
    ASSERT_FALSE(domain) << xml;
    EXPECT_EQ(domain.error().kind, ErrorClass::Usage);
  }
}

TEST(DomainXml, EntitiesAreRefused) {
  const char* const laughs =
      "<!DOCTYPE domain [<!ENTITY a 'aaaaaaaaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>"
      "<!ENTITY c '&b;&b;&b;&b;&b;&b;&b;&b;'>]><domain><name>&c;</name>"
      "<uuid>2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01</uuid></domain>";
  EXPECT_FALSE(parse_domain_xml(laughs));
  EXPECT_FALSE(
      parse_domain_xml("<!DOCTYPE domain SYSTEM 'file:///etc/passwd'><domain>"
                       "<uuid>2f1e6b1a-4d0c-4f6c-9a51-0d5a5f1f7a01</uuid></domain>"));
}

TEST(DomainXml, DepthAndSizeAreBounded) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  EXPECT_FALSE(parse_domain_xml(domain_with(deep)));
  EXPECT_FALSE(parse_domain_xml(domain_with(std::string(kDomainXmlBytesMax, ' '))));
}

}  // namespace
}  // namespace pcilend
