/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A static build has no TLS: libmicrohttpd.a needs GnuTLS, and Debian has no static library of
 * p11-kit, which that needs. What libmicrohttpd.a and web.c call of it is here, and fails; none of
 * it is reached, since cmd/agent/web.c refuses a certificate where web_has_no_tls is linked.
 */
#include <stddef.h>

extern const char web_has_no_tls;
const char web_has_no_tls = 1;

int gnutls_none(void);
int gnutls_none(void)
{
	return -1250; /* GNUTLS_E_UNIMPLEMENTED_FEATURE */
}

/* The library begins and ends with these, whether TLS is used or not. */
int gnutls_global_init(void);
int gnutls_global_init(void)
{
	return 0;
}

void gnutls_global_deinit(void);
void gnutls_global_deinit(void)
{
}

const char *gnutls_strerror(int error);
const char *gnutls_strerror(int error)
{
	(void)error;
	return "this build has no TLS";
}

void *(*gnutls_malloc)(size_t bytes) = NULL;

#define NONE(name) int gnutls_##name(void) __attribute__((alias("gnutls_none")));

/* libmicrohttpd 0.9.75 (Debian 12) and 1.0.1 (Debian 13) */
NONE(alpn_set_protocols)
NONE(bye)
NONE(certificate_allocate_credentials)
NONE(certificate_free_credentials)
NONE(certificate_server_set_request)
NONE(certificate_set_dh_params)
NONE(certificate_set_retrieve_function2)
NONE(certificate_set_retrieve_function3)
NONE(certificate_set_x509_key_mem)
NONE(certificate_set_x509_key_mem2)
NONE(certificate_set_x509_trust_mem)
NONE(cipher_get)
NONE(credentials_set)
NONE(deinit)
NONE(dh_params_deinit)
NONE(dh_params_import_pkcs3)
NONE(dh_params_init)
NONE(handshake)
NONE(init)
NONE(priority_deinit)
NONE(priority_init)
NONE(priority_init2)
NONE(priority_set)
NONE(protocol_get_version)
NONE(psk_allocate_server_credentials)
NONE(psk_free_server_credentials)
NONE(psk_set_server_credentials_function)
NONE(record_check_pending)
NONE(record_get_direction)
NONE(record_recv)
NONE(record_send)
NONE(session_get_ptr)
NONE(session_set_ptr)
NONE(transport_set_int2)

/* cmd/agent/web.c, cmd/agent/push.c */
NONE(certificate_set_x509_trust_file)
NONE(x509_crt_deinit)
NONE(x509_crt_get_activation_time)
NONE(x509_crt_get_expiration_time)
NONE(x509_crt_import)
NONE(x509_crt_init)
