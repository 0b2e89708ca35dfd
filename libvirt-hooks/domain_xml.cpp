// SPDX-License-Identifier: GPL-2.0-or-later
#include "domain_xml.h"

#include <libxml/parser.h>
#include <libxml/tree.h>

#include <algorithm>
#include <memory>
#include <optional>

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

// The UUID of a <hostdev> if that is a mediated device that names a function.
std::optional<Uuid> function_of(xmlNode* hostdev) {
  if (attribute(hostdev, "type") != "mdev") return {};
  xmlNode* const source = element(hostdev->children, "source");
  xmlNode* const address = source ? element(source->children, "address") : nullptr;
  if (!address) return {};
  const auto uuid = parse_uuid(attribute(address, "uuid"));
  if (!uuid || !uuid->names_function()) return {};
  return *uuid;
}

}  // namespace

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
    const auto function = function_of(node);
    if (function && std::find(domain.functions.begin(), domain.functions.end(), *function) ==
                        domain.functions.end())
      domain.functions.push_back(*function);
  }
  return domain;
}

}  // namespace pcilend
