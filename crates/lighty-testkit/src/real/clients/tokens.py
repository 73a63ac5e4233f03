"""Signs tokens with PyJWT: of each algorithm, with changes, and of algorithms that servers refuse.

Prints one JSON object: the public keys, a secret, and the tokens with their expected outcomes.
"""

import base64
import json
import secrets
import sys
import time

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value, size):
    return base64url(value.to_bytes(size, "big"))


def public_jwk(key, name, algorithm):
    public = key.public_key()
    jwk = {"kid": name, "use": "sig"}
    if algorithm:
        jwk["alg"] = algorithm
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = public.public_numbers()
        size = (numbers.n.bit_length() + 7) // 8
        jwk |= {"kty": "RSA", "n": number(numbers.n, size), "e": number(numbers.e, 3)}
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        numbers, size = public.public_numbers(), (key.key_size + 7) // 8
        curve = {256: "P-256", 384: "P-384", 521: "P-521"}[key.key_size]
        jwk |= {"kty": "EC", "crv": curve}
        jwk |= {"x": number(numbers.x, size), "y": number(numbers.y, size)}
    else:
        raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        jwk |= {"kty": "OKP", "crv": "Ed25519", "x": base64url(raw)}
    return jwk


def changed(token, part):
    """The token with one bit of a part flipped."""
    parts = token.split(".")
    raw = bytearray(base64.urlsafe_b64decode(parts[part] + "=" * (-len(parts[part]) % 4)))
    raw[len(raw) // 2] ^= 1
    parts[part] = base64url(bytes(raw))
    return ".".join(parts)


def main():
    names = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
    shared = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    keys = {name: (shared, "rsa") for name in names}
    keys["ES256"] = (ec.generate_private_key(ec.SECP256R1()), "p256")
    keys["ES384"] = (ec.generate_private_key(ec.SECP384R1()), "p384")
    keys["EdDSA"] = (ed25519.Ed25519PrivateKey.generate(), "ed")
    jwks = [public_jwk(shared, "rsa", None)]
    jwks += [public_jwk(keys[name][0], keys[name][1], name) for name in ("ES256", "ES384", "EdDSA")]
    large = ec.generate_private_key(ec.SECP521R1())
    jwks.append(public_jwk(large, "p521", None))
    secret = secrets.token_hex(32)

    now = int(time.time())
    claims = {"sub": "kim", "exp": now + 600, "iat": now, "nbf": now}
    tokens = []

    def add(kind, accepted, token, by="keys"):
        tokens.append({"kind": kind, "accepted": accepted, "token": token, "by": by})

    def variants(name, key, kid, by):
        headers = {"kid": kid} if kid else {}
        good = jwt.encode(claims, key, algorithm=name, headers=headers)
        add(name, True, good, by)
        for part, shown in enumerate(["header", "claims", "signature"]):
            add(f"{name} with another {shown}", False, changed(good, part), by)
        late = jwt.encode(claims | {"exp": now - 120}, key, algorithm=name, headers=headers)
        add(f"{name} that has expired", False, late, by)
        early = jwt.encode(claims | {"nbf": now + 300}, key, algorithm=name, headers=headers)
        add(f"{name} that is not good yet", False, early, by)
        without = {"sub": "kim"}
        endless = jwt.encode(without, key, algorithm=name, headers=headers)
        add(f"{name} that never expires", False, endless, by)
        unsigned = good.rsplit(".", 1)[0] + "."
        add(f"{name} without its signature", False, unsigned, by)

    for name, (key, kid) in keys.items():
        variants(name, key, kid, "keys")
    for name in ("HS256", "HS384", "HS512"):
        variants(name, secret, None, "secret")
        forged = jwt.encode(claims, secret, algorithm=name, headers={"kid": "rsa"})
        add(f"{name} for a key set", False, forged)
    add("none", False, jwt.encode(claims, None, algorithm="none"))
    add("none with a name", False, jwt.encode(claims, None, "none", {"kid": "rsa"}))
    add("ES512", False, jwt.encode(claims, large, "ES512", {"kid": "p521"}))
    koblitz = ec.generate_private_key(ec.SECP256K1())
    add("ES256K", False, jwt.encode(claims, koblitz, "ES256K", {"kid": "p256"}))
    other = ec.generate_private_key(ec.SECP256R1())
    add("ES256 of another key", False, jwt.encode(claims, other, "ES256", {"kid": "p256"}))
    swapped = jwt.encode(claims, keys["ES256"][0], "ES256", {"kid": "p384"})
    add("ES256 with another name", False, swapped)
    json.dump({"keys": {"keys": jwks}, "secret": secret, "tokens": tokens}, sys.stdout)


main()
