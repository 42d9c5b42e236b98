"""The root: operators to the admin, a tenant's people to their console."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse

TENANT_HOME = "/console/"


def home(request: HttpRequest) -> HttpResponse:
    """Where people who type only the host want to go."""
    of_tenant = getattr(request, "tenant", None) is not None
    return HttpResponseRedirect(TENANT_HOME if of_tenant else reverse("admin:index"))


def admin_without_slash(request: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect(reverse("admin:index"))


urlpatterns = [path("", home), path("admin", admin_without_slash)]
