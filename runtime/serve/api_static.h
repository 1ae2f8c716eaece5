/* api_static.h - files that the program carries: page.html and openapi.json, made by embed.cmake. */
#ifndef TERN_RUNTIME_SERVE_API_STATIC_H
#define TERN_RUNTIME_SERVE_API_STATIC_H

#include <stddef.h>

extern const unsigned char tern_api_page[];
extern const size_t tern_api_page_bytes;
extern const unsigned char tern_api_openapi[];
extern const size_t tern_api_openapi_bytes;

#endif
