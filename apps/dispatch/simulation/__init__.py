"""What-if: a discrete-event simulation over the very code that admits and shares, and plans for larger sizes."""
