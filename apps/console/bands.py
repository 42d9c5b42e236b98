"""The coloured band of a tenant: on each page that is about one, whichever site it is on."""

from typing import Any
from zlib import crc32

from tenants.models import Tenant

HUES = 12  # classes band-0 to band-11 in console.css


def band_of(tenant: Tenant | None) -> dict[str, Any]:
    """What templates/admin/base_site.html shows it by; nothing for no tenant."""
    return {} if tenant is None else {"band_tenant": tenant, "band_hue": crc32(tenant.slug.encode()) % HUES}
