"""How runs go on: begun, advanced where their steps end, looked at, ended. `turn` is the one place that changes them."""
