"""Named synthetic loads of `manage.py simulate --synthetic NAME`, as documents of `spec`."""

from typing import Any

_TEN = {f"steady-{number}": {"weight": 1} for number in range(10)}

SCENARIOS: dict[str, dict[str, Any]] = {
    "weights": {
        "about": "Two tenants with weights 1 and 3 keep a pool full: slots go 1:3.",
        "seconds": 300,
        "tenants": {"light": {"weight": 1}, "heavy": {"weight": 3}},
        "jobs": [
            {"tenant": "light", "name": "work", "run_s": {"exponential": 1}, "arrivals": {"poisson_per_s": 100}},
            {"tenant": "heavy", "name": "work", "run_s": {"exponential": 1}, "arrivals": {"poisson_per_s": 100}},
        ],
        "slots": {"http": 100},
    },
    "flood": {
        "about": "One tenant submits 50,000 runs at once while ten others run one a second.",
        "seconds": 600,
        "tenants": {"flood": {"weight": 1}, **_TEN},
        "jobs": [
            {"tenant": "flood", "name": "import", "run_s": {"exponential": 0.5},
             "arrivals": {"flood": 50_000, "at_s": 60}},
            *({"tenant": name, "name": "tick", "run_s": 0.5, "arrivals": {"every_s": 1}} for name in _TEN),
        ],
        "slots": {"http": 100},
    },
    "aligned": {
        "about": "A thousand tenants with 20 schedules each, all at the full minute; 200 slots.",
        "seconds": 600,
        "tenants": {"tenant": {"copies": 1_000, "own_queue": False}},
        "jobs": [
            {"tenant": "tenant", "name": "minutely", "run_s": {"lognormal": {"median": 0.3, "p99": 4}},
             "arrivals": {"every_s": 60, "schedules": 20}},
        ],
        "slots": {"http": 200},
    },
    "heavy-tail": {
        "about": "Most runs take a tenth of a second, some take minutes: what the long ones do to everybody's waits.",
        "seconds": 1_800,
        "tenants": {"quick": {"weight": 1}, "mixed": {"weight": 1}},
        "jobs": [
            {"tenant": "quick", "name": "quick", "run_s": {"exponential": 0.1}, "arrivals": {"poisson_per_s": 50}},
            {"tenant": "mixed", "name": "reports", "fails": 0.02,
             "run_s": {"pareto": {"least": 0.1, "alpha": 1.1, "most": 900}}, "arrivals": {"poisson_per_s": 30}},
        ],
        "slots": {"http": 60},
    },
}  # fmt: skip
