// SPDX-License-Identifier: GPL-2.0-or-later
#include "domain_xml.h"

#include <fmt/ranges.h>
#include <libxml/parser.h>
#include <libxml/tree.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>

#include "pcilend/result.h"

namespace pcilend {
namespace {

template <auto function>
struct Release {
  template <class T>
  void operator()(T* resource) const {
    function(resource);
  }
};
using Context = std::unique_ptr<xmlParserCtxt, Release<xmlFreeParserCtxt>>;
using Document = std::unique_ptr<xmlDoc, Release<xmlFreeDoc>>;

void free_text(xmlChar* text) {
  xmlFree(text);
}
using Text = std::unique_ptr<xmlChar, Release<free_text>>;

// The parser's handler of <!DOCTYPE.
void refuse_doctype(void* context, const xmlChar*, const xmlChar*, const xmlChar*) {
  xmlStopParser(static_cast<xmlParserCtxt*>(context));
}

std::string string_of(const Text& text) {
  return text ? reinterpret_cast<const char*>(text.get()) : "";
}

std::string content(xmlNode* node) {
  return string_of(Text(xmlNodeGetContent(node)));
}

std::string attribute(xmlNode* node, const char* name) {
  return string_of(Text(xmlGetNoNsProp(node, reinterpret_cast<const xmlChar*>(name))));
}

bool is_element(const xmlNode* node, std::string_view name) {
  return node->type == XML_ELEMENT_NODE && name == reinterpret_cast<const char*>(node->name);
}

// The first child element of that name at or after `from`, or null.
xmlNode* element(xmlNode* from, std::string_view name) {
  while (from && !is_element(from, name)) from = from->next;
  return from;
}

// The source's <address> of a <hostdev> of that type.
xmlNode* address_of(xmlNode* hostdev, std::string_view type) {
  if (attribute(hostdev, "type") != type) return nullptr;
  xmlNode* const source = element(hostdev->children, "source");
  return source ? element(source->children, "address") : nullptr;
}

// The UUID of a <hostdev> if that is a mediated device.
std::optional<Uuid> mdev_of(xmlNode* hostdev) {
  xmlNode* const address = address_of(hostdev, "mdev");
  if (!address) return {};
  const auto uuid = parse_uuid(attribute(address, "uuid"));
  if (!uuid) return {};
  return *uuid;
}

// Elements below ours are ours with and without the namespace: `virsh metadata --set` gives it to
// the outermost one only.
bool is_foreign(const xmlNode* node) {
  return node->ns && kOptionsNamespace != reinterpret_cast<const char*>(node->ns->href);
}

template <class Number>
bool parse_number(const std::string& text, int base, Number most, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number, base);
  return error == std::errc() && end == text.data() + text.size() && *number <= most;
}

// The function of a <hostdev> if that is a PCI device at the place of one. libvirt gives numbers as
// "0x8004".
std::optional<FunctionId> function_of(xmlNode* hostdev) {
  xmlNode* const address = address_of(hostdev, "pci");
  if (!address) return {};
  std::array<uint32_t, 4> place{};
  size_t i = 0;
  for (const char* name : {"domain", "bus", "slot", "function"}) {
    const std::string text = attribute(address, name);
    const bool hex = text.starts_with("0x");
    if (!parse_number<uint32_t>(hex ? text.substr(2) : text, hex ? 16 : 10,
                                name == std::string_view("domain") ? 0xffff : 0xff, &place[i++]))
      return {};
  }
  return function_at({place[0], static_cast<uint8_t>(place[1]), static_cast<uint8_t>(place[2]),
                      static_cast<uint8_t>(place[3])});
}

Result<std::optional<uint16_t>> pci_id(const std::string& name, const std::string& value) {
  uint16_t id = 0;
  if (value.size() != 4 || !parse_number<uint16_t>(value, 16, 0xffff, &id))
    return fail(ErrorClass::Usage, "{}='{}': four hexadecimal digits are expected", name, value);
  return std::optional(id);
}

// Calls `take` with the name and the value of each attribute.
template <class Take>
Result<> each_attribute(xmlNode* node, const Take& take) {
  for (const xmlAttr* at = node->properties; at; at = at->next) {
    const std::string name = reinterpret_cast<const char*>(at->name);
    PCILEND_TRY(take(name, attribute(node, name.c_str())));
  }
  return {};
}

Result<Choice> choice_of(xmlNode* node) {
  Choice choice;
  bool named = false;
  PCILEND_TRY(
      each_attribute(node, [&](const std::string& name, const std::string& value) -> Result<> {
        if (name == "uuid") {
          const auto uuid = parse_uuid(value);
          if (!uuid) return tl::unexpected(uuid.error());
          choice.mdev = *uuid;
          named = true;
        } else if (name == "class") {
          uint32_t code = 0;
          if (value.size() % 2 != 0 || value.size() > 6 ||
              !parse_number<uint32_t>(value, 16, 0xffffff, &code))
            return fail(ErrorClass::Usage,
                        "class='{}': two, four or six hexadecimal digits are expected", value);
          choice.class_code = fmt::format("{:0{}x}", code, value.size());
        } else if (name == "vendor" || name == "device") {
          const auto id = pci_id(name, value);
          if (!id) return tl::unexpected(id.error());
          (name == "vendor" ? choice.vendor : choice.device) = *id;
        } else if (name == "label") {
          choice.label = value;
        } else {
          return fail(ErrorClass::Usage,
                      "<choose> has no attribute '{}', but uuid, class, vendor, "
                      "device and label",
                      name);
        }
        return {};
      }));
  if (!named) return fail(ErrorClass::Usage, "a <choose> without the uuid of its <hostdev>");
  if (choice.text().empty())
    return fail(ErrorClass::Usage, "<choose uuid='{}'>: say class, vendor, device or label",
                to_string(choice.mdev));
  return choice;
}

Result<DomainOptions> options_of(xmlNode* functions, const std::vector<Uuid>& mdevs) {
  if (!is_element(functions, "functions"))
    return fail(ErrorClass::Usage, "there is no element <{}>, but <functions>",
                reinterpret_cast<const char*>(functions->name));
  DomainOptions options;
  PCILEND_TRY(
      each_attribute(functions, [&](const std::string& name, const std::string& value) -> Result<> {
        if (name != "wait")
          return fail(ErrorClass::Usage, "<functions> has no attribute '{}', but wait", name);
        unsigned seconds = 0;
        if (!parse_number<unsigned>(value, 10, kWaitSecondsMax, &seconds))
          return fail(ErrorClass::Usage, "wait='{}': seconds are expected, {} at most", value,
                      kWaitSecondsMax);
        options.wait = std::chrono::seconds(seconds);
        return {};
      }));
  for (xmlNode* node = functions->children; node; node = node->next) {
    if (node->type != XML_ELEMENT_NODE) continue;
    if (is_foreign(node) || !is_element(node, "choose"))
      return fail(ErrorClass::Usage, "<functions> has no element <{}>, but <choose>",
                  reinterpret_cast<const char*>(node->name));
    auto choice = choice_of(node);
    if (!choice) return tl::unexpected(std::move(choice).error());
    const auto same = [&choice](const Choice& other) { return other.mdev == choice->mdev; };
    if (std::any_of(options.choices.begin(), options.choices.end(), same))
      return fail(ErrorClass::Usage, "there are two <choose uuid='{}'>", to_string(choice->mdev));
    if (std::find(mdevs.begin(), mdevs.end(), choice->mdev) == mdevs.end())
      return fail(ErrorClass::Usage,
                  "<choose uuid='{}'>: the domain has no <hostdev type='mdev'> of that UUID",
                  to_string(choice->mdev));
    options.choices.push_back(std::move(*choice));
  }
  return options;
}

// The first element of our namespace in <metadata>: libvirt allows for one.
Result<DomainOptions> options_in(xmlNode* metadata, const std::vector<Uuid>& mdevs) {
  for (xmlNode* node = metadata ? metadata->children : nullptr; node; node = node->next) {
    if (node->type != XML_ELEMENT_NODE || !node->ns || is_foreign(node)) continue;
    Result<DomainOptions> options = options_of(node, mdevs);
    if (!options)
      return tl::unexpected(std::move(options).error().in(
          fmt::format("the domain's metadata ('virsh edit', {})", kOptionsNamespace)));
    return options;
  }
  return DomainOptions();
}

}  // namespace

bool Choice::matches(const Function& function) const {
  return fmt::format("{:06x}", function.class_revision >> 8).starts_with(class_code) &&
         (!vendor || *vendor == function.vendor) && (!device || *device == function.device) &&
         (label.empty() || label == function.label);
}

std::string Choice::text() const {
  std::vector<std::string> parts;
  if (!class_code.empty()) parts.push_back("class " + class_code);
  if (vendor) parts.push_back(fmt::format("vendor {:04x}", *vendor));
  if (device) parts.push_back(fmt::format("device {:04x}", *device));
  if (!label.empty()) parts.push_back("label " + label);
  return fmt::format("{}", fmt::join(parts, ", "));
}

Result<Domain> parse_domain_xml(std::string_view xml) {
  if (xml.size() > kDomainXmlBytesMax)
    return fail(ErrorClass::Usage, "the domain's XML is larger than {} bytes", kDomainXmlBytesMax);
  const Context context(xmlNewParserCtxt());
  if (!context) return fail(ErrorClass::Failure, "no memory for the XML parser");
  context->sax->internalSubset = refuse_doctype;
  const Document document(xmlCtxtReadMemory(
      context.get(), xml.data(), static_cast<int>(xml.size()), nullptr, nullptr,
      XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_NOCDATA));
  xmlNode* const root = document ? xmlDocGetRootElement(document.get()) : nullptr;
  if (!root || !is_element(root, "domain"))
    return fail(ErrorClass::Usage, "what libvirt gave is not a domain's XML (line {})",
                context->input ? context->input->line : 0);

  Domain domain;
  if (xmlNode* const name = element(root->children, "name")) domain.name = content(name);
  xmlNode* const uuid_element = element(root->children, "uuid");
  const auto uuid = parse_uuid(uuid_element ? content(uuid_element) : "");
  if (!uuid) return tl::unexpected(Error(uuid.error()).in("the domain's <uuid>"));
  domain.uuid = *uuid;

  xmlNode* const devices = element(root->children, "devices");
  for (xmlNode* node = devices ? element(devices->children, "hostdev") : nullptr; node;
       node = element(node->next, "hostdev")) {
    const auto mdev = mdev_of(node);
    if (mdev && std::find(domain.mdevs.begin(), domain.mdevs.end(), *mdev) == domain.mdevs.end())
      domain.mdevs.push_back(*mdev);
    const auto function = function_of(node);
    if (function && std::find(domain.functions.begin(), domain.functions.end(), *function) ==
                        domain.functions.end())
      domain.functions.push_back(*function);
  }
  domain.options = options_in(element(root->children, "metadata"), domain.mdevs);
  return domain;
}

}  // namespace pcilend
