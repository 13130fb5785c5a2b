# pure: the right that a refused request needs, in words
"""Right that a refused request of the admin API needs, and the grant to write. A broker's refusal does not name the
role.

The rights of reads were measured on 4.2.4 and 4.0.7 (kodoctl.pulsar.admin.permission_probe); an admin of the Pulsar
tenant may do all other work in it.
"""

from __future__ import annotations

from typing import Final

_BY_CONSUME: Final = frozenset({
    "partitioned", "partitions", "stats", "partitioned-stats", "internalStats", "partitioned-internalStats",
    "subscriptions", "properties", "schema", "schemas",
})  # fmt: skip
"""Last parts of paths of topics and schemas whose reads a role may do that may consume there, or (all but
`subscriptions`) produce.
"""
_GRANT: Final = "`namespace_grants: {ROLE: [consume]}`"


def missing_right(method: str, path: str) -> str:
    """Returns a text about the right that a refused request needs, with the grant or setting that gives the right.
    `path`: as for `Admin.call`.
    """
    parts = path.partition("?")[0].split("/")
    if parts[0] == "v3" and len(parts) > 3:
        action = parts[1]
        namespace = "/".join(parts[3:5] if action == "packages" else parts[2:4])  # a package's type is before it
        return f"{action} on {namespace} (`namespace_grants: {{ROLE: [{action}]}}` in its file)"
    if parts[0] not in ("namespaces", "persistent", "schemas") or len(parts) == 1:
        return "a super-user (`superUserRoles` of the brokers)"
    admin = f"an admin role of the Pulsar tenant {parts[1]}"
    if parts[0] != "namespaces" and method == "GET":
        if len(parts) <= 4 and parts[-1] in (*parts[2:3], "partitioned"):
            return f"consume on {'/'.join(parts[1:3])} ({_GRANT} in its file); to plan all of it and to apply, {admin}"
        if len(parts) == 5 and parts[-1] in _BY_CONSUME:
            named = "`workers`, `recall` or `producers` of the topic in its file"
            return f"consume on {'/'.join(parts[1:-1])} ({named}, or {_GRANT})"
    return (
        f"{admin} (`admin_roles` of `create_tenant` or of `platform` in the file that has it, or `pulsar-admin tenants update"
        f" {parts[1]} --admin-roles` with all of them)"
    )
