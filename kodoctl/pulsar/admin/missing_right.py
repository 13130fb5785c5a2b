# pure: the right that a refused request needs, in words
"""Right that a refused request of the admin API needs, and where it is granted.

The rights of reads were measured on 4.2.4 and 4.0.7 (kodoctl.pulsar.admin.permission_probe); an admin of the Pulsar
tenant may do all other work in it.
"""

from __future__ import annotations

import re
from typing import Final

_ROLE: Final = re.compile(r"(?:clientAppId|client role|role) \[?([\w.@:/-]+)\]?")
"""The role in the reason of a broker, such as `Unauthorized to … clientAppId [planner] about …`."""
_BY_CONSUME: Final = frozenset({
    "partitioned", "partitions", "stats", "partitioned-stats", "internalStats", "partitioned-internalStats",
    "subscriptions", "lookup",
})  # fmt: skip
"""Last parts of paths whose reads a role may do that may produce or consume there."""


def missing_right(method: str, path: str, reason: str) -> str:
    """Returns the right that a refused request needs, and the grant to write. `path`: below `/admin/v2/`; `reason`: the
    broker's text, from which the role is taken; "" if it names none.
    """
    found = _ROLE.search(reason)
    role = found[1] if found else "ROLE"
    parts = path.partition("?")[0].split("/")
    if parts[0] not in ("namespaces", "persistent", "schemas") or len(parts) == 1:
        return f"{role} has to be a super-user: `superUserRoles` of the brokers"
    if parts[0] == "persistent" and method == "GET" and (len(parts) == 3 or parts[-1] in _BY_CONSUME):
        grant = f"`namespace_grants: {{{role}: [consume]}}`"
        if len(parts) > 4:
            grant = f"add it to `workers`, `recall` or `producers` of the topic in its file, or write {grant}"
        return f"{role} needs consume on {'/'.join(parts[1:-1] if len(parts) > 4 else parts[1:3])}: {grant}"
    return (
        f"{role} has to be an admin of the Pulsar tenant {parts[1]}: `admin_roles` of `create_tenant` in the file that"
        f" creates it, or `pulsar-admin tenants update {parts[1]} --admin-roles` with all roles"
    )
