"""The pages behind the login."""

from django.urls import path

from apps.portal import (
    deadletters,
    execution_verbs,
    executions,
    home,
    job_form,
    job_verbs,
    jobs,
    schedule_form,
    schedule_verbs,
    schedules,
)

JOB, SCHEDULE = "jobs/<uuid:job_id>", "schedules/<uuid:schedule_id>"
EXECUTION, LETTER = "executions/<uuid:execution_id>", "dead-letters/<uuid:letter_id>"

urlpatterns = [
    path("", home.Home.as_view(), name="home"),
    path("jobs", jobs.JobList.as_view(), name="jobs"),
    path("jobs/new", job_form.JobNew.as_view(), name="job-new"),
    path(JOB, jobs.JobDetail.as_view(), name="job"),
    path(f"{JOB}/edit", job_form.JobEdit.as_view(), name="job-edit"),
    path(f"{JOB}/run", job_verbs.JobRun.as_view(), name="job-run"),
    path(f"{JOB}/pause", job_verbs.JobPause.as_view(), name="job-pause"),
    path(f"{JOB}/resume", job_verbs.JobResume.as_view(), name="job-resume"),
    path(f"{JOB}/delete", job_verbs.JobDelete.as_view(), name="job-delete"),
    path("schedules", schedules.ScheduleList.as_view(), name="schedules"),
    path("schedules/new", schedule_form.ScheduleNew.as_view(), name="schedule-new"),
    path(SCHEDULE, schedules.ScheduleDetail.as_view(), name="schedule"),
    path(f"{SCHEDULE}/edit", schedule_form.ScheduleEdit.as_view(), name="schedule-edit"),
    path(f"{SCHEDULE}/run", schedule_verbs.ScheduleTrigger.as_view(), name="schedule-trigger"),
    path(f"{SCHEDULE}/pause", schedule_verbs.SchedulePause.as_view(), name="schedule-pause"),
    path(f"{SCHEDULE}/resume", schedule_verbs.ScheduleResume.as_view(), name="schedule-resume"),
    path(f"{SCHEDULE}/delete", schedule_verbs.ScheduleDelete.as_view(), name="schedule-delete"),
    path("executions", executions.ExecutionList.as_view(), name="executions"),
    path(EXECUTION, executions.ExecutionDetail.as_view(), name="execution"),
    path(f"{EXECUTION}/cancel", execution_verbs.ExecutionCancel.as_view(), name="execution-cancel"),
    path(f"{EXECUTION}/rerun", execution_verbs.ExecutionRerun.as_view(), name="execution-rerun"),
    path("dead-letters", deadletters.DeadLetterList.as_view(), name="deadletters"),
    path(LETTER, deadletters.DeadLetterDetail.as_view(), name="deadletter"),
    path(f"{LETTER}/replay", deadletters.DeadLetterReplay.as_view(), name="deadletter-replay"),
    path(f"{LETTER}/resolve", deadletters.DeadLetterResolve.as_view(), name="deadletter-resolve"),
]
