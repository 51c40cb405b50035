/* Signatures of requests: the Base64 of HMAC-SHA1 over the values of all header fields but the
   signature, in the order of their names, and the body. protocol/signing/remoting.py defines them,
   and is the oracle.

   A signing key replaces a user's secret: the state of SHA-1, 5 numbers of 32 bits in big-endian
   order, after the first block of HMAC's inner hash, and the same of its outer hash. */

#ifndef ROCKHOPPER_SIGNATURES_H
#define ROCKHOPPER_SIGNATURES_H

#include "../store/log/_bytes.h"

#define SIGNED_FIELDS_MAX 64
#define SIGNING_KEY_SIZE 40

typedef struct {
    Span name, value;
} Field;

/* The header fields of a request, sorted by their names. */
typedef struct {
    Field fields[SIGNED_FIELDS_MAX];
    int count;
} SignedFields;

/* Adds a field; returns 0 if Python must check the signature: the name occurs twice, or changes
   what is signed or whose rights count. */
int add_field(SignedFields *fields, Span name, Span value);

/* The value of a field; its size is -1 if it is missing. */
Span find_field(const SignedFields *fields, const char *name);

/* Whether the field Signature, in its canonical form, is that of the *fields* and the *body* by the
   signing key *key*. Takes as long for any signature of the right size. */
int is_signed_by(const unsigned char *key, const SignedFields *fields, Span body);

/* Writes the signing key of a secret. */
void make_signing_key(Span secret, unsigned char *key);

#endif
