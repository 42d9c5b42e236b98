"""How runs go on: begun, advanced where their steps end, looked at, ended. `turn` is the only place to change them."""
