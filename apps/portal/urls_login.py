"""Signing in and out."""

from django.urls import URLPattern, path

from apps.portal import login, login_invitations

urlpatterns: list[URLPattern] = [
    path("login", login.login, name="login"),
    path("logout", login.logout, name="logout"),
    path("password", login.password, name="password"),
    path("invitation", login_invitations.invitation, name="invitation"),
]
