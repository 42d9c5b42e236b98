"""The root: operators to the admin, a tenant's people to the API's page."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse

API_PAGE = "/api/v1/docs"


def home(request: HttpRequest) -> HttpResponse:
    """Where people who type only the host want to go."""
    of_tenant = getattr(request, "tenant", None) is not None
    return HttpResponseRedirect(API_PAGE if of_tenant else reverse("admin:index"))


def admin_without_slash(request: HttpRequest) -> HttpResponse:
    return HttpResponseRedirect(reverse("admin:index"))


urlpatterns = [path("", home), path("admin", admin_without_slash)]
