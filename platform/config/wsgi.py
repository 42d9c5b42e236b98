"""The web entry point: `gunicorn config.wsgi:application` with `platform/` on the path."""

import gc
import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

from apps.secrets.keyring import keyring

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()
keyring()  # without keys no secret can be kept: better not to start than to fail a tenant later
get_resolver().url_patterns  # noqa: B018  # loads all views now and not with the first request
# What is loaded stays: were it looked through again with every large body, that alone would take 0.1 s each time.
gc.collect()
gc.freeze()
