"""Signing in and out."""

from django.urls import URLPattern, path

from apps.portal import login, login_invitations, login_sso

urlpatterns: list[URLPattern] = [
    path("login", login.login, name="login"),
    path("logout", login.logout, name="logout"),
    path("password", login.password, name="password"),
    path("sso", login_sso.start, name="sso"),
    path("sso/callback", login_sso.callback, name="sso_callback"),
    path("invitation", login_invitations.invitation, name="invitation"),
]
