"""The page that marks a tenant for deletion, and takes the mark away until the grace is over."""

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from apps.audit.trail import actor_of, database_now
from kernel.errors import ShardbeatError
from tenants.deletion import GRACE, GRACE_MAX, tenant_delete, tenant_undelete
from tenants.models import Tenant


class DeletionForm(forms.Form):
    """What must be said before a tenant goes."""

    slug = forms.CharField(label="Type the tenant's slug", max_length=40)
    grace_days = forms.IntegerField(
        label="Days in which it can be undone", min_value=1, max_value=GRACE_MAX.days, initial=GRACE.days
    )
    reason = forms.CharField(max_length=500, widget=forms.Textarea(attrs={"rows": 3}))

    def __init__(self, tenant: Tenant, *args: Any) -> None:
        super().__init__(*args)
        self._slug = tenant.slug

    def clean_slug(self) -> str:
        given: str = self.cleaned_data["slug"]
        if given != self._slug:
            raise forms.ValidationError("This is not the slug of the tenant on this page.")
        return given


class UndoForm(forms.Form):
    """Why it is kept."""

    reason = forms.CharField(max_length=500, widget=forms.Textarea(attrs={"rows": 3}))


def deletion_page(admin: Any, request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Shows the form and does what it asks; the tenant is one that this person may delete."""
    marked = tenant.status == Tenant.Status.DELETING
    data = request.POST if request.method == "POST" else None
    form: forms.Form = UndoForm(data) if marked else DeletionForm(tenant, data)
    # A form of the other kind was on the page that was sent: somebody else was quicker.
    stale = data is not None and data.get("verb") != ("undo" if marked else "delete")
    if stale:
        messages.warning(request, "The tenant has changed meanwhile: look again.")
    elif data is not None and form.is_valid():
        try:
            _do(request, tenant, form.cleaned_data, undo=marked)
        except ShardbeatError as error:
            messages.error(request, error.detail)
        return HttpResponseRedirect(reverse("admin:tenants_tenant_change", args=[tenant.pk]))
    context = {
        **admin.admin_site.each_context(request), "opts": admin.opts, "tenant": tenant, "marked": marked,
        "form": (UndoForm() if marked else DeletionForm(tenant)) if stale else form,
        "title": f"{'Keep' if marked else 'Delete'} tenant {tenant.slug}",
    }  # fmt: skip
    return TemplateResponse(request, "console/tenant_deletion.html", context)


def _do(request: HttpRequest, tenant: Tenant, given: dict[str, Any], *, undo: bool) -> None:
    actor, now = actor_of(request), database_now()
    if undo:
        tenant_undelete(tenant=tenant, actor=actor, now=now, reason=given["reason"])
        messages.success(request, f"{tenant.slug} is kept. It is suspended: set it to active when it may run again.")
        return
    grace = timedelta(days=given["grace_days"])
    done = tenant_delete(tenant=tenant, actor=actor, now=now, grace=grace, reason=given["reason"])
    messages.success(
        request, f"{tenant.slug} has stopped; its data are removed after {done.delete_after:%Y-%m-%d %H:%M} UTC."
    )
