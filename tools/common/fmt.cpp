// SPDX-License-Identifier: GPL-2.0-or-later
// What Debian's libfmt has, to link it statically: of the templates, those that fmt's headers leave
// to the library.
#include <fmt/format-inl.h>

namespace fmt {

template auto detail::thousands_sep_impl<char>(detail::locale_ref)
    -> detail::thousands_sep_result<char>;
template auto detail::decimal_point_impl<char>(detail::locale_ref) -> char;
template auto detail::locale_ref::get<std::locale>() const -> std::locale;
template void detail::vformat_to<char>(detail::buffer<char>&, string_view,
                                       basic_format_args<format_context>, detail::locale_ref);

}  // namespace fmt
