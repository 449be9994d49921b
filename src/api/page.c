/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page at /. See page.h.
 */
#include "api/page.h"

const char td_page[] =
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n<title>tandem</title>\n"
    "<h1>tandem</h1>\n<p>An OpenAI-compatible server: its base URL ends in <code>/v1"
    "</code>.\n<ul>\n<li><a href=\"/v1/models\">/v1/models</a>\n"
    "<li><a href=\"/startupz\">/startupz</a>: is it ready?\n"
    "<li><a href=\"/tandem/status\">/tandem/status</a>: what is it doing?\n"
    "<li><a href=\"/metrics\">/metrics</a>: for Prometheus\n</ul>\n</html>\n";

const size_t td_page_bytes = sizeof(td_page) - 1;
