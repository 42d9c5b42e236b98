"""Buttons of what operators do."""

from typing import Any

from django import template

from apps.console.verbs.base import ALL, Step
from apps.console.verbs.offering import offer

register = template.Library()


@register.inclusion_tag("console/verb_button.html", takes_context=True)
def verb_button(context: Any, name: str, target: Any = ALL, tenant: str = "", off: str = "") -> dict[str, Any]:
    """A link to the verb's page; a disabled button with the reason when the role is not enough or `off` says why.

    On a tenant's own pages the tenant is known.
    """
    of_page = context.get("console_tenant")
    step = Step(name, str(target), tenant or (of_page.slug if of_page else ""))
    return {"offer": offer(step, user=context["request"].user, off=off)}


@register.inclusion_tag("console/verb_button.html", takes_context=True)
def step_button(context: Any, step: Step) -> dict[str, Any]:
    """The same for a step that code has put together."""
    return {"offer": offer(step, user=context["request"].user)}
