"""Tenant filter: which of many tenants were quick, in few bits each. No I/O, no clock.

A lane remembers some thousand tenants one by one. Of tenants that it forgets it keeps these bits: else a quick one
would be a newcomer when it comes again, and wait among those that hang.
"""

from __future__ import annotations

from typing import Final

_BYTES: Final = 1 << 17  # of a generation
_MASK: Final = 8 * _BYTES - 1
_GENERATION: Final = 1 << 16  # tenants, after which a new generation begins: 1 in 200 others counts as one of them


class TenantFilter:
    """Bloom filter of two generations for the test `tenant in filter`: True for the tenants of the last 65,536 calls of
    `add` at least, and by chance for up to 1 in 100 others. A tenant's three bits come from its hash, which nobody can
    choose, because it differs from process to process.
    """

    __slots__ = ("_added", "_before", "_bits")

    def __init__(self) -> None:
        self._bits, self._before = bytearray(), bytearray()
        self._added = 0

    def __contains__(self, tenant: str) -> bool:
        number = hash(tenant)
        a, b, c = number & _MASK, number >> 20 & _MASK, number >> 40 & _MASK
        for bits in (self._bits, self._before):
            if bits and bits[a >> 3] >> (a & 7) & bits[b >> 3] >> (b & 7) & bits[c >> 3] >> (c & 7) & 1:
                return True
        return False

    def add(self, tenant: str) -> None:
        """Adds a tenant. After 65,536 calls the next one begins a new generation, and drops the older of the two."""
        if not self._bits or self._added == _GENERATION:
            self._before, self._bits, self._added = self._bits, bytearray(_BYTES), 0
        self._added += 1
        number, bits = hash(tenant), self._bits
        a, b, c = number & _MASK, number >> 20 & _MASK, number >> 40 & _MASK
        bits[a >> 3] |= 1 << (a & 7)
        bits[b >> 3] |= 1 << (b & 7)
        bits[c >> 3] |= 1 << (c & 7)
