"""Routes of the API, mounted at /api/v1/."""

from django.urls import URLPattern, path, re_path

from apps.api import calendars, deadletters, executions, jobs, keys, pages, previews, schedules, secrets, signing

urlpatterns: list[URLPattern] = [
    path("jobs", jobs.JobList.as_view()),
    path("jobs/<uuid:job_id>", jobs.JobDetail.as_view()),
    path("jobs/<uuid:job_id>/pause", jobs.JobPause.as_view()),
    path("jobs/<uuid:job_id>/resume", jobs.JobResume.as_view()),
    path("schedules", schedules.ScheduleList.as_view()),
    path("schedules/preview", previews.PreviewUnsaved.as_view()),
    path("schedules/<uuid:schedule_id>", schedules.ScheduleDetail.as_view()),
    path("schedules/<uuid:schedule_id>/pause", schedules.SchedulePause.as_view()),
    path("schedules/<uuid:schedule_id>/resume", schedules.ScheduleResume.as_view()),
    path("schedules/<uuid:schedule_id>/trigger", schedules.ScheduleTrigger.as_view()),
    path("schedules/<uuid:schedule_id>/preview", previews.PreviewSaved.as_view()),
    path("calendars", calendars.CalendarList.as_view()),
    path("calendars/<uuid:calendar_id>", calendars.CalendarDetail.as_view()),
    path("secrets", secrets.SecretList.as_view()),
    path("secrets/<uuid:secret_id>", secrets.SecretDetail.as_view()),
    path("signing-secrets", signing.SigningList.as_view()),
    path("signing-secrets/rotate", signing.SigningRotate.as_view()),
    path("executions", executions.ExecutionList.as_view()),
    path("executions/<uuid:execution_id>", executions.ExecutionDetail.as_view()),
    path("executions/<uuid:execution_id>/attempts", executions.ExecutionAttempts.as_view()),
    path("executions/<uuid:execution_id>/cancel", executions.ExecutionCancel.as_view()),
    path("executions/<uuid:execution_id>/rerun", executions.ExecutionRerun.as_view()),
    path("attempts", executions.AttemptList.as_view()),
    path("dead-letters", deadletters.DeadLetterList.as_view()),
    path("dead-letters/<uuid:letter_id>", deadletters.DeadLetterDetail.as_view()),
    path("dead-letters/<uuid:letter_id>/replay", deadletters.DeadLetterReplay.as_view()),
    path("dead-letters/<uuid:letter_id>/resolve", deadletters.DeadLetterResolve.as_view()),
    path("api-keys", keys.ApiKeyList.as_view()),
    path("api-keys/<uuid:key_id>", keys.ApiKeyDetail.as_view()),
    path("schema", pages.schema),
    path("docs", pages.docs),
    re_path(r"^[\s\S]*\Z", pages.missing),
]
