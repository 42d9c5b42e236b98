"""The page that gives a tenant another name."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from apps.audit.trail import actor_of, database_now
from apps.console.confirming import refuse
from apps.life.suspending import REASON_CHARS
from kernel.errors import ShardbeatError
from tenants.models import Tenant
from tenants.renaming import NAME_CHARS, hosts_of, tenant_rename


class RenamingForm(forms.Form):
    """What it is called."""

    slug = forms.CharField(max_length=40, help_text="In the paths of the admin, and in the names of its own queues.")
    name = forms.CharField(max_length=NAME_CHARS)
    host = forms.CharField(
        max_length=253, required=False, help_text="Empty: one that is made of the slug follows it, any other stays."
    )
    keep_hosts = forms.BooleanField(
        label="Other hosts still lead to it", required=False, initial=True, help_text="Else links to them break now."
    )
    reason = forms.CharField(max_length=REASON_CHARS, required=False, widget=forms.Textarea(attrs={"rows": 3}))


def renaming_page(admin: Any, request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Shows the form and does what it asks; the tenant is one that this person may change."""
    data = request.POST if request.method == "POST" else None
    form = RenamingForm(data, initial={"slug": tenant.slug, "name": tenant.name})
    if data is not None and form.is_valid():
        try:
            given = {**form.cleaned_data, "host": form.cleaned_data["host"] or None}
            done = tenant_rename(tenant=tenant, actor=actor_of(request), now=database_now(), **given)
            words = "; ".join(f"{old} is {new} now" for old, new in done.queues)
            messages.success(request, f"It is called {done.tenant.slug}. {words}")
            return HttpResponseRedirect(reverse("admin:tenants_tenant_change", args=[tenant.pk]))
        except ShardbeatError as error:
            refuse(form, error)
    context = {
        **admin.admin_site.each_context(request), "opts": admin.opts, "tenant": tenant, "form": form,
        "hosts": hosts_of(tenant), "title": f"Rename tenant {tenant.slug}",
    }  # fmt: skip
    return TemplateResponse(request, "console/tenant_renaming.html", context)
