"""The parts of the platform, in layers (docs/architecture.md)."""
