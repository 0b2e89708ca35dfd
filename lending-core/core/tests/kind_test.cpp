// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/kind.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace {

std::string Refusal(const std::string& text) {
  pcilend_kind kind;
  const char* why = nullptr;
  const int error = pcilend_kind_parse(text.c_str(), &kind, &why);
  EXPECT_EQ(error, why ? -EINVAL : 0);
  return why ? why : "";
}

pcilend_kind Parsed(const std::string& text) {
  pcilend_kind kind = {};
  const char* why = nullptr;
  EXPECT_EQ(pcilend_kind_parse(text.c_str(), &kind, &why), 0) << text << ": " << why;
  return kind;
}

std::string Again(const std::string& text) {
  const pcilend_kind kind = Parsed(text);
  char again[PCILEND_KIND_TEXT_BYTES];
  const int bytes = pcilend_kind_format(&kind, again);
  EXPECT_EQ(bytes, static_cast<int>(std::strlen(again)));
  return again;
}

pcilend_msg_function Drive() {
  pcilend_msg_function info = {};
  info.id = cpu_to_le32(0x40001);
  info.vendor = cpu_to_le16(0x144d);
  info.device = cpu_to_le16(0xa80a);
  info.class_revision = cpu_to_le32(0x01080200);
  std::memcpy(info.label, "rack 7", 6);
  return info;
}

bool Has(const std::string& text) {
  const pcilend_kind kind = Parsed(text);
  const pcilend_msg_function info = Drive();
  return pcilend_kind_has(&kind, &info);
}

TEST(Kind, TextComesBackAsItWas) {
  for (const std::string text :
       {"storage device=::01xx", "fast device=144d::0108 label=rack 7",
        "x device=144d:", "x device=:a80a", "nvme device=::0108:02", "one-more function=40001",
        "all device=144d:a80a:0108:02 function=40001 label=a=b c"})
    EXPECT_EQ(Again(text), text);
  EXPECT_EQ(Again("x device=144D:A80A"), "x device=144d:a80a");
  EXPECT_EQ(Again("x device=144d"), "x device=144d:");
}

TEST(Kind, TheLongestTextHasRoom) {
  const std::string text =
      std::string(31, 'n') +
      " device=144d:a80a:0108:02 function=ffffffff label=" + std::string(63, 'l');
  EXPECT_EQ(Again(text), text);
  EXPECT_LT(text.size(), static_cast<size_t>(PCILEND_KIND_TEXT_BYTES));
}

TEST(Kind, AFunctionIsOfItOrNot) {
  EXPECT_TRUE(Has("x device=::01xx"));
  EXPECT_TRUE(Has("x device=::0108"));
  EXPECT_TRUE(Has("x device=::0108:02"));
  EXPECT_FALSE(Has("x device=::0108:01"));
  EXPECT_FALSE(Has("x device=::02xx"));
  EXPECT_TRUE(Has("x device=144d:"));
  EXPECT_FALSE(Has("x device=144e:"));
  EXPECT_TRUE(Has("x device=:a80a"));
  EXPECT_FALSE(Has("x device=:a80b"));
  EXPECT_TRUE(Has("x device=144d:a80a:0108 function=40001 label=rack 7"));
  EXPECT_FALSE(Has("x function=40002"));
  EXPECT_FALSE(Has("x label=rack"));
  EXPECT_FALSE(Has("x label=rack 77"));
  EXPECT_TRUE(Has("x label=rack 7"));
}

TEST(Kind, NamesOfClassesAndFunctionAreTaken) {
  for (const auto& of : pcilend_kind_classes) {
    EXPECT_TRUE(pcilend_kind_is_reserved(of.name));
    EXPECT_EQ(Parsed(std::string(of.name) + " device=::01xx").name, std::string(of.name));
  }
  EXPECT_TRUE(pcilend_kind_is_reserved("function"));
  for (const char* name : {"fast", "storage2", "stor", ""})
    EXPECT_FALSE(pcilend_kind_is_reserved(name)) << name;
}

TEST(Kind, RefusalsSayWhatIsWanted) {
  const std::string name = Refusal("");
  EXPECT_NE(name.find("a name of up to 31"), std::string::npos);
  for (const char* text :
       {" x", "X label=a", "-x label=a", "x- label=a", "a.b label=a", "a/b label=a", "x\tlabel=a"})
    EXPECT_EQ(Refusal(text), name) << text;
  EXPECT_EQ(Refusal(std::string(32, 'n') + " label=a"), name);
  const std::string device = Refusal("x device=1");
  EXPECT_NE(device.find("as lspci -d does"), std::string::npos);
  for (const char* text : {"x device=12345:", "x device=::01", "x device=::0108:2",
                           "x device=::::1", "x device=g:", "x device=144d:a80a;"})
    EXPECT_EQ(Refusal(text), device) << text;
  const std::string function = Refusal("x function=");
  EXPECT_NE(function.find("pcilend list"), std::string::npos);
  for (const char* text : {"x function=0", "x function=123456789", "x function=0x40001"})
    EXPECT_EQ(Refusal(text), function) << text;
  const std::string label = Refusal("x label=");
  EXPECT_NE(label.find("1 to 63"), std::string::npos);
  EXPECT_EQ(Refusal("x label=" + std::string(64, 'l')), label);
  EXPECT_EQ(Refusal("x label=a\nb"), label);
  const std::string parts = Refusal("x ");
  EXPECT_NE(parts.find("each once"), std::string::npos);
  for (const char* text : {"x  label=a", "x class=01", "x device=::01xx device=::02xx",
                           "x function=40001 function=40002", "x device=::01xx "})
    EXPECT_EQ(Refusal(text), parts) << text;
  const std::string any = Refusal("x");
  EXPECT_NE(any.find("any function"), std::string::npos);
  EXPECT_EQ(Refusal("x device=::"), any);
  EXPECT_EQ(Refusal("x device=xxxx:xxxx"), any);
}

}  // namespace
