"""All settings, from the environment. docs/configuration.md lists the variables."""

import os
from pathlib import Path

from config import env
from kernel.addressrules import USUAL, read_rules

# Zone data comes from the pinned tzdata package only: the same answers on every machine (design section 7).
os.environ["PYTHONTZPATH"] = ""

BASE_DIR = Path(__file__).resolve().parents[2]
VAR_DIR = BASE_DIR / "var"
VERSION = "0.1.0"

env.load_file(VAR_DIR / "env")  # what `make run` chose; the environment wins

DEBUG = env.flag("DEBUG")
SECRET_KEY = env.text("SECRET_KEY", "")  # Django refuses to use an empty one; commands that need none run without
# Key-encryption keys "id:base64, id:base64" (32 bytes each), the current one first; kernel.keyring reads them.
SECRETS_KEYS = env.text("SECRETS_KEYS", "")
ALLOWED_HOSTS = env.listed("ALLOWED_HOSTS", "localhost,.localhost,127.0.0.1,[::1]")
PUBLIC_HOSTS = tuple(env.listed("PUBLIC_HOSTS", "localhost,127.0.0.1,[::1],testserver"))
TENANT_DOMAIN = env.text("TENANT_DOMAIN", "localhost")
CSRF_TRUSTED_ORIGINS = env.listed("CSRF_TRUSTED_ORIGINS")
TRUSTED_PROXIES = env.whole("TRUSTED_PROXIES", 0)  # of ours before the web: so many last entries of X-Forwarded-For
FAILED_AUTH_PER_MIN = env.whole("FAILED_AUTH_PER_MIN", 60)  # requests without a valid key, by address; 0: any number
FAILED_LOGINS = env.whole("FAILED_LOGINS", 10)  # attempts of one account in 15 minutes (tenants.guard); 0: any number
MEMBER_SESSION_S = env.whole("MEMBER_SESSION_HOURS", 12, least=1) * 3_600
INVITATION_LIFE_S = env.whole("INVITATION_DAYS", 7, least=1) * 86_400

# Shared apps live in the public schema, tenant apps in every tenant's own.
SHARED_APPS = [
    "django_tenants",
    "tenants",
    "apps.audit",
    "apps.due",
    "apps.tickets",
    "apps.usage",
    "apps.outcomes",
    "apps.dispatch",
    "apps.life",
    "apps.api",
    "apps.console",
    "apps.portal",
    "apps.presenting",
    "apps.signin",
    "workers",
    "demo",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]
TENANT_APPS = [
    "apps.schedules",
    "apps.executions",
    "apps.deadletters",
    "apps.secrets",
    "apps.events",
    "apps.webhooks",
    "apps.workflows",
    "apps.archive",
    "apps.operations",
]
TENANT_KEEPERS = ["apps.archive.keeping"]  # modules that have a say when a tenant is deleted (tenants.keepers)
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]

TENANT_MODEL = "tenants.Tenant"
TENANT_DOMAIN_MODEL = "tenants.Domain"
TENANT_LIMIT_SET_CALLS = True
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]

DATABASE_URL = env.text("DATABASE_URL", "postgresql://shardbeat_app@127.0.0.1:5432/shardbeat")
# The owner's role migrates and creates tenants; the application's role can't alter or delete audit rows.
MIGRATION_DATABASE_URL = env.text("MIGRATION_DATABASE_URL", DATABASE_URL)
DATABASES = {
    "default": {
        **env.database(DATABASE_URL),
        "CONN_MAX_AGE": env.whole("DB_CONN_MAX_AGE_S", 300),
        "CONN_HEALTH_CHECKS": True,
    }
}
DATABASES["default"]["OPTIONS"] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "prepare_threshold": 1_000_000,  # only what asks for it is prepared: texts that name a schema are too many
    # A frozen web process must not hold a row for ever. Commands that migrate go without (door.become_owner).
    "options": "-c lock_timeout=5000 -c idle_in_transaction_session_timeout=30000",
    **DATABASES["default"]["OPTIONS"],
}
BROKER_URL = env.text("BROKER_URL", "redis://127.0.0.1:6379/0")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- scheduling ---------------------------------------------------------------------------------------------------
SHARDS = env.whole("SHARDS", 64, least=1)  # fixed when installed: `doctor` compares it with the lease rows
SHARED_QUEUES = env.whole("SHARED_QUEUES", 8, least=1)  # for tenants whose plan has no queue of its own
OWN_QUEUES_MAX = env.whole("OWN_QUEUES_MAX", 300)  # tenants of a worker group with a queue of their own; 0: any number
LEASE_TTL_S = 6.0
LEASE_RENEW_S = 2.0
LEASE_LOOK_S = 0.5
LEASE_MARGIN_S = 1.0
FIRE_BATCH = env.whole("FIRE_BATCH", 1000, least=1)
LOOK_AHEAD_S = 5.0
RELEASE_BATCH = env.whole("RELEASE_BATCH", 1000, least=1)
PREFETCH_FACTOR = env.whole("PREFETCH_FACTOR", 2, least=1)  # queued and running at once, as a multiple of slots
QUEUED_BOUND_S = env.whole("QUEUED_BOUND_S", 10, least=1)  # queued but not started for so long: released again
# Unfinished executions of all tenants together, beyond which the API answers 503 (apps.usage.pressure); 0: any number.
MAX_LIVE_TOTAL = env.whole("MAX_LIVE_TOTAL", 5_000_000)
# What was missed yields once live work of its pool has been ready for so long without a worker; 0: never.
DEFER_CATCH_UP_S = env.whole("DEFER_CATCH_UP_S", 5)
# What runs in a dispatcher besides its own loops: functions from its keeper to (name, service, seconds to idle).
DISPATCHER_LOOPS = ("apps.operations.loops.loops",)
METRICS_TOKEN = env.text("METRICS_TOKEN", "")  # who may read /metrics: Authorization: Bearer ...; empty: nobody
SCALE_DRAIN_S = env.whole("SCALE_DRAIN_S", 60, least=1)  # a backlog is to be gone in so many seconds
SCALE_UTILISATION = env.whole("SCALE_UTILISATION", 80, least=1)  # percent of the slots that are to be busy
WORKER_TTL_S = 8.0
WORKER_RENEW_S = 2.0
WORKER_GRACE_S = env.whole("WORKER_GRACE_S", 20)  # a stopping worker lets its work end for so long
WORKER_NICE = env.whole("WORKER_NICE", 5)  # by how much jobs make way for a dispatcher on the same machine
WORKER_POOLS = env.listed("WORKER_POOLS", "http,python,queue")
WORKER_GROUP = env.word("WORKER_GROUP", "", most=24)  # a dedicated group; empty: the shared workers
WORKER_QUEUES = env.patterns("WORKER_QUEUES")  # which of its queues a worker listens to: "http.*, !http.own.acme"
WORKER_TENANTS = env.patterns("WORKER_TENANTS")  # whose own queues: "acme, globex" or "!acme"
HTTP_SLOTS = env.whole("HTTP_SLOTS", 200, least=1)
QUEUE_SLOTS = env.whole("QUEUE_SLOTS", 16, least=1)  # deliveries to tenants' brokers at a time: a thread each
PULL_WAITERS = env.whole("PULL_WAITERS", 16, least=0)  # requests that wait for work in one web process: a thread each
PULL_WAITERS_PER_TENANT = env.whole("PULL_WAITERS_PER_TENANT", 8, least=0)
PUBLIC_URL = env.text("PUBLIC_URL", "").rstrip("/")  # where receivers reach the API, for links in outgoing calls
# Where all tenants' HTTP jobs may call besides ports 80 and 443 of public addresses: rules of kernel.addressrules.
HTTP_REACH = tuple(env.listed("HTTP_REACH", ",".join(USUAL)))
read_rules(HTTP_REACH)  # a mistake is told now, not in every call
HTTP_BREAKER_FAILURES = env.whole("HTTP_BREAKER_FAILURES", 10)  # in the window, and half of the calls; 0: no breakers
HTTP_BREAKER_WINDOW_S = env.whole("HTTP_BREAKER_WINDOW_S", 30, least=1)
HTTP_BREAKER_OPEN_S = env.whole("HTTP_BREAKER_OPEN_S", 10, least=1)  # at first; then twice as long each time
HTTP_BREAKER_OPEN_MAX_S = env.whole("HTTP_BREAKER_OPEN_MAX_S", 300, least=1)
PYTHON_POOL = env.text("PYTHON_POOL", "prefork")  # or "threads": for tasks that mostly wait; they can't be killed
PYTHON_CHILDREN = env.whole("PYTHON_CHILDREN", 2, least=1)
PYTHON_THREADS = env.whole("PYTHON_THREADS", 20, least=1)
CLOCK_WARN_S = 0.5
CLOCK_REFUSE_S = 5.0
PYTHON_SETUP = env.text("PYTHON_SETUP", "")  # "package.module:function" that a child calls before its first task
# Celery tasks that tenants may call as kind "python": public name -> import path of the function.
PYTHON_TASKS: dict[str, str] = {
    "shardbeat.noop": "workers.library:noop",
    "shardbeat.echo": "workers.library:echo",
    **dict(pair.split("=", 1) for pair in env.listed("PYTHON_TASKS")),
}

# --- archive ------------------------------------------------------------------------------------------------------
ARCHIVE_URL = env.text("ARCHIVE_URL", "")  # a folder's path or s3://bucket/prefix; empty: no archive
ARCHIVE_OPTIONS = env.json_object("ARCHIVE_OPTIONS")  # for fsspec: {"key": ..., "secret": ..., "endpoint_url": ...}

# --- containers: the web processes check with these what tenants may run, the workers again before they run it ---
CONTAINER_RUNTIME = env.choice("CONTAINER_RUNTIME", "", ("runc", "docker", "kubernetes"))  # empty: no container jobs
CONTAINER_SLOTS = env.whole("CONTAINER_SLOTS", 4, least=1)
CONTAINER_IMAGES = env.listed("CONTAINER_IMAGES")  # patterns: "registry.test/team/*", or "acme=..." for one tenant
CONTAINER_NETWORKS = env.listed("CONTAINER_NETWORKS")  # beyond "none", in the same form
CONTAINER_MAX_CPU_MILLIS = env.whole("CONTAINER_MAX_CPU_MILLIS", 1_000, least=10)
CONTAINER_MAX_MEMORY_MB = env.whole("CONTAINER_MAX_MEMORY_MB", 512, least=8)
CONTAINER_MAX_PIDS = env.whole("CONTAINER_MAX_PIDS", 256, least=1)
CONTAINER_MAX_SCRATCH_MB = env.whole("CONTAINER_MAX_SCRATCH_MB", 64)
CONTAINER_ROOT_USER = env.flag("CONTAINER_ROOT_USER")  # whether jobs may run as root inside
CONTAINER_ROOTFS: dict[str, str] = dict(pair.split("=", 1) for pair in env.listed("CONTAINER_ROOTFS"))  # for runc
CONTAINER_RUNC_DIR = env.text("CONTAINER_RUNC_DIR", "/run/shardbeat")
CONTAINER_DOCKER_URL = env.text("CONTAINER_DOCKER_URL", "unix:///var/run/docker.sock")
CONTAINER_PULL = env.choice("CONTAINER_PULL", "missing", ("never", "missing", "always"))
CONTAINER_KUBERNETES_URL = env.text("CONTAINER_KUBERNETES_URL", "https://kubernetes.default.svc")
CONTAINER_KUBERNETES_NAMESPACE = env.text("CONTAINER_KUBERNETES_NAMESPACE", "")  # empty: the worker's own
CONTAINER_KUBERNETES_ACCOUNT = env.text(
    "CONTAINER_KUBERNETES_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"
)  # a folder with token, ca.crt and namespace
# Marks our containers on a runtime that others use too. The same for all processes of one installation.
INSTALLATION = env.word("INSTALLATION", env.fingerprint(DATABASE_URL), most=16)

# --- web ----------------------------------------------------------------------------------------------------------
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "apps.api.middleware.RequestIdMiddleware",
    "apps.api.middleware.TenantMiddleware",
    "apps.presenting.plain_queries.PlainQueryMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "apps.api.member_middleware.MemberMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "apps.console.snapshot.middleware.SnapshotMiddleware",
    "apps.console.middleware.TenantPathMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTHENTICATION_BACKENDS = ["apps.console.permissions.Permissions", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
        "UserAttributeSimilarityValidator",
    )
]
APPEND_SLASH = False
# Invitations and links for a new password go out by mail where EMAIL_URL names a server, else only to whoever asked.
EMAIL_SENDER, EMAIL_URL = env.text("EMAIL_SENDER", "shardbeat@localhost"), env.text("EMAIL_URL", "")
globals().update(env.mail(EMAIL_URL))
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
USE_I18N = False
FORMAT_MODULE_PATH = "apps.console.formats"
STATIC_URL = "/static/"
STATIC_ROOT = env.text("STATIC_ROOT", str(VAR_DIR / "static"))
WHITENOISE_USE_FINDERS = True  # no collectstatic step is needed to run
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.flag("SECURE_COOKIES")
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
CSRF_FAILURE_VIEW = "apps.portal.login_csrf.failed"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "apps.api.authentication.ApiKeyAuthentication",
        "apps.api.session_auth.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["apps.api.permissions.RolePermission"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.api.parsers.JsonParser", "apps.api.parsers.MergePatchParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "apps.api.problems.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "DATETIME_FORMAT": None,
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Shardbeat API",
    "VERSION": "1",
    "DESCRIPTION": "Jobs, schedules and their executions. Send an API key as bearer; every operation says which role it"
    " needs (`x-role`) and which action a key's scopes must name (`x-action`). Whatever is refused is answered with a"
    " problem document whose `code` is stable.",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}

CELERY_BEAT_SCHEDULER = "workers.beat:LeaseScheduler"

from config.logs import logging_config  # noqa: E402  after the settings that it reads

LOGGING_CONFIG = "logging.config.dictConfig"
LOGGING = logging_config(level=env.text("LOG_LEVEL", "INFO"), as_json=env.flag("LOG_JSON"))
