"""The web entry point: `gunicorn config.wsgi:application` with `platform/` on the path."""

import os

from django.core.wsgi import get_wsgi_application

from apps.secrets.keyring import keyring

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
application = get_wsgi_application()
keyring()  # without keys no secret can be kept: better not to start than to fail a tenant later
