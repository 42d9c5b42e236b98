"""Routes of the probes, to be mounted at the root."""

from django.urls import path

from apps.api import health

urlpatterns = [path("healthz", health.alive), path("readyz", health.ready)]
