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
  ASSERT_EQ(domain->mdevs.size(), 3u);
  EXPECT_EQ(to_string(domain->mdevs[0]), kForeign);
  EXPECT_EQ(to_string(domain->mdevs[1]), kOurs);
}

std::string pci_hostdev(const std::string& address) {
  return "<hostdev mode='subsystem' type='pci' managed='no'><source><address " + address +
         "/></source></hostdev>";
}

TEST(DomainXml, KnowsBorrowedFunctionsByTheirPciAddresses) {
  const std::string first = "domain='0x8004' bus='0x01' slot='0x00' function='0x0'";
  const auto domain = parse_domain_xml(domain_with(
      pci_hostdev("domain='0x0000' bus='0x00' slot='0x05' function='0x0'") + pci_hostdev(first) +
      pci_hostdev("domain='32772' bus='2' slot='0' function='0'") + pci_hostdev(first) +
      pci_hostdev("domain='0x8004' bus='0x01' slot='0x00' function='0x1'") +
      pci_hostdev("domain='0x8004' bus='0x100' slot='0x00' function='0x0'") +
      pci_hostdev("bus='0x01' slot='0x00' function='0x0'")));
  ASSERT_TRUE(domain) << domain.error().message;
  EXPECT_TRUE(domain->mdevs.empty());
  EXPECT_EQ(domain->functions, (std::vector{FunctionId{0x40001}, FunctionId{0x40002}}));
}

// What libvirt 11.3 gave its hook on Debian trixie.
TEST(DomainXml, IsReadInEveryPhase) {
  for (const char* phase :
       {"prepare-begin", "started-begin", "reconnect-begin", "stopped-end", "release-end"}) {
    const auto domain = parse_domain_xml(testdata(std::string(phase) + ".xml"));
    ASSERT_TRUE(domain) << phase << ": " << domain.error().message;
    EXPECT_EQ(domain->name, "vm1") << phase;
    EXPECT_EQ(to_string(domain->uuid), "6eb61858-c9a4-47b5-991f-31aae14f91c5") << phase;
    ASSERT_EQ(domain->mdevs.size(), 1u) << phase;
    EXPECT_EQ(to_string(domain->mdevs[0]), "70636c64-9a83-8129-b2cc-fbad277ec083") << phase;
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
    EXPECT_TRUE(domain->mdevs.empty()) << devices;
  }
}

// A domain with one mediated device, kForeign, and this in its metadata.
Result<Domain> with_metadata(const std::string& metadata) {
  std::string xml = domain_with(hostdev("mdev", kForeign));
  return parse_domain_xml(
      xml.insert(xml.find("<devices>"), "<metadata>" + metadata + "</metadata>"));
}

std::string functions(const std::string& attributes, const std::string& content) {
  return "<p:functions xmlns:p='urn:pcilend:libvirt:1' " + attributes + ">" + content +
         "</p:functions>";
}

TEST(DomainXml, OptionsAreInItsMetadata) {
  const std::string choose =
      "choose uuid='" + std::string(kForeign) +
      "' class='0108' vendor='1b36' device='0010' label='fast &amp; cheap'/>";
  // As an editor writes it, and as `virsh metadata --set` does.
  for (const char* prefix : {"<p:", "<"}) {
    const auto domain = with_metadata("<other xmlns='urn:other'><functions wait='x'/></other>" +
                                      functions("wait='45'", " " + (prefix + choose) + " "));
    ASSERT_TRUE(domain);
    ASSERT_TRUE(domain->options) << domain->options.error().message;
    EXPECT_EQ(domain->options->wait.count(), 45);
    ASSERT_EQ(domain->options->choices.size(), 1u);
    const Choice& choice = domain->options->choices[0];
    EXPECT_EQ(choice.mdev, domain->mdevs[0]);
    EXPECT_EQ(choice.text(), "class 0108, vendor 1b36, device 0010, label fast & cheap");
  }
  for (const char* none :
       {"", "<functions wait='x'/>", "<functions xmlns='urn:other' wait='x'/>"}) {
    const auto domain = with_metadata(none);
    ASSERT_TRUE(domain && domain->options) << none;
    EXPECT_EQ(domain->options->wait.count(), 0);
    EXPECT_TRUE(domain->options->choices.empty());
  }
}

TEST(DomainXml, OptionsThatAreNoneAreNamed) {
  const std::string uuid = "uuid='" + std::string(kForeign) + "'";
  const struct {
    std::string metadata;
    const char* reason;
  } cases[] = {
      {functions("wait=''", ""), "wait='': seconds are expected, 60 at most"},
      {functions("wait='61'", ""), "wait='61': seconds are expected, 60 at most"},
      {functions("wait='-1'", ""), "wait='-1': seconds"},
      {functions("wait='1s'", ""), "wait='1s': seconds"},
      {functions("weight='1'", ""), "<functions> has no attribute 'weight', but wait"},
      {functions("", "<p:chose/>"), "<functions> has no element <chose>, but <choose>"},
      {functions("", "<p:choose class='01'/>"), "a <choose> without the uuid of its <hostdev>"},
      {functions("", "<p:choose " + uuid + "/>"), "say class, vendor, device or label"},
      {functions("", "<p:choose uuid='x' class='01'/>"), "'x'"},
      {functions("", "<p:choose uuid='" + std::string(kOurs) + "' class='01'/>"),
       "the domain has no <hostdev type='mdev'> of that UUID"},
      {functions("", "<p:choose " + uuid + " class='01'/><p:choose " + uuid + " class='02'/>"),
       "there are two <choose uuid="},
      {functions("", "<p:choose " + uuid + " class='1'/>"), "class='1': two, four or six"},
      {functions("", "<p:choose " + uuid + " class='00000001'/>"), "class='00000001': two"},
      {functions("", "<p:choose " + uuid + " class='nv'/>"), "class='nv': two"},
      {functions("", "<p:choose " + uuid + " vendor='8086 '/>"), "vendor='8086 ': four"},
      {functions("", "<p:choose " + uuid + " device='0x10'/>"), "device='0x10': four"},
      {functions("", "<p:choose " + uuid + " name='x'/>"), "<choose> has no attribute 'name'"},
      {"<p:wait xmlns:p='urn:pcilend:libvirt:1'/>", "no element <wait>, but <functions>"},
  };
  for (const auto& bad : cases) {
    const auto domain = with_metadata(bad.metadata);
    ASSERT_TRUE(domain) << bad.metadata;
    ASSERT_FALSE(domain->options) << bad.metadata;
    EXPECT_EQ(domain->options.error().kind, ErrorClass::Usage);
    EXPECT_THAT(domain->options.error().message,
                ::testing::AllOf(HasSubstr("the domain's metadata ('virsh edit', "),
                                 HasSubstr(bad.reason)));
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
